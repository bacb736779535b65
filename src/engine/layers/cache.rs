//! Read-through cache layer. It comes right after `validate_input` and before `session`, so a hit starts no session; and outside
//! `validate_output`, so only validated outputs are stored.
//!
//! Order of one call: hot tier, store, then singleflight of the inner service. A failure of the store costs the cache, never
//! the call.

mod run;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use helmdeck_core::{CacheInfo, CacheStatus, Call, Code, Directive, Error, Outcome, Result};
use helmdeck_memory::Lock;
use tower::{Layer, Service, ServiceExt};

use self::run::{Completion, run};
use super::{Answered, answer};
use crate::cache::answer::Answer;
use crate::cache::cluster_lock::{Attempt, LockWaiter};
use crate::cache::counters::Saved;
use crate::cache::flight::{Completed, FlightKey, How, Join, Purpose, Waiter};
use crate::cache::key::{Key, for_handler};
use crate::cache::pack::{Contract, Freshness, Located, PackCache};

/// Caches answers of one pack.
#[derive(Clone)]
pub(crate) struct CacheLayer(pub(crate) Arc<PackCache>);

impl<S> Layer<S> for CacheLayer {
    type Service = CacheService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CacheService { inner, cache: Arc::clone(&self.0) }
    }
}

/// The service of [`CacheLayer`].
#[derive(Clone)]
pub(crate) struct CacheService<S> {
    inner: S,
    cache: Arc<PackCache>,
}

impl<S> Service<Call> for CacheService<S>
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    type Response = Outcome;
    type Error = Error;
    type Future = Answered<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let cache = Arc::clone(&self.cache);
        if let Err(error) = permit(&cache, &call) {
            return answer(Err(error));
        }
        match cache.fixed_contract() {
            Some(contract) => start(cache, self.inner.clone(), call, contract),
            // The files of a program are read off the runtime.
            None => {
                let inner = self.inner.clone();
                Either::Right(Box::pin(async move {
                    let contract = cache.contract().await;
                    start(cache, inner, call, contract).await
                }))
            }
        }
    }
}

fn start<S>(
    cache: Arc<PackCache>,
    inner: S,
    mut call: Call,
    contract: Arc<Contract>,
) -> Answered<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>>
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let located = match cache.locate(&call, contract) {
        Ok(located) => located,
        Err(reason) => {
            return Either::Right(Box::pin(pass(cache, inner, call, None, CacheStatus::Bypass, Some(reason))));
        }
    };
    // The handler reads what the key was made of: of two spellings of a number it might make two answers.
    call.input = for_handler(&located.input);
    if call.directive == Directive::Bypass {
        let key = Some(located.location.key);
        return Either::Right(Box::pin(pass(cache, inner, call, key, CacheStatus::Bypass, None)));
    }
    let reads = call.directive != Directive::Refresh;
    let found = if reads { cache.hub.hot(&located.location.key) } else { None };
    if let Some(found) = found.as_ref().filter(|found| found.artifacts.is_empty()) {
        match cache.freshness(found, &call, cache.hub.clock.now()) {
            Freshness::Fresh => {
                remember(&cache, &mut call, found);
                return answer(Ok(serve(&cache, found, CacheStatus::Hit)));
            }
            Freshness::StaleAllowed => return answer(Ok(serve(&cache, found, CacheStatus::Stale))),
            Freshness::StaleWhileRevalidate => {
                let outcome = serve(&cache, found, CacheStatus::Stale);
                if call.directive != Directive::OnlyIfCached {
                    let known = Some(Arc::clone(found));
                    renew(Lookup { cache, inner, call, located: Arc::new(located), known, looked: false });
                }
                return answer(Ok(outcome));
            }
            Freshness::Stale | Freshness::Expired => {}
        }
    }
    let lookup = Lookup { cache, inner, call, located: Arc::new(located), known: found, looked: false };
    Either::Right(Box::pin(async move {
        match lookup.call.directive {
            Directive::OnlyIfCached => only_if_cached(lookup).await,
            _ => run_or_join(lookup).await,
        }
    }))
}

/// State of one call during its lookup.
#[derive(Clone)]
struct Lookup<S> {
    cache: Arc<PackCache>,
    inner: S,
    call: Call,
    located: Arc<Located>,
    /// The stale answer of the hot tier or the store.
    known: Option<Arc<Answer>>,
    /// The store was read already.
    looked: bool,
}

/// The operator may forbid directives per scope.
fn permit(cache: &PackCache, call: &Call) -> Result<()> {
    let scope = cache.spec()?.scope;
    let forbidden = cache.hub.config.forbid_directives.get(&scope);
    if call.directive != Directive::Default
        && forbidden.is_some_and(|names| names.iter().any(|name| name == call.directive.as_str()))
    {
        let message = format!(
            "the operator does not allow the cache directive \"{}\" for packs of scope \"{}\"",
            call.directive.as_str(),
            scope.as_str()
        );
        return Err(Error::new(Code::Forbidden, message));
    }
    Ok(())
}

/// Runs the inner service without reading or writing anything.
async fn pass<S>(
    cache: Arc<PackCache>,
    inner: S,
    call: Call,
    key: Option<Key>,
    status: CacheStatus,
    reason: Option<&'static str>,
) -> Result<Outcome>
where
    S: Service<Call, Response = Outcome, Error = Error>,
{
    if call.directive == Directive::OnlyIfCached {
        return Err(nothing_cached());
    }
    let ttl = cache.spec()?.ttl;
    let mut outcome = inner.oneshot(call).await?;
    let key = key.map_or([0; 8], |key| key.short());
    outcome.cache = Some(CacheInfo { status, age: Duration::ZERO, ttl, key, store_error: None, reason });
    cache.counters.answered(status);
    Ok(outcome)
}

fn nothing_cached() -> Error {
    Error::new(Code::CacheMiss, "there is no cached answer that may be served, and the call asked for nothing else")
}

/// Makes an outcome of an answer, and counts what it saved.
fn serve(cache: &PackCache, found: &Answer, status: CacheStatus) -> Outcome {
    cache.counters.answered(status);
    let saved = match status {
        CacheStatus::Hit | CacheStatus::Stale | CacheStatus::Coalesced => Some(found.cost),
        // A confirmation took a round trip; what it saved is the quota.
        CacheStatus::Revalidated => Some(Duration::ZERO),
        CacheStatus::Miss | CacheStatus::Bypass => None,
    };
    if let Some(time) = saved {
        cache.counters.saved(Saved { time, upstream_calls: found.upstream_calls });
    }
    let mut outcome = found.outcome(status, cache.hub.clock.now());
    if let Some(info) = &mut outcome.cache {
        info.ttl = cache.bounds(found).0.since(found.made_at);
    }
    if let (CacheStatus::Miss | CacheStatus::Coalesced, Some(info)) = (status, &mut outcome.cache) {
        info.store_error = cache.hub.store_trouble();
    }
    outcome
}

/// Remembers the call's own bytes, so that `recall` answers the next one.
fn remember(cache: &PackCache, call: &mut Call, found: &Arc<Answer>) {
    if let Some(raw) = call.stage.raw.take() {
        cache.hub.remember(cache.alias(call, raw), found);
    }
}

/// Answers from the hot tier or the store, or not at all.
async fn only_if_cached<S>(lookup: Lookup<S>) -> Result<Outcome> {
    let Lookup { cache, call, located, known, .. } = lookup;
    let epoch = cache.hub.epoch();
    let found = match known {
        Some(known) => Some(known),
        None => cache.hub.read(&located.location, &located.contract.hex).await.map(Arc::new),
    };
    let found = found.ok_or_else(nothing_cached)?;
    let status = match cache.freshness(&found, &call, cache.hub.clock.now()) {
        Freshness::Fresh => CacheStatus::Hit,
        Freshness::StaleAllowed | Freshness::StaleWhileRevalidate => CacheStatus::Stale,
        Freshness::Stale | Freshness::Expired => return Err(nothing_cached()),
    };
    if !has_files(&cache, &found).await {
        return Err(nothing_cached());
    }
    cache.hub.warm_unless_purged(&found, epoch);
    Ok(serve(&cache, &found, status))
}

async fn has_files(cache: &PackCache, found: &Answer) -> bool {
    match &cache.artifacts {
        _ if found.artifacts.is_empty() => true,
        _ if cache.is_of_one(&found.artifacts) => false,
        Some(store) => store.all_exist(&found.artifacts).await,
        None => false,
    }
}

/// Answers from the store, else joins or starts the flight of this key and waits for it within the caller's own deadline.
async fn run_or_join<S>(mut lookup: Lookup<S>) -> Result<Outcome>
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let cache = Arc::clone(&lookup.cache);
    let purpose = match lookup.call.directive {
        Directive::Refresh => Purpose::Refresh,
        _ => Purpose::Answer { max_age: lookup.call.max_age, max_stale: lookup.call.max_stale },
    };
    let flight = FlightKey { key: lookup.located.location.key, purpose };
    // The caller reads the store itself first: a hit needs no flight, which would be one task more.
    // It also reads before a wait with a deadline, so that there is an answer to fall back on.
    let falls_back = lookup.known.is_none() && lookup.call.deadline.is_some() && cache.covers_errors();
    if purpose != Purpose::Refresh && (falls_back || !cache.hub.flights.is_in_flight(flight)) {
        let epoch = cache.hub.epoch();
        if let Some((found, how)) = look(&mut lookup).await {
            cache.hub.warm_unless_purged(&found, epoch);
            return Ok(served(lookup, found, how, true));
        }
    }
    let mut call = lookup.call.clone();
    let again = lookup.clone();
    let (mut waiter, started) = match join(lookup, purpose) {
        Join::Answered(found) => {
            remember(&cache, &mut call, &found);
            return Ok(serve(&cache, &found, CacheStatus::Hit));
        }
        Join::Started(waiter) => (waiter, true),
        Join::Joined(waiter) => (waiter, false),
    };
    let completed = match wait(&mut waiter, &call).await {
        Ok(completed) => completed,
        Err(error) => return fall_back(&again, error).await,
    };
    if !started && (cache.is_of_one(&completed.answer.artifacts) || !cache.may_still_use(&completed.answer, &call)) {
        // The files or the credentials belong to the caller that started the flight: this caller needs its own run.
        let key = completed.answer.location.key;
        return pass(cache, again.inner, call, Some(key), CacheStatus::Miss, None).await;
    }
    Ok(served(again, completed.answer, completed.how, started))
}

/// Serves a stale answer to a caller whose deadline passed, if there is one within `stale_if_error`.
async fn fall_back<S>(lookup: &Lookup<S>, error: Error) -> Result<Outcome> {
    let cache = &lookup.cache;
    let covers = |known: &Arc<Answer>| {
        cache.may_cover(known, &error, cache.hub.clock.now()) && cache.may_still_use(known, &lookup.call)
    };
    let known = lookup.known.as_ref().filter(|_| error.code() == Code::Timeout).filter(|known| covers(known));
    match known {
        Some(known) if has_files(cache, known).await => Ok(serve(cache, known, CacheStatus::Stale)),
        _ => Err(error),
    }
}

/// Reads the store. An answer that is stale, but may be revalidated or fallen back on, is kept in the lookup.
async fn look<S>(lookup: &mut Lookup<S>) -> Option<(Arc<Answer>, How)> {
    lookup.looked = true;
    let cache = &lookup.cache;
    let found = Arc::new(cache.hub.read(&lookup.located.location, &lookup.located.contract.hex).await?);
    let freshness = cache.freshness(&found, &lookup.call, cache.hub.clock.now());
    let how = match freshness {
        Freshness::Fresh => Some(How::Stored),
        Freshness::StaleAllowed | Freshness::StaleWhileRevalidate => Some(How::Stale),
        Freshness::Stale | Freshness::Expired => None,
    };
    if let Some(how) = how
        && has_files(cache, &found).await
    {
        return Some((found, how));
    }
    if freshness != Freshness::Expired && lookup.known.as_ref().is_none_or(|known| known.made_at <= found.made_at) {
        lookup.known = Some(found);
    }
    None
}

/// Waits while another process runs for this key. Returns the answer that it stored. Else puts the lock, if it got it, into
/// `lock`: then this process runs.
async fn wait_for_cluster<S>(lookup: &mut Lookup<S>, lock: &mut Option<Lock>) -> Option<Arc<Answer>> {
    let mut lock_waiter =
        LockWaiter::join(&lookup.cache.hub, &lookup.located.location.key, lookup.cache.manifest.timeout);
    loop {
        let attempt = lock_waiter.wait().await;
        if matches!(attempt, Attempt::GaveUp) {
            return None;
        }
        // With the lock too: its previous holder may have stored an answer.
        if let Some((answer, How::Stored)) = look(lookup).await {
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

/// Makes the outcome of an answer, remembers the call's bytes, and revalidates a stale answer.
fn served<S>(mut lookup: Lookup<S>, found: Arc<Answer>, how: How, first: bool) -> Outcome
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let status = match (how, first) {
        (How::Stored, _) => CacheStatus::Hit,
        (How::Stale, _) => CacheStatus::Stale,
        (How::Ran, true) => CacheStatus::Miss,
        (How::Confirmed, true) => CacheStatus::Revalidated,
        (How::Ran | How::Confirmed, false) => CacheStatus::Coalesced,
    };
    let cache = Arc::clone(&lookup.cache);
    if how != How::Stale {
        remember(&cache, &mut lookup.call, &found);
    } else if cache.freshness(&found, &lookup.call, cache.hub.clock.now()) == Freshness::StaleWhileRevalidate {
        renew(Lookup { known: Some(Arc::clone(&found)), ..lookup });
    }
    serve(&cache, &found, status)
}

async fn wait(waiter: &mut Waiter, call: &Call) -> Result<Completed> {
    let late =
        || Error::new(Code::Timeout, format!("the caller's deadline passed before pack \"{}\" answered", call.pack));
    let completion = async {
        match call.deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline.into(), waiter.wait()).await.unwrap_or_else(|_| Err(late()))
            }
            None => waiter.wait().await,
        }
    };
    match &call.cancel {
        Some(cancel) => tokio::select! {
            biased;
            completed = completion => completed,
            () = cancel.cancelled() => Err(Error::new(Code::Cancelled, "the call was cancelled")),
        },
        None => completion.await,
    }
}

/// Refreshes an answer in the background, once per key however many ask.
fn renew<S>(lookup: Lookup<S>)
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    drop(join(lookup, Purpose::Renew));
}

fn join<S>(lookup: Lookup<S>, purpose: Purpose) -> Join
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let hub = Arc::clone(&lookup.cache.hub);
    let location = Arc::clone(&lookup.located.location);
    let sink = lookup.call.progress.clone();
    let recheck = {
        let (cache, call, key) = (Arc::clone(&lookup.cache), lookup.call.clone(), location.key);
        move || {
            let found = cache.hub.hot(&key).filter(|found| found.artifacts.is_empty())?;
            let fresh = cache.freshness(&found, &call, cache.hub.clock.now()) == Freshness::Fresh;
            (purpose != Purpose::Refresh && fresh).then_some(found)
        }
    };
    let flights = Arc::clone(&hub.flights);
    flights.join(FlightKey { key: location.key, purpose }, &location, sink, recheck, move |flight| {
        Box::pin(async move {
            let (cache, located) = (Arc::clone(&lookup.cache), Arc::clone(&lookup.located));
            let mut completion = Completion::default();
            // A flight must always complete, or its waiters would wait for ever.
            let result = AssertUnwindSafe(run(lookup, purpose, &flight, &mut completion)).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err(Error::new(Code::Internal, "the run of the pack was lost")));
            let now = cache.hub.clock.now();
            cache.hub.flights.complete(&flight, result, |completed| match completed.how {
                How::Stored | How::Stale => cache.hub.warm(&completed.answer),
                How::Ran | How::Confirmed => {
                    completion.keep && cache.keep(&located, &completed.answer, now, completion.lock.take())
                }
            });
        })
    })
}
