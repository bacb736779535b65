//! Sweep of the system database.

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;

use crate::driver::SweepTimes;
use crate::system::{System, before};
use crate::{tokens, vault};

impl System {
    /// Deletes expired keys, jobs, vault uses and API tokens, and returns how many rows.
    ///
    /// Vault uses are kept for [`vault::USES_KEPT`], ended tokens for [`tokens::TOKENS_KEPT`]. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn sweep(&self, now: Timestamp) -> Result<u64> {
        let ended = SweepTimes {
            now: now.micros(),
            uses: before(now, vault::USES_KEPT),
            tokens: before(now, tokens::TOKENS_KEPT),
        };
        self.driver().sweep(ended).await
    }
}
