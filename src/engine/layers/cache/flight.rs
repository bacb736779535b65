//! The run of a flight: the store, else the handler.

use std::sync::Arc;

use bytes::Bytes;
use helmdeck_core::context::Stale;
use helmdeck_core::manifest::SingleFlight;
use helmdeck_core::{Call, Error, Json, Outcome, Result};
use helmdeck_memory::Lock;
use tower::{Service, ServiceExt as _};

use super::{Journey, has_files, line_up, look};
use crate::cache::answer::Answer;
use crate::cache::flight::{Flight, How, Landed, Purpose};

/// What a flight leaves behind when it lands.
#[derive(Default)]
pub(super) struct Landing {
    /// The answer may be stored.
    pub(super) keep: bool,
    /// Other processes wait for it: until the answer is stored, or else until the flight is over, however it ends.
    pub(super) lock: Option<Lock>,
}

/// The flight itself: the store, unless it was asked already, else the inner service.
pub(super) async fn aloft<S>(
    mut journey: Journey<S>,
    purpose: Purpose,
    flight: &Arc<Flight>,
    landing: &mut Landing,
) -> Result<Landed>
where
    S: Service<Call, Response = Outcome, Error = Error>,
{
    if matches!(purpose, Purpose::Answer { .. })
        && !journey.looked
        && let Some((answer, how)) = look(&mut journey).await
    {
        return Ok(Landed { answer, how });
    }
    if journey.cache.spec()?.single_flight == SingleFlight::Cluster
        && purpose != Purpose::Refresh
        && let Some(answer) = line_up(&mut journey, &mut landing.lock).await
    {
        return Ok(Landed { answer, how: How::Stored });
    }
    let Journey { cache, inner, mut call, located, known, .. } = journey;
    let known = match known {
        Some(known) if cache.may_still_use(&known, &call) && has_files(&cache, &known).await => Some(known),
        _ => None,
    };
    if cache.spec()?.revalidate && purpose != Purpose::Refresh {
        call.stage.stale = known.as_ref().and_then(|known| {
            known.validator.clone().map(|validator| Stale { output: known.output.clone(), validator })
        });
    }
    // The flight is nobody's alone: its own timeout bounds it, its waiters keep their deadlines to themselves.
    (call.deadline, call.cancel) = (None, None);
    call.progress = Some(Arc::clone(flight) as _);

    let clock = Arc::clone(&cache.hub.clock);
    let started = clock.monotonic();
    let result = inner.oneshot(call).await;
    let (cost, now) = (clock.monotonic().saturating_sub(started), clock.now());
    match (result, known) {
        (Ok(outcome), Some(known)) if outcome.remark.not_modified => {
            landing.keep = true;
            let answer = known.renewed(
                outcome.remark.validator,
                cache.times(now, &known.artifacts, outcome.remark.confirm_always || known.confirm_always)?,
                &outcome.remark.used,
            );
            Ok(Landed { answer: Arc::new(answer), how: How::Confirmed })
        }
        (Ok(mut outcome), _) => {
            let refusal = match cache.refusal(&outcome) {
                None if !cache.is_unchanged(&located.contract).await => Some("program_changed"),
                refusal => refusal,
            };
            match refusal {
                Some(reason) => cache.hub.metrics.refused(reason),
                None => {
                    landing.keep = true;
                    // Copied, because a handler's buffer may be much larger than what it wrote, and the hot tier counts this.
                    outcome.output = Json::from_trusted(Bytes::copy_from_slice(outcome.output.bytes()));
                }
            }
            let times = cache.times(now, &outcome.artifacts, outcome.remark.confirm_always)?;
            let upstream_calls = outcome.remark.upstream_calls;
            let answer = Answer::new(Arc::clone(&located.place), &outcome, times, cost, upstream_calls);
            Ok(Landed { answer: Arc::new(answer), how: How::Ran })
        }
        (Err(error), Some(known)) if cache.may_cover(&known, &error, now) => {
            tracing::warn!(pack.name = %located.place.pack, code = error.code().as_str(), cause = error.cause(), "the handler failed; a stale answer is served");
            Ok(Landed { answer: known, how: How::Stale })
        }
        (Err(error), _) => Err(error),
    }
}
