//! Answers a repeat of the exact same bytes from the hot tier, before anything is parsed.
//!
//! The layer is outside `validate_input` and exists only together with `cache`, which stores what
//! it finds. A purge, an expiry, a changed grant or credential, or a replaced pack drops it.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use helmdeck_core::call::Raw;
use helmdeck_core::{CacheStatus, Call, Directive, Error, Outcome, Result};
use tower::{Layer, Service};

use super::{AnswerNow, Answered, answer};
use crate::cache::counters::Saved;
use crate::cache::freshness::Freshness;
use crate::cache::pack::PackCache;

/// Recalls answers of one pack.
#[derive(Clone)]
pub(crate) struct RecallLayer(pub(crate) Arc<PackCache>);

impl<S> Layer<S> for RecallLayer {
    type Service = Recall<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Recall {
            inner,
            cache: Arc::clone(&self.0),
        }
    }
}

/// The service of [`RecallLayer`].
#[derive(Clone)]
pub(crate) struct Recall<S> {
    inner: S,
    cache: Arc<PackCache>,
}

impl<S: Service<Call, Response = Outcome, Error = Error>> Service<Call> for Recall<S> {
    type Response = Outcome;
    type Error = Error;
    type Future = Answered<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        // It was looked for before, if the bytes are noted.
        let recalled = if call.stage.raw.is_none() {
            self.answer_now(&mut call)
        } else {
            None
        };
        match recalled {
            Some(result) => answer(result),
            None => Either::Right(self.inner.call(call)),
        }
    }
}

impl<S> AnswerNow for Recall<S> {
    fn answer_now(&self, call: &mut Call) -> Option<Result<Outcome>> {
        // Before the look-up, so that nothing found is remembered for grants that are newer than
        // it.
        let secrets = self.cache.grants_generation();
        let recalled = recall(&self.cache, call, secrets);
        if recalled.is_none() {
            call.stage.raw = Some(Raw {
                input: call.input.clone(),
                secrets,
            });
        }
        recalled
    }
}

fn recall(cache: &PackCache, call: &Call, secrets: u64) -> Option<Result<Outcome>> {
    // A calling pack must record the grants too, and they are not resolved here.
    let is_asked_for_grants =
        call.stage.called_by.is_some() && !cache.manifest.credentials.is_empty();
    // The files of a program are checked by `cache`, off the runtime.
    if cache.program.is_some()
        || call.directive != Directive::Default
        || call.behind
        || is_asked_for_grants
        || cache.would_leak(call)
    {
        return None;
    }
    let found = cache
        .hub
        .hot
        .recall(&cache.alias(call, &call.input, secrets)?)?;
    let now = cache.hub.clock.now();
    if cache.hub.was_suspended() {
        return None;
    }
    // Artifacts may be gone, and an early renewal may be due: `cache` sees to that.
    if !found.extras().artifacts.is_empty()
        || cache.freshness(&found, call, now) != Freshness::Fresh
        || cache.is_near_its_end(&found, now)
    {
        return None;
    }
    cache.counters.answered(CacheStatus::Hit);
    cache.counters.saved(Saved {
        time: found.cost(),
        upstream_calls: found.upstream_calls,
    });
    Some(found.outcome(CacheStatus::Hit, now, cache.bounds(&found).0))
}
