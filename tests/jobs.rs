//! Jobs through the real program.
//!
//! Their server is killed or stopped, or another process asks for them.

use std::io::{Read, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY, outside, wait_for};

/// Says who it is and that it began, waits until it is let go, and answers with its input.
const HELD: &str = "#!/bin/sh\ninput=$(cat)\necho $$ >>pids\nprintf '%s\\n' \"$input\" >>began\nwhile [ ! -e go ]; do sleep 0.02; done\nprintf '{\"input\":%s}' \"$input\"\n";
/// Fails.
const BROKEN: &str = "#!/bin/sh\ncat >/dev/null\necho 'it broke' >&2\nexit 3\n";
const ONE_AT_A_TIME: &[(&str, &str)] = &[
    ("HELMDECK_JOBS__CONCURRENCY", "1"),
    ("HELMDECK_SERVER__DRAIN_TIMEOUT", "1s"),
];

/// Makes a home with packs that are never cached.
fn home() -> Home {
    let home = Home::new();
    for (name, script) in [("test.held", HELD), ("test.broken", BROKEN)] {
        home.install(name, script, "");
        let manifest = home.packs().join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(manifest, text.split("[memory]").next().unwrap()).unwrap();
    }
    home
}

/// Starts a job and returns its id.
#[track_caller]
fn start(server: &Server, pack: &str, repo: &str) -> String {
    let answer = server.ask(
        &format!("POST /api/v1/packs/{pack}/jobs"),
        &json!({"repo": repo}).to_string(),
    );
    assert_eq!(answer.code, 202, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Asks the shell.
fn shell(home: &Home, arguments: &[&str]) -> Run {
    home.run(KEY, &[&["--json", "job"], arguments].concat())
}

#[track_caller]
fn shown(home: &Home, id: &str) -> Value {
    let run = shell(home, &["show", id]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

/// Reads the row directly, so that no request notices anything first.
fn state(home: &Home, id: &str) -> String {
    let database = outside(&home.data().join("helmdeck.db"));
    database
        .query_row("SELECT state FROM jobs WHERE id = ?1", [id], |row| {
            row.get(0)
        })
        .unwrap()
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn began(home: &Home, count: usize) {
    wait_for("runs to begin", || {
        lines(&home.packs().join("began")).len() >= count
    });
}

/// Waits until no program of a pack runs.
fn no_program_is_left(home: &Home) {
    for pid in lines(&home.packs().join("pids")) {
        wait_for("the programs to end", || {
            !Path::new("/proc").join(&pid).exists()
        });
    }
}

fn let_go(home: &Home) {
    std::fs::write(home.packs().join("go"), "").unwrap();
}

#[test]
fn killed_server_loses_no_job() {
    let home = home();
    let mut server = Server::start_with(&home, KEY, ONE_AT_A_TIME);
    let done = start(&server, "test.plain", "done");
    wait_for("a job to end", || state(&home, &done) == "succeeded");
    let running = start(&server, "test.held", "running");
    began(&home, 1);
    let queued = start(&server, "test.held", "queued");
    assert_eq!(
        (
            shown(&home, &running)["state"].clone(),
            shown(&home, &queued)["state"].clone()
        ),
        (json!("running"), json!("queued"))
    );
    server.signal("-KILL");
    assert_eq!(server.ended(), None, "it was killed");

    // Without any server: the first request gets the result.
    for id in [&running, &queued] {
        let job = shown(&home, id);
        assert_eq!(
            (&job["state"], &job["error"]["retry"]),
            (&json!("failed"), &json!("later")),
            "{job}"
        );
        assert!(
            job["error"]["message"]
                .as_str()
                .unwrap()
                .contains("start it again"),
            "{job}"
        );
        let result = shell(&home, &["result", id]);
        assert_eq!(
            (result.code, result.stderr.contains("overloaded")),
            (1, true),
            "{}",
            result.stderr
        );
    }
    assert_eq!(shown(&home, &done)["state"], "succeeded");
    let result = shell(&home, &["result", &done]);
    let outcome: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!(
        (result.code, &outcome["output"]["input"]["repo"]),
        (0, &json!("done")),
        "{}",
        result.stderr
    );
    // And after a restart the server says the same.
    let server = Server::start_with(&home, KEY, ONE_AT_A_TIME);
    let list = server.ask("GET /api/v1/jobs", "").json();
    let states: Vec<_> = list["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["state"].clone())
        .collect();
    assert_eq!(states, ["failed", "failed", "succeeded"], "{list}");
    let answer = server.ask(&format!("GET /api/v1/jobs/{done}/result"), "");
    assert_eq!(
        (answer.code, answer.json()["output"].clone()),
        (200, outcome["output"].clone())
    );
    let_go(&home);
}

#[test]
fn a_running_server_notices_that_another_was_killed() {
    let home = home();
    let (mut one, other) = (
        Server::start_with(&home, KEY, ONE_AT_A_TIME),
        Server::start_with(&home, KEY, ONE_AT_A_TIME),
    );
    let id = start(&one, "test.held", "a");
    began(&home, 1);
    let theirs = start(&other, "test.held", "b");
    began(&home, 2);
    one.signal("-KILL");
    one.ended();
    wait_for("the other server to notice", || {
        state(&home, &id) == "failed"
    });
    assert_eq!(state(&home, &theirs), "running", "its own job goes on");
    wait_for("the count of it", || {
        other
            .ask("GET /metrics", "")
            .body
            .contains("helmdeck_jobs_lost_total 1")
    });
    let_go(&home);
    wait_for("its own job to end", || {
        state(&home, &theirs) == "succeeded"
    });
}

#[test]
fn stopped_server_ends_streams_and_jobs() {
    let home = home();
    let mut server = Server::start_with(&home, KEY, ONE_AT_A_TIME);
    let running = start(&server, "test.held", "running");
    began(&home, 1);
    let queued = start(&server, "test.held", "queued");
    let mut stream = server.connect();
    write!(
        stream,
        "GET /api/v1/jobs/{running}/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let (mut read, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&read).contains("event: state") {
        let count = stream.read(&mut part).unwrap();
        assert!(
            count > 0,
            "the stream ended before its first event: {}",
            String::from_utf8_lossy(&read)
        );
        read.extend_from_slice(&part[..count]);
    }
    server.signal("-TERM");
    stream.read_to_end(&mut read).unwrap();
    let read = String::from_utf8(read).unwrap();
    assert!(
        read.starts_with("HTTP/1.1 200") && read.ends_with("\r\n0\r\n\r\n"),
        "it ends cleanly: {read}"
    );
    assert!(!read.contains("\"succeeded\""), "{read}");
    assert_eq!(server.ended(), Some(0), "{}", server.log());
    no_program_is_left(&home);
    for id in [&running, &queued] {
        let row = state(&home, id);
        let job = shown(&home, id);
        assert_eq!(
            (row.as_str(), &job["error"]["retry"]),
            ("failed", &json!("later")),
            "{job}"
        );
    }
    assert_eq!(
        lines(&home.packs().join("began")).len(),
        1,
        "what waited never ran"
    );
    let locks = std::fs::read_dir(home.data().join("jobs")).unwrap().count();
    assert_eq!(locks, 0, "its lock is gone");
}

#[test]
fn shell_cancels_running_and_queued_jobs() {
    let home = home();
    let server = Server::start_with(&home, KEY, ONE_AT_A_TIME);
    let running = start(&server, "test.held", "running");
    began(&home, 1);
    let queued = start(&server, "test.held", "queued");
    for id in [&queued, &running, &running] {
        let run = shell(&home, &["cancel", id]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let said = serde_json::from_str::<Value>(&run.stdout).unwrap();
        // A server that is busy may take longer to see it than the shell waits.
        assert!(
            said["state"] == "cancelled" || (id == &running && said["state"] == "running"),
            "{said}"
        );
        wait_for("its end", || state(&home, id) == "cancelled");
    }
    no_program_is_left(&home);
    assert_eq!(
        lines(&home.packs().join("began")).len(),
        1,
        "what waited never ran"
    );
    let answer = server
        .ask(&format!("GET /api/v1/jobs/{running}"), "")
        .json();
    assert_eq!(answer["state"], "cancelled");
    // And the place is free again.
    let next = start(&server, "test.plain", "next");
    wait_for("the next job", || state(&home, &next) == "succeeded");
}

#[test]
fn without_key_results_end_with_their_server() {
    let home = home();
    let keyless = |arguments: &[&str]| {
        let mut command = home.command(KEY, arguments);
        command.env_remove("HELMDECK_MEMORY_KEY");
        command
    };
    let mut server = Server::launch(keyless(SERVE));
    let id = start(&server, "test.plain", "canary-of-an-input");
    wait_for("the job to end", || state(&home, &id) == "succeeded");
    let answer = server.ask(&format!("GET /api/v1/jobs/{id}/result"), "");
    assert_eq!(
        answer.json()["output"]["input"]["repo"],
        "canary-of-an-input"
    );
    server.signal("-TERM");
    assert_eq!(server.ended(), Some(0));
    let run = Run::of(keyless(&["--json", "job", "result", &id]).output().unwrap());
    assert_eq!(
        (run.code, run.stderr.contains("no memory key is set")),
        (3, true),
        "{}",
        run.stderr
    );
    assert_eq!(shown(&home, &id)["has_result"], false);
    for file in std::fs::read_dir(home.data())
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|file| file.is_file())
    {
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            !bytes.windows(6).any(|window| window == b"canary"),
            "{} holds an input or a result",
            file.display()
        );
    }
}

#[test]
fn forgetting_drops_results_held_by_a_server() {
    let home = home();
    let mut command = home.command(KEY, SERVE);
    command.env_remove("HELMDECK_MEMORY_KEY");
    let server = Server::launch(command);
    let id = start(&server, "test.plain", "canary");
    wait_for("the job to end", || state(&home, &id) == "succeeded");
    let path = format!("GET /api/v1/jobs/{id}/result");
    wait_for("the result", || server.ask(&path, "").code == 200);
    let forgotten = home.run(KEY, &["memory", "forget", "--subject", "local", "--yes"]);
    assert_eq!(
        (forgotten.code, forgotten.stdout.contains(" 1 job ")),
        (0, true),
        "{}",
        forgotten.stdout
    );
    let answer = server.ask(&path, "");
    assert_eq!(
        (answer.code, answer.body.contains("canary")),
        (404, false),
        "{}",
        answer.body
    );
}

#[test]
fn shell_waits_and_exits_as_the_job_did() {
    let home = home();
    let server = Server::start_with(&home, KEY, ONE_AT_A_TIME);
    let broken = start(&server, "test.broken", "x");
    let waited = shell(&home, &["wait", &broken]);
    assert_eq!(
        (waited.code, waited.stderr.contains("handler_failed")),
        (1, true),
        "{}",
        waited.stderr
    );
    let id = start(&server, "test.held", "x");
    let late = shell(&home, &["wait", &id, "--timeout", "100ms"]);
    assert_eq!(
        (late.code, late.stderr.contains("in time")),
        (1, true),
        "{}",
        late.stderr
    );
    let unready = shell(&home, &["result", &id]);
    assert_eq!(
        (unready.code, unready.stderr.contains("has not ended")),
        (1, true),
        "{}",
        unready.stderr
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| shell(&home, &["wait", &id]));
        began(&home, 1);
        let_go(&home);
        let waited = waiting.join().unwrap();
        let job: Value = serde_json::from_str(&waited.stdout).unwrap();
        assert_eq!(
            (waited.code, &job["state"]),
            (0, &json!("succeeded")),
            "{}",
            waited.stderr
        );
    });
    let list = home.run(KEY, &["job", "list", "--state", "failed"]);
    assert!(
        list.stdout.contains(&broken) && !list.stdout.contains(&id),
        "{}",
        list.stdout
    );
    assert!(
        list.stdout.contains("handler_failed") && list.stdout.contains("local/local"),
        "{}",
        list.stdout
    );
    let show = home.run(KEY, &["job", "show", &id]);
    assert!(
        show.stdout.contains(&format!("helmdeck job result {id}")),
        "{}",
        show.stdout
    );
    let result = home.run(KEY, &["job", "result", &id]);
    assert_eq!(
        (result.code, result.stdout.contains('x')),
        (0, true),
        "{}",
        result.stderr
    );
}

#[test]
fn job_commands_without_jobs_create_nothing() {
    let home = home();
    let list = home.run(KEY, &["job", "list"]);
    assert_eq!(
        (list.code, list.stdout.trim()),
        (0, "there are no jobs"),
        "{}",
        list.stderr
    );
    let id = "0123456789abcdef0123456789abcdef";
    for verb in ["show", "wait", "result", "cancel"] {
        assert_eq!(home.run(KEY, &["job", verb, id]).code, 3, "{verb}");
        assert_eq!(home.run(KEY, &["job", verb, "../x"]).code, 2, "{verb}");
    }
    assert!(!home.data().exists(), "looking made the data folder");
}
