//! News of other processes on the same store: what they delete is forgotten here, and nothing of it comes back.
//!
//! Three things could bring it back, and each is stopped. An answer in flight is poisoned. An answer that waits to be written
//! carries the epoch in which it landed and is dropped if news that covers it came since; if it was being written meanwhile,
//! its row is taken back. And a row that another process writes although its run began before the delete is not believed for
//! a while, until that process, which hears the same news, has taken it back itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::{Change, Changes, Delete, Kind, Namespace};
use tokio::sync::broadcast::error::RecvError;

use super::answer::{Answer, Place};
use super::hub::Hub;

/// How much news is remembered. An answer that waits longer than so much news counts as outdated.
const MOST_NEWS: usize = 256;
/// How many written rows are remembered until it is certain that no delete came before them.
const MOST_ROWS: usize = 1024;
/// How long rows that may have been taken back by now are not believed.
const DOUBT: Duration = Duration::from_secs(10);
/// How long before its commit a row may have got its time.
const COMMIT: Duration = Duration::from_secs(1);
/// How late news may be that a store or a bus tells.
const LATE: Duration = Duration::from_secs(5);
/// How long news may have been missing when some was lost.
const LOST: Duration = Duration::from_secs(60);

/// What others deleted, as far as the cache goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Covers {
    /// Nobody knows what; it may be everything.
    Everything,
    /// Just this.
    Of(Delete),
}

impl Covers {
    /// Returns what a delete covers of the cache, `None` if nothing.
    pub(crate) fn of(delete: Delete) -> Option<Self> {
        let cache = match &delete {
            Delete::Key { kind, .. } | Delete::Tagged { kind, .. } => *kind == Kind::Cache,
            Delete::Prefix { kind, .. } => kind.is_none_or(|kind| kind == Kind::Cache),
        };
        cache.then_some(Self::Of(delete))
    }

    pub(crate) fn place(&self, place: &Place) -> bool {
        let whose = |namespace: &Option<Namespace>| namespace.as_ref().is_none_or(|whose| *whose == place.namespace);
        let key = || place.key.stored(&place.pack, place.version);
        match self {
            Self::Everything => true,
            Self::Of(Delete::Key { namespace, key: wanted, .. }) => *namespace == place.namespace && *wanted == key(),
            Self::Of(Delete::Tagged { whose, tag, .. }) => {
                whose.covers(&place.namespace) && place.tags.iter().any(|of| of == tag)
            }
            Self::Of(Delete::Prefix { namespace, prefix, .. }) => {
                // Every key starts with its pack: most places are ruled out without writing their key down.
                let pack = place.pack.as_str().bytes();
                whose(namespace) && pack.zip(prefix.bytes()).all(|(a, b)| a == b) && key().starts_with(prefix.as_str())
            }
        }
    }
}

/// A row that this process wrote.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) place: Arc<Place>,
    /// When its answer landed.
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    /// The time of the row.
    pub(crate) updated_at: Timestamp,
    /// When the write was over.
    pub(crate) written_at: Timestamp,
}

/// One piece of news.
#[derive(Debug)]
struct News {
    epoch: u64,
    covers: Covers,
    /// Rows that were written before went with the delete.
    since: Timestamp,
    /// Runs that began later saw the world after the delete.
    until: Timestamp,
    /// When it was heard, on the monotonic clock.
    heard: Duration,
}

impl News {
    fn outdates(&self, row: &Row) -> bool {
        row.epoch < self.epoch && row.written_at >= self.since && self.covers.place(&row.place)
    }
}

/// What was heard of others, and what of this process's own writes may still be outdated by it.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// News is told; otherwise the store's generation is asked for.
    told: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    news: VecDeque<News>,
    /// The epoch of the latest news that is no longer remembered.
    forgotten: u64,
    /// Rows in the order in which they were written, each with its number in it.
    rows: VecDeque<(u64, Row)>,
    written: u64,
}

impl Heard {
    fn push(&mut self, news: News) {
        if self.news.len() == MOST_NEWS {
            let oldest = self.news.pop_front().map_or(0, |oldest| oldest.epoch);
            self.forgotten = self.forgotten.max(oldest);
        }
        self.news.push_back(news);
    }
}

impl Others {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether others are told of what this process deletes, rather than seeing that something was.
    pub(crate) fn are_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Notes news, and returns the rows of this process that it may outdate.
    fn note(&self, news: News) -> Vec<Row> {
        let mut heard = self.heard();
        let rows = std::mem::take(&mut heard.rows);
        let (outdated, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, row)| news.outdates(row));
        heard.rows = rest.into();
        heard.push(news);
        outdated.into_iter().map(|(_, row)| row).collect()
    }

    /// Notes a purge of this process that the store has carried out: others may still write what they began before it.
    /// Its own writes need no notice, they were made in order with it.
    pub(crate) fn purged(&self, covers: Covers, at: Timestamp, heard: Duration) {
        let until = Timestamp(at.micros().saturating_sub(1));
        self.heard().push(News { epoch: 0, covers, since: Timestamp(i64::MIN), until, heard });
    }

    /// Says whether an answer that landed in this epoch, and was not written yet, was deleted by others since.
    pub(crate) fn outdated(&self, place: &Place, epoch: u64) -> bool {
        let heard = self.heard();
        epoch < heard.forgotten || heard.news.iter().any(|news| epoch < news.epoch && news.covers.place(place))
    }

    /// Notes a row that was written. Gives it back if news that covers it came while it was.
    pub(crate) fn wrote(&self, row: Row) -> Option<Row> {
        let mut heard = self.heard();
        if row.epoch < heard.forgotten || heard.news.iter().any(|news| news.outdates(&row)) {
            return Some(row);
        }
        let settled = before(row.written_at, LOST);
        while heard.rows.len() >= MOST_ROWS || heard.rows.front().is_some_and(|(_, oldest)| oldest.written_at < settled)
        {
            heard.rows.pop_front();
        }
        let number = heard.written;
        heard.written += 1;
        heard.rows.push_back((number, row));
        None
    }

    /// Returns how many rows were written so far.
    fn written(&self) -> u64 {
        self.heard().written
    }

    /// Forgets the first so many rows: no delete that is still to be heard of came before them.
    fn settle(&self, written: u64) {
        let mut heard = self.heard();
        while heard.rows.front().is_some_and(|(number, _)| *number < written) {
            heard.rows.pop_front();
        }
    }

    /// Says whether a row may have been written by somebody who had not yet heard that it was deleted.
    pub(crate) fn doubt(&self, answer: &Answer, written_at: Timestamp, now: Duration) -> bool {
        let began = before(answer.made_at, answer.cost);
        self.heard().news.iter().rev().take_while(|news| now.saturating_sub(news.heard) < DOUBT).any(|news| {
            began <= news.until && written_at.saturating_add(COMMIT) >= news.since && news.covers.place(&answer.place)
        })
    }
}

/// Forgets what this process deleted past the cache, as if others had.
pub(crate) async fn forget(hub: &Hub, covers: Covers) {
    hear(hub, covers, before(hub.clock.now(), LATE)).await;
}

/// Forgets what others deleted, and has rows taken back that were written in ignorance of it.
async fn hear(hub: &Hub, covers: Covers, since: Timestamp) {
    let (until, heard) = (hub.clock.now(), hub.clock.monotonic());
    let noted = covers.clone();
    let note = |epoch| hub.others.note(News { epoch, covers: noted, since, until, heard });
    let rows = hub.forget(|place| covers.place(place), note);
    hub.queue.take_back(rows).await;
}

/// Notices what other processes delete, for as long as the hub lives: by `changes` if there is such a source and while it
/// lasts, else by asking the store for its generation.
pub(crate) async fn watch(hub: Arc<Hub>, changes: Option<Changes>) {
    if let Some(changes) = changes {
        hub.others.told.store(true, Ordering::Release);
        listen(&hub, changes).await;
        hub.others.told.store(false, Ordering::Release);
        tracing::warn!("news of other processes ended; the store is asked for changes instead");
    }
    ask(&hub).await;
}

/// Ends when the source does.
async fn listen(hub: &Hub, mut changes: Changes) {
    loop {
        match changes.recv().await {
            Ok(Change::Deleted(delete)) => {
                if let Some(covers) = Covers::of(delete) {
                    hear(hub, covers, before(hub.clock.now(), LATE)).await;
                }
            }
            Ok(Change::Anything) | Err(RecvError::Lagged(_)) => {
                hear(hub, Covers::Everything, before(hub.clock.now(), LOST)).await;
            }
            Err(RecvError::Closed) => return hear(hub, Covers::Everything, before(hub.clock.now(), LOST)).await,
        }
    }
}

/// Asks for the generation again and again. What was deleted it does not say, so everything here may be outdated.
async fn ask(hub: &Hub) {
    let mut seen = None;
    // When it was last certain that others had deleted nothing more.
    let mut certain = hub.clock.now();
    loop {
        let (asked, written) = (hub.clock.now(), hub.others.written());
        if let Ok(Ok(generation)) = tokio::time::timeout(Duration::from_secs(1), hub.store.generation()).await {
            if is_news(&hub.own_deletes, seen.replace(generation), generation) {
                hear(hub, Covers::Everything, certain).await;
            }
            certain = asked;
            hub.others.settle(written);
        }
        tokio::time::sleep(hub.config.watch_interval).await;
    }
}

/// Says whether others deleted something between two readings of the generation. `own` counts what this process deleted.
fn is_news(own: &AtomicI64, before: Option<u64>, now: u64) -> bool {
    let Some(before) = before else {
        // What it deleted until now is in this reading already.
        own.store(0, Ordering::Release);
        return false;
    };
    let grown = i64::try_from(now.wrapping_sub(before)).unwrap_or(i64::MAX);
    // Below zero, a delete of others was taken for one of this process that then failed.
    let known = own.load(Ordering::Acquire).min(grown);
    own.fetch_sub(known, Ordering::AcqRel);
    grown != known
}

fn before(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.micros().saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}
