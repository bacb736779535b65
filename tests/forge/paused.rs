//! A pause is ended by a person at a terminal, after a question.

use std::io::Write as _;
use std::process::Stdio;

use super::fixture::Fixture;

/// Ends the pause at a terminal on which this is typed, and returns what it showed.
fn typed(fixture: &Fixture, answer: &str) -> String {
    let line = format!(
        "{} forge recover ack --reason 'It was a bisect'",
        env!("CARGO_BIN_EXE_helmdeck")
    );
    let mut command = fixture.prepare("script", &fixture.root(), &["-qec", &line, "/dev/null"]);
    command.env("SHELL", "/bin/sh").env("TERM", "dumb");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(answer.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    format!(
        "{} code {}",
        String::from_utf8_lossy(&output.stdout),
        output.status.code().unwrap()
    )
}

#[test]
fn ending_a_pause_asks_and_respects_no() {
    let fixture = Fixture::light("");
    let root = fixture.root();
    fixture.forge(&["session", "start"]);
    fixture.forge(&["features", "add", "Sums", "--test", "sums"]);
    fixture.forge(&["session", "end"]);
    fixture.forge(&["checkpoint", "create", "--key", "SUM-1", "-m", "It begins"]);
    fixture.write(".git/BISECT_LOG", "git bisect start\n");
    fixture.ends_with(&root, 4, &["session", "start"]);
    fixture.forge(&["skill", "match", "implement a function"]);
    let refused = typed(&fixture, "no\n");
    assert!(
        refused.contains("bisect") && refused.contains("the pause goes on"),
        "{refused}"
    );
    assert_eq!(
        fixture.ends_with(&root, 4, &["session", "start"])["code"],
        "E_PAUSED"
    );
    fixture.ends_with(
        &root,
        9,
        &["recover", "ack", "--reason", "nobody sits there"],
    );
    let ended = typed(&fixture, "yes\n");
    assert!(ended.ends_with("code 0"), "{ended}");
    fixture.forge(&["session", "start"]);
}
