//! Atomic writes: readers see the old bytes or the new ones, even after a crash.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::path::FileLocation;

/// Name of an unfinished file.
///
/// Only the holder of the lock writes, so a leftover one is overwritten.
pub(super) const UNFINISHED: &str = ".forge-tmp";

/// Steps of a file operation, at which a test injects a failure or kills the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The new file is created beside the old one, or a file is opened to add to it.
    Create,
    /// Half of it is written.
    #[cfg(test)]
    Half,
    /// All of it is written.
    Whole,
    /// It is on the disk.
    Flushed,
    /// It has its name, or has lost it.
    Named,
    /// The folder is on the disk.
    Folder,
}

/// Writes a file: beside the old one, flushed, renamed, and the folder flushed.
pub(super) fn write(place: &FileLocation, bytes: &[u8], mode: Option<u32>) -> std::io::Result<()> {
    let name = unfinished(place, bytes, mode, true)?;
    rename(&place.folder, &name, place)?;
    sync(&place.folder)
}

/// Writes a file as [`write`] does, without waiting for the disk. For copies only.
///
/// Readers see the old bytes or the new ones, but after a power failure the file may be empty.
pub(super) fn write_copy(place: &FileLocation, bytes: &[u8]) -> std::io::Result<()> {
    let name = unfinished(place, bytes, None, false)?;
    rename(&place.folder, &name, place)
}

/// Writes a file unless it exists. Returns whether it was written.
pub(super) fn create(
    place: &FileLocation,
    bytes: &[u8],
    mode: Option<u32>,
) -> std::io::Result<bool> {
    if mode_of(place)?.is_some() {
        return Ok(false);
    }
    let name = unfinished(place, bytes, mode, true)?;
    // A link never replaces a file that another process created meanwhile.
    let linked = rustix::fs::linkat(
        &place.folder,
        name.as_str(),
        &place.folder,
        place.name.as_str(),
        AtFlags::empty(),
    );
    let made = match linked {
        Ok(()) => fault::at(Step::Named).map(|()| true),
        Err(Errno::EXIST) => Ok(false),
        // The file system has no hard links.
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS) if mode_of(place)?.is_none() => {
            return rename(&place.folder, &name, place)
                .and_then(|()| sync(&place.folder))
                .map(|()| true);
        }
        Err(error) => Err(error.into()),
    };
    tidy(&place.folder, &name);
    let made = made?;
    sync(&place.folder)?;
    Ok(made)
}

/// Appends a line to a file, which is created if it is absent.
///
/// If not all bytes can be written, none stay.
pub(super) fn append(place: &FileLocation, line: &str) -> std::io::Result<()> {
    let new = mode_of(place)?.is_none();
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(
        &place.folder,
        place.name.as_str(),
        flags,
        Mode::from_raw_mode(0o666),
    )?;
    let mut file: File = file.into();
    let length = file.metadata()?.len();
    let added = fault::at(Step::Create).and_then(|()| add(&mut file, length, line));
    if added.is_err() && fault::alive() {
        // A full disk takes only a part of the line.
        if new {
            let _ = remove_if_there(&place.folder, &place.name);
        } else {
            let _ = file.set_len(length);
        }
    }
    added?;
    if new { sync(&place.folder) } else { Ok(()) }
}

fn add(file: &mut File, length: u64, line: &str) -> std::io::Result<()> {
    let mut last = [b'\n'];
    if length > 0 {
        std::os::unix::fs::FileExt::read_exact_at(file, &mut last, length - 1)?;
    }
    let torn = if last == *b"\n" { "" } else { "\n" };
    let text = format!("{torn}{line}\n");
    fault::half(file, text.as_bytes())?;
    file.write_all(text.as_bytes())?;
    fault::at(Step::Whole)?;
    file.sync_data()?;
    fault::at(Step::Flushed)
}

/// Renames a file to a location. A file that is there is replaced.
pub(super) fn rename(folder: &OwnedFd, name: &str, to: &FileLocation) -> std::io::Result<()> {
    let renamed = rustix::fs::renameat(folder, name, &to.folder, to.name.as_str());
    if renamed.is_err() && name.ends_with(UNFINISHED) {
        tidy(folder, name);
    }
    renamed?;
    fault::at(Step::Named)
}

/// Gives a file a second name, which must be free.
pub(super) fn link(from: &FileLocation, to: &FileLocation) -> std::io::Result<()> {
    let none = AtFlags::empty();
    rustix::fs::linkat(
        &from.folder,
        from.name.as_str(),
        &to.folder,
        to.name.as_str(),
        none,
    )?;
    fault::at(Step::Named)?;
    sync(&to.folder)
}

/// Removes a file. Returns whether it existed.
pub(super) fn remove(place: &FileLocation) -> std::io::Result<bool> {
    if !remove_if_there(&place.folder, &place.name)? {
        return Ok(false);
    }
    fault::at(Step::Named)?;
    sync(&place.folder)?;
    Ok(true)
}

/// Waits until the disk has what a folder holds.
pub(super) fn sync(folder: &OwnedFd) -> std::io::Result<()> {
    rustix::fs::fsync(folder)?;
    fault::at(Step::Folder)
}

fn unfinished(
    place: &FileLocation,
    bytes: &[u8],
    mode: Option<u32>,
    flush: bool,
) -> std::io::Result<String> {
    let name = format!(".{}{UNFINISHED}", place.name);
    remove_if_there(&place.folder, &name)?;
    let written = fill(place, &name, bytes, mode, flush);
    if written.is_err() {
        // An unfinished file takes disk space.
        tidy(&place.folder, &name);
    }
    written.map(|()| name)
}

fn fill(
    place: &FileLocation,
    name: &str,
    bytes: &[u8],
    mode: Option<u32>,
    flush: bool,
) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file: File =
        rustix::fs::openat(&place.folder, name, flags, Mode::from_raw_mode(0o666))?.into();
    fault::at(Step::Create)?;
    if let Some(mode) = mode.or(mode_of(place)?) {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    fault::half(&mut file, bytes)?;
    file.write_all(bytes)?;
    fault::at(Step::Whole)?;
    if flush {
        file.sync_all()?;
    }
    fault::at(Step::Flushed)
}

/// Removes an unfinished file. If this fails, the next write removes it.
fn tidy(folder: &OwnedFd, name: &str) {
    if fault::alive() {
        let _ = remove_if_there(folder, name);
    }
}

/// The permissions of the file that is there.
fn mode_of(place: &FileLocation) -> std::io::Result<Option<u32>> {
    match rustix::fs::statat(
        &place.folder,
        place.name.as_str(),
        AtFlags::SYMLINK_NOFOLLOW,
    ) {
        Ok(stat) => Ok(Some(stat.st_mode & 0o777)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn remove_if_there(folder: &OwnedFd, name: &str) -> std::io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Kills this process between two file operations, for tests in other processes.
#[cfg(feature = "testing")]
pub mod kill {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Makes this process die after so many more files were written or removed, and one.
    pub fn after(files: usize) {
        LEFT.store(files, Ordering::SeqCst);
    }

    #[cfg(not(test))]
    pub(super) fn reach() {
        match LEFT.load(Ordering::SeqCst) {
            // No destructor runs, as with kill -9.
            0 => std::process::abort(),
            usize::MAX => {}
            left => LEFT.store(left - 1, Ordering::SeqCst),
        }
    }
}

#[cfg(not(test))]
mod fault {
    use std::fs::File;

    #[cfg(not(feature = "testing"))]
    #[allow(clippy::unnecessary_wraps, reason = "the test build fails here")]
    pub(super) const fn at(_: super::Step) -> std::io::Result<()> {
        Ok(())
    }

    #[cfg(feature = "testing")]
    #[allow(clippy::unnecessary_wraps, reason = "the test build fails here")]
    pub(super) fn at(step: super::Step) -> std::io::Result<()> {
        if step == super::Step::Named {
            super::kill::reach();
        }
        Ok(())
    }

    #[allow(clippy::unnecessary_wraps, reason = "the test build fails here")]
    pub(super) const fn half(_: &mut File, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) const fn alive() -> bool {
        true
    }
}

/// Lets a step fail, or ends all that is done from there on, as a kill would: nothing is tidied up.
#[cfg(test)]
pub(super) mod fault {
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Write as _;

    use rustix::io::Errno;

    use super::Step;

    /// What happens at a step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::files) enum Failure {
        /// The process ends.
        Killed,
        /// The disk is full.
        NoSpace,
        /// The disk is broken.
        Disk,
    }

    thread_local! {
        static NEXT: Cell<Option<(Step, Failure)>> = const { Cell::new(None) };
        static DEAD: Cell<bool> = const { Cell::new(false) };
    }

    pub(in crate::files) fn set(next: Option<(Step, Failure)>) {
        NEXT.set(next);
        DEAD.set(false);
    }

    /// Whether the injected fault is still pending.
    pub(in crate::files) fn pending() -> bool {
        NEXT.get().is_some()
    }

    pub(super) fn alive() -> bool {
        !DEAD.get()
    }

    pub(super) fn at(step: Step) -> std::io::Result<()> {
        let error = match NEXT.get() {
            _ if DEAD.get() => return Err(std::io::Error::other("killed before")),
            Some((next, failure)) if next == step => {
                NEXT.set(None);
                DEAD.set(failure == Failure::Killed);
                match failure {
                    Failure::Killed => return Err(std::io::Error::other("killed here")),
                    Failure::NoSpace => Errno::NOSPC,
                    Failure::Disk => Errno::IO,
                }
            }
            _ => return Ok(()),
        };
        Err(error.into())
    }

    /// Writes half of it if it is to end there.
    pub(super) fn half(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
        if NEXT.get().is_some_and(|(step, _)| step == Step::Half) {
            file.write_all(&bytes[..bytes.len() / 2])?;
        }
        at(Step::Half)
    }
}
