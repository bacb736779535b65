//! Chained audit entries: a missing, moved or altered entry is seen.
//!
//! The audit entries of a caller are a chain: each carries its number and the digest of the one
//! before, inside its seal. A sealed head per caller has the number and the digest of the last one,
//! and is written in the transaction of the entries it counts. The roster counts the heads of the
//! store. So [`verify`] sees an entry that is missing at the start, in the middle or at the end,
//! and a caller that is missing whole.
//!
//! Entries go in their order: those that expired or were dropped for new ones are no cut.
//! [`remove`] is for the operator, and leaves a tombstone that says what it removed. Writers of
//! several processes share the chain of a caller: a write expects the version of the head that it
//! read.
//!
//! A whole store put back to an earlier moment verifies: nothing in it can tell.

mod verify;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aes_gcm::aead::Generate;
use bytes::Bytes;
use helmdeck_core::Timestamp;
use hmac::Mac as _;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::entry::{EntryMeta, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::framing::Framed;
use crate::key::{MemoryKey, hex};
use crate::ops::{Delete, Op, Page, Put, Written};
use crate::store::{ReadStore, Store};

pub use verify::{AuditFinding, CallerAudit, Verified, verify};

/// Key of the head of a caller's audit.
pub(crate) const HEAD: &str = "audit";
/// Key of the number of heads.
const ROSTER: &str = "audit/callers";
/// Prefix of keys of tombstones.
const TOMBSTONES: &str = "audit/removed/";
/// Number of heads that a writer remembers.
const REMEMBERED: usize = 1024;
/// How often a write is tried while other processes write entries of the same caller.
const TRIES: u32 = 16;
/// How long a tombstone is kept; the entries whose numbers it has would have expired before.
const TOMBSTONES_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);
/// Limit of entries that one transaction removes.
const STEP: usize = 500;

/// Attributes of a chained entry: bound by its seal, and readable without the key.
const CHAIN: &str = "chain";
const NUMBER: &str = "number";
const BEFORE: &str = "before";
/// When the entry before expires, in Unix microseconds.
const BEFORE_UNTIL: &str = "before_until";
/// Number of calls in an entry.
const CALLS: &str = "calls";

/// An audit entry to write.
#[derive(Debug)]
pub struct AuditEntry {
    /// The entry, without attributes.
    pub put: Put,
    /// Number of calls in it.
    pub calls: usize,
    /// The earliest time at which it may expire.
    pub until: Timestamp,
}

/// Head of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// A random name. A chain that begins again after a removal is another one.
    chain: String,
    /// Random key of the digests: they stand in the clear, and confirm no guess of what was called.
    #[serde(default)]
    secret: String,
    /// When this chain began in the place of a head that did not open, until an administrator
    /// accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Timestamp>,
    /// Number of the last entry; the first has 1.
    number: u64,
    /// Digest of the last entry.
    digest: String,
    /// When the last entry expires, at the earliest.
    until: Timestamp,
}

/// The heads in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Roster {
    callers: u64,
    /// Sum without carries of the digests of callers and their chains: it does not depend on their
    /// order, and names none.
    #[serde(default)]
    set: [u8; 16],
}

impl Roster {
    /// Adds a caller, or takes one away.
    fn change(&mut self, namespace: &Namespace, chain: &str) {
        let framed = Framed::new("helmdeck/memory/audit/caller")
            .text(&namespace.tenant)
            .text(&namespace.subject);
        let digest = Sha256::digest(framed.text(chain).as_slice());
        self.set
            .iter_mut()
            .zip(digest)
            .for_each(|(sum, byte)| *sum ^= byte);
    }
}

/// Record of a removal by an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// When it was done.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub at: Timestamp,
    /// Who did it.
    pub by: String,
    /// The tenant of the calls.
    pub tenant: String,
    /// The user of the calls.
    pub user: String,
    /// Number of removed calls.
    pub calls: u64,
    /// The chain of the removed entries; empty for entries without a chain.
    chain: String,
    /// Numbers of the removed entries: first and last of each run.
    numbers: Vec<(u64, u64)>,
}

/// Link of a chained entry, from its attributes.
struct Link {
    chain: String,
    number: u64,
    before: String,
    before_until: Timestamp,
}

impl Link {
    /// Reads the link of an entry; `None` for one that was written before there were chains, or
    /// imported.
    fn of(meta: &EntryMeta) -> Option<Self> {
        let text = |name: &str| meta.attributes.get(name);
        Some(Self {
            chain: text(CHAIN)?.clone(),
            number: text(NUMBER)?.parse().ok()?,
            before: text(BEFORE)?.clone(),
            before_until: Timestamp(text(BEFORE_UNTIL)?.parse().ok()?),
        })
    }
}

/// Takes the link off an entry that becomes part of another store.
pub(crate) fn unlink(attributes: &mut BTreeMap<String, String>) {
    for name in [CHAIN, NUMBER, BEFORE, BEFORE_UNTIL] {
        attributes.remove(name);
    }
}

/// Returns the digest of an entry, for the one after it.
fn digest(secret: &str, key: &str, attributes: &BTreeMap<String, String>, value: &[u8]) -> String {
    let mut framed = Framed::new("helmdeck/memory/audit/v1").text(key);
    for (name, text) in attributes {
        framed = framed.text(name).text(text);
    }
    let mut mac = MemoryKey::mac_key(secret.as_bytes());
    mac.update(framed.bytes(value).as_slice());
    hex(&mac.finalize().into_bytes()[..16])
}

/// The namespace of the operator's own rows.
fn operator() -> Namespace {
    Namespace::new("", "", None)
}

/// A head row as it was read: its version (0 = absent) and its content.
#[derive(Debug, Clone)]
struct Known<T> {
    version: u64,
    content: Option<T>,
}

/// Reads a row of kind `head`. A row that does not open has its version, and no content.
async fn read<T: DeserializeOwned>(
    store: &dyn ReadStore,
    namespace: &Namespace,
    key: &str,
) -> Result<Known<T>> {
    match store.get(namespace, Kind::Head, key).await {
        Ok(None) => Ok(Known {
            version: 0,
            content: None,
        }),
        Ok(Some(entry)) => Ok(Known {
            version: entry.meta.version,
            content: serde_json::from_slice(&entry.value).ok(),
        }),
        Err(StoreError::Unreadable { .. }) => {
            let listed = store
                .list(namespace, Kind::Head, key, Page::default())
                .await?;
            let version = listed
                .entries
                .iter()
                .find(|meta| meta.key == key)
                .map_or(0, |meta| meta.version);
            Ok(Known {
                version,
                content: None,
            })
        }
        Err(error) => Err(error),
    }
}

fn put<T: Serialize>(
    namespace: Namespace,
    key: &str,
    content: &T,
    expect: Option<u64>,
) -> Result<Op> {
    let value =
        serde_json::to_vec(content).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Op::Put(Put {
        expect_version: expect,
        ..Put::new(namespace, Kind::Head, key, Bytes::from(value))
    }))
}

/// Writes chained entries. It remembers heads, so that most writes read nothing.
#[derive(Debug, Default)]
pub struct ChainWriter {
    heads: Mutex<HashMap<Namespace, Known<Head>>>,
    /// All first heads of a store change its roster: those of this process do it one after the
    /// other.
    first: tokio::sync::Mutex<()>,
}

impl ChainWriter {
    /// Appends entries of one namespace to its chain, in one transaction with the head.
    ///
    /// # Errors
    /// As [`Store::write`]; `VersionMismatch` if other processes were faster each time.
    pub async fn append(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
        entries: &[AuditEntry],
    ) -> Result<()> {
        let mut tries = 1;
        loop {
            let remembered = self.heads.lock().remove(namespace);
            let mut known = match remembered {
                Some(known) => known,
                None => read(store, namespace, HEAD).await?,
            };
            let mut turn = None;
            if known.version == 0 {
                turn = self.first.try_lock().ok();
                if turn.is_none() {
                    turn = Some(self.first.lock().await);
                    known = read(store, namespace, HEAD).await?;
                }
            }
            let (batch, head) = batch(store, namespace, &known, entries).await?;
            match store.write(batch).await {
                Ok(_) => {
                    let mut heads = self.heads.lock();
                    if heads.len() >= REMEMBERED {
                        heads.clear();
                    }
                    heads.insert(
                        namespace.clone(),
                        Known {
                            version: known.version + 1,
                            content: Some(head),
                        },
                    );
                    return Ok(());
                }
                Err(StoreError::VersionMismatch { .. }) if tries < TRIES => {
                    drop(turn);
                    self.compare(store, namespace, &known).await?;
                    // Other processes write the same rows: they are not met in step again.
                    tokio::time::sleep(Duration::from_millis(
                        u64::from(tries) * u64::from(random_bytes::<1>()?[0]) / 32,
                    ))
                    .await;
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the head again after another writer, and says so if it is older than the one known.
    async fn compare(
        &self,
        store: &dyn Store,
        namespace: &Namespace,
        known: &Known<Head>,
    ) -> Result<()> {
        let now: Known<Head> = read(store, namespace, HEAD).await?;
        if let (Some(before), Some(after)) = (&known.content, &now.content)
            && before.chain == after.chain
            && after.number < before.number
        {
            tracing::error!(
                tenant = &*namespace.tenant,
                user = &*namespace.subject,
                "the audit of a caller was put back to an earlier state: its head was at entry {}, and is at {}",
                before.number,
                after.number
            );
        }
        self.heads.lock().insert(namespace.clone(), now);
        Ok(())
    }
}

/// Returns the operations that append entries, and the head after them.
async fn batch(
    store: &dyn ReadStore,
    namespace: &Namespace,
    known: &Known<Head>,
    entries: &[AuditEntry],
) -> Result<(Vec<Op>, Head)> {
    let mut ops = Vec::with_capacity(entries.len() + 2);
    let mut head = match &known.content {
        Some(head) => head.clone(),
        None => {
            let is_new = known.version == 0;
            if !is_new {
                tracing::error!(
                    tenant = &*namespace.tenant,
                    user = &*namespace.subject,
                    "the head of a caller's audit does not open: it was altered; a new chain begins"
                );
            }
            let head = Head {
                chain: random()?,
                secret: hex(&random_bytes::<32>()?),
                lost: (!is_new).then(|| entries.first().map_or(Timestamp(0), |entry| entry.until)),
                number: 0,
                digest: String::new(),
                until: Timestamp(0),
            };
            if is_new {
                let Known { version, content } = read::<Roster>(store, &operator(), ROSTER).await?;
                let mut roster = content.unwrap_or_default();
                roster.callers += 1;
                roster.change(namespace, &head.chain);
                ops.push(put(operator(), ROSTER, &roster, Some(version))?);
            }
            head
        }
    };
    // The head comes first: a full namespace drops its oldest rows for the entries.
    let place = ops.len();
    for entry in entries {
        let mut put = entry.put.clone();
        put.attributes = BTreeMap::from([
            (CHAIN.to_owned(), head.chain.clone()),
            (NUMBER.to_owned(), (head.number + 1).to_string()),
            (BEFORE.to_owned(), head.digest.clone()),
            (BEFORE_UNTIL.to_owned(), head.until.micros().to_string()),
            (CALLS.to_owned(), entry.calls.to_string()),
        ]);
        let digest = digest(&head.secret, &put.key, &put.attributes, &put.value);
        head = Head {
            number: head.number + 1,
            digest,
            until: entry.until,
            ..head
        };
        ops.push(Op::Put(put));
    }
    ops.insert(
        place,
        put(namespace.clone(), HEAD, &head, Some(known.version))?,
    );
    Ok((ops, head))
}

fn random() -> Result<String> {
    Ok(hex(&random_bytes::<8>()?))
}

fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT]>
where
    [u8; COUNT]: Generate,
{
    <[u8; COUNT]>::try_generate().map_err(StoreError::unavailable)
}

/// Removes the audit entries of a caller whose keys begin with `prefix`, for an administrator, and
/// leaves tombstones.
///
/// Returns the number of removed entries. With an empty prefix the head goes too: nothing in the
/// store names the caller then but the sealed tombstone.
///
/// # Errors
/// As [`Store::write`]. What was removed until then has its tombstones.
pub async fn remove(
    store: &dyn Store,
    namespace: &Namespace,
    prefix: &str,
    by: &str,
    at: Timestamp,
) -> Result<u64> {
    let mut removed = 0;
    for _ in 0..TRIES {
        loop {
            let page = Page {
                limit: STEP,
                after: None,
            };
            let found = store
                .list(namespace, Kind::Audit, prefix, page)
                .await?
                .entries;
            if found.is_empty() {
                break;
            }
            removed += remove_some(store, namespace, found, by, at).await?;
        }
        if !prefix.is_empty() || remove_head(store, namespace).await? {
            return Ok(removed);
        }
    }
    Err(StoreError::Unavailable {
        message: "the audit of this caller is being written all the time".to_owned(),
        source: None,
    })
}

/// Notes for an administrator that what a verification missed is known: later verifications do not
/// report it again.
///
/// Entries that do not open or belong to no chain stay reported, until they expire or are removed.
///
/// # Errors
/// As [`Store::write`].
pub async fn accept(store: &dyn Store, verified: &Verified, by: &str, at: Timestamp) -> Result<()> {
    for caller in &verified.callers {
        let numbers: Vec<(u64, u64)> = caller
            .findings
            .iter()
            .filter_map(AuditFinding::missing)
            .collect();
        for part in numbers.chunks(STEP) {
            let stone = Tombstone {
                at,
                by: by.to_owned(),
                tenant: caller.tenant.clone(),
                user: caller.user.clone(),
                calls: 0,
                chain: caller.chain.clone(),
                numbers: part.to_vec(),
            };
            store.write(vec![tombstone(&stone)?]).await?;
        }
    }
    for caller in &verified.callers {
        let namespace = Namespace::new(&caller.tenant, &caller.user, None);
        let Known { version, content } = read::<Head>(store, &namespace, HEAD).await?;
        if let Some(head) = content.filter(|head| head.lost.is_some() && head.chain == caller.chain)
        {
            store
                .write(vec![put(
                    namespace,
                    HEAD,
                    &Head { lost: None, ..head },
                    Some(version),
                )?])
                .await?;
        }
    }
    if verified
        .findings
        .iter()
        .any(|finding| matches!(finding, AuditFinding::Callers { .. }))
    {
        let Known { version, .. } = read::<Roster>(store, &operator(), ROSTER).await?;
        let roster = verify::heads(store).await?.1;
        store
            .write(vec![put(operator(), ROSTER, &roster, Some(version))?])
            .await?;
    }
    Ok(())
}

/// Returns the write of a tombstone.
fn tombstone(stone: &Tombstone) -> Result<Op> {
    let key = format!(
        "{}{:020}-{}",
        tombstones_of(&stone.tenant, &stone.user),
        stone.at.micros(),
        random()?
    );
    let value =
        serde_json::to_vec(stone).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let put = Put::new(operator(), Kind::Head, key, Bytes::from(value));
    Ok(Op::Put(Put {
        ttl: Some(TOMBSTONES_KEPT),
        ..put
    }))
}

/// Returns the prefix of the keys of a caller's tombstones, which does not name the caller.
fn tombstones_of(tenant: &str, user: &str) -> String {
    let framed = Framed::new("helmdeck/memory/audit/removed")
        .text(tenant)
        .text(user);
    format!(
        "{TOMBSTONES}{}/",
        hex(&Sha256::digest(framed.as_slice())[..8])
    )
}

async fn remove_some(
    store: &dyn Store,
    namespace: &Namespace,
    found: Vec<EntryMeta>,
    by: &str,
    at: Timestamp,
) -> Result<u64> {
    let mut stones: BTreeMap<String, Tombstone> = BTreeMap::new();
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut batch = Vec::with_capacity(found.len() + 1);
    for meta in found {
        // What one that does not open says of itself may be made up, to excuse a cut.
        let opens = match store.get(namespace, Kind::Audit, &meta.key).await {
            Ok(found) => found.is_some_and(|entry| entry.meta.attributes == meta.attributes),
            Err(StoreError::Unreadable { .. }) => false,
            Err(error) => return Err(error),
        };
        let link = Link::of(&meta).filter(|_| opens);
        let chain = link
            .as_ref()
            .map(|link| link.chain.clone())
            .unwrap_or_default();
        let stone = stones.entry(chain.clone()).or_insert_with(|| Tombstone {
            at,
            by: by.to_owned(),
            tenant: namespace.tenant.to_string(),
            user: namespace.subject.to_string(),
            calls: 0,
            chain: chain.clone(),
            numbers: Vec::new(),
        });
        // The number in an entry without a chain is not known.
        stone.calls += meta
            .attributes
            .get(CALLS)
            .and_then(|calls| calls.parse::<u64>().ok())
            .unwrap_or(1);
        numbers
            .entry(chain)
            .or_default()
            .extend(link.map(|link| link.number));
        batch.push(Op::Delete(Delete::Key {
            namespace: namespace.clone(),
            kind: Kind::Audit,
            key: meta.key,
        }));
    }
    for (chain, mut stone) in stones {
        stone.numbers = runs(numbers.remove(&chain).unwrap_or_default());
        batch.push(tombstone(&stone)?);
    }
    Ok(Written::deleted(&store.write(batch).await?))
}

/// Removes the head of a caller without entries; `false` if its chain went on meanwhile.
async fn remove_head(store: &dyn Store, namespace: &Namespace) -> Result<bool> {
    let Some(meta) = store
        .list(namespace, Kind::Head, HEAD, Page::default())
        .await?
        .entries
        .into_iter()
        .find(is_head)
    else {
        return Ok(true);
    };
    if !store
        .list(
            namespace,
            Kind::Audit,
            "",
            Page {
                limit: 1,
                after: None,
            },
        )
        .await?
        .entries
        .is_empty()
    {
        return Ok(false);
    }
    let Known { version, content } = read::<Roster>(store, &operator(), ROSTER).await?;
    let mut roster = content.unwrap_or_default();
    roster.callers = roster.callers.saturating_sub(1);
    // That of a head that does not open stays in the sum: it was altered, and a verification says
    // so.
    if let Some(head) = read::<Head>(store, namespace, HEAD).await?.content {
        roster.change(namespace, &head.chain);
    }
    let batch = vec![
        // A writer that was faster has another version: then nothing is done.
        Op::Put(Put::ending(
            namespace.clone(),
            Kind::Head,
            HEAD,
            meta.version,
            meta.updated_at,
        )),
        put(operator(), ROSTER, &roster, Some(version))?,
        Op::Delete(Delete::Key {
            namespace: namespace.clone(),
            kind: Kind::Head,
            key: HEAD.to_owned(),
        }),
    ];
    match store.write(batch).await {
        Ok(_) => Ok(true),
        Err(StoreError::VersionMismatch { .. } | StoreError::NotNewer) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the heads of a namespace but that of the audit, which [`remove`] removes; returns how
/// many.
///
/// # Errors
/// As [`Store::write`].
pub async fn remove_other_heads(store: &dyn Store, namespace: &Namespace) -> Result<u64> {
    let mut removed = 0;
    loop {
        let found = store
            .list(
                namespace,
                Kind::Head,
                "",
                Page {
                    limit: STEP,
                    after: None,
                },
            )
            .await?
            .entries;
        let others = found.into_iter().filter(|meta| !is_head(meta));
        let key = |meta: EntryMeta| Delete::Key {
            namespace: namespace.clone(),
            kind: Kind::Head,
            key: meta.key,
        };
        let batch: Vec<Op> = others.map(|meta| Op::Delete(key(meta))).collect();
        if batch.is_empty() {
            return Ok(removed);
        }
        removed += Written::deleted(&store.write(batch).await?);
    }
}

fn is_head(meta: &EntryMeta) -> bool {
    meta.key == HEAD
}

/// Returns the first and last number of each run.
fn runs(mut numbers: Vec<u64>) -> Vec<(u64, u64)> {
    numbers.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if number <= last.saturating_add(1) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}
