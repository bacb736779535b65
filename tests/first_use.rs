//! First-day mistakes of a user, with the real program.
//!
//! Nothing is lost, nothing is half done, and the message names the cause.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::http_kind::{Host, answer};
use crate::support::KEY;
use crate::support::program::{Home, Run};

/// A vault key.
const VAULT_KEY: &str = "aa112233445566778899aabbccddeeff00112233445566778899aabbccddee00";

fn run(command: &mut Command) -> Run {
    Run::of(command.output().unwrap())
}

/// Sets a credential that the local caller may use with every pack.
fn set(home: &Home, secret: &str) {
    let arguments = [
        "vault",
        "set",
        "token",
        "--type",
        "api_key",
        "--host",
        "*",
        "--allow",
        "local/local",
        "--pack",
        "*",
    ];
    let mut command = home.command(KEY, &arguments);
    let mut child = command
        .env("HELMDECK_VAULT_KEY", VAULT_KEY)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(secret.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn token_is_revoked_if_it_cannot_be_printed() {
    let home = Home::new();
    for json in [&[][..], &["--json"]] {
        let arguments = [
            &[
                "token",
                "create",
                "--tenant",
                "acme",
                "--user",
                "ci",
                "--scope",
                "packs:run",
            ],
            json,
        ]
        .concat();
        let full = run(home
            .command(KEY, &arguments)
            .stdout(File::create("/dev/full").unwrap()));
        assert_eq!(full.code, 1, "{}", full.stderr);
        assert!(
            full.stderr.contains("it is revoked") && !full.stderr.contains("hd_"),
            "{}",
            full.stderr
        );
    }
    let listed: Value =
        serde_json::from_str(&home.run(KEY, &["token", "list", "--json"]).stdout).unwrap();
    let states: Vec<_> = listed["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| &token["state"])
        .collect();
    assert_eq!(states, ["revoked", "revoked"]);
}

#[test]
fn unwritable_receipt_stops_forgetting() {
    let home = Home::new();
    home.call(KEY, &["test.echo", "repo=a"]);
    let kept = || home.run(KEY, &["memory", "list", "--json"]).stdout;
    let before = kept();
    assert!(before.contains("test.echo"), "{before}");
    let forget = [
        "memory",
        "forget",
        "--tenant",
        "local",
        "--subject",
        "local",
        "--receipt",
    ];
    let refused = home.run(
        KEY,
        &[&forget[..], &["/no/such/folder/receipt", "--yes"]].concat(),
    );
    assert!(
        refused.code == 2 && refused.stderr.contains("nothing was removed"),
        "{} {}",
        refused.code,
        refused.stderr
    );
    assert_eq!(kept(), before);
    // And who says no keeps no empty receipt.
    let receipt = home.data().join("receipt");
    assert_eq!(
        home.run(KEY, &[&forget[..], &[receipt.to_str().unwrap()]].concat())
            .code,
        2
    );
    assert!(!receipt.exists());
    assert_eq!(kept(), before);
}

#[test]
fn check_finds_unwritable_data_folder() {
    let home = Home::new();
    let file = home.packs().join("in-the-way");
    std::fs::write(&file, "").unwrap();
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = home.command(KEY, arguments);
        command
            .env_remove("HELMDECK_MEMORY_KEY")
            .env("HELMDECK_DATA_DIR", file.join("data"));
        run(command.envs(variables.iter().copied()))
    };
    for variables in [
        &[("HELMDECK_MEMORY_KEY", KEY)][..],
        &[("HELMDECK_VAULT_KEY", VAULT_KEY)],
    ] {
        let check = with(variables, &["check"]);
        assert_eq!(check.code, 78, "{}", check.stdout);
        assert!(
            check.stdout.contains("in-the-way is not a folder"),
            "{}",
            check.stdout
        );
    }
    assert_eq!(with(&[], &["check"]).code, 0);

    let memory = [("HELMDECK_MEMORY_KEY", KEY)];
    let stored = with(
        &memory,
        &["run", "--json", "memory.store", "key=a", "value=b"],
    );
    let problem = stored.stderr.lines().last().unwrap_or_default();
    let problem: Value =
        serde_json::from_str(problem).unwrap_or_else(|_| panic!("{}", stored.stderr));
    assert_eq!(
        (stored.code, &problem["code"]),
        (1, &Value::from("overloaded"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("the memory store is not available"),
        "{problem}"
    );
}

#[test]
fn literal_token_in_manifest_is_refused_unprinted() {
    let home = Home::new();
    let token = format!("ghp_{}", "a1".repeat(18));
    let manifest = |header: &str| {
        format!(
            "name = \"test.http\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = true\n[handler.http]\n\
             url = \"https://api.example.com/\"\nheaders = {{ x-key = \"{header}\" }}\n[input]\ntype = \"object\"\n"
        )
    };
    let path = home.packs().join("test.http.toml");
    std::fs::write(&path, manifest("none")).unwrap();
    assert_eq!(
        home.run(KEY, &["pack", "check", path.to_str().unwrap()])
            .code,
        0
    );
    std::fs::write(&path, manifest(&token)).unwrap();
    let check = home.run(KEY, &["pack", "check", path.to_str().unwrap()]);
    assert_eq!(check.code, 1, "{}", check.stdout);
    assert!(
        check.stdout.contains("test.http.toml:7: ") && !check.stdout.contains(&token),
        "{}",
        check.stdout
    );
    let call = home.run(KEY, &["run", "test.http"]);
    assert!(
        call.code == 3 && !call.stderr.contains(&token),
        "{}",
        call.stderr
    );
}

/// Writes the pack `test.secret` and returns the path of its manifest.
///
/// The pack sends a request with a credential to a host.
fn secret_pack(home: &Home, host: &str, credential: &str) -> std::path::PathBuf {
    let manifest = format!(
        "name = \"test.secret\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = true\n\
         credentials = [\"{credential}\"]\n[handler.http]\nurl = \"http://{host}/\"\n[input]\ntype = \"object\"\n\
         additionalProperties = false\n[input.properties]\ncredential = {{ type = \"string\" }}\n"
    );
    let path = home.packs().join("test.secret.toml");
    std::fs::write(&path, manifest).unwrap();
    path
}

#[test]
fn lists_and_examples_see_the_same_credentials() {
    let home = Home::new();
    set(&home, "sparrow");
    let host = Host::start("127.0.0.1", |_| {
        answer("200 OK", "content-type: application/json\r\n", "1")
    });
    home.configure("[egress]\nallow = [\"127.0.0.1\"]\n");
    let path = secret_pack(&home, &host.address, "{credential|token}");
    let manifest = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        format!("{manifest}\n[[examples]]\ninput = {{ credential = \"token\" }}\n"),
    )
    .unwrap();
    let marker = home.packs().join("got");
    let script = home.packs().join("server.sh");
    std::fs::write(
        &script,
        format!("[ \"$TOKEN\" = sparrow ] && : >{}\n", marker.display()),
    )
    .unwrap();
    let mcp = [
        "mcp",
        "add",
        "s",
        "--env",
        "TOKEN=credential:token",
        "--",
        "/bin/sh",
        script.to_str().unwrap(),
    ];
    let added = home.run(KEY, &mcp);
    assert_eq!(added.code, 0, "{}", added.stderr);

    let with_vault = |arguments: &[&str]| {
        run(home
            .command(KEY, arguments)
            .env("HELMDECK_VAULT_KEY", VAULT_KEY))
    };
    let check = ["pack", "check", path.to_str().unwrap(), "--run"];
    assert_eq!(
        home.run(KEY, &check).code,
        1,
        "without the vault there is no such credential"
    );
    let run = with_vault(&check);
    assert_eq!(run.code, 0, "{}", run.stdout);
    for arguments in [["mcp", "list"], ["pack", "list"]] {
        home.run(KEY, &arguments);
        assert!(!marker.exists(), "{arguments:?}");
        let run = with_vault(&arguments);
        assert!(
            marker.exists(),
            "{arguments:?}: {} {}",
            run.stdout,
            run.stderr
        );
        std::fs::remove_file(&marker).unwrap();
    }
}

/// Runs a shell on a separate terminal, types when the program asks, and returns all output.
fn on_a_terminal(home: &Home, line: &str, typed: &str) -> String {
    let mut command = Command::new("script");
    command
        .args(["-qec", line, "/dev/null"])
        .env_clear()
        .envs(home.environment(KEY))
        .env("SHELL", "/bin/sh");
    command
        .env("HELMDECK_VAULT_KEY", VAULT_KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut piece) = (String::new(), [0; 4096]);
    let mut asked = false;
    loop {
        let count = stdout.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        if !asked && shown.contains("Secret: ") {
            asked = true;
            stdin.write_all(typed.as_bytes()).unwrap();
        }
    }
    assert!(asked, "{shown}");
    child.wait().unwrap();
    shown
}

#[test]
fn terminal_echo_is_restored_after_hidden_prompt() {
    let home = Home::new();
    let set = format!(
        "{} vault set token --type api_key --host a.test",
        env!("CARGO_BIN_EXE_helmdeck")
    );
    let interrupted = on_a_terminal(
        &home,
        &format!("trap : INT; {set}; echo code $?; stty -a"),
        "\u{3}",
    );
    let terminated = on_a_terminal(
        &home,
        &format!("timeout --foreground 3 {set}; echo code $?; stty -a"),
        "",
    );
    for (shown, code) in [(&interrupted, "code 1"), (&terminated, "code 124")] {
        assert!(
            shown.contains(code) && shown.contains("interrupted; nothing was changed"),
            "{shown}"
        );
        assert!(
            shown.contains(" echo ") && shown.contains(" icanon"),
            "{shown}"
        );
        assert!(
            !shown.contains("-echo ") && !shown.contains("-icanon"),
            "{shown}"
        );
    }
    let done = on_a_terminal(&home, &format!("{set}; echo code $?; stty -a"), "whole\n");
    assert!(done.contains("code 0") && done.contains(" echo "), "{done}");
}

#[test]
fn damaged_system_database_stops_only_credential_users() {
    let home = Home::new();
    set(&home, "sparrow");
    std::fs::write(
        home.data().join("helmdeck.db"),
        "this is no database".repeat(1000),
    )
    .unwrap();
    secret_pack(&home, "127.0.0.1:9", "token");
    let with_vault = |pack: &str| {
        let mut command = home.command(KEY, &["run", pack]);
        run(command
            .env_remove("HELMDECK_MEMORY_KEY")
            .env("HELMDECK_VAULT_KEY", VAULT_KEY))
    };
    let plain = with_vault("test.plain");
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let secret = with_vault("test.secret");
    assert!(
        secret.code == 1 && secret.stderr.contains("the vault does not open"),
        "{}",
        secret.stderr
    );
}
