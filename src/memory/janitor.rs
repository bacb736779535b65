//! Janitor: the task that deletes expired entries and cache entries over the limit, in small
//! batches.
//!
//! It never touches another live entry and never ends the process.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::Result;
use crate::store::Maintenance;

/// Configuration of the janitor.
#[derive(Debug, Clone, Copy)]
pub struct JanitorConfig {
    /// Interval between two runs. Default 60 s.
    pub interval: Duration,
    /// Limit of rows per transaction. Default 500: short enough that no writer waits long.
    pub batch: usize,
    /// Limit of deleted rows per run, of each sort. Default 100,000; the next run continues.
    pub most: u64,
}

impl Default for JanitorConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            batch: 500,
            most: 100_000,
        }
    }
}

/// Counters of the janitor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of runs.
    pub runs: u64,
    /// Number of deleted expired rows.
    pub swept: u64,
    /// Number of deleted rows of kind `cache` over their common limit.
    pub trimmed: u64,
    /// Number of failed runs.
    pub failures: u64,
    /// Error of the last run; `None` if it did not fail.
    pub last_error: Option<String>,
    /// Time since the end of the last run; `None` = it never ran.
    pub since_last: Option<Duration>,
    /// Duration of the last run.
    pub last_duration: Duration,
}

/// Live counters of the janitor.
#[derive(Debug, Default)]
pub struct Work(Mutex<(Snapshot, Option<Instant>)>);

impl Work {
    /// Returns the counters so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (snapshot, ended) = self.lock().clone();
        Snapshot {
            since_last: ended.map(|ended| ended.elapsed()),
            ..snapshot
        }
    }

    /// Runs once: deletes expired entries, then cache entries over the limit, batch by batch.
    pub async fn run(&self, store: &dyn Maintenance, config: JanitorConfig) {
        let started = Instant::now();
        let outcome = self.clean(store, config).await;
        let failure = outcome.err().map(|error| error.to_string());
        if let Some(error) = &failure {
            tracing::warn!(%error, "the memory store could not be swept");
        }
        let mut work = self.lock();
        work.0.runs += 1;
        work.0.failures += u64::from(failure.is_some());
        work.0.last_error = failure;
        work.0.last_duration = started.elapsed();
        work.1 = Some(Instant::now());
    }

    async fn clean(&self, store: &dyn Maintenance, config: JanitorConfig) -> Result<()> {
        let batch = config.batch.max(1);
        let mut gone = 0;
        while gone < config.most {
            let count = store.sweep_expired(batch).await?;
            gone += count;
            self.lock().0.swept += count;
            if count < batch as u64 {
                break;
            }
            tokio::task::yield_now().await;
        }
        gone = 0;
        while gone < config.most {
            let count = store.trim(batch).await?;
            gone += count;
            self.lock().0.trimmed += count;
            if count < batch as u64 {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, (Snapshot, Option<Instant>)> {
        self.0.lock()
    }
}

/// A running janitor. Dropping it stops it after the batch that it is in.
#[derive(Debug)]
pub struct Janitor {
    work: Arc<Work>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Janitor {
    /// Starts a janitor; its first run begins at once.
    ///
    /// Must be called within a tokio runtime that has time.
    #[must_use]
    pub fn spawn(store: Arc<dyn Maintenance>, config: JanitorConfig) -> Self {
        let work = Arc::new(Work::default());
        let stop = CancellationToken::new();
        let (stopped, counters) = (stop.clone(), Arc::clone(&work));
        let task = tokio::spawn(async move {
            loop {
                // Cancelled only between runs: dropping a sweep on its way would leave it
                // uncounted.
                counters.run(&*store, config).await;
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = tokio::time::sleep(config.interval) => {}
                }
            }
        });
        Self {
            work,
            task,
            stop: stop.drop_guard(),
        }
    }

    /// Returns its live counters.
    #[must_use]
    pub fn work(&self) -> Arc<Work> {
        Arc::clone(&self.work)
    }

    /// Stops the janitor and waits until it has stopped.
    pub async fn stop(self) {
        drop(self.stop);
        // The task ends by itself; it neither panics nor is aborted.
        let _ = self.task.await;
    }
}
