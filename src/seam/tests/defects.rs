//! Defects of the original that must not occur here.
//!
//! Each test fails for code that behaves like the original.
//!
//! Of its defects, the lost saves, the lock that two take over, the saves that need a daemon and
//! the search that throws away what it has at its deadline are no part of a seam that only reads;
//! the holes in its check of imports are closed by tests over the whole workspace.

use serde_json::json;

use super::fixture::{Fixture, SLUG};
use crate::{Context, Given, Phase, StateFault, Store, Which, tokens};

#[test]
fn corrupt_state_is_told_with_the_code_of_an_error_on_one_line() {
    let fixture = Fixture::new();
    fixture.write("repo/.harness/active-plan", "gone");
    let error = fixture.state(Which::Plan).unwrap_err();
    assert_eq!(
        (error.fault.code(), error.fault.exit_code()),
        ("corrupt-state", 2),
        "1 is read as: go on without"
    );
    let line = error.to_string();
    let marker = fixture.path("repo/.harness/active-plan");
    assert!(
        line.starts_with(&format!("{}: the plan it names, ", marker.display())),
        "{line}"
    );
    assert!(
        line.contains("is absent; write that plan, ") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn no_byte_anywhere_stops_the_calls_that_never_fail() {
    let fixture = Fixture::with_vault();
    fixture.always("good", "GOOD");
    fixture.always("bad", b"B\xffD");
    fixture.note("decisions/bad.md", b"---\nstatus: \xff\n---\nD\xff");
    fixture.write("repo/.harness/.project-mode", b"\xff");
    fixture.write("repo/.harness/active-plan", b"\xff");
    fixture.write("home/.claude/.agentm-config.json", b"\xff");
    fixture.write("repo/.forge/memory/long-term/knowledge.json", b"\xff");
    fixture.write("repo/.forge/memory/long-term/architecture.md", b"A\xff");
    fixture.write("repo/.git/HEAD", b"\xff");
    fixture.write("repo/.git/config", b"[remote \"origin\"]\n\turl = \xff\n");
    let text = fixture.recall("work");
    assert!(
        text.contains("GOOD") && text.contains("B\u{fffd}D") && text.contains("D\u{fffd}"),
        "{text}"
    );
    let offers = fixture
        .seam()
        .offer_save_here(&fixture.context(), &json!({"kind": "fix", "body": "b"}));
    assert_eq!(offers.len(), 1);
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    let told: Vec<String> = recall.warnings.iter().map(ToString::to_string).collect();
    assert!(
        told.iter()
            .all(|line| line.starts_with("warning[memory-unreadable]: ") && !line.contains('\n')),
        "{told:?}"
    );
    for what in [
        ".agentm-config.json",
        ".project-mode",
        "knowledge.json",
        "bad.md",
    ] {
        assert!(
            told.iter().any(|line| line.contains(what)),
            "{what}: {told:?}"
        );
    }
    // Its own name, with bytes that are none: what can be read of it is used to recall, and state
    // is not bound to it.
    fixture.write(
        "repo/.harness/project.json",
        format!("{{\"vault_project\": \"{SLUG}\", \"a\": \"").into_bytes(),
    );
    let mut bytes = std::fs::read(fixture.path("repo/.harness/project.json")).unwrap();
    bytes.extend(b"\xff\"}");
    fixture.write("repo/.harness/project.json", bytes);
    assert!(fixture.recall("work").contains("D\u{fffd}"));
    assert_eq!(
        fixture.state(Which::Plan).unwrap_err().fault,
        StateFault::CorruptState
    );
}

#[test]
fn nothing_is_created_in_an_empty_home_and_old_settings_stay() {
    let fixture = Fixture::new();
    fixture.write(
        "home/.claude/.agentm-config.json",
        format!("{{\"vault_path\": {:?}}}", fixture.path("vault")),
    );
    let before = fixture.snapshot();
    assert_eq!(
        fixture.seam().state(&fixture.context()).unwrap().store,
        Store::Vault
    );
    assert!(fixture.snapshot() == before);
    fixture.remove("home/.claude/.agentm-config.json");
    let before = fixture.snapshot();
    assert_eq!(
        fixture.seam().state(&fixture.context()).unwrap().store,
        Store::Project
    );
    assert!(fixture.snapshot() == before);
    assert!(!fixture.path("home/.agentm").exists());
}

#[test]
fn memory_that_is_set_and_broken_stops_nobody() {
    for vault in ["absent", "repo/.harness/project.json"] {
        for mode in ["", "local"] {
            let fixture = Fixture::new().given(vault);
            fixture.write("repo/.harness/.project-mode", mode);
            fixture.write("home/.claude/.agentm-config.json", "{ damaged");
            let state = fixture.seam().state(&fixture.context()).unwrap();
            assert_eq!(state.plan, fixture.path("repo/.harness/PLAN.md"));
            assert_eq!(state.warnings.len(), 2, "{state:?}");
            assert_eq!(fixture.recall("work"), "");
            assert!(
                fixture
                    .seam()
                    .offer_save_here(&fixture.context(), &json!({"body": "b"}))
                    .is_empty()
            );
        }
    }
    let fixture = Fixture::new();
    fixture.write(
        "home/.claude/.agentm-config.json",
        r#"{"storage.backend": "vault"}"#,
    );
    let state = fixture.seam().state(&fixture.context()).unwrap();
    assert!(
        state.warnings[0].message.contains("MEMORY_VAULT_PATH"),
        "{state:?}"
    );
}

#[test]
fn a_folder_that_cannot_be_read_is_told_and_the_rest_is_recalled() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "ALWAYS");
    fixture.always("closed", "CLOSED");
    fixture.note("decisions/one.md", "DECIDED");
    fixture.note("known-issues/one.md", "ISSUE");
    fixture
        .look
        .refuse(fixture.path("vault/personal-private/_always-load/closed.md"));
    fixture
        .look
        .refuse(fixture.path(&format!("vault/projects/{SLUG}/decisions")));
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    assert!(
        recall.text.contains("ALWAYS")
            && recall.text.contains("ISSUE")
            && !recall.text.contains("CLOSED")
    );
    assert_eq!(
        (recall.warnings.len(), recall.entries, recall.omitted.len()),
        (2, 2, 0),
        "{recall:?}"
    );
}

#[test]
fn a_marker_that_is_a_folder_or_leads_nowhere_binds_to_nothing() {
    let fixture = Fixture::new();
    fixture.link("gone", "repo/.harness/active-plan");
    assert_eq!(
        fixture.state(Which::Plan).unwrap_err().fault,
        StateFault::CorruptState
    );
    fixture.remove("repo/.harness/active-plan");
    std::fs::create_dir(fixture.path("repo/.harness/active-plan")).unwrap();
    assert_eq!(
        fixture.state(Which::Plan).unwrap_err().fault,
        StateFault::CorruptState
    );
}

#[test]
fn one_repository_is_one_project_wherever_in_it_one_stands() {
    let mut fixture = Fixture::with_vault();
    fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    fixture.write(
        "repo/.git/config",
        "[remote \"origin\"]\n\turl = https://host/o/other.git\n",
    );
    fixture.write("repo/sub/deep/file", "");
    fixture.note("_harness/PLAN-foo.md", "a");
    fixture.write("repo/.harness/active-plan", "foo");
    let expected = fixture.path(&format!("vault/projects/{SLUG}/_harness/PLAN-foo.md"));
    for folder in ["repo", "repo/sub", "repo/sub/deep"] {
        fixture.config.cwd = fixture.path(folder);
        assert_eq!(
            fixture
                .seam()
                .state_path(&Context::default(), Which::Plan)
                .unwrap(),
            expected,
            "{folder}"
        );
        let empty = Context {
            cwd: Some("".into()),
            ..Context::default()
        };
        assert_eq!(
            fixture.seam().state_path(&empty, Which::Plan).unwrap(),
            expected,
            "{folder}"
        );
    }
    // The nearest one counts, and a repository without any is one project, too.
    fixture.write(
        "repo/sub/.harness/project.json",
        r#"{"vault_project": "inner"}"#,
    );
    assert_eq!(
        fixture
            .seam()
            .doctor(&Context::default())
            .project
            .as_deref(),
        Some("inner")
    );
    fixture.config.vaults.clear();
    std::fs::remove_dir_all(fixture.path("repo/.harness")).unwrap();
    std::fs::remove_dir_all(fixture.path("repo/sub/.harness")).unwrap();
    assert_eq!(
        fixture
            .seam()
            .state_path(&Context::default(), Which::Plan)
            .unwrap(),
        fixture.path("repo/.harness/PLAN.md")
    );
    // A folder that is named is taken as it is.
    let named = Context {
        cwd: Some(fixture.path("repo/sub")),
        ..Context::default()
    };
    assert_eq!(
        fixture.seam().state_path(&named, Which::Plan).unwrap(),
        fixture.path("repo/sub/.harness/PLAN.md")
    );
}

#[test]
fn a_path_is_shown_as_it_was_written() {
    let fixture = Fixture::new();
    for (cwd, shown) in [
        (".", ".harness/PLAN.md"),
        ("sub/", "sub/.harness/PLAN.md"),
        ("../repo", "../repo/.harness/PLAN.md"),
        ("~", "~/.harness/PLAN.md"),
    ] {
        let context = Context {
            cwd: Some(cwd.into()),
            ..Context::default()
        };
        assert_eq!(
            fixture
                .seam()
                .state_path(&context, Which::Plan)
                .unwrap()
                .to_str(),
            Some(shown)
        );
    }
    // It is still the folder below the one the process works in that is looked at.
    fixture.write("repo/.harness/active-plan", "gone");
    assert!(
        fixture
            .seam()
            .state_path(
                &Context {
                    cwd: Some(".".into()),
                    ..Context::default()
                },
                Which::Plan
            )
            .is_err()
    );
}

#[test]
fn no_name_of_a_project_leads_out_of_the_vault() {
    for name in ["../../etc", "a/b", ".."] {
        let fixture = Fixture::with_vault();
        fixture.always("rule", "ALWAYS");
        fixture.write("vault/etc/decisions/secret.md", "SECRET");
        fixture.write(
            "repo/.harness/project.json",
            format!("{{\"vault_project\": \"{name}\"}}"),
        );
        assert_eq!(
            fixture.state(Which::Plan).unwrap_err().fault,
            StateFault::UnsafeName
        );
        let recall = fixture.seam().recall(&fixture.context(), None, None);
        assert!(
            recall.text.contains("project: (unknown)") && !recall.text.contains("SECRET"),
            "{recall:?}"
        );
        assert_eq!(recall.warnings.len(), 1);
        assert!(
            fixture
                .seam()
                .offer_save_here(&fixture.context(), &json!({"body": "b"}))
                .is_empty()
        );
    }
}

#[test]
fn a_name_of_a_plan_has_one_line() {
    let fixture = Fixture::new();
    for plan in ["a\nb", "a\rb", "a\u{7}", "a\u{2028}b"] {
        assert_eq!(
            fixture.plan(plan).unwrap_err().fault,
            StateFault::UnsafeName,
            "{plan:?}"
        );
    }
}

#[test]
fn one_large_note_does_not_empty_the_recall() {
    let fixture = Fixture::with_vault();
    fixture.always("a-large", "x".repeat(30_000));
    fixture.always("b-small", "SMALL");
    fixture.note("decisions/one.md", "DECIDED");
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    assert!(
        recall.text.contains("SMALL") && recall.text.contains("DECIDED"),
        "{}",
        recall.text
    );
    assert_eq!(
        (recall.entries, recall.omitted),
        (2, vec!["always-load: a-large".to_owned()])
    );
    assert!(
        recall
            .text
            .ends_with("\n(left out: always-load: a-large)\n"),
        "{}",
        recall.text
    );
}

#[test]
fn a_recall_without_notes_is_empty() {
    let fixture = Fixture::with_vault();
    fixture.always("a-large", "x".repeat(30_000));
    fixture.always("blank", "---\nstatus: active\n---\n \n");
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    assert_eq!(
        (recall.text.as_str(), recall.entries, recall.omitted.len()),
        ("", 0, 1)
    );
    let told: Vec<String> = recall.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "that there is something is told");
    assert!(
        told[0].starts_with("warning[nothing-fits]: notes: 1, the first is always-load: a-large; "),
        "{told:?}"
    );
    fixture.remove("vault/personal-private/_always-load/a-large.md");
    assert!(
        fixture
            .seam()
            .recall(&fixture.context(), None, None)
            .warnings
            .is_empty(),
        "nothing is no lack of room"
    );
}

#[test]
fn what_is_always_loaded_leaves_room_for_the_project() {
    let fixture = Fixture::with_vault();
    for n in 10..90 {
        fixture.always(&format!("rule-{n}"), "w ".repeat(500));
        fixture.note(&format!("decisions/d-{n}.md"), "v ".repeat(500));
    }
    for phase in ["work", "documenter"] {
        let text = fixture.recall(phase);
        let budget = Phase::of(phase).budget();
        assert!(tokens(&text) <= budget, "{phase}: {}", tokens(&text));
        let of_project = text.matches("### seam-fixture/decisions/").count() * 250;
        let always = text.matches("### always-load: ").count() * 250;
        assert!(
            of_project * 10 > budget * 3 && always * 10 > budget * 3,
            "{phase}: {of_project}, {always}"
        );
        assert!(
            of_project + always > budget * 9 / 10,
            "{phase}: little is left"
        );
    }
    // What the project does not need goes to the others.
    for n in 10..90 {
        fixture.remove(&format!("vault/projects/{SLUG}/decisions/d-{n}.md"));
    }
    fixture.note("decisions/one.md", "DECIDED");
    let text = fixture.recall("work");
    assert!(
        text.contains("DECIDED")
            && text.matches("### always-load: ").count() * 265 > 6_000 * 9 / 10,
        "{text}"
    );
}

#[test]
fn notes_that_hold_no_longer_and_front_matter_are_not_recalled() {
    let fixture = Fixture::with_vault();
    for status in ["active", "unfiled", "superseded", "expired", "deleted"] {
        fixture.note(
            &format!("decisions/{status}.md"),
            format!("---\nkind: x\nstatus: {status}\n---\n\nBODY {status}\n"),
        );
    }
    let text = fixture.recall("work");
    assert!(
        text.contains("BODY active")
            && text.contains("BODY unfiled")
            && text.contains("entries: 2"),
        "{text}"
    );
    assert!(
        !text.contains("status:") && !text.contains("kind:"),
        "{text}"
    );
}

#[test]
fn the_header_counts_and_so_do_scripts_without_spaces() {
    let fixture = Fixture::with_vault();
    for n in 10..60 {
        fixture.note(&format!("decisions/d-{n}.md"), "記憶".repeat(60));
        fixture.always(&format!("rule-{n}"), "Always test. ".repeat(20));
    }
    for limit in [1, 20, 50, 100, 250, 500, 1_000, 3_000, 6_000] {
        let recall = fixture.seam().recall(&fixture.context(), None, Some(limit));
        assert!(
            tokens(&recall.text) <= limit,
            "{limit}: {}",
            tokens(&recall.text)
        );
        assert_eq!(recall.entries == 0, recall.text.is_empty(), "{limit}");
        assert_eq!(
            recall.entries,
            recall.text.matches("### ").count(),
            "{limit}"
        );
        assert_eq!(
            recall.entries + recall.omitted_count,
            100,
            "{limit}: all are named"
        );
    }
    // Notes so small that they fill a budget to its brim.
    let fixture = Fixture::with_vault();
    for n in 100..400 {
        fixture.always(&n.to_string(), "x");
    }
    for limit in 30..400 {
        let recall = fixture.seam().recall(&fixture.context(), None, Some(limit));
        assert!(
            tokens(&recall.text) <= limit,
            "{limit}: {}",
            tokens(&recall.text)
        );
        assert_eq!(recall.entries + recall.omitted_count, 300, "{limit}");
    }
}

#[test]
fn priorities_come_first_and_the_order_is_stable() {
    let fixture = Fixture::with_vault();
    fixture.always("a", "---\npriority: low\n---\nLOW");
    fixture.always("b", "PLAIN");
    fixture.always("c", "---\npriority: high\n---\nHIGH");
    let text = fixture.recall("work");
    let at = |word: &str| text.find(word).unwrap();
    assert!(
        at("HIGH") < at("PLAIN") && at("PLAIN") < at("LOW"),
        "{text}"
    );
    for _ in 0..5 {
        assert_eq!(fixture.recall("work"), text);
    }
}

#[test]
fn a_broken_variable_is_not_the_folder_one_stands_in() {
    // An empty variable as a path is the current folder.
    let mut fixture = Fixture::new();
    fixture.config.vaults = vec![Given {
        by: "MEMORY_VAULT_PATH".into(),
        path: "".into(),
    }];
    fixture.write(&format!("repo/projects/{SLUG}/decisions/one.md"), "WRONG");
    assert_eq!(fixture.recall("work"), "");
    assert_eq!(
        fixture.seam().state(&fixture.context()).unwrap().store,
        Store::Project
    );
}
