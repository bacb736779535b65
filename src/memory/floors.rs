//! Floors under forgotten entries: an entry that was forgotten, and put back by a program without
//! the key, is refused.
//!
//! Each entry carries the epoch of its namespace in which it was written: an attribute, which its
//! seal binds. An epoch is a time: that of the last forgetting, or of the first head. A sealed head
//! notes for the forgotten key, or for all keys, the first epoch that is served. The head is
//! written in the transaction of the delete. An entry of a later epoch than the head's tells that
//! the head was put back. A head that is made anew serves nothing of before.
//!
//! A namespace whose entries are all put back together with an older head can't be told from what
//! it was. Nor can a forgotten key, once 4096 others were forgotten after it.

use std::collections::BTreeMap;

use helmdeck_core::Timestamp;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::key::hex;
use crate::ops::{Op, Page, Put};
use crate::store::{ReadStore, Store};

/// Key of the head.
const HEAD: &str = "floors";
/// Attribute with the epoch of an entry.
const EPOCH: &str = "epoch";
/// Number of forgotten keys that are noted. Beyond it those that were forgotten first are dropped.
const MAX_KEYS: usize = 4096;

/// Content of a head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    epoch: u64,
    /// The first epoch that is served, of any key.
    all: u64,
    /// Whether entries without an epoch are served: those of before there were heads.
    #[serde(default = "yes")]
    first: bool,
    /// The same by the digest of a key: the head does not say what was forgotten.
    keys: BTreeMap<String, u64>,
}

/// Floors of the facts of a namespace.
#[derive(Debug, Clone)]
pub struct Floors {
    namespace: Namespace,
    /// The version of the head; 0 = there is none.
    version: u64,
    /// `None` = it does not open, or there is none.
    content: Option<Content>,
}

const fn yes() -> bool {
    true
}

/// Takes the epoch off an entry that becomes part of another store.
pub(crate) fn unlink(attributes: &mut BTreeMap<String, String>) {
    attributes.remove(EPOCH);
}

impl Floors {
    /// Reads the floors of a namespace.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    pub async fn read(store: &dyn ReadStore, namespace: &Namespace) -> Result<Self> {
        let mut floors = Self {
            namespace: namespace.clone(),
            version: 0,
            content: None,
        };
        match store.get(namespace, Kind::Head, HEAD).await {
            Ok(None) => return Ok(floors),
            Ok(Some(entry)) => {
                floors.version = entry.meta.version;
                floors.content = serde_json::from_slice(&entry.value).ok();
            }
            Err(StoreError::Unreadable { .. }) => {
                let listed = store
                    .list(namespace, Kind::Head, HEAD, Page::default())
                    .await?
                    .entries;
                floors.version = listed
                    .iter()
                    .find(|meta| meta.key == HEAD)
                    .map_or(0, |meta| meta.version);
            }
            Err(error) => return Err(error),
        }
        Ok(floors)
    }

    /// Reads the floors of a namespace, and writes its first head if it has none.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub async fn ready(store: &dyn Store, namespace: &Namespace, now: Timestamp) -> Result<Self> {
        loop {
            let floors = Self::read(store, namespace).await?;
            if floors.content.is_some() {
                return Ok(floors);
            }
            match store.write(vec![floors.head(&floors.current(now))?]).await {
                Ok(_) | Err(StoreError::VersionMismatch { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the content to go on with.
    fn current(&self, now: Timestamp) -> Content {
        let now = now.micros().unsigned_abs();
        match &self.content {
            Some(content) => content.clone(),
            // What was written before, with a head that is gone, cannot be told from what was put
            // back.
            None => Content {
                epoch: now,
                all: now,
                first: self.version == 0,
                keys: BTreeMap::new(),
            },
        }
    }

    /// Returns whether an entry may be served.
    #[must_use]
    pub fn admit(&self, meta: &EntryMeta) -> bool {
        let epoch = meta
            .attributes
            .get(EPOCH)
            .map_or(Some(0), |epoch| epoch.parse::<u64>().ok());
        match (epoch, &self.content) {
            (None, _) => false,
            // From before there were heads.
            (Some(epoch), None) => self.version == 0 && epoch == 0,
            (Some(epoch), Some(content)) => {
                let noted = content.keys.get(&digest(&meta.key)).copied();
                let floor = noted.unwrap_or(0).max(content.all);
                (epoch == 0 && content.first && noted.is_none())
                    || (floor..=content.epoch).contains(&epoch)
            }
        }
    }

    /// Notes the epoch in an entry, and returns the operations that write it.
    ///
    /// # Errors
    /// `Corrupt` if the head cannot be written as text.
    pub fn put(&self, mut put: Put, now: Timestamp) -> Result<Vec<Op>> {
        let content = self.current(now);
        put.attributes
            .insert(EPOCH.to_owned(), content.epoch.to_string());
        let mut ops = vec![Op::Put(put)];
        if self.content.is_none() {
            ops.push(self.head(&content)?);
        }
        Ok(ops)
    }

    /// Returns the operation that notes that entries are forgotten: those of these keys, or all. It
    /// belongs into the transaction that deletes them.
    ///
    /// # Errors
    /// As [`Floors::put`].
    pub fn forget(&self, keys: Option<&[String]>, now: Timestamp) -> Result<Op> {
        let mut content = self.current(now);
        content.epoch = (content.epoch + 1).max(now.micros().unsigned_abs());
        match keys {
            None => {
                (content.all, content.keys) = (content.epoch, BTreeMap::new());
                content.first = false;
            }
            Some(keys) => content
                .keys
                .extend(keys.iter().map(|key| (digest(key), content.epoch))),
        }
        while content.keys.len() > MAX_KEYS {
            let first = content
                .keys
                .iter()
                .min_by_key(|(_, epoch)| **epoch)
                .map(|(key, _)| key.clone());
            let Some(first) = first else { break };
            content.keys.remove(&first);
        }
        self.head(&content)
    }

    /// Returns whether there is a head.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.version > 0
    }

    fn head(&self, content: &Content) -> Result<Op> {
        let value =
            serde_json::to_vec(content).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let put = Put::new(self.namespace.clone(), Kind::Head, HEAD, value);
        Ok(Op::Put(Put {
            expect_version: Some(self.version),
            ..put
        }))
    }
}

fn digest(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes())[..16])
}
