//! Purges the tags that a writing pack invalidates (`[memory] invalidates`).
//!
//! The layer exists only when gate 1 is open and the manifest names tags. A failing call purges
//! too: an unknown outcome is treated as a write. A call refused before the handler ran (by
//! `validate_input`) never gets here.
//!
//! It purges only answers that the caller can get: its own, and those that its tenant shares. A
//! purge of other callers' answers could slow them down.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use helmdeck_core::canonical::canonical_for_handler;
use helmdeck_core::secrets::is_credential_tag;
use helmdeck_core::{Call, Code, Error, Manifest, Outcome, Result};
use helmdeck_memory::Reach;
use tower::{Layer, Service};

use crate::cache::config::OnStoreLost;
use crate::cache::hub::Hub;
use crate::cache::purge::Selector;
use crate::cache::tags::{ANY, WIDE, family};

/// Retry time for a write that is refused because the store is lost.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Purges after calls of one pack.
#[derive(Clone)]
pub(crate) struct InvalidateLayer {
    pub(crate) hub: Arc<Hub>,
    pub(crate) manifest: Arc<Manifest>,
}

impl<S> Layer<S> for InvalidateLayer {
    type Service = Invalidate<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Invalidate {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of [`InvalidateLayer`].
#[derive(Clone)]
pub(crate) struct Invalidate<S> {
    inner: S,
    layer: InvalidateLayer,
}

impl<S> Service<Call> for Invalidate<S>
where
    S: Service<Call, Response = Outcome, Error = Error> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Outcome;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let mut purge = Purge {
            hub: Arc::clone(&self.layer.hub),
            whose: Reach::of_caller(&call.identity),
            tags: tags(&self.layer.manifest, &call),
        };
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            if purge.hub.config.on_store_lost == OnStoreLost::RefuseWrites
                && purge.hub.is_lost().await
            {
                purge.give_up();
                return Err(Error::new(
                    Code::Overloaded,
                    "the store cannot be reached, so what this pack changes could not be removed from the caches of other \
                     servers; nothing was done (cache.on_store_lost = \"refuse_writes\")",
                )
                .with_retry_after(RETRY_AFTER));
            }
            let mut result = inner.call(call).await;
            let pending = purge.now().await;
            if let Ok(outcome) = &mut result {
                outcome.pending |= pending;
            }
            result
        })
    }
}

fn tags(manifest: &Manifest, call: &Call) -> Vec<String> {
    // As for the tags of an answer: one spelling of each number.
    let respelled = std::str::from_utf8(&call.input)
        .ok()
        .and_then(|text| canonical_for_handler(text).ok());
    let value = respelled
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or(serde_json::Value::Null);
    let templates = manifest
        .memory
        .as_ref()
        .map(|memory| memory.invalidates.as_slice())
        .unwrap_or_default();
    templates
        .iter()
        .flat_map(|tag| match tag.fill(&value) {
            Some(filled) => vec![filled.text],
            // The written value is unknown: all answers of the family, or with any tag, may be out
            // of date.
            None => match family(&tag.beginning().to_lowercase()) {
                Some(family) => vec![family, WIDE.to_owned()],
                None => vec![ANY.to_owned()],
            },
        })
        .filter(|tag| !is_credential_tag(tag))
        .collect()
}

/// A purge that also happens when the caller leaves while the handler runs.
struct Purge {
    hub: Arc<Hub>,
    whose: Reach,
    tags: Vec<String>,
}

impl Purge {
    /// Purges nothing: the handler did not run.
    fn give_up(&mut self) {
        self.tags.clear();
    }

    /// Returns whether the store has yet to carry it out.
    async fn now(mut self) -> bool {
        let mut pending = false;
        while let Some(tag) = self.tags.pop() {
            pending |= self
                .hub
                .purge(Selector::Outdated {
                    tag,
                    whose: self.whose.clone(),
                })
                .await
                .pending;
        }
        pending
    }
}

impl Drop for Purge {
    fn drop(&mut self) {
        let (hub, whose, tags) = (
            Arc::clone(&self.hub),
            self.whose.clone(),
            std::mem::take(&mut self.tags),
        );
        if tags.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for tag in tags {
                    hub.purge(Selector::Outdated {
                        tag,
                        whose: whose.clone(),
                    })
                    .await;
                }
            });
        }
    }
}
