//! How objects of the store are named. Nothing here touches the store.
//!
//! A file `<pack>/<run id>/<name>` is three objects:
//! - `owners/<owner>/<run id, inverted>/<pack>/<end>-<start>-<name>`, empty: the entry. It is written first and deleted last, so
//!   that whatever a crash leaves is found by it. Its name alone says whose the file is and when it ends, so that a list and a
//!   sweep read names only; the run id is inverted so that the newest comes first in a store that lists names in order.
//! - `files/<pack>/<run id>/<start>-<name>`: the bytes. What replaces a file has another start, so it never touches the bytes that
//!   are seen until it is whole.
//! - `about/<pack>/<run id>/<name>`: what is known of it, as JSON, its start too. It is written last: it makes the file visible.

pub(super) use helmdeck_core::hex;
use helmdeck_core::{Code, Error, PackName, Result, Timestamp};
use object_store::path::Path as Key;
use sha2::{Digest, Sha256};

/// The folder of what is known about files.
const ABOUT: &str = "about";
/// The folder of the files.
const FILES: &str = "files";
/// The folder of the entries.
pub(super) const OWNERS: &str = "owners";
const MAX_NAME_BYTES: usize = 128;

/// Returns the name of the object with the bytes of a file that began to be written then, `None` if there can be no file of this
/// key.
pub(super) fn file(key: &str, started: Timestamp) -> Option<Key> {
    split(key)?;
    let (run, name) = key.rsplit_once('/')?;
    Key::parse(format!("{FILES}/{run}/{:020}-{name}", started.micros().max(0))).ok()
}

/// Returns the name of the object with what is known of a file, `None` if there can be no file of this key.
pub(super) fn about(key: &str) -> Option<Key> {
    split(key)?;
    Key::parse(format!("{ABOUT}/{key}")).ok()
}

/// Takes a key apart: pack, run id, name. `None` if it is none.
fn split(key: &str) -> Option<(&str, u128, &str)> {
    let (pack, rest) = key.split_once('/')?;
    let (run, name) = rest.split_once('/')?;
    PackName::new(pack).ok()?;
    let hex = run.len() == 32 && run.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let run = u128::from_str_radix(run, 16).ok().filter(|_| hex)?;
    is_name(name).then_some((pack, run, name))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.starts_with('.') && name.chars().all(plain)
}

/// Checks the name that a handler gives a file.
///
/// # Errors
/// `invalid_input` with what a name may be.
pub(super) fn check(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let message =
        format!("an artifact's name is 1 to {MAX_NAME_BYTES} of A-Z a-z 0-9 . _ - and does not start with a dot");
    Err(Error::new(Code::InvalidInput, message))
}

/// Returns the folder of the entries of one caller: a digest, because the names of callers may hold anything.
pub(super) fn owner(tenant: &str, user: &str) -> String {
    let mut digest = Sha256::new();
    for part in [tenant, user] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize())
}

/// The entry of a file: what its name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameEntry {
    /// The folder of its owner.
    pub(super) owner: String,
    /// The key of the file.
    pub(super) key: String,
    /// When the file ends.
    pub(super) ends: Timestamp,
    /// When it began to be written.
    pub(super) started: Timestamp,
}

impl NameEntry {
    /// Returns its name, `None` if there can be no file of this key.
    pub(super) fn path(&self) -> Option<Key> {
        let (pack, run, name) = split(&self.key)?;
        let (ends, started) = (self.ends.micros().max(0), self.started.micros().max(0));
        let text = format!("{OWNERS}/{}/{:032x}/{pack}/{ends:020}-{started:020}-{name}", self.owner, !run);
        Key::parse(text).ok()
    }

    /// Returns the name of the object with its bytes, `None` if there can be no file of this key.
    pub(super) fn file(&self) -> Option<Key> {
        file(&self.key, self.started)
    }

    /// Reads a name, `None` if it is no entry's.
    pub(super) fn read(path: &Key) -> Option<Self> {
        let mut parts = path.as_ref().split('/');
        let (folder, owner, run, pack, rest) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
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
        // What does not read back as it is written was put there by somebody else.
        (entry.path().as_ref() == Some(path)).then_some(entry)
    }

    /// Returns the pack that wrote the file.
    pub(super) fn pack(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0192f0c0a1b27def8123456789abcdef";

    #[test]
    fn an_entry_reads_back_and_a_newer_run_comes_first() {
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
        for foreign in ["owners/x", "owners/o/r/p/1-2-n", "files/a.b/r/n", "owners/o/00/a.b/1-2-n/x"] {
            assert_eq!(NameEntry::read(&Key::parse(foreign).unwrap()), None, "{foreign}");
        }
    }

    #[test]
    fn keys_cannot_leave_their_folder() {
        let found = file(&format!("a.b/{RUN}/x.txt"), Timestamp(12)).unwrap();
        assert_eq!(found.as_ref(), format!("files/a.b/{RUN}/00000000000000000012-x.txt"));
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
