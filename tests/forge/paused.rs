//! A pause is ended by a person at a terminal, who is asked.

use std::io::Write as _;
use std::process::Stdio;

use super::ground::Ground;

/// Ends the pause at a terminal on which this is typed, and returns what it showed.
fn typed(ground: &Ground, answer: &str) -> String {
    let line = format!("{} forge recover ack --reason 'It was a bisect'", env!("CARGO_BIN_EXE_helmdeck"));
    let mut command = ground.prepare("script", &ground.root(), &["-qec", &line, "/dev/null"]);
    command.env("SHELL", "/bin/sh").env("TERM", "dumb");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    format!("{} code {}", String::from_utf8_lossy(&output.stdout), output.status.code().unwrap())
}

#[test]
fn whoever_ends_a_pause_is_asked_and_no_is_no() {
    let ground = Ground::light("");
    let root = ground.root();
    ground.forge(&["session", "start"]);
    ground.forge(&["features", "add", "Sums", "--test", "sums"]);
    ground.forge(&["session", "end"]);
    ground.forge(&["checkpoint", "create", "--key", "SUM-1", "-m", "It begins"]);
    ground.write(".git/BISECT_LOG", "git bisect start\n");
    ground.ends_with(&root, 4, &["session", "start"]);
    ground.forge(&["skill", "match", "implement a function"]);
    let refused = typed(&ground, "no\n");
    assert!(refused.contains("bisect") && refused.contains("the pause goes on"), "{refused}");
    assert_eq!(ground.ends_with(&root, 4, &["session", "start"])["code"], "E_PAUSED");
    ground.ends_with(&root, 9, &["recover", "ack", "--reason", "nobody sits there"]);
    let ended = typed(&ground, "yes\n");
    assert!(ended.ends_with("code 0"), "{ended}");
    ground.forge(&["session", "start"]);
}
