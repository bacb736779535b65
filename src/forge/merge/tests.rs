//! Merges of two versions of an entry, and a real `git merge`.

mod in_git;
mod plain;

use std::collections::BTreeSet;

use super::*;
use crate::features::{Feature, Status};
use crate::json;
use crate::knowledge::{Learning, What};

const LEARNED: &str = ".forge/memory/long-term/knowledge/c-a1b2.json";
const FEATURE: &str = ".forge/memory/long-term/features/FORGE-001-a.json";

fn merged(path: &str, base: &str, ours: &str, theirs: &str) -> serde_json::Value {
    let merged = merge(path, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert_eq!(merged.conflicts, Vec::<String>::new());
    serde_json::from_slice(&merged.bytes).unwrap()
}

/// Returns the file of a feature.
fn with(change: impl FnOnce(&mut Feature)) -> String {
    let mut feature = Feature::new("FORGE-001", "One");
    change(&mut feature);
    String::from_utf8(json::print(&feature).unwrap()).unwrap()
}

fn feature(base: &str, ours: &str, theirs: &str) -> Feature {
    serde_json::from_value(merged(FEATURE, base, ours, theirs)).unwrap()
}

fn at(day: u8) -> Option<crate::Time> {
    Some(crate::Time::parse(&format!("2025-12-{day}T10:00:00Z")).unwrap())
}

fn pass(feature: &mut Feature) {
    feature.status = Status::Passing;
    (feature.evidence, feature.verified_at) = (Some("triv:abc_def_ghi".into()), at(25));
}

#[test]
fn one_side_alone_is_taken_as_it_is() {
    let (base, other) = (with(|_| ()), with(|feature| feature.name = "Other".into()));
    for (base, ours, theirs) in [
        (&base, &base, &other),
        (&base, &other, &base),
        (&String::new(), &other, &other),
    ] {
        let merged = merge(FEATURE, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        assert_eq!(
            (merged.bytes, merged.conflicts.len()),
            (other.clone().into_bytes(), 0)
        );
    }
}

#[test]
fn common_learning_counts_as_often_as_both() {
    let entry = |at: &str, seen: u64| {
        format!(
            r#"{{"schema_version":"1.0","context":"c","approach":"a","learned_at":"2025-12-24T{at}:00:00Z","seen":{seen}}}"#
        )
    };
    let both = merged(LEARNED, "", &entry("10", 2), &entry("11", 2));
    assert_eq!(
        (&both["seen"], both["learned_at"].as_str()),
        (&4.into(), Some("2025-12-24T11:00:00Z")),
        "the newer"
    );
    assert_eq!(
        merged(LEARNED, &entry("10", 2), &entry("10", 3), &entry("10", 4))["seen"],
        5
    );
    // Two took its place: one of them counts.
    let by =
        |id: &str| entry("10", 1).replace("\"seen\":1", &format!("\"superseded_by\":\"{id}\""));
    assert_eq!(
        merged(LEARNED, &entry("10", 1), &by("x"), &by("y"))["superseded_by"],
        "x"
    );
}

#[test]
fn a_status_that_both_changed_is_failing() {
    let base = with(pass);
    let ours = with(|feature| feature.status = Status::InProgress);
    let theirs = with(|feature| feature.status = Status::Deferred);
    let both = feature(&base, &ours, &theirs);
    assert_eq!((both.status, both.evidence), (Status::Failing, None));
    assert_eq!(
        feature(&base, &base, &theirs).status,
        Status::Deferred,
        "one side alone"
    );
    // Evidence does not outlive the pass it shows.
    let again = with(|feature| {
        pass(feature);
        feature.verified_at = at(26);
    });
    let broken = with(|feature| feature.status = Status::Failing);
    let both = feature(&base, &again, &broken);
    assert_eq!((both.status, both.evidence), (Status::Failing, None));
}

#[test]
fn removed_feature_that_the_other_side_changed_is_a_conflict() {
    let (base, changed) = (with(|_| ()), with(|feature| feature.name = "Other".into()));
    let gone = r#"{"schema_version":"1.0","retired":["FORGE-001"]}"#;
    for (ours, theirs) in [(gone, changed.as_str()), (changed.as_str(), gone)] {
        for path in [FEATURE.to_owned(), format!("sub/{FEATURE}")] {
            let result = merge(&path, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
            assert_eq!(
                (result.conflicts.len(), result.bytes),
                (1, ours.as_bytes().to_vec())
            );
        }
    }
    assert_eq!(
        merged(FEATURE, &base, gone, &base)["retired"][0],
        "FORGE-001"
    );
}

#[test]
fn what_shows_a_pass_comes_from_one_side() {
    let seen = |day: u8| {
        with(|feature| {
            pass(feature);
            feature.evidence = Some(format!("triv:abc_def_{day}00"));
            feature.verified_at = at(day);
            feature.verified_commit = (day == 26).then(|| "abc1234".into());
        })
    };
    for (ours, theirs) in [(25, 26), (26, 25)] {
        let both = feature(&with(pass), &seen(ours), &seen(theirs));
        assert_eq!(both.evidence.as_deref(), Some("triv:abc_def_2600"));
        assert_eq!(both.verified_commit.as_deref(), Some("abc1234"));
    }
}

#[test]
fn pass_does_not_outlive_changed_tests() {
    let of = |tests: &[&str], change: &dyn Fn(&mut Feature)| {
        with(|feature| {
            feature.status = Status::InProgress;
            feature.tests = Some(tests.iter().map(|test| (*test).to_owned()).collect());
            change(feature);
        })
    };
    let base = of(&["a"], &|_| ());
    let passes = of(&["a"], &pass);
    let more_tests = of(&["a", "b"], &|_| ());
    let same_tests = of(&["a"], &|feature| feature.category = Some("c".into()));
    for (other, kept) in [(&more_tests, false), (&same_tests, true)] {
        for (ours, theirs) in [(&passes, other), (other, &passes)] {
            let both = feature(&base, ours, theirs);
            assert_eq!(
                (both.status == Status::Passing, both.evidence.is_some()),
                (kept, kept),
                "{both:?}"
            );
        }
    }
    // Both sides have a pass, and each has another test that a person added: no run covered all
    // tests.
    let both = feature(&passes, &of(&["a", "b"], &pass), &of(&["a", "c"], &pass));
    assert_eq!((both.status, both.evidence), (Status::Failing, None));
    assert_eq!(both.tests.unwrap(), ["a", "b", "c"]);
    // A test that one side took away stays away.
    assert_eq!(
        feature(
            &more_tests,
            &of(&["b"], &|_| ()),
            &of(&["a", "b", "c"], &|_| ())
        )
        .tests
        .unwrap(),
        ["b", "c"]
    );
}

#[test]
fn unsettled_conflict_keeps_ours() {
    let base = with(|_| ());
    let (ours, theirs) = (
        with(|feature| feature.name = "Ours".into()),
        with(|feature| feature.name = "Theirs".into()),
    );
    let result = merge(FEATURE, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert_eq!(result.conflicts, ["both sides changed name"]);
    assert_eq!(String::from_utf8(result.bytes).unwrap(), ours);
    let damaged = merge(
        FEATURE,
        base.as_bytes(),
        ours.as_bytes(),
        b"{\"schema_version\"",
    );
    assert_eq!(
        (damaged.bytes, damaged.conflicts.len()),
        (ours.into_bytes(), 1)
    );
}

#[test]
fn issues_are_merged_by_their_keys() {
    let issue = |key: &str, title: &str| format!(r#"{{"linear_id":"{key}","title":"{title}"}}"#);
    let list = |issues: &[String]| format!("[{}]", issues.join(","));
    let base = list(&[issue("SX9-1", "a")]);
    let ours = list(&[issue("SX9-1", "a"), issue("SX9-2", "b")]);
    let theirs = list(&[issue("SX9-3", "c"), issue("SX9-1", "a")]);
    let all = merged(crate::layout::ACTIVE, &base, &ours, &theirs);
    let keys: Vec<String> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|issue| {
            format!(
                "{}={}",
                issue["linear_id"].as_str().unwrap(),
                issue["title"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(keys, ["SX9-1=a", "SX9-2=b", "SX9-3=c"]);
}
