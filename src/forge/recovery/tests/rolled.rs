//! Rollback tests: what must exist afterwards.

use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

use super::bytes::{bytes, nothing_is_lost};
use super::fault::do_at;
use super::fixture::{FEATURES, Fixture, KNOWLEDGE, Kept};
use crate::checkpoints::{Checkpoints, Create};
use crate::error::Category;
use crate::recovery::rollback::Point;
use crate::recovery::{Apply, Class, Recovery};

/// Returns a project with a checkpoint.
pub(super) fn with_checkpoint() -> Fixture {
    static FIRST: LazyLock<Kept> = LazyLock::new(|| {
        let fixture = Fixture::new();
        fixture.write("run.sh", "#!/bin/sh\n");
        fixture.commit("second");
        let asked = Create {
            key: Some("A-1".into()),
            ..Create::default()
        };
        Checkpoints::new(&fixture.project()).create(&asked).unwrap();
        fixture.commit("the manifest");
        fixture.kept()
    });
    FIRST.lay_out()
}

pub(super) fn back() -> Apply {
    Apply {
        checkpoint: Some("A-1-v1".into()),
        why: Some("a test".into()),
    }
}

fn lessons(text: &str) -> Vec<String> {
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let all = file["patterns"]["failed"].as_array().unwrap();
    all.iter()
        .map(|entry| format!("{}: {}", entry["context"], entry["issue"]))
        .collect()
}

#[test]
fn a_rollback_is_one_commit_and_learning_survives() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong way\n");
    fixture.write(
        KNOWLEDGE,
        r#"{"schema_version":"1.0","patterns":{"successful":[{"context":"c","approach":"a","learned_at":"2025-12-24T10:30:00Z"}],"failed":[]},"invariants":["Stay kind"]}"#,
    );
    fixture.write(".forge/linear/history/A-9.json", "{}\n");
    fixture.features(&[
        ("A-001", "failing"),
        ("A-002", "passing"),
        ("A-003", "passing"),
        ("A-004", "passing"),
    ]);
    fixture.commit("wrong way");
    let wrong = fixture.head();
    let done = Recovery::new(&fixture.project())
        .apply(&back())
        .unwrap()
        .rollback
        .unwrap();
    assert_eq!(
        (
            done.branch.as_deref(),
            fixture.run(&["branch", "--show-current"]).as_str()
        ),
        (Some("main"), "main")
    );
    assert_eq!(
        (done.before.as_str(), fixture.run(&["rev-parse", "HEAD^"])),
        (wrong.as_str(), wrong.clone())
    );
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
    assert!(fixture.read(KNOWLEDGE).contains("\"approach\": \"a\""));
    assert!(
        fixture
            .path()
            .join(".forge/linear/history/A-9.json")
            .exists()
    );
    let lessons = lessons(&fixture.read(KNOWLEDGE));
    assert_eq!(lessons.len(), 1, "{lessons:?}");
    assert!(
        lessons[0].contains("A-1-v1") && lessons[0].contains("a test"),
        "{lessons:?}"
    );
    let features: serde_json::Value = serde_json::from_str(&fixture.read(FEATURES)).unwrap();
    let of = |at: usize| {
        (
            features["features"][at]["status"].as_str(),
            features["features"][at]["regressed_at"].is_string(),
        )
    };
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
    let again = Recovery::new(&fixture.project())
        .apply(&Apply::default())
        .unwrap();
    assert_eq!(
        (again.rollback, again.report.class),
        (None, Class::InSync),
        "{}",
        again.report
    );
}

#[test]
fn no_hook_runs_while_one_goes_back() {
    let fixture = with_checkpoint();
    let hooks = [
        "post-checkout",
        "post-commit",
        "post-index-change",
        "post-rewrite",
        "pre-commit",
        "reference-transaction",
    ];
    for hook in hooks {
        let path = fixture.path().join(".git/hooks").join(hook);
        fixture.write(
            &format!(".git/hooks/{hook}"),
            format!("#!/bin/sh\necho {hook} >> .git/ran\n"),
        );
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ran = || std::fs::read_to_string(fixture.path().join(".git/ran")).unwrap_or_default();
    // These hooks would run.
    fixture.run(&["update-ref", "refs/heads/other", "HEAD"]);
    assert!(ran().contains("reference-transaction"), "{}", ran());
    fixture.run(&[
        "-c",
        "core.hooksPath=/dev/null",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    ]);
    fixture.write("a.txt", "wrong\n");
    std::fs::remove_file(fixture.path().join(".git/ran")).unwrap_or_default();
    Recovery::new(&fixture.project()).apply(&back()).unwrap();
    assert_eq!(ran(), "");
}

#[test]
fn what_is_saved_while_one_goes_back_is_rescued_before_it_is_written_over() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    let path = fixture.path().join("a.txt");
    do_at(Point::Committed, move || {
        std::fs::write(path, "saved just now\n").unwrap()
    });
    let done = Recovery::new(&fixture.project())
        .apply(&back())
        .unwrap()
        .rollback
        .unwrap();
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
    assert_eq!(
        done.rescue_meanwhile.as_deref(),
        Some("refs/forge/rescue/manual/2")
    );
    assert_eq!(
        fixture.run(&["show", "refs/forge/rescue/manual/2:a.txt"]),
        "saved just now"
    );
    assert_eq!(
        fixture.run(&["show", "refs/forge/rescue/manual/1:a.txt"]),
        "wrong"
    );
    // Without new changes there is no further rescue.
    fixture.write("a.txt", "wrong again\n");
    let done = Recovery::new(&fixture.project())
        .apply(&back())
        .unwrap()
        .rollback
        .unwrap();
    assert_eq!(
        (done.rescue.as_str(), done.rescue_meanwhile),
        ("refs/forge/rescue/manual/3", None)
    );
}

#[test]
fn a_commit_made_meanwhile_is_not_lost() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    fixture.commit("wrong");
    let folder = fixture.path().to_owned();
    do_at(Point::Remembered, move || {
        crate::git::fixture::run_at(
            &folder,
            &["commit", "-q", "--allow-empty", "-m", "meanwhile"],
        );
    });
    let error = Recovery::new(&fixture.project())
        .apply(&back())
        .unwrap_err();
    assert_eq!(error.code, "E_MOVED");
    assert_eq!(fixture.run(&["log", "-1", "--format=%s"]), "meanwhile");
    assert_eq!(fixture.read("a.txt"), "wrong\n");
}

#[test]
fn others_need_not_wait_while_git_checks_out() {
    for point in [Point::Rescued, Point::Committed] {
        let fixture = with_checkpoint();
        fixture.write("a.txt", "wrong\n");
        let folder = fixture.path().to_owned();
        do_at(point, move || {
            // A separate thread stands for another process.
            let other = std::thread::spawn(move || {
                let project = Fixture::open(&folder);
                (
                    project.common_lock().is_ok(),
                    project.files().lock().is_ok(),
                )
            });
            assert_eq!(other.join().unwrap(), (true, true));
        });
        Recovery::new(&fixture.project()).apply(&back()).unwrap();
    }
}

#[test]
fn what_a_newer_program_wrote_stays_as_it_is() {
    for path in [KNOWLEDGE, FEATURES] {
        let fixture = with_checkpoint();
        fixture.write("a.txt", "wrong\n");
        let newer = fixture.read(path).replacen("\"1.0\"", "\"2.0\"", 1);
        fixture.write(path, &newer);
        let before = bytes(fixture.path());
        Recovery::new(&fixture.project()).apply(&back()).unwrap();
        let kept = std::fs::read_to_string(fixture.path().join(path)).unwrap();
        assert_eq!(
            (kept, fixture.read("a.txt")),
            (newer, "one\ntwo\nthree\n".to_owned())
        );
        nothing_is_lost(fixture.path(), &before, path);
    }
}

#[test]
fn a_rollback_leaves_what_is_untracked() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    fixture.write("more.txt", "more\n");
    fixture.commit("wrong");
    let wrong = fixture.head();
    fixture.write("a.txt", "worse\n");
    fixture.write("new.txt", "untracked\n");
    fixture.write("x.ignored", "ignored\n");
    fixture.features(&[
        ("A-001", "failing"),
        ("A-002", "passing"),
        ("A-003", "not_implemented"),
    ]);
    Recovery::new(&fixture.project()).apply(&back()).unwrap();
    assert_eq!(fixture.run(&["rev-parse", "HEAD^"]), wrong);
    assert_eq!(fixture.read("a.txt"), "one\ntwo\nthree\n");
    assert!(!fixture.path().join("more.txt").exists());
    assert_eq!(
        (
            fixture.read("new.txt").as_str(),
            fixture.read("x.ignored").as_str()
        ),
        ("untracked\n", "ignored\n")
    );
    assert_eq!(
        fixture.run(&["status", "--porcelain", "--", ":/", ":!.forge"]),
        "?? new.txt"
    );
    let features: serde_json::Value = serde_json::from_str(&fixture.read(FEATURES)).unwrap();
    assert_eq!(features["features"][0]["status"], "passing");
    assert_eq!(lessons(&fixture.read(KNOWLEDGE)).len(), 1);
    assert_eq!(
        fixture.run(&["show", "refs/forge/rescue/manual/1:a.txt"]),
        "worse"
    );
}

#[test]
fn major_is_rolled_back_and_minor_is_not() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "x\n");
    let applied = Recovery::new(&fixture.project())
        .apply(&Apply::default())
        .unwrap();
    assert_eq!((applied.rollback, applied.report.row), (None, 5));
    fixture.features(&[("A-001", "failing"), ("A-002", "failing")]);
    let applied = Recovery::new(&fixture.project())
        .apply(&Apply::default())
        .unwrap();
    assert_eq!(applied.report.row, 3);
    let done = applied.rollback.unwrap();
    assert!(done.why.contains("A-001, A-002"), "{}", done.why);
    let error = Recovery::new(&fixture.project()).apply(&Apply {
        checkpoint: Some("A-1-v9".into()),
        ..Apply::default()
    });
    assert_eq!(error.unwrap_err().category.exit_code(), 3);
}

#[test]
fn a_reason_that_nobody_could_learn_is_refused_before_anything_is_done() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong way\n");
    // Assembled here, so that no scanner finds it in this file.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let bad = [
        ("", Category::Usage),
        (" \n", Category::Usage),
        ("a\0b", Category::Usage),
        (&token, Category::Secret),
    ];
    let long = "x".repeat(4_001);
    for (why, category) in bad.into_iter().chain([(long.as_str(), Category::Usage)]) {
        let asked = Apply {
            why: Some(why.to_owned()),
            ..back()
        };
        let error = Recovery::new(&fixture.project()).apply(&asked).unwrap_err();
        assert_eq!(error.category, category, "{why:?}");
        assert_eq!(fixture.run(&["for-each-ref", "refs/forge/"]), "", "{why:?}");
    }
    let forged = "# It was wrong\n\nForge-Session: somebody\nForge-Parent: 123\n";
    let asked = Apply {
        why: Some(forged.to_owned()),
        ..back()
    };
    let done = Recovery::new(&fixture.project())
        .apply(&asked)
        .unwrap()
        .rollback
        .unwrap();
    let made = done.made;
    let sessions = [
        "log",
        "-1",
        "--format=%(trailers:key=Forge-Session,valueonly,separator=%x2C)",
        made.as_str(),
    ];
    assert_eq!(fixture.run(&sessions), "none");
    let made = crate::git::Oid::parse(&made).unwrap();
    let knowledge = fixture
        .project()
        .git()
        .unwrap()
        .document_at::<crate::knowledge::KnowledgeFile>(&made);
    crate::Document::check(&knowledge.unwrap().unwrap()).unwrap();
}
