//! Clear counters of the cache, by pack and name.

use helmdeck_memory::Result;

use crate::system::System;

/// A counter of a pack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// The pack; empty for a counter of no single pack.
    pub pack: String,
    /// The counter's name.
    pub name: String,
    /// Its value, or the amount to add to it.
    pub value: u64,
}

impl System {
    /// Adds to counters. A new counter starts at zero.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add(&self, counters: Vec<Counter>) -> Result<()> {
        if counters.is_empty() {
            return Ok(());
        }
        self.driver().add_counters(counters).await
    }

    /// Returns every counter, by pack and name.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn counters(&self) -> Result<Vec<Counter>> {
        self.driver().counters().await
    }
}
