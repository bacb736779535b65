//! The credentials of the git server and of the model are nowhere: in no process, file, log,
//! artifact or answer, whatever a run is doing.

use std::path::Path;

use serde_json::json;

use super::{
    Fixture, GIT_SECRET, MODEL_SECRET, artifact, ask, endless, processes_with, result, submit,
    wait_for,
};
use crate::support::model::{Reply, bash, submit as done};
use crate::support::program::Server;
use crate::vault::{Canaries, files, processes};

/// Looks into every process of the server, and into every file of its home.
#[track_caller]
fn look(fixture: &Fixture, server: &Server, canaries: &Canaries, when: &str) {
    let mut seen = 0;
    for (id, arguments, environment) in processes(server.pid()) {
        canaries.absent(&format!("{when}: cmdline of {id}"), &arguments);
        canaries.absent(&format!("{when}: environ of {id}"), &environment);
        seen += 1;
    }
    assert!(seen >= 1, "{when}: the server is among them");
    look_at_files(
        fixture.home.data().ancestors().nth(3).unwrap(),
        canaries,
        when,
    );
}

#[track_caller]
fn look_at_files(folder: &Path, canaries: &Canaries, when: &str) {
    for file in files(folder) {
        // A file may end while others are looked at.
        if let Ok(bytes) = written(&file) {
            canaries.absent(&format!("{when}: {}", file.display()), &bytes);
        }
    }
}

/// Reads what was written of a file: the file system of a session is a file of gigabytes with
/// little in it.
fn written(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;

    use rustix::fs::{SeekFrom, seek};

    let (mut file, mut bytes, mut at) = (std::fs::File::open(file)?, Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start))?;
        seek(&file, SeekFrom::Start(start))?;
        file.by_ref().take(at - start).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[test]
fn no_phase_of_a_run_leaks_secrets() {
    let canaries = Canaries::new();
    let command = endless();
    let fixture = Fixture::new("parse", []);
    let server = fixture.server_with(&[("HELMDECK_LOG", "trace")]);
    fixture.git.tell("stall-fetch");
    fixture.git.tell("stall-push");
    fixture.model.then([
        Reply::Hang,
        // An endpoint that says its key back.
        Reply::Text(format!("I was asked with {MODEL_SECRET}.")),
        bash("env; git config --list --show-origin; ls -laR ~ /supplies; cat ~/.git-credentials; find / -xdev -readable -type f -size -64k \
              -not -path '/usr/*' -not -path '/proc/*' -exec cat {} + 2>/dev/null | head -c 200000"),
        bash(format!("{command} & wait")),
        bash(fixture.task.mend()),
        done(),
    ]);
    let id = submit(
        &server,
        &fixture.input(json!({"mode": "branch", "command_seconds": 600})),
        None,
    );
    fixture.git.wait_until_stalled();
    look(&fixture, &server, &canaries, "while it clones");
    fixture.git.stop("stall-fetch");
    fixture.model.wait_until_hanging();
    look(&fixture, &server, &canaries, "while the model thinks");
    fixture.model.go_on();
    wait_for("the command to run", || {
        !processes_with(&command).is_empty()
    });
    look(&fixture, &server, &canaries, "while a command runs");
    for line in processes_with(&command) {
        let id: i32 = line.split(' ').next().unwrap().parse().unwrap();
        canaries.absent(
            "environ of the command",
            &std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default(),
        );
        // The end of the command, not of the run.
        let _ = std::process::Command::new("kill")
            .args(["-KILL", &id.to_string()])
            .stderr(std::process::Stdio::null())
            .status();
    }
    fixture.git.wait_until_stalled();
    look(&fixture, &server, &canaries, "while it pushes");
    fixture.git.stop("stall-push");

    let (code, outcome) = result(&server, &id, None);
    assert_eq!(code, 200, "{outcome}");
    assert_eq!(
        (fixture.pushed().len(), &outcome["output"]["success"]),
        (1, &json!(true)),
        "{outcome}"
    );
    let trajectory = artifact(
        &server,
        outcome["output"]["trajectory_artifact_key"]
            .as_str()
            .unwrap(),
    );
    assert!(
        trajectory.to_string().contains("[secret]"),
        "what the endpoint said back is taken out"
    );
    for (what, text) in [
        ("the outcome", outcome.to_string()),
        ("the trajectory", trajectory.to_string()),
        (
            "the jobs",
            ask(&server, "GET /api/v1/jobs", None, "").1.to_string(),
        ),
        ("the log", server.log()),
        ("the metrics", server.ask("GET /metrics", "").body),
    ] {
        canaries.absent(what, text.as_bytes());
    }
    // What a session could read of this machine went to the model, which has its own key only in
    // the header.
    for asked in fixture.model.asked().iter().skip(2) {
        assert!(
            !asked.body.to_string().contains(GIT_SECRET),
            "{}",
            asked.body
        );
    }
    look(&fixture, &server, &canaries, "in the end");
    look_at_files(
        &fixture.git.bare(&fixture.repository()),
        &canaries,
        "the pushed repository",
    );
    assert!(
        fixture
            .git
            .log()
            .iter()
            .any(|line| line["user"] == "x-access-token"),
        "the credential was used"
    );
}

#[test]
fn wrong_credentials_are_reported_unprinted() {
    let canaries = Canaries::new();
    let said = json!({"error": {"message": format!("Incorrect API key provided: {MODEL_SECRET}"), "code": "invalid_api_key"}});
    let fixture = Fixture::new("parse", [Reply::Status(401, vec![], said)]);
    fixture.set("git-of-yesterday", &format!("{GIT_SECRET}-of-yesterday"));
    let server = fixture.server_with(&[("HELMDECK_LOG", "trace")]);
    let (code, problem) = result(
        &server,
        &submit(&server, &fixture.input(json!({})), None),
        None,
    );
    assert_eq!(
        (code, &problem["code"]),
        (424, &json!("credential_invalid")),
        "{problem}"
    );
    canaries.absent("the problem", problem.to_string().as_bytes());

    let old = fixture.input(json!({"credential": "git-of-yesterday"}));
    let (code, problem) = result(&server, &submit(&server, &old, None), None);
    assert_eq!(
        (code, &problem["code"]),
        (424, &json!("credential_invalid")),
        "{problem}"
    );
    canaries.absent("the problem", problem.to_string().as_bytes());
    canaries.absent("the log", server.log().as_bytes());
    assert_eq!(
        fixture.model.asked().len(),
        1,
        "who cannot clone asks no model"
    );
}

#[test]
fn caller_endpoint_gets_only_keys_of_its_host() {
    let (fixture, other) = (
        Fixture::new("parse", []),
        crate::support::model::Model::start([done()]),
    );
    let server = fixture.server();
    // The key is for 127.0.0.1; this is the same machine by another name, which egress lets
    // through.
    let endpoint = other.url().replace("127.0.0.1", "localhost");
    let id = submit(&server, &fixture.input(json!({"endpoint": endpoint})), None);
    let (code, answer) = result(&server, &id, None);
    assert!(
        code == 200 || answer["code"] == "forbidden" || answer["code"] == "credential_invalid",
        "{code} {answer}"
    );
    assert!(
        other
            .asked()
            .iter()
            .all(|asked| asked.authorization.is_none()),
        "{:?}",
        other.asked()
    );
    assert_eq!(
        fixture.model.asked().len(),
        0,
        "the operator's endpoint is not asked instead"
    );
}
