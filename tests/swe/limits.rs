//! Runs end within their limits and keep their work.
//!
//! Commands that misbehave are contained, and the model learns of it.

use serde_json::{Value, json};

use super::{Fixture, VAULT_KEY, endless, processes_with};
use crate::support::model::{Reply, bash, submit as done};
use crate::support::program::Server;

/// Says that the run ended so, and kept what it had.
#[track_caller]
fn assert_kept(fixture: &Fixture, outcome: &Value, ended: &str) {
    let output = &outcome["output"];
    assert_eq!(
        (&output["success"], &output["ended"]),
        (&json!(false), &json!(ended)),
        "{output}"
    );
    assert!(
        output["summary"].as_str().unwrap().contains("Stopped"),
        "{output}"
    );
    fixture
        .task
        .assert_mended_by(output["patch"].as_str().unwrap());
    assert!(output["trajectory_artifact_key"].is_string(), "{output}");
    assert_eq!(fixture.sessions(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn cost_limit_keeps_the_patch() {
    // An answer of 1000 + 50 tokens costs a dollar.
    let fixture = Fixture::with(
        "parse",
        [],
        "[llm.prices.scripted]\ninput = 900\noutput = 2000\n",
    );
    fixture.model.then([bash(fixture.task.mend())]);
    fixture.model.then(std::iter::repeat_n(bash("true"), 10));
    let server = fixture.server();
    let outcome = fixture.solve(&server, json!({"max_cost": 2.5}));
    let cost = outcome["output"]["usage"]["cost"].as_f64().unwrap();
    let asked = fixture.model.asked().len();
    assert!(
        (cost - asked as f64).abs() < 1e-9 && (2..=3).contains(&asked),
        "{asked} answers for {cost}"
    );
    assert_kept(&fixture, &outcome, "cost_limit");
}

#[test]
fn time_limit_keeps_the_patch() {
    let (fixture, forever) = (Fixture::new("parse", []), endless());
    fixture
        .model
        .then([bash(fixture.task.mend()), bash(forever.clone())]);
    let server = fixture.server();
    let outcome = fixture.solve(&server, json!({"max_seconds": 10}));
    assert_kept(&fixture, &outcome, "time_limit");
    assert_eq!(processes_with(&forever), [] as [String; 0]);
}

#[test]
fn busy_or_failing_endpoint_is_retried() {
    let again =
        |status, headers| Reply::Status(status, headers, json!({"error": {"message": "not now"}}));
    let fixture = Fixture::new("parse", []);
    fixture.model.then([
        again(429, vec![("retry-after", "0".to_owned())]),
        bash(fixture.task.mend()),
        again(503, vec![]),
        done(),
    ]);
    let server = fixture.server();
    let outcome = fixture.solve(&server, json!({}));
    assert_eq!(
        (
            &outcome["output"]["success"],
            &outcome["output"]["steps_executed"]
        ),
        (&json!(true), &json!(2))
    );
    assert_eq!(fixture.model.asked().len(), 4);
}

/// Returns the peak memory of a server, in KiB.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn misbehaving_commands_are_contained_and_reported() {
    let fixture = Fixture::new("parse", []);
    let outside = tempfile::tempdir().unwrap();
    open_to_all(outside.path());
    let (out, data, forever) = (outside.path().display(), fixture.home.data(), endless());
    let model = fixture
        .model
        .url()
        .replace("http://", "")
        .replace("/v1", "");
    let (host, port) = model.split_once(':').unwrap();
    let connect = format!(
        "import socket; socket.create_connection((\"{host}\", {port}), 5); print(\"connected\")"
    );
    let steps = [
        (
            "a flood",
            "head -c 536870912 /dev/zero | tr '\\0' 'x'; echo end-of-flood".to_owned(),
        ),
        (
            "a fork bomb",
            "f() { f | f & f; }; f 2>/dev/null; echo bomb-over".to_owned(),
        ),
        (
            "a memory hog",
            "python3 -c \"x = [b'x' * (1 << 28) for _ in range(64)]\"; echo \"hog $?\"".to_owned(),
        ),
        ("a holder of stdout", format!("{forever} & echo held")),
        (
            "a write outside",
            format!(
                "for f in /x /usr/x /etc/x /supplies/x {out}/x; do echo x >$f && echo wrote $f; done; echo tried"
            ),
        ),
        (
            "the shadow file",
            "cat /etc/shadow && echo read-it; echo tried".to_owned(),
        ),
        (
            "the vault",
            format!(
                "cat {0}/helmdeck.db >/dev/null && echo read-it; ls {0} && echo listed; echo tried",
                data.display()
            ),
        ),
        ("a socket", format!("python3 -c '{connect}'; echo tried")),
        (
            "the environment",
            "env; cat /proc/*/environ | tr '\\0' '\\n'; echo tried".to_owned(),
        ),
        ("the end", fixture.task.mend()),
    ];
    fixture.model.then(
        steps
            .iter()
            .map(|(_, command)| bash(command.clone()))
            .chain([done()]),
    );
    let server = fixture.server();
    let outcome = fixture.solve(&server, json!({"command_seconds": 60}));
    assert_eq!(outcome["output"]["success"], true, "{outcome}");
    fixture
        .task
        .assert_mended_by(outcome["output"]["patch"].as_str().unwrap());

    let asked = fixture.model.asked();
    let told = |what: &str| {
        let at = steps.iter().position(|(name, _)| *name == what).unwrap();
        asked[at + 1].last().to_owned()
    };
    let flood = told("a flood");
    assert!(
        flood.len() < 100_000 && flood.contains("end-of-flood") && flood.contains("left out"),
        "{} bytes",
        flood.len()
    );
    assert!(
        peak(&server) < 400 << 10,
        "the server itself took {} KiB",
        peak(&server)
    );
    let bomb = told("a fork bomb");
    assert!(
        ["[exit ", "[killed "].iter().any(|end| bomb.contains(end)),
        "{bomb}"
    );
    assert_eq!(processes_with("f | f & f"), [] as [String; 0]);
    assert!(
        told("a memory hog").contains("it took more memory"),
        "{}",
        told("a memory hog")
    );
    assert!(told("a holder of stdout").contains("held"));
    assert_eq!(processes_with(&forever), [] as [String; 0]);
    for what in [
        "a write outside",
        "the shadow file",
        "the vault",
        "a socket",
    ] {
        let told = told(what);
        assert!(told.contains("tried"), "{what}: {told}");
        for done in ["wrote", "read-it", "listed", "connected"] {
            assert!(!told.contains(done), "{what}: {told}");
        }
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    let environment = told("the environment");
    assert!(
        environment.contains("HOME=/workspace") && environment.contains("tried"),
        "{environment}"
    );
    for secret in [
        VAULT_KEY,
        crate::support::KEY,
        super::GIT_SECRET,
        super::MODEL_SECRET,
        "HELMDECK_VAULT",
        "HELMDECK_MEMORY",
    ] {
        assert!(!environment.contains(secret), "{environment}");
    }
}

/// Lets every user of this machine write into a folder.
pub(super) fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}
