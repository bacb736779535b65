//! Read-through cache layer.
//!
//! It comes after `validate_input` and `credentials`, and before `session`, so a hit starts no
//! session. It is outside `validate_output`, so only validated outputs are stored.
//!
//! Order of one call: hot tier, store, then singleflight of the inner service. A failure of the
//! store costs the cache, never the call.

mod lookup;
mod run;
mod serve;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use helmdeck_core::manifest::Scope;
use helmdeck_core::{Call, Code, Directive, Error, Outcome, Result};
use tower::{Layer, Service};

use super::{Answered, answer};
use crate::cache::answer::Answer;
use crate::cache::freshness::Freshness;
use crate::cache::pack::PackCache;

/// Inner service of a cached pack, which is called if the cache has no answer.
trait InnerService:
    Service<Call, Response = Outcome, Error = Error, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> InnerService for S where
    S: Service<Call, Response = Outcome, Error = Error, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Future of a call that no answer of the hot tier covers.
type Boxed = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

/// Caches answers of one pack.
#[derive(Clone)]
pub(crate) struct CacheLayer(pub(crate) Arc<PackCache>);

impl<S> Layer<S> for CacheLayer {
    type Service = CacheService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CacheService {
            inner,
            cache: Arc::clone(&self.0),
        }
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
    type Future = Answered<Boxed>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let cache = Arc::clone(&self.cache);
        if let Err(error) = permit(&cache, &call) {
            return answer(Err(error));
        }
        keep_min_age(&cache, &mut call);
        match cache.fixed_contract() {
            Some(contract) => lookup::start(cache, self.inner.clone(), call, contract),
            // The files of a program are read off the runtime.
            None => {
                let inner = self.inner.clone();
                Either::Right(Box::pin(async move {
                    let contract = cache.contract().await;
                    lookup::start(cache, inner, call, contract).await
                }))
            }
        }
    }
}

/// The operator may forbid directives per scope.
fn permit(cache: &PackCache, call: &Call) -> Result<()> {
    if call.directive == Directive::Default {
        Ok(())
    } else {
        permit_directive(cache, call.directive)
    }
}

fn permit_directive(cache: &PackCache, directive: Directive) -> Result<()> {
    let scope = cache.spec()?.scope;
    let forbidden = cache.hub.config.forbid_directives.get(&scope);
    if forbidden.is_some_and(|names| names.iter().any(|name| name == directive.as_str())) {
        let message = format!(
            "the operator does not allow the cache directive \"{}\" for packs of scope \"{}\"",
            directive.as_str(),
            scope.as_str()
        );
        return Err(Error::new(Code::Forbidden, message));
    }
    Ok(())
}

/// Changes what a call asks for to what the operator allows: only an administrator has a young
/// answer made anew.
///
/// The rule is about the effect, so it holds for every directive and age.
fn keep_min_age(cache: &PackCache, call: &mut Call) {
    if call.administrator {
        return;
    }
    let Some(scope) = cache.manifest.cache().map(|spec| spec.scope) else {
        return;
    };
    let min_age = match cache.hub.config.min_age.get(&scope) {
        Some(min_age) => min_age.0,
        None if scope == Scope::Shared => Duration::MAX,
        None => Duration::ZERO,
    };
    if min_age.is_zero() {
        return;
    }
    if matches!(call.directive, Directive::Refresh | Directive::Bypass) {
        call.directive = Directive::Default;
        call.max_age = Some(Duration::ZERO);
    }
    call.max_age = call.max_age.map(|age| age.max(min_age));
    call.min_fresh = None;
}

/// An age limit that makes a fresh answer anew is a refresh by another word.
fn permit_age(cache: &PackCache, known: &Answer, call: &Call) -> Result<()> {
    let any_age = Call {
        max_age: None,
        min_fresh: None,
        ..call.clone()
    };
    if (call.max_age.is_some() || call.min_fresh.is_some())
        && cache.freshness(known, &any_age, cache.hub.clock.now()) == Freshness::Fresh
    {
        permit_directive(cache, Directive::Refresh)?;
    }
    Ok(())
}
