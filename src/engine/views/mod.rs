//! Views over the store: a caller's notes, facts and past calls, and their deletion.
//!
//! Packs and transports both use these, so each rule is written once. A view reads and writes only
//! the key space of its own kind in the owner's namespaces.

mod facts;
mod forget;
mod history;
mod listing;
mod notes;
mod secrets;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::memory::{
    About, FactList, Forget, Forgotten, ListFacts, NewFact, NewNote, Note, NoteContext, NoteList,
    Owner, RecallFacts, Recalled, Views,
};
use helmdeck_core::{Code, Error, PackName, Result, Version};
use helmdeck_memory::{EntryMeta, Kind, Namespace, Op, Store, Written};

pub(crate) use forget::Holders;
pub use history::{CallFilter, CallPage, PastCall};
pub use trouble::store_error;

use crate::audit::Audit;
use crate::cache::hub::Hub;
use helmdeck_artifacts::ArtifactStore;
use helmdeck_redact as redact;

/// The attribute that names the pack that wrote an entry.
const PACK: &str = "pack";
/// The attribute that names the pack that called it.
const CALLED_BY: &str = "called_by";

/// The views of one engine, for one pack or a transport.
#[derive(Clone)]
pub(crate) struct EngineViews {
    pub(crate) hub: Arc<Hub>,
    pub(crate) audit: Audit,
    /// The artifact store; `None` = the engine has none.
    pub(crate) artifacts: Option<Arc<ArtifactStore>>,
    /// The pack and its version; `None` = a transport.
    pub(crate) pack: Option<(PackName, Version)>,
    /// Caches of this process that must be cleared on deletion.
    pub(crate) holders: Holders,
}

impl EngineViews {
    /// Returns the views of a pack.
    pub(crate) fn of_pack(&self, pack: &PackName, version: Version) -> Self {
        Self {
            pack: Some((pack.clone(), version)),
            ..self.clone()
        }
    }

    /// Returns attributes that name the writer of an entry, so that readers can judge it.
    fn attributes(&self, owner: &Owner) -> BTreeMap<String, String> {
        let calling = owner.called_by.as_ref().map(|calling| &calling.name);
        let named = [
            (PACK, self.pack.as_ref().map(|(name, _)| name)),
            (CALLED_BY, calling),
        ]
        .into_iter();
        named
            .filter_map(|(name, pack)| Some((name.to_owned(), pack?.to_string())))
            .collect()
    }

    fn store(&self) -> &dyn Store {
        &*self.hub.store
    }

    /// Converts an error of the store, and counts it.
    fn trouble(&self, operation: &'static str, error: helmdeck_memory::StoreError) -> Error {
        if error.is_temporary() {
            self.hub.metrics.store_error(operation);
            // Reads work on a full disk, so readiness would not notice.
            if error.trouble() == trouble::FULL {
                self.hub.note_full();
            }
        }
        store_error(error)
    }

    /// Deletes rows and returns how many.
    ///
    /// Do not use it for cached answers: purge them, which clears the hot tier too.
    async fn delete(&self, operation: &'static str, deletes: Vec<Op>) -> Result<u64> {
        let written = self
            .hub
            .own_deletes
            .run(self.store().write(deletes))
            .await
            .map_err(|error| self.trouble(operation, error))?;
        Ok(Written::deleted(&written))
    }

    /// Waits for queued rows within the time budget of a write, so that a caller finds its own
    /// latest call.
    pub(crate) async fn settle_audit(&self) {
        let _ = tokio::time::timeout(self.hub.config.write_budget, self.audit.flush()).await;
    }

    /// Returns past calls of a caller, newest first.
    pub(crate) async fn calls(
        &self,
        namespace: &Namespace,
        filter: CallFilter,
    ) -> Result<CallPage> {
        self.settle_audit().await;
        history::calls(self.store(), namespace, filter)
            .await
            .map_err(|error| self.trouble("audit", error))
    }
}

#[async_trait]
impl Views for EngineViews {
    async fn store_note(&self, owner: &Owner, note: NewNote) -> Result<About> {
        notes::store(self, owner, note).await
    }

    async fn recall_note(&self, owner: &Owner, key: &str) -> Result<Option<Note>> {
        notes::recall(self, owner, key).await
    }

    async fn list_notes(
        &self,
        owner: &Owner,
        prefix: &str,
        limit: usize,
        after: Option<String>,
    ) -> Result<NoteList> {
        notes::list(self, owner, prefix, limit, after).await
    }

    async fn delete_note(&self, owner: &Owner, key: &str) -> Result<bool> {
        notes::delete(self, owner, key).await
    }

    async fn note_context(&self, owner: &Owner) -> Result<NoteContext> {
        notes::context(self, owner).await
    }

    async fn store_fact(&self, owner: &Owner, fact: NewFact) -> Result<About> {
        facts::store(self, owner, fact).await
    }

    async fn recall_facts(&self, owner: &Owner, wanted: RecallFacts) -> Result<Recalled> {
        facts::recall(self, owner, wanted).await
    }

    async fn list_facts(&self, owner: &Owner, wanted: ListFacts) -> Result<FactList> {
        facts::list(self, owner, wanted).await
    }

    async fn forget(&self, owner: &Owner, what: Forget) -> Result<Forgotten> {
        forget::forget(self, owner, &what).await
    }

    fn cleaned(&self, owner: &Owner, names: &[&str], value: Bytes) -> Result<Bytes> {
        cleaned(owner, names, value)
    }
}

fn about(meta: EntryMeta) -> About {
    let named = |name: &str| {
        meta.attributes
            .get(name)
            .and_then(|pack| PackName::new(pack).ok())
    };
    About {
        pack: named(PACK),
        called_by: named(CALLED_BY),
        trust: (meta.kind == Kind::Fact).then(|| facts::trust(&meta)),
        key: meta.key,
        category: meta.category,
        tags: meta.tags,
        fingerprint: meta.fingerprint,
        version: meta.version,
        created_at: meta.created_at,
        updated_at: meta.updated_at,
        expires_at: meta.expires_at,
    }
}

/// Redacts a value, and refuses names that contain a secret.
///
/// Redaction could make two names equal, and names are stored in plain text.
fn cleaned(owner: &Owner, names: &[&str], value: Bytes) -> Result<Bytes> {
    let secrets = owner
        .secrets
        .as_ref()
        .map(|secrets| secrets.revealed())
        .unwrap_or_default();
    if secrets.is_empty() {
        return Ok(value);
    }
    if names
        .iter()
        .any(|name| matches!(redact::text(name, &secrets), std::borrow::Cow::Owned(_)))
    {
        return Err(Error::new(
            Code::InvalidInput,
            "a name (a key, category, tag or conversation) holds a secret",
        ));
    }
    Ok(match redact::bytes(&value, &secrets) {
        std::borrow::Cow::Borrowed(_) => value,
        std::borrow::Cow::Owned(clean) => clean.into(),
    })
}
