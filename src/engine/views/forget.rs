//! Deletes entries of one caller: by exact keys, by category, or all of a kind.
//!
//! It never deletes by prefix, and opens no entry, so that it works after the key was lost.

use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;

use helmdeck_core::memory::{Forget, Forgotten, MemoryPart, Owner, Selection};
use helmdeck_core::{Code, Error, Identity, PackName, Result};
use helmdeck_memory::floors::Floors;
use helmdeck_memory::{Delete, EntryMeta, Kind, Namespace, Op, Page, StoreError, Written};

use super::EngineViews;
use super::facts::trimmed;
use crate::cache::purge::Selector;

/// Entries per transaction.
const BATCH: usize = 500;
/// How often a delete is tried while others write the head of the same caller.
pub(super) const TRIES: u32 = 16;
/// Operation name in the metrics of store failures.
const FORGET: &str = "forget";

type Holder = Box<dyn Fn(&Identity) + Send + Sync>;

/// Callbacks of the parts of this process that cache conversations. Clones share the list.
///
/// Each drops the conversations of a forgotten caller.
#[derive(Clone, Default)]
pub(crate) struct Holders(Arc<RwLock<Vec<Holder>>>);

impl Holders {
    pub(crate) fn add(&self, holder: impl Fn(&Identity) + Send + Sync + 'static) {
        self.0.write().push(Box::new(holder));
    }

    fn forget(&self, identity: &Identity) {
        for holder in self.0.read().iter() {
            holder(identity);
        }
    }
}

pub(super) async fn forget(
    views: &EngineViews,
    owner: &Owner,
    request: &Forget,
) -> Result<Forgotten> {
    let (parts, selection) = request.selection()?;
    if parts.contains(&MemoryPart::Audit) && owner.administrator.is_none() {
        return Err(Error::new(
            Code::Forbidden,
            "audit rows are the operator's: only an administrator removes them, with `helmdeck memory forget` or over REST",
        ));
    }
    let mut forgotten = Forgotten::default();
    for part in parts {
        let removed = match (part, selection) {
            (MemoryPart::Cache, _) => cache(views, owner, &mut forgotten.pending).await?,
            (MemoryPart::Artifacts, _) => files(views, owner).await?,
            (MemoryPart::Conversations, _) => conversations(views, owner).await?,
            (MemoryPart::Audit, Selection::Pack(pack)) => audit(views, owner, Some(pack)).await?,
            (MemoryPart::Audit, _) => audit(views, owner, None).await?,
            (MemoryPart::Facts, Selection::Key(key)) => {
                facts(views, owner, Some(&[trimmed("key", key)?])).await?
            }
            (MemoryPart::Facts, Selection::Category(name)) => {
                category(views, owner, Kind::Fact, &trimmed("category", name)?).await?
            }
            (MemoryPart::Facts, _) => facts(views, owner, None).await?,
            (MemoryPart::Notes, Selection::Key(key)) => one(views, owner, Kind::Note, key).await?,
            (MemoryPart::Notes, Selection::Category(name)) => {
                category(views, owner, Kind::Note, name).await?
            }
            (MemoryPart::Notes, _) => all(views, owner, Kind::Note).await?,
        };
        forgotten.removed.insert(part, removed);
    }
    Ok(forgotten)
}

/// Returns the owner's namespaces that can contain entries of a kind.
///
/// These are its own, and those of its conversations.
async fn namespaces(views: &EngineViews, owner: &Owner, kind: Kind) -> Result<BTreeSet<Namespace>> {
    let identity = &owner.identity;
    let mut all = BTreeSet::from([Namespace::of_caller(identity)]);
    if kind == Kind::Fact {
        return Ok(all);
    }
    all.extend(
        identity
            .session()
            .map(|session| Namespace::new(identity.tenant(), identity.user(), Some(session))),
    );
    let held = views
        .store()
        .namespaces_of(identity.tenant(), identity.user())
        .await;
    all.extend(
        held.map_err(|error| views.trouble(FORGET, error))?
            .into_iter()
            .map(|held| held.namespace),
    );
    Ok(all)
}

async fn one(views: &EngineViews, owner: &Owner, kind: Kind, key: &str) -> Result<u64> {
    let delete = |namespace| {
        Op::Delete(Delete::Key {
            namespace,
            kind,
            key: key.to_owned(),
        })
    };
    remove(
        views,
        namespaces(views, owner, kind)
            .await?
            .into_iter()
            .map(delete)
            .collect(),
    )
    .await
}

async fn all(views: &EngineViews, owner: &Owner, kind: Kind) -> Result<u64> {
    let delete = |namespace| Op::Delete(everything(namespace, kind, String::new()));
    remove(
        views,
        namespaces(views, owner, kind)
            .await?
            .into_iter()
            .map(delete)
            .collect(),
    )
    .await
}

fn everything(namespace: Namespace, kind: Kind, prefix: String) -> Delete {
    Delete::Prefix {
        namespace: Some(namespace),
        kind: Some(kind),
        prefix,
    }
}

async fn remove(views: &EngineViews, deletes: Vec<Op>) -> Result<u64> {
    let mut removed = 0;
    for batch in deletes.chunks(BATCH) {
        removed += views.delete(FORGET, batch.to_vec()).await?;
    }
    Ok(removed)
}

/// The store has no index of categories: their entries are searched, and deleted by exact keys.
async fn category(views: &EngineViews, owner: &Owner, kind: Kind, name: &str) -> Result<u64> {
    let mut removed = 0;
    for namespace in namespaces(views, owner, kind).await? {
        let mut after = None;
        loop {
            let listing = views.store().list(
                &namespace,
                kind,
                "",
                Page {
                    limit: BATCH,
                    after,
                },
            );
            let page = listing
                .await
                .map_err(|error| views.trouble(FORGET, error))?;
            let meant = page
                .entries
                .into_iter()
                .filter(|meta: &EntryMeta| meta.category == name);
            let keys: Vec<String> = meant.map(|meta| meta.key).collect();
            removed += match kind {
                _ if keys.is_empty() => 0,
                Kind::Fact => facts(views, owner, Some(&keys)).await?,
                _ => {
                    remove(
                        views,
                        keys.iter()
                            .map(|key| of_key(&namespace, kind, key))
                            .collect(),
                    )
                    .await?
                }
            };
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(removed)
}

fn of_key(namespace: &Namespace, kind: Kind, key: &str) -> Op {
    Op::Delete(Delete::Key {
        namespace: namespace.clone(),
        kind,
        key: key.to_owned(),
    })
}

/// Deletes facts of a caller: those of these keys, or all. None of them is served again if it is
/// put back.
async fn facts(views: &EngineViews, owner: &Owner, keys: Option<&[String]>) -> Result<u64> {
    let namespace = Namespace::of_caller(&owner.identity);
    let trouble = |error| views.trouble(FORGET, error);
    let mut tries = 1;
    loop {
        let floors = Floors::read(views.store(), &namespace)
            .await
            .map_err(trouble)?;
        let page = Page {
            limit: 1,
            after: None,
        };
        let held = views
            .store()
            .list(&namespace, Kind::Fact, "", page)
            .await
            .map_err(trouble)?;
        if held.entries.is_empty() && !floors.is_there() {
            return Ok(0);
        }
        let mut batch: Vec<Op> = match keys {
            None => vec![Op::Delete(everything(
                namespace.clone(),
                Kind::Fact,
                String::new(),
            ))],
            Some(keys) => keys
                .iter()
                .map(|key| of_key(&namespace, Kind::Fact, key))
                .collect(),
        };
        batch.push(
            floors
                .forget(keys, views.hub.clock.now())
                .map_err(trouble)?,
        );
        match views.hub.own_deletes.run(views.store().write(batch)).await {
            Ok(written) => return Ok(Written::deleted(&written)),
            // Somebody else wrote the head.
            Err(StoreError::VersionMismatch { .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(trouble(error)),
        }
    }
}

async fn files(views: &EngineViews, owner: &Owner) -> Result<u64> {
    match &views.artifacts {
        Some(files) => {
            files
                .forget(owner.identity.tenant(), owner.identity.user())
                .await
        }
        None => Ok(0),
    }
}

/// Deletes the conversations of a caller. Clears caches of conversations before and after.
///
/// So no conversation continues from cached data while the rows are deleted, and data read in the
/// meantime is dropped. The caches are cleared after a failure too, because the rows may be gone
/// although the reply was lost.
async fn conversations(views: &EngineViews, owner: &Owner) -> Result<u64> {
    views.holders.forget(&owner.identity);
    let removed = all(views, owner, Kind::Conversation).await;
    views.holders.forget(&owner.identity);
    removed
}

async fn audit(views: &EngineViews, owner: &Owner, pack: Option<&PackName>) -> Result<u64> {
    // Queued rows would come back after the delete.
    views.settle_audit().await;
    // The name of a pack contains no slash, so this is the whole name.
    let prefix = pack.map(|pack| format!("pack/{pack}/")).unwrap_or_default();
    let (tenant, user) = (owner.identity.tenant(), owner.identity.user());
    views.audit.recent.retain(|call| {
        (call.identity.tenant(), call.identity.user()) != (tenant, user)
            || pack.is_some_and(|pack| call.pack != *pack)
    });
    let by = owner.administrator.as_deref().unwrap_or_default();
    let (caller, now) = (Namespace::of_caller(&owner.identity), views.hub.clock.now());
    let removed = helmdeck_memory::audit::remove(views.store(), &caller, &prefix, by, now).await;
    removed.map_err(|error| views.trouble(FORGET, error))
}

/// Writes queued answers first, so that their namespaces are known.
async fn cache(views: &EngineViews, owner: &Owner, pending: &mut bool) -> Result<u64> {
    let _ = tokio::time::timeout(views.hub.config.write_budget, views.hub.queue.flush()).await;
    let mut rows = 0;
    for namespace in namespaces(views, owner, Kind::Cache).await? {
        let purged = views.hub.purge(Selector::Namespace(namespace)).await;
        rows += purged.rows;
        *pending |= purged.pending;
    }
    Ok(rows)
}
