//! Statistics of calls: additive numbers by slot of time and pack.

use helmdeck_memory::Result;

use crate::system::System;

/// A number of one pack in one slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statistic {
    /// Length of the slot, in seconds.
    pub seconds: u32,
    /// Number of the slot since 1970.
    pub slot: i64,
    /// The pack.
    pub pack: String,
    /// Name of the number.
    pub name: String,
    /// Its value, or the amount to add to it.
    pub value: u64,
}

impl System {
    /// Adds to statistics, and deletes those of old slots.
    ///
    /// `oldest` has the number of the first slot that is kept, by the length of a slot in seconds.
    /// Without a database nothing is kept: it creates none.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add_statistics(
        &self,
        rows: Vec<Statistic>,
        oldest: Vec<(u32, i64)>,
    ) -> Result<()> {
        self.driver().add_statistics(rows, oldest).await
    }

    /// Returns all statistics.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn statistics(&self) -> Result<Vec<Statistic>> {
        self.driver().statistics().await
    }
}
