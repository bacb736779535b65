//! Shared state of all cached packs of an engine: hot tier, store behind a breaker, singleflight, purges, counters.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Clock, Identity};
use helmdeck_events::{Bus, EventKind};
use helmdeck_memory::{Changes, KeyRing, Kind, Store, StoreError};
use helmdeck_system::System;
use moka::notification::RemovalCause;
use moka::sync::Cache;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, Location, SLOT_BYTES, block};
use super::breaker::Breaker;
use super::counters::AllCounters;
use super::flight::Flights;
use super::invalidation::{self, Invalidations};
use super::key::Key;
use super::purge::{PendingPurges, Purged, Selector};
use super::tags::stored_tag;
use super::writer::{self, Purge, Queue, Write};
use crate::config::CacheConfig;
use crate::metrics::Metrics;

/// The longest input that is remembered byte for byte.
const MAX_ALIAS_BYTES: usize = 16 << 10;
/// The word for a store that did not answer within its budget, and what the log says of it.
pub(crate) const SLOW: &str = "slow";
pub(crate) const TOO_LONG: &str = "it took too long";
/// How long a caller of `purge` waits for the store; the purge itself holds at once.
const PURGE_WAIT: Duration = Duration::from_secs(2);

/// The exact bytes of a call, as one registered pack sees them. Compared whole, so no two calls can be confused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Alias {
    /// Differs between registrations, so a replaced pack never answers with its predecessor's entries.
    pub(crate) stack: u64,
    /// Changes with any grant or credential.
    pub(crate) secrets: u64,
    pub(crate) identity: Arc<Identity>,
    pub(crate) input: Bytes,
}

impl Alias {
    /// Returns how many bytes of memory the alias takes: itself, its bytes, the caller (each call brings its own), and the
    /// shell of an answer, which stays as long as anything points to it.
    fn weight(&self) -> usize {
        let session = self.identity.session().map_or(0, |session| block(session.len()));
        let names = block(self.identity.tenant().len()) + block(self.identity.user().len()) + session;
        let identity = block(size_of::<Identity>()) + names;
        block(size_of::<Self>()) + block(self.input.len()) + identity + block(size_of::<Answer>()) + SLOT_BYTES
    }
}

/// Shared state of all cached packs.
pub(crate) struct Hub {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keyring: Arc<KeyRing>,
    pub(crate) system: Option<System>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: CacheConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) pending: PendingPurges,
    pub(crate) counters: AllCounters,
    pub(crate) queue: Queue,
    /// Deletes of this process, which the generation of the store counts too: they are no remote invalidations.
    pub(crate) own_deletes: AtomicI64,
    /// One permit: this process makes one delete at a time.
    pub(crate) deleting: Semaphore,
    pub(crate) invalidations: Invalidations,
    /// Grows with every purge, before it looks through the hot tier.
    epoch: AtomicU64,
    /// Every answer that may be served again. An answer that is evicted is invalidated.
    hot: Cache<Key, Arc<Answer>>,
    /// Points into the hot tier without keeping anything alive.
    aliases: Cache<Alias, Weak<Answer>>,
    /// Two breakers: a write that succeeds says nothing about reads, and the reverse.
    pub(crate) reading: Breaker,
    pub(crate) writing: Breaker,
    /// Why the last read failed, and the last write; `None` = it did not.
    troubles: Mutex<[Option<&'static str>; 2]>,
    events: Bus,
}

/// Dependencies of a hub.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keyring: Arc<KeyRing>,
    pub(crate) system: Option<System>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: CacheConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Bus,
    /// Notifications of what other processes delete. Default: those of the store, if it sends any.
    pub(crate) changes: Option<Changes>,
    /// Why nothing can be written at the start, if that is known.
    pub(crate) trouble: Option<&'static str>,
}

impl Hub {
    /// Makes the hub and starts its tasks, which end when `stop` is cancelled.
    pub(crate) fn start(parts: Parts, stop: &CancellationToken) -> Arc<Self> {
        let config = parts.config;
        // Subscribe before the first read, so that no notification is missed.
        let changes = parts.changes.or_else(|| parts.store.changes());
        let (queue, inbox) = Queue::new(config.write_queue, config.write_queue_bytes);
        let weigh = |_: &Key, answer: &Arc<Answer>| u32::try_from(answer.weight()).unwrap_or(u32::MAX);
        let weigh_alias = |alias: &Alias, _: &Weak<Answer>| u32::try_from(alias.weight()).unwrap_or(u32::MAX);
        // A purge searches only the hot tier: an evicted answer is not recalled, although a caller may still hold it.
        let leave = |_: Arc<Key>, answer: Arc<Answer>, _: RemovalCause| answer.invalidate();
        let for_aliases = config.hot_bytes / 10;
        let hub = Arc::new(Self {
            hot: Cache::builder()
                .max_capacity(config.hot_bytes - for_aliases)
                .weigher(weigh)
                .eviction_listener(leave)
                .build(),
            aliases: Cache::builder().max_capacity(for_aliases).weigher(weigh_alias).build(),
            reading: Breaker::new(config.breaker_failures.max(1), config.breaker_open_for),
            writing: Breaker::new(config.breaker_failures.max(1), config.breaker_open_for),
            troubles: Mutex::new([None, parts.trouble]),
            flights: Arc::default(),
            pending: PendingPurges::default(),
            counters: AllCounters::default(),
            own_deletes: AtomicI64::new(0),
            deleting: Semaphore::new(1),
            invalidations: Invalidations::default(),
            epoch: AtomicU64::new(0),
            store: parts.store,
            keyring: parts.keyring,
            system: parts.system,
            clock: parts.clock,
            metrics: parts.metrics,
            events: parts.events,
            config,
            queue,
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(writer::run(Arc::clone(&hub), inbox)));
        tokio::spawn(stop.clone().run_until_cancelled_owned(invalidation::watch(Arc::clone(&hub), changes)));
        tokio::spawn(stop.clone().run_until_cancelled_owned(keep_counters(Arc::clone(&hub))));
        hub
    }

    /// Returns a live answer of the hot tier.
    pub(crate) fn hot(&self, key: &Key) -> Option<Arc<Answer>> {
        self.hot.get(key).filter(|answer| !answer.is_invalid())
    }

    /// Puts a live answer into the hot tier, in place of its predecessor. Says whether it is there now.
    pub(crate) fn warm(&self, answer: &Arc<Answer>) -> bool {
        if answer.is_invalid() {
            return false;
        }
        // An answer must not replace itself: that would evict and invalidate it.
        if self.hot.get(&answer.location.key).is_none_or(|there| !Arc::ptr_eq(&there, answer)) {
            self.hot.insert(answer.location.key, Arc::clone(answer));
        }
        true
    }

    /// Returns a number to compare with later: has anything been purged since?
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Puts an answer that was read from the store into the hot tier, unless something was purged since `epoch`.
    ///
    /// It goes in first and is checked then: a purge at the same moment either finds it there or is seen here.
    pub(crate) fn warm_unless_purged(&self, answer: &Arc<Answer>, epoch: u64) {
        self.warm(answer);
        if self.epoch() != epoch {
            answer.invalidate();
            self.hot.invalidate(&answer.location.key);
        }
    }

    /// Returns the answer that these very bytes got.
    pub(crate) fn recall(&self, alias: &Alias) -> Option<Arc<Answer>> {
        self.aliases.get(alias)?.upgrade().filter(|answer| !answer.is_invalid())
    }

    /// Remembers the bytes of a call.
    pub(crate) fn remember(&self, alias: Alias, answer: &Arc<Answer>) {
        if alias.input.len() <= MAX_ALIAS_BYTES && !answer.is_invalid() {
            // Copied, because the bytes are a slice of the connection's buffer, which would be kept alive with them.
            let alias = Alias { input: Bytes::copy_from_slice(&alias.input), ..alias };
            self.aliases.insert(alias, Arc::downgrade(answer));
        }
    }

    /// Returns what the store has, within the time budget. Any failure is a miss, and is counted.
    pub(crate) async fn read(&self, location: &Arc<Location>, contract: &str) -> Option<Answer> {
        if !self.allows(&self.reading) {
            return None;
        }
        let key = location.key.stored(&location.pack, location.version);
        let started = self.clock.monotonic();
        let read =
            tokio::time::timeout(self.config.read_budget, self.store.get(&location.namespace, Kind::Cache, &key)).await;
        self.metrics.store_took("read", self.clock.monotonic().saturating_sub(started));
        match read {
            Ok(Ok(entry)) => {
                self.store_works(&self.reading);
                let entry = entry?;
                let answer = Answer::decode(Arc::clone(location), contract, &entry.value)?;
                if self.pending.covers(&answer.location, entry.meta.updated_at) {
                    return None;
                }
                let doubtful = self.invalidations.is_doubtful(&answer, entry.meta.updated_at, self.clock.monotonic());
                (!doubtful).then_some(answer)
            }
            Ok(Err(StoreError::Unreadable { reason })) => {
                self.store_works(&self.reading);
                self.metrics.unreadable.inc();
                tracing::warn!(pack.name = %location.pack, key = super::key::hex(&location.key.short()), reason, "a stored answer does not open; it counts as a miss");
                None
            }
            Ok(Err(error)) => {
                self.store_fails(&self.reading, "read", error.trouble(), &error.to_string());
                None
            }
            Err(_) => {
                self.store_fails(&self.reading, "read", SLOW, TOO_LONG);
                None
            }
        }
    }

    /// Queues an answer for the store; never waits.
    pub(crate) fn write(&self, write: Write) {
        if !self.queue.write(write) {
            self.metrics.writes_dropped.inc();
        }
    }

    /// Drops cached answers: here at once, in the store in order with the writes before it.
    pub(crate) async fn purge(&self, selector: Selector) -> Purged {
        let selector = match selector {
            Selector::Tag(tag) => Selector::Tag(stored_tag(&tag)),
            Selector::Outdated { tag, whose } => Selector::Outdated { tag: stored_tag(&tag), whose },
            other => other,
        };
        let at = self.clock.now();
        let id = self.pending.add(selector.clone(), at);
        self.invalidate(|location| selector.covers(location), |_| ());
        let (done, wait) = tokio::sync::oneshot::channel();
        let what = selector.describe();
        let carried_out = async {
            self.queue.purge(Purge { id, at, selector, done: Some(done) }).await;
            wait.await.ok()
        };
        let rows = tokio::time::timeout(PURGE_WAIT, carried_out).await.ok().flatten();
        self.events.publish(EventKind::CachePurged { what, rows: rows.unwrap_or(0) });
        Purged { rows: rows.unwrap_or(0), pending: rows.is_none() }
    }

    /// Drops answers from this process: those in flight are not stored, those in the hot tier are invalidated. `record` gets the
    /// new epoch, once no covered call that began before this can complete in it.
    pub(crate) fn invalidate<T>(&self, covers: impl Fn(&Location) -> bool, record: impl FnOnce(u64) -> T) -> T {
        self.flights.invalidate(&covers);
        let recorded = record(self.epoch.fetch_add(1, Ordering::AcqRel) + 1);
        for (key, answer) in &self.hot {
            if covers(&answer.location) {
                answer.invalidate();
                self.hot.invalidate(key.as_ref());
            }
        }
        recorded
    }

    /// Drops expired answers from the hot tier, so that plaintext does not outlive its entry.
    pub(crate) fn drop_expired(&self) {
        let now = self.clock.now();
        for (key, answer) in &self.hot {
            if now >= answer.hard_until {
                answer.invalidate();
                self.hot.invalidate(key.as_ref());
            }
        }
        self.hot.run_pending_tasks();
        self.aliases.run_pending_tasks();
        self.metrics.hot_bytes.set((self.hot.weighted_size() + self.aliases.weighted_size()) as f64);
    }

    /// Says whether the store may be asked.
    pub(crate) fn allows(&self, breaker: &Breaker) -> bool {
        breaker.allows(self.clock.monotonic())
    }

    /// Returns whether reads, writes or both skip the store.
    pub(crate) fn breaker_is_open(&self) -> bool {
        self.reading.is_open() || self.writing.is_open()
    }

    /// Returns in one word why the store is not used at the moment; `None` if it is.
    pub(crate) fn store_trouble(&self) -> Option<&'static str> {
        let [read, write] = *self.troubles.lock();
        self.store.not_open().map(|error| error.trouble()).or(read).or(write)
    }

    fn note_trouble(&self, breaker: &Breaker, trouble: Option<&'static str>) {
        let slot = usize::from(std::ptr::eq(breaker, &raw const self.writing));
        self.troubles.lock()[slot] = trouble;
    }

    pub(crate) fn store_works(&self, breaker: &Breaker) {
        self.note_trouble(breaker, None);
        if breaker.succeeded() {
            self.metrics.breaker_open.set(self.breaker_is_open().into());
            tracing::info!("the store answers again");
        }
    }

    /// Notes that the store failed: `trouble` is the word for callers, `why` is for the log.
    pub(crate) fn store_fails(&self, breaker: &Breaker, operation: &'static str, trouble: &'static str, why: &str) {
        self.note_trouble(breaker, Some(trouble));
        self.metrics.store_error(operation);
        if breaker.failed(self.clock.monotonic()) {
            self.metrics.breaker_open.set(1);
            self.metrics.breaker_opened.inc();
            tracing::warn!(operation, why, "the store fails; calls skip it for a while and run their handlers");
        } else {
            tracing::debug!(operation, why, "the store failed");
        }
    }

    /// Writes what was counted since the last time to the system database. A failure costs counts, never a call.
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

async fn keep_counters(hub: Arc<Hub>) {
    loop {
        tokio::time::sleep(hub.config.counters_interval).await;
        hub.write_counters().await;
        hub.drop_expired();
    }
}

#[cfg(test)]
mod tests;
