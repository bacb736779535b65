//! Test cases about a change of strategy, and of settings: case 9 of the reference, W13.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use super::fixture::{Fixture, STUCK, add, alice, fold, items, kept, numbers, seen};
use crate::config::Strategy;
use crate::error::ConversationError;
use crate::turn::NewTurn;

/// Case 9, W13: whichever strategy comes next, nothing is overwritten.
pub(super) async fn another_strategy_overwrites_nothing(s: Fixture) {
    for next in Strategy::ALL.into_iter().filter(|next| *next != s.strategy) {
        let identity = crate::Identity {
            user: next.as_str().into(),
            ..alice()
        };
        let one = s.another();
        let memory = one.open();
        add(&memory, &identity, 0..10).await;
        fold(&memory, &identity).await;
        let before = memory.context(&identity).await.unwrap();
        memory.close(STUCK).await;

        let two = s.under(next);
        let memory = two.open();
        if next == Strategy::None {
            assert!(memory.context(&identity).await.unwrap().is_empty());
            assert_eq!(
                memory
                    .add_turn(&identity, super::fixture::turn("lost"))
                    .await
                    .unwrap()
                    .id,
                None
            );
            assert!(
                memory.snapshot(&identity).await.unwrap().bytes.is_empty(),
                "what it gives it takes back (W13)"
            );
            assert_eq!(two.faults.writes(), 0, "nothing is touched");
        } else {
            assert_eq!(seen(&memory, &identity).await, numbers(0..10));
            add(&memory, &identity, 10..14).await;
            fold(&memory, &identity).await;
            assert_eq!(seen(&memory, &identity).await, numbers(0..14));
        }
        memory.close(STUCK).await;

        let three = s.another();
        let memory = three.open();
        let last = if next == Strategy::None { 10 } else { 14 };
        assert_eq!(kept(&memory, &identity).await, numbers(0..last));
        assert_eq!(seen(&memory, &identity).await, numbers(0..last));
        fold(&memory, &identity).await;
        assert_eq!(seen(&memory, &identity).await, numbers(0..last));
        if next == Strategy::None {
            assert_eq!(memory.context(&identity).await.unwrap(), before);
        }
        let moved = [one, two, three]
            .iter()
            .map(|s| s.dropped().len())
            .sum::<usize>();
        assert_eq!(moved, 0, "nothing is dropped");
        memory.close(STUCK).await;
    }
}

/// Whatever was kept can be deleted under `none` too.
pub(super) async fn none_still_deletes_what_was_kept(s: Fixture) {
    let memory = s.under(Strategy::RollingSummary).open();
    let other = crate::Identity {
        session: "session-2".into(),
        ..alice()
    };
    for identity in [alice(), other.clone()] {
        add(&memory, &identity, 1000..1009).await;
        fold(&memory, &identity).await;
    }
    memory.close(STUCK).await;
    let none = s.open();
    none.flush(&alice()).await.unwrap();
    none.forget(&other).await.unwrap();
    assert_eq!(s.rows_with("[10").await, 0);
    let memory = s.under(Strategy::Truncation).open();
    for identity in [alice(), other] {
        assert!(memory.context(&identity).await.unwrap().is_empty());
    }
}

/// Smaller settings show less and lose nothing.
pub(super) async fn other_settings_over_the_same_conversation_lose_nothing(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..12).await;
    fold(&memory, &alice()).await;
    memory.close(STUCK).await;
    let memory = s.another().open_with(|config| {
        config.budget_tokens = 40;
        config.recent_turns = 1;
        config.summarizer.summary_tokens = 20;
        config.tokens = crate::TokenCounter::Chars;
    });
    add(&memory, &alice(), 12..13).await;
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(super::fixture::recent(&patch).pop(), Some("12".to_owned()));
    assert_eq!(kept(&memory, &alice()).await, numbers(0..13));
    memory.close(STUCK).await;
}

/// Settings that cannot be are refused at once, and nothing is opened.
pub(super) async fn settings_that_cannot_be_are_refused(s: Fixture) {
    let mut bad = s.config();
    bad.recent_turns = 0;
    let refused = s.try_open(bad);
    assert!(
        matches!(&refused, Err(ConversationError::Invalid(why)) if why.contains("recent_turns")),
        "{refused:?}"
    );
    let without = crate::Dependencies {
        store: s.faults.store(),
        events: s.bus.clone(),
        clock: s.clock.clone(),
        summarizer: None,
    };
    let opened = crate::ConversationMemory::open(s.config(), without);
    match s.strategy {
        Strategy::RollingSummary => assert!(
            matches!(opened, Err(ConversationError::SummarizerRequired)),
            "{opened:?}"
        ),
        _ => assert!(opened.is_ok(), "{opened:?}"),
    }
    // No summarizer is ever asked by the others, even if there is one.
    if s.strategy != Strategy::RollingSummary {
        let mut config = s.config();
        config.budget_tokens = 8;
        let with = crate::Dependencies {
            store: s.faults.store(),
            events: s.bus.clone(),
            clock: s.clock.clone(),
            summarizer: Some(s.summarizer.clone()),
        };
        let memory = crate::ConversationMemory::open(config, with).unwrap();
        for number in 0..9 {
            memory
                .add_turn(&alice(), NewTurn::new(format!("[{number}]"), ""))
                .await
                .unwrap();
        }
        assert_eq!(memory.summarise(&alice(), STUCK).await.unwrap(), 0);
        assert_eq!(s.summarizer.calls().len(), 0);
        assert_eq!(
            items(&memory, &alice())
                .await
                .iter()
                .filter(|item| item.folded)
                .count(),
            0
        );
        memory.close(STUCK).await;
    }
}
