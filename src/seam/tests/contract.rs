//! The cases of the original's own tests of the seam.

use serde_json::{Value, json};

use super::fixture::{Fixture, PROJECTS, SLUG};
use crate::{Context, Phase, StateFault, Which};

#[test]
fn recall_without_a_vault_is_empty() {
    let fixture = Fixture::new();
    assert_eq!(fixture.recall("work"), "");
}

#[test]
fn recall_with_a_vault_has_the_header_of_the_phase() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "Always test.\n");
    let text = fixture.recall("work");
    assert!(
        text.contains("Auto-context recall") && text.contains("phase: work"),
        "{text}"
    );
    assert_eq!(
        text,
        "# Auto-context recall — phase: work, project: seam-fixture\n(budget: ~6000 tokens, entries: 1)\n\n### always-load: rule\n\nAlways test.\n\n"
    );
}

#[test]
fn an_unknown_phase_recalls_what_work_does() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "Always test.");
    fixture.note("known-issues/one.md", "It breaks.");
    let text = fixture.recall("not-a-real-phase");
    assert_eq!(text, fixture.recall("work"));
    assert!(text.contains("phase: work") && text.contains("It breaks."));
}

#[test]
fn a_missing_phase_is_work() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "Always test.");
    assert!(
        fixture
            .seam()
            .recall_here(&fixture.context(), None, None)
            .contains("phase: work")
    );
}

#[test]
fn a_query_changes_nothing() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "Always test.");
    fixture.note("decisions/one.md", "Decided.");
    let with = fixture
        .seam()
        .recall_here(&fixture.context(), Some("nothing has this word"), None);
    assert_eq!(
        with,
        fixture.seam().recall_here(&fixture.context(), None, None)
    );
    assert!(with.contains("Decided."));
}

#[test]
fn no_context_and_no_vault_recall_nothing() {
    let mut fixture = Fixture::new();
    fixture.config.discover = false;
    assert_eq!(
        fixture.seam().recall_here(&Context::default(), None, None),
        ""
    );
}

#[test]
fn an_empty_candidate_offers_nothing() {
    let fixture = Fixture::with_vault();
    for empty in [
        json!(null),
        json!(""),
        json!({}),
        json!([]),
        json!(false),
        json!(0),
    ] {
        assert!(
            fixture
                .seam()
                .offer_save_here(&fixture.context(), &empty)
                .is_empty(),
            "{empty}"
        );
    }
}

#[test]
fn without_a_vault_nothing_is_offered() {
    let fixture = Fixture::new();
    assert!(
        fixture
            .seam()
            .offer_save_here(
                &fixture.context(),
                &json!({"kind": "fix", "slug": "s", "body": "b"})
            )
            .is_empty()
    );
}

#[test]
fn an_offer_has_the_project_and_the_place() {
    for projects in PROJECTS {
        let fixture = Fixture::in_layout(projects).given("vault");
        let offers = fixture.seam().offer_save_here(
            &fixture.context(),
            &json!({"kind": "fix", "slug": "s", "body": "b"}),
        );
        let [offer] = &offers[..] else {
            panic!("{offers:?}")
        };
        assert_eq!(offer.get("project"), Some(&json!(SLUG)));
        assert_eq!(
            (offer.get("kind"), offer.get("body")),
            (Some(&json!("fix")), Some(&json!("b")))
        );
        assert_eq!(
            offer.get("target").and_then(Value::as_str),
            fixture.path(&format!("vault/{projects}/{SLUG}")).to_str()
        );
        assert_eq!(
            offer.get("target_key"),
            Some(&json!(format!("{projects}/{SLUG}")))
        );
        assert_eq!(offer.get("phase"), None);
    }
}

#[test]
fn the_phase_of_the_context_is_passed_on() {
    let fixture = Fixture::with_vault();
    let context = Context {
        phase: Some("review".into()),
        ..fixture.context()
    };
    let offer = |candidate: Value| {
        fixture
            .seam()
            .offer_save_here(&context, &candidate)
            .remove(0)
    };
    assert_eq!(
        offer(json!({"kind": "fix"})).get("phase"),
        Some(&json!("review"))
    );
    assert_eq!(
        offer(json!({"kind": "fix", "phase": "plan"})).get("phase"),
        Some(&json!("plan"))
    );
}

#[test]
fn what_is_no_object_becomes_the_body() {
    let fixture = Fixture::with_vault();
    let offer = fixture
        .seam()
        .offer_save_here(&fixture.context(), &json!("remember this"))
        .remove(0);
    assert_eq!(
        (offer.get("body"), offer.get("project")),
        (Some(&json!("remember this")), Some(&json!(SLUG)))
    );
    let offer = fixture
        .seam()
        .offer_save_here(&fixture.context(), &json!([1]))
        .remove(0);
    assert_eq!(
        (offer.get("body"), offer.get("fingerprint")),
        (Some(&json!([1])), Some(&Value::Null))
    );
}

#[test]
fn the_callers_candidate_stays_as_it_is_and_what_it_says_is_kept() {
    let fixture = Fixture::with_vault();
    let candidate = json!({"kind": "fix", "project": "mine", "target": "here", "zeta": 1, "confidence": 0.9, "slug": "s"});
    let before = candidate.clone();
    let offer = fixture
        .seam()
        .offer_save_here(&fixture.context(), &candidate)
        .remove(0);
    assert_eq!(candidate, before);
    assert_eq!(offer.get("project"), Some(&json!("mine")));
    assert_ne!(
        offer.get("target"),
        Some(&json!("here")),
        "where it would go is not the caller's to say"
    );
    let names: Vec<&str> = offer.members().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "kind",
            "slug",
            "confidence",
            "zeta",
            "project",
            "target",
            "target_key",
            "fingerprint",
            "duplicate_of"
        ]
    );
    let text = serde_json::to_string(&offer).unwrap();
    assert!(
        text.starts_with(r#"{"kind":"fix","slug":"s","confidence":0.9,"zeta":1,"project":"mine","#),
        "{text}"
    );
}

#[test]
fn there_is_no_other_file_than_those_of_a_plan() {
    let error = "bogus".parse::<Which>().unwrap_err();
    assert_eq!(
        (error.fault, error.fault.exit_code()),
        (StateFault::Usage, 2)
    );
    for which in Which::ALL {
        assert_eq!(which.as_str().parse::<Which>().unwrap(), which);
    }
}

#[test]
fn local_mode_keeps_state_in_the_project() {
    let fixture = Fixture::with_vault();
    fixture.write("repo/.harness/.project-mode", " Local \n");
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        fixture.path("repo/.harness/PLAN.md")
    );
    assert_eq!(
        fixture.state(Which::Progress).unwrap(),
        fixture.path("repo/.harness/progress.md")
    );
    assert_eq!(
        fixture.state(Which::Tracker).unwrap(),
        fixture.path("repo/.harness/tracker.md")
    );
}

#[test]
fn without_a_vault_state_is_in_the_project() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        fixture.path("repo/.harness/PLAN.md")
    );
}

#[test]
fn with_a_vault_state_is_there_in_every_layout() {
    for projects in PROJECTS {
        let fixture = Fixture::in_layout(projects).given("vault");
        let expected = fixture.path(&format!("vault/{projects}/{SLUG}/_harness/PLAN.md"));
        assert_eq!(fixture.state(Which::Plan).unwrap(), expected);
    }
}

#[test]
fn a_named_plan_has_files_of_its_name() {
    let fixture = Fixture::new();
    let context = Context {
        plan: Some("foo".into()),
        ..fixture.context()
    };
    let state = fixture.seam().state(&context).unwrap();
    assert_eq!(state.plan, fixture.path("repo/.harness/PLAN-foo.md"));
    assert_eq!(
        state.progress,
        fixture.path("repo/.harness/progress-foo.md")
    );
    assert_eq!(state.tracker, fixture.path("repo/.harness/tracker-foo.md"));
    assert_eq!(state.name.as_deref(), Some("foo"));
}

#[test]
fn a_blank_marker_is_an_error_and_not_the_plan_without_a_name() {
    let fixture = Fixture::new();
    fixture.write("repo/.harness/active-plan", "  \n ");
    assert_eq!(
        fixture.state(Which::Plan).unwrap_err().fault,
        StateFault::CorruptState
    );
}

#[test]
fn an_unsafe_plan_that_is_asked_for_is_refused() {
    let fixture = Fixture::new();
    let error = fixture.plan("../escape").unwrap_err();
    assert_eq!(
        (error.fault, error.fault.code()),
        (StateFault::UnsafeName, "unsafe-name")
    );
    assert!(
        error.to_string().contains("unsafe plan name '../escape'"),
        "{error}"
    );
}

#[test]
fn no_call_changes_anything_with_or_without_memory() {
    for fixture in [Fixture::with_vault(), Fixture::new()] {
        fixture.always("rule", "Always test.");
        fixture.note("decisions/one.md", "Decided.");
        fixture.write("repo/.forge/memory/long-term/knowledge.json", "{ damaged");
        fixture.write(
            "home/.claude/.agentm-config.json",
            r#"{"vault_path": "/nowhere", "storage.backend": "vault"}"#,
        );
        let before = fixture.snapshot();
        let seam = fixture.seam();
        for phase in Phase::ALL {
            let context = Context {
                phase: Some(phase.to_string()),
                ..fixture.context()
            };
            let _ = seam.recall(&context, Some("words"), Some(500));
            let _ = seam.offer(
                &context,
                &json!({"kind": "fix", "slug": "s", "body": "Decided."}),
            );
            let _ = seam.doctor(&context);
        }
        let _ = (
            seam.state(&fixture.context()),
            seam.plans(&fixture.context()),
            fixture.plan("foo"),
        );
        fixture.write("repo/.harness/active-plan", "foo");
        let marked = fixture.snapshot();
        let _ = (
            seam.state(&fixture.context()),
            seam.plans(&fixture.context()),
            seam.doctor(&fixture.context()),
        );
        assert!(fixture.snapshot() == marked, "something was changed");
        fixture.remove("repo/.harness/active-plan");
        let keys = |all: &std::collections::BTreeMap<_, _>| {
            all.keys().cloned().collect::<Vec<std::path::PathBuf>>()
        };
        assert_eq!(
            keys(&fixture.snapshot()),
            keys(&before),
            "something was created"
        );
    }
}
