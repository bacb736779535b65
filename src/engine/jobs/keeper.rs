//! Background worker that writes changes of jobs to the database.
//!
//! It writes at most a few times a second, and reads the cancel requests of other processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::live::Live;
use super::table::Jobs;

/// Interval of writes of progress reports, and of reads of cancel requests.
const EVERY: Duration = Duration::from_millis(500);

/// Interval of checks for results in memory that expired, or whose caller was forgotten.
const CLEAR_EVERY: Duration = Duration::from_secs(1);

/// Keeps the database up to date with the jobs of this process, while it has any.
pub(super) async fn run(jobs: Weak<Jobs>, wake: Arc<Notify>) {
    loop {
        let next = match jobs.upgrade() {
            Some(jobs) => jobs.tick().await,
            None => return,
        };
        // A change of state is written at once, a report with the next tick.
        match next {
            Some(next) => drop(tokio::time::timeout(next, wake.notified()).await),
            None => wake.notified().await,
        }
    }
}

impl Jobs {
    /// Does the work that is due.
    ///
    /// Returns when to run again; `None` = at the next change.
    async fn tick(self: &Arc<Self>) -> Option<Duration> {
        // Others take lost jobs, so their calls end first. A write may wait for long if the
        // database does not answer.
        self.give_up(&self.lost());
        tokio::select! {
            () = self.save_all() => {}
            () = self.lose_some() => {}
        }
        self.give_up(&self.lost());
        if let (Some(book), Some(replica)) = (&self.book, self.replica())
            && let Ok(wanted) = book.system.jobs_to_cancel(&replica.id()).await
        {
            for id in wanted {
                let found = self
                    .table()
                    .live
                    .iter()
                    .find(|(known, _)| known.as_str() == id)
                    .map(|(_, live)| live.clone());
                if let Some(live) = found {
                    self.cancel_live(&live).await;
                }
            }
        }
        let gone = self.gone().await;
        let mut table = self.table();
        let recorded = self.book.is_some();
        table.clear(self.clock.now(), recorded, &gone);
        let settled = |live: &Arc<Live>| {
            if recorded {
                live.is_settled()
            } else {
                live.job().state.is_final()
            }
        };
        let busy = !table.live.values().all(settled);
        // Ended jobs are kept only for their result.
        if busy {
            Some(EVERY)
        } else {
            (!table.live.is_empty()).then_some(CLEAR_EVERY)
        }
    }

    /// Returns the unfinished jobs that this process no longer owns.
    fn lost(&self) -> Vec<Arc<Live>> {
        let Some(replica) = self.replica() else {
            return Vec::new();
        };
        let lost = |live: &&Arc<Live>| !live.is_settled() && !replica.holds(&live.owner);
        self.table().live.values().filter(lost).cloned().collect()
    }

    /// Waits until some job is lost.
    async fn lose_some(&self) {
        while self.lost().is_empty() {
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Writes all changed jobs.
    pub(super) async fn save_all(&self) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        self.save(&live).await;
    }

    /// Writes changed jobs, and gives up those that belong to it no more. Returns whether that
    /// worked; the next tick retries.
    pub(super) async fn save(&self, live: &[Arc<Live>]) -> bool {
        let Some(book) = &self.book else { return true };
        let mut by_owner: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for live in live {
            if let Some(changed) = live.unsaved() {
                by_owner
                    .entry(Arc::clone(&live.owner))
                    .or_default()
                    .push((Arc::clone(live), changed));
            }
        }
        let mut all = true;
        for (owner, changed) in by_owner {
            let saved: Vec<_> = changed
                .iter()
                .map(|(live, (row, _))| (Arc::clone(live), row.revision))
                .collect();
            let rows = changed.into_iter().map(|(_, row)| row).collect();
            match book.system.save_jobs(owner, rows).await {
                Ok(true) => saved
                    .iter()
                    .for_each(|(live, revision)| live.saved(*revision)),
                Ok(false) => {
                    self.give_up(&saved.into_iter().map(|(live, _)| live).collect::<Vec<_>>())
                }
                Err(error) => {
                    self.metrics.save_failures.inc();
                    tracing::warn!(%error, "the state of jobs could not be written; it is tried again");
                    all = false;
                }
            }
        }
        all
    }
}
