//! Writes new rows of one key space in one statement, which is a transaction by itself.
//!
//! It does all or nothing. Where a row is there, the space is not, or the quota is reached, nothing
//! is done, and the transaction of [`super::apply`] decides. Rows that have ended count as there.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::numbers::signed;
use tokio_postgres::error::SqlState;

use super::apply::Done;
use super::connect::within;
use super::db::{Db, Param};
use super::error::{Failure, Outcome};
use super::flush::Columns;
use super::rows::{self, get};
use crate::entry::{EntryMeta, Kind, Namespace};
use crate::ops::{Delete, Put, Written};
use crate::requests::{Batch, PendingOp};
use crate::sealed::SealedValue;

/// The update of the counters waits for other writers of the space, and then looks at the newest
/// counters. A row that such a writer inserted is not seen: the unique index refuses the whole
/// statement.
///
/// `OFFSET 0` makes each row a lookup by its whole key, in one partition.
const INSERT: &str = "
WITH counted AS (
    UPDATE memory_spaces s SET rows = s.rows + $5, bytes = s.bytes + $6
     WHERE s.tenant = $1 AND s.subject = $2 AND s.kind = $3
       AND coalesce('\\x01'::bytea || s.session, '\\x'::bytea) = $4
       AND s.rows >= 0 AND s.rows <= $7 AND s.bytes >= 0 AND s.bytes <= $8
       AND NOT EXISTS (
           SELECT 1 FROM unnest($21::bytea[]) AS n(key)
            CROSS JOIN LATERAL (SELECT 1 FROM memory_entries e WHERE e.space_id = s.id AND e.key = n.key OFFSET 0) e OFFSET 0)
    RETURNING s.id),
inserted AS (
    INSERT INTO memory_entries (space_id, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags,
                                attributes, cost, value_nonce, value_ciphertext, key)
    SELECT c.id, n.version, n.created_at, n.updated_at, n.expires_at, n.key_id, n.fingerprint, n.category,
           n.tags::bytea[], n.attributes, n.cost, n.value_nonce, n.value_ciphertext, n.key
      FROM counted c
     CROSS JOIN unnest($9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[],
                       $15::bytea[], $16::text[], $17::text[], $18::bigint[], $19::bytea[], $20::bytea[], $21::bytea[])
        AS n(version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags, attributes, cost,
             value_nonce, value_ciphertext, key)
    RETURNING id, space_id, tags),
keyed AS (
    INSERT INTO memory_keys AS k (space_id, key_id, rows)
    SELECT c.id, n.key_id, count(*) FROM counted c CROSS JOIN unnest($13::text[]) AS n(key_id) GROUP BY c.id, n.key_id
    ON CONFLICT (space_id, key_id) DO UPDATE SET rows = k.rows + excluded.rows),
tagged AS (
    INSERT INTO memory_tags (space_id, tag, entry_id)
    SELECT DISTINCT i.space_id, n.tag, i.id FROM inserted i, unnest(i.tags) AS n(tag) ON CONFLICT DO NOTHING)
SELECT count(*) FROM counted";

/// Rows that are inserted together.
struct NewRows<'b> {
    space: (&'b Namespace, Kind),
    /// The metadata of each row, by batch.
    metas: Vec<Vec<EntryMeta>>,
    sealed: Vec<&'b SealedValue>,
    /// What the rows count.
    bytes: i64,
    /// What the space may hold before them.
    free: (i64, i64),
}

impl<'b> NewRows<'b> {
    /// Returns the rows of a group, `None` if one of them may be there, or if the group does
    /// anything else.
    fn of(batches: &'b [Arc<Batch>], recent: &RecentRows) -> Option<Self> {
        let (mut spaces, mut keys, mut sealed) = (None, HashSet::new(), Vec::new());
        let (mut metas, mut bytes, mut quota) = (
            Vec::with_capacity(batches.len()),
            0_i64,
            (i64::MAX, i64::MAX),
        );
        for batch in batches {
            let mut of_batch = Vec::with_capacity(batch.ops.len());
            for op in &batch.ops {
                let PendingOp::Put(pending) = op else {
                    return None;
                };
                let put = &pending.put;
                let space = (&put.namespace, put.kind);
                if *spaces.get_or_insert(space) != space
                    || !keys.insert(&put.key)
                    || recent.has(put)
                {
                    return None;
                }
                let meta = pending
                    .resolve(None, batch.now, batch.seal.overhead())
                    .ok()?;
                bytes = bytes.saturating_add(signed(meta.cost()));
                let of_kind = batch.quotas.of(put.kind);
                quota = (
                    quota.0.min(signed(of_kind.rows)),
                    quota.1.min(signed(of_kind.bytes)),
                );
                sealed.push(pending.fresh.as_ref()?);
                of_batch.push(meta);
            }
            metas.push(of_batch);
        }
        let free = (
            quota.0.saturating_sub(signed(sealed.len() as u64)),
            quota.1.saturating_sub(bytes),
        );
        Some(Self {
            space: spaces?,
            metas,
            sealed,
            bytes,
            free,
        })
    }

    /// Inserts the rows, and returns whether that was done.
    async fn insert(&self, db: &Db) -> Outcome<bool> {
        let mut columns = Columns::default();
        for (meta, sealed) in self.metas.iter().flatten().zip(&self.sealed) {
            columns.push((0, &meta.key), meta, sealed)?;
        }
        let (namespace, kind) = self.space;
        let (tenant, subject, kind) = (
            namespace.tenant.as_bytes(),
            namespace.subject.as_bytes(),
            kind.as_str(),
        );
        let (session, count) = (
            rows::session_name(namespace),
            signed(self.sealed.len() as u64),
        );
        let space: [&dyn Param; 8] = [
            &tenant,
            &subject,
            &kind,
            &session,
            &count,
            &self.bytes,
            &self.free.0,
            &self.free.1,
        ];
        // The space is not known by its id.
        let params = [&space[..], &columns.params()[1..]].concat();
        let ready = within(db.ready(INSERT, &params)).await?;
        let sent = async { Ok::<_, Failure>(db.alone(db.rows(&ready)).await) };
        match within(sent).await.map_err(Failure::after_commit)? {
            Ok(found) => Ok(found.first().and_then(|row| get::<i64>(row, 0)) == Some(1)),
            Err(error) => match error.code() {
                // Another writer was faster.
                Some(code) if *code == SqlState::UNIQUE_VIOLATION => Ok(false),
                // The server refuses the statement before it does anything: it can be sent again.
                Some(code)
                    if [
                        SqlState::READ_ONLY_SQL_TRANSACTION,
                        SqlState::FEATURE_NOT_SUPPORTED,
                    ]
                    .contains(code) =>
                {
                    Err(error.into())
                }
                _ => Err(Failure::from(error).after_commit()),
            },
        }
    }
}

/// Writes a group if all of its rows are new rows of one space. `None` means that nothing was done.
pub(super) async fn write(
    db: &Db,
    batches: &[Arc<Batch>],
    recent: &RecentRows,
) -> Outcome<Option<Done>> {
    let Some(new) = NewRows::of(batches, recent) else {
        return Ok(None);
    };
    if !new.insert(db).await? {
        return Ok(None);
    }
    let written = |metas: Vec<EntryMeta>| {
        metas
            .into_iter()
            .map(|meta| Written::Put(Box::new(meta)))
            .collect()
    };
    Ok(Some(Done {
        answers: new
            .metas
            .into_iter()
            .map(|metas| Ok(written(metas)))
            .collect(),
        next_alone: false,
    }))
}

/// How many rows are remembered.
const RECENT: usize = 4096;

/// Rows that this process wrote recently: writing them again replaces them, so an insert is not
/// tried.
///
/// A hint: a wrong one costs statements, and nothing else.
#[derive(Debug)]
pub(super) struct RecentRows {
    hasher: RandomState,
    /// Hashes of rows, by the rest of their division.
    hashes: Vec<AtomicU64>,
}

impl Default for RecentRows {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            hashes: (0..RECENT).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl RecentRows {
    fn slot(&self, namespace: &Namespace, kind: Kind, key: &str) -> Option<(&AtomicU64, u64)> {
        let hash = self.hasher.hash_one((namespace, kind, key));
        let index = usize::try_from(hash % RECENT as u64).ok()?;
        Some((self.hashes.get(index)?, hash))
    }

    fn has(&self, put: &Put) -> bool {
        self.slot(&put.namespace, put.kind, &put.key)
            .is_some_and(|(slot, hash)| slot.load(Ordering::Relaxed) == hash)
    }

    /// Notes what batches wrote or deleted.
    pub(super) fn note(&self, batches: &[Arc<Batch>]) {
        for op in batches.iter().flat_map(|batch| &batch.ops) {
            match op {
                PendingOp::Put(pending) => {
                    let put = &pending.put;
                    if let Some((slot, hash)) = self.slot(&put.namespace, put.kind, &put.key) {
                        slot.store(hash, Ordering::Relaxed);
                    }
                }
                PendingOp::Delete(Delete::Key {
                    namespace,
                    kind,
                    key,
                }) => {
                    if let Some((slot, _)) = self.slot(namespace, *kind, key) {
                        slot.store(0, Ordering::Relaxed);
                    }
                }
                _ => self
                    .hashes
                    .iter()
                    .for_each(|slot| slot.store(0, Ordering::Relaxed)),
            }
        }
    }
}
