//! Leaves an upstream in trouble alone: the innermost layer of the cache, which every run of a
//! cached pack goes through.
//!
//! A failure that a stored answer covers is remembered for that answer, one of the whole upstream
//! for all packs that ask it with the same credential. While a wait lasts, or no more than the kept
//! part of a quota is left, the handler does not run; `cache`, around this layer, then serves what
//! is stored.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use helmdeck_core::{Call, Code, Error, Outcome, Result};
use tower::{Layer, Service, ServiceExt};

use crate::cache::backoff::{self, BackoffKey, HeldBack, UPSTREAM_BACKOFF, is_trouble};
use crate::cache::pack::PackCache;

/// Leaves the upstream of one pack alone while it is in trouble.
#[derive(Clone)]
pub(crate) struct BackoffLayer(pub(crate) Arc<PackCache>);

impl<S> Layer<S> for BackoffLayer {
    type Service = Backoff<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Backoff {
            inner,
            cache: Arc::clone(&self.0),
        }
    }
}

/// The service of [`BackoffLayer`].
#[derive(Clone)]
pub(crate) struct Backoff<S> {
    inner: S,
    cache: Arc<PackCache>,
}

impl<S> Service<Call> for Backoff<S>
where
    S: Service<Call, Response = Outcome, Error = Error, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    type Response = Outcome;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        Box::pin(run(Arc::clone(&self.cache), self.inner.clone(), call))
    }
}

async fn run<S>(cache: Arc<PackCache>, inner: S, call: Call) -> Result<Outcome>
where
    S: Service<Call, Response = Outcome, Error = Error, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let hub = &cache.hub;
    if let Some(system) = &hub.system {
        hub.backoffs.read(system, &*hub.clock).await;
    }
    let upstream = cache.upstream_of(call.stage.secrets.as_ref());
    let answer = call.stage.covered_by.map(BackoffKey);
    let keys: Vec<_> = [Some(upstream), answer].into_iter().flatten().collect();
    let (name, keep) = (&cache.upstream.name, cache.upstream.keep_quota);
    let started = hub.clock.now();
    let permit = hub.backoffs.ask(&keys, started).map_err(|left| {
        held_back(
            UPSTREAM_BACKOFF,
            left,
            format!("{name} is in trouble, and is left alone for now"),
        )
    })?;
    if call.stage.stale.is_none()
        && let Some(left) = hub.backoffs.quota_kept(upstream, keep, started)
    {
        return Err(held_back(
            QUOTA_KEPT,
            left,
            format!("the last {keep} requests of the quota of {name} are kept"),
        ));
    }
    let result = inner.oneshot(call).await;
    let now = hub.clock.now();
    if let Ok(outcome) = &result
        && let Some(quota) = outcome.remark.quota.filter(|_| keep > 0)
    {
        hub.backoffs.note_quota(upstream, quota, now);
    }
    // A cancelled call has found out nothing.
    let error = match result {
        Err(error) if error.code() != Code::Cancelled => error,
        result => {
            if result.is_ok() {
                permit.ended(&[], None, now);
            }
            return result;
        }
    };
    // Any other answer than a refusal of everybody ends the wait of the upstream: nobody can
    // prolong it with a bad request.
    let failed = [
        error.is_of_upstream().then_some(upstream),
        answer.filter(|_| is_trouble(&error)),
    ];
    let failed: Vec<_> = failed.into_iter().flatten().collect();
    let waits = permit.ended(&failed, error.retry_after(), now);
    if let Some(system) = &hub.system {
        backoff::share(system, &waits).await;
    }
    Err(
        match waits.iter().map(|(_, until)| until.since(now)).max() {
            Some(left) => error.with_retry_after(left),
            None => error,
        },
    )
}

/// The handler does not run: the rest of the quota is kept.
const QUOTA_KEPT: &str = "quota_kept";

fn held_back(reason: &'static str, left: Duration, message: String) -> Error {
    Error::new(Code::RateLimited, message)
        .with_retry_after(left)
        .with_source(HeldBack(reason))
}
