//! `repo.fetch`, `repo.map` and `repo.push` by the real program: a git server with a login, the
//! vault, the real sandbox.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::git::{GitServer, git};
use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY, wait_for};
use crate::vault::{VAULT_KEY, feed};

/// The password of the git server, which must be nowhere but there.
const PASSWORD: &str = "wren-7d21-canary";

/// A git server with a login, and a home whose vault holds it.
struct Fixture {
    server: GitServer,
    home: Home,
    seed: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let seed = tempfile::tempdir().unwrap();
        git(seed.path(), &["init", "-q", "-b", "main"]);
        std::fs::write(
            seed.path().join("app.py"),
            "def greet():\n    return 'hello'\n",
        )
        .unwrap();
        git(seed.path(), &["add", "."]);
        git(seed.path(), &["commit", "-q", "-m", "first"]);
        let server = GitServer::with_login("bot", PASSWORD);
        server.add("o/r.git", seed.path());
        let fixture = Self {
            server,
            home: Home::new(),
            seed,
        };
        let set = [
            "vault",
            "set",
            "forge",
            "--type",
            "login",
            "--user",
            "bot",
            "--host",
            "127.0.0.1",
            "--allow",
            "local/local",
            "--pack",
            "repo.*",
        ];
        let run = feed(
            fixture
                .home
                .command(KEY, &set)
                .env("HELMDECK_VAULT_KEY", VAULT_KEY),
            PASSWORD,
        );
        assert_eq!(run.code, 0, "{}", run.stderr);
        fixture
    }

    fn url(&self) -> String {
        self.server.url("o/r.git")
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.home.command(KEY, arguments);
        command
            .env("HELMDECK_VAULT_KEY", VAULT_KEY)
            .env("HELMDECK_EGRESS_ALLOW", "127.0.0.1");
        command
    }

    fn run(&self, pack: &str, input: &Value) -> Run {
        let run = Run::of(
            self.command(&["run", pack, "--input", &input.to_string(), "--json"])
                .output()
                .unwrap(),
        );
        assert!(
            !run.stdout.contains(PASSWORD) && !run.stderr.contains(PASSWORD),
            "{}{}",
            run.stdout,
            run.stderr
        );
        run
    }

    #[track_caller]
    fn call(&self, pack: &str, input: &Value) -> Value {
        let run = self.run(pack, input);
        assert_eq!(run.code, 0, "{pack}: {}{}", run.stdout, run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Returns the code of the problem that a call ends with.
    #[track_caller]
    fn refused(&self, pack: &str, input: &Value) -> String {
        let run = self.run(pack, input);
        let problem: Value = serde_json::from_str(&run.stderr)
            .unwrap_or_else(|_| panic!("{}{}", run.stdout, run.stderr));
        problem["code"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn in_session(&self, session: &str, script: &str) -> String {
        let run = self
            .command(&[
                "session", "exec", session, "--cwd", "repo", "--", "sh", "-c", script,
            ])
            .output()
            .unwrap();
        let run = Run::of(run);
        assert_eq!(run.code, 0, "{script}: {}{}", run.stdout, run.stderr);
        run.stdout
    }

    fn start(&self) -> Server {
        let mut command = self.home.command(KEY, SERVE);
        command
            .env("HELMDECK_VAULT_KEY", VAULT_KEY)
            .env("HELMDECK_EGRESS_ALLOW", "127.0.0.1");
        Server::launch(command)
    }
}

/// Returns the files below a folder that hold a text.
fn holding(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            let held = || {
                String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap_or_default())
                    .contains(text)
            };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && held() {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn one_session_fetches_maps_changes_and_pushes() {
    let fixture = Fixture::new();
    let head = fixture.server.head("o/r.git", "main").unwrap();
    let fetched = fixture.call(
        "repo.fetch",
        &json!({"repo_url": fixture.url(), "credential": "forge"}),
    );
    let expected = json!({"path": "repo", "commit": head, "ref": "main", "default_branch": "main", "url": fixture.url()});
    assert_eq!(fetched["output"], expected);
    let session = fetched["session_id"].as_str().unwrap();

    let mapped = fixture.call("repo.map", &json!({"path": "repo", "_session_id": session}));
    assert!(
        mapped["output"]["map"]
            .as_str()
            .unwrap()
            .contains("def greet()"),
        "{mapped}"
    );
    assert_eq!(mapped["output"]["root"], "/workspace/repo");

    // A hook and a filter that would touch what is outside of the work tree, and a change.
    let script = "git status --porcelain && mkdir -p .git/hooks .git/info && \
        printf '#!/bin/sh\\ntouch /workspace/ran\\n' > .git/hooks/pre-push && chmod +x .git/hooks/pre-push && \
        git config filter.x.clean 'touch /workspace/ran; cat' && git config core.fsmonitor 'touch /workspace/ran' && \
        printf '*.py filter=x\\n' > .git/info/attributes && \
        printf 'def greet():\\n    return \"hi\"\\n' > app.py && git log --format=%H";
    assert_eq!(
        fixture.in_session(session, script).trim(),
        head,
        "a clean work tree with its history"
    );

    let push = |branch: &str| json!({"branch": branch, "message": "Greet", "credential": "forge", "_session_id": session});
    let pushed = fixture.call("repo.push", &push("fix"));
    let output = &pushed["output"];
    assert_eq!(
        output["files"],
        json!([{"path": "app.py", "added": 1, "removed": 1}])
    );
    assert_eq!(output["base"], head.as_str());
    assert_eq!(
        fixture.server.head("o/r.git", "fix").as_deref(),
        output["commit"].as_str()
    );
    assert_eq!(fixture.server.head("o/r.git", "main"), Some(head));
    assert_eq!(
        fixture.in_session(session, "ls /workspace").trim(),
        "repo",
        "nothing ran, nothing is left"
    );

    for branch in ["main", "fix"] {
        assert_eq!(
            fixture.refused("repo.push", &push(branch)),
            "conflict",
            "{branch}"
        );
    }
    fixture.server.tell("refuse-push");
    assert_eq!(
        fixture.refused("repo.push", &push("other")),
        "credential_invalid"
    );

    assert_eq!(
        holding(&fixture.home.data(), PASSWORD),
        Vec::<PathBuf>::new()
    );
    let seen = fixture.in_session(
        session,
        "cat ../repo/.git/config; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; true",
    );
    assert!(!seen.contains(PASSWORD), "{seen}");
}

#[test]
fn what_cannot_be_fetched_says_why() {
    let fixture = Fixture::new();
    let fetch = |url: &str, more: Value| {
        let mut input = json!({"repo_url": url});
        input
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fixture.refused("repo.fetch", &input)
    };
    let forge = json!({"credential": "forge"});
    assert_eq!(fetch(&fixture.url(), json!({})), "credential_invalid");
    assert_eq!(
        fetch(&fixture.server.url("o/none.git"), forge.clone()),
        "not_found"
    );
    assert_eq!(
        fetch(
            &fixture.url(),
            json!({"credential": "forge", "ref": "none"})
        ),
        "not_found"
    );
    assert_eq!(
        fetch("http://169.254.169.254/o/r.git", json!({})),
        "forbidden"
    );
    assert_eq!(
        fetch("http://example.com/o/r.git", forge),
        "forbidden",
        "the credential is for another host"
    );
    assert_eq!(
        fetch(
            &fixture.url().replace("http://", "http://bot:x@"),
            json!({})
        ),
        "invalid_input"
    );
    assert_eq!(fetch("ext::sh -c true", json!({})), "invalid_input");
    let run = Run::of(
        fixture
            .command(&["session", "list", "--json"])
            .output()
            .unwrap(),
    );
    assert!(
        !run.stdout.contains("repo.fetch"),
        "a failed fetch keeps no session: {}",
        run.stdout
    );
}

#[test]
fn killed_fetch_is_repaired_by_the_next() {
    let fixture = Fixture::new();
    let fetched = fixture.call(
        "repo.fetch",
        &json!({"repo_url": fixture.url(), "credential": "forge"}),
    );
    let session = fetched["session_id"].as_str().unwrap();
    // Something new, and a fetch of it that is stopped in the middle.
    std::fs::write(
        fixture.seed.path().join("app.py"),
        "def greet():\n    return 'new'\n",
    )
    .unwrap();
    git(fixture.seed.path(), &["commit", "-q", "-a", "-m", "second"]);
    git(
        fixture.seed.path(),
        &[
            "push",
            "-q",
            fixture.server.bare("o/r.git").to_str().unwrap(),
            "main",
        ],
    );
    let mut server = fixture.start();
    fixture.server.tell("stall-fetch");
    let body = json!({"repo_url": fixture.url(), "credential": "forge", "_session_id": session})
        .to_string();
    std::thread::scope(|scope| {
        let server = &server;
        scope.spawn(move || server.try_ask("POST /api/v1/packs/repo.fetch", &body));
        fixture.server.wait_until_stalled();
        server.signal("-KILL");
    });
    server.ended();
    fixture.server.stop("stall-fetch");
    let input = json!({"repo_url": fixture.url(), "credential": "forge", "_session_id": session});
    let again = fixture.run("repo.fetch", &input);
    // The session may have ended with its server; a fresh one serves as well.
    let again: Value = if again.code == 0 {
        serde_json::from_str(&again.stdout).unwrap()
    } else {
        fixture.call(
            "repo.fetch",
            &json!({"repo_url": fixture.url(), "credential": "forge"}),
        )
    };
    assert_eq!(
        again["output"]["commit"].as_str(),
        fixture.server.head("o/r.git", "main").as_deref()
    );
}

#[test]
fn ssh_goes_out_through_the_guard() {
    let fixture = Fixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "ssh://git@127.0.0.1:{}/o/r.git",
        listener.local_addr().unwrap().port()
    );
    listener.set_nonblocking(true).unwrap();
    let heard = std::thread::spawn(move || {
        let mut came = None;
        wait_for("ssh to come", || {
            came = listener.accept().ok();
            came.is_some()
        });
        let (mut stream, _) = came.unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.write_all(b"SSH-2.0-stand-in\r\n").unwrap();
        let mut line = [0; 8];
        stream.read_exact(&mut line).unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    });
    // The other side hangs up after the first line; what counts is that ssh was there, and by which
    // way.
    assert_eq!(
        fixture.refused("repo.fetch", &json!({"repo_url": url})),
        "handler_failed"
    );
    assert_eq!(heard.join().unwrap(), "SSH-2.0-");
    let inner = "ssh://git@127.0.0.2:22/o/r.git";
    assert_eq!(
        fixture.refused("repo.fetch", &json!({"repo_url": inner})),
        "forbidden"
    );
}
