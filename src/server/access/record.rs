//! Whether the record of tokens can be reached.
//!
//! While it cannot, tokens that it proved a short while ago stay good, so that a database that is
//! away for a minute does not lock everybody out. One request a moment asks again; the others do
//! not wait for it.

use std::time::Duration;

use helmdeck_core::{Clock, Code, Error};
use parking_lot::Mutex;

use super::Trouble;

/// Shortest time between two questions while the record cannot be reached.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long a request waits for a record that does not answer, if its token was good a short while
/// ago.
const PATIENCE: Duration = Duration::from_secs(1);

/// State of the record, by the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct TokenRecord(Mutex<Option<Outage>>);

#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Duration,
    /// When the next request asks.
    ask_at: Duration,
}

impl TokenRecord {
    /// Returns whether a request should ask the record at `now`.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let mut outage = self.0.lock();
        match &mut *outage {
            Some(outage) if now < outage.ask_at => false,
            Some(outage) => {
                outage.ask_at = now + ASK_EVERY;
                true
            }
            None => true,
        }
    }

    /// Asks the record. If the token was good a short while ago, it does not wait for long.
    pub(super) async fn ask<T>(
        &self,
        was_good: bool,
        clock: &dyn Clock,
        question: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let answer = if was_good {
            let late = || Error::new(Code::Overloaded, "the record of API tokens does not answer");
            tokio::time::timeout(PATIENCE, question)
                .await
                .unwrap_or_else(|_| Err(late().into()))
        } else {
            question.await
        };
        self.note(
            matches!(answer, Err(Trouble::Unavailable(_))),
            clock.monotonic(),
        );
        answer
    }

    fn note(&self, failed: bool, now: Duration) {
        let mut outage = self.0.lock();
        match (&mut *outage, failed) {
            (Some(outage), true) => outage.ask_at = now + ASK_EVERY,
            (None, true) => {
                tracing::warn!(
                    "the record of API tokens cannot be reached; tokens that were good stay good for a while"
                );
                *outage = Some(Outage {
                    since: now,
                    ask_at: now + ASK_EVERY,
                });
            }
            (Some(_), false) => {
                tracing::info!("the record of API tokens can be reached again");
                *outage = None;
            }
            (None, false) => {}
        }
    }

    /// Returns how long it could not be reached; `None` if it can.
    pub(super) fn away_for(&self, now: Duration) -> Option<Duration> {
        self.0.lock().map(|outage| now.saturating_sub(outage.since))
    }
}
