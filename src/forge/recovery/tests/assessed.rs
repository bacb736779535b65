//! Assessment results.

use std::sync::Arc;

use helmdeck_core::{ManualClock, Timestamp};

use super::fixture::{FEATURES, Fixture, KNOWLEDGE};
use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::features::Features;
use crate::recovery::{Action, Assess, Class, Recovery, Report, Size};

fn with_checkpoint() -> Fixture {
    let fixture = Fixture::new();
    let asked = Create { key: Some("A-1".into()), ..Create::default() };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    fixture
}

fn assess(fixture: &Fixture) -> Report {
    Recovery::new(&fixture.project()).assess(Assess::default()).unwrap()
}

/// Returns the class, the row and the codes of the unknowns.
fn short(report: &Report) -> (Class, u8, Vec<&'static str>) {
    (report.class, report.row, report.unknown.iter().map(|reason| reason.reason.code()).collect())
}

#[test]
fn each_row_of_the_table_is_reached_in_a_repository() {
    let fixture = with_checkpoint();
    assert_eq!(short(&assess(&fixture)), (Class::InSync, 3, vec![]));
    fixture.write("a.txt", "one\n");
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Minor, 4, vec![]));
    let measures = report.measures.unwrap();
    assert_eq!((measures.files, measures.lines, measures.commits, measures.size), (1, 2, 0, Size::Small));
    assert!(measures.verify.ran && measures.verify.passed);
    fixture.features(&[("A-001", "failing"), ("A-002", "passing")]);
    let report = assess(&fixture);
    assert_eq!((short(&report), report.action), ((Class::Minor, 6, vec![]), Action::FixFeature));
    assert_eq!(report.measures.unwrap().regressions, ["A-001"]);
    fixture.features(&[("A-001", "failing"), ("A-002", "failing")]);
    assert_eq!(short(&assess(&fixture)), (Class::Major, 2, vec![]));
    fixture.features(&[("A-001", "passing"), ("A-002", "passing")]);
    fixture.write("broken", "");
    assert_eq!(short(&assess(&fixture)), (Class::Minor, 8, vec![]));
    // A change of a protected path counts as large.
    fixture.write(".github/workflows/ci.yml", "on: push\n");
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Major, 10, vec![]));
    assert_eq!(report.measures.unwrap().touched_protected, [".github/workflows/ci.yml"]);
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    let report = assess(&fixture);
    assert_eq!((short(&report), report.action), ((Class::Minor, 5, vec![]), Action::Checkpoint));
}

#[test]
fn what_was_taken_away_with_a_reason_is_no_regression() {
    let fixture = Fixture::new();
    fixture.features(&[("A-001", "passing"), ("A-002", "passing"), ("A-003", "passing")]);
    fixture.commit("three");
    let asked = Create { key: Some("A-1".into()), ..Create::default() };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    let project = fixture.project();
    for id in ["A-001", "A-002", "A-003"] {
        Features::new(&project).remove(id, Some("nobody wants it"), None).unwrap();
    }
    let report = assess(&fixture);
    assert_eq!((short(&report), report.measures.unwrap().regressions), ((Class::InSync, 3, vec![]), vec![]));
    fixture.features(&[("A-001", "blocked"), ("A-002", "passing"), ("A-003", "deferred")]);
    assert_eq!(assess(&fixture).measures.unwrap().regressions, ["A-001"], "blocked is not given up");
}

#[test]
fn three_failed_tries_on_different_code_turn_minor_into_major() {
    let fixture = with_checkpoint();
    fixture.features(&[("A-001", "failing"), ("A-002", "passing")]);
    for number in 1..=3 {
        fixture.write("a.txt", format!("{number}\n"));
        assert_eq!(short(&assess(&fixture)), (Class::Minor, 6, vec![]));
        let project = fixture.project();
        let recovery = Recovery::new(&project);
        assert_eq!(recovery.tried(false, "A-001").unwrap().failed, number);
        assert_eq!(recovery.tried(false, "A-001").unwrap().failed, number, "the same code");
    }
    assert_eq!(short(&assess(&fixture)), (Class::Major, 7, vec![]));
    assert_eq!(Recovery::new(&fixture.project()).tried(true, "A-001").unwrap().failed, 0);
    assert_eq!(short(&assess(&fixture)), (Class::Minor, 6, vec![]));
}

#[test]
fn verified_code_that_fails_means_that_the_environment_changed() {
    let fixture = with_checkpoint();
    // The file is ignored, so no path differs.
    fixture.write(".git/info/exclude", "broken\n");
    fixture.write("broken", "");
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Unknown, 1, vec!["environment"]));
    assert!(report.must_pause());
}

#[test]
fn what_is_unknown_is_named() {
    type Spoil = fn(&Fixture);
    let spoils: &[(&str, Spoil)] = &[
        ("tag_moved", |fixture| {
            fixture.commit("later");
            fixture.run(&["tag", "-f", "-a", "-m", "x", "checkpoint/A-1-v1", "HEAD"]);
        }),
        ("manifest_corrupt", |fixture| fixture.write(".forge/git/checkpoints/A-1-v1.json", "{")),
        ("checkpoints_not_here", |fixture| drop(fixture.run(&["tag", "-d", "checkpoint/A-1-v1"]))),
        ("no_usable_checkpoint", |fixture| {
            fixture.run(&["tag", "-f", "-a", "-m", "by hand", "checkpoint/A-1-v1"]);
            std::fs::remove_file(fixture.path().join(".forge/git/checkpoints/A-1-v1.json")).unwrap();
        }),
        ("not_descendant", |fixture| {
            fixture.run(&["checkout", "-q", "--orphan", "other"]);
            fixture.commit("other");
        }),
        ("operation", |fixture| fixture.write(".git/BISECT_LOG", "git bisect start\n")),
        ("detached", |fixture| drop(fixture.run(&["checkout", "-q", "--detach"]))),
        ("index_unreadable", |fixture| fixture.write(".git/index", "no index")),
        ("memory_corrupt", |fixture| fixture.write(KNOWLEDGE, "{\"schema_version\": ")),
        ("memory_corrupt", |fixture| fixture.write(FEATURES, "")),
        ("verify_cannot_start", |fixture| {
            fixture.write(".forge/config.toml", "[verify]\ncommands = [\"no-such-program\"]\n");
        }),
        ("verify_timed_out", |fixture| {
            fixture.write(".forge/config.toml", "[verify]\ncommands = [\"sleep 60\"]\ntimeout_s = 0\n");
        }),
    ];
    for (code, spoil) in spoils {
        let fixture = with_checkpoint();
        spoil(&fixture);
        let report = assess(&fixture);
        assert_eq!((report.class, report.row), (Class::Unknown, 0), "{code}\n{report}");
        assert!(short(&report).2.contains(code), "{code}\n{report}");
        assert_eq!(report.must_pause(), !["not_descendant", "checkpoints_not_here"].contains(code), "{code}");
    }
}

#[test]
fn unmerged_paths_and_a_merge_are_both_named() {
    let fixture = with_checkpoint();
    fixture.run(&["checkout", "-q", "-b", "side"]);
    fixture.write("a.txt", "side\n");
    fixture.commit("side");
    fixture.run(&["checkout", "-q", "main"]);
    fixture.write("a.txt", "main\n");
    fixture.commit("main");
    let _ = std::process::Command::new("git").args(["merge", "-q", "side"]).current_dir(fixture.path()).output();
    assert_eq!(short(&assess(&fixture)), (Class::Unknown, 0, vec!["operation", "unmerged"]));
}

/// Assesses with a frozen clock, this many seconds from now.
fn shifted(fixture: &Fixture, seconds: i64) -> Report {
    let now = ProjectEnvironment::default().now();
    let at = Timestamp((now.0.as_second() + seconds) * 1_000_000);
    let environment = ProjectEnvironment { clock: Arc::new(ManualClock::at(at)), ..ProjectEnvironment::default() };
    let project = crate::Project::open(fixture.path(), environment).unwrap().unwrap();
    Recovery::new(&project).assess(Assess::default()).unwrap()
}

#[test]
fn a_clock_before_the_checkpoint_and_an_old_lock_are_named() {
    let fixture = with_checkpoint();
    assert_eq!(short(&shifted(&fixture, -200)), (Class::InSync, 3, vec![]));
    assert_eq!(short(&shifted(&fixture, -400)), (Class::Unknown, 0, vec!["clock_before"]));
    fixture.write(".git/index.lock", "");
    assert_eq!(short(&shifted(&fixture, 500)).2, Vec::<&str>::new());
    assert_eq!(short(&shifted(&fixture, 700)), (Class::Unknown, 0, vec!["index_locked"]));
}

#[test]
fn a_young_project_is_unknown_and_does_not_pause() {
    let fixture = Fixture::new();
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Unknown, 0, vec!["no_checkpoint"]));
    assert!(!report.must_pause());
    let error = Recovery::new(&fixture.project()).apply(&crate::recovery::Apply::default()).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_UNKNOWN", 10));
    assert!(fixture.project().check_not_paused().is_ok());
}

#[test]
fn an_assessment_writes_nothing_and_gives_the_same_answer_again() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "changed\n");
    fixture.write("new.txt", "x");
    fixture.write(".forge/skills/x/skill.toml", "x");
    let all = |fixture: &Fixture| {
        let mut files = std::collections::BTreeMap::new();
        for entry in super::bytes::walk(fixture.path()) {
            let about = std::fs::symlink_metadata(&entry).unwrap();
            files.insert(entry, (about.len(), about.modified().unwrap()));
        }
        files
    };
    let before = all(&fixture);
    let first = assess(&fixture);
    let second = assess(&fixture);
    assert_eq!(all(&fixture), before);
    assert_eq!(first.measures.as_ref().unwrap().touched_protected, [".forge/skills/x/skill.toml"]);
    let same = |report: &Report| (report.decision(), report.measures.as_ref().map(|m| (m.files, m.lines, m.size)));
    assert_eq!(same(&first), same(&second));
    let quick = Recovery::new(&fixture.project()).assess(Assess { verify: false }).unwrap();
    assert!(!quick.measures.unwrap().verify.ran);
}

#[test]
fn tests_that_fail_count_as_tries_and_those_that_do_not_start_change_nothing() {
    let fixture = with_checkpoint();
    let verify = |runner: &str| {
        let project = fixture.project_with(&format!("[verify]\ncommands = [\"true\"]\nrunner = \"{runner}\"\n"));
        let verified = Features::new(&project).verify("A-001").unwrap();
        (
            verified.status.as_str().to_owned(),
            verified.regressed,
            Recovery::new(&project).journal().unwrap().attempts.failed,
        )
    };
    let before = fixture.read(FEATURES);
    assert_eq!(verify("no-such-program"), ("passing".to_owned(), false, 0));
    assert_eq!(fixture.read(FEATURES), before, "its evidence stays");
    for number in 1..=3 {
        fixture.write("a.txt", format!("{number}\n"));
        assert_eq!(verify("sh: exit 1"), ("failing".to_owned(), number == 1, number));
    }
    assert_eq!(short(&assess(&fixture)).1, 7);
    assert_eq!(
        verify("sh: echo cargo > /dev/null; echo 'test result: ok. 1 passed; 0 failed'"),
        ("passing".to_owned(), false, 0)
    );
}

#[test]
fn what_fails_is_counted_by_whoever_runs_it_and_once_for_each_code() {
    let fixture = with_checkpoint();
    let counted = || Recovery::new(&fixture.project()).journal().unwrap().attempts.failed;
    let attempts = |report: &Report| report.measures.as_ref().unwrap().attempts;
    // A failure on verified code is not an attempt.
    fixture.write(".git/info/exclude", "broken\n");
    fixture.write("broken", "");
    assert_eq!((short(&assess(&fixture)).1, counted()), (1, 0));
    for number in 1..=2 {
        fixture.write("a.txt", format!("{number}\n"));
        for _ in 0..2 {
            let report = assess(&fixture);
            assert_eq!((attempts(&report), short(&report).1), (number - 1, 8), "an edit is no try yet");
        }
        fixture.commit("wrong");
        assert_eq!(attempts(&assess(&fixture)), number);
        // The same code, committed, and the same command.
        let asked = Create { key: Some("A-1".into()), ..Create::default() };
        assert_eq!(Checkpoints::new(&fixture.project()).create(&asked).unwrap_err().code, "E_CHECK");
        assert_eq!(counted(), number);
    }
    let text = Recovery::new(&fixture.project()).assess(Assess { verify: false }).unwrap().to_string();
    assert!(text.contains("verify: not run, and known to fail on this code"), "{text}");
    fixture.write("a.txt", "another\n");
    let text = Recovery::new(&fixture.project()).assess(Assess { verify: false }).unwrap().to_string();
    assert!(text.contains("verify: not run, and not known to fail"), "{text}");
    fixture.commit("another");
    let asked = Create { key: Some("A-1".into()), ..Create::default() };
    assert_eq!(Checkpoints::new(&fixture.project()).create(&asked).unwrap_err().code, "E_CHECK");
    let report = assess(&fixture);
    assert_eq!((attempts(&report), short(&report)), (3, (Class::Major, 9, vec![])));
    // No feature test had failed, so a passing one proves nothing.
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    assert_eq!(counted(), 0);
}

#[test]
fn a_verification_that_succeeds_again_ends_the_count_unless_a_feature_still_fails() {
    let fixture = with_checkpoint();
    let counted = || Recovery::new(&fixture.project()).journal().unwrap().attempts.failed;
    fixture.write("a.txt", "wrong\n");
    fixture.write(".git/info/exclude", "broken\n");
    fixture.write("broken", "");
    fixture.commit("wrong");
    assess(&fixture);
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    assert_eq!(counted(), 1);
    assess(&fixture);
    assert_eq!(counted(), 0);
    fixture.write("broken", "");
    assess(&fixture);
    Recovery::new(&fixture.project()).tried_feature(false, "A-001");
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    assess(&fixture);
    assert_eq!(counted(), 1, "A-001 fails still");
    Recovery::new(&fixture.project()).tried_feature(true, "A-001");
    assert_eq!(counted(), 0);
}

#[test]
fn a_failed_test_of_a_feature_does_not_pass_for_one_of_the_command() {
    let fixture = with_checkpoint();
    fixture.write("a.txt", "wrong\n");
    fixture.features(&[("A-001", "failing"), ("A-002", "passing")]);
    Recovery::new(&fixture.project()).tried_feature(false, "A-001");
    let report = Recovery::new(&fixture.project()).assess(Assess { verify: false }).unwrap();
    assert_eq!(short(&report), (Class::Minor, 6, vec![]), "{report}");
    assert!(!report.to_string().contains("verify: pass"), "{report}");
}
