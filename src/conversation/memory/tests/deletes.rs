use super::*;
use crate::error::ConversationError;
use crate::health::Health;
use crate::rows::Base;
use crate::views::{ConversationFilter, TurnFilter};

async fn keys(memory: &ConversationMemory) -> Vec<String> {
    let page = memory
        .list_turns(&alice(), &TurnFilter::default())
        .await
        .unwrap();
    page.items
        .iter()
        .rev()
        .map(|item| item.key.to_string())
        .collect()
}

#[tokio::test]
async fn deleted_turn_leaves_a_rebuilt_summary() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    add(&memory, 0..10).await;
    let keys = keys(&memory).await;
    fold(&memory, 3, |checkpoint| {
        checkpoint.base = Some(Base {
            summary: "base".to_owned(),
            through: 3,
            gone: 2,
        });
        checkpoint.opening = Some("q0".to_owned());
    })
    .await;
    fold(&memory, 6, |_| {}).await;
    // Newer than the summary: it stays.
    assert!(
        !memory
            .delete_turn(&alice(), &keys[8])
            .await
            .unwrap()
            .summary_rebuilt
    );
    assert_eq!(
        memory.context(&alice()).await.unwrap().summary,
        "summary of all through 6"
    );
    // In the summary, newer than what it was built upon: back to that.
    let deleted = memory.delete_turn(&alice(), &keys[4]).await.unwrap();
    assert!(deleted.summary_rebuilt && deleted.remaining_turns == 8);
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (patch.summary.as_str(), patch.goal.as_deref()),
        ("base", Some("q0"))
    );
    assert_eq!(shown(&patch), [3, 5, 6, 7, 9]);
    // In the summary's base: nothing of it stays, and an event reports what cannot be rebuilt.
    memory.delete_turn(&alice(), &keys[0]).await.unwrap();
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!((patch.summary.as_str(), patch.goal.as_deref()), ("", None));
    assert_eq!(shown(&patch), [1, 2, 3, 5, 6, 7, 9]);
    let events = place.events().await;
    let dropped: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            EventKind::MemoryRecoveryDropped { reason, count, .. } => Some((*reason, *count)),
            _ => None,
        })
        .collect();
    assert_eq!(dropped, [("summary_rebuilt", 2)]);
    assert_eq!(
        events
            .iter()
            .filter(|event| matches!(event, EventKind::MemoryItemDeleted { .. }))
            .count(),
        3
    );
    let again = memory.delete_turn(&alice(), &keys[0]).await;
    assert!(
        matches!(again, Err(ConversationError::NotFound)),
        "{again:?}"
    );
}

#[tokio::test]
async fn new_generation_discards_late_summary() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    for change in 0..5 {
        add(&memory, 0..6).await;
        let before = state(&memory).await;
        let key = keys(&memory).await[5].clone();
        match change {
            0 => memory.flush(&alice()).await.unwrap(),
            1 => memory
                .restore(&alice(), &memory.snapshot(&alice()).await.unwrap())
                .await
                .unwrap(),
            2 => drop(memory.delete_turn(&alice(), &key).await.unwrap()),
            3 => drop(memory.forget(&alice()).await.unwrap()),
            _ => {
                memory.forget(&alice()).await.unwrap();
                add(&memory, 0..6).await;
            }
        }
        let late = Checkpoint {
            covers_through: 3,
            summary: "late".to_owned(),
            ..before.checkpoint.clone()
        };
        let committed = memory
            .shared()
            .rows
            .commit(&namespace(), &before, &late)
            .await
            .unwrap();
        assert_eq!(committed, None, "change {change}");
        assert_eq!(memory.context(&alice()).await.unwrap().summary, "");
        memory.forget(&alice()).await.unwrap();
    }
}

#[tokio::test]
async fn damaged_conversation_can_be_flushed_restored_forgotten() {
    let place = Fixture::new().await;
    let settings = config(Strategy::Truncation);
    let memory = place.open(settings.clone());
    add(&memory, 0..3).await;
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    for row in ["~head", "~checkpoint"] {
        for way in 0..3 {
            place.write(row, b"nonsense").await;
            let memory = place.open(settings.clone());
            let read = memory.context(&alice()).await;
            assert!(
                matches!(read, Err(ConversationError::Corrupt(_))),
                "{row}: {read:?}"
            );
            assert!(matches!(
                memory.add_turn(&alice(), turn(9)).await,
                Err(ConversationError::Corrupt(_))
            ));
            assert_eq!(
                memory
                    .list_conversations(&ConversationFilter::default())
                    .await
                    .unwrap()
                    .total,
                1
            );
            match way {
                0 => memory.flush(&alice()).await.unwrap(),
                1 => memory.restore(&alice(), &snapshot).await.unwrap(),
                _ => drop(memory.forget(&alice()).await.unwrap()),
            }
            let before = if way == 1 { vec![0, 1, 2] } else { vec![] };
            assert_eq!(seen(&memory).await, before, "{row}, way {way}");
            add(&memory, 5..6).await;
            assert_eq!(seen(&memory).await, [&before[..], &[5]].concat());
        }
    }
}

#[tokio::test]
async fn unreadable_turn_is_skipped_and_counted() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..5).await;
    place
        .write(&crate::rows::encoding::turn_key(2), b"nonsense")
        .await;
    let memory = place.open(config(Strategy::Truncation));
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (shown(&patch), patch.unreadable, patch.omitted_turns),
        (vec![0, 2, 3, 4], 1, 0)
    );
    let page = memory
        .list_turns(&alice(), &TurnFilter::default())
        .await
        .unwrap();
    assert_eq!((page.items.len(), page.unreadable, page.total), (4, 1, 5));
}

#[tokio::test]
async fn expired_conversation_starts_anew() {
    let place = Fixture::new().await;
    let settings = Config {
        ttl: Duration::from_secs(3600),
        ..config(Strategy::RollingSummary)
    };
    let memory = place.open(settings.clone());
    add(&memory, 0..6).await;
    let old = keys(&memory).await;
    fold(&memory, 2, |checkpoint| checkpoint.health = Health::Retry).await;
    place.clock.advance(Duration::from_secs(3599));
    assert_eq!(seen(&memory).await, [2, 3, 4, 5]);
    place.clock.advance(Duration::from_secs(1));
    for memory in [&memory, &place.open(settings.clone())] {
        assert!(memory.context(&alice()).await.unwrap().is_empty());
        assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
        assert_eq!(
            memory
                .list_conversations(&ConversationFilter::default())
                .await
                .unwrap()
                .total,
            0
        );
        assert!(matches!(
            memory.get_turn(&alice(), &old[0]).await,
            Err(ConversationError::NotFound)
        ));
        assert_eq!(memory.trace(&alice()).await.unwrap().kept_turns, 0);
    }
    let generation = state(&memory).await.head.generation;
    add(&memory, 7..8).await;
    assert_eq!(seen(&memory).await, [7]);
    let after = state(&memory).await;
    assert_eq!(
        (after.head.generation, after.head.seq, after.head.turns),
        (generation + 1, 7, 1)
    );
    let rows = memory
        .shared()
        .rows
        .keys(&namespace(), "turn/", 0, u64::MAX)
        .await
        .unwrap();
    assert_eq!(rows, [7], "what was before is gone");
}

#[tokio::test]
async fn add_after_expiry_shows_no_old_turn() {
    let place = Fixture::new().await;
    let settings = Config {
        ttl: Duration::from_secs(3600),
        ..config(Strategy::RollingSummary)
    };
    let memory = place.open(settings.clone());
    add(&memory, 0..6).await;
    fold(&memory, 2, |checkpoint| {
        checkpoint.opening = Some("q0".to_owned())
    })
    .await;
    assert_eq!(seen(&memory).await, [2, 3, 4, 5]);
    place.clock.advance(Duration::from_secs(7200));
    // It is still cached, and nothing reads it before.
    add(&memory, 7..8).await;
    for _ in 0..2 {
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(shown(&patch), [7]);
        assert_eq!(
            patch,
            place
                .open(settings.clone())
                .context(&alice())
                .await
                .unwrap()
        );
        add(&memory, 8..9).await;
        memory
            .delete_turn(&alice(), &keys(&memory).await[1])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn deleted_opening_disappears_before_new_summary() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    add(&memory, 0..8).await;
    fold(&memory, 4, |checkpoint| {
        checkpoint.opening = Some("q0".to_owned())
    })
    .await;
    let keys = keys(&memory).await;
    memory.delete_turn(&alice(), &keys[2]).await.unwrap();
    assert_eq!(
        state(&memory).await.checkpoint.opening.as_deref(),
        Some("q0"),
        "its turn is kept"
    );
    memory.delete_turn(&alice(), &keys[0]).await.unwrap();
    assert_eq!(
        state(&memory).await.checkpoint.opening.as_deref(),
        Some("q1"),
        "the first that is left"
    );

    // One that came with a snapshot goes with its turn only, also if it was cut.
    let memory = place.open(config(Strategy::Truncation));
    memory.forget(&alice()).await.unwrap();
    let long = "please ".repeat(300);
    memory
        .add_turn(&alice(), NewTurn::new("before that", "a"))
        .await
        .unwrap();
    memory
        .add_turn(&alice(), NewTurn::new(long.clone(), "a"))
        .await
        .unwrap();
    let mut record =
        crate::wire::read_record(&memory.snapshot(&alice()).await.unwrap().bytes, 1 << 20, 10)
            .unwrap();
    record.opening = Some(memory.shared().counter.clamp(long.trim(), 100).into_owned());
    let bytes = crate::wire::write_record(&record).into();
    memory
        .restore(
            &alice(),
            &crate::Snapshot {
                strategy: None,
                bytes,
            },
        )
        .await
        .unwrap();
    let keys = self::keys(&memory).await;
    memory.delete_turn(&alice(), &keys[0]).await.unwrap();
    assert!(state(&memory).await.checkpoint.opening.is_some());
    memory.delete_turn(&alice(), &keys[1]).await.unwrap();
    assert_eq!(state(&memory).await.checkpoint.opening, None);
}

#[tokio::test]
async fn forgetting_leaves_no_row() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    add(&memory, 0..6).await;
    memory
        .add_turn(
            &alice(),
            NewTurn {
                once: Some("n".into()),
                ..turn(6)
            },
        )
        .await
        .unwrap();
    assert_eq!(memory.forget(&alice()).await.unwrap(), 7);
    assert_eq!(place.store.stats().await.unwrap().rows, 0);
    assert_eq!(memory.forget(&alice()).await.unwrap(), 0);
}

#[tokio::test]
async fn conversations_are_listed_in_pages() {
    let place = Fixture::new().await;
    let memory = place.open(Config {
        ttl: Duration::from_secs(7200),
        ..config(Strategy::Truncation)
    });
    for (tenant, user, session) in [
        ("t", "a", "1"),
        ("t", "a", "2"),
        ("t", "b", "1"),
        ("u", "a", "1"),
    ] {
        memory
            .add_turn(&Identity::new(tenant, user, session), turn(0))
            .await
            .unwrap();
        place.clock.advance(Duration::from_secs(1200));
    }
    let mut filter = ConversationFilter {
        limit: Some(2),
        ..ConversationFilter::default()
    };
    let first = memory.list_conversations(&filter).await.unwrap();
    assert_eq!(
        (first.total, first.sessions.len(), first.expiring_in_1h),
        (4, 2, 2)
    );
    filter.after = first.next;
    let second = memory.list_conversations(&filter).await.unwrap();
    assert_eq!(
        (second.total, second.sessions.len(), second.next),
        (4, 2, None)
    );
    let names: Vec<_> = first
        .sessions
        .iter()
        .chain(&second.sessions)
        .map(|s| (&*s.tenant, &*s.user))
        .collect();
    assert_eq!(names, [("t", "a"), ("t", "a"), ("t", "b"), ("u", "a")]);
    let narrowed = ConversationFilter {
        tenant: Some("t".into()),
        user: Some("b".into()),
        ..ConversationFilter::default()
    };
    assert_eq!(memory.list_conversations(&narrowed).await.unwrap().total, 1);
}
