use helmdeck_testkit::{FaultyStore, ReplicaStore};

use super::*;
use crate::config::OnOversize;
use crate::error::ConversationError;

#[tokio::test]
async fn context_shows_newest_turns_and_counts_rest() {
    let place = Fixture::new().await;
    let memory = place.open(Config {
        budget_tokens: 10,
        ..config(Strategy::Truncation)
    });
    // Two tokens each.
    add(&memory, 0..9).await;
    let patch = memory.context(&alice()).await.unwrap();
    // The opening is pinned, and takes one.
    assert_eq!(
        (shown(&patch), patch.tokens, patch.omitted_turns),
        ((5..9).collect(), 9, 5)
    );
    assert_eq!(patch.goal.as_deref(), Some("q0"));
    assert_eq!(memory.estimate_tokens(&alice()).await.unwrap(), 9);
    let fresh = place.open(memory.config().clone());
    assert_eq!(fresh.context(&alice()).await.unwrap(), patch);
}

#[tokio::test]
async fn turn_over_budget_is_stored_whole_or_refused() {
    let place = Fixture::new().await;
    let keep = Config {
        budget_tokens: 10,
        ..config(Strategy::Truncation)
    };
    let memory = place.open(Config {
        on_oversize: OnOversize::Refuse,
        ..keep.clone()
    });
    add(&memory, 0..1).await;
    let large = NewTurn::new(format!("q{}", 1), "x".repeat(100));
    let refused = memory.add_turn(&alice(), large.clone()).await;
    assert!(
        matches!(refused, Err(ConversationError::Oversize { budget: 10, .. })),
        "{refused:?}"
    );
    let memory = place.open(keep);
    let added = memory.add_turn(&alice(), large).await.unwrap();
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (shown(&patch), patch.over_budget, patch.omitted_turns),
        (vec![1], true, 1)
    );

    assert_eq!(
        (patch.tokens, patch.goal.as_deref()),
        (added.tokens + 1, Some("q0"))
    );
    let huge = memory
        .add_turn(&alice(), NewTurn::new("q", "x".repeat(300 << 10)))
        .await;
    assert!(
        matches!(huge, Err(ConversationError::TooLarge { what: "turn", .. })),
        "{huge:?}"
    );
}

#[tokio::test]
async fn repeated_idempotency_key_adds_one_turn() {
    let place = Fixture::new().await;
    let memories: Vec<_> = (0..2)
        .map(|_| place.open(config(Strategy::Truncation)))
        .collect();
    let named = |number| NewTurn {
        once: Some("name".into()),
        ..turn(number)
    };
    let adding: Vec<_> = (0..10)
        .map(|number| {
            let memory = memories[number % 2].clone();
            let turn = named(7);
            tokio::spawn(async move { memory.add_turn(&alice(), turn).await.unwrap() })
        })
        .collect();
    let mut added = Vec::new();
    for task in adding {
        added.push(task.await.unwrap());
    }
    assert_eq!(added.iter().filter(|added| !added.repeated).count(), 1);
    assert!(added.iter().all(|one| one.id == added[0].id));
    place.clock.advance(Duration::from_secs(1));
    assert_eq!(seen(&memories[0]).await.len(), 1);
    let other = memories[1].add_turn(&alice(), named(8)).await;
    assert!(
        matches!(other, Err(ConversationError::OnceReused)),
        "{other:?}"
    );
    // A time that was given is a part of the turn; one that was not is none, however late it is
    // added again.
    let timed = |time: &str| NewTurn {
        timestamp: Some(time.into()),
        once: Some("timed".into()),
        ..turn(9)
    };
    memories[0]
        .add_turn(&alice(), timed("2026-11-22T16:00:00Z"))
        .await
        .unwrap();
    assert!(
        memories[1]
            .add_turn(&alice(), timed("2026-11-22T16:00:00Z"))
            .await
            .unwrap()
            .repeated
    );
    assert!(
        memories[1]
            .add_turn(&alice(), timed("2026-11-22T16:00:01Z"))
            .await
            .is_err()
    );
    assert_eq!(
        seen(&place.open(config(Strategy::Truncation))).await.len(),
        2
    );
    place.clock.advance(Duration::from_secs(86_400));
    assert!(
        !memories[0]
            .add_turn(&alice(), named(1))
            .await
            .unwrap()
            .repeated,
        "it is remembered for a day"
    );
    for name in ["", &"n".repeat(257)] {
        let refused = memories[0]
            .add_turn(
                &alice(),
                NewTurn {
                    once: Some(name.into()),
                    ..turn(1)
                },
            )
            .await;
        assert!(
            matches!(refused, Err(ConversationError::Invalid(_))),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn abandoned_add_still_completes() {
    let place = Fixture::new().await;
    let store = ReplicaStore::silent(&place.store);
    let memory = place.open_on(store.clone(), config(Strategy::Truncation));
    add(&memory, 0..1).await;
    for gate in [&store.before_write, &store.after_write] {
        gate.shut();
        let before = seen(&memory).await;
        let adding = tokio::spawn({
            let memory = memory.clone();
            async move { memory.add_turn(&alice(), turn(7)).await }
        });
        gate.reached().await;
        adding.abort();
        assert!(adding.await.unwrap_err().is_cancelled());
        assert_eq!(
            seen(&memory).await,
            before,
            "what is not acknowledged is not in sight"
        );
        gate.open();
        // The next writer comes after the one without a waiter.
        add(&memory, 8..9).await;
        assert_eq!(seen(&memory).await, [&before[..], &[7, 8]].concat());
        assert_eq!(
            seen(&place.open(config(Strategy::Truncation))).await,
            seen(&memory).await
        );
    }
}

#[tokio::test]
async fn none_keeps_nothing() {
    let place = Fixture::new().await;
    let store = FaultyStore::new(Arc::clone(&place.store));
    let memory = place.open_on(store.clone(), config(Strategy::None));
    assert_eq!(memory.add_turn(&alice(), turn(0)).await.unwrap().id, None);
    assert!(memory.context(&alice()).await.unwrap().is_empty());
    assert_eq!(memory.trace(&alice()).await.unwrap().kept_turns, 0);
    assert!(
        memory
            .list_turns(&alice(), &Default::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(memory.snapshot(&alice()).await.unwrap().bytes.is_empty());
    assert_eq!((store.reads(), store.scans(), store.writes()), (0, 0, 0));
}

#[tokio::test]
async fn occupied_row_blocks_no_add() {
    let place = Fixture::new().await;
    for seq in [1, 2, 4] {
        place
            .write(&crate::rows::encoding::turn_key(seq), b"not a turn")
            .await;
    }
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..1).await;
    place
        .write(&crate::rows::encoding::turn_key(2), b"not a turn")
        .await;
    add(&memory, 1..6).await;
    assert_eq!(seen(&memory).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        seen(&place.open(config(Strategy::Truncation))).await,
        seen(&memory).await
    );
}
