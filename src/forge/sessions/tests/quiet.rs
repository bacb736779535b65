//! What sessions leave in git: few files, and few commits.

use std::collections::BTreeSet;

use super::*;
use crate::checkpoints::{Checkpoints, Create};
use crate::features::{Add, Features};
use crate::git::{Commits, NewCommit};
use crate::layout::CONFIG;
use crate::sessions::Sessions;

/// Tests that always pass, and a check that always succeeds.
const VERIFY: &str =
    "[verify]\nrunner = \"echo 1 passed {prefix}\"\ncount_regex = '(\\d+) passed'\ncommands = [\"true\"]\n";

/// Fixture: a project with three features, and these settings.
fn planned(settings: &str) -> (Fixture, Project, Vec<String>) {
    let fixture = Fixture::new();
    fixture.repository.write(CONFIG, format!("{VERIFY}{settings}"));
    let project = fixture.open();
    let add = |name: &str| Add { name: name.to_owned(), tests: vec!["a::*".to_owned()], ..Add::default() };
    let features =
        ["One", "Two", "Three"].map(|name| Features::new(&project).add(&add(name), None).unwrap().feature.id);
    fixture.repository.commit("Plan");
    (fixture, project, features.to_vec())
}

/// Does the work of one session: code, a verification, an entry, and a commit of code alone.
fn work(fixture: &Fixture, project: &Project, feature: &str, number: usize) {
    let session = start(project).session;
    fixture.minutes(30);
    Sessions::new(project).log(&Log { text: format!("Did part {number}"), next: None }).unwrap();
    fixture.repository.write("src/main.rs", format!("fn main() {{ {number}; }}\n"));
    assert!(Features::new(project).verify(feature).unwrap().passed);
    let new = NewCommit {
        key: Some("SX9-1".to_owned()),
        subject: format!("Do part {number}"),
        what: vec!["Change main".to_owned()],
        why: "It was asked for".to_owned(),
        paths: vec!["src".to_owned()],
        ..NewCommit::default()
    };
    let origin = Commits::new(project).origin(&session.id, &session.uuid).unwrap();
    Commits::new(project).create(&new, &origin).unwrap();
}

fn files(fixture: &Fixture) -> BTreeSet<String> {
    fixture.repository.run(&["ls-files", "--", ".forge"]).lines().map(str::to_owned).collect()
}

fn memory_commits(fixture: &Fixture) -> usize {
    fixture.repository.run(&["log", "--format=%s"]).lines().filter(|subject| subject.starts_with("[session]")).count()
}

#[test]
fn ten_sessions_add_at_most_twenty_files() {
    ten_sessions("");
}

#[test]
fn ten_sessions_with_entry_files_add_at_most_twenty() {
    ten_sessions("[files]\nper_entry = true\n");
}

fn ten_sessions(settings: &str) {
    let (fixture, project, features) = planned(settings);
    let before = files(&fixture);
    for number in 0..10 {
        work(&fixture, &project, &features[number % 3], number);
        if number % 4 == 3 {
            Checkpoints::new(&project).create(&Create { key: Some("SX9-1".to_owned()), ..Create::default() }).unwrap();
        }
        assert!(Sessions::new(&project).end(&End::default()).unwrap().commit.is_some());
    }
    let after = files(&fixture);
    let added: Vec<_> = after.difference(&before).collect();
    assert!(added.len() <= 20, "{} files: {added:#?}", added.len());
    assert_eq!(memory_commits(&fixture), 10, "one for each session");
    assert_eq!(fixture.repository.run(&["status", "--porcelain"]), "");
    // The newest report of each feature is still its evidence.
    let listed = Features::new(&project).list(true).unwrap().features;
    assert!(listed.iter().all(|item| item.standing.counts()), "{listed:#?}");
    // So are the reports that a checkpoint names.
    for checkpoint in Checkpoints::new(&project).list().unwrap() {
        assert!(checkpoint.can_rollback_to && checkpoint.notes.is_empty(), "{checkpoint:#?}");
    }
}

#[test]
fn memory_travels_with_the_next_work() {
    let (fixture, project, features) = planned("[git]\ncommits = \"with-work\"\n");
    let first = {
        work(&fixture, &project, &features[0], 0);
        let ended = Sessions::new(&project).end(&End { next: Some("Part 1".to_owned()), ..End::default() }).unwrap();
        assert_eq!((ended.commit, ended.warnings), (None, Vec::new()));
        ended.session
    };
    let progress = |commit: &str| {
        let paths = fixture.repository.run(&["ls-tree", "-r", "--name-only", commit, "--", ".forge/memory/short-term"]);
        paths.contains(&first)
    };
    assert!(!progress("HEAD"));
    work(&fixture, &project, &features[1], 1);
    assert!(progress("HEAD"), "the progress of the first session");
    assert_eq!(memory_commits(&fixture), 0);
}

#[test]
fn empty_sessions_beside_uncommitted_memory_leave_nothing() {
    let (fixture, project, features) = planned("[git]\ncommits = \"with-work\"\n");
    work(&fixture, &project, &features[0], 0);
    Sessions::new(&project).end(&End::default()).unwrap();
    let before = fixture.repository.run(&["status", "--porcelain", "--untracked-files=all"]);
    start(&project);
    Sessions::new(&project).end(&End::default()).unwrap();
    assert_eq!(fixture.repository.run(&["status", "--porcelain", "--untracked-files=all"]), before);
}

#[test]
fn empty_joined_session_leaves_no_folder() {
    let fixture = Fixture::new();
    start(&fixture.open());
    let other = fixture.as_agent("Axiom");
    let joined = Sessions::new(&other).start(&Start { join: true, ..Start::default() }).unwrap().session;
    let ended = Sessions::new(&fixture.in_session(&joined.id)).end(&End::default()).unwrap();
    assert_eq!(ended.commit, None);
    assert!(!fixture.path().join(crate::layout::SESSIONS).join(joined.folder()).exists());
}
