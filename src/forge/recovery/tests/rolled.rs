//! Rollback tests: what must exist afterwards.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use super::bytes::{bytes, nothing_is_lost};
use super::fault::{When, do_at};
use super::fixture::{FEATURES, Fixture, KNOWLEDGE, Kept};
use crate::checkpoints::{Checkpoints, Create};
use crate::error::Category;
use crate::git::fixture::run_at;
use crate::recovery::{Apply, Mode, Recovery, Step};

/// Returns a project with a checkpoint.
pub(super) fn with_checkpoint() -> Fixture {
    static FIRST: LazyLock<Kept> = LazyLock::new(|| {
        let fixture = Fixture::new();
        fixture.write("run.sh", "#!/bin/sh\n");
        fixture.commit("second");
        let asked = Create { key: Some("A-1".into()), ..Create::default() };
        Checkpoints::new(&fixture.project()).create(&asked).unwrap();
        fixture.commit("the manifest");
        fixture.kept()
    });
    FIRST.lay_out()
}

pub(super) fn back(mode: Mode) -> Apply {
    Apply { mode: Some(mode), checkpoint: Some("A-1-v1".into()), why: Some("a test".into()), worktree: None }
}

fn lessons(text: &str) -> Vec<String> {
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let all = file["patterns"]["failed"].as_array().unwrap();
    all.iter().map(|entry| format!("{}: {}", entry["context"], entry["issue"])).collect()
}

#[test]
fn a_clean_tree_is_switched_in_place_and_learning_survives() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong way\n");
    fixture.write(
        KNOWLEDGE,
        r#"{"schema_version":"1.0","patterns":{"successful":[{"context":"c","approach":"a","learned_at":"2025-12-24T10:30:00Z"}],"failed":[]},"invariants":["Stay kind"]}"#,
    );
    fixture.write(".forge/linear/history/A-9.json", "{}\n");
    fixture.features(&[("A-001", "failing"), ("A-002", "passing"), ("A-003", "passing"), ("A-004", "passing")]);
    fixture.commit("wrong way");
    let wrong = fixture.head();
    let applied = Recovery::new(&fixture.project()).apply(&back(Mode::Branch)).unwrap();
    let done = applied.rollback.unwrap();
    assert_eq!(done.worktree, None);
    assert_eq!(fixture.run(&["branch", "--show-current"]), "forge/rollback/A-1-v1-1");
    assert_eq!(fixture.run(&["rev-parse", "HEAD^"]), fixture.run(&["rev-parse", "checkpoint/A-1-v1^{commit}"]));
    assert_eq!(fixture.run(&["rev-parse", "main"]), wrong, "no branch is moved");
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
    assert!(fixture.read(KNOWLEDGE).contains("\"approach\": \"a\""));
    assert!(fixture.path().join(".forge/linear/history/A-9.json").exists());
    let lessons = lessons(&fixture.read(KNOWLEDGE));
    assert_eq!(lessons.len(), 1, "{lessons:?}");
    assert!(lessons[0].contains("A-1-v1") && lessons[0].contains("a test"), "{lessons:?}");
    let features: serde_json::Value = serde_json::from_str(&fixture.read(FEATURES)).unwrap();
    let of =
        |at: usize| (features["features"][at]["status"].as_str(), features["features"][at]["regressed_at"].is_string());
    assert_eq!(
        [of(0), of(1), of(2), of(3)],
        [
            (Some("passing"), true),
            (Some("passing"), false),
            (Some("not_implemented"), true),
            (Some("not_implemented"), true)
        ]
    );
    assert_eq!(fixture.run(&["status", "--porcelain"]), "");
    let rescued = fixture.run(&["show", "refs/forge/rescue/manual/1:a.txt"]);
    assert_eq!(rescued, "wrong way");
    // There is nothing left to do.
    let again = Recovery::new(&fixture.project()).apply(&Apply::default()).unwrap();
    assert_eq!((again.rollback, again.resumed), (None, false));
}

#[test]
fn a_dirty_tree_stays_and_work_goes_on_in_another() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "staged\n");
    fixture.run(&["add", "a.txt"]);
    fixture.write("new.txt", "untracked\n");
    let index = std::fs::read(fixture.path().join(".git/index")).unwrap();
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
    assert!(std::fs::read(fixture.path().join(".git/index")).unwrap() == index, "the index was written");
    let folder = PathBuf::from(done.worktree.unwrap());
    assert_eq!(std::fs::read_to_string(folder.join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert!(!folder.join("new.txt").exists());
    assert_eq!(run_at(&folder, &["branch", "--show-current"]), done.target.unwrap());
    for knowledge in [folder.join(KNOWLEDGE), fixture.path().join(KNOWLEDGE)] {
        assert_eq!(lessons(&std::fs::read_to_string(knowledge).unwrap()).len(), 1);
    }
    assert_eq!(fixture.read("a.txt"), "staged\n");
    // A second rollback uses other names.
    let again = Recovery::new(&fixture.project()).apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
    assert_eq!(again.target.as_deref(), Some("forge/rollback/A-1-v1-2"));
    assert_eq!(again.rescue.as_deref(), Some("refs/forge/rescue/manual/2"));
}

#[test]
fn no_hook_runs_while_one_goes_back() {
    let fixture = with_checkpoint();
    let hooks =
        ["post-checkout", "post-commit", "post-index-change", "post-rewrite", "pre-commit", "reference-transaction"];
    for hook in hooks {
        let path = fixture.path().join(".git/hooks").join(hook);
        fixture.write(&format!(".git/hooks/{hook}"), format!("#!/bin/sh\necho {hook} >> .git/ran\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ran = || std::fs::read_to_string(fixture.path().join(".git/ran")).unwrap_or_default();
    // These hooks would run.
    fixture.run(&["update-ref", "refs/heads/other", "HEAD"]);
    assert!(ran().contains("reference-transaction"), "{}", ran());
    for mode in [Mode::Branch, Mode::Restore] {
        fixture.run(&["-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "x"]);
        fixture.write("a.txt", "wrong\n");
        std::fs::remove_file(fixture.path().join(".git/ran")).unwrap_or_default();
        Recovery::new(&fixture.project()).apply(&back(mode)).unwrap();
        assert_eq!(ran(), "", "{mode:?}");
    }
}

#[test]
fn what_is_saved_while_one_goes_back_is_rescued_before_it_is_written_over() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    let path = fixture.path().join("a.txt");
    do_at(Step::CheckedOut, When::Before, move || std::fs::write(path, "saved just now\n").unwrap());
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap().rollback.unwrap();
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
    assert_eq!(done.later_rescues, ["refs/forge/rescue/manual/2"]);
    assert_eq!(fixture.run(&["show", "refs/forge/rescue/manual/2:a.txt"]), "saved just now");
    assert_eq!(fixture.run(&["show", "refs/forge/rescue/manual/1:a.txt"]), "wrong");
    // Without new changes there is no further rescue.
    fixture.write("a.txt", "wrong again\n");
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap().rollback.unwrap();
    assert_eq!((done.rescue.as_deref(), done.later_rescues.len()), (Some("refs/forge/rescue/manual/3"), 0));
}

#[test]
fn others_need_not_wait_while_git_checks_out() {
    for (mode, step) in
        [(Mode::Branch, Step::CheckedOut), (Mode::Restore, Step::CheckedOut), (Mode::Branch, Step::Recorded)]
    {
        let fixture = with_checkpoint();
        fixture.write("a.txt", "wrong\n");
        let folder = fixture.path().to_owned();
        do_at(step, When::Before, move || {
            // A separate thread stands for another process.
            let other = std::thread::spawn(move || {
                let project = Fixture::open(&folder);
                (project.common_lock().is_ok(), project.files().lock().is_ok())
            });
            assert_eq!(other.join().unwrap(), (true, true));
        });
        Recovery::new(&fixture.project()).apply(&back(mode)).unwrap();
    }
}

#[test]
fn a_branch_whose_name_is_in_the_way_stops_nothing() {
    for (branches, expected) in [
        (&["forge"][..], "forge-rollback/A-1-v1-1"),
        (&["forge/rollback"], "forge-rollback/A-1-v1-1"),
        (&["forge", "forge-rollback"], "forge-rollbacks/A-1-v1-1"),
    ] {
        let fixture = with_checkpoint();
        for branch in branches {
            fixture.run(&["branch", branch]);
        }
        fixture.write("a.txt", "wrong\n");
        let done = Recovery::new(&fixture.project()).apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
        assert_eq!(done.target.as_deref(), Some(expected));
        assert!(crate::recovery::is_rollback(expected), "whoever begins there is told so");
    }
}

#[test]
fn what_a_newer_program_wrote_is_not_carried_over() {
    for path in [KNOWLEDGE, FEATURES] {
        let fixture = with_checkpoint();
        fixture.write("a.txt", "wrong\n");
        let newer = fixture.read(path).replacen("\"1.0\"", "\"2.0\"", 1);
        fixture.write(path, &newer);
        let before = bytes(fixture.path());
        let error = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap_err();
        assert!(matches!(error.code, "E_UNKNOWN" | "E_SCHEMA_NEWER"), "{error}");
        assert_eq!(fixture.read(path), newer);
        assert!(Recovery::new(&fixture.project()).journal().unwrap().current.is_none());
        nothing_is_lost(fixture.path(), &before, path);
    }
}

#[test]
fn a_restore_goes_forward_on_the_same_branch_and_leaves_what_is_untracked() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    fixture.write("more.txt", "more\n");
    fixture.commit("wrong");
    let wrong = fixture.head();
    fixture.write("a.txt", "worse\n");
    fixture.write("new.txt", "untracked\n");
    fixture.write("x.ignored", "ignored\n");
    fixture.features(&[("A-001", "failing"), ("A-002", "passing"), ("A-003", "not_implemented")]);
    let done = Recovery::new(&fixture.project()).apply(&back(Mode::Restore)).unwrap().rollback.unwrap();
    assert_eq!((done.target.as_deref(), done.worktree), (Some("main"), None));
    assert_eq!(fixture.run(&["rev-parse", "HEAD^"]), wrong);
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
    assert!(!fixture.path().join("more.txt").exists());
    assert_eq!((fixture.read("new.txt").as_str(), fixture.read("x.ignored").as_str()), ("untracked\n", "ignored\n"));
    assert_eq!(fixture.run(&["status", "--porcelain", "--", ":/", ":!.forge"]), "?? new.txt");
    let features: serde_json::Value = serde_json::from_str(&fixture.read(FEATURES)).unwrap();
    assert_eq!(features["features"][0]["status"], "passing");
    assert_eq!(lessons(&fixture.read(KNOWLEDGE)).len(), 1);
    assert_eq!(fixture.run(&["show", "refs/forge/rescue/manual/1:a.txt"]), "worse");
}

#[test]
fn major_is_rolled_back_and_minor_is_not() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "x\n");
    let applied = Recovery::new(&fixture.project()).apply(&Apply::default()).unwrap();
    assert_eq!((applied.rollback, applied.report.unwrap().row), (None, 4));
    fixture.features(&[("A-001", "failing"), ("A-002", "failing")]);
    let applied = Recovery::new(&fixture.project()).apply(&Apply::default()).unwrap();
    let done = applied.rollback.unwrap();
    assert_eq!((done.row, done.regressions.len()), (2, 2));
    assert!(done.why.contains("A-001, A-002"), "{}", done.why);
    let error =
        Recovery::new(&fixture.project()).apply(&Apply { checkpoint: Some("A-1-v9".into()), ..Apply::default() });
    assert_eq!(error.unwrap_err().category.exit_code(), 3);
}

#[test]
fn a_reason_that_nobody_could_learn_is_refused_before_anything_is_done() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong way\n");
    // Assembled here, so that no scanner finds it in this file.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let bad = [("", Category::Usage), (" \n", Category::Usage), ("a\0b", Category::Usage), (&token, Category::Secret)];
    let long = "x".repeat(4_001);
    for (why, category) in bad.into_iter().chain([(long.as_str(), Category::Usage)]) {
        let asked = Apply { why: Some(why.to_owned()), ..back(Mode::Branch) };
        let error = Recovery::new(&fixture.project()).apply(&asked).unwrap_err();
        assert_eq!(error.category, category, "{why:?}");
        assert_eq!(fixture.run(&["for-each-ref", "refs/forge/"]), "", "{why:?}");
        assert!(Recovery::new(&fixture.project()).journal().unwrap().current.is_none(), "{why:?}");
    }
    let forged = "# It was wrong\n\nForge-Session: somebody\nForge-Parent: 123\n";
    let asked = Apply { why: Some(forged.to_owned()), ..back(Mode::Branch) };
    let done = Recovery::new(&fixture.project()).apply(&asked).unwrap().rollback.unwrap();
    let made = done.made.unwrap();
    let sessions = ["log", "-1", "--format=%(trailers:key=Forge-Session,valueonly,separator=%x2C)", made.as_str()];
    assert_eq!(fixture.run(&sessions), "none");
    let text = fixture.run(&["cat-file", "-p", &format!("{made}:{KNOWLEDGE}")]);
    let knowledge: crate::knowledge::KnowledgeFile = serde_json::from_str(&text).unwrap();
    crate::Document::check(&knowledge).unwrap();
}
