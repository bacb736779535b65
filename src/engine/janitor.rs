//! The sweeps of a server: of the store and of the files that packs wrote. It shows its work in the metrics.
//!
//! It asks the store what it holds once a run, never when somebody reads the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::Clock;
use helmdeck_memory::janitor::Work;
use helmdeck_memory::{JanitorConfig, Kind, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio_util::sync::CancellationToken;

use crate::artifacts::ArtifactStore;
use crate::engine::Engine;
use crate::metrics::Metrics;

/// How soon the place of files is asked again that did not answer.
const AFTER_TROUBLE: Duration = Duration::from_secs(30);

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

/// What the janitor sweeps.
#[async_trait]
trait Sweep: Send + Sync {
    /// Sweeps once, and returns how long to wait before the next time. It may be dropped in the middle unless `finishes` says no.
    async fn sweep(&self) -> Duration;

    /// Says whether a sweep that has begun is waited for at the end.
    fn finishes(&self) -> bool;
}

/// The rows of the store.
struct Rows {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    work: Work,
    shown: Shown,
    config: JanitorConfig,
}

#[async_trait]
impl Sweep for Rows {
    async fn sweep(&self) -> Duration {
        self.work.run(&*self.store, self.config).await;
        self.shown.worked(&self.work, &*self.clock);
        self.shown.look(&*self.store).await;
        self.config.interval
    }

    /// It stops between two transactions, not within one.
    fn finishes(&self) -> bool {
        true
    }
}

/// The files of packs.
struct Files {
    store: Arc<ArtifactStore>,
    metrics: Arc<Metrics>,
    interval: Duration,
}

#[async_trait]
impl Sweep for Files {
    async fn sweep(&self) -> Duration {
        match self.store.sweep().await {
            Ok(swept) => {
                self.metrics.swept.inc_by(swept.files);
                if swept.halves > 0 || swept.failures > 0 {
                    let (halves, failures) = (swept.halves, swept.failures);
                    tracing::warn!(halves, failures, "files that were never whole were deleted, or some could not be");
                }
                self.interval
            }
            Err(error) => {
                tracing::warn!(%error, cause = %error.cause(), "files that have ended cannot be swept");
                // It is asked again soon, so that it is known when the place answers again.
                self.interval.min(AFTER_TROUBLE)
            }
        }
    }

    /// What a sweep has deleted of a file is found by the next one.
    fn finishes(&self) -> bool {
        false
    }
}

impl Engine {
    /// Starts the sweeps of what has ended: of files, of jobs whose process is gone, and of the store's rows (a run begins at once and then `memory.interval`
    /// after the last). They end with [`Engine::shutdown`]. For what goes on for long; a single call uses
    /// [`Engine::sweep_files_once`]. Call it once.
    pub fn start_sweeping(&self, memory: JanitorConfig) {
        let mut sweeps: Vec<Box<dyn Sweep>> = Vec::new();
        if let Some(sessions) = self.0.sessions.clone() {
            // What earlier processes left. From then on, whoever makes a session looks.
            tokio::spawn(async move { sessions.sweep().await });
        }
        if let Some(store) = self.0.artifacts.clone() {
            let (metrics, interval) = (Arc::clone(&self.0.metrics), self.0.config.artifacts.sweep_interval);
            sweeps.push(Box::new(Files { store, metrics, interval }));
        }
        self.end_lost_jobs_always();
        if let Some(control) = &self.0.memory {
            let shown = Shown::default();
            self.0.metrics.register(|registry| shown.register(registry));
            let (store, clock) = (Arc::clone(control.store()), Arc::clone(&self.0.clock));
            sweeps.push(Box::new(Rows { store, clock, work: Work::default(), shown, config: memory }));
        }
        let tasks = sweeps.into_iter().map(|sweep| tokio::spawn(run(sweep, self.0.stop.clone())));
        self.0.janitor.lock().extend(tasks);
    }

    /// Deletes files in a local folder that have ended, for a process that is about to end. It may be dropped in the middle; then
    /// the next sweep goes on. A bucket is left to servers, since this would ask it at each call.
    pub async fn sweep_files_once(&self) {
        let Some(store) = self.0.artifacts.as_ref().filter(|store| !store.is_bucket()) else { return };
        match store.sweep_ended().await {
            Ok(swept) => {
                self.0.metrics.swept.inc_by(swept.files);
            }
            Err(error) => tracing::debug!(%error, cause = %error.cause(), "files that have ended cannot be swept"),
        }
    }

    /// Waits for the sweeps that were told to stop.
    pub(crate) async fn stop_sweeping(&self, limit: Duration) {
        let tasks = std::mem::take(&mut *self.0.janitor.lock());
        for task in tasks {
            // What it is in the middle of it may finish; it ends by itself.
            let _ = tokio::time::timeout(limit, task).await;
        }
    }
}

/// Sweeps until it is told to stop.
async fn run(sweep: Box<dyn Sweep>, stop: CancellationToken) {
    loop {
        let wait = if sweep.finishes() {
            sweep.sweep().await
        } else {
            let Some(wait) = stop.run_until_cancelled(sweep.sweep()).await else { return };
            wait
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}
