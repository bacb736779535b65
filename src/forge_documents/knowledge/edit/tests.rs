//! Entries are added, confirmed and superseded.

use super::*;

fn holds(check: Option<&str>) -> Learning {
    let check = check.map(str::to_owned);
    Learning::new(What::Invariant {
        text: "All tests pass".to_owned(),
        check,
        severity: None,
    })
}

#[test]
fn an_invariant_that_is_known_takes_a_check_and_keeps_it() {
    let mut file = <KnowledgeFile as helmdeck_forge_files::Document>::skeleton();
    file.add(&works("a", "b"), now(0)).unwrap();
    file.invariants = vec![
        Invariant::Text("Other".to_owned()),
        Invariant::Text("All tests pass".to_owned()),
    ];
    let check = |file: &KnowledgeFile| file.invariants[1].check().map(str::to_owned);
    assert!(!file.add(&holds(Some("cargo test")), now(1)).unwrap().new);
    assert_eq!(
        (check(&file).as_deref(), file.invariants.len()),
        (Some("cargo test"), 2)
    );
    for same in [None, Some("cargo test")] {
        file.add(&holds(same), now(2)).unwrap();
        assert_eq!(check(&file).as_deref(), Some("cargo test"));
    }
    let error = file.add(&holds(Some("true")), now(3)).unwrap_err();
    assert_eq!(error.category, helmdeck_forge_files::Category::Usage);
    assert_eq!(check(&file).as_deref(), Some("cargo test"));
}

#[test]
fn an_invariant_that_was_superseded_is_no_longer_current() {
    let mut file = <KnowledgeFile as helmdeck_forge_files::Document>::skeleton();
    let old = file.add(&holds(Some("false")), now(0)).unwrap();
    let new = What::Invariant {
        text: "Most tests pass".to_owned(),
        check: None,
        severity: None,
    };
    file.supersede(&old.id, &Learning::new(new), now(1))
        .unwrap();
    let current: Vec<_> = file.current_invariants().map(Invariant::text).collect();
    assert_eq!(
        (current, file.invariants.len()),
        (vec!["Most tests pass"], 2)
    );
}

fn now(minute: u8) -> Time {
    Time::parse(&format!("2025-12-24T10:{minute:02}:00Z")).unwrap()
}

fn works(context: &str, approach: &str) -> Learning {
    Learning::new(What::Successful {
        context: context.into(),
        approach: approach.into(),
    })
}

fn file() -> KnowledgeFile {
    serde_json::from_str(include_str!("../../fixtures/knowledge.json")).unwrap()
}

#[test]
fn what_is_learned_twice_counts_and_stands_once() {
    let mut file = file();
    let first = file
        .add(&works(" New  subject ", "Add e\u{301} it\r\nthere"), now(1))
        .unwrap();
    assert_eq!(
        (first.new, first.seen, first.kind),
        (true, 1, Kind::Successful)
    );
    let mut again = works("New subject", "Add é it there");
    again.paths = vec!["./src/".into(), "src".into()];
    let second = file.add(&again, now(2)).unwrap();
    assert_eq!((&second.id, second.new, second.seen), (&first.id, false, 2));
    assert_eq!(file.patterns.successful.len(), 2);
    let entry = &file.patterns.successful[1];
    assert_eq!(
        (entry.context.as_str(), entry.approach.as_str()),
        ("New  subject", "Add é it\nthere")
    );
    assert_eq!(
        (entry.learned_at, entry.trace.last_confirmed_at),
        (now(1), Some(now(2)))
    );
    assert_eq!(entry.trace.paths, ["src"]);
    file.validate().unwrap();
}

#[test]
fn an_invariant_that_is_known_as_a_text_alone_gets_a_count() {
    let mut file = file();
    let text = "Always use foundation crates for common deps".to_owned();
    let added = file
        .add(
            &Learning::new(What::Invariant {
                text,
                check: None,
                severity: None,
            }),
            now(1),
        )
        .unwrap();
    assert_eq!(
        (added.new, added.seen, file.invariants.len()),
        (false, 2, 3)
    );
    assert_eq!(file.invariants[1].trace().unwrap().seen, Some(2));
}

#[test]
fn a_failure_is_not_the_success_of_the_same_words() {
    let mut file = file();
    let (context, issue, resolution) = ("a".to_owned(), "b".to_owned(), "c".to_owned());
    let failed = Learning::new(What::Failed {
        context: context.clone(),
        issue: issue.clone(),
        resolution: resolution.clone(),
    });
    let decision = Learning::new(What::Decision {
        context,
        decision: issue,
        rationale: resolution,
    });
    assert!(file.add(&failed, now(1)).unwrap().new);
    assert!(file.add(&decision, now(1)).unwrap().new);
    assert_eq!((file.patterns.failed.len(), file.decisions.len()), (2, 1));
    file.validate().unwrap();
}

#[test]
fn what_is_superseded_stays_and_says_by_what() {
    let mut file = file();
    let old = file.add(&works("c", "old"), now(1)).unwrap().id;
    let by = file
        .supersede(&old[..8], &works("c", "new"), now(2))
        .unwrap();
    assert_eq!((&by.id, by.by.new), (&old, true));
    assert_eq!(file.patterns.successful.len(), 3);
    assert_eq!(
        file.patterns.successful[1].trace.superseded_by.as_ref(),
        Some(&by.by.id)
    );
    assert!(
        file.supersede(&old, &works("c", " old "), now(3)).is_err(),
        "itself"
    );
    assert!(
        file.supersede(&by.by.id, &works("c", "old"), now(3))
            .is_err(),
        "in a ring"
    );
    let again = file.add(&works("c", "old"), now(4)).unwrap();
    assert_eq!(again.superseded_by.as_ref(), Some(&by.by.id));
    let error = file
        .supersede(&old, &works("c", "newer"), now(5))
        .unwrap_err();
    assert!(
        error.category == helmdeck_forge_files::Category::Usage
            && error.hint.unwrap().contains(&by.by.id)
    );
    assert_eq!(
        file.patterns.successful[1].trace.superseded_by.as_ref(),
        Some(&by.by.id),
        "the first link stays"
    );
    assert!(
        !file
            .supersede(&old, &works("c", "new"), now(6))
            .unwrap()
            .by
            .new,
        "the same once more"
    );
    let last = file
        .supersede(&by.by.id, &works("c", "newer"), now(7))
        .unwrap();
    assert!(last.by.new);
}

#[test]
fn an_entry_is_found_by_how_its_id_begins() {
    let mut file = file();
    let id = file.add(&works("c", "a"), now(1)).unwrap().id;
    assert_eq!(file.confirm(&id[..6], None, now(5)).unwrap().id, id);
    assert_eq!(
        file.patterns.successful[1].trace.last_confirmed_at,
        Some(now(5))
    );
    for wrong in [&id[..5], "", "nothing", "zzzzzz"] {
        assert!(file.confirm(wrong, None, now(6)).is_err(), "{wrong:?}");
    }
    // Worked out, then written.
    let worked_out = file.entries().nth(2).unwrap().id();
    file.confirm(&worked_out, None, now(7)).unwrap();
    assert_eq!(file.patterns.failed[0].trace.id, Some(worked_out));
}

#[test]
fn a_path_that_leaves_the_repository_is_refused() {
    for wrong in ["../x", "/etc/passwd", "a/../../b", ""] {
        let mut learning = works("c", "a");
        learning.paths = vec![wrong.into()];
        assert!(file().add(&learning, now(1)).is_err(), "{wrong:?}");
    }
    let severity = Some("fatal".to_owned());
    let invariant = Learning::new(What::Invariant {
        text: "t".into(),
        check: None,
        severity,
    });
    assert!(file().add(&invariant, now(1)).is_err());
}
