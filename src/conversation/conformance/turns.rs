//! Test cases about turns one by one: case 11 of the reference, W19 to W24, W29.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::HashSet;

use helmdeck_events::EventKind;

use super::fixture::{Fixture, add, alice, fold, items, kept, numbers, seen, sized, turn};
use crate::error::ConversationError;
use crate::turn::NewTurn;
use crate::turn_id::TurnId;
use crate::views::TurnFilter;

/// W19: the id of a turn never changes, whatever goes before it, and is never given again.
pub(super) async fn ids_never_change(s: Fixture) {
    let memory = s.open();
    let added = add(&memory, &alice(), 0..8).await;
    let ids: Vec<String> = added
        .iter()
        .map(|added| added.id.unwrap().to_string())
        .collect();
    for id in &ids {
        assert!(id.len() == 28 && id.starts_with("mem_"), "{id}");
        assert_eq!(TurnId::parse(id).unwrap().to_string(), *id);
    }
    fold(&memory, &alice()).await;
    for gone in [0, 3, 7] {
        memory.delete_turn(&alice(), &ids[gone]).await.unwrap();
    }
    for (index, id) in ids.iter().enumerate() {
        let found = memory.get_turn(&alice(), id).await;
        match index {
            0 | 3 | 7 => assert!(matches!(found, Err(ConversationError::NotFound))),
            _ => assert_eq!(
                super::marks(&found.unwrap().turn.user_message),
                numbers(index..=index)
            ),
        }
        let again = memory.delete_turn(&alice(), &ids[3]).await;
        assert!(
            matches!(again, Err(ConversationError::NotFound)),
            "{again:?}"
        );
    }
    memory.flush(&alice()).await.unwrap();
    let later = add(&memory, &alice(), 20..30).await;
    memory.forget(&alice()).await.unwrap();
    let last = add(&memory, &alice(), 40..60).await;
    let all: HashSet<_> = added
        .iter()
        .chain(&later)
        .chain(&last)
        .map(|added| added.id.unwrap())
        .collect();
    assert_eq!(
        all.len(),
        38,
        "no id is given twice, not even after a forget"
    );
    for id in &ids {
        assert!(matches!(
            memory.get_turn(&alice(), id).await,
            Err(ConversationError::NotFound)
        ));
    }
    for key in [
        "",
        "mem_",
        "mem_0",
        "turn/1",
        &ids[1].to_uppercase(),
        &format!("{} ", ids[1]),
        "~head",
        "%",
        "é",
    ] {
        let found = memory.get_turn(&alice(), key).await;
        assert!(
            matches!(
                found,
                Err(ConversationError::NotFound | ConversationError::Invalid(_))
            ),
            "{key:?}: {found:?}"
        );
        let found = memory.delete_turn(&alice(), key).await;
        assert!(
            matches!(
                found,
                Err(ConversationError::NotFound | ConversationError::Invalid(_))
            ),
            "{key:?}: {found:?}"
        );
    }
}

/// W20 and case 11: concurrent deletes and adds lose nothing of each other.
///
/// A put returns the id of the turn that it added.
pub(super) async fn deletes_and_adds_at_once_lose_nothing_of_each_other(s: Fixture) {
    let memory = s.open();
    let other = s
        .another()
        .open_with(|config| config.hot_for = std::time::Duration::ZERO);
    let old: Vec<_> = add(&memory, &alice(), 0..24)
        .await
        .iter()
        .map(|added| added.id.unwrap().to_string())
        .collect();
    let adding: Vec<_> = (100..124)
        .map(|number| {
            let memory = if number % 2 == 0 {
                memory.clone()
            } else {
                other.clone()
            };
            tokio::spawn(async move {
                let put = memory.put_turn(&alice(), turn(number)).await.unwrap();
                let found = memory
                    .get_turn(&alice(), &put.id.unwrap().to_string())
                    .await
                    .unwrap();
                assert_eq!(
                    super::marks(&found.turn.user_message),
                    numbers(number..=number)
                );
            })
        })
        .collect();
    let deleting: Vec<_> = (0..24)
        .step_by(2)
        .map(|number| {
            let (memory, key) = (
                if number % 4 == 0 {
                    memory.clone()
                } else {
                    other.clone()
                },
                old[number].clone(),
            );
            tokio::spawn(async move { memory.delete_turn(&alice(), &key).await.unwrap() })
        })
        .collect();
    for task in adding {
        task.await.unwrap();
    }
    for task in deleting {
        assert!((36 - 24..48).contains(&task.await.unwrap().remaining_turns));
    }
    let fresh = s.another().open();
    fold(&fresh, &alice()).await;
    let all = kept(&fresh, &alice()).await;
    assert_eq!(seen(&fresh, &alice()).await, all);
    assert_eq!(all[..12], numbers((1..24).step_by(2)));
    let mut new = all[12..].to_vec();
    new.sort();
    assert_eq!(new, numbers(100..124));
    assert_eq!(s.dropped(), []);
}

/// Pages join without gap or repeat, newest first, also while turns are added; `total` counts all.
pub(super) async fn items_are_listed_newest_first_in_pages(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..23).await;
    fold(&memory, &alice()).await;
    let mut found = Vec::new();
    let mut filter = TurnFilter {
        limit: Some(5),
        ..TurnFilter::default()
    };
    loop {
        let page = memory.list_turns(&alice(), &filter).await.unwrap();
        assert!(page.items.len() <= 5);
        assert_eq!(
            (page.total, page.unreadable),
            (23 + found.len() as u64 / 5, 0)
        );
        found.extend(page.items);
        let Some(next) = page.next else { break };
        filter.after = Some(next);
        add(&memory, &alice(), 100..101).await;
    }
    assert_eq!(found.len(), 23);
    assert!(found.windows(2).all(|pair| pair[0].key > pair[1].key));
    for item in &found {
        assert_eq!(
            (item.strategy, item.created_at),
            (s.strategy, helmdeck_core::Clock::now(&*s.clock))
        );
        assert!(item.size_bytes > 0 && item.tokens > 0);
    }
    for limit in [0, 201] {
        let refused = memory
            .list_turns(
                &alice(),
                &TurnFilter {
                    limit: Some(limit),
                    ..TurnFilter::default()
                },
            )
            .await;
        assert!(
            matches!(refused, Err(ConversationError::Invalid(_))),
            "{refused:?}"
        );
    }
    let page = memory
        .list_turns(
            &alice(),
            &TurnFilter {
                limit: Some(200),
                ..TurnFilter::default()
            },
        )
        .await
        .unwrap();
    assert_eq!((page.items.len() as u64, page.next), (page.total, None));
    let past = TurnFilter {
        after: Some(page.items.last().unwrap().key),
        ..TurnFilter::default()
    };
    let past = memory.list_turns(&alice(), &past).await.unwrap();
    assert_eq!(
        (past.items.len(), past.total, past.next),
        (0, page.total, None),
        "past the end: nothing, and true totals"
    );
}

/// W23: a search looks at what was said, not at how it is written down.
pub(super) async fn a_search_finds_what_was_said(s: Fixture) {
    let memory = s.open();
    let texts = [
        ("a < b && c > d", "quotes \"here\""),
        ("line one\nline two", "back\\slash"),
        ("Grüße aus KÖLN", "漢字"),
        ("user_message", "nothing"),
        ("100 % _sure_", "\u{1f600}"),
    ];
    for (user, assistant) in texts {
        memory
            .add_turn(&alice(), NewTurn::new(user, assistant))
            .await
            .unwrap();
    }
    let find = async |text: &str| {
        let filter = TurnFilter {
            content_search: Some(text.into()),
            ..TurnFilter::default()
        };
        let page = memory.list_turns(&alice(), &filter).await.unwrap();
        let mut found = Vec::new();
        for item in page.items {
            let detail = memory
                .get_turn(&alice(), &item.key.to_string())
                .await
                .unwrap();
            found.push(
                texts
                    .iter()
                    .position(|(user, _)| *user == detail.turn.user_message)
                    .unwrap(),
            );
        }
        found
    };
    for (text, expected) in [
        ("a < b", &[0][..]),
        ("\"here\"", &[0]),
        ("one\nline", &[1]),
        ("back\\slash", &[1]),
        ("köln", &[2]),
        ("GRÜSSE", &[]),
        ("grüße", &[2]),
        ("漢", &[2]),
        ("USER_MESSAGE", &[3]),
        ("AssistantResponse", &[]),
        ("TrajectoryDigest", &[]),
        ("timestamp", &[]),
        ("% _", &[4]),
        ("\u{1f600}", &[4]),
        ("u003c", &[]),
    ] {
        assert_eq!(find(text).await, expected, "{text:?}");
    }
}

/// B of the reference: an administrator's writes publish events, with ids only.
///
/// W29: reads publish no event and write nothing.
pub(super) async fn what_an_administrator_does_is_told(s: Fixture) {
    let memory = s.open();
    let secret = "the-secret-text";
    let put = memory
        .put_turn(&alice(), sized(secret, 4000, 40_000))
        .await
        .unwrap();
    let key = put.id.unwrap().to_string();
    let writes = s.faults.writes();
    let detail = memory.get_turn(&alice(), &key).await.unwrap();
    assert_eq!(
        detail.turn.assistant_response.len(),
        40_000,
        "a large value is given whole"
    );
    memory
        .list_turns(&alice(), &TurnFilter::default())
        .await
        .unwrap();
    memory.trace(&alice()).await.unwrap();
    memory.snapshot(&alice()).await.unwrap();
    assert_eq!(s.faults.writes(), writes);
    memory.delete_turn(&alice(), &key).await.unwrap();
    let events = s.events();
    assert!(
        matches!(&events[0], EventKind::MemoryItemPut { key: named, who } if *named == key && who.session.is_some())
    );
    assert!(matches!(&events[1], EventKind::MemoryItemDeleted { key: named, .. } if *named == key));
    assert_eq!(events.len(), 2);
    // Whatever goes wrong, texts are in no event, no error and no debug output.
    let refused = s.another().open_with(|config| config.max_turn_bytes = 1000);
    let refused = refused
        .add_turn(&alice(), sized(secret, 4000, 0))
        .await
        .unwrap_err();
    let bad = crate::Snapshot {
        strategy: Some(s.strategy),
        bytes: format!("{{\"{secret}\":").into(),
    };
    let malformed = memory.restore(&alice(), &bad).await.unwrap_err();
    let turn = sized(secret, 40, 40);
    let printed =
        format!("{events:?}{refused}{refused:?}{malformed}{malformed:?}{turn:?}{detail:?}{bad:?}");
    assert!(!printed.contains(secret), "{printed}");
}

/// A snapshot's turns are the items of the conversation that it is restored into.
pub(super) async fn restored_turns_are_items(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..3).await;
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    let before = items(&memory, &alice()).await;
    memory.restore(&alice(), &snapshot).await.unwrap();
    assert_eq!(kept(&memory, &alice()).await, numbers(0..3));
    let after = items(&memory, &alice()).await;
    assert!(
        after
            .iter()
            .zip(&before)
            .all(|(new, old)| new.key > old.key && new.tokens == old.tokens)
    );
    memory
        .delete_turn(&alice(), &after[1].key.to_string())
        .await
        .unwrap();
    assert_eq!(seen(&memory, &alice()).await, ["0", "2"]);
}
