//! A rollback that is killed at any point resumes, or leaves no trace.

use std::path::Path;
use std::process::Command;

use super::bytes::{bytes, nothing_is_lost, staged, walk};
use super::fault::{When, die_at};
use super::fixture::{FEATURES, Fixture, KNOWLEDGE};
use super::rolled::{back, with_checkpoint};
use crate::recovery::{Mode, Recovery, Step};

/// File that tells the worker, which runs in the repository, where to die.
const WHERE: &str = ".git/forge-worker";
const WHENS: [When; 3] = [When::Before, When::Between, When::After];

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by the tests below in a process of its own"]
fn worker() {
    let Ok(place) = std::fs::read_to_string(WHERE) else { return };
    let place: Vec<usize> = place.split(' ').map(|number| number.parse().unwrap()).collect();
    die_at(Step::ALL[place[0]], WHENS[place[1]]);
    let mode = if place[2] == 0 { Mode::Branch } else { Mode::Restore };
    let done = Recovery::new(&Fixture::open(Path::new("."))).apply(&back(mode));
    panic!("it was to die: {done:?}");
}

fn kill(fixture: &Fixture, step: usize, when: usize, mode: Mode) {
    fixture.write(WHERE, format!("{step} {when} {}", usize::from(mode == Mode::Restore)));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recovery::tests::killed::worker", "--ignored", "--nocapture"])
        .current_dir(fixture.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !text.contains("it was to die"), "{step} {when}: {text}");
}

fn go_on(dirty: fn(&Fixture), mode: Mode, steps: &[usize]) {
    let (kept, before) = {
        let fixture = with_checkpoint();
        dirty(&fixture);
        (fixture.kept(), bytes(fixture.path()))
    };
    for step in steps.iter().copied() {
        // "Before a step" equals "after the step before it", except for the first.
        let first = steps.first() == Some(&step);
        for (when, named) in WHENS.iter().enumerate().filter(|(_, when)| first || **when != When::Before) {
            let what = format!("{:?} {named:?} {mode:?}", Step::ALL[step]);
            let fixture = kept.lay_out();
            kill(&fixture, step, when, mode);
            // Before the rescue, staged content is only in the index, as before.
            let staged = staged(fixture.path());
            let elsewhere = before.difference(&staged).cloned().collect();
            nothing_is_lost(fixture.path(), &elsewhere, &format!("{what}, killed"));
            let applied = Recovery::new(&fixture.project()).apply(&back(mode)).unwrap();
            assert!(applied.resumed, "{what}");
            nothing_is_lost(fixture.path(), &before, &what);
            let done = applied.rollback.unwrap();
            let branches = fixture.run(&["for-each-ref", "--format=%(refname)", "refs/heads/forge/"]);
            assert_eq!(branches.lines().count(), usize::from(mode == Mode::Branch), "{what}: {branches}");
            let trees = fixture.run(&["worktree", "list"]).lines().count();
            assert_eq!(trees, 1 + usize::from(done.worktree.is_some()), "{what}");
            let folder = done.worktree.map_or_else(|| fixture.path().to_owned(), Into::into);
            let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
            assert_eq!(read("a.txt"), "one\ntwo\nthree\n", "{what}");
            assert_eq!(read(KNOWLEDGE).matches("\"resolution\"").count(), 1, "{what}");
            assert!(read(FEATURES).contains("A-003"), "{what}");
            let journal: serde_json::Value =
                serde_json::from_str(&fixture.read(".forge/.local/recovery.json")).unwrap();
            assert!(journal["current"].is_null(), "{what}");
            assert_eq!(journal["past"].as_array().unwrap().len(), 1, "{what}");
            assert_eq!(leftovers(&fixture.path().join(".git")), [""; 0], "{what}");
        }
    }
}

/// Returns left-over git locks and folders for a copy of the index.
fn leftovers(git: &Path) -> Vec<String> {
    let names = walk(git).into_iter().map(|path| path.strip_prefix(git).unwrap().to_str().unwrap().to_owned());
    names
        .filter(|name| name.ends_with(".lock") || (name.starts_with("forge-") && format!(".git/{name}") != WHERE))
        .collect()
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
fn a_rollback_of_a_dirty_tree_that_is_killed_anywhere_is_taken_up_again() {
    go_on(dirty, Mode::Branch, &[1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_rollback_in_place_that_is_killed_around_the_switch_is_taken_up_again() {
    let clean = |fixture: &Fixture| {
        fixture.write("a.txt", "later\n");
        fixture.commit("later");
    };
    go_on(clean, Mode::Branch, &[3, 4]);
}

#[test]
fn a_restore_that_is_killed_anywhere_is_taken_up_again() {
    go_on(dirty, Mode::Restore, &[1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_is_changed_between_a_kill_and_the_next_run_is_rescued_as_well() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    kill(&fixture, 3, 2, Mode::Restore);
    fixture.write("a.txt", "written after the kill\n");
    let before = bytes(fixture.path());
    Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap();
    nothing_is_lost(fixture.path(), &before, "changed meanwhile");
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_restore_that_can_never_go_on_is_given_up_and_another_may_begin() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    kill(&fixture, 2, 2, Mode::Restore);
    fixture.commit("work went on");
    let head = fixture.head();
    let before = bytes(fixture.path());
    let error = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap_err();
    assert_eq!(error.code, "E_MOVED");
    assert_eq!(fixture.head(), head);
    let journal = Recovery::new(&fixture.project()).journal().unwrap();
    assert_eq!((journal.current, journal.past.len()), (None, 1));
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap();
    assert!(!done.resumed && done.rollback.is_some());
    nothing_is_lost(fixture.path(), &before, "given up");
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_work_tree_that_git_was_killed_making_is_made_anew() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    kill(&fixture, 3, 2, Mode::Branch);
    let branch = "forge/rollback/A-1-v1-1";
    let folder = fixture.path().join(".forge/.local/worktrees/A-1-v1-1");
    // The state that a killed git leaves: listed and locked, without files.
    fixture.run(&["worktree", "add", "-q", "--no-checkout", folder.to_str().unwrap(), branch]);
    fixture.write(".git/worktrees/A-1-v1-1/locked", "initializing");
    let before = bytes(fixture.path());
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
    assert_eq!(done.target.as_deref(), Some("forge/rollback/A-1-v1-2"));
    let other = std::path::PathBuf::from(done.worktree.unwrap());
    assert_ne!(other, folder);
    assert_eq!(std::fs::read_to_string(other.join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(crate::git::fixture::run_at(&other, &["status", "--porcelain"]), "");
    nothing_is_lost(fixture.path(), &before, "half a work tree");
}

#[test]
fn a_restore_touches_nothing_where_one_went_elsewhere_meanwhile() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    kill(&fixture, 3, 2, Mode::Restore);
    fixture.run(&["checkout", "-q", "-f", "-b", "elsewhere", "HEAD^"]);
    fixture.write("a.txt", "work of another day\n");
    let error = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap_err();
    assert_eq!(error.code, "E_MOVED");
    assert_eq!(fixture.read("a.txt"), "work of another day\n");
    let journal = Recovery::new(&fixture.project()).journal().unwrap();
    assert_eq!((journal.current, journal.past.len()), (None, 1));
}

#[test]
fn a_person_can_give_up_a_rollback_that_was_cut_short() {
    let fixture = with_checkpoint();
    dirty(&fixture);
    assert_eq!(Recovery::new(&fixture.project()).give_up_rollback().unwrap_err().category.exit_code(), 3);
    kill(&fixture, 3, 2, Mode::Restore);
    let before = bytes(fixture.path());
    let given_up = Recovery::new(&fixture.project()).give_up_rollback().unwrap();
    assert_eq!(given_up.step, Step::Branched);
    let journal = Recovery::new(&fixture.project()).journal().unwrap();
    assert_eq!((journal.current, journal.past), (None, vec![given_up]));
    nothing_is_lost(fixture.path(), &before, "given up");
    assert_eq!(fixture.read("a.txt"), "changed\n");
}
