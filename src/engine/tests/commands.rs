//! Packs that run a program, from a watched folder.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use helmdeck_core::Code;
use helmdeck_engine::{CommandConfig, Config, Engine};
use helmdeck_testkit::call;

fn write_pack(folder: &Path, name: &str, script: &str, extra: &str) {
    let file = name.replace('.', "_");
    let program = folder.join(format!("{file}.sh"));
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"./{file}.sh\"]\n{extra}\n"
    );
    // Written aside and renamed, as editors do.
    let aside = folder.join(format!(".{file}.tmp"));
    std::fs::write(&aside, manifest).unwrap();
    std::fs::rename(aside, folder.join(format!("{file}.toml"))).unwrap();
}

fn engine(folder: &Path, max_output_bytes: u64) -> Engine {
    let config = Config {
        commands: CommandConfig {
            max_output_bytes,
            ..CommandConfig::default()
        },
        ..Config::default()
    };
    Engine::builder(config)
        .packs_dir(folder)
        .watch(true)
        .build()
}

#[tokio::test]
async fn programs_get_stdin_and_a_minimal_environment() {
    let folder = tempfile::tempdir().unwrap();
    write_pack(folder.path(), "cmd.echo", "cat", "");
    write_pack(
        folder.path(),
        "cmd.env",
        "printf '\\n\"%s\"\\n' \"$(env | cut -d= -f1 | sort | tr '\\n' ' ')\"",
        "env = { GREETING = \"hi\" }",
    );
    let engine = engine(folder.path(), 1 << 20);
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    assert_eq!(
        engine
            .call(call("cmd.echo", "{\"a\": [1, 2.50]}"))
            .await
            .unwrap()
            .output
            .as_str(),
        "{\"a\": [1, 2.50]}"
    );
    assert_eq!(
        engine
            .call(call("cmd.env", "{}"))
            .await
            .unwrap()
            .output
            .as_str(),
        "\"GREETING LANG PATH PWD TZ \""
    );
}

#[tokio::test]
async fn failures_are_typed_and_quote_the_program() {
    let folder = tempfile::tempdir().unwrap();
    write_pack(folder.path(), "cmd.fail", "echo why >&2; exit 7", "");
    write_pack(folder.path(), "cmd.text", "echo not json", "");
    write_pack(folder.path(), "cmd.none", "true", "");
    write_pack(
        folder.path(),
        "cmd.much",
        "head -c 5000 /dev/zero | tr '\\0' 1",
        "",
    );
    let engine = engine(folder.path(), 4096);
    let error = engine.call(call("cmd.fail", "{}")).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message(), error.cause().trim()),
        (
            Code::HandlerFailed,
            "the program exited with status 7; its stderr ends: \"why\"",
            "why"
        )
    );
    for pack in ["cmd.text", "cmd.none", "cmd.much"] {
        assert_eq!(
            engine.call(call(pack, "{}")).await.unwrap_err().code(),
            Code::InvalidOutput,
            "{pack}"
        );
    }
}

#[tokio::test]
async fn a_program_explains_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    let script = |error: &str, status: u8| {
        format!("printf '%s' '{{\"error\": {error}}}'; echo noise >&2; exit {status}")
    };
    let missing = r#"{"code": "not_found", "message": "no such city\n"}"#;
    write_pack(folder.path(), "cmd.missing", &script(missing, 1), "");
    let busy = r#"{"code": "rate_limited", "message": "later", "retry_after_ms": 1500}"#;
    write_pack(folder.path(), "cmd.busy", &script(busy, 3), "");
    // Codes of the engine's own, and other shapes, are not taken for an explanation.
    write_pack(
        folder.path(),
        "cmd.sly",
        &script(r#"{"code": "unauthenticated", "message": "log in"}"#, 1),
        "",
    );
    write_pack(folder.path(), "cmd.odd", &script(r#""just text""#, 1), "");
    // With status 0 it is an output like any other.
    write_pack(folder.path(), "cmd.fine", &script(missing, 0), "");
    let engine = engine(folder.path(), 4096);
    let failed = async |pack| engine.call(call(pack, "{}")).await.unwrap_err();
    let error = failed("cmd.missing").await;
    assert_eq!(
        (error.code(), error.message()),
        (Code::NotFound, "the program says: \"no such city\"")
    );
    let error = failed("cmd.busy").await;
    assert_eq!(
        (error.code(), error.retry_after()),
        (Code::RateLimited, Some(Duration::from_millis(1500)))
    );
    for pack in ["cmd.sly", "cmd.odd"] {
        let error = failed(pack).await;
        let message = "the program exited with status 1; its stderr ends: \"noise\"";
        assert_eq!(
            (error.code(), error.message()),
            (Code::HandlerFailed, message),
            "{pack}"
        );
    }
    assert!(
        engine
            .call(call("cmd.fine", "{}"))
            .await
            .unwrap()
            .output
            .as_str()
            .contains("not_found")
    );
}

#[tokio::test]
async fn unrunnable_program_is_refused_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    for pack in ["cmd.plain", "cmd.closed", "cmd.lost", "cmd.gone"] {
        write_pack(folder.path(), pack, "echo 1", "");
    }
    let program = |pack: &str| folder.path().join(format!("{}.sh", pack.replace('.', "_")));
    std::fs::write(program("cmd.plain"), "echo 1\n").unwrap();
    std::fs::set_permissions(
        program("cmd.closed"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    std::fs::write(program("cmd.lost"), "#!/nonexistent/interpreter\n").unwrap();
    std::fs::remove_file(program("cmd.gone")).unwrap();
    let engine = engine(folder.path(), 4096);
    let refused: Vec<String> = engine.refused().iter().map(ToString::to_string).collect();
    for (pack, why) in [
        ("cmd.plain", "names its interpreter"),
        ("cmd.closed", "run `chmod +x"),
        ("cmd.gone", "does not exist"),
    ] {
        let path = program(pack).display().to_string();
        assert!(
            refused
                .iter()
                .any(|told| told.contains(&path) && told.contains(why)),
            "{pack}: {refused:?}"
        );
    }
    let error = engine.call(call("cmd.lost", "{}")).await.unwrap_err();
    assert!(
        error
            .message()
            .contains("the interpreter on the first line of"),
        "{error}"
    );
}

#[tokio::test]
async fn a_timeout_kills_the_whole_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("grandchild");
    let script = format!(
        "sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait",
        mark.display()
    );
    write_pack(folder.path(), "cmd.slow", &script, "timeout = \"200ms\"");
    let engine = engine(folder.path(), 4096);
    // A slow machine may need more than one call until there is a grandchild.
    let has_started = async || {
        assert_eq!(
            engine
                .call(call("cmd.slow", "{}"))
                .await
                .unwrap_err()
                .code(),
            Code::Timeout
        );
        mark.exists()
    };
    helmdeck_testkit::until("a grandchild", has_started).await;
    let process = Path::new("/proc")
        .join(std::fs::read_to_string(&mark).unwrap().trim())
        .join("exe");
    helmdeck_testkit::until("the end of the grandchild", async || !process.exists()).await;
}

#[tokio::test]
async fn bad_manifest_is_listed_and_harms_no_other() {
    let folder = tempfile::tempdir().unwrap();
    write_pack(folder.path(), "cmd.good", "echo 1", "");
    write_pack(folder.path(), "cmd.bad", "echo 1", "tiemout = \"5s\"");
    std::fs::write(
        folder.path().join("gone.toml"),
        "name = \"cmd.gone\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"./gone.sh\"]\n",
    )
    .unwrap();
    let engine = engine(folder.path(), 4096);
    let refused: Vec<_> = engine.refused().iter().map(ToString::to_string).collect();
    assert!(
        refused
            .iter()
            .any(|r| r.contains("cmd_bad.toml:6: unknown key `tiemout`; did you mean `timeout`?")),
        "{refused:?}"
    );
    assert!(
        refused.iter().any(|r| r.contains("gone.sh does not exist")),
        "{refused:?}"
    );
    assert_eq!(
        engine
            .call(call("cmd.good", "{}"))
            .await
            .unwrap()
            .output
            .as_str(),
        "1"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_come_change_and_go_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    write_pack(folder.path(), "cmd.first", "echo 1", "");
    let engine = engine(folder.path(), 4096);
    let mut events = engine.events().subscribe_after(0).unwrap();
    let until = async |pack: &str, wanted: Option<&str>| {
        let answers = async || {
            let answer = engine
                .call(call(pack, "{}"))
                .await
                .ok()
                .map(|outcome| outcome.output.as_str().to_owned());
            answer.as_deref() == wanted
        };
        helmdeck_testkit::until(format!("{pack}: {wanted:?}"), answers).await;
    };
    write_pack(folder.path(), "cmd.second", "echo 2", "");
    until("cmd.second", Some("2")).await;
    write_pack(folder.path(), "cmd.second", "echo 3", "");
    until("cmd.second", Some("3")).await;
    std::fs::remove_file(folder.path().join("cmd_second.toml")).unwrap();
    until("cmd.second", None).await;
    until("cmd.first", Some("1")).await;
    assert!(events.next().await.unwrap().is_ok());
}
