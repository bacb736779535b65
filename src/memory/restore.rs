//! Writes imported entries in bulk, and counts the results.
//!
//! An entry that the store already has, as new or newer, is kept: so a repeated import changes
//! nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use helmdeck_core::{Clock, Timestamp};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::entry::Kind;
use crate::error::{Result, StoreError};
use crate::floors::Floors;
use crate::ops::{Op, Put};
use crate::store::Store;

/// Writes that are under way at once: a driver that commits in groups takes them in one.
const IN_FLIGHT: usize = 64;
/// How many refused entries are named; all are counted.
const NAMED: usize = 20;

/// Results of a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Number of written entries.
    pub imported: u64,
    /// Number of entries kept as stored, because the stored ones are as new or newer.
    pub kept: u64,
    /// Number of expired entries, which are left out.
    pub expired: u64,
    /// Number of entries over a limit of the store, which are left out.
    pub refused: u64,
    /// Some of the refused entries, and why.
    pub named: Vec<String>,
    /// Number of written entries, by kind.
    pub kinds: BTreeMap<Kind, u64>,
}

/// A store that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// Destination of entries.
pub enum Destination {
    /// One that is open, and stays so.
    Store(Arc<dyn Store>),
    /// A store that is opened for the first entry and closed after the last.
    ///
    /// An import with nothing to write, or with a wrong key, creates no store.
    Later(Opening),
    /// None; only for a dry run.
    Nothing,
}

/// Target of a restore.
pub struct Target {
    /// The store.
    pub store: Destination,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// The clock for expiry.
    pub clock: Arc<dyn Clock>,
}

helmdeck_core::redacted_debug!(Target, this => dry_run = this.dry_run);

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store(_) => "Store",
            Self::Later(_) => "Later",
            Self::Nothing => "Nothing",
        })
    }
}

/// Entries on their way into a store.
pub(crate) struct Restorer {
    target: Target,
    /// Whether the store was opened here.
    opened: bool,
    running: JoinSet<Result<Outcome>>,
    done: Restored,
}

enum Outcome {
    Imported(Kind),
    Kept,
    Refused(String),
}

impl Restorer {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            opened: false,
            running: JoinSet::new(),
            done: Restored::default(),
        }
    }

    /// Takes an entry; waits while many are under way.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`, `Corrupt` of this entry or an earlier one.
    pub(crate) async fn take(&mut self, put: Put) -> Result<()> {
        let now = self.target.clock.now();
        if put
            .restore
            .is_some_and(|life| life.expires_at.is_some_and(|end| now >= end))
        {
            self.done.expired += 1;
            return Ok(());
        }
        while self.running.len() >= IN_FLIGHT {
            self.settle_one().await?;
        }
        let store = self.store().await?;
        let dry_run = self.target.dry_run;
        self.running.spawn(async move {
            if dry_run {
                look(store, put).await
            } else {
                write(store, put, now).await
            }
        });
        Ok(())
    }

    async fn store(&mut self) -> Result<Option<Arc<dyn Store>>> {
        if let Destination::Later(opening) = &mut self.target.store {
            let opened = opening.await;
            // It must not be asked again, whatever it answered.
            self.target.store = opened.as_ref().map_or(Destination::Nothing, |store| {
                Destination::Store(Arc::clone(store))
            });
            self.opened = opened.is_ok();
            return opened.map(Some);
        }
        match &self.target.store {
            Destination::Store(store) => Ok(Some(Arc::clone(store))),
            _ => Ok(None),
        }
    }

    /// Waits for everything that is under way; returns the first failure beside what was counted.
    pub(crate) async fn finish(mut self) -> (Restored, Result<()>) {
        let mut end = Ok(());
        while !self.running.is_empty() {
            end = end.and(self.settle_one().await);
        }
        if let (Destination::Store(store), true) = (&self.target.store, self.opened) {
            end = end.and(store.close().await);
        }
        (self.done, end)
    }

    async fn settle_one(&mut self) -> Result<()> {
        let Some(joined) = self.running.join_next().await else {
            return Ok(());
        };
        match joined.map_err(StoreError::unavailable)?? {
            Outcome::Imported(kind) => {
                self.done.imported += 1;
                *self.done.kinds.entry(kind).or_default() += 1;
            }
            Outcome::Kept => self.done.kept += 1,
            Outcome::Refused(why) => {
                self.done.refused += 1;
                if self.done.named.len() < NAMED {
                    self.done.named.push(why);
                }
            }
        }
        Ok(())
    }
}

async fn write(store: Option<Arc<dyn Store>>, put: Put, now: Timestamp) -> Result<Outcome> {
    let store = store.ok_or(StoreError::Closed)?;
    let (kind, name) = (put.kind, name(&put));
    let batch = match kind {
        // It is a fact of this store from now on.
        Kind::Fact => Floors::ready(&*store, &put.namespace, now)
            .await?
            .put(put, now)?,
        _ => vec![Op::Put(put)],
    };
    match store.write(batch).await {
        Ok(_) => Ok(Outcome::Imported(kind)),
        Err(StoreError::NotNewer) => Ok(Outcome::Kept),
        Err(
            error @ (StoreError::TooLarge { .. }
            | StoreError::Invalid(_)
            | StoreError::QuotaExceeded { .. }),
        ) => Ok(Outcome::Refused(format!("{name}: {error}"))),
        Err(error) => Err(error),
    }
}

async fn look(store: Option<Arc<dyn Store>>, put: Put) -> Result<Outcome> {
    let imported = Ok(Outcome::Imported(put.kind));
    let Some(store) = store else { return imported };
    match store.get(&put.namespace, put.kind, &put.key).await {
        Ok(Some(there))
            if put
                .restore
                .is_some_and(|life| there.meta.updated_at >= life.updated_at) =>
        {
            Ok(Outcome::Kept)
        }
        // Whether it is in the way cannot be seen before it is written.
        Ok(_) | Err(StoreError::Unreadable { .. }) => imported,
        Err(error) => Err(error),
    }
}

fn name(put: &Put) -> String {
    let session = put
        .namespace
        .session
        .as_deref()
        .map(|session| format!("/{session}"))
        .unwrap_or_default();
    format!(
        "{}/{}{session} {} {}",
        put.namespace.tenant, put.namespace.subject, put.kind, put.key
    )
}
