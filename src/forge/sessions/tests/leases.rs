//! What keeps a session alive, and what does not.

use helmdeck_core::waiting::{STUCK, wait_for};

use super::*;
use crate::features::Features;
use crate::runner::{self, Line};
use crate::sessions::Sessions;
use crate::work::{self, Work};

#[test]
fn running_check_keeps_its_session_active() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    let go = fixture.path().join("go");
    let ran = std::thread::scope(|scope| {
        let check = scope.spawn(|| {
            let line = Line::Project(
                "sh: touch begun; until [ -e go ]; do sleep 0.01; done",
                None,
            );
            runner::check(&project, line, STUCK)
        });
        wait_for("the check to run", || fixture.path().join("begun").exists());
        // Three times nearly the lease, and each time it is renewed meanwhile.
        for _ in 0..3 {
            fixture.minutes(50);
            let now = fixture.environment().now();
            let seen = || {
                Sessions::new(&fixture.open())
                    .current()
                    .unwrap()
                    .unwrap()
                    .seen_at
            };
            wait_for("the lease to be renewed", || seen() >= now);
        }
        std::fs::write(&go, "").unwrap();
        check.join().unwrap()
    });
    assert!(ran.unwrap().passed());
    let again = start(&fixture.open());
    assert!(again.again && again.abandoned.is_empty(), "{again:?}");
}

#[test]
fn reads_do_not_renew_another_agents_lease() {
    let fixture = Fixture::new();
    let id = start(&fixture.open()).session.id;
    let seen = || {
        Sessions::new(&fixture.open())
            .current()
            .unwrap()
            .unwrap()
            .seen_at
    };
    let before = seen();
    fixture.minutes(30);
    Sessions::new(&fixture.as_agent("Axiom")).renew_lease();
    assert_eq!(seen(), before);
    Sessions::new(&fixture.as_agent("Forge")).renew_lease();
    assert_eq!(seen(), fixture.environment().now());
    fixture.minutes(2);
    Sessions::new(&open(
        fixture.path(),
        ProjectEnvironment {
            agent: "Axiom".to_owned(),
            ..fixture.in_session(&id).environment().clone()
        },
    ))
    .renew_lease();
    assert_eq!(seen(), fixture.environment().now(), "who names it is in it");
}

#[test]
fn nameless_agents_are_warned_when_a_focus_is_taken_away() {
    let fixture = Fixture::new();
    let id = start(&fixture.open()).session.id;
    let begin = |project: &Project, title: &str| {
        let start = work::Start {
            what: Some(title.to_owned()),
            no_branch: true,
            ..work::Start::default()
        };
        let warnings = Work::new(project).start(&start).unwrap().warnings;
        warnings
            .iter()
            .any(|warning| warning.contains("--agent") && warning.contains(&id))
    };
    assert!(
        !begin(&fixture.open(), "Halve a number"),
        "nobody worked on anything"
    );
    assert!(!begin(&fixture.open(), "LOCAL-1"), "it is the same");
    assert!(begin(&fixture.open(), "Double a number"));
    assert!(
        !begin(&fixture.in_session(&id), "LOCAL-1"),
        "who names it knows"
    );
}

#[test]
fn record_with_a_path_as_id_is_damaged() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let id = start(&project).session.id;
    let path = ".forge/.local/sessions.json";
    fixture
        .repository
        .write(path, fixture.read(path).replace(&id, "../../../outside"));
    let log = Log {
        text: "Done".to_owned(),
        next: None,
    };
    let error = Sessions::new(&fixture.open()).log(&log).unwrap_err();
    assert_eq!(
        (error.category, error.code),
        (Category::Corrupt, "E_CORRUPT"),
        "{error}"
    );
}

#[test]
fn invalid_tests_of_a_feature_stop_no_start() {
    let fixture = Fixture::new();
    let features = r#"{"schema_version":"1.0","features":[{"id":"FORGE-001","name":"n","status":"failing","tests":["t"]}]}"#;
    fixture
        .repository
        .write(".forge/memory/long-term/features.json", features);
    let config = "[verify]\nrunner = \"echo ran {prefix}\"\ncount_regex = \"ran\"\n";
    fixture.repository.write(".forge/config.toml", config);
    fixture.repository.commit("Features");
    assert!(
        Features::new(&fixture.open())
            .verify("FORGE-001")
            .unwrap()
            .passed
    );
    fixture.repository.write(
        ".forge/config.toml",
        config.replace("echo ran {prefix}", "echo 'ran {prefix}"),
    );
    let begun = start(&fixture.open());
    assert_eq!(begun.session.state, State::Live, "{begun:?}");
    assert!(
        matches!(&begun.probed[..], [probed] if !probed.passing && !probed.regressed),
        "{:?}",
        begun.probed
    );
}
