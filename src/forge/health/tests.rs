//! Every cell of the table of colours, below, at and above each limit, with a frozen clock.

use super::*;
use crate::config::{HealthConfig, Softer};

const DAY: i64 = 24 * 60 * 60;

fn now() -> Time {
    Time::parse("2025-12-24T12:00:00Z").unwrap()
}

/// Returns the time this many seconds ago.
fn ago(seconds: i64) -> Last {
    let at = now().0 - jiff::SignedDuration::from_secs(seconds);
    Last {
        at: Time(at),
        source: Source::HealthSample,
    }
}

/// Returns the inputs of a healthy project.
fn well() -> Inputs {
    Inputs {
        long_term: LongTerm {
            last: Some(ago(0)),
            ..LongTerm::default()
        },
        short_term: ShortTerm {
            last: Some(ago(0)),
            active: true,
            ..ShortTerm::default()
        },
        features: Features {
            passing: 9,
            total: 10,
            ..Features::default()
        },
        git: Git {
            base: Some("origin/main".into()),
            checkpoint: Some("SX9-1-v1".into()),
            commits_since: 0,
            ..Git::default()
        },
        linear: Linear::default(),
    }
}

fn outline(reasons: &[Reason]) -> Vec<(&'static str, Severity)> {
    reasons
        .iter()
        .map(|reason| (reason.code.as_str(), reason.severity))
        .collect()
}

type Cell<'a> = (
    &'a str,
    fn(&mut Inputs),
    Colour,
    &'a [(&'static str, Severity)],
);

/// Judges each cell, and asserts that the other components do not change.
#[track_caller]
fn check(component: &str, config: &HealthConfig, cells: &[Cell<'_>]) {
    for (name, change, colour, reasons) in cells {
        let mut inputs = well();
        change(&mut inputs);
        let health = judge(inputs, config, now());
        for (own, found, why) in health.components() {
            if own == component {
                assert_eq!(
                    (found, outline(why)),
                    (*colour, reasons.to_vec()),
                    "{component}: {name}"
                );
            } else {
                assert_eq!(found, Colour::Green, "{component}: {name} changes {own}");
            }
        }
        let worst = if *colour == Colour::Grey {
            Colour::Green
        } else {
            *colour
        };
        assert_eq!(health.overall, worst, "{component}: {name}");
    }
}

use Colour::{Green, Grey, Red, Yellow};
use Severity::{Error, Info, Warning};

fn letter() -> HealthConfig {
    HealthConfig::default()
}

#[test]
fn a_project_that_is_well_is_green_without_a_reason() {
    let health = judge(well(), &letter(), now());
    assert_eq!(health.overall, Green);
    assert!(
        health
            .components()
            .iter()
            .all(|(_, colour, reasons)| *colour == Green && reasons.is_empty())
    );
    assert_eq!(health.measured_at, now());
}

#[test]
fn long_term_memory() {
    check(
        "long_term",
        &letter(),
        &[
            (
                "absent",
                |i| i.long_term.knowledge = File::Absent,
                Red,
                &[("knowledge_missing", Error)],
            ),
            (
                "damaged",
                |i| i.long_term.knowledge = File::Damaged("x".into()),
                Red,
                &[("knowledge_corrupt", Error)],
            ),
            (
                "features damaged",
                |i| i.long_term.features = File::Damaged("x".into()),
                Red,
                &[("features_corrupt", Error)],
            ),
            (
                "features absent",
                |i| i.long_term.features = File::Absent,
                Green,
                &[],
            ),
            (
                "newer",
                |i| i.long_term.knowledge = File::Newer("2.0".into()),
                Yellow,
                &[("schema_newer", Warning)],
            ),
            (
                "7 d - 1 s",
                |i| i.long_term.last = Some(ago(7 * DAY - 1)),
                Green,
                &[],
            ),
            ("7 d", |i| i.long_term.last = Some(ago(7 * DAY)), Green, &[]),
            (
                "7 d + 1 s",
                |i| i.long_term.last = Some(ago(7 * DAY + 1)),
                Yellow,
                &[("stale", Warning)],
            ),
            (
                "5 min ahead",
                |i| i.long_term.last = Some(ago(-300)),
                Green,
                &[],
            ),
            (
                "5 min + 1 s ahead",
                |i| i.long_term.last = Some(ago(-301)),
                Green,
                &[("clock_skew", Info)],
            ),
            ("no time at all", |i| i.long_term.last = None, Green, &[]),
            (
                "damaged and old",
                |i| {
                    i.long_term = LongTerm {
                        knowledge: File::Damaged("x".into()),
                        features: File::Damaged("y".into()),
                        last: Some(ago(8 * DAY)),
                        damaged: Vec::new(),
                    }
                },
                Red,
                &[("knowledge_corrupt", Error), ("features_corrupt", Error)],
            ),
        ],
    );
}

#[test]
fn short_term_memory() {
    let cells: &[Cell<'_>] = &[
        (
            "absent",
            |i| i.short_term.progress = File::Absent,
            Red,
            &[("progress_missing", Error)],
        ),
        (
            "a fresh clone",
            |i| {
                (
                    i.short_term.progress,
                    i.short_term.not_begun,
                    i.short_term.last,
                ) = (File::Absent, true, None)
            },
            Grey,
            &[("not_begun", Info)],
        ),
        (
            "no text",
            |i| i.short_term.progress = File::Damaged("x".into()),
            Red,
            &[("progress_not_text", Error)],
        ),
        (
            "1 h - 1 s",
            |i| i.short_term.last = Some(ago(3599)),
            Green,
            &[],
        ),
        ("1 h", |i| i.short_term.last = Some(ago(3600)), Green, &[]),
        (
            "1 h + 1 s",
            |i| i.short_term.last = Some(ago(3601)),
            Yellow,
            &[("stale_active", Warning)],
        ),
        (
            "an abandoned session",
            |i| i.short_term.abandoned = Some(("2025-12-24-session-001".into(), ago(9).at)),
            Yellow,
            &[("abandoned_session", Warning)],
        ),
        (
            "malformed lines",
            |i| i.short_term.malformed_lines = 1,
            Green,
            &[("malformed_lines", Info)],
        ),
        (
            "ahead",
            |i| i.short_term.last = Some(ago(-301)),
            Green,
            &[("clock_skew", Info)],
        ),
    ];
    check("short_term", &letter(), cells);
    let wrong: &[Cell<'_>] = &[(
        "events",
        |i| i.short_term.events = Some("x".into()),
        Green,
        &[("events_settings", Info)],
    )];
    check("short_term", &letter(), wrong);
    check(
        "short_term",
        &HealthConfig {
            idle_ok: true,
            ..letter()
        },
        cells,
    );
    fn idle(inputs: &mut Inputs) {
        inputs.short_term.active = false;
        inputs.short_term.last = Some(ago(3601));
    }
    check(
        "short_term",
        &letter(),
        &[("idle", idle, Yellow, &[("stale_idle", Warning)])],
    );
    check(
        "short_term",
        &HealthConfig {
            idle_ok: true,
            ..letter()
        },
        &[("idle", idle, Green, &[("stale_idle", Info)])],
    );
}

#[test]
fn the_fraction_of_a_second_counts() {
    let mut inputs = well();
    let at = now().0 - jiff::SignedDuration::from_millis(3_600_500);
    inputs.short_term.last = Some(Last {
        at: Time(at),
        source: Source::Journal,
    });
    let health = judge(inputs, &letter(), now());
    assert_eq!(health.short_term.colour, Yellow);
    let since = Time::parse("2025-12-24T11:59:59.5Z").unwrap();
    assert_eq!(
        health.short_term.reasons[0].since,
        Some(since),
        "since when it is old"
    );
}

#[test]
fn features() {
    fn set(inputs: &mut Inputs, passing: u64, total: u64) {
        inputs.features.passing = passing;
        inputs.features.total = total;
    }
    let few: &[_] = &[("few_passing", Error)];
    let some: &[_] = &[("some_passing", Warning)];
    let cells: &[Cell<'_>] = &[
        ("none", |i| set(i, 0, 0), Grey, &[("no_features", Info)]),
        ("0 of 1", |i| set(i, 0, 1), Red, few),
        ("49 of 100", |i| set(i, 49, 100), Red, few),
        ("50 of 100", |i| set(i, 50, 100), Yellow, some),
        ("51 of 100", |i| set(i, 51, 100), Yellow, some),
        ("79 of 100", |i| set(i, 79, 100), Yellow, some),
        ("80 of 100", |i| set(i, 80, 100), Yellow, some),
        ("81 of 100", |i| set(i, 81, 100), Green, &[]),
        ("1 of 2", |i| set(i, 1, 2), Yellow, some),
        ("1 of 3", |i| set(i, 1, 3), Red, few),
        ("4 of 5", |i| set(i, 4, 5), Yellow, some),
        ("5 of 6", |i| set(i, 5, 6), Green, &[]),
        ("1 of 1", |i| set(i, 1, 1), Green, &[]),
        (
            "very many",
            |i| set(i, u64::MAX / 2 - 1, u64::MAX),
            Red,
            few,
        ),
        (
            "damaged",
            |i| i.features.file = File::Damaged("x".into()),
            Red,
            &[("features_corrupt", Error)],
        ),
        (
            "newer",
            |i| i.features.file = File::Newer("2.0".into()),
            Yellow,
            &[("schema_newer", Warning)],
        ),
        (
            "unverified",
            |i| i.features.unverified = 1,
            Green,
            &[("unverified_pass", Info)],
        ),
        (
            "stale",
            |i| i.features.stale = Some(1),
            Green,
            &[("stale_pass", Info)],
        ),
        ("none stale", |i| i.features.stale = Some(0), Green, &[]),
    ];
    check("features", &letter(), cells);
    let softer = HealthConfig {
        regression: Softer::Yellow,
        ..letter()
    };
    check("features", &softer, cells);
    fn regressed(inputs: &mut Inputs) {
        inputs.features.regressed = vec!["FORGE-001".into()];
        inputs.features.regressed_since = Some(ago(5).at);
    }
    fn regressed_red(inputs: &mut Inputs) {
        regressed(inputs);
        set(inputs, 4, 10);
    }
    check(
        "features",
        &letter(),
        &[
            ("regressed", regressed, Green, &[("regression", Info)]),
            (
                "regressed and red",
                regressed_red,
                Red,
                &[("few_passing", Error), ("regression", Info)],
            ),
        ],
    );
    check(
        "features",
        &softer,
        &[
            ("regressed", regressed, Yellow, &[("regression", Warning)]),
            (
                "regressed and red",
                regressed_red,
                Red,
                &[("few_passing", Error), ("regression", Warning)],
            ),
        ],
    );
}

#[test]
fn the_repository() {
    let diverged: &[_] = &[("diverged", Error)];
    let cells: &[Cell<'_>] = &[
        (
            "without, as set up",
            |i| i.git.disabled = true,
            Grey,
            &[("no_git", Info)],
        ),
        (
            "lost",
            |i| i.git.absent = true,
            Red,
            &[("repository_lost", Error)],
        ),
        (
            "failed",
            |i| i.git.failed = Some("x".into()),
            Red,
            &[("git_failed", Error)],
        ),
        (
            "unmerged",
            |i| i.git.unmerged = 1,
            Red,
            &[("unmerged", Error)],
        ),
        ("ahead", |i| i.git.ahead = 1, Green, &[]),
        ("behind", |i| i.git.behind = 1, Green, &[]),
        (
            "both",
            |i| (i.git.ahead, i.git.behind) = (1, 1),
            Red,
            diverged,
        ),
        (
            "uncommitted",
            |i| i.git.uncommitted = 1,
            Yellow,
            &[("uncommitted", Warning)],
        ),
        (
            "no checkpoint",
            |i| i.git.checkpoint = None,
            Yellow,
            &[("no_checkpoint", Warning)],
        ),
        ("9 commits after", |i| i.git.commits_since = 9, Green, &[]),
        ("10 commits after", |i| i.git.commits_since = 10, Green, &[]),
        (
            "11 commits after",
            |i| i.git.commits_since = 11,
            Yellow,
            &[("checkpoint_lag", Warning)],
        ),
        (
            "a rebase",
            |i| i.git.operation = Some("rebase".into()),
            Yellow,
            &[("operation", Warning)],
        ),
        (
            "no base",
            |i| i.git.base = None,
            Green,
            &[("no_base", Info)],
        ),
        (
            "all at once, the worst first",
            |i| {
                i.git.uncommitted = 3;
                i.git.unmerged = 1;
                i.git.checkpoint = None;
                i.git.operation = Some("merge".into());
                (i.git.ahead, i.git.behind) = (2, 3);
            },
            Red,
            &[
                ("unmerged", Error),
                ("diverged", Error),
                ("uncommitted", Warning),
                ("no_checkpoint", Warning),
                ("operation", Warning),
            ],
        ),
    ];
    check("git", &letter(), cells);
    let softer = HealthConfig {
        clean_divergence: Softer::Yellow,
        ..letter()
    };
    check("git", &softer, cells);
    fn clean(inputs: &mut Inputs) {
        (
            inputs.git.ahead,
            inputs.git.behind,
            inputs.git.merges_cleanly,
        ) = (1, 1, Some(true));
    }
    fn conflicts(inputs: &mut Inputs) {
        (
            inputs.git.ahead,
            inputs.git.behind,
            inputs.git.merges_cleanly,
        ) = (1, 1, Some(false));
    }
    check(
        "git",
        &letter(),
        &[
            ("merges", clean, Red, diverged),
            ("conflicts", conflicts, Red, diverged),
        ],
    );
    check(
        "git",
        &softer,
        &[
            ("merges", clean, Yellow, &[("diverged", Warning)]),
            ("conflicts", conflicts, Red, diverged),
        ],
    );
    let mut inputs = well();
    clean(&mut inputs);
    let health = judge(inputs, &letter(), now());
    assert_eq!(
        health.git.reasons[0].detail,
        "diverged from origin/main: 1 ahead, 1 behind, merges cleanly"
    );
}

#[test]
fn the_issues() {
    check(
        "linear",
        &letter(),
        &[
            (
                "off",
                |i| i.linear.off = true,
                Grey,
                &[("linear_off", Info)],
            ),
            (
                "no repository",
                |i| i.linear.no_git = true,
                Grey,
                &[("no_git", Info)],
            ),
            (
                "damaged",
                |i| i.linear.active = File::Damaged("x".into()),
                Red,
                &[("active_corrupt", Error)],
            ),
            ("absent", |i| i.linear.active = File::Absent, Green, &[]),
            (
                "an outbox that fails",
                |i| i.linear.outbox_failed = 1,
                Red,
                &[("outbox_failed", Error)],
            ),
            (
                "a conflict",
                |i| i.linear.conflicts = 1,
                Red,
                &[("conflict", Error)],
            ),
            (
                "a pull that failed",
                |i| i.linear.pull_failed = Some(ago(1).at),
                Red,
                &[("pull_failed", Error)],
            ),
            (
                "one orphan",
                |i| i.linear.orphans = 1,
                Yellow,
                &[("orphan_commits", Warning)],
            ),
            (
                "orphans and a conflict",
                |i| (i.linear.orphans, i.linear.conflicts) = (1, 1),
                Red,
                &[("conflict", Error), ("orphan_commits", Warning)],
            ),
        ],
    );
}

#[test]
fn the_worst_that_is_not_grey_counts() {
    for (colours, worst) in [
        ([Grey, Grey, Grey], Grey),
        ([Grey, Green, Grey], Green),
        ([Green, Yellow, Grey], Yellow),
        ([Red, Yellow, Green], Red),
    ] {
        assert_eq!(Colour::worst(colours), worst);
    }
    assert_eq!(Colour::ALL.map(Colour::exit_code), [0, 0, 11, 12]);
    for colour in Colour::ALL {
        assert_eq!(serde_json::to_value(colour).unwrap(), colour.as_str());
    }
}
