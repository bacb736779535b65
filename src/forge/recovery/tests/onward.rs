//! After a rollback: how the new work tree starts, is merged back, and is removed.

use std::path::PathBuf;

use super::fixture::{FEATURES, Fixture};
use super::rolled::{back, with_checkpoint};
use crate::checkpoints::{Checkpoints, Create};
use crate::features::Features;
use crate::focus::SetFocus;
use crate::git::fixture::run_at;
use crate::issues::{Add, Done, NewComment, Scope};
use crate::layout::ACTIVE;
use crate::merge::merge;
use crate::recovery::{Mode, Recovery};
use crate::sessions::{End, Sessions, Start};

const ISSUES: &str = r#"{"schema_version":"1.0","synced_at":null,"issues":[{"linear_id":"A-7","title":"Seven","type":"feature","state":"In Progress"}]}"#;

fn start() -> Start {
    Start { no_probe: true, ..Start::default() }
}

/// Rolls back from a dirty tree, and returns the new work tree.
fn apart(fixture: &Fixture) -> PathBuf {
    fixture.write("a.txt", "wrong way\n");
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
    PathBuf::from(done.worktree.unwrap())
}

#[test]
fn new_work_tree_has_the_issues_and_takes_up_the_focus() {
    let fixture = with_checkpoint();
    fixture.write(ACTIVE, ISSUES);
    let project = fixture.project();
    Sessions::new(&project).start(&start()).unwrap();
    let set = SetFocus { task: Some("Mend seven".into()), linear_issue: Some("A-7".into()), ..SetFocus::default() };
    Sessions::new(&project).set_focus(&set).unwrap();
    let there = apart(&fixture);
    let issues = std::fs::read_to_string(there.join(ACTIVE)).unwrap();
    assert!(issues.contains("A-7"), "{issues}");
    let started = Sessions::new(&Fixture::open(&there)).start(&start()).unwrap();
    let chosen = started.chosen.unwrap();
    assert_eq!((chosen.task.as_deref(), chosen.linear_issue.as_deref()), (Some("Mend seven"), Some("A-7")));
    // The focus is handed over only once.
    Sessions::new(&Fixture::open(&there)).end(&End::default()).unwrap();
    let chosen = Sessions::new(&Fixture::open(&there)).start(&start()).unwrap().chosen.unwrap();
    assert_ne!(chosen.task.as_deref(), Some("Mend seven"));
}

#[test]
fn feature_seen_to_work_after_the_rollback_is_no_regression_after_the_merge() {
    let feature = |more: &str| {
        format!(r#"{{"schema_version":"1.0","features":[{{"id":"A-001","name":"a","tests":["t::*"],{more}}}]}}"#)
    };
    let pass = |at: &str, more: &str| {
        feature(&format!(r#""status":"passing","evidence":"e{at}","verified_at":"2025-12-24T{at}:00:00Z"{more}"#))
    };
    let base = pass("08", "");
    let failed = feature(
        r#""status":"failing","verified_at":"2025-12-24T08:00:00Z","regressed_at":"2025-12-24T09:00:00Z","reason":"tests_failed""#,
    );
    // The rollback knew of the failure, and the tests passed again after it.
    let again = pass("11", r#","regressed_before":"2025-12-24T10:00:00Z""#);
    for (ours, theirs) in [(&failed, &again), (&again, &failed)] {
        let merged = merge(FEATURES, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        let file: serde_json::Value = serde_json::from_slice(&merged.bytes).unwrap();
        let one = &file["features"][0];
        assert_eq!((one["status"].as_str(), one["evidence"].as_str()), (Some("passing"), Some("e11")), "{one}");
        assert!(one["regressed_at"].is_null() && one["reason"].is_null() && merged.conflicts.is_empty(), "{one}");
    }
    // A branch that never saw the failure proves nothing about it.
    let elsewhere = pass("11", "");
    let earlier = pass("11", r#","regressed_before":"2025-12-24T08:30:00Z""#);
    for other in [elsewhere, earlier] {
        let merged = merge(FEATURES, base.as_bytes(), failed.as_bytes(), other.as_bytes());
        let file: serde_json::Value = serde_json::from_slice(&merged.bytes).unwrap();
        assert_eq!(file["features"][0]["status"], "failing");
    }
}

#[test]
fn verified_feature_remembers_the_failure_before() {
    let fixture = Fixture::new();
    let project = fixture
        .project_with("[verify]\nrunner = \"sh: test ! -e broken && echo ran {prefix}\"\ncount_regex = \"ran\"\n");
    fixture.features(&[("A-001", "passing")]);
    fixture.write("broken", "");
    assert!(!Features::new(&project).verify("A-001").unwrap().passed);
    let failed = Features::new(&project).read().unwrap().get("A-001").unwrap().regressed_at;
    assert!(failed.is_some());
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    assert!(Features::new(&project).verify("A-001").unwrap().passed);
    let file = Features::new(&project).read().unwrap();
    let feature = file.get("A-001").unwrap();
    assert_eq!((feature.regressed_at, feature.regressed_before), (None, failed));
}

#[test]
fn work_tree_of_a_rollback_goes_away_once_it_is_merged() {
    let fixture = with_checkpoint();
    let there = apart(&fixture);
    let clean = |yes: bool| Recovery::new(&fixture.project()).clean(yes).unwrap();
    assert!(clean(true).kept[0].why.contains("merged nowhere"), "{:?}", clean(false));
    std::fs::write(there.join("new.txt"), "new\n").unwrap();
    assert!(clean(true).kept[0].why.contains("not committed"));
    run_at(&there, &["add", "new.txt"]);
    run_at(&there, &["commit", "-q", "-m", "mended"]);
    // A person discards the abandoned changes; the rescue has them.
    fixture.run(&["checkout", "-q", "--", "."]);
    fixture.run(&["add", "-A"]);
    fixture.run(&["commit", "-q", "--allow-empty", "-m", "the memory"]);
    fixture.run(&["merge", "-q", "--no-edit", "-X", "ours", "forge/rollback/A-1-v1-1"]);
    let session = Sessions::new(&Fixture::open(&there)).start(&start()).unwrap();
    assert!(clean(true).kept[0].why.contains(&session.session.id));
    Sessions::new(&Fixture::open(&there)).end(&End { leave_dirty: Some("over".into()), ..End::default() }).unwrap();
    run_at(&there, &["add", "-A"]);
    let dirty = !run_at(&there, &["status", "--porcelain"]).is_empty();
    if dirty {
        run_at(&there, &["commit", "-q", "-m", "its end"]);
    }
    fixture.run(&["merge", "-q", "--no-edit", "-X", "ours", "forge/rollback/A-1-v1-1"]);
    let shown = clean(false);
    assert_eq!((shown.removed.len(), shown.applied), (1, false), "{shown:?}");
    assert!(there.exists());
    assert_eq!(clean(true).removed.len(), 1);
    assert!(!there.exists());
    assert_eq!(fixture.run(&["worktree", "list"]).lines().count(), 1);
    assert!(!fixture.run(&["branch", "--list", "forge/rollback/A-1-v1-1"]).is_empty(), "the branch stays");
}

#[test]
fn issues_closed_after_the_checkpoint_stay_closed() {
    let fixture = Fixture::new();
    let project = fixture.project();
    for title in ["One", "Two"] {
        project.issues().add(&Add { title: title.to_owned(), ..Add::default() }).unwrap();
    }
    project.issues().comment("LOCAL-1", &NewComment { text: "Hm.".to_owned(), by: None }).unwrap();
    fixture.commit("issues");
    Checkpoints::new(&project).create(&Create { key: Some("A-1".to_owned()), ..Create::default() }).unwrap();
    project.issues().done("LOCAL-1", &Done::default(), None).unwrap();
    project.issues().add(&Add { title: "Three".to_owned(), ..Add::default() }).unwrap();
    let there = apart(&fixture);
    let issues = Fixture::open(&there).issues().list(Scope::All).unwrap();
    let all: Vec<_> = issues.issues.iter().map(|item| (item.issue.title.as_str(), item.over)).collect();
    assert_eq!(all, [("Two", false), ("Three", false), ("One", true)]);
    let closed = std::fs::read_to_string(there.join(".forge/linear/issues/LOCAL-1.json")).unwrap();
    assert!(closed.contains("\"state\": \"Done\""), "{closed}");
}
