//! Names of the objects in the store. Pure functions.
//!
//! An artifact `<pack>/<run id>/<name>` is three objects:
//! - `owners/<owner>/<run id, inverted>/<pack>/<end>-<start>-<name>`, empty: the entry. It is
//!   written first and deleted last, so that it leads to everything that a crash leaves. Its name
//!   holds owner and expiry, so that lists and sweeps read names only. The run id is inverted so
//!   that the newest comes first in a store that lists names in order.
//! - `files/<pack>/<run id>/<start>-<name>`: the bytes. A replacement has another start time, so it
//!   never touches the bytes that are visible until it is complete.
//! - `about/<pack>/<run id>/<name>`: the description, as JSON. It is written last and makes the
//!   artifact visible.

pub(super) use helmdeck_core::hex;
use helmdeck_core::{Code, Error, PackName, Result, Timestamp};
use object_store::path::Path as Key;
use sha2::{Digest, Sha256};

/// Folder of the descriptions.
const ABOUT: &str = "about";
/// Folder of the bytes.
const FILES: &str = "files";
/// Folder of the entries.
pub(super) const OWNERS: &str = "owners";
const MAX_NAME_BYTES: usize = 128;

/// Returns the name of the object with the bytes, for a start time; `None` if the key is malformed.
pub(super) fn file(key: &str, started: Timestamp) -> Option<Key> {
    split(key)?;
    let (run, name) = key.rsplit_once('/')?;
    Key::parse(format!(
        "{FILES}/{run}/{:020}-{name}",
        started.micros().max(0)
    ))
    .ok()
}

/// Returns the name of the object with the description; `None` if the key is malformed.
pub(super) fn about(key: &str) -> Option<Key> {
    split(key)?;
    Key::parse(format!("{ABOUT}/{key}")).ok()
}

/// Splits a key into pack, run id and name; `None` if it is malformed.
fn split(key: &str) -> Option<(&str, u128, &str)> {
    let (pack, rest) = key.split_once('/')?;
    let (run, name) = rest.split_once('/')?;
    PackName::new(pack).ok()?;
    let hex = run.len() == 32
        && run
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let run = u128::from_str_radix(run, 16).ok().filter(|_| hex)?;
    is_name(name).then_some((pack, run, name))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with('.')
        && name.chars().all(plain)
}

/// Checks the name that a handler gives an artifact.
///
/// # Errors
/// `invalid_input` with the rules for names.
pub(super) fn check(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!(
        "an artifact's name is 1 to {MAX_NAME_BYTES} of A-Z a-z 0-9 . _ - and does not start with a dot"
    );
    Err(Error::new(Code::InvalidInput, message))
}

/// Returns the folder with the entries of one caller.
///
/// Its name is a digest, because names of callers can contain any character.
pub(super) fn owner(tenant: &str, user: &str) -> String {
    let mut digest = Sha256::new();
    for part in [tenant, user] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize())
}

/// Entry of an artifact, as its name encodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameEntry {
    /// Folder of its owner.
    pub(super) owner: String,
    /// Key of the artifact.
    pub(super) key: String,
    /// Expiry.
    pub(super) ends: Timestamp,
    /// Start time of the write.
    pub(super) started: Timestamp,
}

impl NameEntry {
    /// Returns its name; `None` if the key is malformed.
    pub(super) fn path(&self) -> Option<Key> {
        let (pack, run, name) = split(&self.key)?;
        let (ends, started) = (self.ends.micros().max(0), self.started.micros().max(0));
        let text = format!(
            "{OWNERS}/{}/{:032x}/{pack}/{ends:020}-{started:020}-{name}",
            self.owner, !run
        );
        Key::parse(text).ok()
    }

    /// Returns the name of the object with its bytes; `None` if the key is malformed.
    pub(super) fn file(&self) -> Option<Key> {
        file(&self.key, self.started)
    }

    /// Parses a name; `None` if it is not that of an entry.
    pub(super) fn read(path: &Key) -> Option<Self> {
        let mut parts = path.as_ref().split('/');
        let (folder, owner, run, pack, rest) = (
            parts.next()?,
            parts.next()?,
            parts.next()?,
            parts.next()?,
            parts.next()?,
        );
        if folder != OWNERS || parts.next().is_some() {
            return None;
        }
        let mut rest = rest.splitn(3, '-');
        let (ends, started, name) = (rest.next()?, rest.next()?, rest.next()?);
        let time = |text: &str| text.parse().ok().map(Timestamp);
        let run = !u128::from_str_radix(run, 16).ok()?;
        let entry = Self {
            owner: owner.to_owned(),
            key: format!("{pack}/{run:032x}/{name}"),
            ends: time(ends)?,
            started: time(started)?,
        };
        // A name that does not round-trip was not written by helmdeck.
        (entry.path().as_ref() == Some(path)).then_some(entry)
    }

    /// Returns the pack that wrote the artifact.
    pub(super) fn pack(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0192f0c0a1b27def8123456789abcdef";

    #[test]
    fn entries_round_trip_and_sort_newest_first() {
        let entry = |run: &str, name: &str| NameEntry {
            owner: owner("t", "u"),
            key: format!("a.b/{run}/{name}"),
            ends: Timestamp(20),
            started: Timestamp(10),
        };
        let old = entry(RUN, "x-1-2.txt");
        assert_eq!(NameEntry::read(&old.path().unwrap()), Some(old.clone()));
        assert_eq!(old.pack(), "a.b");
        let new = entry("0192f0c0a1b37def8123456789abcdef", "x");
        assert!(new.path().unwrap() < old.path().unwrap());
        for foreign in [
            "owners/x",
            "owners/o/r/p/1-2-n",
            "files/a.b/r/n",
            "owners/o/00/a.b/1-2-n/x",
        ] {
            assert_eq!(
                NameEntry::read(&Key::parse(foreign).unwrap()),
                None,
                "{foreign}"
            );
        }
    }

    #[test]
    fn keys_cannot_leave_their_folder() {
        let found = file(&format!("a.b/{RUN}/x.txt"), Timestamp(12)).unwrap();
        assert_eq!(
            found.as_ref(),
            format!("files/a.b/{RUN}/00000000000000000012-x.txt")
        );
        for bad in ["", "a.b", "../x/y", "a.b/../x", "a.b/1/x"] {
            assert!(file(bad, Timestamp(0)).is_none(), "{bad}");
        }
        for name in ["", ".x", "a/b", "..", "a b", "\u{e9}"] {
            assert!(about(&format!("a.b/{RUN}/{name}")).is_none(), "{name}");
        }
        assert!(file(&format!("a.b/{}/x", RUN.to_uppercase()), Timestamp(0)).is_none());
    }

    #[test]
    fn owners_differ_where_their_names_run_together() {
        assert_ne!(owner("ab", "c"), owner("a", "bc"));
        assert_ne!(owner("t", "u"), owner("u", "t"));
    }
}
