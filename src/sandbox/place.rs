//! Sessions on the disk, in `<data>/sessions/<id>/`.
//!
//! A session has `folder/`, `supplies/`, `etc/`, its record (`session.json`), `running`, and
//! perhaps the file system of its folder (`image`).
//!
//! Several processes share one data folder. The process that made a session holds a lock on its
//! folder until it ends. A free lock means that this process has ended; its session is then kept
//! only if it was preserved. A process that runs a command in a session holds a shared lock on
//! `running`, and nothing is removed before these locks are free. Records are changed or removed
//! only under the lock of all sessions, so that a removed one does not come back.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use helmdeck_core::{RunId, Timestamp};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::image::Images;
use super::sandbox::Folders;
use super::{disk, image};

const RECORD: &str = "session.json";
/// Lock file of all sessions.
const LOCK: &str = "lock";
/// Lock file that a process holds while it runs a command in the session.
const RUNNING: &str = "running";
/// Interval between attempts to take a lock.
const LOCK_LOOK: Duration = Duration::from_millis(20);
/// Prefix of folders that are being removed.
const LEAVING: &str = ".leaving-";
/// Size limit of a record.
const MAX_RECORD: u64 = 64 << 10;

/// Record of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// The pack that requested the session.
    pub(crate) pack: String,
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub(crate) created_at: Timestamp,
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub(crate) expires_at: Timestamp,
    /// Whether it outlives the call that made it.
    pub(crate) preserved: bool,
    /// Memory limit of a command in it, in bytes.
    pub(crate) memory: u64,
}

/// The folder of all sessions.
#[derive(Debug, Clone)]
pub(crate) struct SessionFolder(PathBuf);

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

    /// Mounts the file system that belongs to its folder, if it has one that is not mounted here.
    ///
    /// # Errors
    /// Why it cannot be used, for callers.
    fn make_whole(&self) -> Result<(), String> {
        image::remount(&self.0, &Folders::of(&self.0).folder)
    }

    /// Returns whether its folder is a file system of its own.
    pub(crate) fn has_own_file_system(&self) -> bool {
        image::is_own(&self.0, &Folders::of(&self.0).folder)
    }

    /// Removes it with its content. Nothing may use it any more.
    fn remove(&self) -> io::Result<()> {
        image::release(&self.0, &Folders::of(&self.0).folder)?;
        disk::remove(&self.0)
    }

    /// Writes the record atomically.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.0.join("session.json.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        drop(file);
        std::fs::rename(new, self.record_path())
    }

    /// Reads the record; `None` if the session has ended, or never existed.
    ///
    /// # Errors
    /// Those of the system: the state of the session is unknown then. `InvalidData` for a malformed
    /// record.
    pub(crate) fn read(&self) -> io::Result<Option<Record>> {
        let file = match File::open(self.record_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_RECORD).read_to_end(&mut bytes)?;
        let odd = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let record: Record = serde_json::from_slice(&bytes).map_err(odd)?;
        match self.0.file_name().and_then(|name| name.to_str()) == Some(&*record.id) {
            true => Ok(Some(record)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the record of another session",
            )),
        }
    }

    /// Takes the lock if no process holds it.
    ///
    /// The folder itself is locked, so no lock file is made in a folder that is being removed.
    ///
    /// # Errors
    /// Those of the system; `NotFound` if the folder does not exist.
    pub(crate) fn try_lock(&self) -> io::Result<Option<File>> {
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags).unwrap_or(0))
            .open(&self.0)?;
        locked(folder.try_lock()).map(|taken| taken.then_some(folder))
    }

    /// Marks the session as in use while the file is open; `None` if the session has ended.
    pub(crate) fn running(&self) -> io::Result<Option<File>> {
        let running = match File::open(self.0.join(RUNNING)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        match running.try_lock_shared() {
            // It is being removed.
            Err(TryLockError::WouldBlock) => return Ok(None),
            other => other.map_err(io::Error::from)?,
        }
        // A process that ends the session removes the record first, and only then waits for this
        // lock.
        Ok(self.read()?.map(|_| running))
    }

    /// Takes the lock on `running`; `None` while a command runs in the session.
    fn try_still(&self) -> io::Result<Option<Still>> {
        let running = match File::open(self.0.join(RUNNING)) {
            // It was never completed, or its removal has begun.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Still(None))),
            other => other?,
        };
        locked(running.try_lock()).map(|taken| taken.then_some(Still(Some(running))))
    }
}

/// Guard: no command can start in the session while it exists.
struct Still(#[expect(dead_code, reason = "held for its lock")] Option<File>);

fn locked(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns the replica that a session id names, if it names one; `None` if the id is malformed.
pub(crate) fn replica_of(id: &str) -> Option<Option<&str>> {
    let (replica, random) = id
        .split_once('.')
        .map_or((None, id), |(replica, random)| (Some(replica), random));
    let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = |name: &str| (1..=40).contains(&name.len()) && name.bytes().all(named);
    let is_random = random.len() == 32
        && random
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_random && replica.is_none_or(is_name)).then_some(replica)
}

/// Makes a folder with mode 0700. An existing one stays as it is.
fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl SessionFolder {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a small file system beside the sessions, and removes it.
    ///
    /// # Errors
    /// Why none can be made.
    pub(crate) fn try_images(&self, images: &Images) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        make_folder(&self.0)?;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            // With the prefix, a sweep removes it after a crash.
            let trial = Folder(
                self.0
                    .join(format!("{LEAVING}trial-{}-{number}", std::process::id())),
            );
            match DirBuilder::new().mode(0o700).create(trial.path()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            let _lock = match trial.try_lock() {
                Ok(Some(lock)) => lock,
                // A sweep was faster.
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let folder = Folders::of(trial.path()).folder;
            let tried = DirBuilder::new()
                .create(&folder)
                .and_then(|()| images.make(trial.path(), &folder, 0, 0));
            return trial.remove().and(tried);
        }
    }

    /// Returns the folder of a session; `None` if the id is malformed.
    pub(crate) fn of(&self, id: &str) -> Option<Folder> {
        replica_of(id).map(|_| Folder(self.0.join(id)))
    }

    /// Mounts the file system of a session's folder, if it is not mounted here; or says why it
    /// cannot be, for callers.
    ///
    /// # Errors
    /// That the lock cannot be taken.
    pub(crate) fn make_whole(&self, folder: &Folder) -> io::Result<Result<(), String>> {
        if folder.has_own_file_system() {
            return Ok(Ok(()));
        }
        // One process mounts it, not two.
        let _held = self.hold()?;
        Ok(folder.make_whole())
    }

    /// Takes the lock of all sessions, for processes that make or sweep them.
    ///
    /// Hold it only for short work.
    fn hold(&self) -> io::Result<File> {
        make_folder(&self.0)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.0.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Makes a session if `fits` accepts the existing records. Returns its folder and its lock.
    ///
    /// `make` gets a new id, which begins with the replica, and returns the record; `fill` makes
    /// the content.
    pub(crate) fn create<E: From<io::Error>>(
        &self,
        now: Timestamp,
        replica: Option<&str>,
        make: impl FnOnce(String) -> Record,
        fits: impl Fn(&[Record]) -> Result<(), E>,
        fill: impl FnOnce(&Folder) -> io::Result<()>,
    ) -> Result<(Folder, Record, File), E> {
        let held = self.hold()?;
        fits(&self.records()?)?;
        let random = RunId::next(now);
        let record = make(replica.map_or_else(
            || random.to_string(),
            |replica| format!("{replica}.{random}"),
        ));
        let folder = Folder(self.0.join(&record.id));
        DirBuilder::new().mode(0o700).create(folder.path())?;
        let made = || {
            let busy = || io::Error::other("the lock of a new session is taken");
            let lock = folder.try_lock()?.ok_or_else(busy)?;
            // A file system takes a while to make. No sweep removes a folder whose lock is taken.
            drop(held);
            fill(&folder)?;
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(folder.path().join(RUNNING))?;
            let _held = self.hold()?;
            fits(&self.records()?)?;
            folder.write(&record)?;
            Ok(lock)
        };
        let made: Result<File, E> = made();
        if made.is_err() {
            // A partial session. If this fails too, the next sweep removes it.
            let _ = folder.remove();
        }
        Ok((folder, record, made?))
    }

    /// Returns the folders of all sessions.
    fn folders(&self) -> io::Result<Vec<Folder>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(entries
            .filter_map(|entry| self.of(entry.ok()?.file_name().to_str()?))
            .collect())
    }

    /// Returns the records of all sessions of all processes. Malformed records are skipped.
    pub(crate) fn records(&self) -> io::Result<Vec<Record>> {
        let read = |folder: &Folder| match folder.read() {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            other => other.transpose(),
        };
        self.folders()?.iter().filter_map(read).collect()
    }

    /// Changes the record of a session that has not ended. Returns the new record.
    pub(crate) fn change(
        &self,
        folder: &Folder,
        change: impl FnOnce(&mut Record),
    ) -> io::Result<Option<Record>> {
        let _held = self.hold()?;
        let Some(mut record) = folder.read()? else {
            return Ok(None);
        };
        change(&mut record);
        folder.write(&record)?;
        Ok(Some(record))
    }

    /// Removes sessions of ended processes, and returns how many.
    ///
    /// It removes those that were not preserved, or have expired with no command running.
    pub(crate) fn sweep(&self, now: Timestamp) -> io::Result<usize> {
        if !self.0.is_dir() {
            return Ok(0);
        }
        let held = self.hold()?;
        let mut removed = 0;
        for folder in self.folders()? {
            let Ok(Some(_lock)) = folder.try_lock() else {
                continue;
            };
            match folder.read() {
                Ok(Some(record)) if record.preserved && record.expires_at > now => continue,
                // A malformed record cannot be used. Any other error says nothing about the
                // session.
                Err(error) if error.kind() != io::ErrorKind::InvalidData => continue,
                _ => {}
            }
            let Ok(Some(_still)) = folder.try_still() else {
                continue;
            };
            self.put_aside(&folder)?;
            removed += 1;
        }
        drop(held);
        self.remove_leaving()?;
        Ok(removed)
    }

    /// Sets a session aside, so that readers find no record. Returns its new folder, if it existed.
    fn put_aside(&self, folder: &Folder) -> io::Result<Option<Folder>> {
        let Some(name) = folder.path().file_name().and_then(|name| name.to_str()) else {
            return Ok(None);
        };
        let aside = Folder(self.0.join(format!("{LEAVING}{name}")));
        match std::fs::rename(folder.path(), aside.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(|()| Some(aside)),
        }
    }

    /// Removes a session whose lock this process holds, once no command runs in it.
    ///
    /// Commands of other processes end within a second. After `limit`, the rest is left for a
    /// sweep.
    pub(crate) fn remove(&self, folder: &Folder, lock: File, limit: Duration) -> io::Result<()> {
        let start = Instant::now();
        let aside = {
            let _held = self.hold()?;
            self.put_aside(folder)?
        };
        let Some(aside) = aside else { return Ok(()) };
        let _lock = lock;
        loop {
            match aside.try_still()? {
                Some(_still) => return aside.remove(),
                None if start.elapsed() < limit => std::thread::sleep(LOCK_LOOK),
                None => return Ok(()),
            }
        }
    }

    /// Removes all sessions that other processes set aside and did not remove.
    pub(crate) fn remove_leaving(&self) -> io::Result<()> {
        let mut first = Ok(());
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            if !entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(LEAVING))
            {
                continue;
            }
            // If it is locked, another process removes it, or a command still runs there.
            let folder = Folder(entry.path());
            if let (Ok(Some(_lock)), Ok(Some(_still))) = (folder.try_lock(), folder.try_still()) {
                first = first.and(folder.remove());
            }
        }
        first
    }

    /// Ends a session that another process may hold. Returns whether the session existed.
    ///
    /// It removes the record, which that process notices within a second, and waits for at most
    /// `limit`. The rest is left for a sweep.
    pub(crate) fn end(&self, folder: &Folder, limit: Duration) -> io::Result<bool> {
        let start = Instant::now();
        let removed = {
            let _held = self.hold()?;
            std::fs::remove_file(folder.record_path())
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        }
        while start.elapsed() < limit {
            match folder.try_lock() {
                // The process that held it has removed it, or is about to.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
                Ok(Some(lock)) => {
                    self.remove(folder, lock, limit.saturating_sub(start.elapsed()))?;
                    break;
                }
                Ok(None) => std::thread::sleep(LOCK_LOOK),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn now() -> Timestamp {
        Timestamp(1_000_000_000_000_000)
    }

    /// Makes a session that is preserved for a day, as a process that is still running.
    fn made(place: &SessionFolder) -> (Folder, File) {
        let make = |id| Record {
            id,
            tenant: "acme".to_owned(),
            user: "ann".to_owned(),
            pack: "test.pack".to_owned(),
            created_at: now(),
            expires_at: now().saturating_add(DAY),
            preserved: true,
            memory: 1,
        };
        let (folder, _, lock) = place
            .create::<io::Error>(now(), None, make, |_| Ok(()), |_| Ok(()))
            .unwrap();
        (folder, lock)
    }

    fn place() -> (tempfile::TempDir, SessionFolder) {
        let top = tempfile::tempdir().unwrap();
        let place = SessionFolder::new(top.path().join("sessions"));
        (top, place)
    }

    fn left(place: &SessionFolder) -> usize {
        std::fs::read_dir(&place.0)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    }

    #[test]
    fn ids_name_their_replica_and_no_other_path() {
        let (_top, place) = place();
        let random = "0123456789abcdef".repeat(2);
        for (id, replica) in [
            (random.clone(), None),
            (format!("deck-1.{random}"), Some("deck-1")),
        ] {
            assert!(
                place
                    .of(&id)
                    .is_some_and(|folder| folder.path().ends_with(&id)),
                "{id}"
            );
            assert_eq!(replica_of(&id), Some(replica));
        }
        for id in ["", ".", "..", "deck-1.", "lock"] {
            assert!(place.of(id).is_none(), "{id}");
        }
        for name in [
            "",
            "..",
            "../x",
            "Deck",
            "a.b",
            ".leaving-a",
            &"a".repeat(41),
        ] {
            assert!(place.of(&format!("{name}.{random}")).is_none(), "{name}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_ends_nothing() {
        let (_top, place) = place();
        let (folder, lock) = made(&place);
        drop(lock);
        let kept = folder.path().join("kept");
        std::fs::rename(folder.record_path(), &kept).unwrap();
        std::fs::create_dir(folder.record_path()).unwrap();
        assert!(folder.read().is_err() && place.records().is_err());
        assert_eq!((place.sweep(now()).unwrap(), left(&place)), (0, 1));
        std::fs::remove_dir(folder.record_path()).unwrap();
        std::fs::rename(kept, folder.record_path()).unwrap();
        assert!(folder.read().unwrap().is_some());
        // A malformed record belongs to no session.
        std::fs::write(folder.record_path(), "").unwrap();
        assert_eq!(place.records().unwrap(), []);
        assert_eq!((place.sweep(now()).unwrap(), left(&place)), (1, 0));
    }

    #[test]
    fn running_command_prevents_removal() {
        let (_top, place) = place();
        let (folder, lock) = made(&place);
        drop(lock);
        let running = folder.running().unwrap().unwrap();
        let (later, inside) = (now().saturating_add(2 * DAY), folder.path().join("file"));
        std::fs::write(&inside, "x").unwrap();
        assert_eq!(place.sweep(later).unwrap(), 0);
        assert!(inside.exists());
        assert!(place.end(&folder, Duration::from_millis(100)).unwrap());
        assert!(folder.running().unwrap().is_none() && folder.read().unwrap().is_none());
        place.remove_leaving().unwrap();
        assert_eq!(left(&place), 1);
        drop(running);
        place.remove_leaving().unwrap();
        assert_eq!(left(&place), 0);
    }

    #[test]
    fn an_ended_session_does_not_come_back() {
        let (_top, place) = place();
        let (folder, _lock) = made(&place);
        let later = now().saturating_add(2 * DAY);
        let extend = |record: &mut Record| record.expires_at = later;
        assert_eq!(
            place.change(&folder, extend).unwrap().unwrap().expires_at,
            later
        );
        // The process that made it still runs, and has not noticed yet.
        assert!(place.end(&folder, Duration::ZERO).unwrap());
        assert!(place.change(&folder, extend).unwrap().is_none() && !folder.record_path().exists());
        assert!(!place.end(&folder, Duration::ZERO).unwrap());
    }

    #[test]
    fn concurrent_ends_of_sessions_all_succeed() {
        let (_top, place) = place();
        for _ in 0..5 {
            let sessions: Vec<_> = (0..8).map(|_| made(&place)).collect();
            for (folder, _) in &sessions {
                (0..50).for_each(|n| {
                    std::fs::create_dir_all(folder.path().join(format!("{n}/a/b"))).unwrap()
                });
            }
            std::thread::scope(|scope| {
                let limit = Duration::from_secs(60);
                let mut all = Vec::new();
                for (folder, lock) in sessions {
                    let place = &place;
                    all.push(scope.spawn(move || place.remove(&folder, lock, limit)));
                    all.push(scope.spawn(move || place.sweep(now()).map(drop)));
                }
                all.into_iter().for_each(|one| one.join().unwrap().unwrap());
            });
            place.remove_leaving().unwrap();
            assert_eq!(left(&place), 0);
        }
    }
}
