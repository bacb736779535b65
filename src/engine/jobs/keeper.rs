//! Writes changes of jobs down, a few times a second at most, and looks whether somebody outside wants one to end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::live::Live;
use super::table::Jobs;

/// How often reports of jobs are written, and how long the wish of another process that one ends may go unseen.
const EVERY: Duration = Duration::from_millis(500);

/// Keeps the record up with the jobs of this process as long as there is any.
pub(super) async fn run(jobs: Weak<Jobs>, wake: Arc<Notify>) {
    loop {
        let idle = match jobs.upgrade() {
            Some(jobs) => jobs.tick().await,
            None => return,
        };
        if idle {
            wake.notified().await;
        } else {
            // A change of state is written at once, a report with the next tick.
            let _ = tokio::time::timeout(EVERY, wake.notified()).await;
        }
    }
}

impl Jobs {
    /// Does what is due; says whether there is nothing left to watch.
    async fn tick(self: &Arc<Self>) -> bool {
        self.save_all().await;
        if let (Some(book), Some(owner)) = (&self.book, self.known_owner())
            && let Ok(wanted) = book.system.jobs_to_cancel(owner).await
        {
            for id in wanted {
                let found =
                    self.table().live.iter().find(|(known, _)| known.as_str() == id).map(|(_, live)| live.clone());
                if let Some(live) = found {
                    self.cancel(&live).await;
                }
            }
        }
        let mut table = self.table();
        table.clear(self.clock.now());
        table.live.is_empty()
    }

    /// Writes down every job that has changed.
    pub(super) async fn save_all(&self) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        self.save(&live).await;
    }

    /// Writes jobs down if they have changed; says whether that worked. It is tried again with the next tick.
    pub(super) async fn save(&self, live: &[Arc<Live>]) -> bool {
        let (Some(book), Some(owner)) = (&self.book, self.known_owner()) else { return true };
        let changed: Vec<_> = live.iter().filter_map(|live| Some((live, live.unsaved(owner)?))).collect();
        if changed.is_empty() {
            return true;
        }
        let saved: Vec<_> = changed.iter().map(|(live, (row, _))| (Arc::clone(live), row.revision)).collect();
        let rows = changed.into_iter().map(|(_, row)| row).collect();
        match book.system.save_jobs(rows).await {
            Ok(()) => {
                for (live, revision) in saved {
                    live.saved(revision);
                }
                true
            }
            Err(error) => {
                self.metrics.save_failures.inc();
                tracing::warn!(%error, "the state of jobs could not be written; it is tried again");
                false
            }
        }
    }
}
