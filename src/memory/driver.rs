//! The trait of a driver, and the store that callers hold: any driver under any seal.
//!
//! A driver keeps raw rows, and decides versions and times inside its own transaction. It never
//! sees a key: each call gets a [`Seal`]. The store checks limits, reads the clock, makes
//! fingerprints and proves the key at the start.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aes_gcm::aead::Generate;
use async_trait::async_trait;
use helmdeck_core::{Clock, Timestamp};

use crate::config::{Config, Limits};
use crate::entry::{Entry, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::key::hex;
use crate::keyring::KeyRing;
use crate::lock::{Keeper, Lock};
use crate::ops::{
    Changes, ListPage, Mark, NamespaceStats, Op, Order, Page, Resealed, Scan, Stats, Walk, Written,
};
use crate::position::{CaughtUp, DeletePosition};
use crate::requests::{
    Batch, Canary, NamespaceOwner, PendingOp, PendingWrite, Position, Quotas, Range, end_of,
};
use crate::sealed::{NoSeal, RowSeal, Seal};
use crate::sieve::Reads;
use crate::store::{Maintenance, ReadStore, Store};

/// Storage of rows.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Returns the driver's name.
    fn name(&self) -> &'static str;

    /// Returns the canary of the store; writes `fresh` if there is none.
    async fn canary(&self, fresh: Canary) -> Result<Canary>;

    /// Returns a live entry, opened.
    async fn get(
        &self,
        namespace: &Namespace,
        kind: Kind,
        key: &str,
        now: Timestamp,
        seal: &Arc<dyn Seal>,
    ) -> Result<Option<Entry>>;

    /// Returns live entries without values, newest first, ties by key, after a position.
    async fn list(&self, range: Range, after: Option<Position>, limit: usize) -> Result<ListPage>;

    /// Returns live entries in the given order, opened. Rows that do not open are counted.
    async fn scan(
        &self,
        range: Range,
        order: Order,
        limit: usize,
        seal: &Arc<dyn Seal>,
    ) -> Result<Scan>;

    /// Returns the totals of each kind in each namespace, of one caller or of all, in no particular
    /// order.
    async fn namespaces(
        &self,
        of: Option<NamespaceOwner>,
        now: Timestamp,
    ) -> Result<Vec<NamespaceStats>>;

    /// Returns totals.
    async fn stats(&self, now: Timestamp) -> Result<Stats>;

    /// Returns a number that grows with every delete, by any process.
    async fn generation(&self) -> Result<u64>;

    /// Runs a batch in one transaction.
    async fn write(&self, batch: Batch) -> Result<Vec<Written>>;

    /// Returns rows of all namespaces after a mark, opened, at most `limit` and at most about
    /// [`crate::requests::WALK_BYTES`] of values.
    async fn walk(&self, after: Option<Mark>, limit: usize, seal: &Arc<dyn Seal>) -> Result<Walk>;

    /// Reseals rows after a mark whose key is not `current`, in one transaction.
    ///
    /// Reads at most `limit` rows. A row that does not open is left unchanged. Only nonce, value
    /// and key id change.
    async fn reseal(
        &self,
        after: Option<Mark>,
        limit: usize,
        current: &str,
        seal: &Arc<dyn Seal>,
    ) -> Result<Resealed>;

    /// Replaces the canary.
    async fn replace_canary(&self, canary: Canary) -> Result<()>;

    /// Replaces the canary if the store has no live row; returns whether it did.
    async fn adopt_if_empty(&self, canary: Canary, now: Timestamp) -> Result<bool>;

    /// Takes a lock for an owner, or extends it if the owner has it; `true` on success.
    ///
    /// A lock is free when its time has passed. A driver that many machines share counts it by the
    /// clock of its server instead of `now`, so that a machine whose clock is wrong neither takes
    /// the locks of others nor keeps its own.
    async fn try_lock(
        &self,
        name: &str,
        owner: &str,
        now: Timestamp,
        hold: Duration,
    ) -> Result<bool>;

    /// Frees a lock if this owner has it.
    async fn unlock(&self, name: &str, owner: &str) -> Result<()>;

    /// Returns notifications of deletes by other processes; `None` if the driver has none.
    fn changes(&self) -> Option<Changes> {
        None
    }

    /// Returns the position after the deletes of this process; `None` if the driver has none.
    fn position(&self) -> Option<DeletePosition> {
        None
    }

    /// Reads the deletes up to a position; `None` is the moment of the call.
    async fn catch_up(&self, _position: Option<&DeletePosition>) -> Result<CaughtUp> {
        Ok(CaughtUp::NoPositions)
    }

    /// Marks cached answers as read, in the namespaces from which rows were evicted before.
    async fn mark_read(&self, reads: HashMap<Namespace, HashSet<String>>) -> Result<()>;

    /// Removes a subject's name from the notifications that are kept for other processes.
    async fn redact_changes(&self, _subject: &str) -> Result<()> {
        Ok(())
    }

    /// Closes the driver.
    async fn close(&self) -> Result<()>;
}

/// Store over a driver and a seal.
pub struct DriverStore<D> {
    driver: Arc<D>,
    seal: Arc<dyn Seal>,
    ring: Option<KeyRing>,
    /// Shared with the threads that prepare large writes.
    limits: Arc<Limits>,
    /// The quotas of each kind, from the limits.
    quotas: Quotas,
    clock: Arc<dyn Clock>,
    /// Bytes written of kind `cache` since its total was checked.
    written: AtomicU64,
    /// Cached answers that were read, for the next eviction.
    reads: Arc<Reads>,
}

/// Limit of entries per page.
const MAX_PAGE: usize = 1000;

/// Limit for sealing on the caller's thread, in bytes. It takes about 0.1 ms.
///
/// Larger values are sealed on a blocking thread.
const INLINE_BYTES: usize = 64 << 10;

/// Most rows that one write evicts, when entries of kind `cache` exceed their limit.
const EVICT_ROWS: usize = 4096;

/// Plaintext of the canary.
const CANARY_TEXT: &[u8] = b"helmdeck memory canary";

impl<D: Driver> DriverStore<D> {
    /// Makes a store that does not seal values.
    #[must_use]
    pub fn plain(driver: D, config: &Config, clock: Arc<dyn Clock>) -> Self {
        Self::new(driver, Arc::new(NoSeal), None, config, clock)
    }

    /// Makes a store that seals every value, after proving that the ring has the key of the stored
    /// rows.
    ///
    /// A new store gets its canary row now. A store without live rows takes the current key.
    ///
    /// # Errors
    /// `WrongKey` if no key of the ring wrote the store; `Corrupt` if its canary is damaged;
    /// `Unavailable`.
    pub async fn sealed(
        driver: D,
        ring: KeyRing,
        config: &Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        prove_key(&driver, &ring, clock.now()).await?;
        let seal = RowSeal::new(ring.clone(), config.fingerprint);
        Ok(Self::new(driver, seal, Some(ring), config, clock))
    }

    fn new(
        driver: D,
        seal: Arc<dyn Seal>,
        ring: Option<KeyRing>,
        config: &Config,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limits = Arc::new(config.limits.clone());
        let quotas = Quotas::new(|kind| limits.quota(kind));
        // The first write checks the total, whatever was written before this process began.
        let written = AtomicU64::new(step(limits.cache_bytes));
        Self {
            driver: Arc::new(driver),
            seal,
            ring,
            limits,
            quotas,
            clock,
            written,
            reads: Arc::default(),
        }
    }

    fn ring(&self) -> Result<&KeyRing> {
        self.ring
            .as_ref()
            .ok_or(StoreError::Invalid("the store was opened without a key"))
    }

    /// Returns the eviction for a batch, if one is due. The total is not checked at every write.
    fn eviction(&self, ops: &[PendingOp]) -> Option<PendingOp> {
        let added: u64 = ops.iter().map(cached_bytes).sum();
        if added == 0 {
            return None;
        }
        let step = step(self.limits.cache_bytes);
        if self.written.fetch_add(added, Ordering::Relaxed) + added < step {
            return None;
        }
        self.written.store(0, Ordering::Relaxed);
        Some(self.evict(EVICT_ROWS))
    }

    fn evict(&self, limit: usize) -> PendingOp {
        let cap = self.limits.cache_bytes;
        // Room for what is written until the next look, here and in a few other processes.
        PendingOp::Evict {
            kind: Kind::Cache,
            bytes: cap.saturating_sub(2 * step(cap)),
            limit,
        }
    }

    fn batch(&self, ops: Vec<PendingOp>, now: Timestamp) -> Batch {
        Batch {
            ops,
            now,
            seal: Arc::clone(&self.seal),
            quotas: self.quotas,
            reads: Arc::clone(&self.reads),
        }
    }

    async fn remove(&self, op: PendingOp) -> Result<u64> {
        let written = self
            .driver
            .write(self.batch(vec![op], self.clock.now()))
            .await?;
        Ok(Written::deleted(&written))
    }

    fn range(&self, namespace: &Namespace, kind: Kind, prefix: &str) -> Range {
        Range {
            namespace: namespace.clone(),
            kind,
            prefix: prefix.to_owned(),
            now: self.clock.now(),
        }
    }
}

/// Returns after how many written bytes the total of kind `cache` is checked.
fn step(cap: u64) -> u64 {
    (cap / 64).clamp(1, 4 << 20)
}

/// Returns about how many bytes an operation adds to kind `cache`.
fn cached_bytes(op: &PendingOp) -> u64 {
    match op {
        PendingOp::Put(pending) if pending.put.kind == Kind::Cache => op.weight() as u64,
        _ => 0,
    }
}

/// Prepares what does not depend on the stored row: fingerprint, end, and the seal as a new entry.
///
/// That keeps the work off the driver's only writer thread.
fn pending(op: Op, now: Timestamp, limits: &Limits, seal: &dyn Seal) -> Result<PendingOp> {
    let put = match op {
        Op::Delete(delete) => return Ok(PendingOp::Delete(delete)),
        Op::Put(put) => put,
    };
    let fingerprint = seal.fingerprint(&put.namespace, &put.value);
    let asked = match put.restore {
        Some(restore) => restore.expires_at,
        None => end_of(now, put.ttl),
    };
    let latest = end_of(now, limits.retention(put.kind));
    let expires_at = asked.into_iter().chain(latest).min();
    let may_be_new = put.expect_version.is_none_or(|version| version == 0);
    let mut pending = PendingWrite {
        put,
        fingerprint,
        expires_at,
        fresh: None,
    };
    if may_be_new {
        let meta = pending.resolve(None, now, seal.overhead())?;
        pending.fresh = Some(seal.seal(&meta, &pending.put.value)?);
    }
    Ok(PendingOp::Put(Box::new(pending)))
}

/// One clear error at the start instead of a thousand rows that do not open.
async fn prove_key<D: Driver>(driver: &D, ring: &KeyRing, now: Timestamp) -> Result<()> {
    let stored = driver.canary(canary(ring)?).await?;
    if !ring.knows(&stored.key_id) {
        if driver.adopt_if_empty(canary(ring)?, now).await? {
            return Ok(());
        }
        let given = ring.ids().collect::<Vec<_>>().join(", ");
        return Err(StoreError::WrongKey {
            store: stored.key_id,
            given,
        });
    }
    match ring.open_blob(&system_namespace(), "canary", b"", &stored.sealed) {
        Ok(text) if text == CANARY_TEXT => Ok(()),
        _ => Err(StoreError::Corrupt(format!(
            "the row that proves key {} does not open",
            stored.key_id
        ))),
    }
}

/// Makes the canary of the current key.
fn canary(ring: &KeyRing) -> Result<Canary> {
    let sealed = ring.seal_blob(&system_namespace(), "canary", b"", CANARY_TEXT)?;
    Ok(Canary {
        key_id: ring.current_id().to_owned(),
        sealed,
    })
}

fn system_namespace() -> Namespace {
    Namespace::new("", "", None)
}

fn most_rows_first(mut all: Vec<NamespaceStats>) -> Vec<NamespaceStats> {
    all.sort_by(|a, b| {
        b.rows
            .cmp(&a.rows)
            .then_with(|| (&a.namespace, a.kind).cmp(&(&b.namespace, b.kind)))
    });
    all
}

/// Keeps locks in a driver.
struct DriverLocks<D> {
    driver: Arc<D>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl<D: Driver> Keeper for DriverLocks<D> {
    async fn hold(&self, name: &str, owner: &str, hold: Duration) -> Result<bool> {
        self.driver
            .try_lock(name, owner, self.clock.now(), hold)
            .await
    }

    async fn free(&self, name: &str, owner: &str) -> Result<()> {
        self.driver.unlock(name, owner).await
    }
}

#[async_trait]
impl<D: Driver> ReadStore for DriverStore<D> {
    async fn get(&self, namespace: &Namespace, kind: Kind, key: &str) -> Result<Option<Entry>> {
        let found = self
            .driver
            .get(namespace, kind, key, self.clock.now(), &self.seal)
            .await?;
        if kind == Kind::Cache && found.is_some() {
            self.reads.note(namespace, key);
        }
        Ok(found)
    }

    async fn list(
        &self,
        namespace: &Namespace,
        kind: Kind,
        prefix: &str,
        page: Page,
    ) -> Result<ListPage> {
        let after = page.after.as_ref().map(Position::parse).transpose()?;
        self.driver
            .list(
                self.range(namespace, kind, prefix),
                after,
                page.limit.clamp(1, MAX_PAGE),
            )
            .await
    }

    async fn scan(
        &self,
        namespace: &Namespace,
        kind: Kind,
        prefix: &str,
        order: Order,
        limit: usize,
    ) -> Result<Scan> {
        self.driver
            .scan(
                self.range(namespace, kind, prefix),
                order,
                limit,
                &self.seal,
            )
            .await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceStats>> {
        self.driver
            .namespaces(None, self.clock.now())
            .await
            .map(most_rows_first)
    }

    async fn namespaces_of(&self, tenant: &str, subject: &str) -> Result<Vec<NamespaceStats>> {
        let of = NamespaceOwner {
            tenant: tenant.to_owned(),
            subject: subject.to_owned(),
        };
        self.driver
            .namespaces(Some(of), self.clock.now())
            .await
            .map(most_rows_first)
    }

    async fn stats(&self) -> Result<Stats> {
        self.driver.stats(self.clock.now()).await
    }

    async fn generation(&self) -> Result<u64> {
        self.driver.generation().await
    }

    async fn walk(&self, after: Option<Mark>, limit: usize) -> Result<Walk> {
        self.driver
            .walk(after, limit.clamp(1, MAX_PAGE), &self.seal)
            .await
    }

    fn changes(&self) -> Option<Changes> {
        self.driver.changes()
    }

    fn position(&self) -> Option<DeletePosition> {
        let position = self.driver.position()?;
        Some(match &self.ring {
            Some(ring) => position.signed(ring),
            None => position,
        })
    }

    async fn catch_up(&self, position: &DeletePosition) -> Result<CaughtUp> {
        // A position that was signed with a removed key cannot be told from a forged one. Neither
        // is later than now.
        let is_genuine = self
            .ring
            .as_ref()
            .is_none_or(|ring| position.is_genuine(ring));
        self.driver.catch_up(is_genuine.then_some(position)).await
    }
}

#[async_trait]
impl<D: Driver> Maintenance for DriverStore<D> {
    async fn sweep_expired(&self, limit: usize) -> Result<u64> {
        self.remove(PendingOp::Sweep(limit)).await
    }

    async fn redact_changes(&self, subject: &str) -> Result<()> {
        self.driver.redact_changes(subject).await
    }

    async fn trim(&self, limit: usize) -> Result<u64> {
        self.remove(self.evict(limit)).await
    }

    fn note_read(&self, namespace: &Namespace, key: &str) {
        self.reads.note(namespace, key);
    }

    async fn flush_reads(&self) -> Result<()> {
        let reads = self.reads.take_all();
        if reads.is_empty() {
            Ok(())
        } else {
            self.driver.mark_read(reads).await
        }
    }

    async fn reseal(&self, after: Option<Mark>, limit: usize) -> Result<Resealed> {
        let current = self.ring()?.current_id().to_owned();
        self.driver
            .reseal(after, limit.clamp(1, MAX_PAGE), &current, &self.seal)
            .await
    }

    async fn adopt_key(&self) -> Result<()> {
        self.driver.replace_canary(canary(self.ring()?)?).await
    }
}

#[async_trait]
impl<D: Driver> Store for DriverStore<D> {
    async fn write(&self, batch: Vec<Op>) -> Result<Vec<Written>> {
        self.limits.check(&batch)?;
        let now = self.clock.now();
        let bytes: usize = batch
            .iter()
            .map(|op| {
                if let Op::Put(put) = op {
                    put.value.len()
                } else {
                    0
                }
            })
            .sum();
        let (seal, limits) = (Arc::clone(&self.seal), Arc::clone(&self.limits));
        let count = batch.len();
        let pending = move || {
            batch
                .into_iter()
                .map(|op| pending(op, now, &limits, &*seal))
                .collect::<Result<Vec<_>>>()
        };
        let mut ops = if bytes > INLINE_BYTES {
            tokio::task::spawn_blocking(pending)
                .await
                .map_err(StoreError::unavailable)??
        } else {
            pending()?
        };
        ops.extend(self.eviction(&ops));
        let mut written = self.driver.write(self.batch(ops, now)).await?;
        // The eviction is not part of the answer.
        written.truncate(count);
        Ok(written)
    }

    async fn try_lock(&self, name: &str, hold: Duration) -> Result<Option<Lock>> {
        let owner = hex(&<[u8; 8]>::try_generate().map_err(StoreError::unavailable)?);
        let keeper = Arc::new(DriverLocks {
            driver: Arc::clone(&self.driver),
            clock: Arc::clone(&self.clock),
        });
        let taken = keeper.hold(name, &owner, hold).await?;
        Ok(taken.then(|| Lock::new(keeper, name.to_owned(), owner)))
    }

    async fn close(&self) -> Result<()> {
        self.driver.close().await
    }
}

impl<D: Driver> std::fmt::Debug for DriverStore<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverStore")
            .field("driver", &self.driver.name())
            .finish_non_exhaustive()
    }
}
