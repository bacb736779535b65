//! One run of a flight: the store, else the handler.

use std::sync::Arc;

use bytes::Bytes;
use helmdeck_core::context::Stale;
use helmdeck_core::manifest::SingleFlight;
use helmdeck_core::{Call, Error, Json, Outcome, Result};
use helmdeck_memory::Lock;
use tower::{Service, ServiceExt as _};

use super::{Lookup, has_files, look, wait_for_cluster};
use crate::cache::answer::Answer;
use crate::cache::flight::{Completed, Flight, How, Purpose};

/// What to do when a flight completes.
#[derive(Default)]
pub(super) struct Completion {
    /// The answer may be stored.
    pub(super) keep: bool,
    /// Lock that other processes wait for. It is held until the answer is stored, or the flight ends without one.
    pub(super) lock: Option<Lock>,
}

/// Runs a flight: reads the store, unless it was read already, else calls the inner service.
pub(super) async fn run<S>(
    mut lookup: Lookup<S>,
    purpose: Purpose,
    flight: &Arc<Flight>,
    completion: &mut Completion,
) -> Result<Completed>
where
    S: Service<Call, Response = Outcome, Error = Error>,
{
    if matches!(purpose, Purpose::Answer { .. })
        && !lookup.looked
        && let Some((answer, how)) = look(&mut lookup).await
    {
        return Ok(Completed { answer, how });
    }
    if lookup.cache.spec()?.single_flight == SingleFlight::Cluster
        && purpose != Purpose::Refresh
        && let Some(answer) = wait_for_cluster(&mut lookup, &mut completion.lock).await
    {
        return Ok(Completed { answer, how: How::Stored });
    }
    let Lookup { cache, inner, mut call, located, known, .. } = lookup;
    let known = match known {
        Some(known) if cache.may_still_use(&known, &call) && has_files(&cache, &known).await => Some(known),
        _ => None,
    };
    if cache.spec()?.revalidate && purpose != Purpose::Refresh {
        call.stage.stale = known.as_ref().and_then(|known| {
            known.validator.clone().map(|validator| Stale { output: known.output.clone(), validator })
        });
    }
    // No caller owns the flight: the handler's timeout bounds it, and each waiter keeps its own deadline.
    (call.deadline, call.cancel) = (None, None);
    call.progress = Some(Arc::clone(flight) as _);

    let clock = Arc::clone(&cache.hub.clock);
    let started = clock.monotonic();
    let result = inner.oneshot(call).await;
    let (cost, now) = (clock.monotonic().saturating_sub(started), clock.now());
    match (result, known) {
        (Ok(outcome), Some(known)) if outcome.remark.not_modified => {
            completion.keep = true;
            let answer = known.renewed(
                outcome.remark.validator,
                cache.times(now, &known.artifacts, outcome.remark.confirm_always || known.confirm_always)?,
                &outcome.remark.used,
            );
            Ok(Completed { answer: Arc::new(answer), how: How::Confirmed })
        }
        (Ok(mut outcome), _) => {
            let refusal = match cache.refusal(&outcome) {
                None if !cache.is_unchanged(&located.contract).await => Some("program_changed"),
                refusal => refusal,
            };
            match refusal {
                Some(reason) => cache.hub.metrics.refused(reason),
                None => {
                    completion.keep = true;
                    // Copied, because a handler's buffer may be much larger than what it wrote, and the hot tier counts this.
                    outcome.output = Json::from_trusted(Bytes::copy_from_slice(outcome.output.bytes()));
                }
            }
            let times = cache.times(now, &outcome.artifacts, outcome.remark.confirm_always)?;
            let upstream_calls = outcome.remark.upstream_calls;
            let answer = Answer::new(Arc::clone(&located.location), &outcome, times, cost, upstream_calls);
            Ok(Completed { answer: Arc::new(answer), how: How::Ran })
        }
        (Err(error), Some(known)) if cache.may_cover(&known, &error, now) => {
            tracing::warn!(pack.name = %located.location.pack, code = error.code().as_str(), cause = error.cause(), "the handler failed; a stale answer is served");
            Ok(Completed { answer: known, how: How::Stale })
        }
        (Err(error), _) => Err(error),
    }
}
