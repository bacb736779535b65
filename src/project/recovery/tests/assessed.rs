//! What an assessment finds.

use std::sync::Arc;

use super::ground::{FEATURES, Ground, KNOWLEDGE};
use crate::checkpoints::Create;
use crate::recovery::{Action, Assess, Class, Report, Size};
use crate::world::World;

fn with_checkpoint() -> Ground {
    let ground = Ground::new();
    let asked = Create { key: Some("A-1".into()), ..Create::default() };
    ground.project().checkpoints().create(&asked).unwrap();
    ground
}

fn assess(ground: &Ground) -> Report {
    ground.project().recovery().assess(Assess::default()).unwrap()
}

/// Returns class, row and the codes of what is unknown.
fn short(report: &Report) -> (Class, u8, Vec<&'static str>) {
    (report.class, report.row, report.unknown.iter().map(|reason| reason.reason.code()).collect())
}

#[test]
fn each_row_of_the_table_is_reached_in_a_repository() {
    let ground = with_checkpoint();
    assert_eq!(short(&assess(&ground)), (Class::InSync, 3, vec![]));
    ground.write("a.txt", "one\n");
    let report = assess(&ground);
    assert_eq!(short(&report), (Class::Minor, 4, vec![]));
    let measures = report.measures.unwrap();
    assert_eq!((measures.files, measures.lines, measures.commits, measures.size), (1, 2, 0, Size::Small));
    assert!(measures.verify.ran && measures.verify.passed);
    ground.features(&[("A-001", "failing"), ("A-002", "passing")]);
    let report = assess(&ground);
    assert_eq!((short(&report), report.action), ((Class::Minor, 6, vec![]), Action::FixFeature));
    assert_eq!(report.measures.unwrap().regressions, ["A-001"]);
    ground.features(&[("A-001", "failing"), ("A-002", "failing")]);
    assert_eq!(short(&assess(&ground)), (Class::Major, 2, vec![]));
    ground.features(&[("A-001", "passing"), ("A-002", "passing")]);
    ground.write("broken", "");
    assert_eq!(short(&assess(&ground)), (Class::Minor, 8, vec![]));
    // A protected path makes it large.
    ground.write(".github/workflows/ci.yml", "on: push\n");
    let report = assess(&ground);
    assert_eq!(short(&report), (Class::Major, 10, vec![]));
    assert_eq!(report.measures.unwrap().touched_protected, [".github/workflows/ci.yml"]);
    std::fs::remove_file(ground.path().join("broken")).unwrap();
    let report = assess(&ground);
    assert_eq!((short(&report), report.action), ((Class::Minor, 5, vec![]), Action::Checkpoint));
}

#[test]
fn what_was_taken_away_with_a_reason_is_no_regression() {
    let ground = Ground::new();
    ground.features(&[("A-001", "passing"), ("A-002", "passing"), ("A-003", "passing")]);
    ground.commit("three");
    let asked = Create { key: Some("A-1".into()), ..Create::default() };
    ground.project().checkpoints().create(&asked).unwrap();
    let project = ground.project();
    for id in ["A-001", "A-002", "A-003"] {
        project.features().remove(id, Some("nobody wants it"), None).unwrap();
    }
    let report = assess(&ground);
    assert_eq!((short(&report), report.measures.unwrap().regressions), ((Class::InSync, 3, vec![]), vec![]));
    ground.features(&[("A-001", "blocked"), ("A-002", "passing"), ("A-003", "deferred")]);
    assert_eq!(assess(&ground).measures.unwrap().regressions, ["A-001"], "blocked is not given up");
}

#[test]
fn three_failed_tries_on_different_code_turn_minor_into_major() {
    let ground = with_checkpoint();
    ground.features(&[("A-001", "failing"), ("A-002", "passing")]);
    for number in 1..=3 {
        ground.write("a.txt", format!("{number}\n"));
        assert_eq!(short(&assess(&ground)), (Class::Minor, 6, vec![]));
        let recovery = ground.project();
        assert_eq!(recovery.recovery().tried(false, "A-001").unwrap().failed, number);
        assert_eq!(recovery.recovery().tried(false, "A-001").unwrap().failed, number, "the same code");
    }
    assert_eq!(short(&assess(&ground)), (Class::Major, 7, vec![]));
    assert_eq!(ground.project().recovery().tried(true, "A-001").unwrap().failed, 0);
    assert_eq!(short(&assess(&ground)), (Class::Minor, 6, vec![]));
}

#[test]
fn verified_code_that_fails_means_that_the_environment_changed() {
    let ground = with_checkpoint();
    // Ignored, so no path differs.
    ground.write(".git/info/exclude", "broken\n");
    ground.write("broken", "");
    let report = assess(&ground);
    assert_eq!(short(&report), (Class::Unknown, 1, vec!["environment"]));
    assert!(report.must_pause());
}

#[test]
fn what_is_unknown_is_named() {
    type Spoil = fn(&Ground);
    let spoils: &[(&str, Spoil)] = &[
        ("tag_moved", |ground| {
            ground.commit("later");
            ground.run(&["tag", "-f", "-a", "-m", "x", "checkpoint/A-1-v1", "HEAD"]);
        }),
        ("manifest_corrupt", |ground| ground.write(".forge/git/checkpoints/A-1-v1.json", "{")),
        ("checkpoints_not_here", |ground| drop(ground.run(&["tag", "-d", "checkpoint/A-1-v1"]))),
        ("no_usable_checkpoint", |ground| {
            ground.run(&["tag", "-f", "-a", "-m", "by hand", "checkpoint/A-1-v1"]);
            std::fs::remove_file(ground.path().join(".forge/git/checkpoints/A-1-v1.json")).unwrap();
        }),
        ("not_descendant", |ground| {
            ground.run(&["checkout", "-q", "--orphan", "other"]);
            ground.commit("other");
        }),
        ("operation", |ground| ground.write(".git/BISECT_LOG", "git bisect start\n")),
        ("detached", |ground| drop(ground.run(&["checkout", "-q", "--detach"]))),
        ("index_unreadable", |ground| ground.write(".git/index", "no index")),
        ("memory_corrupt", |ground| ground.write(KNOWLEDGE, "{\"schema_version\": ")),
        ("memory_corrupt", |ground| ground.write(FEATURES, "")),
        ("verify_cannot_start", |ground| {
            ground.write(".forge/config.toml", "[verify]\ncommands = [\"no-such-program\"]\n");
        }),
        ("verify_timed_out", |ground| {
            ground.write(".forge/config.toml", "[verify]\ncommands = [\"sleep 60\"]\ntimeout_s = 0\n");
        }),
    ];
    for (code, spoil) in spoils {
        let ground = with_checkpoint();
        spoil(&ground);
        let report = assess(&ground);
        assert_eq!((report.class, report.row), (Class::Unknown, 0), "{code}\n{report}");
        assert!(short(&report).2.contains(code), "{code}\n{report}");
        assert_eq!(report.must_pause(), !["not_descendant", "checkpoints_not_here"].contains(code), "{code}");
    }
}

#[test]
fn unmerged_paths_and_a_merge_are_both_named() {
    let ground = with_checkpoint();
    ground.run(&["checkout", "-q", "-b", "side"]);
    ground.write("a.txt", "side\n");
    ground.commit("side");
    ground.run(&["checkout", "-q", "main"]);
    ground.write("a.txt", "main\n");
    ground.commit("main");
    let _ = std::process::Command::new("git").args(["merge", "-q", "side"]).current_dir(ground.path()).output();
    assert_eq!(short(&assess(&ground)), (Class::Unknown, 0, vec!["operation", "unmerged"]));
}

struct Standing(jiff::Timestamp);

impl helmdeck_core::Clock for Standing {
    fn now(&self) -> helmdeck_core::Timestamp {
        helmdeck_core::Timestamp(self.0.as_microsecond())
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

/// Opens the project with a clock that stands so many seconds from now.
fn shifted(ground: &Ground, seconds: i64) -> Report {
    let now = World::default().now();
    let at = jiff::Timestamp::from_second(now.0.as_second() + seconds).unwrap();
    let world = World { clock: Arc::new(Standing(at)), ..World::default() };
    let project = crate::Project::open(ground.path(), world).unwrap().unwrap();
    project.recovery().assess(Assess::default()).unwrap()
}

#[test]
fn a_clock_before_the_checkpoint_and_an_old_lock_are_named() {
    let ground = with_checkpoint();
    assert_eq!(short(&shifted(&ground, -200)), (Class::InSync, 3, vec![]));
    assert_eq!(short(&shifted(&ground, -400)), (Class::Unknown, 0, vec!["clock_before"]));
    ground.write(".git/index.lock", "");
    assert_eq!(short(&shifted(&ground, 500)).2, Vec::<&str>::new());
    assert_eq!(short(&shifted(&ground, 700)), (Class::Unknown, 0, vec!["index_locked"]));
}

#[test]
fn a_young_project_is_unknown_and_does_not_pause() {
    let ground = Ground::new();
    let report = assess(&ground);
    assert_eq!(short(&report), (Class::Unknown, 0, vec!["no_checkpoint"]));
    assert!(!report.must_pause());
    let error = ground.project().recovery().apply(&crate::recovery::Apply::default()).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_UNKNOWN", 10));
    assert!(ground.project().check_not_paused().is_ok());
}

#[test]
fn an_assessment_writes_nothing_and_gives_the_same_answer_again() {
    let ground = with_checkpoint();
    ground.write("a.txt", "changed\n");
    ground.write("new.txt", "x");
    ground.write(".forge/skills/x/skill.toml", "x");
    let all = |ground: &Ground| {
        let mut files = std::collections::BTreeMap::new();
        for entry in super::bytes::walk(ground.path()) {
            let about = std::fs::symlink_metadata(&entry).unwrap();
            files.insert(entry, (about.len(), about.modified().unwrap()));
        }
        files
    };
    let before = all(&ground);
    let first = assess(&ground);
    let second = assess(&ground);
    assert_eq!(all(&ground), before);
    assert_eq!(first.measures.as_ref().unwrap().touched_protected, [".forge/skills/x/skill.toml"]);
    let same = |report: &Report| (report.decision(), report.measures.as_ref().map(|m| (m.files, m.lines, m.size)));
    assert_eq!(same(&first), same(&second));
    let quick = ground.project().recovery().assess(Assess { verify: false }).unwrap();
    assert!(!quick.measures.unwrap().verify.ran);
}

#[test]
fn tests_that_fail_count_as_tries_and_those_that_do_not_start_change_nothing() {
    let ground = with_checkpoint();
    let verify = |runner: &str| {
        let project = ground.project_with(&format!("[verify]\ncommands = [\"true\"]\nrunner = \"{runner}\"\n"));
        let verified = project.features().verify("A-001").unwrap();
        (verified.status.as_str().to_owned(), verified.regressed, project.recovery().journal().unwrap().attempts.failed)
    };
    let before = ground.read(FEATURES);
    assert_eq!(verify("no-such-program"), ("passing".to_owned(), false, 0));
    assert_eq!(ground.read(FEATURES), before, "its evidence stays");
    for number in 1..=3 {
        ground.write("a.txt", format!("{number}\n"));
        assert_eq!(verify("sh: exit 1"), ("failing".to_owned(), number == 1, number));
    }
    assert_eq!(short(&assess(&ground)).1, 7);
    assert_eq!(
        verify("sh: echo cargo > /dev/null; echo 'test result: ok. 1 passed; 0 failed'"),
        ("passing".to_owned(), false, 0)
    );
}

#[test]
fn what_fails_is_counted_by_whoever_runs_it_and_once_for_each_code() {
    let ground = with_checkpoint();
    let counted = || ground.project().recovery().journal().unwrap().attempts.failed;
    let attempts = |report: &Report| report.measures.as_ref().unwrap().attempts;
    // Verified code that fails is no try.
    ground.write(".git/info/exclude", "broken\n");
    ground.write("broken", "");
    assert_eq!((short(&assess(&ground)).1, counted()), (1, 0));
    for number in 1..=2 {
        ground.write("a.txt", format!("{number}\n"));
        for _ in 0..2 {
            let report = assess(&ground);
            assert_eq!((attempts(&report), short(&report).1), (number - 1, 8), "an edit is no try yet");
        }
        ground.commit("wrong");
        assert_eq!(attempts(&assess(&ground)), number);
        // The same code, committed, and the same command.
        let asked = Create { key: Some("A-1".into()), ..Create::default() };
        assert_eq!(ground.project().checkpoints().create(&asked).unwrap_err().code, "E_CHECK");
        assert_eq!(counted(), number);
    }
    let text = ground.project().recovery().assess(Assess { verify: false }).unwrap().to_string();
    assert!(text.contains("verify: not run, and known to fail on this code"), "{text}");
    ground.write("a.txt", "another\n");
    let text = ground.project().recovery().assess(Assess { verify: false }).unwrap().to_string();
    assert!(text.contains("verify: not run, and not known to fail"), "{text}");
    ground.commit("another");
    let asked = Create { key: Some("A-1".into()), ..Create::default() };
    assert_eq!(ground.project().checkpoints().create(&asked).unwrap_err().code, "E_CHECK");
    let report = assess(&ground);
    assert_eq!((attempts(&report), short(&report)), (3, (Class::Major, 9, vec![])));
    // It was none of the tests of a feature that failed, so one that passes says nothing.
    std::fs::remove_file(ground.path().join("broken")).unwrap();
    ground.project().checkpoints().create(&asked).unwrap();
    assert_eq!(counted(), 0);
}

#[test]
fn a_verification_that_succeeds_again_ends_the_count_unless_a_feature_still_fails() {
    let ground = with_checkpoint();
    let counted = || ground.project().recovery().journal().unwrap().attempts.failed;
    ground.write("a.txt", "wrong\n");
    ground.write(".git/info/exclude", "broken\n");
    ground.write("broken", "");
    ground.commit("wrong");
    assess(&ground);
    std::fs::remove_file(ground.path().join("broken")).unwrap();
    assert_eq!(counted(), 1);
    assess(&ground);
    assert_eq!(counted(), 0);
    ground.write("broken", "");
    assess(&ground);
    ground.project().recovery().tried_feature(false, "A-001");
    std::fs::remove_file(ground.path().join("broken")).unwrap();
    assess(&ground);
    assert_eq!(counted(), 1, "A-001 fails still");
    ground.project().recovery().tried_feature(true, "A-001");
    assert_eq!(counted(), 0);
}

#[test]
fn a_failed_test_of_a_feature_does_not_pass_for_one_of_the_command() {
    let ground = with_checkpoint();
    ground.write("a.txt", "wrong\n");
    ground.features(&[("A-001", "failing"), ("A-002", "passing")]);
    ground.project().recovery().tried_feature(false, "A-001");
    let report = ground.project().recovery().assess(Assess { verify: false }).unwrap();
    assert_eq!(short(&report), (Class::Minor, 6, vec![]), "{report}");
    assert!(!report.to_string().contains("verify: pass"), "{report}");
}
