//! Test cases about a summarizer that fails: case 4 of the reference, W1, W2, W6, W7, W16, W31.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use super::eventually;
use super::fixture::{Fixture, add, alice, fold, kept, numbers, recent, seen, sight};
use super::scripted_summarizer::Action;
use crate::health::Health;
use crate::memory::ConversationMemory;
use crate::summarizer::Failure;

async fn reaches(memory: &ConversationMemory, health: Health) {
    eventually(health.as_str(), async || {
        memory.health(&alice()).await.unwrap() == health
    })
    .await;
}

/// Checks that the summaries that were accepted hold these turns once each, in order.
fn summarised(s: &Fixture) -> Vec<String> {
    s.summarizer
        .calls()
        .into_iter()
        .filter(|call| call.answered)
        .flat_map(|call| call.turns)
        .collect()
}

/// Case 4; W1, W2, W7: an outage of ten turns loses nothing.
///
/// No turn is hidden meanwhile, and the summary stays.
pub(super) async fn an_outage_loses_nothing(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..8).await;
    fold(&memory, &alice()).await;
    assert_eq!(
        memory.context(&alice()).await.unwrap().summary,
        "[0][1][2][3]"
    );
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    for number in 8..18 {
        add(&memory, &alice(), number..=number).await;
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(
            sight(&patch),
            numbers(0..=number),
            "everything is in sight, whatever the health"
        );
        assert_eq!(patch.summary, "[0][1][2][3]");
        assert_eq!(patch.goal.as_deref(), Some("[0] is asked"));
    }
    reaches(&memory, Health::Degraded).await;
    let trace = memory.trace(&alice()).await.unwrap();
    assert_eq!((trace.covers_through, trace.backlog_turns), (4, 10));
    assert!(trace.failures >= 3);
    assert_eq!(trace.last_failure.as_deref(), Some("unavailable"));
    assert_eq!(
        sight(&memory.context(&alice()).await.unwrap()),
        numbers(0..18)
    );
    s.summarizer.always(Action::Answer);
    // It recovers by itself.
    reaches(&memory, Health::Healthy).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (super::marks(&patch.summary), recent(&patch)),
        (numbers(0..14), numbers(14..18))
    );
    assert_eq!(
        summarised(&s),
        numbers(0..14),
        "each turn was folded once, in order"
    );
    let trace = memory.trace(&alice()).await.unwrap();
    assert_eq!(
        (trace.failures, trace.backlog_turns, trace.covers_through),
        (0, 0, 14)
    );
    assert_eq!(s.dropped(), []);
    let moves = s.moves_to(&alice(), Health::Healthy).await;
    assert_eq!(moves[0], (Health::Retry, "summarizer_failed"));
    assert!(
        moves.contains(&(Health::Degraded, "retries_exhausted")),
        "{moves:?}"
    );
    assert!(
        moves.contains(&(Health::Recovering, "recovery_loop_attempt")),
        "{moves:?}"
    );
    assert!(
        moves.contains(&(Health::Degraded, "recovery_batch_drained")),
        "{moves:?}"
    );
    assert_eq!(
        moves.last(),
        Some(&(Health::Healthy, "recovery_loop_drained"))
    );
}

/// One failure is not an outage.
pub(super) async fn a_failure_is_tried_again(s: Fixture) {
    s.summarizer.next([Action::Fail(Failure::Timeout)]);
    let memory = s.open();
    add(&memory, &alice(), 0..5).await;
    eventually("the second attempt", async || {
        memory.trace(&alice()).await.unwrap().covers_through == 1
    })
    .await;
    assert_eq!(
        s.moves_to(&alice(), Health::Healthy).await,
        [
            (Health::Retry, "summarizer_failed"),
            (Health::Healthy, "summarizer_succeeded")
        ]
    );
    assert_eq!(seen(&memory, &alice()).await, numbers(0..5));
    assert_eq!(summarised(&s), numbers(0..1));
}

/// Every failure is reported by its name, and none becomes a summary; nor does an empty answer.
pub(super) async fn what_is_no_summary_never_becomes_one(s: Fixture) {
    let ways = [
        (Action::Fail(Failure::Unavailable), "unavailable"),
        (Action::Fail(Failure::Timeout), "timeout"),
        (Action::Fail(Failure::RateLimited), "rate_limited"),
        (Action::Fail(Failure::Credential), "credential"),
        (Action::Fail(Failure::Refused), "refused"),
        (Action::Fail(Failure::TooLong), "too_long"),
        (Action::Fail(Failure::Truncated), "truncated"),
        (Action::Fail(Failure::Garbage), "garbage"),
        (Action::Fail(Failure::Looping), "looping"),
        (Action::Say(String::new()), "garbage"),
        (Action::Say(" \n\t ".to_owned()), "garbage"),
        (Action::Hang, "timeout"),
    ];
    for (act, word) in ways {
        let s = s.another();
        s.summarizer.always(act.clone());
        // Short only where nothing else ends a request: an answer may be a while on its way.
        let timeout = if act == Action::Hang {
            Duration::from_millis(20)
        } else {
            super::fixture::STUCK
        };
        let memory = s.open_with(|config| config.summarizer.timeout = timeout);
        memory.flush(&alice()).await.unwrap();
        add(&memory, &alice(), 0..9).await;
        reaches(&memory, Health::Degraded).await;
        let trace = memory.trace(&alice()).await.unwrap();
        assert_eq!(
            (trace.last_failure.as_deref(), trace.covers_through),
            (Some(word), 0),
            "{act:?}"
        );
        assert_eq!(seen(&memory, &alice()).await, numbers(0..9), "{act:?}");
        s.summarizer.always(Action::Answer);
        reaches(&memory, Health::Healthy).await;
        assert_eq!(seen(&memory, &alice()).await, numbers(0..9), "{act:?}");
        s.moves(&alice(), Health::Healthy);
        memory.close(super::fixture::STUCK).await;
    }
}

/// W31 and the cap: a backlog of many more batches than may wait is summarised oldest first.
///
/// Nothing of it is dropped.
pub(super) async fn a_backlog_over_its_cap_loses_nothing(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open_with(|config| config.recovery_backlog_max = 2);
    add(&memory, &alice(), 0..60).await;
    reaches(&memory, Health::Degraded).await;
    assert_eq!(memory.trace(&alice()).await.unwrap().backlog_turns, 56);
    assert_eq!(seen(&memory, &alice()).await, numbers(0..60));
    // It fails again in the middle, and turns are added all the while.
    s.summarizer.always(Action::Answer);
    let fails = [
        Action::Answer,
        Action::Answer,
        Action::Fail(Failure::TooLong),
        Action::Answer,
        Action::Fail(Failure::Looping),
    ];
    s.summarizer.next(fails);
    for number in 60..70 {
        add(&memory, &alice(), number..=number).await;
        assert_eq!(seen(&memory, &alice()).await, numbers(0..=number));
    }
    fold(&memory, &alice()).await;
    reaches(&memory, Health::Healthy).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (super::marks(&patch.summary), recent(&patch)),
        (numbers(0..66), numbers(66..70))
    );
    assert_eq!((summarised(&s), s.dropped()), (numbers(0..66), vec![]));
    assert_eq!(
        kept(&memory, &alice()).await,
        numbers(0..70),
        "what is folded stays stored"
    );
    s.moves(&alice(), Health::Healthy);
}

/// A degraded conversation drains in more than one batch.
///
/// Each success but the last one goes back to degraded, as the table says.
pub(super) async fn recovery_goes_batch_by_batch(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open();
    add(&memory, &alice(), 0..16).await;
    reaches(&memory, Health::Degraded).await;
    s.summarizer.always(Action::Wait);
    eventually("the attempt", async || s.summarizer.running() == 1).await;
    assert_eq!(
        memory.health(&alice()).await.unwrap(),
        Health::Recovering,
        "it is told before it is tried"
    );
    assert_eq!(seen(&memory, &alice()).await, numbers(0..16));
    s.summarizer.let_go();
    reaches(&memory, Health::Healthy).await;
    let moves = s.moves_to(&alice(), Health::Healthy).await;
    let last: Vec<_> = moves
        .iter()
        .rev()
        .take(5)
        .rev()
        .map(|(_, reason)| *reason)
        .collect();
    let drained = [
        "recovery_batch_drained",
        "recovery_loop_attempt",
        "recovery_batch_drained",
        "recovery_loop_attempt",
    ];
    assert_eq!(
        (&last[..4], last[4]),
        (&drained[..], "recovery_loop_drained")
    );
    assert_eq!(summarised(&s), numbers(0..12));
}

/// Whoever stops a recovery, a command whose time is over or a server that ends, leaves a true
/// health.
pub(super) async fn nobody_leaves_a_recovery_behind(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open();
    add(&memory, &alice(), 0..12).await;
    reaches(&memory, Health::Degraded).await;
    memory.close(super::fixture::STUCK).await;
    let before = s.moves(&alice(), Health::Healthy).last().unwrap().0;
    let stored = async || {
        s.another()
            .open_briefly(|_| ())
            .health(&alice())
            .await
            .unwrap()
    };
    assert_eq!(
        (before, stored().await),
        (Health::Degraded, Health::Degraded)
    );

    let command = s.another();
    command.summarizer.always(Action::Hang);
    // Its time may be over before its first request.
    while command.summarizer.calls().is_empty() {
        let memory = command.open_briefly(|_| ());
        assert_eq!(
            memory
                .summarise(&alice(), Duration::from_millis(100))
                .await
                .unwrap(),
            8
        );
        assert_eq!(
            memory.health(&alice()).await.unwrap(),
            Health::Degraded,
            "it says what it leaves"
        );
        memory.close(super::fixture::STUCK).await;
        assert_eq!(stored().await, Health::Degraded);
    }
    let moves = command.moves(&alice(), before);
    assert_eq!(
        moves.last(),
        Some(&(Health::Degraded, "recovery_batch_failed")),
        "{moves:?}"
    );

    let server = s.another();
    server.summarizer.always(Action::Hang);
    let memory = server.open();
    add(&memory, &alice(), 12..13).await;
    server.summarizer.reached(1).await;
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Recovering);
    memory.close(super::fixture::STUCK).await;
    assert_eq!(stored().await, Health::Degraded);

    let last = s.another();
    let memory = last.open();
    fold(&memory, &alice()).await;
    reaches(&memory, Health::Healthy).await;
    assert_eq!(seen(&memory, &alice()).await, numbers(0..13));
}

/// A tenant whose summaries hang does not delay another one for ever (W15).
///
/// Many conversations are summarised under the limit.
pub(super) async fn conversations_are_folded_side_by_side_and_bounded(s: Fixture) {
    s.summarizer.always(Action::Slow(Duration::from_millis(2)));
    let memory = s.open_with(|config| config.summarizer.concurrency = 3);
    let all: Vec<_> = (0..20)
        .map(|n| crate::identity::Identity::new(&format!("t{}", n % 4), "u", &format!("s{n}")))
        .collect();
    for identity in &all {
        add(&memory, identity, 0..10).await;
    }
    for identity in &all {
        eventually("all to be folded", async || {
            memory.trace(identity).await.unwrap().covers_through == 6
        })
        .await;
        assert_eq!(seen(&memory, identity).await, numbers(0..10));
    }
    assert!(
        (1..=3).contains(&s.summarizer.most()),
        "{} at once",
        s.summarizer.most()
    );
    assert_eq!(s.summarizer.overlaps(), 0);
}

/// W16: the caller waits for no model, and its cancellation means nothing to the summary.
pub(super) async fn nobody_waits_for_a_summary(s: Fixture) {
    s.summarizer.always(Action::Hang);
    let memory = s.open();
    for number in 0..12 {
        add(&memory, &alice(), number..=number).await;
        assert_eq!(seen(&memory, &alice()).await, numbers(0..=number));
    }
    s.summarizer.reached(1).await;
    memory.estimate_tokens(&alice()).await.unwrap();
    memory.snapshot(&alice()).await.unwrap();
    memory.trace(&alice()).await.unwrap();
    // Callers that go away, at any point.
    let alice = alice();
    for number in 12..40 {
        let adding = memory.add_turn(&alice, super::fixture::turn(number));
        tokio::time::timeout(Duration::from_micros(50 * (number as u64 - 12)), adding)
            .await
            .ok();
    }
    let folding = memory.summarise(&alice, super::fixture::STUCK);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), folding)
            .await
            .is_err()
    );
    assert_eq!(memory.health(&alice).await.unwrap(), Health::Healthy);
    assert_eq!(s.moves(&alice, Health::Healthy), []);
    // The last of those turns may still be in flight; the next writer waits for it.
    add(&memory, &alice, 100..=100).await;
    // Whatever became of them, what is seen is what is kept.
    let seen = seen(&memory, &alice).await;
    assert_eq!(seen, kept(&memory, &alice).await);
    let fresh = s.another().open();
    assert_eq!(super::fixture::seen(&fresh, &alice).await, seen);
}
