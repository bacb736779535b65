//! Lookup of one call: hot tier, store, then the flight of its key.
//!
//! This module is the caller's side, in order; the flight itself runs in `run`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use helmdeck_core::trace::SpanKind;
use helmdeck_core::{CacheStatus, Call, Directive, Error, Outcome, Result};

use super::run::run;
use super::serve::{nothing_cached, pass, remember, serve};
use super::{Answered, Boxed, InnerService, answer, permit_age};
use crate::cache::answer::Answer;
use crate::cache::backoff::{UPSTREAM_BACKOFF, is_trouble};
use crate::cache::flight::{Detail, FlightKey, How, Join, Purpose};
use crate::cache::freshness::Freshness;
use crate::cache::key::for_handler;
use crate::cache::pack::{Contract, Located, PackCache};

/// State of one call during its lookup.
#[derive(Clone)]
pub(super) struct Lookup<S> {
    pub(super) cache: Arc<PackCache>,
    pub(super) inner: S,
    pub(super) call: Call,
    pub(super) located: Arc<Located>,
    /// The stale answer of the hot tier or the store.
    pub(super) known: Option<Arc<Answer>>,
    /// Why there is no answer that may be served, as far as is known.
    pub(super) missed: Option<&'static str>,
    /// The store was read already.
    pub(super) looked: bool,
}

/// Looks up the answer of a call: in the hot tier at once, else in the store, else by a flight.
pub(super) fn start<S: InnerService>(
    cache: Arc<PackCache>,
    inner: S,
    mut call: Call,
    contract: Arc<Contract>,
) -> Answered<Boxed> {
    let located = match cache.locate(&call, contract) {
        Ok(located) => located,
        Err(reason) => {
            return Either::Right(Box::pin(pass(
                cache,
                inner,
                call,
                None,
                CacheStatus::Bypass,
                Some(reason),
            )));
        }
    };
    // The handler reads the canonical input of the key: two spellings of a number could give two
    // answers.
    call.input = for_handler(&located.input);
    if call.directive == Directive::Bypass || call.behind {
        let (key, reason) = (Some(located.location.key), call.behind.then_some("behind"));
        return Either::Right(Box::pin(pass(
            cache,
            inner,
            call,
            key,
            CacheStatus::Bypass,
            reason,
        )));
    }
    let found = if cache.hub.was_suspended() {
        None
    } else {
        cache.hub.hot.get(&located.location.key)
    };
    let reads = call.directive != Directive::Refresh;
    if let Some(found) = found
        .as_ref()
        .filter(|found| reads && found.extras().artifacts.is_empty())
    {
        let now = cache.hub.clock.now();
        match cache.freshness(found, &call, now) {
            Freshness::Fresh => {
                remember(&cache, &mut call, found);
                let outcome = serve(&cache, found, CacheStatus::Hit, Detail::default());
                if call.directive == Directive::Default
                    && cache.renews_early(found, now)
                    && cache.held_back(&located, now).is_none()
                {
                    Lookup::of(cache, inner, call, located, Some(Arc::clone(found))).renew();
                }
                return answer(outcome);
            }
            Freshness::StaleAllowed => {
                return answer(serve(&cache, found, CacheStatus::Stale, Detail::default()));
            }
            Freshness::StaleWhileRevalidate => {
                let lookup = Lookup::of(cache, inner, call, located, Some(Arc::clone(found)));
                return answer(lookup.served_while_renewed(found));
            }
            Freshness::Stale | Freshness::Expired => {}
        }
    }
    let missed = if reads {
        found.as_ref().map(|found| cache.why_not(found, &call))
    } else {
        Some("refresh")
    };
    let mut lookup = Lookup {
        missed,
        ..Lookup::of(cache, inner, call, located, found)
    };
    Either::Right(Box::pin(async move {
        let mut span = lookup
            .call
            .correlation
            .begin_span(|| "cache".into(), SpanKind::Internal);
        let outcome = match lookup.call.directive {
            Directive::OnlyIfCached => lookup.only_if_cached().await,
            _ => lookup.run_or_join().await,
        };
        if let (Some(span), Ok(Some(cache))) =
            (&mut span, outcome.as_ref().map(|outcome| outcome.cache))
        {
            span.set("helmdeck.cache.status", cache.status.as_str());
        }
        outcome
    }))
}

impl<S: InnerService> Lookup<S> {
    fn of(
        cache: Arc<PackCache>,
        inner: S,
        call: Call,
        located: Located,
        known: Option<Arc<Answer>>,
    ) -> Self {
        Self {
            cache,
            inner,
            call,
            located: Arc::new(located),
            known,
            missed: None,
            looked: false,
        }
    }

    /// Answers from the hot tier or the store; otherwise the call fails.
    async fn only_if_cached(self) -> Result<Outcome> {
        let Self {
            cache,
            call,
            located,
            known,
            ..
        } = self;
        let epoch = cache.hub.hot.epoch();
        let found = match known {
            Some(known) => Some(known),
            None => cache
                .hub
                .read_traced(
                    &located,
                    cache.read_budget(),
                    call.correlation.trace.as_ref(),
                )
                .await
                .ok()
                .map(Arc::new),
        };
        let found = found.ok_or_else(nothing_cached)?;
        let status = match cache.freshness(&found, &call, cache.hub.clock.now()) {
            Freshness::Fresh => CacheStatus::Hit,
            Freshness::StaleAllowed | Freshness::StaleWhileRevalidate => CacheStatus::Stale,
            Freshness::Stale | Freshness::Expired => return Err(nothing_cached()),
        };
        if !cache.has_files(&found).await {
            return Err(nothing_cached());
        }
        cache.hub.hot.warm_unless_purged(&found, epoch);
        serve(&cache, &found, status, Detail::default())
    }

    /// Answers from the store, else joins or starts the flight of this key.
    ///
    /// It waits for the flight within the caller's own deadline.
    async fn run_or_join(mut self) -> Result<Outcome> {
        let cache = Arc::clone(&self.cache);
        let purpose = match self.call.directive {
            Directive::Refresh => Purpose::Refresh,
            _ => Purpose::Answer,
        };
        let flight = FlightKey {
            key: self.located.location.key,
            purpose,
        };
        // The caller reads the store itself first, because a hit needs no flight, which would cost
        // another task. It also reads before a wait, so that there is an answer to fall back on.
        let window = cache
            .stale_if_error()
            .max(self.call.stale_if_error.unwrap_or_default());
        let falls_back = self.known.is_none() && !window.is_zero();
        if purpose != Purpose::Refresh && (falls_back || !cache.hub.flights.is_in_flight(flight)) {
            let epoch = cache.hub.hot.epoch();
            if let Some((found, how)) = self.look().await {
                cache.hub.hot.warm_unless_purged(&found, epoch);
                return self.served(found, how, Detail::default(), true);
            }
        }
        if let Some(known) = &self.known {
            permit_age(&cache, known, &self.call)?;
        }
        let mut call = self.call.clone();
        let (again, completed, started) = loop {
            let mut again = self.clone();
            let (mut waiter, started) = match self.join(purpose) {
                Join::Answered(found) => {
                    remember(&cache, &mut call, &found);
                    return serve(&cache, &found, CacheStatus::Hit, Detail::default());
                }
                Join::Started(waiter) => (waiter, true),
                Join::Joined(waiter) => (waiter, false),
            };
            let completed = match again.covering(cache.stale_if_error()).await {
                // The flight goes on, and renews the answer.
                Some(known) => match waiter
                    .wait_patiently(&call, cache.spec()?.stale_if_slow)
                    .await
                {
                    Some(completed) => completed,
                    None => {
                        return serve(&cache, &known, CacheStatus::Stale, Detail::of_slow_run());
                    }
                },
                None => waiter.wait_for(&call).await,
            };
            let completed = match completed {
                Ok(completed) => completed,
                Err(error) => return again.fall_back(error, window).await,
            };
            // A flight that read the store for another caller may have found an answer that is too
            // old for this one.
            let read = matches!(completed.how, How::Stored | How::Stale);
            if started || !read || cache.may_serve(&completed.answer, &call) {
                break (again, completed, started);
            }
            again.looked = true;
            self = again;
        };
        let private = completed
            .detail
            .not_kept
            .is_some_and(|why| cache.is_private(why));
        if !started && (private || !cache.may_still_use(&completed.answer, &call)) {
            // The answer belongs to the caller that started the flight: this caller needs its own
            // run.
            let key = completed.answer.location.key;
            return pass(
                cache,
                again.inner,
                call,
                Some(key),
                CacheStatus::Miss,
                Some("of_another"),
            )
            .await;
        }
        again.served(completed.answer, completed.how, completed.detail, started)
    }

    /// Reads the store.
    ///
    /// A stale answer that can be revalidated or used as a fallback is kept in `known`.
    pub(super) async fn look(&mut self) -> Option<(Arc<Answer>, How)> {
        self.looked = true;
        let cache = &self.cache;
        let trace = self.call.correlation.trace.as_ref();
        let found = match cache
            .hub
            .read_traced(&self.located, cache.read_budget(), trace)
            .await
        {
            Ok(found) => {
                cache.took(found.cost());
                Arc::new(found)
            }
            Err(missed) => {
                self.missed = self.missed.or(missed);
                return None;
            }
        };
        let freshness = cache.freshness(&found, &self.call, cache.hub.clock.now());
        let how = match freshness {
            Freshness::Fresh => Some(How::Stored),
            Freshness::StaleAllowed | Freshness::StaleWhileRevalidate => Some(How::Stale),
            Freshness::Stale | Freshness::Expired => None,
        };
        match how {
            Some(how) if cache.has_files(&found).await => return Some((found, how)),
            Some(_) => self.missed = Some("files_gone"),
            None => self.missed = self.missed.or(Some(cache.why_not(&found, &self.call))),
        }
        if freshness != Freshness::Expired
            && self
                .known
                .as_ref()
                .is_none_or(|known| known.made_at <= found.made_at)
        {
            self.known = Some(found);
        }
        None
    }

    /// Joins the flight of this key, or starts it.
    fn join(self, purpose: Purpose) -> Join {
        let hub = Arc::clone(&self.cache.hub);
        let location = Arc::clone(&self.located.location);
        let sink = self.call.progress.clone();
        let recheck = {
            let (cache, call, key, known) = (
                Arc::clone(&self.cache),
                self.call.clone(),
                location.key,
                self.known.clone(),
            );
            move || {
                let found = cache
                    .hub
                    .hot
                    .get(&key)
                    .filter(|found| found.extras().artifacts.is_empty())?;
                let fresh =
                    cache.freshness(&found, &call, cache.hub.clock.now()) == Freshness::Fresh;
                let newer = known
                    .as_ref()
                    .is_none_or(|known| found.made_at > known.made_at);
                (purpose != Purpose::Refresh && fresh && (newer || purpose == Purpose::Answer))
                    .then_some(found)
            }
        };
        let flights = Arc::clone(&hub.flights);
        let flight = FlightKey {
            key: location.key,
            purpose,
        };
        // The flight runs as its own task: it logs under the request that started it.
        let correlation = self.call.correlation.clone();
        flights.join(flight, &location, sink, recheck, move |flight| {
            Box::pin(correlation.scope(run(self, purpose, flight)))
        })
    }

    /// Returns the outcome of an answer.
    ///
    /// It stores the call's bytes as an alias, and revalidates a stale answer.
    fn served(
        mut self,
        found: Arc<Answer>,
        how: How,
        detail: Detail,
        first: bool,
    ) -> Result<Outcome> {
        let status = match (how, first) {
            (How::Stored, _) => CacheStatus::Hit,
            (How::Stale | How::Covered, _) => CacheStatus::Stale,
            (How::Ran, true) => CacheStatus::Miss,
            (How::Confirmed, true) => CacheStatus::Revalidated,
            (How::Ran | How::Confirmed, false) => CacheStatus::Coalesced,
        };
        let cache = Arc::clone(&self.cache);
        match how {
            How::Covered => {}
            How::Stale => {
                let freshness = cache.freshness(&found, &self.call, cache.hub.clock.now());
                if freshness == Freshness::StaleWhileRevalidate {
                    let lookup = Self {
                        known: Some(Arc::clone(&found)),
                        ..self
                    };
                    return lookup.served_while_renewed(&found);
                }
            }
            How::Stored | How::Ran | How::Confirmed => remember(&cache, &mut self.call, &found),
        }
        // Only who ran the handler missed.
        let reason = detail
            .reason
            .filter(|_| !matches!(status, CacheStatus::Coalesced | CacheStatus::Revalidated));
        serve(&cache, &found, status, Detail { reason, ..detail })
    }

    /// Serves a stale answer, and renews it in the background, once per key, unless its upstream is
    /// left alone.
    fn served_while_renewed(self, found: &Answer) -> Result<Outcome> {
        let cache = Arc::clone(&self.cache);
        let retry_after = cache.held_back(&self.located, cache.hub.clock.now());
        if retry_after.is_none() && self.call.directive != Directive::OnlyIfCached {
            self.renew();
        }
        let reason = retry_after.map(|_| UPSTREAM_BACKOFF);
        let detail = Detail {
            reason,
            retry_after,
            not_kept: None,
        };
        serve(&cache, found, CacheStatus::Stale, detail)
    }

    /// Renews the known answer in the background, once per key.
    fn renew(self) {
        drop(self.join(Purpose::Renew));
    }

    /// Returns the stored answer that covers a slow or failing handler, if its files are still
    /// there.
    async fn covering(&self, window: Duration) -> Option<Arc<Answer>> {
        let known = self.known.as_ref()?;
        let covers = self.call.directive != Directive::Refresh
            && self
                .cache
                .may_cover(known, window, self.cache.hub.clock.now())
            && self.cache.may_still_use(known, &self.call)
            && self.cache.has_files(known).await;
        covers.then(|| Arc::clone(known))
    }

    /// Serves a stale answer to a caller whose deadline passed, or that allows it after a failure.
    async fn fall_back(&self, error: Error, window: Duration) -> Result<Outcome> {
        match self.covering(window).await {
            Some(known) if is_trouble(&error) => serve(
                &self.cache,
                &known,
                CacheStatus::Stale,
                Detail::of_failure(&error),
            ),
            _ => Err(error),
        }
    }
}
