//! What one session works on is given to no other.

use super::*;
use crate::focus::SetFocus;

fn bench(features: usize) -> Bench {
    let bench = Bench::new();
    let feature = |n: usize| format!(r#"{{"id":"A-00{n}","name":"n{n}","status":"not_implemented","tests":[]}}"#);
    let features: Vec<_> = (1..=features).map(feature).collect();
    let text = format!(r#"{{"schema_version":"1.0","features":[{}]}}"#, features.join(","));
    bench.repository.write(".forge/memory/long-term/features.json", text);
    bench.repository.commit("Features");
    bench
}

fn chosen(started: &Started) -> Option<&str> {
    started.chosen.as_ref().unwrap().feature_id.as_deref()
}

#[test]
fn no_two_sessions_are_given_the_same_feature_in_any_work_tree() {
    let bench = bench(4);
    let tree = bench.path().join("tree");
    bench.repository.run(&["worktree", "add", "--quiet", "-b", "other", tree.to_str().unwrap()]);
    let first = start(&bench.open());
    assert_eq!(chosen(&first), Some("A-001"));
    let other = || open(&tree, World { agent: "Axiom".to_owned(), ..bench.world() });
    let second = start(&other());
    assert_eq!(chosen(&second), Some("A-002"), "in another work tree");
    let third = bench.as_agent("Vector");
    let joined = third.sessions().start(&Start { join: true, ..Start::default() }).unwrap();
    assert_eq!(chosen(&joined), Some("A-003"), "beside");
    let next = |project: &Project| project.features().next().unwrap().map(|next| next.feature.id);
    assert_eq!(next(&bench.open()).as_deref(), Some("A-001"), "it is its own");
    assert_eq!(next(&other()).as_deref(), Some("A-002"));
    assert_eq!(next(&bench.as_agent("Nobody")).as_deref(), Some("A-004"));
    // Who turns to something else gives back what it had.
    let turn =
        |feature: &str| SetFocus { task: Some("t".into()), feature_id: Some(feature.into()), ..Default::default() };
    bench.open().sessions().set_focus(&turn("A-004")).unwrap();
    assert_eq!(next(&bench.as_agent("Nobody")).as_deref(), Some("A-001"));
    other().sessions().set_focus(&turn("A-004")).unwrap();
    bench.open().sessions().clear_focus(None).unwrap();
    assert_eq!(next(&third).as_deref(), Some("A-001"));
}

#[test]
fn a_claim_that_cannot_be_kept_is_told_and_stops_nobody() {
    let bench = bench(1);
    // No file takes the place of a folder.
    std::fs::create_dir_all(bench.path().join(".git/forge/claims.json/x")).unwrap();
    let begun = start(&bench.open());
    assert_eq!(chosen(&begun), Some("A-001"));
    assert!(begun.warnings.iter().any(|warning| warning.contains("claims.json")), "{:?}", begun.warnings);
    assert_eq!(begun.session.state, State::Live);
}

#[test]
fn what_a_session_had_is_free_when_it_is_over_and_when_it_is_dead() {
    let bench = bench(1);
    let tree = bench.path().join("tree");
    bench.repository.run(&["worktree", "add", "--quiet", "-b", "other", tree.to_str().unwrap()]);
    let other = || open(&tree, World { agent: "Axiom".to_owned(), ..bench.world() });
    let next = || other().features().next().unwrap().is_some();
    start(&bench.open());
    assert!(!next());
    bench.open().sessions().end(&End { leave_dirty: Some("it is".to_owned()), ..End::default() }).unwrap();
    assert!(next(), "it ended");
    start(&bench.open());
    assert!(!next());
    bench.minutes(60);
    assert!(!next(), "its lease holds");
    bench.minutes(1);
    assert!(next(), "nothing of it ran");
    let begun = start(&other());
    assert_eq!(chosen(&begun), Some("A-001"));
    std::fs::write(bench.path().join(".git/forge/claims.json"), "{").unwrap();
    assert!(bench.open().features().next().unwrap().is_some(), "damaged, it holds nobody up");
}
