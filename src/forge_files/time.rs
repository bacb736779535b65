//! Times in files: RFC 3339.
//!
//! Any offset is read and `Z` is written, with seconds unless there is a fraction.

use std::borrow::Cow;
use std::fmt;

use helmdeck_core::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time in a file. The default is the beginning of 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub jiff::Timestamp);

impl Time {
    /// The time of what does not say when it was.
    pub const UNKNOWN: Self = Self(jiff::Timestamp::UNIX_EPOCH);

    /// Reads RFC 3339.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        // jiff reads more than RFC 3339.
        let bytes = text.as_bytes();
        let shape = bytes.len() >= 20
            && matches!(bytes[10], b'T' | b't')
            && bytes[4] == b'-'
            && bytes[13] == b':';
        let time: Option<jiff::Timestamp> = if shape { text.parse().ok() } else { None };
        time.map(Self)
            .ok_or_else(|| format!("{text:?} is no RFC 3339 time"))
    }

    /// Returns the time as whole seconds.
    #[must_use]
    pub fn seconds(self) -> Self {
        Self(jiff::Timestamp::from_second(self.0.as_second()).unwrap_or(self.0))
    }
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        let nearest = if time.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        };
        Self(jiff::Timestamp::from_microsecond(time.0).unwrap_or(nearest))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_any_offset_and_written_with_z() {
        for (text, written) in [
            ("2025-12-24T10:30:00Z", "2025-12-24T10:30:00Z"),
            ("2025-12-24T12:30:00+02:00", "2025-12-24T10:30:00Z"),
            ("2025-12-24T10:30:00.25Z", "2025-12-24T10:30:00.25Z"),
        ] {
            assert_eq!(Time::parse(text).unwrap().to_string(), written);
        }
        for no in [
            "",
            "2025-12-24",
            "2025-12-24 10:30:00Z",
            "2025-12-24T10:30:00",
            "yesterday",
            "2025-13-24T10:30:00Z",
        ] {
            assert!(Time::parse(no).is_err(), "{no}");
        }
    }
}
