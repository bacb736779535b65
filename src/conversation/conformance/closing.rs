//! Test cases about the end: case 10 of the reference, W15.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::{Duration, Instant};

use super::eventually;
use super::fixture::{Fixture, METHODS, STUCK, add, alice, call, numbers, seen};
use super::scripted_summarizer::Action;
use crate::Identity;
use crate::error::ConversationError;
use crate::health::Health;
use crate::views::ConversationFilter;

/// Reference suite: `Close_Idempotent` and `AfterClose_OperationsError`.
///
/// `Closed` comes before any other error, and without an event.
pub(super) async fn after_close_everything_answers_closed(s: Fixture) {
    let memory = s.open();
    let clone = memory.clone();
    add(&memory, &alice(), 0..2).await;
    memory.close(STUCK).await;
    memory.close(STUCK).await;
    clone.close(Duration::ZERO).await;
    let (reads, writes) = (s.faults.reads(), s.faults.writes());
    for method in METHODS {
        for identity in [alice(), Identity::new("", "", "")] {
            let refused = call(&clone, method, &identity).await;
            assert!(
                matches!(refused, Err(ConversationError::Closed)),
                "{method}: {refused:?}"
            );
        }
    }
    let refused = memory
        .list_conversations(&ConversationFilter::default())
        .await;
    assert!(
        matches!(refused, Err(ConversationError::Closed)),
        "{refused:?}"
    );
    assert_eq!(
        (s.faults.reads(), s.faults.writes(), s.events()),
        (reads, writes, vec![])
    );
    // The store has another owner: it stays open.
    let expected = if s.strategy == crate::Strategy::None {
        0
    } else {
        2
    };
    assert_eq!(seen(&s.another().open(), &alice()).await.len(), expected);
}

/// Case 10, W15: a summarizer that hangs delays no caller, and its request is dropped at once.
pub(super) async fn close_does_not_wait_for_a_summarizer_that_hangs(s: Fixture) {
    s.summarizer.always(Action::Hang);
    let memory = s.open_with(|config| config.summarizer.timeout = STUCK * 60);
    let other = Identity {
        tenant: "tenant-c".into(),
        ..alice()
    };
    for identity in [alice(), other] {
        add(&memory, &identity, 0..9).await;
    }
    s.summarizer.reached(2).await;
    let folding = tokio::spawn({
        let memory = memory.clone();
        async move { memory.summarise(&alice(), STUCK * 60).await }
    });
    let started = Instant::now();
    tokio::time::timeout(STUCK, memory.close(STUCK * 60))
        .await
        .unwrap();
    assert!(started.elapsed() < STUCK);
    eventually("the requests to be dropped", async || {
        s.summarizer.running() == 0
    })
    .await;
    assert_eq!(s.summarizer.cancelled(), 2);
    tokio::time::timeout(STUCK, folding)
        .await
        .unwrap()
        .unwrap()
        .ok();
    assert_eq!(
        s.moves(&alice(), Health::Healthy),
        [],
        "closing is no failure of the summarizer"
    );
    // The next one goes on where this one was.
    let two = s.another();
    let memory = two.open();
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
    super::fixture::fold(&memory, &alice()).await;
    assert_eq!(
        memory.context(&alice()).await.unwrap().summary,
        "[0][1][2][3][4]"
    );
    assert_eq!(seen(&memory, &alice()).await, numbers(0..9));
}

/// Nothing is asked or written after a close, though much was due.
pub(super) async fn nothing_goes_on_after_a_close(s: Fixture) {
    s.summarizer.always(Action::Slow(Duration::from_millis(1)));
    let memory = s.open_with(|config| config.sweep_interval = Duration::from_millis(5));
    for session in 0..10 {
        let identity = Identity {
            session: format!("s{session}").into(),
            ..alice()
        };
        add(&memory, &identity, 0..20).await;
    }
    memory.close(STUCK).await;
    // A request that was dropped may take a moment to hear of it.
    eventually("the requests to be dropped", async || {
        s.summarizer.running() == 0
    })
    .await;
    let (calls, writes) = (s.summarizer.calls().len(), s.faults.writes());
    // Long enough for a sweep and a batch, if there were any.
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(
        (s.summarizer.calls().len(), s.faults.writes()),
        (calls, writes)
    );
    let memory = s.another().open();
    for session in 0..10 {
        let identity = Identity {
            session: format!("s{session}").into(),
            ..alice()
        };
        assert_eq!(seen(&memory, &identity).await, numbers(0..20));
    }
}
