//! Why answers were not kept the last time, for `cache explain`.

use std::collections::HashMap;
use std::time::Duration;

use helmdeck_core::{Clock, NotKept};
use helmdeck_system::System;
use parking_lot::Mutex;

use super::key::{Key, hex};

/// Number of answers at which they are forgotten, and told anew.
const MAX_KNOWN: usize = 1000;
/// How long other processes can read a refusal.
const TOLD_FOR: Duration = Duration::from_secs(24 * 3600);
/// Time budget of a read of the system database.
const READ_BUDGET: Duration = Duration::from_secs(1);

/// The last refusal of each answer: those that this process told to the system database.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Key, NotKept>>);

impl Refusals {
    /// Notes why an answer was not kept, and tells the system database within `budget`, for which
    /// callers wait.
    ///
    /// A failure costs an explanation, never a call.
    pub(crate) async fn note(
        &self,
        key: Key,
        why: NotKept,
        system: Option<&System>,
        clock: &dyn Clock,
        budget: Duration,
    ) {
        {
            let mut known = self.0.lock();
            if known.get(&key) == Some(&why) {
                return;
            }
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(key, why);
        }
        let Some(system) = system else { return };
        let (answer, until) = (hex(&key.short()), clock.now().saturating_add(TOLD_FOR));
        let written =
            tokio::time::timeout(budget, system.refuse(&answer, &why.text(), until)).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::debug!("why an answer was not kept could not be written");
        }
    }

    /// Returns why an answer was not kept the last time, as far as is known: by this process, or by
    /// any within a day.
    pub(crate) async fn last(
        &self,
        key: Key,
        system: Option<&System>,
        clock: &dyn Clock,
    ) -> Option<String> {
        if let Some(why) = self.0.lock().get(&key) {
            return Some(why.text().into_owned());
        }
        let answer = hex(&key.short());
        tokio::time::timeout(READ_BUDGET, system?.last_refusal(&answer, clock.now()))
            .await
            .ok()?
            .ok()?
    }
}
