//! The sweeps of a server: of the store and of the files that packs wrote. It shows its work in the metrics.
//!
//! It asks the store what it holds once a run, never when somebody reads the metrics.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};

use helmdeck_core::Clock;
use helmdeck_memory::janitor::Work;
use helmdeck_memory::{JanitorConfig, Kind, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

type PerKind = Family<[(&'static str, &'static str); 1], Gauge>;

/// What the janitor did, and what it found.
#[derive(Default)]
struct Shown {
    runs: Counter,
    failures: Counter,
    swept: Counter,
    trimmed: Counter,
    last_run: Gauge<f64, AtomicU64>,
    last_duration: Gauge<f64, AtomicU64>,
    rows: PerKind,
    bytes: PerKind,
    expired: Gauge,
    disk: Gauge,
}

impl Shown {
    fn register(&self, registry: &mut Registry) {
        registry.register("janitor_runs", "Sweeps of the store", self.runs.clone());
        registry.register("janitor_failures", "Sweeps of the store that failed", self.failures.clone());
        registry.register("janitor_swept_rows", "Rows that had ended and were deleted", self.swept.clone());
        registry.register(
            "janitor_trimmed_rows",
            "Cached answers deleted because all of them together took too much",
            self.trimmed.clone(),
        );
        registry.register_with_unit(
            "janitor_last_run_duration",
            "How long the last sweep of the store took",
            Unit::Seconds,
            self.last_duration.clone(),
        );
        registry.register_with_unit(
            "janitor_last_run_timestamp",
            "When the store was last swept, since 1970",
            Unit::Seconds,
            self.last_run.clone(),
        );
        registry.register("memory_rows", "Live rows by kind, at the last sweep", self.rows.clone());
        registry.register_with_unit(
            "memory",
            "What live rows take, by kind, at the last sweep",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register("memory_ended_rows", "Rows that had ended, after the last sweep", self.expired.clone());
        registry.register_with_unit("memory_disk", "Size on disk at the last sweep", Unit::Bytes, self.disk.clone());
    }

    fn worked(&self, work: &Work, clock: &dyn Clock) {
        let catch_up = |counter: &Counter, total: u64| {
            counter.inc_by(total.saturating_sub(counter.get()));
        };
        let work = work.snapshot();
        catch_up(&self.runs, work.runs);
        catch_up(&self.failures, work.failures);
        catch_up(&self.swept, work.swept);
        catch_up(&self.trimmed, work.trimmed);
        self.last_duration.set(work.last_duration.as_secs_f64());
        self.last_run.set(clock.now().micros() as f64 / 1e6);
    }

    /// Looks what the store holds. If it does not say, the last numbers stay.
    async fn look(&self, store: &dyn Store) {
        if let Ok(namespaces) = store.namespaces().await {
            let mut kinds: BTreeMap<Kind, (u64, u64)> = Kind::ALL.map(|kind| (kind, (0, 0))).into();
            for held in namespaces {
                let (rows, bytes) = kinds.entry(held.kind).or_default();
                *rows = rows.saturating_add(held.rows);
                *bytes = bytes.saturating_add(held.bytes);
            }
            for (kind, (rows, bytes)) in kinds {
                self.rows.get_or_create(&[("kind", kind.as_str())]).set(signed(rows));
                self.bytes.get_or_create(&[("kind", kind.as_str())]).set(signed(bytes));
            }
        }
        if let Ok(stats) = store.stats().await {
            self.expired.set(signed(stats.expired));
            self.disk.set(signed(stats.disk_bytes));
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Engine {
    /// Starts the sweeps of what has ended: of files, of jobs whose process is gone, and of the store's rows (a run begins at once and then `memory.interval`
    /// after the last). They end with [`Engine::shutdown`]. For servers; one-shot commands need none. Call it once.
    pub fn start_sweeping(&self, memory: JanitorConfig) {
        if let Some(files) = self.0.artifacts.clone() {
            let (metrics, interval) = (Arc::clone(&self.0.metrics), self.0.config.artifacts.sweep_interval);
            let sweep = async move {
                loop {
                    metrics.swept.inc_by(files.sweep().await);
                    tokio::time::sleep(interval).await;
                }
            };
            tokio::spawn(self.0.stop.clone().run_until_cancelled_owned(sweep));
        }
        self.end_lost_jobs_always();
        if let Some(control) = &self.0.memory {
            let shown = Shown::default();
            self.0.metrics.register(|registry| shown.register(registry));
            let task =
                sweep(Arc::clone(control.store()), Arc::clone(&self.0.clock), shown, memory, self.0.stop.clone());
            *self.0.janitor.lock().unwrap_or_else(PoisonError::into_inner) = Some(tokio::spawn(task));
        }
    }
}

/// Sweeps until it is told to stop; it stops between two transactions, not within one.
async fn sweep(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    shown: Shown,
    config: JanitorConfig,
    stop: CancellationToken,
) {
    let work = Work::default();
    loop {
        work.run(&*store, config).await;
        shown.worked(&work, &*clock);
        shown.look(&*store).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(config.interval) => {}
        }
    }
}
