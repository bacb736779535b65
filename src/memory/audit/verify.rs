//! Verification of chained audit entries.

use std::collections::{BTreeMap, BTreeSet};

use helmdeck_core::{Clock, Timestamp};
use serde::Serialize;

use super::{
    HEAD, Head, Known, Link, ROSTER, Roster, TOMBSTONES, Tombstone, digest, operator, read,
    tombstones_of,
};
use crate::entry::{Kind, Namespace, Quota};
use crate::error::{Result, StoreError};
use crate::ops::{Order, Page};
use crate::store::ReadStore;

/// Limit of entries per list.
const LISTED: usize = 500;
/// How often the roster is compared before it counts as wrong.
const LOOKS: u32 = 3;
/// Limit of tombstones that are read.
const MAX_TOMBSTONES: usize = 100_000;

/// Result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The audit of each caller.
    pub callers: Vec<CallerAudit>,
    /// What administrators removed, oldest first.
    pub removed: Vec<Tombstone>,
    /// What is wrong with the audit as a whole.
    pub findings: Vec<AuditFinding>,
}

impl Verified {
    /// Returns whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty() && self.callers.iter().all(|caller| caller.findings.is_empty())
    }
}

/// The audit of one caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerAudit {
    /// The tenant.
    pub tenant: String,
    /// The user.
    pub user: String,
    /// The chain of the head.
    #[serde(skip)]
    pub(super) chain: String,
    /// Number of entries in the chain.
    pub entries: u64,
    /// Number of entries that were written before there were chains, or imported.
    pub unchained: u64,
    /// Number of the last entry, and its digest: note it elsewhere to compare later.
    pub head: Option<String>,
    /// Number of entries that a full namespace dropped for new ones.
    pub dropped: u64,
    /// What is wrong.
    pub findings: Vec<AuditFinding>,
}

/// Something wrong with the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum AuditFinding {
    /// An entry does not open.
    Altered {
        /// Its key.
        key: String,
    },
    /// Entries are missing that should be there, and no tombstone has them.
    Missing {
        /// Number of the first.
        from: u64,
        /// Number of the last.
        to: u64,
    },
    /// An entry does not follow the one before.
    Broken {
        /// Its number.
        number: u64,
    },
    /// An entry was removed, or belongs to no chain that is there: it was put back, or its head was
    /// replaced.
    Stray {
        /// Its key.
        key: String,
    },
    /// The head is missing or does not open.
    NoHead,
    /// An earlier head did not open, and its chain was lost.
    Replaced,
    /// The head is older than an entry: it was put back.
    OldHead {
        /// The number that the head has.
        number: u64,
    },
    /// The store should have this many callers with an audit, and has others.
    Callers {
        /// The number that the roster has; `None` if there is no roster that opens.
        expected: Option<u64>,
        /// The number of heads.
        found: u64,
    },
}

impl AuditFinding {
    /// Returns the first and last number of missing entries.
    pub(super) const fn missing(&self) -> Option<(u64, u64)> {
        match self {
            Self::Missing { from, to } => Some((*from, *to)),
            _ => None,
        }
    }
}

impl std::fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Altered { key } => write!(f, "entry {key} does not open"),
            Self::Missing { from, to } if from == to => write!(f, "entry {from} is missing"),
            Self::Missing { from, to } => write!(f, "entries {from} to {to} are missing"),
            Self::Broken { number } => write!(f, "entry {number} does not follow the one before"),
            Self::Stray { key } => write!(
                f,
                "entry {key} was removed, or its chain was: it was put back"
            ),
            Self::NoHead => f.write_str("the head is missing or does not open"),
            Self::Replaced => {
                f.write_str("the head did not open, and was replaced: what was before it is lost")
            }
            Self::OldHead { number } => {
                write!(
                    f,
                    "the head is at entry {number}, and there are later ones: it was put back"
                )
            }
            Self::Callers {
                expected: Some(expected),
                found,
            } if expected == found => {
                write!(
                    f,
                    "the audit of a caller was replaced by another one; there are {found}"
                )
            }
            Self::Callers {
                expected: Some(expected),
                found,
            } => {
                write!(
                    f,
                    "the store should have the audit of {expected} callers, and has that of {found}"
                )
            }
            Self::Callers {
                expected: None,
                found,
            } => {
                write!(
                    f,
                    "the number of callers with an audit is missing; there are {found}"
                )
            }
        }
    }
}

/// Verifies every chain of a store. `limit` is the limit of audit entries of one caller.
///
/// Entries may be written and removed meanwhile.
///
/// # Errors
/// `Unavailable`, `Closed`.
pub async fn verify(store: &dyn ReadStore, limit: Quota, clock: &dyn Clock) -> Result<Verified> {
    let mut all = Verified::default();
    let held = store.namespaces().await?;
    let audited = held
        .iter()
        .filter(|held| held.kind == Kind::Audit)
        .map(|held| held.namespace.clone());
    let whose: BTreeSet<Namespace> = heads(store).await?.0.into_iter().chain(audited).collect();
    for namespace in whose {
        all.callers
            .push(caller(store, &namespace, limit, clock).await?);
    }
    all.findings.extend(roster(store).await?);
    all.removed = tombstones(store, TOMBSTONES).await?;
    Ok(all)
}

/// Returns the callers with a head, and the roster of those whose head opens.
pub(super) async fn heads(store: &dyn ReadStore) -> Result<(BTreeSet<Namespace>, Roster)> {
    let (mut heads, mut roster) = (BTreeSet::new(), Roster::default());
    let held = store.namespaces().await?;
    for held in held
        .into_iter()
        .filter(|held| held.kind == Kind::Head && held.namespace != operator())
    {
        let page = store
            .list(&held.namespace, Kind::Head, HEAD, Page::default())
            .await?;
        if page.entries.iter().any(|meta| meta.key == HEAD) {
            if let Some(head) = read::<Head>(store, &held.namespace, HEAD).await?.content {
                roster.callers += 1;
                roster.change(&held.namespace, &head.chain);
            }
            heads.insert(held.namespace);
        }
    }
    Ok((heads, roster))
}

/// Compares the number of heads with the roster.
async fn roster(store: &dyn ReadStore) -> Result<Option<AuditFinding>> {
    let mut finding = None;
    // A caller may come or go between the two looks.
    for _ in 0..LOOKS {
        let Known { version, content } = read::<Roster>(store, &operator(), ROSTER).await?;
        let found = heads(store).await?.1;
        let never = version == 0 && found.callers == 0;
        if never || content.as_ref() == Some(&found) {
            return Ok(None);
        }
        let expected = content.map(|roster| roster.callers);
        finding = Some(AuditFinding::Callers {
            expected,
            found: found.callers,
        });
    }
    Ok(finding)
}

async fn tombstones(store: &dyn ReadStore, prefix: &str) -> Result<Vec<Tombstone>> {
    let found = store
        .scan(
            &operator(),
            Kind::Head,
            prefix,
            Order::KeyAscending,
            MAX_TOMBSTONES,
        )
        .await?;
    Ok(found
        .entries
        .iter()
        .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
        .collect())
}

/// An entry of a chain that opened.
struct Opened {
    key: String,
    at: Timestamp,
    before: String,
    before_until: Timestamp,
    digest: String,
}

async fn caller(
    store: &dyn ReadStore,
    namespace: &Namespace,
    limit: Quota,
    clock: &dyn Clock,
) -> Result<CallerAudit> {
    let mut audit = CallerAudit {
        tenant: namespace.tenant.to_string(),
        user: namespace.subject.to_string(),
        chain: String::new(),
        entries: 0,
        unchained: 0,
        head: None,
        dropped: 0,
        findings: Vec::new(),
    };
    // The head first: entries after it are newer, those up to it must be there.
    let Known {
        version,
        content: head,
    } = read::<Head>(store, namespace, HEAD).await?;
    let mut chain: BTreeMap<u64, Opened> = BTreeMap::new();
    let (mut after, mut rows, mut bytes) = (None, 0, 0);
    loop {
        let page = store
            .list(
                namespace,
                Kind::Audit,
                "",
                Page {
                    limit: LISTED,
                    after,
                },
            )
            .await?;
        for meta in page.entries {
            (rows, bytes) = (rows + 1, bytes + meta.cost());
            let entry = match store.get(namespace, Kind::Audit, &meta.key).await {
                Ok(Some(entry)) => entry,
                // It expired or was removed since it was listed.
                Ok(None) => continue,
                Err(StoreError::Unreadable { .. }) => {
                    audit.findings.push(AuditFinding::Altered { key: meta.key });
                    continue;
                }
                Err(error) => return Err(error),
            };
            match (Link::of(&entry.meta), &head) {
                (None, _) => audit.unchained += 1,
                (Some(link), Some(head)) if link.chain == head.chain => {
                    audit.entries += 1;
                    let digest = digest(
                        &head.secret,
                        &entry.meta.key,
                        &entry.meta.attributes,
                        &entry.value,
                    );
                    let (before, before_until) = (link.before, link.before_until);
                    let at = entry.meta.updated_at;
                    let opened = Opened {
                        key: entry.meta.key,
                        at,
                        before,
                        before_until,
                        digest,
                    };
                    chain.insert(link.number, opened);
                }
                (Some(_), Some(_)) => audit.findings.push(AuditFinding::Stray {
                    key: entry.meta.key,
                }),
                (Some(_), None) => audit.entries += 1,
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let Some(head) = head else {
        if audit.entries > 0 || version > 0 {
            audit.findings.push(AuditFinding::NoHead);
        }
        return Ok(audit);
    };
    audit.chain.clone_from(&head.chain);
    if head.lost.is_some() {
        audit.findings.push(AuditFinding::Replaced);
    }
    audit.head = Some(format!("{}:{}:{}", head.chain, head.number, head.digest));
    // Entries are written with their head: one that was read then is not later than the head is
    // now.
    let now: Option<Head> = read(store, namespace, HEAD).await?.content;
    let newest = chain.last_key_value().map_or(0, |(number, _)| *number);
    if let Some(now) =
        now.filter(|now| now.chain == head.chain && now.number < newest.max(head.number))
    {
        audit
            .findings
            .push(AuditFinding::OldHead { number: now.number });
    }
    // What was removed since it was read has its tombstone by now.
    let stones = tombstones(store, &tombstones_of(&audit.tenant, &audit.user))
        .await?
        .into_iter()
        .filter(|stone| stone.chain == head.chain);
    let removed: Vec<(u64, u64)> = stones.flat_map(|stone| stone.numbers).collect();
    for (_, opened) in chain.iter().filter(|(number, _)| {
        removed
            .iter()
            .any(|(from, to)| (*from..=*to).contains(*number))
    }) {
        if store
            .get(namespace, Kind::Audit, &opened.key)
            .await?
            .is_some()
        {
            audit.findings.push(AuditFinding::Stray {
                key: opened.key.clone(),
            });
        }
    }
    let full = rows >= limit.rows / 4 * 3 || bytes >= limit.bytes / 4 * 3;
    let (missing, dropped) = gaps(&head, &chain, &removed, full, clock.now());
    audit.findings.extend(missing);
    audit.dropped = dropped;
    Ok(audit)
}

/// Returns what is missing in a chain, and the number of entries that were dropped for new ones.
fn gaps(
    head: &Head,
    chain: &BTreeMap<u64, Opened>,
    removed: &[(u64, u64)],
    full: bool,
    now: Timestamp,
) -> (Vec<AuditFinding>, u64) {
    let (mut findings, mut dropped, mut last) = (Vec::new(), 0, 0);
    // A full namespace drops its oldest entries, and of those that were written at once any.
    let oldest = chain.values().map(|opened| opened.at).min();
    let is_oldest = |number: u64| {
        full && oldest.is_some() && chain.get(&number).map(|opened| opened.at) == oldest
    };
    // Each entry says what the one before it is and when that expires; the head says it of the last
    // one.
    let entries = chain
        .iter()
        .map(|(number, opened)| (*number, &opened.before, opened.before_until));
    let end = (head.number + 1, &head.digest, head.until);
    for (number, before, until) in entries
        .filter(|(number, ..)| *number <= head.number)
        .chain([end])
    {
        if number == last + 1 {
            let follows = chain
                .get(&last)
                .map_or(last == 0 && before.is_empty(), |opened| {
                    opened.digest == *before
                });
            if !follows {
                findings.push(AuditFinding::Broken { number });
            }
        } else if until > now {
            for (from, to) in without(last + 1, number - 1, removed) {
                if is_oldest(number) {
                    dropped += to - from + 1;
                } else {
                    findings.push(AuditFinding::Missing { from, to });
                }
            }
        }
        last = number;
    }
    (findings, dropped)
}

/// Returns the parts of a run of numbers that are not in others.
fn without(from: u64, to: u64, others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut parts = vec![(from, to)];
    for &(first, last) in others {
        parts = parts
            .into_iter()
            .flat_map(|(from, to)| {
                let before = (from, to.min(first.saturating_sub(1)));
                let after = (from.max(last.saturating_add(1)), to);
                let apart = last < from || first > to;
                if apart {
                    vec![(from, to)]
                } else {
                    vec![before, after]
                }
            })
            .filter(|(from, to)| from <= to)
            .collect();
    }
    parts
}
