//! A rollback that is killed at any point is done by the next one.

use std::path::Path;
use std::process::Command;

use super::bytes::{bytes, nothing_is_lost, walk};
use super::fault::die_at;
use super::fixture::{FEATURES, Fixture, KNOWLEDGE};
use super::rolled::{back, with_checkpoint};
use crate::recovery::Recovery;
use crate::recovery::rollback::Point;

/// File that tells the worker, which runs in the repository, where to die.
const WHERE: &str = ".git/forge-worker";
const POINTS: [Point; 4] = [
    Point::Rescued,
    Point::Remembered,
    Point::Committed,
    Point::Restored,
];

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by the tests below in a process of its own"]
fn worker() {
    let Ok(place) = std::fs::read_to_string(WHERE) else {
        return;
    };
    die_at(POINTS[place.parse::<usize>().unwrap()]);
    let done = Recovery::new(&Fixture::open(Path::new("."))).apply(&back());
    panic!("it was to die: {done:?}");
}

fn kill(fixture: &Fixture, point: usize) {
    fixture.write(WHERE, point.to_string());
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "recovery::tests::killed::worker",
            "--ignored",
            "--nocapture",
        ])
        .current_dir(fixture.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && !text.contains("it was to die"),
        "{:?}: {text}",
        POINTS[point]
    );
}

/// Returns left-over git locks.
fn locks(git: &Path) -> Vec<String> {
    let names = walk(git)
        .into_iter()
        .map(|path| path.strip_prefix(git).unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.ends_with(".lock")).collect()
}

fn dirty(fixture: &Fixture) {
    fixture.write("a.txt", "later\n");
    fixture.commit("later");
    fixture.write("a.txt", "staged\n");
    fixture.run(&["add", "a.txt"]);
    fixture.write("a.txt", "changed\n");
    fixture.write("new.txt", "untracked\n");
}

#[test]
fn a_rollback_that_is_killed_anywhere_is_done_by_the_next_one() {
    let (kept, before) = {
        let fixture = with_checkpoint();
        dirty(&fixture);
        (fixture.kept(), bytes(fixture.path()))
    };
    for (point, what) in POINTS.iter().enumerate() {
        let what = format!("{what:?}");
        let fixture = kept.lay_out();
        let head = fixture.head();
        kill(&fixture, point);
        nothing_is_lost(fixture.path(), &before, &format!("{what}, killed"));
        let done = Recovery::new(&fixture.project())
            .apply(&back())
            .unwrap()
            .rollback
            .unwrap();
        nothing_is_lost(fixture.path(), &before, &what);
        assert_eq!(
            fixture.run(&["rev-parse", "HEAD^"]),
            head,
            "{what}: one commit"
        );
        assert_eq!(fixture.head(), done.made, "{what}");
        assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n", "{what}");
        assert_eq!(fixture.read("new.txt"), "untracked\n", "{what}");
        assert_eq!(
            fixture.run(&["diff", "HEAD", "--name-only", "--", ":/", ":!.forge"]),
            "",
            "{what}"
        );
        assert!(fixture.read(KNOWLEDGE).contains("\"resolution\""), "{what}");
        assert!(fixture.read(FEATURES).contains("A-003"), "{what}");
        assert_eq!(locks(&fixture.path().join(".git")), [""; 0], "{what}");
    }
}

#[test]
fn what_is_changed_between_a_kill_and_the_next_run_is_rescued_as_well() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    kill(&fixture, 2);
    fixture.write("a.txt", "written after the kill\n");
    let before = bytes(fixture.path());
    Recovery::new(&fixture.project()).apply(&back()).unwrap();
    nothing_is_lost(fixture.path(), &before, "changed meanwhile");
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn work_that_went_on_after_a_kill_is_before_the_rollback() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    kill(&fixture, 1);
    fixture.commit("work went on");
    let (head, before) = (fixture.head(), bytes(fixture.path()));
    Recovery::new(&fixture.project()).apply(&back()).unwrap();
    nothing_is_lost(fixture.path(), &before, "work went on");
    assert_eq!(fixture.run(&["rev-parse", "HEAD^"]), head);
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
}
