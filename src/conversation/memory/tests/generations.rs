//! A conversation that was forgotten and started again is another one, for every holder of the
//! former.

use super::*;
use crate::error::ConversationError;
use crate::views::TurnFilter;

#[tokio::test]
async fn restarted_conversation_has_new_generation() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    let mut met = std::collections::BTreeSet::new();
    for way in 0..6 {
        assert_eq!(
            memory.trace(&alice()).await.unwrap().generation,
            0,
            "it is not there"
        );
        if way % 2 == 0 {
            add(&memory, 0..2).await;
        } else {
            let text = r#"{"strategy":"rolling_summary","summary":"so far"}"#;
            let snapshot = crate::Snapshot {
                strategy: Some(Strategy::RollingSummary),
                bytes: text.into(),
            };
            memory.restore(&alice(), &snapshot).await.unwrap();
        }
        let state = state(&memory).await;
        assert_eq!(state.head.generation, state.checkpoint.generation);
        assert!(state.head.generation < 1 << 52, "readers of JSON keep it");
        assert!(met.insert(state.head.generation), "way {way}");
        memory.flush(&alice()).await.unwrap();
        assert_eq!(
            memory.trace(&alice()).await.unwrap().generation,
            state.head.generation + 1
        );
        memory.forget(&alice()).await.unwrap();
    }
}

#[tokio::test]
async fn stale_reader_sees_only_new_conversation() {
    let place = Fixture::new().await;
    let (one, two) = (
        place.open(config(Strategy::Truncation)),
        place.open(config(Strategy::Truncation)),
    );
    add(&one, 0..2).await;
    assert_eq!(seen(&two).await, [0, 1]);
    one.forget(&alice()).await.unwrap();
    add(&one, 10..13).await;
    place.clock.advance(Duration::from_secs(1));
    assert_eq!(seen(&two).await, [10, 11, 12]);
}

#[tokio::test]
async fn concurrent_deletes_remove_turn_once() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..6).await;
    let page = memory
        .list_turns(&alice(), &TurnFilter::default())
        .await
        .unwrap();
    let deleting: Vec<_> = (0..12)
        .map(|number: usize| {
            // Six of the same, and each of the others.
            let key = page.items[number.saturating_sub(6)].key.to_string();
            let memory = if number.is_multiple_of(2) {
                memory.clone()
            } else {
                place.open(config(Strategy::Truncation))
            };
            tokio::spawn(async move { memory.delete_turn(&alice(), &key).await })
        })
        .collect();
    let (mut gone, mut unknown) = (0, 0);
    for task in deleting {
        match task.await.unwrap() {
            Ok(_) => gone += 1,
            Err(ConversationError::NotFound) => unknown += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((gone, unknown), (6, 6));
    assert_eq!(state(&memory).await.head.turns, 0);
}
