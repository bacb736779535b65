//! `[recovery] auto`: when a start rolls back automatically, and when it does not.

use super::fixture::Fixture;
use super::rolled::with_checkpoint;
use crate::sessions::{Sessions, Start, Started};

const VERIFY: &str = "[verify]\ncommands = [\"sh: test ! -e broken\"]\n";

fn start(fixture: &Fixture, auto: bool) -> Started {
    let project = fixture.project_with(&format!("{VERIFY}[recovery]\nauto = {auto}\n"));
    Sessions::new(&project).start(&Start { no_probe: true, ..Start::default() }).unwrap()
}

fn rollbacks(fixture: &Fixture) -> String {
    fixture.run(&["for-each-ref", "--format=%(refname)", "refs/heads/forge/", "refs/heads/forge-rollback/"])
}

#[test]
fn a_start_goes_back_only_if_the_settings_say_so() {
    for auto in [false, true] {
        let fixture = with_checkpoint();
        fixture.write("a.txt", "wrong\n");
        fixture.features(&[("A-001", "failing"), ("A-002", "failing")]);
        let started = start(&fixture, auto);
        assert_eq!((started.recovery.as_deref(), started.paused), (Some("MAJOR"), None));
        let warnings = started.warnings.join("\n");
        assert_eq!(warnings.contains("rolled back to checkpoint/A-1-v1"), auto, "{warnings}");
        assert_eq!(rollbacks(&fixture) == "refs/heads/forge/rollback/A-1-v1-1", auto);
        assert_eq!(fixture.read("a.txt"), "wrong\n", "what was being done stays where it is");
        // A repeated start rolls back no further.
        start(&fixture, auto);
        assert_eq!(rollbacks(&fixture).lines().count(), usize::from(auto));
    }
}

#[test]
fn what_is_minor_is_left_as_it_is() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    fixture.features(&[("A-001", "failing"), ("A-002", "passing")]);
    assert_eq!(start(&fixture, true).recovery.as_deref(), Some("MINOR"));
    assert_eq!(rollbacks(&fixture), "");
}
