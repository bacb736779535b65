//! One flight: the store, else the handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use helmdeck_core::context::Stale;
use helmdeck_core::manifest::SingleFlight;
use helmdeck_core::{Code, Error, NotKept, Result};
use helmdeck_memory::Lock;
use tower::ServiceExt as _;

use super::InnerService;
use super::lookup::Lookup;
use crate::cache::answer::Answer;
use crate::cache::backoff::{BackoffKey, HeldBack, is_trouble};
use crate::cache::cluster_lock::{Attempt, LockWaiter};
use crate::cache::flight::{Completed, Detail, Flight, How, Purpose};
use crate::cache::hub::Hub;

/// Runs a flight and completes it: its answer is kept, then its waiters get it.
pub(super) async fn run<S: InnerService>(lookup: Lookup<S>, purpose: Purpose, flight: Arc<Flight>) {
    let (cache, located) = (Arc::clone(&lookup.cache), Arc::clone(&lookup.located));
    // Other processes wait for it until the answer is stored, or the flight ends without one.
    let mut lock = None;
    // A flight must always complete, or its waiters would wait forever.
    let result = AssertUnwindSafe(answer(lookup, purpose, &flight, &mut lock))
        .catch_unwind()
        .await;
    let result =
        result.unwrap_or_else(|_| Err(Error::new(Code::Internal, "the run of the pack was lost")));
    // Before the answer goes out: a command may end with it.
    if let Ok(Completed {
        detail: Detail {
            not_kept: Some(why),
            ..
        },
        ..
    }) = &result
    {
        let Hub {
            refusals,
            system,
            clock,
            config,
            ..
        } = &*cache.hub;
        refusals
            .note(
                located.location.key,
                *why,
                system.as_ref(),
                &**clock,
                config.read_budget,
            )
            .await;
    }
    let now = cache.hub.clock.now();
    cache
        .hub
        .flights
        .complete(&flight, result, |completed| match completed.how {
            How::Stored | How::Stale | How::Covered => {
                let warmed = cache.hub.hot.warm(&completed.answer);
                warmed.then_some(()).ok_or(NotKept::Because("purged"))
            }
            How::Ran | How::Confirmed => cache.keep(&located, &completed.answer, now, lock.take()),
        });
}

/// Finds the answer of a flight: from the store, else by calling the inner service.
///
/// The store is not read again if it was read already.
async fn answer<S: InnerService>(
    mut lookup: Lookup<S>,
    purpose: Purpose,
    flight: &Arc<Flight>,
    lock: &mut Option<Lock>,
) -> Result<Completed> {
    let detail = Detail::default();
    let revalidates = lookup.cache.spec()?.revalidate;
    if purpose == Purpose::Refresh {
        // What is stored may only be confirmed.
        if revalidates && lookup.known.is_none() {
            lookup.known = lookup
                .look()
                .await
                .map(|(answer, _)| answer)
                .or(lookup.known);
        }
    } else if purpose == Purpose::Answer
        && !lookup.looked
        && let Some((answer, how)) = lookup.look().await
    {
        return Ok(Completed {
            answer,
            how,
            detail,
        });
    }
    if lookup.cache.spec()?.single_flight == SingleFlight::Cluster
        && purpose != Purpose::Refresh
        && let Some(answer) = wait_for_cluster(&mut lookup, lock).await
    {
        return Ok(Completed {
            answer,
            how: How::Stored,
            detail,
        });
    }
    let detail = Detail {
        reason: lookup.missed,
        ..detail
    };
    let Lookup {
        cache,
        inner,
        mut call,
        located,
        known,
        ..
    } = lookup;
    let known = match known {
        Some(known) if cache.may_still_use(&known, &call) && cache.has_files(&known).await => {
            Some(known)
        }
        _ => None,
    };
    if revalidates {
        call.stage.stale = known.as_ref().and_then(|known| {
            known.extras().validator.clone().map(|validator| Stale {
                output: known.output.clone(),
                validator,
            })
        });
    }
    // Only what the manifest allows to all its waiters: each applies its own `stale-if-error`
    // itself.
    let covers =
        |known: &Arc<Answer>| cache.may_cover(known, cache.stale_if_error(), cache.hub.clock.now());
    let covered = purpose != Purpose::Refresh && known.as_ref().is_some_and(covers);
    let covered_by = BackoffKey::answer(&located.location.key).0;
    // A failed renewal is covered as well: its answer was served already.
    call.stage.covered_by = (covered || purpose == Purpose::Renew).then_some(covered_by);
    // No caller owns the flight: the handler's timeout bounds it, and each waiter keeps its own
    // deadline.
    (call.deadline, call.cancel) = (None, None);
    call.progress = Some(Arc::clone(flight) as _);

    let clock = Arc::clone(&cache.hub.clock);
    let started = clock.monotonic();
    let result = inner.oneshot(call).await;
    let (cost, now) = (clock.monotonic().saturating_sub(started), clock.now());
    if result.is_ok() {
        cache.took(cost);
    }
    match (result, known) {
        (Ok(outcome), Some(known)) if outcome.remark.not_modified => {
            let (answer, not_kept) = cache.renewed_answer(&known, outcome.remark, now)?;
            Ok(Completed {
                answer,
                how: How::Confirmed,
                detail: Detail { not_kept, ..detail },
            })
        }
        (Ok(outcome), _) => {
            let (answer, not_kept) = cache.new_answer(&located, outcome, now, cost).await?;
            Ok(Completed {
                answer,
                how: How::Ran,
                detail: Detail { not_kept, ..detail },
            })
        }
        (Err(error), Some(answer)) if covered && is_trouble(&error) => {
            let reason = HeldBack::reason(&error);
            if reason.is_none() {
                tracing::warn!(pack.name = %located.location.pack, code = error.code().as_str(), cause = error.cause(), "the handler failed; a stale answer is served");
            }
            Ok(Completed {
                answer,
                how: How::Covered,
                detail: Detail::of_failure(&error),
            })
        }
        (Err(error), _) => match cache.error_answer(&located, &error, now, cost).await {
            Some(answer) => Ok(Completed {
                answer,
                how: How::Ran,
                detail,
            }),
            None => Err(error),
        },
    }
}

/// Waits while another process runs for this key. Returns the answer that it stored.
///
/// Returns `None` if this process must run. The lock is then in `lock`, if this process got it.
async fn wait_for_cluster<S: InnerService>(
    lookup: &mut Lookup<S>,
    lock: &mut Option<Lock>,
) -> Option<Arc<Answer>> {
    let mut lock_waiter = LockWaiter::join(
        &lookup.cache.hub,
        &lookup.located.location.key,
        lookup.cache.manifest.timeout,
    );
    loop {
        let attempt = lock_waiter.wait().await;
        if matches!(attempt, Attempt::GaveUp) {
            return None;
        }
        // With the lock too: its previous holder may have stored an answer.
        if let Some((answer, How::Stored)) = lookup.look().await {
            lock_waiter.leave("found");
            return Some(answer);
        }
        if let Attempt::Acquired(taken) = attempt {
            *lock = Some(taken);
            lock_waiter.leave("ran");
            return None;
        }
    }
}
