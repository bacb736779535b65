//! Test cases about processes that end, at any point: case 6 of the reference, W6.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use super::eventually;
use super::fixture::{Fixture, STUCK, add, alice, fold, kept, numbers, seen, turn};
use super::scripted_summarizer::Action;
use crate::health::Health;
use crate::summarizer::Failure;

/// Simulates the death of a process, as far as the store knows.
///
/// None of its writes reach the store any more, and its locks are free.
async fn die(s: &Fixture, memory: crate::ConversationMemory) {
    s.faults.cut_after(0);
    memory.close(Duration::ZERO).await;
    drop(memory);
    // Locks of the dead are free after their time.
    s.clock.advance(Duration::from_secs(600));
}

/// W6: health, failures, summary and backlog survive a restart in every state.
pub(super) async fn health_survives_a_restart_in_every_state(s: Fixture) {
    let slow = |config: &mut crate::Config| {
        config.summarizer.retry_wait = Duration::from_secs(3600);
        config.summarizer.max_retry_wait = Duration::from_secs(3600);
    };
    // Retry: one failure, and the next attempt is an hour away.
    let one = s.another();
    one.summarizer.next([Action::Answer]);
    one.summarizer.always(Action::Answer);
    let memory = one.open_with(slow);
    add(&memory, &alice(), 0..8).await;
    fold(&memory, &alice()).await;
    one.summarizer.always(Action::Fail(Failure::RateLimited));
    add(&memory, &alice(), 8..9).await;
    one.moves_to(&alice(), Health::Retry).await;
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Retry);
    let trace = memory.trace(&alice()).await.unwrap();
    assert_eq!(
        (trace.failures, trace.last_failure.as_deref()),
        (1, Some("rate_limited"))
    );
    die(&one, memory).await;

    let two = s.another();
    two.summarizer.always(Action::Fail(Failure::Garbage));
    // It makes one attempt only, on request, so that nothing is in flight when it dies.
    let memory = two.open_with(|config| {
        slow(config);
        config.summarizer.max_attempts = 2;
    });
    let after = memory.trace(&alice()).await.unwrap();
    assert_eq!((after.health, after.failures), (Health::Retry, 1));
    assert_eq!(
        (after.summary, after.covers_through, after.kept_turns),
        (trace.summary, 4, 9)
    );
    // Degraded: one more.
    eventually("degraded", async || {
        memory
            .summarise(&alice(), Duration::from_millis(20))
            .await
            .unwrap();
        two.moves(&alice(), Health::Retry) == [(Health::Degraded, "retries_exhausted")]
    })
    .await;
    assert_eq!(memory.trace(&alice()).await.unwrap().failures, 2);
    assert_eq!(seen(&memory, &alice()).await, numbers(0..9));
    die(&two, memory).await;

    let three = s.another();
    three.summarizer.always(Action::Hang);
    let memory = three.open();
    assert!(matches!(
        memory.health(&alice()).await.unwrap(),
        Health::Degraded | Health::Recovering
    ));
    assert_eq!(memory.trace(&alice()).await.unwrap().failures, 2);
    add(&memory, &alice(), 9..10).await;
    // Recovering: it dies in the middle of the attempt.
    let folding = tokio::spawn({
        let memory = memory.clone();
        async move { memory.summarise(&alice(), STUCK).await }
    });
    three.summarizer.reached(1).await;
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Recovering);
    folding.abort();
    die(&three, memory).await;

    let four = s.another();
    let memory = four.open();
    assert_ne!(memory.health(&alice()).await.unwrap(), Health::Retry);
    fold(&memory, &alice()).await;
    eventually("healthy", async || {
        memory.health(&alice()).await.unwrap() == Health::Healthy
    })
    .await;
    assert_eq!(seen(&memory, &alice()).await, numbers(0..10));
    assert_eq!(memory.trace(&alice()).await.unwrap().covers_through, 6);
    // The moves of all four, one after the other, are one chain.
    let end = || {
        [&one, &two, &three, &four]
            .into_iter()
            .fold(Health::Healthy, |at, process| {
                process
                    .moves(&alice(), at)
                    .last()
                    .map_or(at, |(last, _)| *last)
            })
    };
    eventually("the last move to be told", async || {
        end() == Health::Healthy
    })
    .await;
}

/// After a restart, the next process summarises the waiting turns.
///
/// No caller touches the conversation.
pub(super) async fn what_waits_is_folded_after_a_restart(s: Fixture) {
    let one = s.another();
    one.summarizer.always(Action::Hang);
    let memory = one.open();
    add(&memory, &alice(), 0..12).await;
    one.summarizer.reached(1).await;
    die(&one, memory).await;
    let two = s.another();
    let memory = two.open_with(|config| config.sweep_interval = Duration::from_millis(50));
    two.summarizer.reached(1).await;
    eventually("all to be folded", async || {
        memory.trace(&alice()).await.unwrap().covers_through == 8
    })
    .await;
    assert_eq!(seen(&memory, &alice()).await, numbers(0..12));
}

/// A process dies at its n-th write, for every n: the write is done without an answer, or not done.
///
/// An acknowledged turn is stored; another one is stored once or not at all. The health is the
/// former one or the next.
pub(super) async fn a_crash_at_any_write_loses_nothing(s: Fixture) {
    for crash in 0..28 {
        let identity = crate::Identity {
            session: format!("crash-{crash}").into(),
            ..alice()
        };
        let one = s.another();
        let acts = [
            Action::Answer,
            Action::Fail(Failure::Unavailable),
            Action::Fail(Failure::Truncated),
            Action::Answer,
        ];
        one.summarizer
            .next((0..40).map(|n| acts[(n + crash) % 4].clone()));
        let memory = one.open();
        one.faults.cut_after(crash as i64);
        let mut acknowledged = Vec::new();
        let mut tried = 0;
        while tried < 14 {
            let added = memory.add_turn(&identity, turn(tried)).await;
            if added.is_ok() {
                acknowledged.push(tried.to_string());
            }
            tried += 1;
            if one.faults.is_cut() {
                break;
            }
            if tried % 3 == 0 {
                memory
                    .summarise(&identity, Duration::from_millis(20))
                    .await
                    .ok();
            }
        }
        die(&one, memory).await;
        let two = s.another();
        let memory = two.open();
        let health = memory.health(&identity).await.unwrap();
        let moves = one.moves(&identity, Health::Healthy);
        let last = moves.last().map_or(Health::Healthy, |(health, _)| *health);
        // A health change is published after it was stored, so the store may be one ahead.
        let legal = last == health
            || super::fixture::REASONS
                .iter()
                .any(|reason| last.allows(health, *reason));
        assert!(legal, "crash {crash}: published {moves:?}, stored {health}");
        let there = seen(&memory, &identity).await;
        assert_eq!(kept(&memory, &identity).await, there, "crash {crash}");
        let all = numbers(0..there.len());
        assert!(
            there == acknowledged || there == all,
            "crash {crash}: {acknowledged:?} became {there:?}"
        );
        assert!(
            there.len() >= acknowledged.len(),
            "crash {crash}: {acknowledged:?} became {there:?}"
        );
        assert!(there.len() <= tried, "crash {crash}");
        // It goes on as if nothing had been.
        memory.add_turn(&identity, turn("after")).await.unwrap();
        fold(&memory, &identity).await;
        let mut expected = there;
        expected.push("after".to_owned());
        assert_eq!(seen(&memory, &identity).await, expected, "crash {crash}");
        eventually("healthy", async || {
            memory.health(&identity).await.unwrap() == Health::Healthy
        })
        .await;
        memory.close(STUCK).await;
    }
}

/// A process that closes in order loses nothing either, and summarises nothing more.
pub(super) async fn a_restart_changes_nothing(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..9).await;
    fold(&memory, &alice()).await;
    let before = (
        memory.context(&alice()).await.unwrap(),
        memory.trace(&alice()).await.unwrap(),
        memory.snapshot(&alice()).await.unwrap(),
    );
    memory.close(STUCK).await;
    let two = s.another();
    let memory = two.open();
    let after = (
        memory.context(&alice()).await.unwrap(),
        memory.trace(&alice()).await.unwrap(),
        memory.snapshot(&alice()).await.unwrap(),
    );
    assert!(before == after, "a restart changed something");
    assert_eq!(two.summarizer.calls().len(), 0);
    assert_eq!((two.faults.writes(), two.events()), (0, vec![]));
}
