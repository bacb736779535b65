//! Selectors of purges, and purges in progress.

use parking_lot::Mutex;

use helmdeck_core::{PackName, Timestamp};
use helmdeck_memory::{Delete, Kind, Namespace, Reach};
use serde::Serialize;

use super::answer::Location;

/// Which cached answers to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// This process serves no purged answer; the rows are deleted as soon as the store is back.
    pub pending: bool,
}

impl Selector {
    /// Returns a readable description of the purge, for people and events.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::All => "all cached answers".to_owned(),
            Self::Pack(pack) => format!("cached answers of pack {pack}"),
            Self::Tag(tag) | Self::Outdated { tag, whose: Reach::Everybody } => {
                format!("cached answers with tag {tag}")
            }
            Self::Outdated { tag, whose: Reach::One(namespace) } => {
                format!("{} with tag {tag}", Self::Namespace(namespace.clone()).describe())
            }
            Self::Outdated { tag, whose: Reach::Caller { tenant, subject } } => {
                format!("cached answers of {tenant}/{subject}, and those that {tenant} shares, with tag {tag}")
            }
            Self::Namespace(namespace) => match &namespace.session {
                Some(session) => {
                    format!("cached answers of {}/{} in session {session}", namespace.tenant, namespace.subject)
                }
                None => format!("cached answers of {}/{}", namespace.tenant, namespace.subject),
            },
            Self::Key { key, .. } => format!("the cached answer {key}"),
        }
    }

    pub(crate) fn covers(&self, location: &Location) -> bool {
        match self {
            Self::All => true,
            Self::Pack(pack) => *pack == location.pack,
            Self::Tag(tag) => location.tags.iter().any(|tag_of_location| tag_of_location == tag),
            Self::Outdated { tag, whose } => {
                whose.covers(&location.namespace) && location.tags.iter().any(|tag_of_location| tag_of_location == tag)
            }
            Self::Namespace(namespace) => *namespace == location.namespace,
            Self::Key { namespace, key } => {
                *namespace == location.namespace && *key == location.key.stored(&location.pack, location.version)
            }
        }
    }

    pub(crate) fn delete(&self) -> Delete {
        let prefix = |namespace, prefix| Delete::Prefix { namespace, kind: Some(Kind::Cache), prefix };
        match self {
            Self::All => prefix(None, String::new()),
            Self::Pack(pack) => prefix(None, format!("{pack}/")),
            Self::Tag(tag) => Delete::Tagged { whose: Reach::Everybody, kind: Kind::Cache, tag: tag.clone() },
            Self::Outdated { tag, whose } => {
                Delete::Tagged { whose: whose.clone(), kind: Kind::Cache, tag: tag.clone() }
            }
            Self::Namespace(namespace) => prefix(Some(namespace.clone()), String::new()),
            Self::Key { namespace, key } => {
                Delete::Key { namespace: namespace.clone(), kind: Kind::Cache, key: key.clone() }
            }
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
    purges: Vec<(u64, Timestamp, Selector)>,
}

impl PendingPurges {
    pub(crate) fn add(&self, selector: Selector, at: Timestamp) -> u64 {
        let mut state = self.0.lock();
        state.next += 1;
        let id = state.next;
        state.purges.push((id, at, selector));
        id
    }

    pub(crate) fn done(&self, id: u64) {
        let mut state = self.0.lock();
        state.purges.retain(|(pending, ..)| *pending != id);
    }

    /// Returns whether a row that was written at this time is being purged. A tie counts as purged.
    pub(crate) fn covers(&self, location: &Location, written_at: Timestamp) -> bool {
        let state = self.0.lock();
        state.purges.iter().any(|(_, at, selector)| written_at <= *at && selector.covers(location))
    }
}
