//! Tests of `health --watch`: it records the colours.

use std::process::{Child, Stdio};

use serde_json::{Deserializer, Value};

use super::fixture::Fixture;

/// Ended with the test, whatever becomes of that.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ring(fixture: &Fixture) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture.root().join(".forge/.local/health.jsonl"))
        .unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn watch_records_colour_changes_and_look_does_not() {
    let fixture = Fixture::light("");
    fixture.forge(&["health"]);
    assert!(ring(&fixture).is_empty());
    let mut command = fixture.command(&fixture.root(), &["health", "--watch", "--json"]);
    let mut watching = Watching(command.stdout(Stdio::piped()).spawn().unwrap());
    let stdout = watching.0.stdout.take().unwrap();
    let mut printed = Deserializer::from_reader(stdout).into_iter::<Value>();
    // A colour is kept before it is printed.
    let first = printed.next().unwrap().unwrap();
    let kept = ring(&fixture);
    assert_eq!(
        (kept.len(), &kept[0]["long_term"]),
        (1, &first["data"]["long_term"]["colour"])
    );
    fixture.write(".forge/memory/long-term/knowledge.json", "{");
    let second = printed.next().unwrap().unwrap();
    assert_eq!(second["data"]["long_term"]["colour"], "red");
    assert_eq!(ring(&fixture).last().unwrap()["long_term"], "red");
}
