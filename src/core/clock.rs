//! Clock trait. Code that decides on freshness uses a `Clock`, not the system time.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point in time as Unix microseconds, UTC.
///
/// Integers sort, compare and index without surprises; text times do not. On the wire a timestamp
/// is RFC 3339.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The largest timestamp; "never" where a hard end is needed.
    pub const MAX: Self = Self(i64::MAX);

    /// Returns the Unix microseconds.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Adds a duration, saturating at [`Timestamp::MAX`] instead of wrapping into the past.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Returns the time from `earlier` to `self`, zero if `earlier` is later (a clock that went
    /// backwards).
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses a date as HTTP headers have it (`Sun, 06 Nov 1994 08:49:37 GMT`); `None` for anything
    /// else.
    #[must_use]
    pub fn parse_http_date(text: &str) -> Option<Self> {
        let date = jiff::fmt::rfc2822::parse(text).ok()?;
        Some(Self(date.timestamp().as_microsecond()))
    }

    /// Returns the RFC 3339 form with microseconds, in UTC (`2026-11-21T22:34:00.000000Z`).
    ///
    /// Times outside the years -9999 to 9999 are given as the nearest end of that range.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let timestamp = jiff::Timestamp::from_microsecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        });
        format!("{timestamp:.6}")
    }
}

/// Timestamps as RFC 3339 text, as on the wire: `#[serde(with = "helmdeck_core::clock::rfc3339")]`.
pub mod rfc3339 {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Timestamp;

    /// Writes the form of [`Timestamp::to_rfc3339`].
    ///
    /// # Errors
    /// The error of the serializer.
    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&time.to_rfc3339())
    }

    /// Writes a time that may be missing, as text or `null`.
    ///
    /// # Errors
    /// The error of the serializer.
    pub fn optional<S: Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads any RFC 3339 time.
    ///
    /// # Errors
    /// If the text is not an RFC 3339 time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let time: jiff::Timestamp = String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)?;
        Ok(Timestamp(time.as_microsecond()))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

/// Source of the time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time. It may jump in both directions.
    fn now(&self) -> Timestamp;

    /// Returns a monotonic time, for measuring durations.
    fn monotonic(&self) -> Duration;
}

/// The system clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addition_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp(5).saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(
            Timestamp(5).saturating_add(Duration::from_micros(7)),
            Timestamp(12)
        );
    }

    #[test]
    fn a_clock_that_went_back_gives_zero() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }

    #[test]
    fn rfc3339_has_microseconds_and_utc() {
        assert_eq!(
            Timestamp(1_500_000).to_rfc3339(),
            "1970-01-01T00:00:01.500000Z"
        );
        assert!(Timestamp::MAX.to_rfc3339().starts_with("9999-"));
    }
}
