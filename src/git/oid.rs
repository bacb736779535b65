//! Object ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A full object id: 40 or 64 hex digits, lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Parses a full id; digits can be upper case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let full =
            matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        full.then(|| Self(text.to_ascii_lowercase()))
    }

    /// Returns all digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first 12 digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..12]
    }

    /// Returns the null id (all zeros) of the same length.
    #[must_use]
    pub fn none_like(&self) -> Self {
        Self("0".repeat(self.0.len()))
    }

    /// Says whether it is the null id: all zeros.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'0')
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Oid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("{text:?} is no full object id of git"))
    }
}

impl TryFrom<String> for Oid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_ids_are_parsed() {
        let full = "A94A8FE5CCB19BA61C4C0873D391E987982FBBD3";
        assert_eq!(Oid::parse(full).unwrap().as_str(), full.to_lowercase());
        assert_eq!(Oid::parse(full).unwrap().short(), "a94a8fe5ccb1");
        assert!(Oid::parse(&"0".repeat(64)).unwrap().is_none());
        for no in ["", "abc1234", &"g".repeat(40), &"0".repeat(41)] {
            assert!(Oid::parse(no).is_none(), "{no}");
        }
    }
}
