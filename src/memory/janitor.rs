//! The task that deletes what has ended, a little at a time. It never touches a live entry and never ends the process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::store::Store;

/// How the janitor works.
#[derive(Debug, Clone, Copy)]
pub struct JanitorConfig {
    /// The time between two runs. Default 60 s.
    pub interval: Duration,
    /// Rows that one transaction deletes. Default 500: short enough that no writer waits long.
    pub batch: usize,
    /// Rows that one run deletes at most. Default 100,000; the next run goes on.
    pub most: u64,
}

impl Default for JanitorConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(60), batch: 500, most: 100_000 }
    }
}

/// What the janitor did so far.
#[derive(Debug, Default)]
pub struct Work {
    runs: AtomicU64,
    rows: AtomicU64,
    failures: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Work {
    /// Returns how often it ran.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns how many rows it deleted.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Returns how many runs failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns why the last run failed, `None` if it did not.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs once: deletes what has ended, batch by batch.
    pub async fn run(&self, store: &dyn Store, config: JanitorConfig) {
        let mut gone = 0;
        let outcome = loop {
            match store.sweep_expired(config.batch.max(1)).await {
                Ok(count) => {
                    gone += count;
                    self.rows.fetch_add(count, Ordering::Relaxed);
                    if count < config.batch.max(1) as u64 || gone >= config.most {
                        break None;
                    }
                    tokio::task::yield_now().await;
                }
                Err(error) => break Some(error.to_string()),
            }
        };
        self.runs.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = &outcome {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "what has ended could not be swept from the memory store");
        }
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
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
    pub fn spawn(store: Arc<dyn Store>, config: JanitorConfig) -> Self {
        let work = Arc::new(Work::default());
        let stop = CancellationToken::new();
        let (stopped, counters) = (stop.clone(), Arc::clone(&work));
        let task = tokio::spawn(async move {
            loop {
                // Cancelled only between transactions: dropping a sweep that runs would leave it uncounted.
                counters.run(&*store, config).await;
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = tokio::time::sleep(config.interval) => {}
                }
            }
        });
        Self { work, task, stop: stop.drop_guard() }
    }

    /// Returns its counters.
    #[must_use]
    pub fn work(&self) -> Arc<Work> {
        Arc::clone(&self.work)
    }

    /// Stops it and waits until it has stopped.
    pub async fn stop(self) {
        drop(self.stop);
        // The task ends by itself; it neither panics nor is aborted.
        let _ = self.task.await;
    }
}
