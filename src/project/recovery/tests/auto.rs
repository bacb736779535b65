//! `[recovery] auto`: a start goes back by itself, and only then.

use super::ground::Ground;
use super::rolled::with_checkpoint;
use crate::sessions::{Start, Started};

const VERIFY: &str = "[verify]\ncommands = [\"sh: test ! -e broken\"]\n";

fn start(ground: &Ground, auto: bool) -> Started {
    let project = ground.project_with(&format!("{VERIFY}[recovery]\nauto = {auto}\n"));
    project.sessions().start(&Start { no_probe: true, ..Start::default() }).unwrap()
}

fn rollbacks(ground: &Ground) -> String {
    ground.run(&["for-each-ref", "--format=%(refname)", "refs/heads/forge/", "refs/heads/forge-rollback/"])
}

#[test]
fn a_start_goes_back_only_if_the_settings_say_so() {
    for auto in [false, true] {
        let ground = with_checkpoint();
        ground.write("a.txt", "wrong\n");
        ground.features(&[("A-001", "failing"), ("A-002", "failing")]);
        let started = start(&ground, auto);
        assert_eq!((started.recovery.as_deref(), started.paused), (Some("MAJOR"), None));
        let warnings = started.warnings.join("\n");
        assert_eq!(warnings.contains("rolled back to checkpoint/A-1-v1"), auto, "{warnings}");
        assert_eq!(rollbacks(&ground) == "refs/heads/forge/rollback/A-1-v1-1", auto);
        assert_eq!(ground.read("a.txt"), "wrong\n", "what was being done stays where it is");
        // The same start again goes back no further.
        start(&ground, auto);
        assert_eq!(rollbacks(&ground).lines().count(), usize::from(auto));
    }
}

#[test]
fn what_is_minor_is_left_as_it_is() {
    let ground = with_checkpoint();
    ground.write("a.txt", "wrong\n");
    ground.features(&[("A-001", "failing"), ("A-002", "passing")]);
    assert_eq!(start(&ground, true).recovery.as_deref(), Some("MINOR"));
    assert_eq!(rollbacks(&ground), "");
}
