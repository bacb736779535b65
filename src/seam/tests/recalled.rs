//! What is recalled and offered besides the contract's own cases: the memory in `.forge/`, spaces,
//! queries, and what is shown of it all.

use helmdeck_core::text::is_hidden;
use serde_json::{Value, json};

use super::fixture::{Fixture, SLUG};
use crate::{Context, QueryUse, fingerprint};

const KNOWLEDGE: &str = r#"{"schema_version": "1.0",
  "patterns": {"successful": [{"context": "Adding a subject", "approach": "Edit subjects.rs", "learned_at": "2025-12-24T10:30:00Z"}],
               "failed": [{"context": "Importing chrono", "issue": "Derives fail", "resolution": "Add serde", "learned_at": "2025-12-24T11:00:00Z"}]},
  "invariants": ["Never use Blake3", {"text": "Old rule", "superseded_by": "x"}],
  "decisions": [{"context": "Which queue", "decision": "NATS", "rationale": "It replays", "learned_at": "2025-12-25T11:00:00Z"}]}"#;

fn forge(fixture: &Fixture) {
    fixture.write("repo/.forge/memory/long-term/knowledge.json", KNOWLEDGE);
    fixture.write(
        "repo/.forge/memory/long-term/features.json",
        r#"{"schema_version": "1.0", "features": [{"id": "A-001", "name": "Filter", "status": "failing"}, {"id": "A-002", "name": "Done", "status": "passing"}]}"#,
    );
    fixture.write(
        "repo/.forge/memory/long-term/architecture.md",
        "# HOW IT IS BUILT\n",
    );
}

#[test]
fn the_memory_of_the_project_itself_is_recalled_without_a_vault() {
    let fixture = Fixture::new();
    forge(&fixture);
    let text = fixture.recall("work");
    assert!(
        text.contains("### seam-fixture/.forge/invariants\n\n- Never use Blake3\n\n"),
        "{text}"
    );
    assert!(
        text.contains("Which queue\n\ndecision: NATS\n\nrationale: It replays\n"),
        "{text}"
    );
    assert!(
        text.contains("Importing chrono\n\nissue: Derives fail\n\nresolution: Add serde\n"),
        "{text}"
    );
    assert!(
        text.find("Which queue") < text.find("Adding a subject"),
        "the freshest comes first"
    );
    assert!(
        !text.contains("Old rule") && !text.contains("HOW IT IS BUILT") && !text.contains("A-001"),
        "{text}"
    );
    let text = fixture.recall("plan");
    assert!(
        text.contains("# HOW IT IS BUILT")
            && text.contains("- A-001 Filter: failing")
            && !text.contains("A-002"),
        "{text}"
    );
    let text = fixture.recall("review");
    assert!(
        text.contains("Never use Blake3") && !text.contains("Which queue"),
        "{text}"
    );
}

#[test]
fn both_memories_are_recalled_together() {
    let fixture = Fixture::with_vault();
    forge(&fixture);
    fixture.always("rule", "ALWAYS");
    fixture.note("decisions/one.md", "DECIDED");
    let text = fixture.recall("work");
    let at = |word: &str| text.find(word).unwrap();
    assert!(
        at("ALWAYS") < at("Never use Blake3")
            && at("Never use Blake3") < at("DECIDED")
            && at("DECIDED") < at("Which queue"),
        "{text}"
    );
    let mut fixture = fixture;
    fixture.config.forge = false;
    assert!(!fixture.recall("work").contains("Blake3"));
}

#[test]
fn a_damaged_memory_is_left_out_and_told() {
    let fixture = Fixture::with_vault();
    forge(&fixture);
    fixture.always("rule", "ALWAYS");
    fixture.write("repo/.forge/memory/long-term/knowledge.json", "{ damaged");
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    assert!(recall.text.contains("ALWAYS"));
    assert_eq!(recall.warnings.len(), 1, "{recall:?}");
    assert!(
        recall.warnings[0].message.contains("knowledge.json:1:"),
        "{recall:?}"
    );
    assert!(
        !fixture.path("repo/.forge/.local").exists(),
        "nothing was copied aside"
    );
}

#[test]
fn no_link_in_the_project_shows_what_lies_outside() {
    let fixture = Fixture::new();
    fixture.write("secret.md", "SECRET");
    std::fs::create_dir_all(fixture.path("repo/.forge/memory/long-term")).unwrap();
    fixture.link(
        "../../../../secret.md",
        "repo/.forge/memory/long-term/architecture.md",
    );
    let recall = fixture.seam().recall(
        &Context {
            phase: Some("plan".into()),
            ..fixture.context()
        },
        None,
        None,
    );
    assert!(
        !recall.text.contains("SECRET") && recall.warnings.len() == 1,
        "{recall:?}"
    );
}

#[test]
fn without_a_vault_an_offer_goes_to_the_memory_of_the_project() {
    let fixture = Fixture::new();
    forge(&fixture);
    let offer = fixture
        .seam()
        .offer_save_here(&fixture.context(), &json!({"kind": "fix", "body": "b"}))
        .remove(0);
    assert_eq!(
        offer.get("target").and_then(Value::as_str),
        fixture.path("repo/.forge/memory/long-term").to_str()
    );
    assert_eq!(
        offer.get("target_key"),
        Some(&json!(".forge/memory/long-term"))
    );
}

#[test]
fn an_offer_names_the_note_that_says_the_same() {
    let fixture = Fixture::with_vault();
    let offer = |kind: &str, body: &str| {
        fixture
            .seam()
            .offer_save_here(&fixture.context(), &json!({"kind": kind, "body": body}))
            .remove(0)
    };
    fixture.note("decisions/other.md", "Something else.");
    let fresh = offer("fix", "Use  NATS.\n");
    assert_eq!(fresh.get("duplicate_of"), Some(&Value::Null));
    assert_eq!(
        fresh.get("fingerprint").and_then(Value::as_str),
        Some(&*fingerprint("use nats."))
    );
    fixture.note(
        "decisions/queue.md",
        "---\nkind: decision\n---\n\nuse NATS.\n",
    );
    assert_eq!(
        offer("fix", "Use  NATS.\n")
            .get("duplicate_of")
            .and_then(Value::as_str),
        fixture
            .path(&format!("vault/projects/{SLUG}/decisions/queue.md"))
            .to_str()
    );
    // What it says counts, not what was once written about it. What holds no longer is none, and
    // general notes are those of the kind.
    fixture.note(
        "decisions/queue.md",
        format!(
            "---\nfingerprint: {}\n---\nNever use NATS.",
            fingerprint("use nats.")
        ),
    );
    assert_eq!(
        offer("fix", "use nats.").get("duplicate_of"),
        Some(&Value::Null)
    );
    fixture.note(
        "decisions/queue.md",
        format!("---\nfingerprint: {}\n---\nuse nats.", fingerprint("other")),
    );
    assert_ne!(
        offer("fix", "use nats.").get("duplicate_of"),
        Some(&Value::Null)
    );
    fixture.note(
        "decisions/queue.md",
        "---\nstatus: superseded\n---\nuse nats.",
    );
    assert_eq!(
        offer("fix", "use nats.").get("duplicate_of"),
        Some(&Value::Null)
    );
    fixture.write("vault/memory/fix/queue.md", "use nats.");
    assert_ne!(
        offer("fix", "use nats.").get("duplicate_of"),
        Some(&Value::Null)
    );
    assert_eq!(
        offer("workflow", "use nats.").get("duplicate_of"),
        Some(&Value::Null)
    );
    assert_eq!(
        offer("../fix", "use nats.").get("duplicate_of"),
        Some(&Value::Null)
    );
}

#[test]
fn an_offer_names_what_the_project_itself_has_learned() {
    for fixture in [Fixture::new(), Fixture::with_vault()] {
        forge(&fixture);
        let duplicate = |body: &str| {
            let offer = fixture
                .seam()
                .offer_save_here(&fixture.context(), &json!({"body": body}))
                .remove(0);
            offer
                .get("duplicate_of")
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let file = fixture.path("repo/.forge/memory/long-term/knowledge");
        for body in [
            "never use  blake3",
            "NATS",
            "Edit subjects.rs\n",
            "Which queue\n\ndecision: NATS\n\nrationale: It replays",
        ] {
            let found = duplicate(body).unwrap();
            assert!(
                found.starts_with(&format!("{}#", file.display())),
                "{body}: {found}"
            );
        }
        for body in ["Old rule", "It replays", "Which queue", "other"] {
            assert_eq!(duplicate(body), None, "{body}");
        }
    }
}

#[test]
fn a_query_filters_and_ranks_if_that_is_set() {
    let mut fixture = Fixture::with_vault();
    fixture.config.query = QueryUse::Filter;
    fixture.always("rule", "ALWAYS");
    fixture.note(
        "decisions/a.md",
        "The queue is NATS, and the queue replays.",
    );
    fixture.note("decisions/b-queue.md", "Named after it.");
    fixture.note("decisions/c.md", "---\ntags: [queue]\n---\nTagged.");
    fixture.note("decisions/d.md", "Nothing of it.");
    let recall = |query| fixture.seam().recall_here(&fixture.context(), query, None);
    let text = recall(Some("Queue?"));
    let at = |word: &str| text.find(word).unwrap();
    assert!(
        at("ALWAYS") < at("Named") && at("Named") < at("Tagged") && at("Tagged") < at("The queue"),
        "{text}"
    );
    assert!(!text.contains("Nothing of it."), "{text}");
    assert!(recall(None).contains("Nothing of it."));
    assert!(
        recall(Some(" ?! ")).contains("Nothing of it."),
        "no word is no query"
    );
}

#[test]
fn a_query_finds_notes_of_every_length_number_and_script() {
    let mut fixture = Fixture::with_vault();
    fixture.config.query = QueryUse::Filter;
    for n in 0..3_000 {
        fixture.note(&format!("decisions/d-{n:04}.md"), "nothing");
    }
    fixture.note(
        "decisions/long.md",
        format!("the queue is here\n{}", "more ".repeat(4_000)),
    );
    fixture.note("decisions/odd.md", b"queue \xff");
    fixture.note("decisions/script.md", "記憶の設計について決めた");
    fixture.note("decisions/shut.md", "queue");
    fixture.note("decisions/zzz.md", "the needle");
    fixture
        .look
        .refuse(fixture.path(&format!("vault/projects/{SLUG}/decisions/shut.md")));
    let recall = |query| fixture.seam().recall(&fixture.context(), Some(query), None);
    let found = recall("needle");
    assert!(
        found.text.contains("the needle") && found.entries == 1 && found.omitted_count == 0,
        "{}",
        found.text
    );
    let found = recall("設計");
    assert!(
        found.text.contains("記憶の設計") && found.entries == 1,
        "{}",
        found.text
    );
    let found = recall("queue");
    assert!(
        found.text.contains("the queue is here") && found.text.contains("queue \u{fffd}"),
        "{}",
        found.text
    );
    assert!(
        found.warnings[0].message.contains("shut.md"),
        "{:?}",
        found.warnings
    );
    // The name of the project is no word of its notes.
    assert_eq!(recall("fixture").entries, 0);
}

#[test]
fn notes_that_were_not_searched_are_kept() {
    let mut fixture = Fixture::with_vault();
    fixture.config.query = QueryUse::Filter;
    for n in 0..530 {
        fixture.note(&format!("decisions/d-{n}.md"), "x".repeat(17_000));
    }
    fixture.note("decisions/zzz.md", "the needle");
    let recall = fixture
        .seam()
        .recall(&fixture.context(), Some("needle"), None);
    assert!(recall.text.contains("the needle"), "{}", recall.text.len());
    assert!(
        recall.entries + recall.omitted_count < 30,
        "what was searched and holds no word is left out: {recall:?}"
    );
}

#[test]
fn notes_of_every_space_are_recalled_and_what_is_hidden_is_told() {
    let fixture = Fixture::with_vault();
    fixture.write("vault/memory/_always-load/new.md", "NEW");
    fixture.write("vault/memory/_always-load/both.md", "NEWER");
    fixture.write("vault/personal/_always-load/mid.md", "MIDDLE");
    fixture.always("old", "OLD");
    fixture.always("both", "OLDER");
    fixture.note("decisions/one.md", "DECIDED");
    fixture.write(
        &format!("vault/desk/projects/{SLUG}/decisions/two.md"),
        "HIDDEN",
    );
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    for (word, is) in [
        ("NEW\n", true),
        ("NEWER", true),
        ("MIDDLE", true),
        ("OLD\n", true),
        ("OLDER", false),
        ("HIDDEN", false),
    ] {
        assert_eq!(recall.text.contains(word), is, "{word}: {}", recall.text);
    }
    let told: Vec<String> = recall.warnings.iter().map(ToString::to_string).collect();
    assert!(
        told[0].starts_with("warning[memory-hidden]: ")
            && told[0].contains("personal-private/_always-load/both.md"),
        "{told:?}"
    );
    assert!(
        told[1].contains("desk/projects") && told.len() == 2,
        "{told:?}"
    );
}

#[test]
fn what_was_replaced_and_copies_of_a_sync_are_not_recalled() {
    let fixture = Fixture::with_vault();
    fixture.note("decisions/a.md", "---\nStatus: superseded\n---\nGONE");
    fixture.note(
        "decisions/b.md",
        "---\nstatus: archived\nsuperseded_by: c\n---\nGONE",
    );
    fixture.note("decisions/c (conflicted copy 2026).md", "GONE");
    fixture.note("decisions/c.md", "HELD");
    let recall = fixture.seam().recall(&fixture.context(), None, None);
    assert!(
        recall.text.contains("HELD") && !recall.text.contains("GONE"),
        "{}",
        recall.text
    );
    assert_eq!((recall.entries, recall.omitted_count), (1, 0));
}

#[test]
fn whatever_is_recalled_cannot_act_on_a_terminal_or_hide() {
    let steers = "\u{1b}]0;title\u{7}\r\u{202e}\u{2028}\u{e0041}\u{200b}\u{feff}\u{9b}";
    let in_json = "\\u001b[2J\\u202e\\u2028\\u200b\\r\\udb40\\udc41";
    let fixture = Fixture::with_vault();
    fixture.always("bad\u{1b}[2J\nname\u{202e}", format!("text {steers}"));
    fixture.note("_index.md", format!("index {steers}"));
    fixture.note("decisions/large\u{202e}.md", "x".repeat(100_000));
    let (knowledge, features) = (
        "repo/.forge/memory/long-term/knowledge.json",
        "repo/.forge/memory/long-term/features.json",
    );
    let learned = |version: &str, text: &str| {
        format!(
            r#"{{"schema_version": "{version}", "invariants": ["rule {text}"], "decisions":
            [{{"context": "c {text}", "decision": "d {text}", "rationale": "r", "learned_at": "2025-12-25T11:00:00Z"}}]}}"#
        )
    };
    fixture.write(features, format!(
        r#"{{"schema_version": "1.0", "features": [{{"id": "A-001", "name": "name {in_json}", "status": "failing"}}]}}"#
    ));
    fixture.write(
        "repo/.forge/memory/long-term/architecture.md",
        format!("built {steers}"),
    );
    for (version, text) in [("1.0", "a\\rb"), ("2.0", in_json)] {
        fixture.write(knowledge, learned(version, text));
        for phase in ["plan", "documenter"] {
            let context = Context {
                phase: Some(phase.into()),
                ..fixture.context()
            };
            let recall = fixture.seam().recall(&context, None, None);
            let text = &recall.text;
            for word in ["text ", "index ", "built ", "rule ", "\nc "] {
                assert!(text.contains(word), "{version} {phase} {word}: {recall:?}");
            }
            assert!(phase == "documenter" || text.contains("name "), "{text}");
            let odd = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
            assert!(
                !text.contains(odd)
                    && text.contains("### always-load: bad\\u{1b}[2J\\nname\\u{202e}\n"),
                "{text:?}"
            );
            assert!(
                text.contains("(left out: seam-fixture/decisions/large\\u{202e})\n"),
                "{text:?}"
            );
            let told: String = recall
                .omitted
                .iter()
                .cloned()
                .chain(recall.warnings.iter().map(ToString::to_string))
                .collect();
            assert!(!told.contains(is_hidden), "{told:?}");
        }
    }
}
