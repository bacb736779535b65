//! Configuration of a store. Every default suits a single machine.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::{Fingerprint, Kind, Quota};
use crate::error::{Result, StoreError};
use crate::ops::{Op, Put};

/// Configuration of a store.
#[derive(Debug, Clone)]
pub struct Config {
    /// Limits of writes and namespaces.
    pub limits: Limits,
    /// How fingerprints are made.
    pub fingerprint: Fingerprint,
    /// Threads that read, for drivers that have threads. Default 2, at least 1.
    pub readers: usize,
    /// How long a driver waits for another process's lock before it answers `Unavailable`. Default
    /// 5 s. A SQLite file is waited for a 64th of it where nothing can be lost.
    pub busy_timeout: Duration,
    /// Connections to a PostgreSQL server.
    pub postgres: PostgresConfig,
    /// Connections that the driver shares with other tables of its database; `None` = its own.
    /// Closing the store leaves them open.
    #[cfg(feature = "postgres")]
    pub connections: Option<crate::drivers::postgres::session::Connections>,
}

/// Connections to a PostgreSQL server. Its address is in the URL.
#[derive(Debug, Clone, Copy)]
pub struct PostgresConfig {
    /// Connections that read and write. One more listens. Default 2, at least 1.
    pub pool_size: usize,
    /// How long a caller waits for a connection before it gets `Unavailable`. Default 5 s.
    pub connect_timeout: Duration,
    /// Whether a session listens for deletes by other replicas. Default [`Listen::Auto`].
    pub listen: Listen,
    /// How often deletes by other replicas are looked for, besides listening. Default 100 ms.
    pub watch_interval: Duration,
}

/// Use of the state of a session: named statements, settings, `LISTEN` and advisory locks.
///
/// A connection pooler in transaction mode (`PgBouncer`) keeps none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    /// Use it, unless a pooler is found between here and the server.
    #[default]
    Auto,
    /// Use it, and refuse a pooler.
    On,
    /// Never use it.
    Off,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            pool_size: 2,
            connect_timeout: Duration::from_secs(5),
            listen: Listen::Auto,
            watch_interval: Duration::from_millis(100),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            fingerprint: Fingerprint::default(),
            readers: 2,
            busy_timeout: Duration::from_secs(5),
            postgres: PostgresConfig::default(),
            #[cfg(feature = "postgres")]
            connections: None,
        }
    }
}

/// Limits of writes and namespaces. A write over a limit is refused whole.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Limit of a key in bytes. Default 1 KiB.
    pub key_bytes: usize,
    /// Limit of a value in bytes, except for cached answers, which their packs limit. Default 1
    /// MiB.
    pub value_bytes: usize,
    /// Limit of a category in bytes. Default 256.
    pub category_bytes: usize,
    /// Limit of tags of an entry. Default 32.
    pub tags: usize,
    /// Limit of a tag in bytes. Default 256.
    pub tag_bytes: usize,
    /// Limit of attributes of an entry. Default 16.
    pub attributes: usize,
    /// Limit of an attribute's name, and of its value, in bytes. Default 256.
    pub attribute_bytes: usize,
    /// Limit of operations in a batch. Default 1024.
    pub batch: usize,
    /// Limit of rows of one kind in one namespace. Default 1,000,000.
    pub rows: u64,
    /// Limit of bytes of one kind in one namespace ([`crate::EntryMeta::cost`]). Default 4 GiB.
    pub bytes: u64,
    /// Limit of all entries of kind `cache` together in bytes. Default 4 GiB.
    ///
    /// Entries of the largest namespace are evicted first, as [`crate::sieve`] chooses them.
    pub cache_bytes: u64,
    /// Limits that replace these for one kind.
    pub kinds: BTreeMap<Kind, KindLimits>,
}

/// Limits of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindLimits {
    /// Instead of [`Limits::rows`].
    pub rows: Option<u64>,
    /// Instead of [`Limits::bytes`].
    pub bytes: Option<u64>,
    /// Longest lifetime of an entry, whatever its writer requests. `None` = no limit.
    pub retention: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 1 << 10,
            value_bytes: 1 << 20,
            category_bytes: 256,
            tags: 32,
            tag_bytes: 256,
            attributes: 16,
            attribute_bytes: 256,
            batch: 1024,
            rows: 1_000_000,
            bytes: 4 << 30,
            cache_bytes: 4 << 30,
            kinds: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Returns the limit of rows and bytes of a kind in one namespace.
    #[must_use]
    pub fn quota(&self, kind: Kind) -> Quota {
        let own = self.kinds.get(&kind).copied().unwrap_or_default();
        Quota {
            rows: own.rows.unwrap_or(self.rows),
            bytes: own.bytes.unwrap_or(self.bytes),
        }
    }

    /// Returns the longest lifetime of an entry of a kind. A head has no end.
    #[must_use]
    pub fn retention(&self, kind: Kind) -> Option<Duration> {
        self.kinds
            .get(&kind)
            .filter(|_| kind != Kind::Head)?
            .retention
    }

    /// Checks a batch against every limit that does not depend on what is stored.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid` for the first operation over a limit or with an invalid argument.
    pub fn check(&self, batch: &[Op]) -> Result<()> {
        within("batch", batch.len(), self.batch)?;
        for op in batch {
            if let Op::Put(put) = op {
                self.check_put(put)?;
            }
        }
        Ok(())
    }

    fn check_put(&self, put: &Put) -> Result<()> {
        if put.key.is_empty() {
            return Err(StoreError::Invalid("the key is empty"));
        }
        within("key", put.key.len(), self.key_bytes)?;
        if put.kind != Kind::Cache {
            within("value", put.value.len(), self.value_bytes)?;
        }
        within("category", put.category.len(), self.category_bytes)?;
        within("list of tags", put.tags.len(), self.tags)?;
        for tag in &put.tags {
            within("tag", tag.len(), self.tag_bytes)?;
        }
        within("list of attributes", put.attributes.len(), self.attributes)?;
        for (name, value) in &put.attributes {
            within("name of an attribute", name.len(), self.attribute_bytes)?;
            within("attribute", value.len(), self.attribute_bytes)?;
        }
        Ok(())
    }
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(StoreError::TooLarge {
            what,
            size: size as u64,
            limit: limit as u64,
        });
    }
    Ok(())
}
