//! Tests of all moves in the health table. Health events come from these moves only.

use helmdeck_events::{Bus, EventKind};
use helmdeck_testkit::{ManualClock, sealed_memory};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::config::Config;
use crate::conformance::REASONS;
use crate::error::ConversationError;
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::memory::{ConversationMemory, Dependencies};

/// Every legal move, and no other: from, to, why.
fn legal() -> Vec<(Health, Health, Reason)> {
    use {Health as H, Reason as R};
    let mut legal = vec![
        (H::Healthy, H::Healthy, R::SummarizerSucceeded),
        (H::Healthy, H::Retry, R::SummarizerFailed),
        (H::Retry, H::Retry, R::SummarizerFailed),
        (H::Retry, H::Healthy, R::SummarizerSucceeded),
        (H::Retry, H::Degraded, R::RetriesExhausted),
        (H::Degraded, H::Degraded, R::RetriesExhausted),
        (H::Degraded, H::Recovering, R::RecoveryLoopAttempt),
        (H::Recovering, H::Recovering, R::RecoveryLoopAttempt),
        (H::Recovering, H::Healthy, R::RecoveryLoopDrained),
        (H::Recovering, H::Degraded, R::RecoveryBatchFailed),
        (H::Recovering, H::Degraded, R::RecoveryBatchDrained),
        (H::Recovering, H::Degraded, R::RetriesExhausted),
    ];
    for state in H::ALL {
        legal.extend([
            (state, H::Healthy, R::Flushed),
            (state, H::Healthy, R::Restored),
        ]);
    }
    legal
}

#[test]
fn the_table_of_moves_is_exactly_this() {
    let legal = legal();
    let mut count = 0;
    for from in Health::ALL {
        for to in Health::ALL {
            for reason in REASONS {
                let expected = legal.contains(&(from, to, reason));
                assert_eq!(
                    from.allows(to, reason),
                    expected,
                    "{from} to {to} for {}",
                    reason.as_str()
                );
                count += 1;
            }
        }
    }
    assert_eq!((count, legal.len()), (4 * 4 * 9, 20));
}

/// The reference's table (1.7), by states only.
///
/// What it allows is allowed here; what it refuses is refused but for flush and restore.
#[test]
fn the_moves_of_the_reference_are_all_there() {
    let reference = [
        ("healthy", "retry", "summarizer_failed"),
        ("retry", "healthy", "summarizer_succeeded"),
        ("retry", "degraded", "retries_exhausted"),
        ("degraded", "recovering", "recovery_loop_attempt"),
        ("recovering", "healthy", "recovery_loop_drained"),
        ("recovering", "degraded", "recovery_batch_failed"),
        ("recovering", "degraded", "recovery_batch_drained"),
        ("recovering", "degraded", "retries_exhausted"),
    ];
    for (from, to, why) in reference {
        let state = |name| {
            Health::ALL
                .into_iter()
                .find(|health| health.as_str() == name)
                .unwrap()
        };
        let reason = REASONS
            .into_iter()
            .find(|reason| reason.as_str() == why)
            .unwrap();
        assert!(state(from).allows(state(to), reason));
    }
    for from in Health::ALL {
        for to in Health::ALL
            .into_iter()
            .filter(|to| *to != from && *to != Health::Healthy)
        {
            let known = reference
                .iter()
                .any(|(a, b, _)| (*a, *b) == (from.as_str(), to.as_str()));
            let here = REASONS.into_iter().any(|reason| from.allows(to, reason));
            assert_eq!(known, here, "{from} to {to}");
        }
    }
}

#[tokio::test]
async fn forbidden_transitions_publish_nothing() {
    let clock = Arc::new(ManualClock::default());
    let (store, bus) = (
        sealed_memory(Arc::clone(&clock) as _).await,
        Bus::new(1000, Arc::clone(&clock) as _),
    );
    let dependencies = Dependencies {
        store,
        events: bus.clone(),
        clock,
        summarizer: None,
    };
    let memory = ConversationMemory::open(Config::default(), dependencies).unwrap();
    let mut events = bus.subscribe_after(0).unwrap();
    let identity = Identity::new("t", "u", "s");
    let legal = legal();
    for from in Health::ALL {
        for to in Health::ALL {
            for reason in REASONS {
                let done = memory.shared().health_changed(&identity, from, to, reason);
                let event = match std::pin::pin!(events.next())
                    .poll(&mut Context::from_waker(Waker::noop()))
                {
                    Poll::Ready(Some(Ok(event))) => Some(event.kind.clone()),
                    _ => None,
                };
                if let Err(error) = &done {
                    let refused = matches!(error, ConversationError::InvalidHealthTransition { prior, new } if (*prior, *new) == (from, to));
                    assert!(refused, "{error}");
                }
                assert_eq!(done.is_ok(), legal.contains(&(from, to, reason)));
                match event {
                    Some(EventKind::MemoryHealthChanged {
                        prior,
                        new,
                        reason: why,
                        who,
                    }) => {
                        assert!(done.is_ok());
                        assert_eq!(
                            (prior, new, why),
                            (from.as_str(), to.as_str(), reason.as_str())
                        );
                        assert_eq!(who.session.as_deref(), Some("s"));
                    }
                    other => assert!(done.is_err() && other.is_none(), "{other:?}"),
                }
            }
        }
    }
}
