//! Sweeps of a server: of the store and of the artifacts. They report to the metrics.
//!
//! Of the servers on one store, the elected one sweeps and measures it, once per run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use helmdeck_core::Clock;
use helmdeck_core::numbers::signed;
use helmdeck_memory::janitor::Work;
use helmdeck_memory::{JanitorConfig, Kind, Store};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::election::Election;
use crate::metrics::Metrics;
use helmdeck_artifacts::ArtifactStore;

/// The lock of the server that sweeps a store.
const ELECTION: &str = "janitor";

/// Shortest time after which another server takes over from one that is gone.
const SHORTEST_TERM: Duration = Duration::from_secs(30);

/// Retry time after a failure of the artifact store.
const AFTER_TROUBLE: Duration = Duration::from_secs(30);

type PerKind = Family<[(&'static str, &'static str); 1], Gauge>;

helmdeck_core::metrics! {
    /// Metrics of the sweeps.
    struct SweepMetrics {
        runs: Counter = "janitor_runs" "Sweeps of the store";
        failures: Counter = "janitor_failures" "Sweeps of the store that failed";
        swept: Counter = "janitor_swept_rows" "Rows that had ended and were deleted";
        trimmed: Counter =
            "janitor_trimmed_rows" "Cached answers deleted because all of them together took too much";
        last_duration: Gauge<f64, AtomicU64> =
            "janitor_last_run_duration" [Seconds] "How long the last sweep of the store took";
        last_run: Gauge<f64, AtomicU64> =
            "janitor_last_run_timestamp" [Seconds] "When the store was last swept, since 1970";
        rows: PerKind = "memory_rows" "Live rows by kind, at the last sweep";
        bytes: PerKind = "memory" [Bytes] "What live rows take, by kind, at the last sweep";
        expired: Gauge = "memory_ended_rows" "Rows that had ended, after the last sweep";
        disk: Gauge = "memory_disk" [Bytes] "Size on disk at the last sweep";
    }
}

impl SweepMetrics {
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

    /// Measures the store. If that fails, the metrics keep the last numbers.
    async fn look(&self, store: &dyn Store) {
        let Ok(stats) = store.stats().await else {
            return;
        };
        let of = |counts: &BTreeMap<String, u64>, kind: Kind| {
            signed(counts.get(kind.as_str()).copied().unwrap_or(0))
        };
        for kind in Kind::ALL {
            self.rows
                .get_or_create(&[("kind", kind.as_str())])
                .set(of(&stats.rows_by_kind, kind));
            self.bytes
                .get_or_create(&[("kind", kind.as_str())])
                .set(of(&stats.bytes_by_kind, kind));
        }
        self.expired.set(signed(stats.expired));
        self.disk.set(signed(stats.disk_bytes));
    }

    /// Forgets the numbers: another server measures the store now.
    fn forget(&self) {
        self.rows.clear();
        self.bytes.clear();
        self.expired.set(0);
        self.disk.set(0);
    }
}

/// A part that the janitor sweeps.
trait Sweep: Send + Sync {
    /// Whether the shutdown waits for a sweep that has begun. Otherwise it may be dropped halfway.
    const FINISHES: bool;

    /// Sweeps once, and returns how long to wait before the next sweep.
    fn sweep(&self) -> impl Future<Output = Duration> + Send;

    /// Runs after the last sweep.
    fn end(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The rows of the store.
struct RowSweep {
    store: Arc<dyn Store>,
    election: Election,
    clock: Arc<dyn Clock>,
    work: Work,
    shown: SweepMetrics,
    config: JanitorConfig,
}

impl Sweep for RowSweep {
    /// It stops between two transactions, not within one.
    const FINISHES: bool = true;

    async fn sweep(&self) -> Duration {
        // A store in trouble elects nobody; then the sweep fails too, and is counted.
        if self.election.is_won().await.unwrap_or(true) {
            self.work.run(&*self.store, self.config).await;
            self.shown.worked(&self.work, &*self.clock);
            self.shown.look(&*self.store).await;
        } else {
            self.shown.forget();
        }
        self.config.interval
    }

    async fn end(&self) {
        self.election.resign().await;
    }
}

/// The files of packs.
struct ArtifactSweep {
    store: Arc<ArtifactStore>,
    metrics: Arc<Metrics>,
    interval: Duration,
}

impl Sweep for ArtifactSweep {
    /// The next sweep continues where this one stopped.
    const FINISHES: bool = false;

    async fn sweep(&self) -> Duration {
        match self.store.sweep().await {
            Ok(swept) => {
                self.metrics.totals.swept.inc_by(swept.files);
                if swept.halves > 0 || swept.failures > 0 {
                    let (halves, failures) = (swept.halves, swept.failures);
                    tracing::warn!(
                        halves,
                        failures,
                        "files that were never whole were deleted, or some could not be"
                    );
                }
                self.interval
            }
            Err(error) => {
                tracing::warn!(%error, cause = %error.cause(), "files that have ended cannot be swept");
                // Retried soon, to notice when it works again.
                self.interval.min(AFTER_TROUBLE)
            }
        }
    }
}

/// Background sweeps of a server.
#[derive(Default)]
pub(crate) struct Janitor(Mutex<Vec<JoinHandle<()>>>);

impl Janitor {
    /// Starts to sweep artifacts. It begins at once.
    pub(crate) fn sweep_artifacts(
        &self,
        store: Arc<ArtifactStore>,
        metrics: &Arc<Metrics>,
        interval: Duration,
        stop: &CancellationToken,
    ) {
        self.start(
            ArtifactSweep {
                store,
                metrics: Arc::clone(metrics),
                interval,
            },
            stop,
        );
    }

    /// Starts to sweep the rows of the store. It begins at once.
    pub(crate) fn sweep_rows(
        &self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        config: JanitorConfig,
        stop: &CancellationToken,
    ) {
        let shown = metrics.register(SweepMetrics::register);
        let election = Election::new(
            Arc::clone(&store),
            ELECTION,
            (2 * config.interval).max(SHORTEST_TERM),
        );
        self.start(
            RowSweep {
                store,
                election,
                clock,
                work: Work::default(),
                shown,
                config,
            },
            stop,
        );
    }

    fn start(&self, sweep: impl Sweep + 'static, stop: &CancellationToken) {
        self.0.lock().push(tokio::spawn(run(sweep, stop.clone())));
    }

    /// Waits until the sweeps have stopped.
    pub(crate) async fn stop(&self, limit: Duration) {
        let tasks = std::mem::take(&mut *self.0.lock());
        for task in tasks {
            // A sweep may finish its current transaction; it ends by itself.
            let _ = tokio::time::timeout(limit, task).await;
        }
    }
}

/// Deletes expired artifacts in a local folder, for a process that is about to end.
pub(crate) async fn sweep_artifacts_once(store: &ArtifactStore, metrics: &Metrics) {
    match store.sweep_ended().await {
        Ok(swept) => {
            metrics.totals.swept.inc_by(swept.files);
        }
        Err(error) => {
            tracing::debug!(%error, cause = %error.cause(), "files that have ended cannot be swept")
        }
    }
}

/// Sweeps until `stop` is cancelled.
async fn run<S: Sweep>(sweep: S, stop: CancellationToken) {
    loop {
        let wait = if S::FINISHES {
            sweep.sweep().await
        } else {
            let Some(wait) = stop.run_until_cancelled(sweep.sweep()).await else {
                break;
            };
            wait
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(wait) => {}
        }
    }
    sweep.end().await;
}
