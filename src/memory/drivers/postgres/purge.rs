//! Deletes over all namespaces, in short transactions that lock a few spaces each.
//!
//! Such a delete is not one transaction: if it fails, a part of it is done. Each part announces the
//! whole.

use std::sync::Arc;

use super::connect::{Asking, within_long};
use super::db::{Database, Db, Param};
use super::error::Outcome;
use super::flush::{self, Notice};
use super::locked;
use super::outbox::{Outbox, payload};
use super::rows::{self, get};
use super::wide;
use super::work::Work;
use super::writer::again;
use crate::entry::{Kind, Reach};
use crate::error::Result;
use crate::ops::{Delete, Written};
use crate::requests::{Batch, PendingOp};

/// Spaces that are looked at in one statement.
const PAGE: usize = 4096;
/// Spaces that are locked at once.
const LOCKED: usize = 64;

const NEWEST: &str = "SELECT coalesce(max(id), 0) FROM memory_spaces";

macro_rules! page {
    ($affected:expr) => {
        concat!(
            "SELECT s.id, EXISTS (",
            $affected,
            ") FROM (SELECT id FROM memory_spaces WHERE id > $1 AND id <= $2 AND ($3::text IS NULL OR kind = $3)
                      ORDER BY id LIMIT $4) s"
        )
    };
}
/// The next spaces, and which of them have something to delete.
const TAGGED: &str = page!("SELECT 1 FROM memory_tags t WHERE t.space_id = s.id AND t.tag = $5");
const PREFIXED: &str =
    page!("SELECT 1 FROM memory_entries e WHERE e.space_id = s.id AND e.key >= $5 AND e.key < $6");

/// Returns the delete of a batch that is nothing but one delete over all namespaces.
pub(super) fn everywhere(batch: &Batch) -> Option<&Delete> {
    match batch.ops.as_slice() {
        [
            PendingOp::Delete(
                delete @ (Delete::Prefix {
                    namespace: None, ..
                }
                | Delete::Tagged {
                    whose: Reach::Everybody,
                    ..
                }),
            ),
        ] => Some(delete),
        _ => None,
    }
}

/// A delete over all namespaces.
struct Purge {
    delete: Delete,
    outbox: Arc<Outbox>,
}

/// Deletes in all namespaces.
///
/// # Errors
/// `Unavailable`; a part may be deleted then.
pub(super) async fn run(
    database: Database,
    delete: Delete,
    outbox: Arc<Outbox>,
) -> Result<Vec<Written>> {
    let purge = Arc::new(Purge { delete, outbox });
    // Spaces that are made from now on belong to later writes.
    let newest: i64 = step(&database, |db| {
        Box::pin(async move { Ok(get(&db.query_one(NEWEST, &[]).await?, 0).unwrap_or_default()) })
    })
    .await?;
    let (mut after, mut count, mut is_announced) = (i64::MIN, 0, false);
    loop {
        let page = step(&database, |db| {
            let purge = Arc::clone(&purge);
            Box::pin(async move { purge.look(db, after, newest).await })
        });
        let page = page.await?;
        let Some(last) = page.last else { break };
        for spaces in page.affected.chunks(LOCKED) {
            count += purge.step(&database, spaces).await?;
            is_announced = true;
        }
        if page.is_last {
            break;
        }
        after = last;
    }
    if !is_announced {
        purge.step(&database, &[]).await?;
    }
    Ok(vec![Written::Deleted(count)])
}

/// Runs one transaction, and retries it.
async fn step<T>(database: &Database, work: impl for<'c> Fn(&'c Db) -> Asking<'c, T>) -> Result<T> {
    let mut tries = 0;
    loop {
        let outcome = match database.take().await {
            Ok(db) => {
                let outcome = within_long(work(&db)).await;
                db.give_back(outcome).await
            }
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(done) => return Ok(done),
            Err(failure) => again(failure, &mut tries).await?,
        }
    }
}

/// A part of the spaces, in the order of their ids.
#[derive(Debug, Default)]
struct Spaces {
    /// The last one; `None` if there are no more.
    last: Option<i64>,
    /// Those with something to delete.
    affected: Vec<i64>,
    /// Whether no more spaces follow. Those that are made meanwhile are not looked for.
    is_last: bool,
}

impl Purge {
    /// Looks at the next spaces; locks nothing.
    async fn look(&self, db: &Db, after: i64, newest: i64) -> Outcome<Spaces> {
        let (kind, prefix, tag) = match &self.delete {
            Delete::Tagged { kind, tag, .. } => (Some(*kind), "", Some(tag.as_str())),
            Delete::Prefix { kind, prefix, .. } => (*kind, prefix.as_str(), None),
            Delete::Key { kind, key, .. } => (Some(*kind), key.as_str(), None),
        };
        let (kind, key, upper) = (
            kind.map(Kind::as_str),
            tag.unwrap_or(prefix).as_bytes(),
            rows::upper(prefix),
        );
        let page = rows::limit(PAGE);
        let mut params: Vec<&dyn Param> = vec![&after, &newest, &kind, &page, &key];
        if tag.is_none() {
            params.push(&upper);
        }
        let found = db
            .query(if tag.is_some() { TAGGED } else { PREFIXED }, &params)
            .await?;
        let mut spaces = Spaces {
            is_last: found.len() < PAGE,
            ..Spaces::default()
        };
        for row in &found {
            let id = get(row, 0).unwrap_or_default();
            spaces.last = spaces.last.max(Some(id));
            if get(row, 1) == Some(true) {
                spaces.affected.push(id);
            }
        }
        Ok(spaces)
    }

    /// Deletes in some spaces, and announces the whole delete with it.
    async fn step(self: &Arc<Self>, database: &Database, spaces: &[i64]) -> Result<u64> {
        step(database, |db| {
            let (purge, spaces) = (Arc::clone(self), spaces.to_vec());
            Box::pin(async move { purge.delete_in(db, &spaces).await })
        })
        .await
    }

    async fn delete_in(&self, db: &Db, spaces: &[i64]) -> Outcome<u64> {
        let began = self.outbox.commits();
        db.begin().await?;
        db.batch("SET LOCAL statement_timeout = '10min'").await?;
        let mut work = Work::default();
        locked::lock(db, &mut work, spaces, false).await?;
        let count = wide::delete_in(db, &mut work, &self.delete, spaces).await?;
        let payload = payload(std::slice::from_ref(&self.delete));
        let transaction = flush::commit(
            db,
            &work,
            Some(&Notice {
                origin: self.outbox.id,
                payload,
            }),
        )
        .await?;
        self.outbox.committed(began, transaction);
        Ok(count)
    }
}
