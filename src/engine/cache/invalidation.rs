//! Cross-process invalidation: drops entries that another process deleted, for good.
//!
//! Three things could bring a deleted entry back, and each is prevented:
//!
//! - An answer in flight is invalidated.
//! - An answer that waits to be written carries the epoch in which it completed. It is dropped if
//!   an invalidation that covers it came later; if it was being written at that moment, its row is
//!   taken back.
//! - A row that another process writes, although its run began before the delete, is not trusted
//!   for a while. That process receives the same invalidation and takes the row back itself.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::{Delete, Kind, Namespace};

use super::answer::{Answer, Location};

/// Limit of remembered invalidations.
///
/// An answer that waits for longer than that many counts as outdated.
const MAX_INVALIDATIONS: usize = 256;
/// Limit of written rows that are remembered until it is certain that no delete came before them.
const MAX_ROWS: usize = 1024;
/// How long rows that may have been taken back are not trusted.
const DOUBT: Duration = Duration::from_secs(10);
/// Longest time between the timestamp of a row and its commit.
const COMMIT: Duration = Duration::from_secs(1);
/// Longest delay of a notification from a store or a bus.
pub(super) const LATE: Duration = Duration::from_secs(5);
/// Longest gap to assume when notifications were lost.
pub(super) const LOST: Duration = Duration::from_secs(60);

/// The part of the cache that a delete covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Covers {
    /// Unknown, so possibly everything.
    Everything,
    /// What one delete names.
    Of(Delete),
}

impl Covers {
    /// Returns the part of the cache that a delete covers; `None` if nothing.
    pub(crate) fn of(delete: Delete) -> Option<Self> {
        let cache = match &delete {
            Delete::Key { kind, .. } | Delete::Tagged { kind, .. } => *kind == Kind::Cache,
            Delete::Prefix { kind, .. } => kind.is_none_or(|kind| kind == Kind::Cache),
        };
        cache.then_some(Self::Of(delete))
    }

    pub(crate) fn location(&self, location: &Location) -> bool {
        let whose = |namespace: &Option<Namespace>| {
            namespace
                .as_ref()
                .is_none_or(|whose| *whose == location.namespace)
        };
        let key = || location.key.stored(&location.pack, location.version);
        match self {
            Self::Everything => true,
            Self::Of(Delete::Key {
                namespace,
                key: wanted,
                ..
            }) => *namespace == location.namespace && *wanted == key(),
            Self::Of(Delete::Tagged { whose, tag, .. }) => {
                whose.covers(&location.namespace) && location.tags.iter().any(|of| of == tag)
            }
            Self::Of(Delete::Prefix {
                namespace, prefix, ..
            }) => {
                // Every key starts with its pack, so most locations are ruled out without
                // formatting their key.
                let pack = location.pack.as_str().bytes();
                whose(namespace)
                    && pack.zip(prefix.bytes()).all(|(a, b)| a == b)
                    && key().starts_with(prefix.as_str())
            }
        }
    }
}

/// A row that this process wrote.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) location: Arc<Location>,
    /// When its answer completed.
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    /// The time of the row.
    pub(crate) updated_at: Timestamp,
    /// When the write was over.
    pub(crate) written_at: Timestamp,
}

/// A delete made by another process, or a purge of this one.
#[derive(Debug)]
pub(super) struct Invalidation {
    pub(super) epoch: u64,
    pub(super) covers: Covers,
    /// Rows written before this time were deleted.
    pub(super) since: Timestamp,
    /// Runs that began after this time saw the state after the delete.
    pub(super) until: Timestamp,
    /// When it was received, on the monotonic clock.
    pub(super) received: Duration,
}

impl Invalidation {
    fn outdates(&self, row: &Row) -> bool {
        row.epoch < self.epoch
            && row.written_at >= self.since
            && self.covers.location(&row.location)
    }
}

/// Log of invalidations, and of this process's writes that one of them may still outdate.
#[derive(Debug, Default)]
pub(crate) struct Invalidations {
    /// The store sends notifications; otherwise its generation is polled.
    notified: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    invalidations: VecDeque<Invalidation>,
    /// Epoch of the latest invalidation that is no longer remembered.
    forgotten: u64,
    /// Rows in the order of their writes, each with its sequence number.
    rows: VecDeque<(u64, Row)>,
    written: u64,
}

impl Log {
    fn push(&mut self, invalidation: Invalidation) {
        if self.invalidations.len() == MAX_INVALIDATIONS {
            let oldest = self
                .invalidations
                .pop_front()
                .map_or(0, |oldest| oldest.epoch);
            self.forgotten = self.forgotten.max(oldest);
        }
        self.invalidations.push_back(invalidation);
    }
}

impl Invalidations {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Returns whether other processes are notified of each delete.
    ///
    /// If not, they only see that a delete happened.
    pub(crate) fn are_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Records whether the store or a bus sends notifications.
    pub(super) fn set_notified(&self, notified: bool) {
        self.notified.store(notified, Ordering::Release);
    }

    /// Records an invalidation. Returns the rows of this process that it may outdate.
    pub(super) fn record(&self, invalidation: Invalidation) -> Vec<Row> {
        let mut log = self.log();
        let rows = std::mem::take(&mut log.rows);
        let (outdated, rest): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|(_, row)| invalidation.outdates(row));
        log.rows = rest.into();
        log.push(invalidation);
        outdated.into_iter().map(|(_, row)| row).collect()
    }

    /// Records a purge by this process: other processes may still write older answers.
    ///
    /// Writes of this process need no check, because they are made in order with the purge.
    pub(crate) fn purged(&self, covers: Covers, at: Timestamp, received: Duration) {
        let until = Timestamp(at.micros().saturating_sub(1));
        self.log().push(Invalidation {
            epoch: 0,
            covers,
            since: Timestamp(i64::MIN),
            until,
            received,
        });
    }

    /// Returns whether an unwritten answer that completed in `epoch` has been invalidated since.
    pub(crate) fn outdated(&self, location: &Location, epoch: u64) -> bool {
        let log = self.log();
        epoch < log.forgotten
            || log.invalidations.iter().any(|invalidation| {
                epoch < invalidation.epoch && invalidation.covers.location(location)
            })
    }

    /// Records a written row. Returns it if an invalidation that covers it came during the write.
    pub(crate) fn record_write(&self, row: Row) -> Option<Row> {
        let mut log = self.log();
        if row.epoch < log.forgotten
            || log
                .invalidations
                .iter()
                .any(|invalidation| invalidation.outdates(&row))
        {
            return Some(row);
        }
        let settled = before(row.written_at, LOST);
        while log.rows.len() >= MAX_ROWS
            || log
                .rows
                .front()
                .is_some_and(|(_, oldest)| oldest.written_at < settled)
        {
            log.rows.pop_front();
        }
        let number = log.written;
        log.written += 1;
        log.rows.push_back((number, row));
        None
    }

    /// Returns the number of rows written so far.
    pub(super) fn written(&self) -> u64 {
        self.log().written
    }

    /// Drops the first `written` rows: no delete that is still to be received came before them.
    pub(super) fn drop_settled(&self, written: u64) {
        let mut log = self.log();
        while log
            .rows
            .front()
            .is_some_and(|(number, _)| *number < written)
        {
            log.rows.pop_front();
        }
    }

    /// Returns whether the writer of a row may not have received its invalidation yet.
    pub(crate) fn is_doubtful(
        &self,
        answer: &Answer,
        written_at: Timestamp,
        now: Duration,
    ) -> bool {
        let began = before(answer.made_at, answer.cost());
        self.log()
            .invalidations
            .iter()
            .rev()
            .take_while(|invalidation| now.saturating_sub(invalidation.received) < DOUBT)
            .any(|invalidation| {
                began <= invalidation.until
                    && written_at.saturating_add(COMMIT) >= invalidation.since
                    && invalidation.covers.location(&answer.location)
            })
    }
}

/// Returns the time that is earlier by `by`.
pub(super) fn before(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(
        now.micros()
            .saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)),
    )
}
