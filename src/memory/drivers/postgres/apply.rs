//! Write transactions: a group of batches that name their rows, or one batch of any kind.
//!
//! A group takes two round trips, or one if it only inserts into one key space; any other batch
//! runs step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::db::Db;
use super::error::Outcome;
use super::flush::{self, Notice};
use super::locked::{self, Name, RowName};
use super::new_rows::{self, RecentRows};
use super::outbox::{Outbox, payload};
use super::rows;
use super::wide::{self, Excess, Need};
use super::work::{RowKey, Settled, Work};
use crate::entry::{Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::{Delete, Written};
use crate::requests::{Batch, PendingOp};
use crate::sealed::SealedValue;
use crate::sieve::NEIGHBOURS;

/// Result of a group: the answers to its first batches, or to all of them.
#[derive(Debug)]
pub(super) struct Done {
    /// The answers, in order.
    pub(super) answers: Vec<Result<Vec<Written>>>,
    /// The first batch without an answer needs its own transaction, which can make room for it.
    pub(super) next_alone: bool,
}

/// Returns whether all operations of a batch name their rows.
pub(super) fn is_named(batch: &Batch) -> bool {
    batch.ops.iter().all(|op| row_of(op).is_some())
}

fn row_of(op: &PendingOp) -> Option<RowName<'_>> {
    match op {
        PendingOp::Put(pending) => {
            Some((&pending.put.namespace, pending.put.kind, &pending.put.key))
        }
        PendingOp::Delete(Delete::Key {
            namespace,
            kind,
            key,
        }) => Some((namespace, *kind, key)),
        _ => None,
    }
}

/// Returns the spaces and rows that operations name. A space is `true` if a put needs it to exist.
fn named<'b>(batches: impl Iterator<Item = &'b Batch>) -> (BTreeMap<Name, bool>, Vec<RowName<'b>>) {
    let (mut names, mut rows) = (BTreeMap::new(), BTreeSet::new());
    for op in batches.flat_map(|batch| &batch.ops) {
        if let Some((namespace, kind, key)) = row_of(op) {
            *names.entry((namespace.clone(), kind)).or_default() |= matches!(op, PendingOp::Put(_));
            rows.insert((namespace, kind, key));
        }
    }
    (names, rows.into_iter().collect())
}

/// Runs batches that name their rows in one transaction.
///
/// A batch that fails changes nothing and affects no other.
pub(super) async fn group(
    db: &Db,
    batches: &[Arc<Batch>],
    outbox: &Outbox,
    recent: &RecentRows,
) -> Outcome<Done> {
    if let Some(done) = new_rows::write(db, batches, recent).await? {
        return Ok(done);
    }
    let (names, rows) = named(batches.iter().map(|batch| &**batch));
    let began = outbox.commits();
    let mut work = locked::begin(db, &names, &rows, false).await?;
    let mut done = Done {
        answers: Vec::with_capacity(batches.len()),
        next_alone: false,
    };
    for batch in batches {
        work.begin();
        let answer = named_batch(&mut work, batch).await;
        if answer.is_err() {
            work.take_back();
        }
        if matches!(answer, Err(StoreError::QuotaExceeded { .. })) {
            done.next_alone = true;
            break;
        }
        done.answers.push(answer);
    }
    commit(db, &work, outbox, began).await?;
    Ok(done)
}

async fn named_batch(work: &mut Work, batch: &Arc<Batch>) -> Result<Vec<Written>> {
    let mut written = Vec::with_capacity(batch.ops.len());
    for (index, op) in batch.ops.iter().enumerate() {
        match op {
            PendingOp::Put(pending) => {
                let settled = work.resolve(pending, batch)?;
                work.check(&settled, batch.quotas.of(pending.put.kind))?;
                written.push(put(work, batch, index, settled).await?);
            }
            PendingOp::Delete(delete) => written.push(delete_row(work, delete)),
            PendingOp::Sweep(_) | PendingOp::Evict { .. } => {}
        }
    }
    Ok(written)
}

async fn put(
    work: &mut Work,
    batch: &Arc<Batch>,
    index: usize,
    settled: Settled,
) -> Result<Written> {
    let sealed = seal(batch, index, &settled).await?;
    let meta = settled.meta.clone();
    work.put(settled, sealed);
    Ok(Written::Put(Box::new(meta)))
}

fn delete_row(work: &mut Work, delete: &Delete) -> Written {
    work.deletes.push(delete.clone());
    let place = match delete {
        Delete::Key {
            namespace,
            kind,
            key,
        } => work.place(namespace, *kind, key),
        _ => None,
    };
    Written::Deleted(u64::from(place.is_some_and(|place| work.delete(place))))
}

/// Seals what was settled, off the runtime if it is large and not sealed yet.
async fn seal(batch: &Arc<Batch>, index: usize, settled: &Settled) -> Result<SealedValue> {
    let (meta, is_new) = (settled.meta.clone(), settled.is_new);
    let size = batch.ops.get(index).map_or(0, |op| match op {
        PendingOp::Put(pending) if pending.fresh.is_none() || !is_new => pending.put.value.len(),
        _ => 0,
    });
    let batch = Arc::clone(batch);
    let work = move || match batch.ops.get(index) {
        Some(PendingOp::Put(pending)) => {
            Ok(pending.seal(&meta, is_new, &*batch.seal)?.into_owned())
        }
        _ => Err(StoreError::Corrupt("a put is no put".to_owned())),
    };
    rows::open(size, work)
        .await
        .map_err(|failure| failure.error)?
}

/// Applies one batch of any operations in its own transaction.
pub(super) async fn alone(
    db: &Db,
    batch: &Arc<Batch>,
    outbox: &Outbox,
) -> Outcome<Result<Vec<Written>>> {
    // A delete of everything takes its time.
    let began = outbox.commits();
    db.begin().await?;
    db.batch("SET LOCAL statement_timeout = '10min'").await?;
    let (names, rows) = named(std::iter::once(&**batch));
    let mut held = Work::default();
    let mut ids: BTreeSet<i64> = locked::ids(db, names.keys()).await?.into_iter().collect();
    for op in &batch.ops {
        ids.extend(match op {
            PendingOp::Delete(delete @ (Delete::Prefix { .. } | Delete::Tagged { .. })) => {
                wide::spaces_of(db, delete).await?
            }
            PendingOp::Evict { kind, bytes, limit } => {
                wide::too_large(
                    db,
                    &held,
                    Excess {
                        kind: *kind,
                        bytes: *bytes,
                        limit: *limit,
                    },
                )
                .await?
                .0
            }
            _ => Vec::new(),
        });
    }
    locked::lock(db, &mut held, &ids.into_iter().collect::<Vec<_>>(), false).await?;
    let mut work = locked::begin(db, &names, &rows, true).await?;
    for (id, space) in held.spaces {
        work.spaces.entry(id).or_insert(space);
    }
    let mut written = Vec::with_capacity(batch.ops.len());
    for (index, op) in batch.ops.iter().enumerate() {
        match step(db, &mut work, batch, (index, op)).await? {
            Ok(done) => written.push(done),
            Err(refusal) => {
                db.rollback().await?;
                return Ok(Err(refusal));
            }
        }
    }
    commit(db, &work, outbox, began).await?;
    Ok(Ok(written))
}

async fn step(
    db: &Db,
    work: &mut Work,
    batch: &Arc<Batch>,
    (index, op): (usize, &PendingOp),
) -> Outcome<Result<Written>> {
    if let Some((namespace, kind, key)) = row_of(op) {
        look_again(db, work, namespace, kind, key).await?;
    } else {
        write_rows(db, work).await?;
    }
    Ok(Ok(match op {
        PendingOp::Put(pending) => {
            let quota = batch.quotas.of(pending.put.kind);
            let settled = match work.resolve(pending, batch) {
                Ok(settled) => settled,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if work.check(&settled, quota).is_err() {
                make_room(db, work, batch, pending.put.kind, &settled).await?;
            }
            if let Err(full) = work.check(&settled, quota) {
                return Ok(Err(full));
            }
            put(work, batch, index, settled).await?
        }
        PendingOp::Delete(delete @ Delete::Key { .. }) => delete_row(work, delete),
        PendingOp::Delete(delete) => {
            work.deletes.push(delete.clone());
            Written::Deleted(wide::delete(db, work, delete).await?)
        }
        PendingOp::Sweep(limit) => {
            Written::Deleted(wide::sweep(db, work, batch.now, *limit).await?)
        }
        PendingOp::Evict { kind, bytes, limit } => Written::Deleted(
            wide::evict(
                db,
                work,
                Excess {
                    kind: *kind,
                    bytes: *bytes,
                    limit: *limit,
                },
                &batch.reads,
            )
            .await?,
        ),
    }))
}

/// Drops expired rows, then others if the kind allows it, until a put fits.
///
/// Stops when nothing is left to drop.
async fn make_room(
    db: &Db,
    work: &mut Work,
    batch: &Batch,
    kind: Kind,
    settled: &Settled,
) -> Outcome<()> {
    write_rows(db, work).await?;
    let ((space, key), quota) = (&settled.place, batch.quotas.of(kind));
    wide::drop_ended(db, work, *space, key, batch.now).await?;
    locked::look(db, work, &settled.place).await?;
    while kind.makes_room() && work.check(settled, quota).is_err() {
        let (rows, bytes) = work.excess(settled, quota);
        let need = Need {
            rows,
            bytes,
            limit: usize::MAX,
            neighbours: NEIGHBOURS,
        };
        if wide::drop_from(db, work, (*space, key), need, &batch.reads).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// Writes what was worked out, because the database itself is asked next.
async fn write_rows(db: &Db, work: &mut Work) -> Outcome<()> {
    flush::rows(db, work).await?;
    work.written();
    Ok(())
}

async fn look_again(
    db: &Db,
    work: &mut Work,
    namespace: &Namespace,
    kind: Kind,
    key: &str,
) -> Outcome<()> {
    let place: Option<RowKey> = work.place(namespace, kind, key);
    match place.filter(|place| !work.slots.contains_key(place)) {
        Some(place) => locked::look(db, work, &place).await,
        None => Ok(()),
    }
}

/// Commits, or gives up a transaction that would change nothing. It began after so many commits of
/// deletes.
async fn commit(db: &Db, work: &Work, outbox: &Outbox, began: u64) -> Outcome<()> {
    if work.deletes.is_empty()
        && work.gone.is_empty()
        && work.spaces.values().all(|space| !space.changed)
    {
        db.rollback().await?;
        return Ok(());
    }
    let notice = (!work.deletes.is_empty()).then(|| Notice {
        origin: outbox.id,
        payload: payload(&work.deletes),
    });
    let transaction = flush::commit(db, work, notice.as_ref()).await?;
    if notice.is_some() {
        outbox.committed(began, transaction);
    }
    Ok(())
}
