//! What is recalled besides the contract's own cases: the memory in `.forge/`, queries, and how much is read.

use serde_json::{Value, json};

use super::place::{Place, SLUG};
use crate::{QueryUse, fingerprint};

const KNOWLEDGE: &str = r#"{"schema_version": "1.0",
  "patterns": {"successful": [{"context": "Adding a subject", "approach": "Edit subjects.rs", "learned_at": "2025-12-24T10:30:00Z"}],
               "failed": [{"context": "Importing chrono", "issue": "Derives fail", "resolution": "Add serde", "learned_at": "2025-12-24T11:00:00Z"}]},
  "invariants": ["Never use Blake3", {"text": "Old rule", "superseded_by": "x"}],
  "decisions": [{"context": "Which queue", "decision": "NATS", "rationale": "It replays", "learned_at": "2025-12-25T11:00:00Z"}]}"#;

fn forge(place: &Place) {
    place.write("repo/.forge/memory/long-term/knowledge.json", KNOWLEDGE);
    place.write(
        "repo/.forge/memory/long-term/features.json",
        r#"{"schema_version": "1.0", "features": [{"id": "A-001", "name": "Filter", "status": "failing"}, {"id": "A-002", "name": "Done", "status": "passing"}]}"#,
    );
    place.write("repo/.forge/memory/long-term/architecture.md", "# HOW IT IS BUILT\n");
}

#[test]
fn the_memory_of_the_project_itself_is_recalled_without_a_vault() {
    let place = Place::new();
    forge(&place);
    let text = place.recall("work");
    assert!(text.contains("### seam-fixture/.forge/invariants\n\n- Never use Blake3\n\n"), "{text}");
    assert!(text.contains("Which queue\n\ndecision: NATS\n\nrationale: It replays\n"), "{text}");
    assert!(text.contains("Importing chrono\n\nissue: Derives fail\n\nresolution: Add serde\n"), "{text}");
    assert!(text.find("Which queue") < text.find("Adding a subject"), "the freshest comes first");
    assert!(!text.contains("Old rule") && !text.contains("HOW IT IS BUILT") && !text.contains("A-001"), "{text}");
    let text = place.recall("plan");
    assert!(
        text.contains("# HOW IT IS BUILT") && text.contains("- A-001 Filter: failing") && !text.contains("A-002"),
        "{text}"
    );
    let text = place.recall("review");
    assert!(text.contains("Never use Blake3") && !text.contains("Which queue"), "{text}");
}

#[test]
fn both_memories_are_recalled_together() {
    let place = Place::with_vault();
    forge(&place);
    place.always("rule", "ALWAYS");
    place.note("decisions/one.md", "DECIDED");
    let text = place.recall("work");
    let at = |word: &str| text.find(word).unwrap();
    assert!(
        at("ALWAYS") < at("Never use Blake3")
            && at("Never use Blake3") < at("DECIDED")
            && at("DECIDED") < at("Which queue"),
        "{text}"
    );
    let mut place = place;
    place.config.forge = false;
    assert!(!place.recall("work").contains("Blake3"));
}

#[test]
fn a_damaged_memory_is_left_out_and_told() {
    let place = Place::with_vault();
    forge(&place);
    place.always("rule", "ALWAYS");
    place.write("repo/.forge/memory/long-term/knowledge.json", "{ damaged");
    let recall = place.seam().recall(&place.context(), None, None);
    assert!(recall.text.contains("ALWAYS"));
    assert_eq!(recall.warnings.len(), 1, "{recall:?}");
    assert!(recall.warnings[0].message.contains("knowledge.json:1:"), "{recall:?}");
    assert!(!place.path("repo/.forge/.local").exists(), "nothing was copied aside");
}

#[test]
fn no_link_in_the_project_shows_what_lies_outside() {
    let place = Place::new();
    place.write("secret.md", "SECRET");
    std::fs::create_dir_all(place.path("repo/.forge/memory/long-term")).unwrap();
    place.link("../../../../secret.md", "repo/.forge/memory/long-term/architecture.md");
    let recall = place.seam().recall(&crate::Context { phase: Some("plan".into()), ..place.context() }, None, None);
    assert!(!recall.text.contains("SECRET") && recall.warnings.len() == 1, "{recall:?}");
}

#[test]
fn without_a_vault_an_offer_goes_to_the_memory_of_the_project() {
    let place = Place::new();
    forge(&place);
    let offer = place.seam().offer_save_here(&place.context(), &json!({"kind": "fix", "body": "b"})).remove(0);
    assert_eq!(offer.get("target").and_then(Value::as_str), place.path("repo/.forge/memory/long-term").to_str());
    assert_eq!(offer.get("target_key"), Some(&json!(".forge/memory/long-term")));
}

#[test]
fn an_offer_names_the_note_that_says_the_same() {
    let place = Place::with_vault();
    let offer = |kind: &str, body: &str| {
        place.seam().offer_save_here(&place.context(), &json!({"kind": kind, "body": body})).remove(0)
    };
    place.note("decisions/other.md", "Something else.");
    let fresh = offer("fix", "Use  NATS.\n");
    assert_eq!(fresh.get("duplicate_of"), Some(&Value::Null));
    assert_eq!(fresh.get("fingerprint").and_then(Value::as_str), Some(&*fingerprint("use nats.")));
    place.note("decisions/queue.md", "---\nkind: decision\n---\n\nuse NATS.\n");
    assert_eq!(
        offer("fix", "Use  NATS.\n").get("duplicate_of").and_then(Value::as_str),
        place.path(&format!("vault/projects/{SLUG}/decisions/queue.md")).to_str()
    );
    // What says so itself is believed, what holds no longer is none, and general notes are those of the kind.
    place.note("decisions/queue.md", format!("---\nfingerprint: {}\n---\nother words", fingerprint("use nats.")));
    assert_ne!(offer("fix", "use nats.").get("duplicate_of"), Some(&Value::Null));
    place.note("decisions/queue.md", "---\nstatus: superseded\n---\nuse nats.");
    assert_eq!(offer("fix", "use nats.").get("duplicate_of"), Some(&Value::Null));
    place.write("vault/memory/fix/queue.md", "use nats.");
    assert_ne!(offer("fix", "use nats.").get("duplicate_of"), Some(&Value::Null));
    assert_eq!(offer("workflow", "use nats.").get("duplicate_of"), Some(&Value::Null));
    assert_eq!(offer("../fix", "use nats.").get("duplicate_of"), Some(&Value::Null));
}

#[test]
fn a_query_filters_and_ranks_if_that_is_set() {
    let mut place = Place::with_vault();
    place.config.query = QueryUse::Filter;
    place.always("rule", "ALWAYS");
    place.note("decisions/a.md", "The queue is NATS, and the queue replays.");
    place.note("decisions/b-queue.md", "Named after it.");
    place.note("decisions/c.md", "---\ntags: [queue]\n---\nTagged.");
    place.note("decisions/d.md", "Nothing of it.");
    let recall = |query| place.seam().recall_here(&place.context(), query, None);
    let text = recall(Some("Queue?"));
    let at = |word: &str| text.find(word).unwrap();
    assert!(at("ALWAYS") < at("Named") && at("Named") < at("Tagged") && at("Tagged") < at("The queue"), "{text}");
    assert!(!text.contains("Nothing of it."), "{text}");
    assert!(recall(None).contains("Nothing of it."));
    assert!(recall(Some(" ?! ")).contains("Nothing of it."), "no word is no query");
}

#[test]
fn no_more_is_read_than_the_budget_needs() {
    let place = Place::with_vault();
    for n in 0..5_000 {
        place.note(&format!("decisions/d-{n:04}.md"), format!("---\nkind: decision\n---\n\n{}\n", "word ".repeat(80)));
    }
    let recall = place.seam().recall(&place.context(), None, None);
    let reads = place.look.reads();
    let bytes: usize = reads.iter().map(|(_, bytes)| bytes).sum();
    assert!(recall.entries > 50 && recall.omitted.len() + recall.entries == 5_000);
    assert!(reads.len() < recall.entries + 40, "{} files for {} notes", reads.len(), recall.entries);
    assert!(bytes < 2 * 4 * 6_000, "{bytes} bytes");
    assert!(recall.text.contains("and 49"), "the others are counted: {}", recall.text.lines().last().unwrap());
}

#[test]
fn of_notes_that_are_too_large_only_the_begin_is_read_and_not_of_all() {
    let place = Place::with_vault();
    for n in 0..200 {
        place.note(&format!("decisions/d-{n:03}.md"), "x".repeat(1 << 20));
    }
    place.note("known-issues/one.md", "ISSUE");
    let recall = place.seam().recall(&place.context(), None, None);
    let reads = place.look.reads();
    assert!(reads.iter().all(|(_, bytes)| *bytes <= 3 * 4 * 6_000 + 4_096));
    assert!(reads.len() < 40, "{} files", reads.len());
    assert_eq!(recall.entries + recall.omitted.len(), 201);
}

#[test]
fn what_a_note_is_called_or_holds_cannot_act_on_a_terminal() {
    let place = Place::with_vault();
    place.always("bad\u{1b}[2J\nname", "text \u{1b}]0;title\u{7}");
    let text = place.recall("work");
    assert!(
        !text.contains(['\u{1b}', '\u{7}']) && text.contains("### always-load: bad\\u{1b}[2J\\nname\n"),
        "{text:?}"
    );
}
