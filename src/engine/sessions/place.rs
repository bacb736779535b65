//! Sessions on the disk: `<data>/sessions/<id>/` with `folder/`, `supplies/`, `etc/`, what is known of the session
//! (`session.json`), and a lock that the process that made it holds as long as it lives.
//!
//! Several processes share one data folder. Whose lock is free has ended; what it left is kept only if it was to outlive it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::disk;

const RECORD: &str = "session.json";
const LOCK: &str = "lock";
/// Starts the names of folders that are being removed.
const LEAVING: &str = ".leaving-";
/// The largest record that is read.
const MAX_RECORD: u64 = 64 << 10;

/// What is known of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// The pack that asked for it.
    pub(crate) pack: String,
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub(crate) created_at: Timestamp,
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub(crate) expires_at: Timestamp,
    /// Whether it outlives the call that made it.
    pub(crate) preserved: bool,
    /// The most memory of a command in it, in bytes.
    pub(crate) memory: u64,
}

/// The folder of all sessions.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

/// The folder of one session.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn record_path(&self) -> PathBuf {
        self.0.join(RECORD)
    }

    /// Writes the record, whole or not at all.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.0.join("session.json.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        drop(file);
        std::fs::rename(new, self.record_path())
    }

    /// Reads the record; `None` if the session has ended, or never was.
    pub(crate) fn read(&self) -> Option<Record> {
        let file = File::open(self.record_path()).ok()?;
        let size = file.metadata().ok()?.len();
        let record: Record = serde_json::from_reader(io::Read::take(file, size.min(MAX_RECORD))).ok()?;
        (self.0.file_name()?.to_str()? == record.id).then_some(record)
    }

    /// Takes the lock if no process holds it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<File>> {
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.0.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Makes a folder that only its owner may open; one that is there stays.
fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Place {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Returns where a session would be; `None` if the id cannot be one.
    pub(crate) fn of(&self, id: &str) -> Option<Folder> {
        let fits = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Folder(self.0.join(id)))
    }

    /// Holds off every other process that makes or sweeps sessions. Short: nothing slow is done meanwhile.
    fn hold(&self) -> io::Result<File> {
        make_folder(&self.0)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.0.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Makes a session if `fits` says so of the records that are there. Returns its folder and its lock.
    ///
    /// `make` gets a fresh id and says what is known of the session; `fill` makes what it holds.
    pub(crate) fn create<E: From<io::Error>>(
        &self,
        now: Timestamp,
        make: impl FnOnce(String) -> Record,
        fits: impl FnOnce(&[Record]) -> Result<(), E>,
        fill: impl FnOnce(&Folder) -> io::Result<()>,
    ) -> Result<(Folder, Record, File), E> {
        let _held = self.hold()?;
        fits(&self.records()?)?;
        let record = make(RunId::next(now).to_string());
        let folder = Folder(self.0.join(&record.id));
        DirBuilder::new().mode(0o700).create(folder.path())?;
        let made = || {
            let busy = || io::Error::other("the lock of a new session is taken");
            let lock = folder.try_lock()?.ok_or_else(busy)?;
            fill(&folder)?;
            folder.write(&record)?;
            Ok(lock)
        };
        match made() {
            Ok(lock) => Ok((folder, record, lock)),
            Err(error) => {
                // Whatever was made of it; if this fails too, the next sweep removes it.
                let _ = disk::remove(folder.path());
                Err(E::from(error))
            }
        }
    }

    /// Returns the folders of all sessions.
    fn folders(&self) -> io::Result<Vec<Folder>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(entries.filter_map(|entry| self.of(entry.ok()?.file_name().to_str()?)).collect())
    }

    /// Returns what is known of all sessions, of every process.
    pub(crate) fn records(&self) -> io::Result<Vec<Record>> {
        Ok(self.folders()?.iter().filter_map(Folder::read).collect())
    }

    /// Removes what processes left behind that have ended: sessions that were not to outlive them, or that have expired.
    /// Returns how many.
    pub(crate) fn sweep(&self, now: Timestamp) -> io::Result<usize> {
        if !self.0.is_dir() {
            return Ok(0);
        }
        let held = self.hold()?;
        let mut removed = 0;
        for folder in self.folders()? {
            let Ok(Some(_lock)) = folder.try_lock() else { continue };
            if folder.read().is_some_and(|record| record.preserved && record.expires_at > now) {
                continue;
            }
            self.set_aside(&folder)?;
            removed += 1;
        }
        drop(held);
        self.remove_leaving()?;
        Ok(removed)
    }

    /// Takes a session out of sight: what reads its record finds none from now on. Its commands must have ended, or be about to.
    pub(crate) fn set_aside(&self, folder: &Folder) -> io::Result<()> {
        let Some(name) = folder.path().file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        match std::fs::rename(folder.path(), self.0.join(format!("{LEAVING}{name}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes every session that was set aside, also by processes that did not come to remove it.
    pub(crate) fn remove_leaving(&self) -> io::Result<()> {
        let mut first = Ok(());
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| name.starts_with(LEAVING)) {
                continue;
            }
            // Another process may be at it as well; then either may find nothing left. Held by somebody: it still runs there.
            let folder = Folder(entry.path());
            match folder.try_lock() {
                Ok(None) => continue,
                Ok(Some(_lock)) => first = first.and(disk::remove(folder.path())),
                Err(_) => {}
            }
        }
        first
    }

    /// Ends a session that another process may hold: takes its record away, which that process notices within a second, and waits
    /// for it for at most `limit`. What cannot be removed yet is left for a sweep.
    pub(crate) fn end(&self, folder: &Folder, limit: Duration) -> io::Result<bool> {
        match std::fs::remove_file(folder.record_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        }
        let start = std::time::Instant::now();
        while folder.path().is_dir() && start.elapsed() < limit {
            if let Some(_lock) = folder.try_lock()? {
                self.set_aside(folder)?;
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.remove_leaving()?;
        Ok(true)
    }
}
