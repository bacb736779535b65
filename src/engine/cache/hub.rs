//! State shared by all cached packs of an engine.
//!
//! It holds the hot tier, the store behind a breaker, singleflight, purges and counters.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use helmdeck_core::trace::SpanKind;
use helmdeck_core::{Clock, Timestamp, Trace};
use helmdeck_events::{Bus, EventKind};
use helmdeck_memory::{
    CaughtUp, Changes, DeletePosition, KeyRing, Kind, Namespace, Page, Store, StoreError,
};
use helmdeck_system::{Journal, JournalEntry, System};

use super::answer::{Answer, Location};
use super::backoff::Backoffs;
use super::breaker::Breaker;
use super::config::CacheConfig;
use super::counters::AllCounters;
use super::flight::Flights;
use super::hot::HotTier;
use super::invalidation::{Covers, Invalidation, Invalidations};
use super::own_deletes::OwnDeletes;
use super::pack::Located;
use super::purge::{JournaledPurge, PendingPurges, Purged, Selector};
use super::queue::{Purge, Queue, Write};
use super::refusals::Refusals;
use super::tags::stored_tag;
use crate::metrics::Metrics;

/// Word for a store that did not answer within its budget, and its text in the log.
pub(crate) const SLOW: &str = "slow";
pub(crate) const TOO_LONG: &str = "it took too long";
/// Why there is no stored answer: a word of [`helmdeck_core::CacheInfo::REASONS`].
pub(crate) type Missed = Option<&'static str>;
/// The store failed, for which there is another word (`store_trouble`).
const STORE_FAILED: Missed = None;
/// Shortest time between two reads of the store on purpose.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How often a process notes that it runs.
pub(super) const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// After so long without such a note, in milliseconds, it stood still: as long as others may take
/// to see a delete.
const SUSPENDED_AFTER: u64 = 1_000;

/// How long after a failed write nothing is taken to be writable, in milliseconds.
const WRITE_TROUBLE_LASTS: u64 = 5_000;

/// Kind of the journal's entries.
const JOURNAL_KIND: &str = "purge";

/// Shortest time between two warnings of dropped writes.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Shared state of all cached packs.
pub(crate) struct Hub {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keyring: Arc<KeyRing>,
    pub(crate) system: Option<System>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: CacheConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) backoffs: Arc<Backoffs>,
    pub(crate) refusals: Refusals,
    pub(crate) pending: PendingPurges,
    /// Whether it is known which purges the journal has: before, no stored answer is served.
    journal_read: watch::Sender<bool>,
    pub(crate) counters: AllCounters,
    pub(crate) queue: Queue,
    /// Writes that a full queue dropped since the last warning, and the monotonic time from which
    /// the next one is due.
    dropped: Mutex<(u64, Duration)>,
    pub(crate) own_deletes: OwnDeletes,
    pub(crate) invalidations: Invalidations,
    pub(crate) hot: HotTier,
    /// Two breakers: a write that succeeds says nothing about reads, and the reverse.
    pub(crate) reading: Breaker,
    pub(crate) writing: Breaker,
    /// Why the last read and the last write failed; `None` = it succeeded.
    troubles: Mutex<[Option<&'static str>; 2]>,
    /// Result of the last read on purpose, and the monotonic time from which the next one is due.
    checked: Mutex<(Option<&'static str>, Duration)>,
    events: Bus,
    /// The latest mark of the store's notifications: everything before it was applied.
    heard: watch::Sender<u64>,
    /// When the hub was made, by the clock of the machine, which goes on while this process stands
    /// still.
    made_at: Instant,
    /// How many milliseconds after that this process was last seen to run.
    heartbeat_at: AtomicU64,
    /// How many milliseconds after that a write failed the last time.
    write_failed_at: AtomicU64,
}

/// Dependencies of a hub.
pub(crate) struct HubDependencies {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keyring: Arc<KeyRing>,
    pub(crate) system: Option<System>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: CacheConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Bus,
    /// Notifications of deletes by other processes. Default: those of the store, if it sends any.
    pub(crate) changes: Option<Changes>,
    /// Why nothing can be written at the start, if that is known.
    pub(crate) trouble: Option<&'static str>,
}

impl Hub {
    /// Makes a hub. [`super::start`] starts its tasks.
    pub(super) fn new(parts: HubDependencies) -> Arc<Self> {
        let config = parts.config;
        let journal = parts.system.as_ref().and_then(System::journal);
        let breaker = || Breaker::new(config.breaker_failures.max(1), config.breaker_open_for);
        let hub = Self {
            hot: HotTier::new(config.hot_bytes),
            reading: breaker(),
            writing: breaker(),
            troubles: Mutex::new([None, parts.trouble]),
            checked: Mutex::default(),
            flights: Arc::default(),
            backoffs: Arc::default(),
            refusals: Refusals::default(),
            pending: PendingPurges::default(),
            journal_read: watch::Sender::new(!journal.is_some_and(Journal::exists)),
            counters: AllCounters::default(),
            own_deletes: OwnDeletes::default(),
            invalidations: Invalidations::default(),
            store: parts.store,
            keyring: parts.keyring,
            system: parts.system,
            clock: parts.clock,
            metrics: parts.metrics,
            events: parts.events,
            heard: watch::Sender::new(0),
            made_at: Instant::now(),
            heartbeat_at: AtomicU64::new(0),
            write_failed_at: AtomicU64::new(0),
            queue: Queue::new(config.write_queue, config.write_queue_bytes),
            dropped: Mutex::default(),
            config,
        };
        Arc::new(hub)
    }

    /// Reads an answer as [`Self::read`] does, within a span if spans are recorded.
    pub(crate) async fn read_traced(
        &self,
        located: &Located,
        budget: Duration,
        trace: Option<&Trace>,
    ) -> Result<Answer, Missed> {
        let span = trace.and_then(|trace| trace.span(|| "store get".into(), SpanKind::Client));
        let found = self
            .read(&located.location, &located.contract.hex, budget)
            .await;
        if let Some(mut span) = span {
            span.set("db.operation.name", "get");
            span.set("db.response.returned_rows", u64::from(found.is_ok()));
        }
        found
    }

    /// Reads an answer from the store, within the time budget.
    ///
    /// # Errors
    /// Why there is none. A failure of the store is a miss, and is counted.
    pub(crate) async fn read(
        &self,
        location: &Arc<Location>,
        contract: &str,
        budget: Duration,
    ) -> Result<Answer, Missed> {
        if !self.allows(&self.reading) {
            return Err(STORE_FAILED);
        }
        let key = location.key.stored(&location.pack, location.version);
        let started = self.clock.monotonic();
        let reading = async {
            if !*self.journal_read.borrow() {
                // Fails if the hub is gone.
                let _ = self.journal_read.subscribe().wait_for(|read| *read).await;
            }
            self.store.get(&location.namespace, Kind::Cache, &key).await
        };
        let read = tokio::time::timeout(budget, reading).await;
        self.metrics
            .store_took("read", self.clock.monotonic().saturating_sub(started));
        match read {
            Ok(Ok(entry)) => {
                self.store_works(&self.reading);
                let entry = entry.ok_or(Some("cold"))?;
                let answer = Answer::decode(Arc::clone(location), contract, &entry.value)
                    .ok_or(Some("unreadable"))?;
                let purged = self.pending.covers(&answer.location, entry.meta.updated_at)
                    || self.invalidations.is_doubtful(
                        &answer,
                        entry.meta.updated_at,
                        self.clock.monotonic(),
                    );
                if purged {
                    Err(Some("purged"))
                } else {
                    Ok(answer)
                }
            }
            Ok(Err(StoreError::Unreadable { reason })) => {
                self.store_works(&self.reading);
                self.metrics.totals.unreadable.inc();
                tracing::warn!(pack.name = %location.pack, key = super::key::hex(&location.key.short()), reason, "a stored answer does not open; it counts as a miss");
                Err(Some("unreadable"))
            }
            Ok(Err(error)) => {
                self.store_fails(&self.reading, "read", error.trouble(), &error.to_string());
                Err(STORE_FAILED)
            }
            Err(_) => {
                self.store_fails(&self.reading, "read", SLOW, TOO_LONG);
                Err(STORE_FAILED)
            }
        }
    }

    /// Queues an answer for the store; never waits. Returns whether there was room, or could be
    /// made by dropping cheaper ones.
    pub(crate) fn write(&self, write: Write) -> bool {
        let queued = self.queue.write(write);
        if queued.dropped > 0 {
            self.metrics.totals.writes_dropped.inc_by(queued.dropped);
            self.dropped.lock().0 += queued.dropped;
        }
        queued.waits
    }

    /// Logs, once a minute, how many answers a full queue dropped.
    pub(crate) fn warn_of_dropped(&self) {
        let now = self.clock.monotonic();
        let (dropped, due) = &mut *self.dropped.lock();
        if *dropped > 0 && now >= *due {
            tracing::warn!(
                dropped = *dropped,
                "answers were not stored, because they come faster than the store writes; the cheapest ones are dropped. \
                 For short bursts raise cache.write_queue and cache.write_queue_bytes, else use a faster store"
            );
            (*dropped, *due) = (0, now + WARN_EVERY);
        }
    }

    /// Tells the store which answers of the hot tier were read, so that it does not evict them.
    ///
    /// A failure costs hits, never a call.
    pub(crate) async fn flush_reads(&self) {
        self.hot.take_read(|location| {
            self.store.note_read(
                &location.namespace,
                &location.key.stored(&location.pack, location.version),
            );
        });
        if let Ok(Err(error)) =
            tokio::time::timeout(self.config.write_budget, self.store.flush_reads()).await
        {
            tracing::debug!(%error, "the store was not told which answers were read");
        }
    }

    /// Drops cached answers: in this process at once, in the store in order with earlier writes.
    ///
    /// The caller waits for the store within the time budget of a write.
    pub(crate) async fn purge(&self, selector: Selector) -> Purged {
        let selector = match selector {
            Selector::Tag(tag) => Selector::Tag(stored_tag(&tag)),
            Selector::Outdated { tag, whose } => Selector::Outdated {
                tag: stored_tag(&tag),
                whose,
            },
            other => other,
        };
        let at = self.clock.now();
        let id = self.begin_purge(selector.clone(), at, None);
        self.invalidate(|location| selector.covers(location), |_| ());
        let (done, wait) = tokio::sync::oneshot::channel();
        let what = selector.describe();
        let carried_out = async {
            self.queue.purge(Purge {
                id,
                at,
                selector,
                done: Some(done),
            });
            wait.await.ok()
        };
        let rows = tokio::time::timeout(self.config.write_budget, carried_out)
            .await
            .ok()
            .flatten();
        if rows.is_none() {
            self.journal_purge(id).await;
        }
        self.events.publish(EventKind::CachePurged {
            what,
            rows: rows.unwrap_or(0),
        });
        Purged {
            rows: rows.unwrap_or(0),
            pending: rows.is_none(),
        }
    }

    fn begin_purge(&self, selector: Selector, at: Timestamp, entry: Option<i64>) -> u64 {
        let id = self.pending.add(selector, at, entry);
        self.show_pending();
        id
    }

    /// Records that the store carried out a purge.
    pub(crate) async fn end_purge(&self, id: u64) {
        let entry = self.pending.done(id);
        self.show_pending();
        if let (Some(entry), Some(journal)) = (entry, self.journal())
            && let Err(error) = journal.remove(entry).await
        {
            // It is carried out once more after the next start.
            tracing::debug!(%error, "a purge could not be removed from the journal");
        }
    }

    fn show_pending(&self) {
        self.metrics
            .totals
            .purges_pending
            .set(self.pending.count_late() as i64);
    }

    fn journal(&self) -> Option<&Journal> {
        self.system.as_ref()?.journal()
    }

    /// Writes a pending purge to the journal, so that it is carried out even if this process ends.
    async fn journal_purge(&self, id: u64) {
        let late = self.pending.late(id);
        self.show_pending();
        let (Some(journal), Some(entry)) = (self.journal(), late) else {
            return;
        };
        // Plain data; writing it to memory cannot fail.
        let entry = serde_json::to_vec(&entry).unwrap_or_default();
        match journal.add(JOURNAL_KIND, &entry).await {
            Ok(entry) if !self.pending.note_entry(id, entry) => drop(journal.remove(entry).await),
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "a purge that the store did not carry out is not in the journal either: it is lost if \
                                         this process ends before the store is back");
            }
        }
    }

    /// Writes all purges that the store has not carried out to the journal, and returns how many
    /// there are.
    pub(crate) async fn journal_all(&self) -> usize {
        let ids = self.pending.ids();
        for id in &ids {
            self.journal_purge(*id).await;
        }
        ids.len()
    }

    /// Begins the purges that the journal says the store still owes: those of processes that ended,
    /// and of others that have not carried them out.
    pub(crate) async fn resume_journaled(&self) {
        let Some(journal) = self.journal() else {
            return;
        };
        let entries = match journal.entries(JOURNAL_KIND).await {
            Ok(entries) => entries,
            Err(error @ StoreError::Unavailable { .. }) => {
                tracing::warn!(%error, "the journal of purges cannot be read now; it is tried again");
                return;
            }
            // Once: a damaged file stays damaged, and is looked at again and again.
            Err(_) if *self.journal_read.borrow() => return,
            Err(error) => {
                tracing::error!(%error, "the journal of purges is damaged: all cached answers are purged");
                self.queue_purge(Selector::All, self.clock.now(), None);
                Vec::new()
            }
        };
        for JournalEntry { id, entry } in entries
            .into_iter()
            .filter(|entry| !self.pending.has_entry(entry.id))
        {
            let read =
                entry.and_then(|entry| serde_json::from_slice::<JournaledPurge>(&entry).ok());
            // Of one that does not open it is unknown what it covers.
            let (selector, at) = read.map_or((Selector::All, self.clock.now()), |purge| {
                (purge.selector, Timestamp(purge.at))
            });
            tracing::info!(
                purge = selector.describe(),
                "a purge that was not carried out is carried out now"
            );
            self.queue_purge(selector, at, Some(id));
        }
        self.journal_read.send_replace(true);
    }

    fn queue_purge(&self, selector: Selector, at: Timestamp, entry: Option<i64>) {
        let id = self.begin_purge(selector.clone(), at, entry);
        self.invalidate(|location| selector.covers(location), |_| ());
        self.queue.purge(Purge {
            id,
            at,
            selector,
            done: None,
        });
    }

    /// Invalidates answers in this process.
    ///
    /// Answers in flight are not stored, those in the hot tier are dropped. `record` gets the new
    /// epoch, once no covered call that began before this can complete in it.
    pub(crate) fn invalidate<T>(
        &self,
        covers: impl Fn(&Location) -> bool,
        record: impl FnOnce(u64) -> T,
    ) -> T {
        self.flights.invalidate(&covers);
        let recorded = record(self.hot.next_epoch());
        self.hot.invalidate(covers);
        recorded
    }

    /// Drops deleted entries, and takes back rows written before the invalidation arrived.
    ///
    /// Rows written before `since` were deleted.
    pub(super) fn invalidate_deleted(&self, covers: Covers, since: Timestamp) {
        let (until, received) = (self.clock.now(), self.clock.monotonic());
        let noted = covers.clone();
        let record = |epoch| {
            self.invalidations.record(Invalidation {
                epoch,
                covers: noted,
                since,
                until,
                received,
            })
        };
        let rows = self.invalidate(|location| covers.location(location), record);
        self.queue.take_back(rows);
    }

    /// Returns how many milliseconds ago the hub was made.
    fn age(&self) -> u64 {
        u64::try_from(self.made_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes that this process runs. Called every [`HEARTBEAT_EVERY`].
    pub(super) fn heartbeat(&self) {
        self.was_suspended();
        self.heartbeat_at.fetch_max(self.age(), Ordering::Relaxed);
    }

    /// Returns whether this process stood still until now (it was stopped, or its machine paused).
    ///
    /// Deletes of others may have passed it by, so its hot tier is dropped before anything is
    /// answered from it. What is in flight goes on: its rows are taken back if a delete turns out
    /// to cover them, as after any late notification.
    pub(crate) fn was_suspended(&self) -> bool {
        let (before, now) = (self.heartbeat_at.load(Ordering::Acquire), self.age());
        if now.saturating_sub(before) <= SUSPENDED_AFTER {
            return false;
        }
        // First: a call that sees the new time must find nothing old.
        self.hot.next_epoch();
        self.hot.invalidate(|_| true);
        if self.heartbeat_at.fetch_max(now, Ordering::Release) == before {
            tracing::info!("this process stood still for a while; it dropped its hot tier");
        }
        true
    }

    /// Records that every notification before a mark was applied.
    pub(super) fn heard(&self, mark: u64) {
        self.heard.send_if_modified(|heard| {
            let is_later = mark > *heard;
            *heard = mark.max(*heard);
            is_later
        });
    }

    /// Applies the deletes by other processes up to a position, within the time budget of a read.
    ///
    /// Returns whether that is done: if not, no cached answer may be used for whoever knows of
    /// these deletes.
    pub(crate) async fn catch_up(&self, position: &DeletePosition) -> bool {
        if self.store.not_open().is_some() {
            return false;
        }
        let caught_up = async {
            match self.store.catch_up(position).await {
                Ok(CaughtUp::NoPositions) => true,
                Ok(CaughtUp::Mark(mark)) => self
                    .heard
                    .subscribe()
                    .wait_for(|heard| *heard >= mark)
                    .await
                    .is_ok(),
                Ok(CaughtUp::Behind) => false,
                Err(error) => {
                    tracing::debug!(%error, "the deletes of other replicas could not be read");
                    false
                }
            }
        };
        tokio::time::timeout(self.config.read_budget, caught_up)
            .await
            .unwrap_or(false)
    }

    /// Drops expired answers from the hot tier, and updates the metric of its size.
    pub(crate) fn drop_expired(&self) {
        self.hot.drop_expired(self.clock.now());
        self.metrics.totals.hot_bytes.set(self.hot.bytes() as f64);
    }

    /// Returns whether the breaker allows an operation of the store.
    pub(crate) fn allows(&self, breaker: &Breaker) -> bool {
        breaker.allows(self.clock.monotonic())
    }

    /// Returns whether reads, writes or both skip the store.
    pub(crate) fn breaker_is_open(&self) -> bool {
        self.reading.is_open() || self.writing.is_open()
    }

    /// Returns whether calls skip the store now. An open breaker that waits for a probe skips
    /// nothing: without calls it stays open, however well the store is.
    pub(crate) fn skips_store(&self) -> bool {
        let now = self.clock.monotonic();
        self.reading.skips(now) || self.writing.skips(now)
    }

    /// Returns in one word why the store is currently not used; `None` if it is used.
    pub(crate) fn store_trouble(&self) -> Option<&'static str> {
        let [read, write] = *self.troubles.lock();
        self.store
            .not_open()
            .map(|error| error.trouble())
            .or(read)
            .or(write)
    }

    /// Reads a little from the store, at most once a second. Returns in one word why that failed.
    ///
    /// Calls may all be answered by the hot tier while nothing can be read from the store. No call
    /// waits for this read, so it has the time of a write.
    pub(crate) async fn check_store(&self) -> Option<&'static str> {
        let now = self.clock.monotonic();
        {
            let (trouble, due) = &mut *self.checked.lock();
            if now < *due {
                return *trouble;
            }
            *due = now + CHECK_EVERY;
        }
        let everybody = Namespace::new("", "", None);
        let page = Page {
            limit: 1,
            after: None,
        };
        let read = self.store.list(&everybody, Kind::Cache, "", page);
        let trouble = match tokio::time::timeout(self.config.write_budget, read).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.trouble()),
            Err(_) => Some(SLOW),
        };
        self.checked.lock().0 = trouble;
        trouble
    }

    /// Returns whether a purge could not be carried out now.
    pub(crate) async fn is_lost(&self) -> bool {
        self.pending.count_late() > 0 || self.skips_store() || self.check_store().await.is_some()
    }

    fn note_trouble(&self, breaker: &Breaker, trouble: Option<&'static str>) {
        let slot = usize::from(std::ptr::eq(breaker, &raw const self.writing));
        self.troubles.lock()[slot] = trouble;
        if slot == 1 && trouble.is_some() {
            self.write_failed_at.store(self.age(), Ordering::Relaxed);
        }
    }

    pub(crate) fn store_works(&self, breaker: &Breaker) {
        self.note_trouble(breaker, None);
        if breaker.succeeded() {
            self.metrics
                .totals
                .breaker_open
                .set(self.breaker_is_open().into());
            tracing::info!("the store answers again");
        }
    }

    /// Records that the disk of the store is full. The next write that succeeds takes it back.
    pub(crate) fn note_full(&self) {
        self.note_trouble(&self.writing, Some("full"));
    }

    /// Returns why nothing can be written, if the last write failed a short while ago for a reason
    /// that does not pass by itself. Without writes nobody knows whether it has passed.
    pub(crate) fn write_trouble(&self) -> Option<&'static str> {
        let recent = self
            .age()
            .saturating_sub(self.write_failed_at.load(Ordering::Relaxed))
            < WRITE_TROUBLE_LASTS;
        self.troubles.lock()[1].filter(|word| recent && ["full", "read_only"].contains(word))
    }

    /// Records a failure of the store: `trouble` is the word for callers, `why` is for the log.
    pub(crate) fn store_fails(
        &self,
        breaker: &Breaker,
        operation: &'static str,
        trouble: &'static str,
        why: &str,
    ) {
        self.note_trouble(breaker, Some(trouble));
        self.metrics.store_error(operation);
        if breaker.failed(self.clock.monotonic()) {
            self.metrics.totals.breaker_open.set(1);
            self.metrics.totals.breaker_opened.inc();
            tracing::warn!(
                operation,
                why,
                "the store fails; calls skip it for a while and run their handlers"
            );
        } else {
            tracing::debug!(operation, why, "the store failed");
        }
    }

    /// Writes the counts since the last write to the system database.
    ///
    /// A failure costs counts, never a call.
    pub(crate) async fn write_counters(&self) {
        let Some(system) = &self.system else { return };
        let counted = self.counters.take();
        if !counted.is_empty()
            && let Err(error) = system.add(counted).await
        {
            tracing::debug!(%error, "counters were lost");
        }
    }
}

#[cfg(test)]
mod tests;
