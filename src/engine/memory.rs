//! Memory of a running engine, for transports and the operator.

use std::sync::Arc;

use helmdeck_core::memory::{Facts, Memory, Owner};
use helmdeck_core::{Call, Code, Error, Identity, Result};
use helmdeck_memory::{DeletePosition, Namespace, Store};

use crate::cache::explain::{self, Explanation};
use crate::cache::hub::Hub;
use crate::cache::invalidating_store::InvalidatingStore;
use crate::cache::purge::{Purged, Selector};
use crate::layers::{credentials, validate_input};
use crate::registry::Registered;
use crate::tail::{CallRecord, Tail};
use crate::views::{CallFilter, CallPage, EngineViews};

/// Handle on the memory of an engine. It exists only with gate 1 open.
#[derive(Clone)]
pub struct MemoryControl {
    pub(crate) hub: Arc<Hub>,
    pub(crate) views: Arc<EngineViews>,
    store: Arc<dyn Store>,
}

helmdeck_core::redacted_debug!(MemoryControl);

impl MemoryControl {
    pub(crate) fn new(hub: Arc<Hub>, views: Arc<EngineViews>) -> Self {
        let store = Arc::new(InvalidatingStore(Arc::clone(&hub)));
        Self { hub, views, store }
    }

    /// Returns the store. A delete through it is dropped from the cache of this process before it
    /// returns.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Drops cached answers. When it returns, this process serves no purged answer any more.
    ///
    /// Other processes on the same store follow within 250 ms after the rows are deleted, or as
    /// soon as the store notifies them.
    pub async fn purge(&self, selector: Selector) -> Purged {
        self.hub.purge(selector).await
    }

    /// Returns the position after the deletes of this process; `None` if the store has no
    /// positions.
    ///
    /// It covers all purges of this process. While the store has yet to carry one out, there is no
    /// position.
    #[must_use]
    pub fn position(&self) -> Option<DeletePosition> {
        if self.hub.pending.count_late() > 0 {
            return None;
        }
        self.hub.store.position()
    }

    /// Applies the deletes by other processes up to a position, within the time budget of a read of
    /// the store.
    ///
    /// Returns whether that is done. If not, set [`Call::behind`]. A position that was not signed
    /// with a key of the store stands for the moment of the call.
    pub async fn catch_up(&self, position: &DeletePosition) -> bool {
        self.hub.catch_up(position).await
    }

    /// Returns the facts of a caller at a transport.
    ///
    /// # Errors
    /// `unauthenticated` for an anonymous caller.
    pub fn facts(&self, identity: &Arc<Identity>) -> Result<Facts> {
        self.facts_of(Owner::at_a_door(Arc::clone(identity)))
    }

    /// Returns the facts of a caller that is an administrator: it can also remove its own audit
    /// rows.
    ///
    /// # Errors
    /// As [`MemoryControl::facts`].
    pub fn facts_of_administrator(&self, identity: &Arc<Identity>) -> Result<Facts> {
        self.facts_of(Owner::administrator(Arc::clone(identity)))
    }

    fn facts_of(&self, owner: Owner) -> Result<Facts> {
        let memory = Memory::bind(Arc::clone(&self.views) as _, owner).map_err(Error::from)?;
        Ok(memory.facts())
    }

    /// Returns past calls of a caller from its stored audit, newest first.
    ///
    /// # Errors
    /// `overloaded` if the store is not available.
    pub async fn calls(&self, caller: &Namespace, filter: CallFilter) -> Result<CallPage> {
        self.views.calls(caller, filter).await
    }

    /// Returns the newest calls of this process, of every caller.
    ///
    /// It holds calls of packs without `no_audit` since the start. A call is in it about 100 ms
    /// after its end.
    #[must_use]
    pub fn recent_calls(&self) -> &Arc<Tail<CallRecord>> {
        &self.views.audit.recent
    }

    /// Adds a callback for callers whose conversations were forgotten.
    ///
    /// It runs before the deletion returns, must drop cached conversations of that caller, and must
    /// not block.
    pub fn on_forgotten_conversations(&self, holder: impl Fn(&Identity) + Send + Sync + 'static) {
        self.views.holders.add(holder);
    }

    /// Waits until every answer that was queued for the store is written or lost.
    pub async fn flush(&self) {
        self.hub.queue.flush().await;
    }

    /// Waits until the refreshes of stale answers (`stale_while_revalidate`) have ended.
    ///
    /// Call it in a process that is about to end. Each refresh is bounded by the timeout of its
    /// pack.
    pub async fn finish_renewals(&self) {
        self.hub.flights.renewed().await;
    }

    /// Returns whether the breaker is open: the store fails and is not used.
    #[must_use]
    pub fn breaker_is_open(&self) -> bool {
        self.hub.breaker_is_open()
    }
}

/// Explains what the cache knows of a call of `pack`, without running anything.
///
/// # Errors
/// As the call itself up to its credentials; `conflict` if its manifest does not open its gate, or
/// this call is not cached.
pub(crate) async fn explain(pack: &Registered, mut call: Call) -> Result<Explanation> {
    let Some(spec) = pack.manifest.cache() else {
        let gate = "its manifest does not say cache = true";
        return Err(Error::new(
            Code::Conflict,
            format!("answers of pack \"{}\" are not cached: {gate}", call.pack),
        ));
    };
    validate_input::validate(&pack.validate_input, &mut call).await?;
    if let Some(layer) = &pack.credentials {
        call.stage.secrets = Some(Arc::new(credentials::resolve(layer, &call)?));
    }
    let not_cached = |reason| {
        let why = match reason {
            "no_session" => {
                "its scope is \"session\" and the call names none (`--session`, the header `Helmdeck-Session`, a claim of the token, \
                 or an MCP session)"
            }
            "anonymous" => "the caller is anonymous",
            "shared_caller" => "it is called by a pack whose answers callers share",
            _ => "a number of its input has no canonical form",
        };
        Error::new(
            Code::Conflict,
            format!(
                "this call of pack \"{}\" is not cached ({reason}): {why}",
                call.pack
            ),
        )
    };
    let Some(cache) = &pack.cache else {
        return explain::without_key(&pack.manifest, spec, &pack.contract, &call)
            .map_err(not_cached);
    };
    let located = cache
        .locate(&call, cache.contract().await)
        .map_err(not_cached)?;
    explain::explain(cache, &call, &located).await
}
