//! Sweep of the system database.

use helmdeck_core::Timestamp;
use helmdeck_memory::Result;

use crate::database::System;
use crate::{idempotency, jobs, tokens, vault};

impl System {
    /// Deletes expired keys, jobs, vault uses and API tokens, and returns how many rows.
    ///
    /// Vault uses are kept for [`vault::USES_KEPT`], ended tokens for [`tokens::TOKENS_KEPT`]. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn sweep(&self, now: Timestamp) -> Result<u64> {
        let deleted = self.read(move |db| {
            Ok(idempotency::sweep(db, now)? + vault::sweep(db, now)? + tokens::sweep(db, now)? + jobs::sweep(db, now)?)
        });
        Ok(deleted.await?.unwrap_or(0) as u64)
    }
}
