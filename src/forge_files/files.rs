//! File store of a project: every file of `.forge/` is read and written here.
//!
//! Readers see whole files. A writer holds the lock of the work tree, reads the file again, writes
//! the new version beside the old one and renames it. A damaged file is never overwritten: it is
//! copied aside, and every change is refused until it is repaired. No text that looks like a
//! credential is written.

mod atomic;
mod document;
mod entries;
mod folders;
mod leaks;
mod lock;
mod lost;
mod path;
mod quarantine;

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helmdeck_core::{Clock, SystemClock};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

#[cfg(feature = "testing")]
pub use atomic::kill;
pub use document::in_words_of_json;
pub use document::{Damage, Document, Kind, Loaded, MAX_FILE, Unreadable, decode, text};
pub use entries::{Entries, EntryFile, EntryPlace, Joined, StoredEntry, is_made};
pub use folders::FolderEntry;
pub use folders::part_of;
pub use lock::Lock;
#[cfg(any(test, feature = "testing"))]
pub use lock::holds_local;
pub use lock::{Guard, Holder, LOCK_WAIT};
pub use lost::{LOST, back};
pub use path::check_path;
pub use quarantine::last_good;

use crate::error::{Category, Current, Error, Result};
use crate::layout::{LOCK, ROLLBACK_LOCK};
use crate::time::Time;
use crate::{json, secrets, triv};

/// The lock all work trees share, below their common folder.
const COMMON_LOCK: &str = "forge/lock";
/// How long a list of lines gets, in bytes, before its next part begins.
pub const LONG_LIST: u64 = 4 << 20;
/// The longest line that is appended, in bytes.
const MAX_LINE: usize = 1 << 20;

/// Returns the etag of these bytes: their SCH.
#[must_use]
pub fn etag(bytes: &[u8]) -> String {
    triv::sch(bytes)
}

/// Reads a file at a relative path below a folder.
///
/// Links are followed only as long as they stay below the folder.
///
/// # Errors
/// As [`Files::read`].
pub fn read_below(folder: &Path, path: &str, max: u64) -> Result<Option<Vec<u8>>> {
    Files::new(folder, Writer::default(), max, None)
        .reading()
        .read(path)
}

/// Writer of files: its identity, and the clock for the times in them.
#[derive(Clone)]
pub struct Writer {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Name of the agent.
    pub agent: String,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            agent: "Forge".to_owned(),
        }
    }
}

/// Asks version control whether it tracks a path.
type Tracks = dyn Fn(&str) -> Result<bool> + Send + Sync;

/// The files of a project. A clone is the same files, and holds the same lock.
#[derive(Clone)]
pub struct Files {
    shared: Arc<Shared>,
    tracks: Option<Arc<Tracks>>,
    makes_documents: bool,
    allowed: Vec<String>,
    reading: bool,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("shared", &self.shared)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    writer: Writer,
    max: u64,
    local: Lock,
    common: Lock,
    rollback: Lock,
}

impl Files {
    /// Makes the files below a root.
    ///
    /// `common` is the folder that all work trees of the repository share. Without one, the common
    /// lock is the local one.
    pub fn new(root: &Path, writer: Writer, max: u64, common: Option<&Path>) -> Self {
        let local = Lock::new(root, LOCK);
        let common = common.map_or_else(|| local.clone(), |folder| Lock::new(folder, COMMON_LOCK));
        let rollback = Lock::new(root, ROLLBACK_LOCK);
        let shared = Shared {
            root: root.to_owned(),
            writer,
            max,
            local,
            common,
            rollback,
        };
        Self {
            shared: Arc::new(shared),
            tracks: None,
            makes_documents: false,
            allowed: Vec::new(),
            reading: false,
        }
    }

    /// Returns the root: no path leads out of it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Returns these files with a way to ask whether version control tracks a path: see
    /// [`Self::is_lost`].
    pub fn tracked_by(self, tracks: impl Fn(&str) -> Result<bool> + Send + Sync + 'static) -> Self {
        Self {
            tracks: Some(Arc::new(tracks)),
            ..self
        }
    }

    fn now(&self) -> Time {
        self.shared.writer.clock.now().into()
    }

    /// Returns these files for reading only: nothing is written at all, not even a copy of a
    /// damaged file.
    #[must_use]
    pub fn reading(&self) -> Self {
        Self {
            reading: true,
            ..self.clone()
        }
    }

    /// Returns these files with a rule of the leak scan disabled. Findings of that rule are logged.
    #[must_use]
    pub fn allowing(&self, rule: &str) -> Self {
        let mut files = self.clone();
        files.allowed.push(rule.to_owned());
        files
    }

    /// Takes the lock of this work tree. It is reentrant for the thread that holds it.
    ///
    /// It is never held while a program runs, or during a call to the network or a model.
    ///
    /// # Errors
    /// `Locked` (`E_LOCKED`) after five seconds, with the holder.
    pub fn lock(&self) -> Result<Guard> {
        self.shared.local.take(|| self.holder())
    }

    /// Takes the lock all work trees of the repository share. To take both, take this one first.
    ///
    /// # Errors
    /// As [`Self::lock`]; `Failed` (`E_LOCK_ORDER`) if this thread holds only the local one.
    pub fn common_lock(&self) -> Result<Guard> {
        if self.shared.local.is_mine() && !self.shared.common.is_mine() {
            let what = "the common lock must be taken before the local one";
            return Err(Error::new(Category::Failed, "E_LOCK_ORDER", what));
        }
        self.shared.common.take(|| self.holder())
    }

    /// Takes the rollback lock.
    ///
    /// It blocks only other rollbacks, so it can be held during a long checkout by git.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn rollback_lock(&self) -> Result<Guard> {
        self.shared.rollback.take(|| self.holder())
    }

    fn holder(&self) -> Holder {
        Holder {
            pid: std::process::id(),
            agent: secrets::shown(self.shared.writer.agent.clone()),
            since: self.now().seconds().to_string(),
        }
    }

    /// Reads a document. `None` if it is absent.
    ///
    /// # Errors
    /// `Corrupt` with the place of the damage; the file is copied aside once. `Refused`
    /// (`E_SCHEMA_NEWER`) if a newer program wrote it in a shape this one does not know.
    pub fn load<D: Document>(&self) -> Result<Option<Loaded<D>>> {
        self.load_at(D::PATH)
    }

    /// Reads a document at another path than its own.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_at<D: Document>(&self, path: &str) -> Result<Option<Loaded<D>>> {
        if let Some(entries) = entries::of::<D>(path) {
            return self.load_entries(&entries);
        }
        let Some(bytes) = self.read(path)? else {
            return Ok(None);
        };
        let (value, read_only) =
            decode::<D>(&bytes).map_err(|why| self.unreadable(path, &bytes, why))?;
        Ok(Some(Loaded {
            value,
            etag: etag(&bytes),
            read_only,
        }))
    }

    /// Returns the error of a file that cannot be read, after it was copied aside.
    pub fn unreadable(&self, path: &str, bytes: &[u8], why: Unreadable) -> Error {
        match why {
            Unreadable::Newer(version) => newer(path, &version),
            Unreadable::Damaged(damage) => {
                let copy = if self.reading {
                    Ok(None)
                } else {
                    self.quarantine(path, bytes)
                };
                let message = format!("{path}:{}:{}: {}", damage.line, damage.column, damage.what);
                let copy = copy
                    .ok()
                    .flatten()
                    .map(|copy| format!("; a copy is kept at {copy}"))
                    .unwrap_or_default();
                Error::new(Category::Corrupt, "E_CORRUPT", message)
                    .hint(format!("nothing was written over it, and nothing will be until it is repaired{copy}"))
                    .next(format!("helmdeck forge repair {path}"))
            }
        }
    }

    /// Changes a document, or its default content if it is absent.
    ///
    /// It is written only if something changed.
    ///
    /// # Errors
    /// The errors of `change`; `Stale` with the current value if its etag is no longer `if_match`;
    /// `Corrupt`; `Secret`; `Locked`; `Usage` (`E_INVALID`) if the new value breaks a rule of the
    /// document. A lost document is `Corrupt`.
    pub fn edit<D: Document, T>(
        &self,
        if_match: Option<&str>,
        change: impl FnOnce(&mut D) -> Result<T>,
    ) -> Result<T> {
        self.edit_at(D::PATH, if_match, change)
    }

    /// Changes a document at another path than its own.
    ///
    /// # Errors
    /// As [`Self::edit`].
    pub fn edit_at<D: Document, T>(
        &self,
        path: &str,
        if_match: Option<&str>,
        change: impl FnOnce(&mut D) -> Result<T>,
    ) -> Result<T> {
        self.check_writing(path)?;
        if let Some(entries) = entries::of::<D>(path) {
            return self.edit_entries(&entries, if_match, change);
        }
        // git is asked before anybody waits for it.
        let was_there = self.was_there(path)?;
        let _guard = self.lock()?;
        let bytes = self.read(path)?;
        let mut value = match &bytes {
            Some(bytes) => {
                let (value, read_only) =
                    decode::<D>(bytes).map_err(|why| self.unreadable(path, bytes, why))?;
                if read_only {
                    return Err(newer(path, "with a newer major version"));
                }
                value
            }
            None if was_there || self.has_good(path)? => return Err(lost::error(path)),
            None => D::skeleton(),
        };
        self.check_match(path, if_match, bytes.as_deref().map(etag), || {
            bytes.clone().unwrap_or_default()
        })?;
        let invalid = |what: String| {
            Error::new(
                Category::Usage,
                "E_INVALID",
                format!("{path} would be invalid: {what}"),
            )
        };
        let print = |value: &D| value.print().map_err(|error| invalid(error.to_string()));
        let before = if bytes.is_some() {
            Some(print(&value)?)
        } else {
            None
        };
        let answer = change(&mut value)?;
        let after = print(&value)?;
        if before.as_ref() == Some(&after) {
            return Ok(answer);
        }
        // Unknown members may have numbers with more digits than Rust's number types keep.
        let after = match bytes.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => json::Numbers::of(text).put_back(after),
            _ => after,
        };
        match decode::<D>(&after) {
            Ok((_, false)) => {}
            Ok((_, true)) | Err(Unreadable::Newer(_)) => {
                return Err(invalid("its version is not ours to write".into()));
            }
            Err(Unreadable::Damaged(damage)) => return Err(invalid(damage.what)),
        }
        self.check_secrets(path, &after)?;
        self.check_size(path, after.len() as u64)?;
        self.put(path, &after, None)?;
        // It only makes repair easier: the document itself is written.
        if let Err(error) = self.keep_good(path, &after) {
            tracing::warn!(path, %error, "no copy of the good file was kept");
        }
        Ok(answer)
    }

    fn check_match(
        &self,
        path: &str,
        if_match: Option<&str>,
        found: Option<String>,
        bytes: impl FnOnce() -> Vec<u8>,
    ) -> Result<()> {
        let Some(wanted) = if_match else {
            return Ok(());
        };
        if found.as_deref() == Some(wanted) {
            return Ok(());
        }
        let is = found.as_deref().map_or_else(
            || "it is absent".into(),
            |etag| format!("its etag is {etag}"),
        );
        let mut error = Error::new(
            Category::Stale,
            "E_STALE",
            format!("{path} is not {wanted} any more: {is}"),
        )
        .hint("read it again, and decide anew");
        error.current = found.map(|etag| {
            let text = String::from_utf8_lossy(&bytes()).into_owned();
            Box::new(Current { etag, text })
        });
        Err(error)
    }

    /// Reads a whole file. `None` if it is absent.
    ///
    /// # Errors
    /// `Corrupt` (`E_TOO_LARGE`) if it is larger than `[files] max_bytes`: then nothing of it is
    /// read. `Refused` for a path that leaves the root, `Failed` if it is not a regular file or
    /// cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let io = |error: std::io::Error| Error::io("cannot read", &self.root().join(path), &error);
        let Some(place) = path::resolve(self.root(), path, false)? else {
            return Ok(None);
        };
        let no_file = || io(std::io::Error::other("it is no file"));
        // To open a pipe wakes the process at its other end, and some devices act on it: so the
        // type is checked first.
        let about = rustix::fs::statat(
            &place.folder,
            place.name.as_str(),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        if about.is_ok_and(|about| FileType::from_raw_mode(about.st_mode) != FileType::RegularFile)
        {
            return Err(no_file());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file: File =
            match rustix::fs::openat(&place.folder, place.name.as_str(), flags, Mode::empty()) {
                Ok(file) => file.into(),
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(io(error.into())),
            };
        let about = Some(file.metadata().map_err(io)?)
            .filter(|about| about.is_file())
            .ok_or_else(no_file)?;
        self.check_size(path, about.len())?;
        let mut bytes = Vec::new();
        file.take(self.shared.max + 1)
            .read_to_end(&mut bytes)
            .map_err(io)?;
        self.check_size(path, bytes.len() as u64)?;
        Ok(Some(bytes))
    }

    /// Writes a whole file, creating the folders on its way. The permissions of the old one are
    /// kept.
    ///
    /// # Errors
    /// `Secret`, `Locked`, `Refused` for a path that leaves the root, `Failed`.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.check_writing(path)?;
        self.check_secrets(path, bytes)?;
        let _guard = self.lock()?;
        self.put(path, bytes, None)
    }

    /// Writes a file unless it exists. Returns whether it was written.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn create(&self, path: &str, bytes: &[u8]) -> Result<bool> {
        self.create_with(path, bytes, None)
    }

    /// Writes a file with permissions unless it exists. Returns whether it was written.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn create_with(&self, path: &str, bytes: &[u8], mode: Option<u32>) -> Result<bool> {
        self.check_writing(path)?;
        self.check_secrets(path, bytes)?;
        let _guard = self.lock()?;
        let place = self.place(path)?;
        atomic::create(&place, bytes, mode)
            .map_err(|error| Error::io("cannot write", &self.root().join(path), &error))
    }

    /// Writes without a scan, under the lock the caller holds.
    pub fn put(&self, path: &str, bytes: &[u8], mode: Option<u32>) -> Result<()> {
        self.check_writing(path)?;
        let place = self.place(path)?;
        atomic::write(&place, bytes, mode)
            .map_err(|error| Error::io("cannot write", &self.root().join(path), &error))
    }

    fn place(&self, path: &str) -> Result<path::FileLocation> {
        path::resolve(self.root(), path, true)?
            .ok_or_else(|| Error::not_found(format!("no folder for {path}")))
    }

    /// Appends a line to a file, with one write.
    ///
    /// A torn last line stays, and the new line begins after a line break. If the disk takes only a
    /// part of the line, none of it stays.
    ///
    /// # Errors
    /// As [`Self::write`]; `Usage` for more than one line, or more than 1 MiB.
    pub fn append(&self, path: &str, line: &str) -> Result<()> {
        self.check_writing(path)?;
        if line.contains(['\n', '\r']) || line.len() > MAX_LINE {
            return Err(Error::usage(format!(
                "only one line of at most 1 MiB is added to {path} at a time"
            )));
        }
        self.check_secrets(path, line.as_bytes())?;
        let _guard = self.lock()?;
        let place = self.place(path)?;
        atomic::append(&place, line)
            .map_err(|error| Error::io("cannot write", &self.root().join(path), &error))
    }

    /// Removes a file. Returns whether it existed.
    ///
    /// # Errors
    /// `Locked`, `Refused`, `Failed`.
    pub fn remove(&self, path: &str) -> Result<bool> {
        self.check_writing(path)?;
        let _guard = self.lock()?;
        let Some(place) = path::resolve(self.root(), path, false)? else {
            return Ok(false);
        };
        let io =
            |error: std::io::Error| Error::io("cannot remove", &self.root().join(path), &error);
        atomic::remove(&place).map_err(io)
    }

    /// Gives a file a second name, which must be free.
    ///
    /// It has both names until one of them is rewritten or removed.
    ///
    /// # Errors
    /// `NotFound` if it is absent; `Locked`, `Refused`; `Failed` too if the file system has no hard
    /// links.
    pub fn link(&self, from: &str, to: &str) -> Result<()> {
        self.check_writing(from)?;
        let _guard = self.lock()?;
        let absent = || Error::not_found(format!("there is no {from}"));
        let old = path::resolve(self.root(), from, false)?.ok_or_else(absent)?;
        let new = self.place(to)?;
        atomic::link(&old, &new).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => absent(),
            _ => Error::io("cannot link", &self.root().join(from), &error),
        })
    }

    /// Renames a file. A file that has the new name is replaced.
    ///
    /// # Errors
    /// `NotFound` if it is absent; `Locked`, `Refused`, `Failed`.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_writing(from)?;
        let _guard = self.lock()?;
        let absent = || Error::not_found(format!("there is no {from}"));
        let old = path::resolve(self.root(), from, false)?.ok_or_else(absent)?;
        let new = self.place(to)?;
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => absent(),
            _ => Error::io("cannot rename", &self.root().join(from), &error),
        };
        atomic::rename(&old.folder, &old.name, &new).map_err(io)?;
        atomic::sync(&new.folder).map_err(io)?;
        atomic::sync(&old.folder).map_err(io)
    }

    fn check_writing(&self, path: &str) -> Result<()> {
        check_path(path)?;
        if self.reading {
            return Err(Error::new(
                Category::Refused,
                "E_READ_ONLY",
                format!("{path} was opened for reading only"),
            ));
        }
        Ok(())
    }

    fn check_size(&self, path: &str, bytes: u64) -> Result<()> {
        if bytes <= self.shared.max {
            return Ok(());
        }
        let message = format!(
            "{path} has {bytes} bytes, and at most {} are read or written",
            self.shared.max
        );
        Err(Error::new(Category::Corrupt, "E_TOO_LARGE", message).hint(
            "nothing was read or written; if it must be so large, raise max_bytes under [files] in .forge/config.toml",
        ))
    }
}

/// Returns the error of a file that a newer program wrote.
pub fn newer(path: &str, version: &str) -> Error {
    let message = format!(
        "{path} was written by a newer program ({version}): it is read only here (schema_newer)"
    );
    Error::new(Category::Refused, "E_SCHEMA_NEWER", message)
        .hint("use a newer helmdeck to change it")
}

#[cfg(test)]
mod concurrency_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
