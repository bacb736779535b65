//! The read-through cache. It stands right after `validate_input` and before `session`, so a hit starts no session; and outside
//! `validate_output`, so only checked outputs are ever stored.
//!
//! Order of one call: hot tier, then one flight per key, which looks into the store and else runs the inner service. A failure
//! of the store costs the cache, never the call.

mod flight;

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

use self::flight::{Landing, aloft};
use super::{Answered, answer};
use crate::cache::answer::Answer;
use crate::cache::cluster::{Line, Turn};
use crate::cache::counters::Saved;
use crate::cache::flight::{Boarding, FlightKey, How, Landed, Purpose, Ticket};
use crate::cache::key::{Key, for_handler};
use crate::cache::pack::{Contract, Located, PackCache, Standing};

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
            // The files of a program are looked at off the runtime.
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
        let key = Some(located.place.key);
        return Either::Right(Box::pin(pass(cache, inner, call, key, CacheStatus::Bypass, None)));
    }
    let reads = call.directive != Directive::Refresh;
    let found = if reads { cache.hub.hot(&located.place.key) } else { None };
    if let Some(found) = found.as_ref().filter(|found| found.artifacts.is_empty()) {
        match cache.standing(found, &call, cache.hub.clock.now()) {
            Standing::Fresh => {
                remember(&cache, &mut call, found);
                return answer(Ok(serve(&cache, found, CacheStatus::Hit)));
            }
            Standing::TakenStale => return answer(Ok(serve(&cache, found, CacheStatus::Stale))),
            Standing::WhileRenewed => {
                let outcome = serve(&cache, found, CacheStatus::Stale);
                if call.directive != Directive::OnlyIfCached {
                    let known = Some(Arc::clone(found));
                    renew(Journey { cache, inner, call, located: Arc::new(located), known, looked: false });
                }
                return answer(Ok(outcome));
            }
            Standing::Old | Standing::Ended => {}
        }
    }
    let journey = Journey { cache, inner, call, located: Arc::new(located), known: found, looked: false };
    Either::Right(Box::pin(async move {
        match journey.call.directive {
            Directive::OnlyIfCached => only_if_cached(journey).await,
            _ => fly(journey).await,
        }
    }))
}

/// What a call takes along on its way.
#[derive(Clone)]
struct Journey<S> {
    cache: Arc<PackCache>,
    inner: S,
    call: Call,
    located: Arc<Located>,
    /// What the hot tier or the store has, past its freshness.
    known: Option<Arc<Answer>>,
    /// The store was asked already.
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
async fn only_if_cached<S>(journey: Journey<S>) -> Result<Outcome> {
    let Journey { cache, call, located, known, .. } = journey;
    let epoch = cache.hub.epoch();
    let found = match known {
        Some(known) => Some(known),
        None => cache.hub.read(&located.place, &located.contract.hex).await.map(Arc::new),
    };
    let found = found.ok_or_else(nothing_cached)?;
    let status = match cache.standing(&found, &call, cache.hub.clock.now()) {
        Standing::Fresh => CacheStatus::Hit,
        Standing::TakenStale | Standing::WhileRenewed => CacheStatus::Stale,
        Standing::Old | Standing::Ended => return Err(nothing_cached()),
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

/// Answers from the store, or else joins or starts the flight of this key and waits for it, within the caller's own deadline.
async fn fly<S>(mut journey: Journey<S>) -> Result<Outcome>
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let cache = Arc::clone(&journey.cache);
    let purpose = match journey.call.directive {
        Directive::Refresh => Purpose::Refresh,
        _ => Purpose::Answer { max_age: journey.call.max_age, max_stale: journey.call.max_stale },
    };
    let flight = FlightKey { key: journey.located.place.key, purpose };
    // The first look at the store is the caller's own: a hit needs no flight, and a flight is a task more.
    // Before a wait with a deadline, so that there is something to fall back on when it passes.
    let falls_back = journey.known.is_none() && journey.call.deadline.is_some() && cache.covers_errors();
    if purpose != Purpose::Refresh && (falls_back || !cache.hub.flights.is_under_way(flight)) {
        let epoch = cache.hub.epoch();
        if let Some((found, how)) = look(&mut journey).await {
            cache.hub.warm_unless_purged(&found, epoch);
            return Ok(served(journey, found, how, true));
        }
    }
    let mut call = journey.call.clone();
    let again = journey.clone();
    let (mut ticket, started) = match board(journey, purpose) {
        Boarding::Answered(found) => {
            remember(&cache, &mut call, &found);
            return Ok(serve(&cache, &found, CacheStatus::Hit));
        }
        Boarding::Started(ticket) => (ticket, true),
        Boarding::Joined(ticket) => (ticket, false),
    };
    let landed = match wait(&mut ticket, &call).await {
        Ok(landed) => landed,
        Err(error) => return fall_back(&again, error).await,
    };
    if !started && (cache.is_of_one(&landed.answer.artifacts) || !cache.may_still_use(&landed.answer, &call)) {
        // The files are those of whoever started the flight, or the credentials: this caller needs a run of its own.
        let key = landed.answer.place.key;
        return pass(cache, again.inner, call, Some(key), CacheStatus::Miss, None).await;
    }
    Ok(served(again, landed.answer, landed.how, started))
}

/// Serves a stale answer to a caller whose deadline passed, if there is one within `stale_if_error`.
async fn fall_back<S>(journey: &Journey<S>, error: Error) -> Result<Outcome> {
    let cache = &journey.cache;
    let covers = |known: &Arc<Answer>| {
        cache.may_cover(known, &error, cache.hub.clock.now()) && cache.may_still_use(known, &journey.call)
    };
    let known = journey.known.as_ref().filter(|_| error.code() == Code::Timeout).filter(|known| covers(known));
    match known {
        Some(known) if has_files(cache, known).await => Ok(serve(cache, known, CacheStatus::Stale)),
        _ => Err(error),
    }
}

/// Looks into the store. An answer that may not be served, but may be confirmed or fallen back on, is kept in the journey.
async fn look<S>(journey: &mut Journey<S>) -> Option<(Arc<Answer>, How)> {
    journey.looked = true;
    let cache = &journey.cache;
    let found = Arc::new(cache.hub.read(&journey.located.place, &journey.located.contract.hex).await?);
    let standing = cache.standing(&found, &journey.call, cache.hub.clock.now());
    let how = match standing {
        Standing::Fresh => Some(How::Stored),
        Standing::TakenStale | Standing::WhileRenewed => Some(How::Stale),
        Standing::Old | Standing::Ended => None,
    };
    if let Some(how) = how
        && has_files(cache, &found).await
    {
        return Some((found, how));
    }
    if standing != Standing::Ended && journey.known.as_ref().is_none_or(|known| known.made_at <= found.made_at) {
        journey.known = Some(found);
    }
    None
}

/// Waits while other processes run for this key. Returns the answer that one of them stored, or else the lock, if there is
/// one to be had: then it is this process that runs.
async fn line_up<S>(journey: &mut Journey<S>, lock: &mut Option<Lock>) -> Option<Arc<Answer>> {
    let mut line = Line::join(&journey.cache.hub, &journey.located.place.key, journey.cache.manifest.timeout);
    loop {
        let turn = line.wait().await;
        if matches!(turn, Turn::Alone) {
            return None;
        }
        // Also with the lock: whoever had it before may have left an answer.
        if let Some((answer, How::Stored)) = look(journey).await {
            line.leave("found");
            return Some(answer);
        }
        if let Turn::Mine(taken) = turn {
            *lock = Some(taken);
            line.leave("ran");
            return None;
        }
    }
}

/// Makes the outcome of an answer, remembers the call's bytes, and sees to it that a stale answer is renewed.
fn served<S>(mut journey: Journey<S>, found: Arc<Answer>, how: How, first: bool) -> Outcome
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
    let cache = Arc::clone(&journey.cache);
    if how != How::Stale {
        remember(&cache, &mut journey.call, &found);
    } else if cache.standing(&found, &journey.call, cache.hub.clock.now()) == Standing::WhileRenewed {
        renew(Journey { known: Some(Arc::clone(&found)), ..journey });
    }
    serve(&cache, &found, status)
}

async fn wait(ticket: &mut Ticket, call: &Call) -> Result<Landed> {
    let late =
        || Error::new(Code::Timeout, format!("the caller's deadline passed before pack \"{}\" answered", call.pack));
    let landing = async {
        match call.deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline.into(), ticket.wait()).await.unwrap_or_else(|_| Err(late()))
            }
            None => ticket.wait().await,
        }
    };
    match &call.cancel {
        Some(cancel) => tokio::select! {
            biased;
            landed = landing => landed,
            () = cancel.cancelled() => Err(Error::new(Code::Cancelled, "the call was cancelled")),
        },
        None => landing.await,
    }
}

/// Refreshes an answer in the background, once per key however many ask.
fn renew<S>(journey: Journey<S>)
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    drop(board(journey, Purpose::Renew));
}

fn board<S>(journey: Journey<S>, purpose: Purpose) -> Boarding
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let hub = Arc::clone(&journey.cache.hub);
    let place = Arc::clone(&journey.located.place);
    let sink = journey.call.progress.clone();
    let recheck = {
        let (cache, call, key) = (Arc::clone(&journey.cache), journey.call.clone(), place.key);
        move || {
            let found = cache.hub.hot(&key).filter(|found| found.artifacts.is_empty())?;
            let fresh = cache.standing(&found, &call, cache.hub.clock.now()) == Standing::Fresh;
            (purpose != Purpose::Refresh && fresh).then_some(found)
        }
    };
    let flights = Arc::clone(&hub.flights);
    flights.board(FlightKey { key: place.key, purpose }, &place, sink, recheck, move |flight| {
        Box::pin(async move {
            let (cache, located) = (Arc::clone(&journey.cache), Arc::clone(&journey.located));
            let mut landing = Landing::default();
            // A flight must land whatever happens: nobody who waits for it may wait for ever.
            let result = AssertUnwindSafe(aloft(journey, purpose, &flight, &mut landing)).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err(Error::new(Code::Internal, "the run of the pack was lost")));
            let now = cache.hub.clock.now();
            cache.hub.flights.land(&flight, result, |landed| match landed.how {
                How::Stored | How::Stale => cache.hub.warm(&landed.answer),
                How::Ran | How::Confirmed => {
                    landing.keep && cache.keep(&located, &landed.answer, now, landing.lock.take())
                }
            });
        })
    })
}
