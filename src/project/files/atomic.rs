//! Writing a file so that whoever reads it, and whatever ends the process, finds the old bytes or the new ones.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::path::Place;

/// What a file is called until it is whole. Only the holder of the lock writes, so one that is left over is written anew.
pub(super) const UNFINISHED: &str = ".forge-tmp";

/// The steps of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The new file is created beside the old one.
    Create,
    /// Half of it is written.
    Half,
    /// All of it is written.
    Whole,
    /// It is on the disk.
    Flushed,
    /// It has its name.
    Renamed,
}

/// Writes a file: beside the old one, flushed, renamed, and the folder flushed.
pub(super) fn write(place: &Place, bytes: &[u8], mode: Option<u32>) -> std::io::Result<()> {
    let name = unfinished(place, bytes, mode, true)?;
    rustix::fs::renameat(&place.folder, name.as_str(), &place.folder, place.name.as_str())?;
    fault::at(Step::Renamed)?;
    rustix::fs::fsync(&place.folder)?;
    Ok(())
}

/// Writes a file as [`write`] does, without waiting for the disk: readers see the old bytes or the new ones, but after a power failure it
/// may be empty. For copies only.
pub(super) fn write_copy(place: &Place, bytes: &[u8]) -> std::io::Result<()> {
    let name = unfinished(place, bytes, None, false)?;
    rustix::fs::renameat(&place.folder, name.as_str(), &place.folder, place.name.as_str())?;
    Ok(())
}

/// Writes a file unless there is one. Says whether it did.
pub(super) fn create(place: &Place, bytes: &[u8], mode: Option<u32>) -> std::io::Result<bool> {
    if mode_of(place)?.is_some() {
        return Ok(false);
    }
    let name = unfinished(place, bytes, mode, true)?;
    // A link never replaces what somebody else put there meanwhile.
    let made =
        match rustix::fs::linkat(&place.folder, name.as_str(), &place.folder, place.name.as_str(), AtFlags::empty()) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            // The file system knows no links.
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS) if mode_of(place)?.is_none() => {
                rustix::fs::renameat(&place.folder, name.as_str(), &place.folder, place.name.as_str())?;
                true
            }
            Err(error) => return Err(error.into()),
        };
    fault::at(Step::Renamed)?;
    remove_if_there(&place.folder, &name)?;
    rustix::fs::fsync(&place.folder)?;
    Ok(made)
}

fn unfinished(place: &Place, bytes: &[u8], mode: Option<u32>, flush: bool) -> std::io::Result<String> {
    let name = format!(".{}{UNFINISHED}", place.name);
    remove_if_there(&place.folder, &name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file: File = rustix::fs::openat(&place.folder, name.as_str(), flags, Mode::from_raw_mode(0o666))?.into();
    fault::at(Step::Create)?;
    if let Some(mode) = mode.or(mode_of(place)?) {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    fault::at(Step::Half)?;
    file.write_all(rest)?;
    fault::at(Step::Whole)?;
    if flush {
        file.sync_all()?;
    }
    fault::at(Step::Flushed)?;
    Ok(name)
}

/// The permissions of the file that is there.
fn mode_of(place: &Place) -> std::io::Result<Option<u32>> {
    match rustix::fs::statat(&place.folder, place.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
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

#[cfg(not(test))]
mod fault {
    #[allow(clippy::unnecessary_wraps, reason = "the test build fails here")]
    pub(super) const fn at(_: super::Step) -> std::io::Result<()> {
        Ok(())
    }
}

/// Ends a write at a step, as a kill there would: nothing is tidied up.
#[cfg(test)]
pub(super) mod fault {
    use std::cell::Cell;

    use super::Step;

    thread_local! {
        static NEXT: Cell<Option<Step>> = const { Cell::new(None) };
    }

    pub(in crate::files) fn set(step: Option<Step>) {
        NEXT.set(step);
    }

    pub(super) fn at(step: Step) -> std::io::Result<()> {
        if NEXT.get() == Some(step) { Err(std::io::Error::other("killed here")) } else { Ok(()) }
    }
}
