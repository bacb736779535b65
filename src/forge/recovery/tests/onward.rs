//! What is true after a rollback, and after its merge.

use super::fixture::Fixture;
use super::rolled::back;
use crate::checkpoints::{Checkpoints, Create};
use crate::features::Features;
use crate::issues::{AddIssue, CloseIssue, Scope};
use crate::merge::merge;
use crate::recovery::Recovery;

const FEATURE: &str = ".forge/memory/long-term/features/A-001-a.json";

#[test]
fn feature_seen_to_work_after_the_rollback_is_no_regression_after_the_merge() {
    let feature = |more: &str| {
        format!(r#"{{"schema_version":"1.0","id":"A-001","name":"a","tests":["t::*"],{more}}}"#)
    };
    let pass = |at: &str, more: &str| {
        feature(&format!(
            r#""status":"passing","evidence":"e{at}","verified_at":"2025-12-24T{at}:00:00Z"{more}"#
        ))
    };
    let base = pass("08", "");
    let failed = feature(
        r#""status":"failing","verified_at":"2025-12-24T08:00:00Z","regressed_at":"2025-12-24T09:00:00Z","reason":"tests_failed""#,
    );
    // The rollback knew of the failure, and the tests passed again after it.
    let again = pass("11", r#","regressed_before":"2025-12-24T10:00:00Z""#);
    for (ours, theirs) in [(&failed, &again), (&again, &failed)] {
        let merged = merge(FEATURE, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        let file: serde_json::Value = serde_json::from_slice(&merged.bytes).unwrap();
        let one = &file;
        assert_eq!(
            (one["status"].as_str(), one["evidence"].as_str()),
            (Some("passing"), Some("e11")),
            "{one}"
        );
        assert!(
            one["regressed_at"].is_null() && one["reason"].is_null() && merged.conflicts.is_empty(),
            "{one}"
        );
    }
    // A branch that never saw the failure proves nothing about it.
    let elsewhere = pass("11", "");
    let earlier = pass("11", r#","regressed_before":"2025-12-24T08:30:00Z""#);
    for other in [elsewhere, earlier] {
        let merged = merge(
            FEATURE,
            base.as_bytes(),
            failed.as_bytes(),
            other.as_bytes(),
        );
        let file: serde_json::Value = serde_json::from_slice(&merged.bytes).unwrap();
        assert_eq!(file["status"], "failing");
    }
}

#[test]
fn verified_feature_remembers_the_failure_before() {
    let fixture = Fixture::new();
    let project = fixture.project_with(
        "[verify]\nrunner = \"sh: test ! -e broken && echo ran {prefix}\"\ncount_regex = \"ran\"\n",
    );
    fixture.features(&[("A-001", "passing")]);
    fixture.write("broken", "");
    assert!(!Features::new(&project).verify("A-001").unwrap().passed);
    let failed = Features::new(&project)
        .read()
        .unwrap()
        .get("A-001")
        .unwrap()
        .regressed_at;
    assert!(failed.is_some());
    std::fs::remove_file(fixture.path().join("broken")).unwrap();
    assert!(Features::new(&project).verify("A-001").unwrap().passed);
    let file = Features::new(&project).read().unwrap();
    let feature = file.get("A-001").unwrap();
    assert_eq!(
        (feature.regressed_at, feature.regressed_before),
        (None, failed)
    );
}

#[test]
fn issues_closed_after_the_checkpoint_stay_closed() {
    let fixture = Fixture::new();
    let project = fixture.project();
    for title in ["One", "Two"] {
        project
            .issues()
            .add(&AddIssue {
                title: title.to_owned(),
                ..AddIssue::default()
            })
            .unwrap();
    }
    project.issues().comment("LOCAL-1", "Hm.").unwrap();
    fixture.commit("issues");
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("A-1".to_owned()),
            ..Create::default()
        })
        .unwrap();
    project
        .issues()
        .done("LOCAL-1", &CloseIssue::default(), None)
        .unwrap();
    project
        .issues()
        .add(&AddIssue {
            title: "Three".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    fixture.write("a.txt", "wrong way\n");
    Recovery::new(&project).apply(&back()).unwrap();
    let issues = fixture.project().issues().list(Scope::All).unwrap();
    let all: Vec<_> = issues
        .issues
        .iter()
        .map(|item| (item.issue.title.as_str(), item.over))
        .collect();
    assert_eq!(all, [("Two", false), ("Three", false), ("One", true)]);
}
