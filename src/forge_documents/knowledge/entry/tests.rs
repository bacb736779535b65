//! Knowledge taken apart and put together again.

use super::*;

const RFC: &str = include_str!("../../fixtures/knowledge.json");

fn file(name: &str, text: &str) -> EntryFile {
    let modified = Time::parse("2026-01-02T03:04:05Z").unwrap();
    EntryFile {
        path: format!("{KNOWLEDGE_ENTRIES}/{name}"),
        bytes: text.as_bytes().to_vec(),
        modified,
    }
}

fn text(entry: &StoredEntry) -> String {
    serde_json::to_string(&entry.value)
        .unwrap()
        .replacen('{', r#"{"schema_version":"1.0","#, 1)
}

#[test]
fn what_the_rfc_prints_is_kept() {
    let mut whole: KnowledgeFile = serde_json::from_str(RFC).unwrap();
    whole.other.0.insert("more".to_owned(), Json::Bool(true));
    whole
        .patterns
        .other
        .0
        .insert("odd".to_owned(), Json::Array(Vec::new()));
    let entries = split(&whole);
    assert_eq!(
        entries[0].slug,
        "adding-new-nats-subject-add-to-sx9-harness-src"
    );
    let files: Vec<_> = entries
        .iter()
        .enumerate()
        .map(|(at, one)| file(&format!("{at}.json"), &text(one)))
        .collect();
    let joined = join(&files, None);
    assert!(joined.damaged.is_empty(), "{:?}", joined.damaged);
    assert_eq!((joined.document, joined.places.len()), (whole.clone(), 6));
    let all = join(&files[1..], Some(whole.clone()));
    assert_eq!((all.document.entries().count(), all.places.len()), (5, 5));
}

#[test]
fn what_somebody_wrote_is_read() {
    let read = |name: &str, text: &str| match LearningEntry::from_markdown(&file(name, text)) {
        Ok(LearningEntry::Successful(one)) => Ok((one.context, one.approach)),
        Ok(other) => panic!("{other:?}"),
        Err(why) => Err(why),
    };
    let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
    assert_eq!(
        read("a.md", "# When\n\nDo it.\n\n- so\n"),
        pair("When", "Do it.\n\n- so")
    );
    assert_eq!(read("a.md", "\nWhen\nDo it."), pair("When", "Do it."));
    assert_eq!(
        read("a.md", "---\nx: 1\n---\n## When\nDo it."),
        pair("When", "---\nx: 1\n---\nDo it.")
    );
    assert_eq!(
        read("on-money_here.md", "Use whole cents.\n"),
        pair("on money here", "Use whole cents.")
    );
    for wrong in ["", "\n \n", "a\0b"] {
        assert!(read("a.md", wrong).is_err(), "{wrong:?}");
    }
    assert!(read("a.md", &format!("# x\n{}", "y".repeat(4_001))).is_err());
    let few = join(
        &[
            file("a.json", r#"{"context":"c","approach":"a"}"#),
            file("b.json", r#"{"text":"t"}"#),
        ],
        None,
    );
    assert_eq!(
        few.document.patterns.successful[0].learned_at.to_string(),
        "2026-01-02T03:04:05Z"
    );
    assert_eq!(few.document.invariants, [Invariant::Text("t".to_owned())]);
    assert!(few.damaged.is_empty());
    // The Markdown of an entry that is there is spent.
    let twice = join(
        &[
            file("a.json", r#"{"context":"c","approach":"a"}"#),
            file("b.md", "c\na"),
        ],
        None,
    );
    assert_eq!(
        (twice.spent, twice.document.entries().count()),
        (vec![1], 1)
    );
}

#[test]
fn the_same_learning_on_both_sides_is_one() {
    let one = |name: &str, hour: u8| {
        let text = format!(
            r#"{{"context":"Halving","approach":"Divide","learned_at":"2025-12-24T{hour}:00:00Z"}}"#
        );
        file(name, &text)
    };
    let joined = join(&[one("a.json", 10), one("b.json", 11)], None);
    assert_eq!(joined.document.patterns.successful.len(), 1);
    assert_eq!(joined.document.patterns.successful[0].trace.seen, Some(2));
    assert_eq!(
        joined.places.values().map(Vec::len).collect::<Vec<_>>(),
        [2]
    );
    // Files that a change made equal count once.
    let joined = join(&[one("a.json", 10), one("b.json", 10)], None);
    assert_eq!(joined.document.patterns.successful[0].trace.seen, None);
}

#[test]
fn of_entries_that_supersede_each_other_the_last_one_holds() {
    let one = |id: &str, by: &str, hour: u8| {
        let text = format!(
            r#"{{"id":"{id}","context":"{id}","approach":"a","learned_at":"2025-12-24T{hour}:00:00Z","superseded_by":"{by}"}}"#
        );
        file(&format!("{id}.json"), &text)
    };
    let files = [
        one("a", "b", 10),
        one("b", "c", 12),
        one("c", "a", 11),
        one("d", "a", 13),
        one("e", "gone", 13),
    ];
    let document = join(&files, None).document;
    let holding: Vec<_> = document
        .entries()
        .filter(|entry| entry.trace.superseded_by.is_none())
        .map(|entry| entry.id())
        .collect();
    assert_eq!(holding, ["b"]);
}
