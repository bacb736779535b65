//! Test cases about a store that fails: case 8 of the reference, W11.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::eventually;
use super::fixture::{Fixture, add, alice, fold, items, kept, numbers, seen, turn};
use crate::error::ConversationError;
use crate::health::Health;
use crate::turn::NewTurn;

/// Case 8, W11: a write that fails changes nothing, and adding again adds once.
pub(super) async fn a_write_that_fails_changes_nothing(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..3).await;
    let before = (
        memory.context(&alice()).await.unwrap(),
        items(&memory, &alice()).await,
    );
    for _ in 0..3 {
        s.faults.fail_writes(100);
        let refused = memory.add_turn(&alice(), turn(3)).await;
        assert!(
            refused.as_ref().is_err_and(ConversationError::is_temporary),
            "{refused:?}"
        );
        assert!(memory.flush(&alice()).await.is_err());
        assert!(
            memory
                .restore(&alice(), &crate::Snapshot::default())
                .await
                .is_err()
        );
        assert!(
            memory
                .delete_turn(&alice(), &before.1[0].key.to_string())
                .await
                .is_err()
        );
        assert!(memory.forget(&alice()).await.is_err());
        s.faults.fail_writes(0);
        let after = (
            memory.context(&alice()).await.unwrap(),
            items(&memory, &alice()).await,
        );
        assert!(before == after, "a failed write changed something");
    }
    assert_eq!(s.events(), [], "nothing happened, so nothing is told");
    let added = add(&memory, &alice(), 3..4).await;
    assert!(!added[0].repeated);
    assert_eq!(
        (seen(&memory, &alice()).await, kept(&memory, &alice()).await),
        (numbers(0..4), numbers(0..4))
    );
    assert_eq!(seen(&s.another().open(), &alice()).await, numbers(0..4));
}

/// The acknowledgement of a write is lost: callers see what is stored.
///
/// A turn with an idempotency key is not added again.
pub(super) async fn a_lost_answer_loses_and_doubles_nothing(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..2).await;
    s.faults.lose_answers(1);
    let named = NewTurn {
        once: Some("n".into()),
        ..turn(2)
    };
    let first = memory.add_turn(&alice(), named.clone()).await;
    s.faults.lose_answers(0);
    // Whether the failure was reported or resolved, the same call again returns the stored turn.
    let again = memory.add_turn(&alice(), named).await.unwrap();
    if let Ok(first) = first {
        assert_eq!(first.id, again.id);
    } else {
        assert!(again.repeated);
    }
    assert_eq!(
        (seen(&memory, &alice()).await, kept(&memory, &alice()).await),
        (numbers(0..3), numbers(0..3))
    );
    // Without a name too what is seen is what is stored, whatever was answered.
    s.faults.lose_answers(1);
    let _ = memory.add_turn(&alice(), turn(3)).await;
    s.faults.lose_answers(0);
    let stored = kept(&s.another().open(), &alice()).await;
    assert_eq!(seen(&memory, &alice()).await, stored);
    add(&memory, &alice(), 4..5).await;
    assert_eq!(seen(&memory, &alice()).await.len(), stored.len() + 1);
    s.faults.lose_answers(1);
    let _ = memory.flush(&alice()).await;
    s.faults.lose_answers(0);
    assert_eq!(
        seen(&memory, &alice()).await,
        kept(&s.another().open(), &alice()).await
    );
}

pub(super) async fn a_read_that_fails_is_an_error_and_no_empty_conversation(s: Fixture) {
    // A sweep would take the read that is to fail.
    let unswept = s.unswept().await;
    add(&s.open(), &alice(), 0..6).await;
    let two = s.another();
    let memory = two.open();
    two.faults.fail_reads(1);
    let read = memory.context(&alice()).await;
    assert!(read.is_err(), "the read did not fail: {read:?}");
    two.faults.fail_reads(1000);
    assert!(memory.health(&alice()).await.is_err());
    assert!(memory.snapshot(&alice()).await.is_err());
    assert!(
        memory
            .list_turns(&alice(), &crate::TurnFilter::default())
            .await
            .is_err()
    );
    two.faults.fail_reads(0);
    assert_eq!(seen(&memory, &alice()).await, numbers(0..6));
    unswept.release().await.unwrap();
}

/// Polls a future so often and drops it; returns what it answered if it was ready before.
fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(answer) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Some(answer);
        }
        std::thread::yield_now();
    }
    None
}

/// A caller that goes away in the middle of a call leaves nothing half done: reads match the store.
pub(super) async fn a_caller_that_goes_away_leaves_nothing_half_done(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..6).await;
    let mut acknowledged = numbers(0..6);
    for number in 6..60 {
        let times = number % 7;
        let done = match number % 9 {
            3 => poll_times(memory.context(&alice()), times).map(drop),
            5 => poll_times(
                memory.delete_turn(&alice(), "mem_00000000000000ff00000000"),
                times,
            )
            .map(drop),
            7 => poll_times(memory.snapshot(&alice()), times).map(drop),
            _ => {
                let added = poll_times(memory.add_turn(&alice(), turn(number)), times);
                if let Some(Ok(_)) = added {
                    acknowledged.push(number.to_string());
                }
                None
            }
        };
        let _ = done;
        let seen = seen(&memory, &alice()).await;
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|mark| !seen.contains(mark))
            .collect();
        assert!(lost.is_empty(), "{lost:?} were acknowledged and are lost");
    }
    // Writes that were under way when their callers went may still arrive; then all agree.
    add(&memory, &alice(), 100..101).await;
    fold(&memory, &alice()).await;
    let there = seen(&memory, &alice()).await;
    assert_eq!(there, kept(&memory, &alice()).await);
    assert_eq!(there, seen(&s.another().open(), &alice()).await);
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
    assert_eq!(
        s.moves(&alice(), Health::Healthy),
        [],
        "whoever goes away changes no health"
    );
}

/// A summary whose commit fails is committed or made again.
///
/// Nothing is lost and nothing is summarised twice.
pub(super) async fn a_summary_that_cannot_be_stored_is_not_lost(s: Fixture) {
    let memory = s.open_with(|config| config.recent_turns = 2);
    add(&memory, &alice(), 0..2).await;
    for number in 2..20 {
        add(&memory, &alice(), number..=number).await;
        s.faults.fail_writes((number % 4) as i64);
        eventually("the faults to be over", async || {
            memory
                .summarise(&alice(), std::time::Duration::from_millis(50))
                .await
                .is_ok_and(|due| due == 0)
        })
        .await;
        s.faults.fail_writes(0);
        assert_eq!(seen(&memory, &alice()).await, numbers(0..=number));
    }
    assert_eq!(memory.trace(&alice()).await.unwrap().covers_through, 18);
    s.moves(&alice(), Health::Healthy);
}
