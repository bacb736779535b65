//! Outcomes of answers, and calls that bypass the cache.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheInfo, CacheStatus, Call, Code, Directive, Error, Outcome, Result};
use tower::ServiceExt;

use super::InnerService;
use crate::cache::answer::Answer;
use crate::cache::counters::Saved;
use crate::cache::flight::Detail;
use crate::cache::key::Key;
use crate::cache::pack::PackCache;

/// Returns the outcome of an answer, or its error, and counts the cost that it saved.
pub(super) fn serve(
    cache: &PackCache,
    found: &Answer,
    status: CacheStatus,
    detail: Detail,
) -> Result<Outcome> {
    cache.counters.answered(status);
    // An answer after a failure, or beside a slow run, saved nothing: the handler ran. So it did to
    // confirm one.
    let asked = matches!(detail.reason, Some("upstream_error" | "upstream_slow"));
    if !asked
        && matches!(
            status,
            CacheStatus::Hit | CacheStatus::Stale | CacheStatus::Coalesced
        )
    {
        cache.counters.saved(Saved {
            time: found.cost(),
            upstream_calls: found.upstream_calls,
        });
    }
    let mut outcome = found.outcome(status, cache.hub.clock.now(), cache.bounds(found).0)?;
    if let Some(info) = &mut outcome.cache {
        (info.reason, info.not_kept, info.retry_after) =
            (detail.reason, detail.not_kept, detail.retry_after);
    }
    if let (CacheStatus::Miss | CacheStatus::Coalesced, Some(info)) = (status, &mut outcome.cache) {
        info.store_error = cache.hub.store_trouble();
    }
    Ok(outcome)
}

/// Stores the call's own bytes as an alias, so that `recall` answers the next one.
pub(super) fn remember(cache: &PackCache, call: &mut Call, found: &Arc<Answer>) {
    if let Some(raw) = call.stage.raw.take()
        && let Some(alias) = cache.alias(call, &raw.input, raw.secrets)
    {
        cache.hub.hot.remember(alias, found.location.key);
    }
}

/// Runs the inner service without reading or writing the cache.
pub(super) async fn pass<S: InnerService>(
    cache: Arc<PackCache>,
    inner: S,
    call: Call,
    key: Option<Key>,
    status: CacheStatus,
    reason: Option<&'static str>,
) -> Result<Outcome> {
    if call.directive == Directive::OnlyIfCached {
        return Err(nothing_cached());
    }
    let ttl = cache.spec()?.ttl;
    let mut outcome = inner.oneshot(call).await?;
    let key = key.map_or([0; 8], |key| key.short());
    outcome.cache = Some(CacheInfo {
        status,
        age: Duration::ZERO,
        ttl,
        key,
        store_error: None,
        reason,
        not_kept: None,
        retry_after: None,
    });
    cache.counters.answered(status);
    Ok(outcome)
}

pub(super) fn nothing_cached() -> Error {
    Error::new(
        Code::CacheMiss,
        "there is no cached answer that may be served, and the call asked for nothing else",
    )
}
