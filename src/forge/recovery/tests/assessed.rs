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
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    fixture
}

fn assess(fixture: &Fixture) -> Report {
    Recovery::new(&fixture.project())
        .assess(Assess::default())
        .unwrap()
}

/// Returns the class, the row and the codes of the unknowns.
fn short(report: &Report) -> (Class, u8, Vec<&'static str>) {
    (
        report.class,
        report.row,
        report
            .unknown
            .iter()
            .map(|reason| reason.reason.code())
            .collect(),
    )
}

#[test]
fn each_row_of_the_table_is_reached_in_a_repository() {
    let fixture = with_checkpoint();
    assert_eq!(short(&assess(&fixture)), (Class::InSync, 2, vec![]));
    fixture.write("a.txt", "one\n");
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Minor, 5, vec![]));
    let measures = report.measures.unwrap();
    assert_eq!(
        (
            measures.files,
            measures.lines,
            measures.commits,
            measures.size
        ),
        (1, 2, 0, Size::Small)
    );
    assert!(measures.verify.ran && measures.verify.passed);
    fixture.features(&[("A-001", "failing"), ("A-002", "passing")]);
    let report = assess(&fixture);
    assert_eq!(
        (short(&report), report.action),
        ((Class::Minor, 6, vec![]), Action::Fix)
    );
    assert_eq!(report.measures.unwrap().regressions, ["A-001"]);
    fixture.features(&[("A-001", "failing"), ("A-002", "failing")]);
    assert_eq!(short(&assess(&fixture)), (Class::Major, 3, vec![]));
    fixture.features(&[("A-001", "passing"), ("A-002", "passing")]);
    fixture.write("broken", "");
    assert_eq!(short(&assess(&fixture)), (Class::Minor, 6, vec![]));
    // A change of a protected path counts as large.
    fixture.write(".github/workflows/ci.yml", "on: push\n");
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Major, 4, vec![]));
    assert_eq!(
        report.measures.unwrap().touched_protected,
        [".github/workflows/ci.yml"]
    );
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    let report = assess(&fixture);
    assert_eq!(
        (short(&report), report.action),
        ((Class::Minor, 5, vec![]), Action::Continue)
    );
}

#[test]
fn what_was_taken_away_with_a_reason_is_no_regression() {
    let fixture = Fixture::new();
    fixture.features(&[
        ("A-001", "passing"),
        ("A-002", "passing"),
        ("A-003", "passing"),
    ]);
    fixture.commit("three");
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    let project = fixture.project();
    for id in ["A-001", "A-002", "A-003"] {
        Features::new(&project)
            .remove(id, Some("nobody wants it"), None)
            .unwrap();
    }
    let report = assess(&fixture);
    assert_eq!(
        (short(&report), report.measures.unwrap().regressions),
        ((Class::InSync, 2, vec![]), vec![])
    );
    fixture.features(&[
        ("A-001", "blocked"),
        ("A-002", "passing"),
        ("A-003", "deferred"),
    ]);
    assert_eq!(
        assess(&fixture).measures.unwrap().regressions,
        ["A-001"],
        "blocked is not given up"
    );
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

fn manifest(fixture: &Fixture) -> String {
    crate::fixture::file_of(fixture.path(), ".forge/git/checkpoints", "A-1-v1")
}

#[test]
fn what_is_unknown_is_named() {
    type Spoil = fn(&Fixture);
    let spoils: &[(&str, Spoil)] = &[
        ("tag_moved", |fixture| {
            fixture.commit("later");
            fixture.run(&["tag", "-f", "-a", "-m", "x", "checkpoint/A-1-v1", "HEAD"]);
        }),
        ("manifest_corrupt", |fixture| {
            fixture.write(&manifest(fixture), "{")
        }),
        ("no_usable_checkpoint", |fixture| {
            fixture.run(&["tag", "-f", "-a", "-m", "by hand", "checkpoint/A-1-v1"]);
            std::fs::remove_file(fixture.path().join(manifest(fixture))).unwrap();
        }),
        ("not_descendant", |fixture| {
            fixture.run(&["checkout", "-q", "--orphan", "other"]);
            fixture.write("a.txt", "other\n");
            fixture.commit("other");
        }),
        ("operation", |fixture| {
            fixture.write(".git/BISECT_LOG", "git bisect start\n")
        }),
        ("detached", |fixture| {
            drop(fixture.run(&["checkout", "-q", "--detach"]))
        }),
        ("index_unreadable", |fixture| {
            fixture.write(".git/index", "no index")
        }),
        ("memory_corrupt", |fixture| {
            fixture.write(KNOWLEDGE, "{\"schema_version\": ")
        }),
        ("memory_corrupt", |fixture| fixture.write(FEATURES, "")),
        ("verify_cannot_start", |fixture| {
            fixture.write(
                ".forge/config.toml",
                "[verify]\ncommands = [\"no-such-program\"]\n",
            );
        }),
        ("verify_timed_out", |fixture| {
            fixture.write(
                ".forge/config.toml",
                "[verify]\ncommands = [\"sleep 60\"]\ntimeout_s = 0\n",
            );
        }),
    ];
    for (code, spoil) in spoils {
        let fixture = with_checkpoint();
        spoil(&fixture);
        let report = assess(&fixture);
        assert_eq!(
            (report.class, report.row),
            (Class::Unknown, 0),
            "{code}\n{report}"
        );
        assert!(short(&report).2.contains(code), "{code}\n{report}");
        assert_eq!(report.must_pause(), *code != "not_descendant", "{code}");
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
    let _ = std::process::Command::new("git")
        .args(["merge", "-q", "side"])
        .current_dir(fixture.path())
        .output();
    assert_eq!(
        short(&assess(&fixture)),
        (Class::Unknown, 0, vec!["operation", "unmerged"])
    );
}

/// Assesses with a frozen clock, this many seconds from now.
fn shifted(fixture: &Fixture, seconds: i64) -> Report {
    let now = ProjectEnvironment::default().now();
    let at = Timestamp((now.0.as_second() + seconds) * 1_000_000);
    let environment = ProjectEnvironment {
        clock: Arc::new(ManualClock::at(at)),
        ..ProjectEnvironment::default()
    };
    let project = crate::Project::open(fixture.path(), environment)
        .unwrap()
        .unwrap();
    Recovery::new(&project).assess(Assess::default()).unwrap()
}

#[test]
fn a_clock_before_the_checkpoint_and_an_old_lock_are_named() {
    let fixture = with_checkpoint();
    assert_eq!(short(&shifted(&fixture, -200)), (Class::InSync, 2, vec![]));
    assert_eq!(
        short(&shifted(&fixture, -400)),
        (Class::Unknown, 0, vec!["clock_before"])
    );
    fixture.write(".git/index.lock", "");
    assert_eq!(short(&shifted(&fixture, 500)).2, Vec::<&str>::new());
    assert_eq!(
        short(&shifted(&fixture, 700)),
        (Class::Unknown, 0, vec!["index_locked"])
    );
}

#[test]
fn a_young_project_is_unknown_and_does_not_pause() {
    let fixture = Fixture::new();
    let report = assess(&fixture);
    assert_eq!(short(&report), (Class::Unknown, 0, vec!["no_checkpoint"]));
    assert!(!report.must_pause());
    let error = Recovery::new(&fixture.project())
        .apply(&crate::recovery::Apply::default())
        .unwrap_err();
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
    assert_eq!(
        first.measures.as_ref().unwrap().touched_protected,
        [".forge/skills/x/skill.toml"]
    );
    let same = |report: &Report| {
        (
            report.row,
            report.measures.as_ref().map(|m| (m.files, m.lines, m.size)),
        )
    };
    assert_eq!(same(&first), same(&second));
    let quick = Recovery::new(&fixture.project())
        .assess(Assess { verify: false })
        .unwrap();
    assert!(!quick.measures.unwrap().verify.ran);
}
