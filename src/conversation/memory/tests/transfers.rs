use helmdeck_testkit::{FaultyStore, ReplicaStore};

use super::*;
use crate::error::ConversationError;
use crate::snapshot::{Record, Snapshot};
use crate::turn::ConversationTurn;
use crate::wire;

/// A patch without what a restore gives anew.
fn texts(patch: &LlmContextPatch) -> (Vec<ConversationTurn>, String, Option<String>, u64, u64) {
    let turns = patch
        .recent_turns
        .iter()
        .map(|recent| (*recent.turn).clone())
        .collect();
    (
        turns,
        patch.summary.clone(),
        patch.goal.clone(),
        patch.tokens,
        patch.omitted_turns,
    )
}

#[tokio::test]
async fn snapshot_flush_restore_gives_the_same_context() {
    for strategy in [Strategy::Truncation, Strategy::RollingSummary] {
        let place = Fixture::new().await;
        let memory = place.open(config(strategy));
        add(&memory, 0..9).await;
        if strategy == Strategy::RollingSummary {
            fold(&memory, 4, |checkpoint| {
                checkpoint.opening = Some("q0".to_owned())
            })
            .await;
        }
        let before = memory.context(&alice()).await.unwrap();
        let snapshot = memory.snapshot(&alice()).await.unwrap();
        memory.flush(&alice()).await.unwrap();
        assert!(memory.context(&alice()).await.unwrap().is_empty());
        memory.restore(&alice(), &snapshot).await.unwrap();
        let after = memory.context(&alice()).await.unwrap();
        assert_eq!(texts(&after), texts(&before));
        assert_eq!(memory.snapshot(&alice()).await.unwrap(), snapshot);
        let events = place.events().await;
        let reasons: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                EventKind::MemoryHealthChanged { reason, .. } => Some(*reason),
                _ => None,
            })
            .collect();
        assert_eq!(reasons, ["flushed", "restored"]);
    }
}

#[tokio::test]
async fn large_snapshot_replaces_all_at_once() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..1050).await;
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    memory.flush(&alice()).await.unwrap();
    add(&memory, 5000..5030).await;
    memory.restore(&alice(), &snapshot).await.unwrap();
    assert_eq!(seen(&memory).await, (0..1050).collect::<Vec<_>>());
    assert_eq!(
        place.store.stats().await.unwrap().rows,
        1052,
        "what was there before is gone"
    );
    add(&memory, 1050..1053).await;
    let fresh = place.open(config(Strategy::Truncation));
    assert_eq!(seen(&fresh).await, (0..1053).collect::<Vec<_>>());
    assert_eq!(fresh.trace(&alice()).await.unwrap().kept_turns, 1053);
}

#[tokio::test]
async fn a_snapshot_of_another_strategy_is_refused() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..2).await;
    let record = |strategy, summary: &str| {
        let record = Record {
            strategy,
            summary: summary.to_owned(),
            ..Record::default()
        };
        wire::write_record(&record).into()
    };
    for (outside, bytes) in [
        (Some(Strategy::RollingSummary), bytes::Bytes::new()),
        (
            Some(Strategy::RollingSummary),
            record(Strategy::RollingSummary, ""),
        ),
        (
            Some(Strategy::Truncation),
            record(Strategy::RollingSummary, ""),
        ),
        (None, record(Strategy::None, "")),
        (
            Some(Strategy::Truncation),
            record(Strategy::Truncation, "a summary"),
        ),
        (None, bytes::Bytes::from_static(b"{")),
    ] {
        let refused = memory
            .restore(
                &alice(),
                &Snapshot {
                    strategy: outside,
                    bytes,
                },
            )
            .await;
        assert!(
            matches!(refused, Err(ConversationError::InvalidSnapshot(_))),
            "{refused:?}"
        );
    }
    assert_eq!(seen(&memory).await, [0, 1]);
    memory
        .restore(&alice(), &Snapshot::default())
        .await
        .unwrap();
    assert!(memory.context(&alice()).await.unwrap().is_empty());
}

#[tokio::test]
async fn unknown_members_survive() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    let text = r#"{"strategy":"rolling_summary","summary":"so far","later":{"a":[1,2.50]}}"#;
    let snapshot = Snapshot {
        strategy: Some(Strategy::RollingSummary),
        bytes: text.into(),
    };
    memory.restore(&alice(), &snapshot).await.unwrap();
    add(&memory, 0..1).await;
    let after = memory.snapshot(&alice()).await.unwrap();
    let after = String::from_utf8(after.bytes.to_vec()).unwrap();
    assert!(
        after.ends_with(r#""summary":"so far","later":{"a":[1,2.50]}}"#),
        "{after}"
    );
    assert_eq!(seen(&memory).await, [0]);
}

/// A snapshot that is too large for one batch.
async fn large(memory: &ConversationMemory) -> Snapshot {
    add(memory, 0..1).await;
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    memory.forget(&alice()).await.unwrap();
    let mut record = wire::read_record(&snapshot.bytes, 1 << 20, 10).unwrap();
    record.turns = (0..1050)
        .map(|number| ConversationTurn {
            user_message: format!("q{number}"),
            ..record.turns[0].clone()
        })
        .collect();
    Snapshot {
        bytes: wire::write_record(&record).into(),
        ..snapshot
    }
}

#[tokio::test]
async fn large_restore_reports_turns_removed_meanwhile() {
    for way in 0..4 {
        let place = Fixture::new().await;
        let other = place.open(config(Strategy::Truncation));
        let snapshot = large(&other).await;
        if way > 0 {
            add(&other, 0..3).await;
        }
        let store = ReplicaStore::silent(&place.store);
        let memory = place.open_on(store.clone(), config(Strategy::Truncation));
        store.after_write.shut();
        let restoring = tokio::spawn({
            let (memory, snapshot) = (memory.clone(), snapshot.clone());
            async move { memory.restore(&alice(), &snapshot).await }
        });
        store.after_write.reached().await;
        // Of the turns that come some are there now, or, where nothing was, a head.
        match way {
            0 | 1 => drop(other.forget(&alice()).await.unwrap()),
            2 => other.flush(&alice()).await.unwrap(),
            _ => other.restore(&alice(), &Snapshot::default()).await.unwrap(),
        }
        store.after_write.open();
        let answer = restoring.await.unwrap();
        assert!(
            matches!(answer, Err(ConversationError::Contended)),
            "way {way}: {answer:?}"
        );
        place.clock.advance(Duration::from_secs(1));
        assert_eq!(seen(&memory).await, [0_usize; 0]);
        assert_eq!(
            place.store.stats().await.unwrap().rows,
            if way < 2 { 0 } else { 2 },
            "way {way}"
        );
        memory.restore(&alice(), &snapshot).await.unwrap();
        assert_eq!(seen(&memory).await, (0..1050).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn write_with_lost_reply_is_found() {
    let place = Fixture::new().await;
    let store = FaultyStore::new(Arc::clone(&place.store));
    let memory = place.open_on(store.clone(), config(Strategy::Truncation));
    let snapshot = large(&memory).await;
    add(&memory, 0..3).await;
    // Two batches of turns, then the head.
    store.lose_answer(3);
    memory.restore(&alice(), &snapshot).await.unwrap();
    assert_eq!(seen(&memory).await, (0..1050).collect::<Vec<_>>());
    assert_eq!(
        seen(&place.open(config(Strategy::Truncation))).await.len(),
        1050
    );
    let page = memory
        .list_turns(&alice(), &Default::default())
        .await
        .unwrap();
    store.lose_answer(1);
    memory
        .delete_turn(&alice(), &page.items[0].key.to_string())
        .await
        .unwrap();
    assert_eq!(seen(&memory).await.len(), 1049);
    store.lose_answer(1);
    memory.flush(&alice()).await.unwrap();
    assert_eq!(seen(&memory).await, [0_usize; 0]);
    let events = place.events().await;
    let of = |event: &EventKind| match event {
        EventKind::MemoryHealthChanged { reason, .. } => Some(*reason),
        EventKind::MemoryItemDeleted { .. } => Some("deleted"),
        _ => None,
    };
    assert_eq!(
        events.iter().filter_map(of).collect::<Vec<_>>(),
        ["restored", "deleted", "flushed"]
    );
}

#[tokio::test]
async fn large_snapshot_replaces_damaged_conversation() {
    let place = Fixture::new().await;
    for row in ["~head", "~checkpoint"] {
        let memory = place.open(config(Strategy::Truncation));
        let snapshot = large(&memory).await;
        add(&memory, 0..3).await;
        place.write(row, b"nonsense").await;
        let memory = place.open(config(Strategy::Truncation));
        memory.restore(&alice(), &snapshot).await.unwrap();
        assert_eq!(seen(&memory).await, (0..1050).collect::<Vec<_>>(), "{row}");
        assert_eq!(place.store.stats().await.unwrap().rows, 1052);
        memory.forget(&alice()).await.unwrap();
    }
}
