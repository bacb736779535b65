//! Counters and histograms, for Prometheus.
//!
//! There is one set per engine, and no global one. Handles are looked up once per pack, so that a call only adds to
//! numbers.

use parking_lot::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_core::{CacheStatus, Outcome, PackName, Result, Version};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

type Labels<const N: usize> = [(&'static str, String); N];

/// All metrics of one engine.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    calls: Family<Labels<2>, Counter>,
    durations: Family<Labels<1>, Histogram>,
    cache: Family<Labels<2>, Counter>,
    refused: Family<Labels<1>, Counter>,
    cluster_waits: Family<Labels<1>, Counter>,
    store_errors: Family<Labels<1>, Counter>,
    store_durations: Family<Labels<1>, Histogram>,
    pub(crate) unreadable: Counter,
    pub(crate) writes_dropped: Counter,
    pub(crate) audit_dropped: Counter,
    pub(crate) audit_written: Counter,
    pub(crate) breaker_open: Gauge,
    pub(crate) breaker_opened: Counter,
    pub(crate) hot_bytes: Gauge<f64, AtomicU64>,
    pub(crate) swept: Counter,
}

/// From 50 microseconds to about 200 seconds.
fn call_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 3.0, 15))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("helmdeck")),
            calls: Family::default(),
            durations: Family::new_with_constructor(call_buckets),
            cache: Family::default(),
            refused: Family::default(),
            cluster_waits: Family::default(),
            store_errors: Family::default(),
            store_durations: Family::new_with_constructor(call_buckets),
            unreadable: Counter::default(),
            writes_dropped: Counter::default(),
            audit_dropped: Counter::default(),
            audit_written: Counter::default(),
            breaker_open: Gauge::default(),
            breaker_opened: Counter::default(),
            hot_bytes: Gauge::default(),
            swept: Counter::default(),
        };
        let mut registry = metrics.registry.lock();
        registry.register("calls", "Calls by pack and outcome (ok or an error code)", metrics.calls.clone());
        registry.register_with_unit("call_duration", "How long calls took", Unit::Seconds, metrics.durations.clone());
        registry.register("cache_answers", "Answers of cached packs by cache status", metrics.cache.clone());
        registry.register("cache_refused", "Answers that were not stored, by reason", metrics.refused.clone());
        registry.register(
            "cluster_waits",
            "Runs that waited for one of another process: found its answer, ran after it, late (ran beside it), failed (ran without a lock)",
            metrics.cluster_waits.clone(),
        );
        registry.register("store_errors", "Failures of the store by operation", metrics.store_errors.clone());
        registry.register_with_unit(
            "store_duration",
            "How long the store took",
            Unit::Seconds,
            metrics.store_durations.clone(),
        );
        registry.register(
            "store_unreadable",
            "Rows that did not open and counted as a miss",
            metrics.unreadable.clone(),
        );
        registry.register(
            "cache_writes_dropped",
            "Answers not stored because the queue was full or the store failed",
            metrics.writes_dropped.clone(),
        );
        registry.register(
            "audit_rows_dropped",
            "Audit rows lost because the queue was full or the store failed",
            metrics.audit_dropped.clone(),
        );
        registry.register("audit_rows", "Audit rows written", metrics.audit_written.clone());
        registry.register(
            "breaker_open",
            "1 while the store is left alone after repeated failures",
            metrics.breaker_open.clone(),
        );
        registry.register("breaker_opened", "How often the store was left alone", metrics.breaker_opened.clone());
        registry.register_with_unit("hot_tier", "Size of the hot tier", Unit::Bytes, metrics.hot_bytes.clone());
        registry.register("swept", "Files that had ended and were deleted", metrics.swept.clone());
        drop(registry);
        metrics
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

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason.to_owned())]).inc();
    }

    pub(crate) fn cluster_wait(&self, outcome: &'static str) {
        self.cluster_waits.get_or_create(&[("outcome", outcome.to_owned())]).inc();
    }

    pub(crate) fn store_error(&self, operation: &'static str) {
        self.store_errors.get_or_create(&[("operation", operation.to_owned())]).inc();
    }

    pub(crate) fn store_took(&self, operation: &'static str, duration: Duration) {
        self.store_durations.get_or_create(&[("operation", operation.to_owned())]).observe(duration.as_secs_f64());
    }

    /// Returns the handles of one pack.
    pub(crate) fn pack(self: &Arc<Self>, pack: &PackName, version: Version) -> PackMetrics {
        let name = pack.to_string();
        PackMetrics {
            ok: self.calls.get_or_create_owned(&[("pack", name.clone()), ("outcome", "ok".to_owned())]),
            duration: self.durations.get_or_create_owned(&[("pack", name)]),
            pack: pack.clone(),
            version,
            cache: [const { OnceLock::new() }; CacheStatus::ALL.len()],
            all: Arc::clone(self),
        }
    }
}

/// The handles of one pack.
pub(crate) struct PackMetrics {
    pack: PackName,
    version: Version,
    ok: Counter,
    duration: Histogram,
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
        self.duration.observe(duration.as_secs_f64());
        match result {
            Ok(outcome) => {
                self.ok.inc();
                if let Some(cache) = &outcome.cache {
                    self.cached(cache.status);
                }
            }
            Err(error) => {
                let labels = [("pack", self.pack.to_string()), ("outcome", error.code().as_str().to_owned())];
                self.all.calls.get_or_create(&labels).inc();
            }
        }
    }

    fn cached(&self, status: CacheStatus) {
        let counter = self.cache[status as usize].get_or_init(|| {
            let labels = [("pack", self.pack.to_string()), ("status", status.as_str().to_owned())];
            self.all.cache.get_or_create_owned(&labels)
        });
        counter.inc();
    }
}
