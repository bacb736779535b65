//! Sweep of the system database.

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;

use crate::driver::SweepTimes;
use crate::system::{System, before};
use crate::{schedules, tokens, vault};

impl System {
    /// Deletes expired keys, jobs, vault uses, API tokens and runs of schedules, and returns how
    /// many rows.
    ///
    /// Vault uses are kept for [`vault::USES_KEPT`], ended tokens for [`tokens::TOKENS_KEPT`], runs
    /// of schedules for [`schedules::RUNS_KEPT`]. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn sweep(&self, now: Timestamp) -> Result<u64> {
        let ended = SweepTimes {
            now: now.micros(),
            uses: before(now, vault::USES_KEPT),
            tokens: before(now, tokens::TOKENS_KEPT),
            schedules: before(now, schedules::RUNS_KEPT),
        };
        self.driver().sweep(ended).await
    }
}
