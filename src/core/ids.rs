//! Id types: pack names, versions, run ids.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::text;
use serde::{Deserialize, Serialize};

/// The longest pack name, in bytes.
pub const MAX_PACK_NAME_BYTES: usize = 128;

/// Family of imported tools. In their names, the part after the server may have capitals and `-`.
pub const IMPORTED_FAMILY: &str = "mcp";

/// The name of a pack: `^[a-z0-9_]+(\.[a-z0-9_]+)+$`, for example `github.list_issues`.
///
/// Tools of MCP servers keep their names: `^mcp\.[a-z0-9_]+(\.[A-Za-z0-9_-]+)+$`, for example
/// `mcp.files.getTiny-Image`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName(Arc<str>);

impl PackName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// A message that names the text and the accepted form.
    pub fn new(name: &str) -> Result<Self, String> {
        if name.len() > MAX_PACK_NAME_BYTES || !is_well_formed(name) {
            return Err(format!(
                "\"{}\" is not a pack name; a name is two or more parts of a-z, 0-9 and _ joined by dots, like \"github.list_issues\", at most {MAX_PACK_NAME_BYTES} bytes",
                text::escaped(name, MAX_PACK_NAME_BYTES)
            ));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name with `__` for each `.`, for places that allow no dots, such as MCP tool
    /// names.
    ///
    /// Two names can give the same result (`a.b` and `a__b`); a registry accepts only the first of
    /// them.
    #[must_use]
    pub fn without_dots(&self) -> String {
        self.0.replace('.', "__")
    }

    /// Returns the part before the first dot (`github`).
    #[must_use]
    pub fn family(&self) -> &str {
        self.0.split('.').next().unwrap_or(&self.0)
    }
}

impl fmt::Debug for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a text is two or more parts joined by dots. Each call checks the name of its
/// pack, so this looks at each byte once.
fn is_well_formed(name: &str) -> bool {
    let imported = name
        .split_once('.')
        .is_some_and(|(family, _)| family == IMPORTED_FAMILY);
    let (mut dots, mut is_empty) = (0, true);
    for byte in name.bytes() {
        if byte == b'.' {
            if is_empty {
                return false;
            }
            dots += 1;
            is_empty = true;
            continue;
        }
        // Names of tools are those of their servers.
        let wide = imported && dots >= 2 && (byte.is_ascii_uppercase() || byte == b'-');
        if !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || wide) {
            return false;
        }
        is_empty = false;
    }
    dots >= 1 && !is_empty
}

impl std::borrow::Borrow<str> for PackName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for PackName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PackName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// Version of a pack: `v<integer>`, at least `v1`. The registry serves the highest as `latest`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u32);

impl Version {
    /// Checks and wraps a version number.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 {
            None
        } else {
            Some(Self(number))
        }
    }

    /// Parses `v<integer>`; no sign, no leading zero.
    ///
    /// # Errors
    /// A message that names the text and the accepted form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "\"{}\" is not a version; write \"v1\", \"v2\", ...",
                text.escape_debug()
            )
        };
        let digits = text.strip_prefix('v').ok_or_else(bad)?;
        if digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        digits.parse().ok().and_then(Self::new).ok_or_else(bad)
    }

    /// Returns the number after the `v`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The id of one run of a handler: a UUID of version 7, so ids sort by time.
///
/// Not a secret: it is unique, not unguessable. Whatever is kept under it checks its owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(uuid::Uuid);

impl RunId {
    /// Makes the next id: the given time in milliseconds, a random number of this process, and a
    /// counter.
    ///
    /// No system call after the first, because a call with both gates shut pays for it too.
    #[must_use]
    pub fn next(now: crate::Timestamp) -> Self {
        static PROCESS: OnceLock<[u8; 4]> = OnceLock::new();
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let process = PROCESS.get_or_init(|| {
            let random = uuid::Uuid::now_v7().into_bytes();
            [random[12], random[13], random[14], random[15]]
        });
        let counter = COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut tail = [0; 10];
        tail[..4].copy_from_slice(process);
        tail[4..].copy_from_slice(&counter[2..]);
        let millis = u64::try_from(now.micros() / 1000).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_names_follow_the_pattern() {
        for good in ["a.b", "github.list_issues", "x1.y_2.z"] {
            assert_eq!(PackName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "", "a", "a.", ".a", "A.b", "a..b", "a.b-c", "a/b.c", "a.b\n", "../a.b",
        ] {
            assert!(PackName::new(bad).is_err(), "{bad:?}");
        }
        assert!(PackName::new(&format!("a.{}", "b".repeat(MAX_PACK_NAME_BYTES))).is_err());
    }

    #[test]
    fn imported_tools_keep_capitals_and_hyphens_after_their_server() {
        for good in [
            "mcp.files.read_text_file",
            "mcp.every.get-Sum",
            "mcp.x.A.b-c",
            "mcp.x",
        ] {
            assert_eq!(PackName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "mcp.Files.x",
            "mcp.a-b.x",
            "mcp.x.",
            "mcp.x.a/b",
            "mcp.x.a b",
            "mcpx.a.B",
            "Mcp.x.y",
        ] {
            assert!(PackName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            PackName::new("mcp.x.Y-z").unwrap().without_dots(),
            "mcp__x__Y-z"
        );
    }

    #[test]
    fn versions_are_v_and_a_positive_integer() {
        assert_eq!(Version::parse("v12").unwrap().number(), 12);
        for bad in [
            "",
            "1",
            "v",
            "v0",
            "v01",
            "v-1",
            "v+1",
            "v1.0",
            "V1",
            "v99999999999",
        ] {
            assert!(Version::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn run_ids_differ_within_one_microsecond() {
        let now = crate::Timestamp(1_700_000_000_000_000);
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| RunId::next(now)).collect();
        assert_eq!(ids.len(), 1000);
    }
}
