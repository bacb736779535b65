use helmdeck_core::Timestamp;

use super::*;
use crate::rows::{Ops, encoding, staging};

#[tokio::test]
async fn turn_ranges_are_read_whole() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..235).await;
    let rows = &memory.shared().rows;
    for (from, through, limit) in [
        (1, 235, usize::MAX),
        (1, 1, 1),
        (9, 11, 10),
        (95, 105, 100),
        (99, 201, 7),
        (100, 200, 99),
        (230, 999, 50),
        (7, 6, 5),
        (13, 235, 11),
    ] {
        let (turns, unreadable) = rows
            .turns(&namespace(), from, through, limit)
            .await
            .unwrap();
        let expected: Vec<u64> = (from..=through.min(235)).take(limit).collect();
        assert_eq!(
            turns.iter().map(|kept| kept.id.seq).collect::<Vec<_>>(),
            expected,
            "{from}..={through}, {limit}"
        );
        assert_eq!(unreadable, 0);
    }
    place.write(&encoding::turn_key(100), b"nonsense").await;
    let (turns, unreadable) = rows.turns(&namespace(), 95, 110, 6).await.unwrap();
    assert_eq!((turns.last().unwrap().id.seq, unreadable), (101, 1));
    let (_, unreadable) = rows.turns(&namespace(), 101, 110, 6).await.unwrap();
    assert_eq!(unreadable, 0);
}

#[tokio::test]
async fn remains_of_a_restore_are_never_seen() {
    let place = Fixture::new().await;
    let settings = Config {
        budget_tokens: 100,
        ..config(Strategy::Truncation)
    };
    let memory = place.open(settings.clone());
    add(&memory, 0..80).await;
    let before = memory.context(&alice()).await.unwrap();
    let value = place
        .store
        .get(&namespace(), Kind::Conversation, &encoding::turn_key(3))
        .await
        .unwrap()
        .unwrap()
        .value;
    let far = staging(80);
    for start in (0..600).step_by(300) {
        let mut ops = Ops::new(namespace());
        (start..start + 300).for_each(|n| ops.put_turn(far + n, value.clone()));
        memory.shared().rows.aside(ops).await.unwrap();
    }
    let memory = place.open(settings.clone());
    assert_eq!(memory.context(&alice()).await.unwrap(), before);
    add(&memory, 80..82).await;
    assert_eq!(seen(&memory).await, (33..82).collect::<Vec<_>>());
    assert_eq!(seen(&place.open(settings)).await, seen(&memory).await);
    memory.flush(&alice()).await.unwrap();
    assert_eq!(
        place.store.stats().await.unwrap().rows,
        2,
        "a flush takes them too"
    );
}

#[tokio::test]
async fn sweep_spares_turns_of_a_conversation_begun_again() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..5).await;
    memory.flush(&alice()).await.unwrap();
    add(&memory, 5..8).await;
    let rows = &memory.shared().rows;
    // A sweep reads the head; before it looks for orphans, the conversation is forgotten and begins
    // again.
    let state = rows.state(&namespace()).await.unwrap();
    memory.forget(&alice()).await.unwrap();
    add(&memory, 8..10).await;
    let orphans = rows
        .orphans(&namespace(), &state.head, Timestamp(0))
        .await
        .unwrap();
    assert_eq!(orphans.dead, [1, 2]);
    assert_eq!(rows.clean(&namespace(), &state, &orphans).await.unwrap(), 0);
    assert_eq!(
        seen(&place.open(config(Strategy::Truncation))).await,
        [8, 9]
    );
}

#[tokio::test]
async fn other_counters_token_count_is_recomputed() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    memory
        .add_turn(
            &alice(),
            NewTurn::new("hello there, how are you?", "well, thanks"),
        )
        .await
        .unwrap();
    let chars = memory.estimate_tokens(&alice()).await.unwrap();
    let other = Config {
        tokens: crate::TokenCounter::O200kBase,
        ..config(Strategy::Truncation)
    };
    if let Ok(counter) = crate::tokens::Counter::new(other.tokens) {
        let memory = place.open(other);
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(patch.tokens, counter.turn(&patch.recent_turns[0].turn));
        assert_ne!(patch.tokens, chars);
    }
}
