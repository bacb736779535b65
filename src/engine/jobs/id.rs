//! Ids of jobs.

use std::fmt;
use std::sync::Arc;

use helmdeck_core::{RunId, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Id of a job: 32 lower-case hex digits. Ids sort by creation time.
///
/// It is no secret: only its caller can read a job, even if others know the id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Arc<str>);

impl JobId {
    /// Parses an id.
    ///
    /// # Errors
    /// A message with the format of ids.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 32 && text.bytes().all(digit) {
            return Ok(Self(text.into()));
        }
        Err("a job's id has 32 digits of 0-9 and a-f".to_owned())
    }

    /// Makes the next id of this process.
    pub(crate) fn next(now: Timestamp) -> Self {
        Self(RunId::next(now).to_string().into())
    }

    /// Returns the digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_sort_by_time() {
        let ids: Vec<_> = [1_000_000, 1_000_000, 2_000_000]
            .map(|now| JobId::next(Timestamp(now)))
            .into();
        assert!(ids.is_sorted() && ids[0] != ids[1], "{ids:?}");
        assert_eq!(JobId::parse(ids[0].as_str()).as_ref(), Ok(&ids[0]));
        for bad in [
            "",
            "../../etc/passwd",
            &"A".repeat(32),
            &"a".repeat(31),
            &"a".repeat(33),
            &"é".repeat(16),
        ] {
            assert!(JobId::parse(bad).is_err(), "{bad}");
        }
    }
}
