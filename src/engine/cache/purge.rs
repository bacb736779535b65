//! Selectors of purges, and purges in progress.

use parking_lot::Mutex;

use helmdeck_core::{PackName, Timestamp};
use helmdeck_memory::{Delete, Kind, Namespace, Reach};
use serde::{Deserialize, Serialize};

use super::answer::Location;

/// Which cached answers to drop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// All answers of all callers.
    All,
    /// Those of one pack.
    Pack(PackName),
    /// The answers of all callers with a tag. Tags are compared in lower case.
    Tag(String),
    /// The answers with a tag that a write invalidated, within reach of the caller that wrote.
    Outdated {
        /// The tag.
        tag: String,
        /// Whose.
        whose: Reach,
    },
    /// The answers of one namespace.
    Namespace(Namespace),
    /// One answer: its namespace and its key in the store.
    Key {
        /// Whose it is.
        namespace: Namespace,
        /// `<pack>/<version>/<64 hex digits>`.
        key: String,
    },
}

/// Result of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Number of deleted rows.
    pub rows: u64,
    /// The store did not answer in time.
    ///
    /// This process serves no purged answer; the rows are deleted as soon as the store is back, by
    /// this process or the next one with its journal.
    pub pending: bool,
}

impl Selector {
    /// Returns a readable description of the purge, for people and events.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::All => "all cached answers".to_owned(),
            Self::Pack(pack) => format!("cached answers of pack {pack}"),
            Self::Tag(tag)
            | Self::Outdated {
                tag,
                whose: Reach::Everybody,
            } => {
                format!("cached answers with tag {tag}")
            }
            Self::Outdated {
                tag,
                whose: Reach::One(namespace),
            } => {
                format!(
                    "{} with tag {tag}",
                    Self::Namespace(namespace.clone()).describe()
                )
            }
            Self::Outdated {
                tag,
                whose: Reach::Caller { tenant, subject },
            } => {
                format!(
                    "cached answers of {tenant}/{subject}, and those that {tenant} shares, with tag {tag}"
                )
            }
            Self::Namespace(namespace) => match &namespace.session {
                Some(session) => {
                    format!(
                        "cached answers of {}/{} in session {session}",
                        namespace.tenant, namespace.subject
                    )
                }
                None => format!(
                    "cached answers of {}/{}",
                    namespace.tenant, namespace.subject
                ),
            },
            Self::Key { key, .. } => format!("the cached answer {key}"),
        }
    }

    pub(crate) fn covers(&self, location: &Location) -> bool {
        match self {
            Self::All => true,
            Self::Pack(pack) => *pack == location.pack,
            Self::Tag(tag) => location
                .tags
                .iter()
                .any(|tag_of_location| tag_of_location == tag),
            Self::Outdated { tag, whose } => {
                whose.covers(&location.namespace)
                    && location
                        .tags
                        .iter()
                        .any(|tag_of_location| tag_of_location == tag)
            }
            Self::Namespace(namespace) => *namespace == location.namespace,
            Self::Key { namespace, key } => {
                *namespace == location.namespace
                    && *key == location.key.stored(&location.pack, location.version)
            }
        }
    }

    pub(crate) fn delete(&self) -> Delete {
        let prefix = |namespace, prefix| Delete::Prefix {
            namespace,
            kind: Some(Kind::Cache),
            prefix,
        };
        match self {
            Self::All => prefix(None, String::new()),
            Self::Pack(pack) => prefix(None, format!("{pack}/")),
            Self::Tag(tag) => Delete::Tagged {
                whose: Reach::Everybody,
                kind: Kind::Cache,
                tag: tag.clone(),
            },
            Self::Outdated { tag, whose } => Delete::Tagged {
                whose: whose.clone(),
                kind: Kind::Cache,
                tag: tag.clone(),
            },
            Self::Namespace(namespace) => prefix(Some(namespace.clone()), String::new()),
            Self::Key { namespace, key } => Delete::Key {
                namespace: namespace.clone(),
                kind: Kind::Cache,
                key: key.clone(),
            },
        }
    }
}

/// Purges that this process has decided on and the store has not yet carried out.
///
/// Until then, the rows that they cover are not served.
#[derive(Debug, Default)]
pub(crate) struct PendingPurges(Mutex<Purges>);

#[derive(Debug, Default)]
struct Purges {
    next: u64,
    purges: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    id: u64,
    at: Timestamp,
    selector: Selector,
    /// Whether somebody was told that it is pending, or nobody waits for it.
    late: bool,
    /// Its entry in the journal.
    entry: Option<i64>,
}

/// Entry of the journal: a purge that a store has not carried out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JournaledPurge {
    pub(crate) at: i64,
    pub(crate) selector: Selector,
}

impl PendingPurges {
    /// Adds a purge, and its entry in the journal if it is there already. Returns its number.
    pub(crate) fn add(&self, selector: Selector, at: Timestamp, entry: Option<i64>) -> u64 {
        let mut state = self.0.lock();
        state.next += 1;
        let id = state.next;
        state.purges.push(Pending {
            id,
            at,
            selector,
            late: entry.is_some(),
            entry,
        });
        id
    }

    /// Removes a purge that was carried out. Returns its entry in the journal.
    pub(crate) fn done(&self, id: u64) -> Option<i64> {
        let mut state = self.0.lock();
        let index = state.purges.iter().position(|pending| pending.id == id)?;
        state.purges.swap_remove(index).entry
    }

    /// Notes that a purge takes longer than its caller waits, and returns its entry for the
    /// journal; `None` if it was carried out, or is in the journal.
    pub(crate) fn late(&self, id: u64) -> Option<JournaledPurge> {
        let mut state = self.0.lock();
        let pending = state.purges.iter_mut().find(|pending| pending.id == id)?;
        pending.late = true;
        pending.entry.is_none().then(|| JournaledPurge {
            at: pending.at.micros(),
            selector: pending.selector.clone(),
        })
    }

    /// Returns the numbers of all purges.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.0
            .lock()
            .purges
            .iter()
            .map(|pending| pending.id)
            .collect()
    }

    /// Records the entry of a purge in the journal. Returns whether the purge is still pending.
    pub(crate) fn note_entry(&self, id: u64, entry: i64) -> bool {
        let mut state = self.0.lock();
        let pending = state.purges.iter_mut().find(|pending| pending.id == id);
        pending.map(|pending| pending.entry = Some(entry)).is_some()
    }

    /// Returns whether an entry of the journal is one of these.
    pub(crate) fn has_entry(&self, entry: i64) -> bool {
        self.0
            .lock()
            .purges
            .iter()
            .any(|pending| pending.entry == Some(entry))
    }

    /// Returns the number of purges that take longer than their callers waited.
    pub(crate) fn count_late(&self) -> usize {
        self.0
            .lock()
            .purges
            .iter()
            .filter(|pending| pending.late)
            .count()
    }

    /// Returns whether a row that was written at this time is being purged. A tie counts as purged.
    pub(crate) fn covers(&self, location: &Location, written_at: Timestamp) -> bool {
        let state = self.0.lock();
        state
            .purges
            .iter()
            .any(|pending| written_at <= pending.at && pending.selector.covers(location))
    }
}
