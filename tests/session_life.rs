//! Owner and lifetime of a session.
//!
//! Nothing is left of a session after calls that fail and processes that are killed.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::session::{Ended, Exec};
use helmdeck_core::{Call, Clock, Code, Identity, PackName};
use helmdeck_engine::{Config, Engine, SessionPlace};
use helmdeck_testkit::ManualClock;
use serde_json::{Value, json};

use crate::support::program::{Home, Run, Server};
use crate::support::sessions::{SessionFixture, cgroup_of, folders, is_running, place, runs};
use crate::support::{KEY, wait_for};

fn callers() -> Vec<Identity> {
    let of = |tenant, user| Identity::new(tenant, user).unwrap();
    vec![
        of("acme", "ann"),
        of("acme", "bob"),
        of("umbrella", "ann"),
        of("umbrella", "bob"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_caller_is_not_found() {
    let fixture = SessionFixture::new();
    let callers = callers();
    let mut kept = Vec::new();
    for caller in &callers {
        kept.push(
            fixture
                .kept(
                    caller,
                    &format!("echo {}-{} > secret", caller.tenant(), caller.user()),
                )
                .await,
        );
    }
    let absent = json!({"sh": "cat secret", "_session_id": "0".repeat(32)});
    let absent = fixture
        .call_as(&callers[0], "once", absent)
        .await
        .unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
    for (mine, caller) in callers.iter().enumerate() {
        let listed = fixture.engine.sessions(Some(caller)).await.unwrap();
        assert_eq!(
            listed
                .iter()
                .map(|session| session.id.as_str())
                .collect::<Vec<_>>(),
            [kept[mine].id()]
        );
        for (other, session) in kept.iter().enumerate() {
            let input = json!({"sh": "cat secret", "_session_id": session.id()});
            let answer = fixture.call_as(caller, "once", input).await;
            if mine == other {
                let (came, _) = answer.unwrap();
                assert_eq!(
                    came.stdout,
                    format!("{}-{}\n", caller.tenant(), caller.user())
                );
                assert_eq!(came.session.as_deref(), Some(session.id()));
            } else {
                let error = answer.unwrap_err();
                assert_eq!(
                    (error.code(), error.message()),
                    (absent.code(), absent.message())
                );
                let error = fixture
                    .engine
                    .end_session(Some(caller), session.id())
                    .await
                    .unwrap_err();
                assert_eq!(
                    (error.code(), error.message()),
                    (absent.code(), absent.message())
                );
                assert!(fixture.engine.session(caller, session.id()).await.is_err());
            }
        }
    }
    let anonymous = Identity::anonymous();
    assert!(
        fixture
            .engine
            .session(&anonymous, kept[0].id())
            .await
            .is_err()
    );
    let (came, _) = fixture
        .call_as(&anonymous, "keep", json!({"sh": "true"}))
        .await
        .unwrap();
    assert_eq!(came.session, None, "an anonymous caller keeps no session");
    for odd in ["..", "../../x", "", "a", &"F".repeat(32), "%2e%2e"] {
        assert!(
            fixture.engine.session(&callers[0], odd).await.is_err(),
            "{odd}"
        );
    }
    assert_eq!(fixture.engine.sessions(None).await.unwrap().len(), 4);
    fixture
        .engine
        .end_session(None, kept[1].id())
        .await
        .unwrap();
    assert!(
        fixture
            .engine
            .session(&callers[1], kept[1].id())
            .await
            .is_err()
    );
    assert_eq!(
        kept[1].exec(Exec::new(["true"])).await.unwrap_err().code(),
        Code::SessionUnavailable
    );
    assert_eq!(fixture.folders().len(), 3);
    fixture.engine.shutdown().await;
    assert!(
        fixture.folders().is_empty(),
        "kept sessions end with a server"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_session_keeps_files_fresh_one_has_none() {
    let fixture = SessionFixture::new();
    let local = Identity::local();
    let session = fixture.kept(&local, "echo here > file").await;
    let given = session.supplies().join("given");
    std::fs::write(&given, "supplied\n").unwrap();
    // A command of the sandbox may be another user, whatever the umask of the user that runs the
    // tests.
    std::fs::set_permissions(&given, std::fs::Permissions::from_mode(0o644)).unwrap();
    let input =
        json!({"sh": "cat file /supplies/given; : > /supplies/given", "_session_id": session.id()});
    let (came, _) = fixture.call_as(&local, "maybe", input).await.unwrap();
    assert_eq!(came.stdout, "here\nsupplied\n");
    let (came, _) = fixture
        .call_as(&local, "maybe", json!({"sh": "true"}))
        .await
        .unwrap();
    assert_eq!((came.ended.as_str(), came.session), ("no session", None));
    assert_eq!(fixture.sh("cat file").await.ended, "1");
    // A file that helmdeck puts there is the command's to change.
    std::fs::write(session.folder().join("put"), "by helmdeck").unwrap();
    let executed = session
        .exec(Exec::new(["sh", "-c", "echo more >> put && rm put"]))
        .await
        .unwrap();
    assert_eq!(executed.ended, Ended::Exited(0));
    // A call that fails does not take a pinned session with it.
    let input = json!({"sh": "true", "fail": true, "_session_id": session.id()});
    assert_eq!(
        fixture
            .call_as(&local, "once", input)
            .await
            .unwrap_err()
            .code(),
        Code::HandlerFailed
    );
    assert_eq!(
        session
            .exec(Exec::new(["cat", "file"]))
            .await
            .unwrap()
            .ended,
        Ended::Exited(0)
    );
    // One that it made goes, also if the pack would keep it.
    let failed = fixture
        .call_as(&local, "keep", json!({"sh": "true", "fail": true}))
        .await
        .unwrap_err();
    assert_eq!(failed.code(), Code::HandlerFailed);
    assert_eq!(fixture.folders().len(), 1);
    // A planted link leads its removal nowhere.
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "stays").unwrap();
    std::os::unix::fs::symlink(outside.path(), session.folder().join("link")).unwrap();
    fixture
        .engine
        .end_session(Some(&local), session.id())
        .await
        .unwrap();
    assert!(fixture.folders().is_empty() && outside.path().join("file").exists());
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_limited_per_caller_and_total() {
    let fixture = SessionFixture::with(|config| {
        (config.sessions.max_per_caller, config.sessions.max_total) = (2, 3)
    });
    let callers = callers();
    let first = fixture.kept(&callers[0], "true").await;
    fixture.kept(&callers[0], "true").await;
    let refused = |caller: Identity| {
        let fixture = &fixture;
        async move {
            fixture
                .call_as(&caller, "once", json!({"sh": "true"}))
                .await
                .unwrap_err()
                .code()
        }
    };
    assert_eq!(refused(callers[0].clone()).await, Code::ResourceExhausted);
    fixture.kept(&callers[1], "true").await;
    assert_eq!(refused(callers[2].clone()).await, Code::Overloaded);
    // Those of other processes on the same folder count too.
    let other = SessionFixture::engine(fixture.data.path(), |config| config.sessions.max_total = 3);
    let call = |identity: &Identity| {
        let name = PackName::new("test.once").unwrap();
        Call::new(
            name,
            json!({"sh": "true"}).to_string(),
            Arc::new(identity.clone()),
        )
    };
    assert_eq!(
        other.call(call(&callers[2])).await.unwrap_err().code(),
        Code::Overloaded
    );
    fixture
        .engine
        .end_session(Some(&callers[0]), first.id())
        .await
        .unwrap();
    other.call(call(&callers[2])).await.unwrap();
    other.shutdown().await;
    assert_eq!(
        fixture.folders().len(),
        2,
        "another process ends only its own"
    );
    fixture.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_session_ends_with_its_commands() {
    let (data, clock) = (
        tempfile::tempdir().unwrap(),
        Arc::new(ManualClock::default()),
    );
    let engine = Engine::builder(Config::default())
        .builtins(vec![runs("keep", "preserve = true\ntimeout = \"10m\"")])
        .sessions(place(data.path()))
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .build();
    let call = |input: Value| {
        let name = PackName::new("test.keep").unwrap();
        Call::new(name, input.to_string(), Arc::new(Identity::local()))
    };
    let id = engine
        .call(call(json!({"sh": "true"})))
        .await
        .unwrap()
        .session_id
        .unwrap();
    clock.advance(Duration::from_secs(8 * 60));
    // Its use extends it.
    engine
        .call(call(json!({"sh": "true", "_session_id": &*id})))
        .await
        .unwrap();
    clock.advance(Duration::from_secs(8 * 60));
    let session = engine.session(&Identity::local(), &id).await.unwrap();
    let running = tokio::spawn(async move {
        session
            .exec(Exec {
                timeout: Duration::from_secs(3600),
                ..Exec::new(["sleep", "654321"])
            })
            .await
    });
    while !is_running("654321") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    clock.advance(Duration::from_secs(3 * 60));
    assert_eq!(
        running.await.unwrap().unwrap_err().code(),
        Code::SessionUnavailable
    );
    assert!(!is_running("654321"));
    assert!(engine.session(&Identity::local(), &id).await.is_err());
    while !folders(data.path()).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while !engine
        .metrics()
        .contains("helmdeck_sessions_ended_total{reason=\"expired\"} 1")
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        engine.metrics().contains("helmdeck_sessions 0")
            && engine.metrics().contains("sessions_made_total 1")
    );
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_kills_what_runs() {
    let fixture = SessionFixture::new();
    let session = fixture.kept(&Identity::local(), "true").await;
    let running = tokio::spawn(async move { session.exec(Exec::new(["sleep", "543210"])).await });
    while !is_running("543210") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.engine.shutdown().await;
    assert!(!is_running("543210") && fixture.folders().is_empty());
    assert_eq!(
        running.await.unwrap().unwrap_err().code(),
        Code::SessionUnavailable
    );
    let late = fixture
        .call_as(&Identity::local(), "once", json!({"sh": "true"}))
        .await
        .unwrap_err();
    assert_eq!(late.code(), Code::SessionUnavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn network_wish_or_missing_runtime_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let call = || {
        Call::new(
            PackName::new("test.net").unwrap(),
            "{\"sh\":\"true\"}",
            Arc::new(Identity::local()),
        )
    };
    let builder =
        || Engine::builder(Config::default()).builtins(vec![runs("net", "network = true")]);
    let error = builder()
        .sessions(place(data.path()))
        .build()
        .call(call())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::SessionUnavailable);
    assert!(error.message().contains("network") && folders(data.path()).is_empty());
    let error = builder().build().call(call()).await.unwrap_err();
    assert_eq!(error.code(), Code::SessionUnavailable);
    let place = SessionPlace {
        program: "/bin/true".into(),
        ..place(data.path())
    };
    let engine = Engine::builder(Config::default())
        .builtins(vec![runs("net", "")])
        .sessions(place)
        .build();
    assert_eq!(
        engine.call(call()).await.unwrap_err().code(),
        Code::SessionUnavailable
    );
}

/// Adds a pack that keeps its session, and one whose session ends with its call.
///
/// That call lasts until the file `go` exists. If its server was killed first, it ends after some
/// minutes.
fn install(home: &Home) {
    for (name, script, session) in [
        (
            "test.box",
            "#!/bin/sh\ncat >/dev/null\necho '{}'\n",
            "preserve = true\ntimeout = \"1h\"",
        ),
        (
            "test.wait",
            "#!/bin/sh\ncat >/dev/null\nn=0\nwhile [ ! -e go ] && [ $((n += 1)) -lt 6000 ]; do sleep 0.02; done\necho '{}'\n",
            "",
        ),
    ] {
        let program = home.packs().join(format!("{name}.sh"));
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!(
            "name = \"{name}\"\nversion = \"v1\"\ndescription = \"For tests\"\n[handler]\ncommand = [\"./{name}.sh\"]\n\
             timeout = \"2m\"\n[session]\n{session}\n"
        );
        std::fs::write(home.packs().join(format!("{name}.toml")), manifest).unwrap();
    }
}

/// Makes a session that is kept, by one call of the program.
fn kept(home: &Home) -> String {
    let run = home.run(KEY, &["run", "test.box", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
    outcome["session_id"].as_str().unwrap().to_owned()
}

/// Starts a command in a session by the program, and waits until it runs.
fn start(home: &Home, id: &str, marker: &str) -> Child {
    let arguments = [
        "session",
        "exec",
        id,
        "--timeout",
        "10m",
        "--",
        "sh",
        "-c",
        &format!("sleep $(({marker} - 1 + 1)); true"),
    ];
    let child = home
        .command(KEY, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the command to run", || {
        is_running(&format!("sleep\0{marker}"))
    });
    child
}

#[test]
fn shell_uses_lists_and_ends_a_preserved_session() {
    let home = Home::new();
    install(&home);
    assert!(
        home.run(KEY, &["session", "list"])
            .stdout
            .contains("there are no sessions")
    );
    let id = kept(&home);
    let run = home.run(
        KEY,
        &[
            "session",
            "exec",
            &id,
            "--",
            "sh",
            "-c",
            "echo hello > file; pwd",
        ],
    );
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "/workspace\n"),
        "{}",
        run.stderr
    );
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let run = home.run(KEY, &["session", "exec", &id, "--", "sh", "-c", script]);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (code, ""),
            "it ends as its command does: {script}"
        );
    }
    let run = home.run(
        KEY,
        &[
            "session", "exec", &id, "--json", "--", "cat", "file", "none",
        ],
    );
    let value: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (run.code, &value["stdout"], &value["status"]),
        (1, &json!("hello\n"), &json!(1))
    );
    let run = home.run(KEY, &["session", "list", "--json"]);
    let value: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&value["sessions"][0]["id"], &value["sessions"][0]["user"]),
        (&json!(id), &json!("local"))
    );
    let run = home.run(KEY, &["check"]);
    assert!(
        run.stdout.contains("commands run in a sandbox"),
        "{}",
        run.stdout
    );
    // Pinned by a call of another process.
    let run = home.run(
        KEY,
        &[
            "run",
            "test.box",
            "--json",
            "--input",
            &json!({"_session_id": id}).to_string(),
        ],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    // A command of another process is killed when the session is ended.
    let mut child = start(&home, &id, "321098");
    assert_eq!(home.run(KEY, &["session", "end", &id]).code, 0);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!is_running("sleep\u{0}321098"));
    assert_eq!(home.run(KEY, &["session", "end", &id]).code, 3);
    assert_eq!(
        home.run(KEY, &["session", "exec", &id, "--", "true"]).code,
        3
    );
    assert!(folders(&home.data()).is_empty());
}

#[test]
fn killed_process_leaves_no_session() {
    let home = Home::new();
    install(&home);
    let id = kept(&home);
    let mut child = start(&home, &id, "210987");
    let cgroup = cgroup_of("sleep\u{0}210987");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the command to be killed", || {
        !is_running("sleep\u{0}210987")
    });
    // The session was to be kept, and is.
    assert_eq!(
        home.run(KEY, &["session", "exec", &id, "--", "true"]).code,
        0
    );
    assert!(
        cgroup.is_none_or(|cgroup| !cgroup.exists()),
        "the cgroup of the killed command is removed"
    );

    let mut server = Server::start(&home, KEY);
    let listed =
        |server: &Server| server.ask("GET /api/v1/sessions", "").json()["sessions"].clone();
    assert_eq!(
        listed(&server).as_array().unwrap().len(),
        1,
        "{}",
        listed(&server)
    );
    let address = server.url("/api/v1/packs/test.wait");
    let mut call = Command::new("python3")
        .args(["-c", "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], b'{}', {'Content-Type': 'application/json'}))"])
        .arg(address)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the call to have a session", || {
        listed(&server).as_array().unwrap().len() == 2
    });
    // A process does not remove what another running process has made.
    assert!(
        home.run(KEY, &["run", "test.box", "--json"]).code == 0
            && listed(&server).as_array().unwrap().len() == 3
    );
    server.signal("-KILL");
    server.ended();
    call.wait().unwrap();
    assert_eq!(folders(&home.data()).len(), 3);
    let server = Server::start(&home, KEY);
    wait_for("what the killed server left to be removed", || {
        folders(&home.data()).len() == 2
    });
    let answer = server
        .exchange(&format!("DELETE /api/v1/sessions/{id}"), "")
        .unwrap();
    assert_eq!(answer.code, 204, "{}", answer.body);
    assert_eq!(
        server
            .ask(&format!("DELETE /api/v1/sessions/{id}"), "")
            .code,
        404
    );
    assert_eq!(folders(&home.data()).len(), 1);
    // The page ends the other one, by a form.
    let page = server.ask("GET /ui/files", "").body;
    let part = |after: &str| {
        page.split(after)
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    let (path, body) = (
        part("action=\"/ui/sandboxes/"),
        format!("form_token={}", part("form_token\" value=\"")),
    );
    let (origin, length) = (server.url(""), body.len());
    let host = origin.strip_prefix("http://").unwrap();
    let answer = server.raw(
        format!(
            "POST /ui/sandboxes/{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    );
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert!(
        folders(&home.data()).is_empty()
            && server
                .ask("GET /ui/files", "")
                .body
                .contains("No sandbox is open")
    );
}

#[test]
fn rest_callers_manage_own_sessions_admins_all() {
    let home = Home::new();
    install(&home);
    let tokens = [("HELMDECK_AUTH__API_TOKENS", "true")];
    let token = |tenant: &str, user: &str, scope: &str| {
        let arguments = [
            "token",
            "create",
            "--tenant",
            tenant,
            "--user",
            user,
            "--scope",
            scope,
            "--expires",
            "1h",
            "--name",
            "t",
        ];
        let made = Run::of(home.command(KEY, &arguments).envs(tokens).output().unwrap());
        assert_eq!(made.code, 0, "{}", made.stderr);
        made.stdout.trim_end().to_owned()
    };
    let server = Server::start_with(&home, KEY, &tokens);
    let callers = [
        ("acme", "ann"),
        ("acme", "bob"),
        ("umbrella", "ann"),
        ("umbrella", "bob"),
    ];
    let callers = callers.map(|(tenant, user)| token(tenant, user, "packs:run"));
    let admin = token("acme", "root", "admin");
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        server
            .exchange(
                &format!("{method} /api/v1/{path}\nAuthorization: Bearer {token}"),
                body,
            )
            .unwrap()
    };
    let made = callers.each_ref().map(|token| {
        let answer = ask("POST", "packs/test.box", token, "{}");
        answer.json()["session_id"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", answer.body))
            .to_owned()
    });
    let ids = |token: &str| -> Vec<String> {
        let listed = ask("GET", "sessions", token, "").json();
        listed["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["id"].as_str().unwrap().to_owned())
            .collect()
    };
    for (mine, token) in callers.iter().enumerate() {
        assert_eq!(ids(token), [made[mine].clone()]);
        for (other, id) in made.iter().enumerate().filter(|(other, _)| *other != mine) {
            assert_eq!(
                ask("DELETE", &format!("sessions/{id}"), token, "").code,
                404,
                "{mine} {other}"
            );
            let pinned = ask(
                "POST",
                "packs/test.box",
                token,
                &json!({"_session_id": id}).to_string(),
            );
            assert_eq!(pinned.code, 404, "{mine} {other}");
        }
    }
    assert_eq!(server.ask("GET /api/v1/sessions", "").code, 401);
    assert_eq!(ids(&admin).len(), 4);
    assert_eq!(
        ask("DELETE", &format!("sessions/{}", made[0]), &callers[0], "").code,
        204
    );
    assert_eq!(
        ask("DELETE", &format!("sessions/{}", made[3]), &admin, "").code,
        204
    );
    assert_eq!(ids(&admin), [made[1].clone(), made[2].clone()]);
}

/// The user `nobody` of this machine.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A home of a user other than root, and the program where that user can run it.
struct Plain {
    home: Home,
    program: PathBuf,
    _folder: tempfile::TempDir,
}

impl Plain {
    fn new() -> Self {
        let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
        install(&home);
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("helmdeck");
        std::fs::copy(env!("CARGO_BIN_EXE_helmdeck"), &program).unwrap();
        if is_root() {
            let owner = format!("{NOBODY}:{NOBODY}");
            let given = Command::new("chown")
                .args(["-R", &owner, &home.environment(KEY)["HOME"]])
                .status()
                .unwrap();
            assert!(given.success());
        }
        Self {
            home,
            program,
            _folder: folder,
        }
    }

    fn run(&self, arguments: &[&str], more: &[(&str, &str)]) -> Run {
        let mut command = Command::new(&self.program);
        let environment = self.home.environment(KEY);
        command
            .args(arguments)
            .env_clear()
            .envs(environment)
            .envs(more.iter().copied())
            .current_dir("/");
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    fn sh(&self, id: &str, script: &str, more: &[(&str, &str)]) -> Run {
        self.run(&["session", "exec", id, "--", "bash", "-c", script], more)
    }
}

#[test]
fn plain_user_has_sandbox_or_may_disable_it() {
    let plain = Plain::new();
    let run = plain.run(&["run", "test.box", "--json"], &[]);
    let outcome: Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
    let id = outcome["session_id"].as_str().unwrap();
    let script = format!(
        "id -u; pwd; ls -A; cat /etc/shadow {} 2>/dev/null; for n in $(seq 200); do sleep 109876 & done 2>/dev/null; jobs -p | wc -l",
        plain.home.data().display()
    );
    let run = plain.sh(id, &script, &[("HELMDECK_SESSIONS__PROCESSES", "64")]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[..2], ["1000", "/workspace"], "{}", run.stderr);
    let started: u32 = lines.last().unwrap().parse().unwrap_or(0);
    assert!(started < 64, "{}", run.stdout);
    assert!(!is_running("109876"));

    // What a command shuts counts all the same, and stays shut.
    let script = "mkdir a b; head -c 40M /dev/zero > a/x; chmod 300 a; chmod 0 b; sleep 210876";
    let run = plain.sh(id, script, &[("HELMDECK_SESSIONS__DISK", "20MiB")]);
    assert!(
        run.code == 1 && run.stderr.contains("holds more than it may"),
        "{}",
        run.stderr
    );
    let run = plain.sh(id, "stat -c %a a b && chmod 700 a b && rm -r a b", &[]);
    assert_eq!(run.stdout, "300\n0\n", "{}", run.stderr);

    // A missing path: no sandbox can be made.
    let none = ("HELMDECK_SESSIONS__READ_ONLY_PATHS", "/not/there");
    let allow = ("HELMDECK_SESSIONS__ALLOW_UNSANDBOXED", "true");
    let run = plain.sh(id, "true", &[none]);
    assert!(
        run.code == 1 && run.stderr.contains("sessions.allow_unsandboxed"),
        "{}",
        run.stderr
    );
    let run = plain.sh(
        id,
        "pwd; ulimit -u; env | grep -c ^HELMDECK; setsid sleep 432109 >/dev/null 2>&1 & echo",
        &[none, allow],
    );
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines[0].ends_with("/folder") && lines[0].contains(id),
        "{} {}",
        run.stdout,
        run.stderr
    );
    assert!(run.stderr.contains("WITHOUT a sandbox"), "{}", run.stderr);
    assert_eq!(lines[1..3], ["256", "0"]);
    assert!(
        !is_running("432109"),
        "what a command leaves behind is killed"
    );

    // Where not even the limits can be set, that is said at the start, not by each command.
    let run = plain.sh(
        id,
        "true",
        &[
            none,
            allow,
            ("HELMDECK_SESSIONS__OPEN_FILES", "99999999999"),
        ],
    );
    assert!(
        run.code == 1 && run.stderr.contains("sessions.open_files"),
        "{}",
        run.stderr
    );

    // Root never goes without.
    if is_root() {
        let home = Home::new();
        install(&home);
        let id = kept(&home);
        let mut command = home.command(KEY, &["session", "exec", &id, "--", "true"]);
        let run = Run::of(command.envs([none, allow]).output().unwrap());
        assert!(
            run.code == 1 && run.stderr.contains("never run as root"),
            "{}",
            run.stderr
        );
    }
}
