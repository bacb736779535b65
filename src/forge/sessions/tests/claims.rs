//! A feature or issue claimed by one session is given to no other.

use super::*;
use crate::features::Features;
use crate::focus::SetFocus;
use crate::sessions::Sessions;

fn fixture(features: usize) -> Fixture {
    let fixture = Fixture::new();
    let feature = |n: usize| {
        format!(r#"{{"id":"A-00{n}","name":"n{n}","status":"not_implemented","tests":[]}}"#)
    };
    let features: Vec<_> = (1..=features).map(feature).collect();
    let text = format!(
        r#"{{"schema_version":"1.0","features":[{}]}}"#,
        features.join(",")
    );
    crate::fixture::write_entries::<crate::features::FeaturesFile>(fixture.path(), &text);
    fixture.repository.commit("Features");
    fixture
}

fn chosen(started: &Started) -> Option<&str> {
    started.chosen.as_ref().unwrap().feature_id.as_deref()
}

#[test]
fn features_are_claimed_once_across_work_trees() {
    let fixture = fixture(4);
    let tree = fixture.path().join("tree");
    fixture.repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "other",
        tree.to_str().unwrap(),
    ]);
    let first = start(&fixture.open());
    assert_eq!(chosen(&first), Some("A-001"));
    let other = || {
        open(
            &tree,
            ProjectEnvironment {
                agent: "Axiom".to_owned(),
                ..fixture.environment()
            },
        )
    };
    let second = start(&other());
    assert_eq!(chosen(&second), Some("A-002"), "in another work tree");
    let third = fixture.as_agent("Vector");
    let joined = Sessions::new(&third)
        .start(&Start {
            join: true,
            ..Start::default()
        })
        .unwrap();
    assert_eq!(chosen(&joined), Some("A-003"), "beside");
    let next = |project: &Project| {
        Features::new(project)
            .next()
            .unwrap()
            .map(|next| next.feature.id)
    };
    assert_eq!(
        next(&fixture.open()).as_deref(),
        Some("A-001"),
        "it is its own"
    );
    assert_eq!(next(&other()).as_deref(), Some("A-002"));
    assert_eq!(next(&fixture.as_agent("Nobody")).as_deref(), Some("A-004"));
    // A session that changes its focus releases its claims.
    let turn = |feature: &str| SetFocus {
        task: Some("t".into()),
        feature_id: Some(feature.into()),
        ..Default::default()
    };
    Sessions::new(&fixture.open())
        .set_focus(&turn("A-004"))
        .unwrap();
    assert_eq!(next(&fixture.as_agent("Nobody")).as_deref(), Some("A-001"));
    Sessions::new(&other()).set_focus(&turn("A-004")).unwrap();
    Sessions::new(&fixture.open()).clear_focus(None).unwrap();
    assert_eq!(next(&third).as_deref(), Some("A-001"));
}

#[test]
fn unwritable_claim_is_a_warning_only() {
    let fixture = fixture(1);
    // A folder in the place of the claims file keeps the file from being written.
    std::fs::create_dir_all(fixture.path().join(".git/forge/claims.json/x")).unwrap();
    let begun = start(&fixture.open());
    assert_eq!(chosen(&begun), Some("A-001"));
    assert!(
        begun
            .warnings
            .iter()
            .any(|warning| warning.contains("claims.json")),
        "{:?}",
        begun.warnings
    );
    assert_eq!(begun.session.state, State::Live);
}

#[test]
fn ended_or_dead_sessions_release_their_claims() {
    let fixture = fixture(1);
    let tree = fixture.path().join("tree");
    fixture.repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "other",
        tree.to_str().unwrap(),
    ]);
    let other = || {
        open(
            &tree,
            ProjectEnvironment {
                agent: "Axiom".to_owned(),
                ..fixture.environment()
            },
        )
    };
    let next = || Features::new(&other()).next().unwrap().is_some();
    start(&fixture.open());
    assert!(!next());
    Sessions::new(&fixture.open())
        .end(&End {
            leave_dirty: Some("it is".to_owned()),
            ..End::default()
        })
        .unwrap();
    assert!(next(), "it ended");
    start(&fixture.open());
    assert!(!next());
    fixture.minutes(60);
    assert!(!next(), "its lease holds");
    fixture.minutes(1);
    assert!(next(), "nothing of it ran");
    let begun = start(&other());
    assert_eq!(chosen(&begun), Some("A-001"));
    std::fs::write(fixture.path().join(".git/forge/claims.json"), "{").unwrap();
    assert!(
        Features::new(&fixture.open()).next().unwrap().is_some(),
        "damaged, it holds nobody up"
    );
}
