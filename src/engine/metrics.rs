//! Counters and histograms, for Prometheus.
//!
//! There is one set per engine, and no global one. Handles are looked up once per pack, so that a
//! call only adds to numbers.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_core::{CacheStatus, Outcome, PackName, Result, Version};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::durations::CallDurations;
use crate::statistics::Numbers;

type Labels<const N: usize> = [(&'static str, String); N];

/// All metrics of one engine.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) totals: EngineMetrics,
    /// The counters of each pack that was registered, for statistics.
    packs: Mutex<BTreeMap<PackName, Arc<OnceLock<Counted>>>>,
}

helmdeck_core::metrics! {
    /// Metrics that every engine has.
    pub(crate) struct EngineMetrics {
        calls: Family<Labels<2>, Counter> = "calls" "Calls by pack and outcome (ok or an error code)";
        durations: Family<Labels<1>, CallDurations> = "call_duration" [Seconds] "How long calls took";
        cache: Family<Labels<2>, Counter> = "cache_answers" "Answers of cached packs by cache status";
        refused: Family<Labels<1>, Counter> = "cache_refused" "Answers that were not stored, by reason";
        secrets: Family<Labels<2>, Counter> = "memory_secrets"
            "Facts and notes that looked like they held a credential, refused or allowed by their writers";
        cluster_waits: Family<Labels<1>, Counter> = "cluster_waits"
            "Runs that waited for one of another process: found its answer, ran after it, late (ran beside it), failed (ran without a lock)";
        store_errors: Family<Labels<1>, Counter> = "store_errors" "Failures of the store by operation";
        store_durations: Family<Labels<1>, Histogram> = "store_duration" [Seconds] "How long the store took",
            Family::new_with_constructor(call_buckets);
        pub(crate) unreadable: Counter = "store_unreadable" "Rows that did not open and counted as a miss";
        pub(crate) writes_dropped: Counter =
            "cache_writes_dropped" "Answers not stored because the queue was full (the cheapest ones) or the store failed";
        pub(crate) purges_pending: Gauge =
            "purges_pending" "Purges that the store has not carried out yet; other processes may serve what they cover";
        pub(crate) audit_dropped: Counter =
            "audit_rows_dropped" "Audit rows lost because the queue was full or the store failed";
        pub(crate) audit_written: Counter = "audit_rows" "Audit rows written";
        pub(crate) breaker_open: Gauge =
            "breaker_open" "1 while the store is left alone after repeated failures";
        pub(crate) breaker_opened: Counter = "breaker_opened" "How often the store was left alone";
        pub(crate) hot_bytes: Gauge<f64, AtomicU64> = "hot_tier" [Bytes] "Size of the hot tier";
        pub(crate) swept: Counter = "swept" "Files that had ended and were deleted";
    }
}

/// From 50 microseconds to about 200 seconds, as [`CallDurations`] is shown.
fn call_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 3.0, 15))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("helmdeck");
        let totals = EngineMetrics::register(&mut registry);
        Self {
            registry: Mutex::new(registry),
            totals,
            packs: Mutex::default(),
        }
    }

    /// Adds metrics of a part that not every engine has.
    pub(crate) fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock())
    }

    /// Returns everything in the `OpenMetrics` text format.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    /// Returns what each pack counted since the start of this engine.
    pub(crate) fn counted(&self) -> Vec<(PackName, Numbers)> {
        let packs = self.packs.lock();
        let one = |(pack, counted): (&PackName, &Arc<OnceLock<Counted>>)| {
            let Some(Counted { ok, durations }) = counted.get() else {
                return (pack.clone(), Numbers::default());
            };
            let mut numbers = Numbers {
                durations: durations.counts(),
                ..Numbers::default()
            };
            numbers.calls = numbers.durations.iter().sum();
            numbers.errors = numbers.calls.saturating_sub(ok.get());
            for status in CacheStatus::ALL {
                let labels = [
                    ("pack", pack.to_string()),
                    ("status", status.as_str().to_owned()),
                ];
                numbers.answers[status as usize] = self
                    .totals
                    .cache
                    .get(&labels)
                    .map_or(0, |counter| counter.get());
            }
            (pack.clone(), numbers)
        };
        packs.iter().map(one).collect()
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.totals
            .refused
            .get_or_create(&[("reason", reason.to_owned())])
            .inc();
    }

    pub(crate) fn secret(&self, kind: &'static str, outcome: &'static str) {
        let labels = [("kind", kind.to_owned()), ("outcome", outcome.to_owned())];
        self.totals.secrets.get_or_create(&labels).inc();
    }

    pub(crate) fn cluster_wait(&self, outcome: &'static str) {
        self.totals
            .cluster_waits
            .get_or_create(&[("outcome", outcome.to_owned())])
            .inc();
    }

    pub(crate) fn store_error(&self, operation: &'static str) {
        self.totals
            .store_errors
            .get_or_create(&[("operation", operation.to_owned())])
            .inc();
    }

    pub(crate) fn store_took(&self, operation: &'static str, duration: Duration) {
        self.totals
            .store_durations
            .get_or_create(&[("operation", operation.to_owned())])
            .observe(duration.as_secs_f64());
    }

    /// Returns the handles of one pack.
    pub(crate) fn pack(self: &Arc<Self>, pack: &PackName, version: Version) -> PackMetrics {
        let counted = Arc::clone(self.packs.lock().entry(pack.clone()).or_default());
        PackMetrics {
            counted,
            pack: pack.clone(),
            version,
            cache: [const { OnceLock::new() }; CacheStatus::ALL.len()],
            all: Arc::clone(self),
        }
    }
}

/// What is counted of each call of a pack.
struct Counted {
    ok: Counter,
    durations: CallDurations,
}

/// The handles of one pack.
pub(crate) struct PackMetrics {
    pack: PackName,
    version: Version,
    /// Made at the first call, so that a pack that nobody calls has no lines.
    counted: Arc<OnceLock<Counted>>,
    /// Looked up when first used, so that a pack without a cache has no such line.
    cache: [OnceLock<Counter>; CacheStatus::ALL.len()],
    all: Arc<Metrics>,
}

impl PackMetrics {
    pub(crate) const fn pack(&self) -> &PackName {
        &self.pack
    }

    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn record(&self, result: &Result<Outcome>, duration: Duration) {
        let counted = self.counted.get_or_init(|| self.start_counting());
        counted.durations.observe(duration);
        match result {
            Ok(outcome) => {
                counted.ok.inc();
                if let Some(cache) = &outcome.cache {
                    self.cached(cache.status);
                }
            }
            Err(error) => {
                let labels = [
                    ("pack", self.pack.to_string()),
                    ("outcome", error.code().as_str().to_owned()),
                ];
                self.all.totals.calls.get_or_create(&labels).inc();
            }
        }
    }

    fn start_counting(&self) -> Counted {
        let (totals, name) = (&self.all.totals, self.pack.to_string());
        let durations = totals
            .durations
            .get_or_create_owned(&[("pack", name.clone())]);
        let ok = totals
            .calls
            .get_or_create_owned(&[("pack", name), ("outcome", "ok".to_owned())]);
        Counted { ok, durations }
    }

    fn cached(&self, status: CacheStatus) {
        let counter = self.cache[status as usize].get_or_init(|| {
            let labels = [
                ("pack", self.pack.to_string()),
                ("status", status.as_str().to_owned()),
            ];
            self.all.totals.cache.get_or_create_owned(&labels)
        });
        counter.inc();
    }
}
