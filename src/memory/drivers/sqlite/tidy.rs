//! Work of the idle writer thread: empties the log after a delete, and frees unused pages.
//!
//! It works in small steps, so that a new write waits for one step at most.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::apply::Finished;
use super::pool::{ConnectionPool, WRITER};
use super::reserve::Reserve;
use crate::error::Result;

/// How long after a delete the log is emptied, so that it holds no deleted values.
const EMPTY_LOG_AFTER: Duration = Duration::from_millis(100);
/// How long until the next try if a reader still needed the log.
const EMPTY_LOG_AGAIN: Duration = Duration::from_secs(1);
/// How long after a delete or a sweep the file is checked: new rows may reuse the pages.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
/// The pause between two steps.
const SHRINK_AGAIN: Duration = Duration::from_millis(5);
/// The pages that one step gives back.
const STEP_PAGES: i64 = 256;
/// Free pages that are never given back (1 MiB); nor is a tenth of the file.
const SPARE_PAGES: i64 = 256;

/// How long after the start, and after its use, the reserve is made.
const KEEP_RESERVE_AFTER: Duration = Duration::from_secs(1);
/// How long until the next try if there was no room for the reserve.
const KEEP_RESERVE_AGAIN: Duration = Duration::from_secs(30);

/// Pending work and its time.
#[derive(Debug)]
pub(super) struct Tidy {
    empty_log_at: Option<Instant>,
    shrink_at: Option<Instant>,
    keep_reserve_at: Option<Instant>,
    reserve: Reserve,
}

impl Tidy {
    /// Makes it for a database file whose log is checkpointed at `log_bytes`.
    pub(super) fn of(database: &Path, log_bytes: u64) -> Self {
        let keep_reserve_at = Some(Instant::now() + KEEP_RESERVE_AFTER);
        Self {
            empty_log_at: None,
            shrink_at: None,
            keep_reserve_at,
            reserve: Reserve::of(database, log_bytes),
        }
    }

    /// Gives the room for deletes away, and takes it back when the log is empty again.
    pub(super) fn release_reserve(&mut self) {
        if self.reserve.give() {
            self.empty_log_at = Some(Instant::now());
            self.keep_reserve_at = Some(Instant::now() + KEEP_RESERVE_AFTER);
        }
    }

    /// Returns when there is something to do; `None` = never.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.empty_log_at, self.shrink_at, self.keep_reserve_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Notes what a transaction did.
    pub(super) fn note(&mut self, finished: &Finished) {
        let now = Instant::now();
        if finished.forgot && self.empty_log_at.is_none() {
            self.empty_log_at = Some(now + EMPTY_LOG_AFTER);
        }
        if finished.freed && self.shrink_at.is_none() {
            self.shrink_at = Some(now + SHRINK_AFTER);
        }
    }

    /// Does the work that is due. A failure only delays it: the next delete or sweep tries again.
    pub(super) fn work(&mut self, pool: &ConnectionPool) {
        let now = Instant::now();
        if self.empty_log_at.is_some_and(|at| at <= now) {
            let again = !empty_log(pool).unwrap_or(true);
            self.empty_log_at = again.then(|| Instant::now() + EMPTY_LOG_AGAIN);
        } else if self.keep_reserve_at.is_some_and(|at| at <= now) {
            // Not into a folder that is gone: the store may have been moved away.
            let again = pool.file().path().exists() && !self.reserve.keep();
            self.keep_reserve_at = again.then(|| Instant::now() + KEEP_RESERVE_AGAIN);
        } else if self.shrink_at.is_some_and(|at| at <= now) {
            let step = pool.with(WRITER, false, |pooled| {
                pooled.set_durable(false)?;
                // Another process that writes goes first.
                pooled.connection.busy_timeout(Duration::ZERO)?;
                let step = shrink(&pooled.connection);
                pooled.connection.busy_timeout(pool.file().busy_timeout())?;
                step
            });
            self.shrink_at = None;
            match step.unwrap_or(Step::Nothing) {
                Step::More => self.shrink_at = Some(Instant::now() + SHRINK_AGAIN),
                // The file itself gets shorter when the log is moved into it.
                Step::Last => self.empty_log_at = Some(Instant::now()),
                Step::Nothing => {}
            }
        }
    }
}

/// Checkpoints the log and truncates it; `false` if a reader or another process prevented it.
pub(super) fn empty_log(pool: &ConnectionPool) -> Result<bool> {
    pool.with(WRITER, false, |pooled| {
        let timeout = pool.file().busy_timeout();
        pooled.connection.busy_timeout(Duration::ZERO)?;
        let busy: rusqlite::Result<bool> =
            pooled
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        pooled.connection.busy_timeout(timeout)?;
        Ok(!busy?)
    })
}

/// What a step of shrinking came to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    More,
    Last,
}

/// Returns some free pages to the file system if there are many.
///
/// A file that was made without `auto_vacuum` keeps them.
fn shrink(db: &Connection) -> Result<Step> {
    let surplus = surplus(db)?;
    if surplus <= 0 {
        return Ok(Step::Nothing);
    }
    let pages = surplus.min(STEP_PAGES);
    let mut statement = db.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut steps = statement.query([])?;
    while steps.next()?.is_some() {}
    let left = self::surplus(db)?;
    Ok(match left {
        left if left == surplus => Step::Nothing,
        left if left > 0 => Step::More,
        _ => Step::Last,
    })
}

/// Returns how many pages are free beyond what is kept.
fn surplus(db: &Connection) -> Result<i64> {
    let number = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (free, all) = (
        number("PRAGMA freelist_count")?,
        number("PRAGMA page_count")?,
    );
    Ok(free - SPARE_PAGES.max(all / 10))
}
