//! Read-only file access.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// Anything else: a pipe, a socket, a device.
    Other,
}

/// Metadata of a file, known without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileInfo {
    /// Kind.
    pub kind: Kind,
    /// Whether it belongs to another user than that of this process.
    ///
    /// git makes the same check before it trusts a repository.
    pub foreign: bool,
    /// Size in bytes; meaningful for files only.
    pub size: u64,
}

/// The start of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The bytes that were read.
    pub bytes: Vec<u8>,
    /// Whether they are all there are.
    pub whole: bool,
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name.
    pub name: OsString,
    /// Whether it is a folder; a link to a folder is not.
    pub folder: bool,
}

/// Read-only access to files. Each call reads only up to its limit.
///
/// A missing file is `None`; one that exists and cannot be read is an error.
pub trait Look: std::fmt::Debug + Send + Sync {
    /// Returns the metadata at a path. A link at its end is not followed.
    ///
    /// # Errors
    /// The system's error.
    fn about(&self, path: &Path) -> io::Result<Option<FileInfo>>;

    /// Returns the metadata behind a path, following links. A broken link is `None`.
    ///
    /// # Errors
    /// The system's error.
    fn behind(&self, path: &Path) -> io::Result<Option<FileInfo>>;

    /// Reads the first bytes of a regular file, at most `most`. Links are followed.
    ///
    /// # Errors
    /// What the system says; an error for what is no regular file.
    fn read(&self, path: &Path, most: usize) -> io::Result<Option<Contents>>;

    /// Reads the first bytes of a regular file below a folder, at most `most`.
    ///
    /// The folder itself may be a link, and so may the path from it to the file, as long as it
    /// leads nowhere outside.
    ///
    /// # Errors
    /// As [`Self::read`]; an error for a file outside of the folder.
    fn read_within(&self, folder: &Path, path: &Path, most: usize) -> io::Result<Option<Contents>>;

    /// Reads a whole file at a relative path below a folder.
    ///
    /// Links are followed only as long as they stay below it.
    ///
    /// # Errors
    /// The system's error; an error for a file that is larger than `most` bytes, that is no regular
    /// file, or that a link leads outside.
    fn read_below(&self, folder: &Path, path: &str, most: usize) -> io::Result<Option<Vec<u8>>>;

    /// Lists the entries of a folder, by name.
    ///
    /// # Errors
    /// The system's error; an error for a folder with more than `most` entries.
    fn list(&self, folder: &Path, most: usize) -> io::Result<Option<Vec<DirEntry>>>;

    /// Returns a path without links, `.` and `..`, if something exists there.
    fn real(&self, path: &Path) -> Option<PathBuf>;

    /// Returns whether links lead a path that begins in a folder out of it. A missing path leads
    /// nowhere.
    fn leads_out(&self, folder: &Path, path: &Path) -> bool {
        self.real(path).is_some_and(|path| {
            self.real(folder)
                .is_none_or(|folder| !path.starts_with(folder))
        })
    }
}

/// Access to the files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Look for Disk {
    fn about(&self, path: &Path) -> io::Result<Option<FileInfo>> {
        or_absent(path.symlink_metadata()).map(|about| about.as_ref().map(describe))
    }

    fn behind(&self, path: &Path) -> io::Result<Option<FileInfo>> {
        or_absent(path.metadata()).map(|about| about.as_ref().map(describe))
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Option<Contents>> {
        // To open a pipe wakes the process at its other end, and opening some devices has effects.
        // So the kind is checked first.
        match or_absent(path.metadata())? {
            None => return Ok(None),
            Some(about) if !about.is_file() => return Err(no_file()),
            Some(_) => {}
        }
        let file = or_absent(rustix::fs::open(path, OPEN, Mode::empty()).map_err(io::Error::from))?;
        file.map(|file| begin(file, most)).transpose()
    }

    fn read_within(&self, folder: &Path, path: &Path, most: usize) -> io::Result<Option<Contents>> {
        let (Some(root), Some(real)) = (
            or_absent(folder.canonicalize())?,
            or_absent(path.canonicalize())?,
        ) else {
            return Ok(None);
        };
        let out = || io::Error::other(format!("a link leads out of {}", folder.display()));
        let below = real.strip_prefix(&root).map_err(|_| out())?;
        let (Some(way), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(no_file());
        };
        // No link is left in it. One that is there all the same came just now, and is not followed.
        let step = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || {
            let mut here = rustix::fs::open(&root, step, Mode::empty())?;
            for part in way {
                here = rustix::fs::openat(&here, part, step, Mode::empty())?;
            }
            let about = rustix::fs::statat(&here, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(about.st_mode) {
                FileType::RegularFile => {
                    rustix::fs::openat(&here, name, OPEN | OFlags::NOFOLLOW, Mode::empty())
                }
                _ => Err(rustix::io::Errno::ISDIR),
            }
        };
        match open() {
            Err(rustix::io::Errno::ISDIR) => Err(no_file()),
            opened => or_absent(opened.map_err(io::Error::from))?
                .map(|file| begin(file, most))
                .transpose(),
        }
    }

    fn read_below(&self, folder: &Path, path: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
        helmdeck_forge_files::files::read_below(folder, path, most as u64)
            .map_err(|error| io::Error::other(error.message))
    }

    fn list(&self, folder: &Path, most: usize) -> io::Result<Option<Vec<DirEntry>>> {
        let Some(read) = or_absent(std::fs::read_dir(folder))? else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        for entry in read {
            let entry = entry?;
            if entries.len() == most {
                return Err(io::Error::other(format!(
                    "it holds more than {most} entries"
                )));
            }
            entries.push(DirEntry {
                name: entry.file_name(),
                folder: entry.file_type()?.is_dir(),
            });
        }
        entries.sort_unstable();
        Ok(Some(entries))
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok()
    }
}

/// Flags for opening a file. A file that became a pipe since the check must not block any caller.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

fn no_file() -> io::Error {
    io::Error::other("it is no file")
}

/// Reads the start of an open file.
fn begin(file: OwnedFd, most: usize) -> io::Result<Contents> {
    let file = File::from(file);
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(no_file());
    }
    let room = usize::try_from(about.len())
        .unwrap_or(usize::MAX)
        .min(most)
        .saturating_add(1);
    let mut bytes = Vec::with_capacity(room);
    file.take((most as u64).saturating_add(1))
        .read_to_end(&mut bytes)?;
    let whole = bytes.len() <= most;
    bytes.truncate(most);
    Ok(Contents { bytes, whole })
}

/// Maps a "not found" error to `None`.
fn or_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn describe(about: &Metadata) -> FileInfo {
    let is = about.file_type();
    let kind = match () {
        () if is.is_file() => Kind::File,
        () if is.is_dir() => Kind::Folder,
        () if is.is_symlink() => Kind::Link,
        () => Kind::Other,
    };
    FileInfo {
        kind,
        foreign: about.uid() != rustix::process::geteuid().as_raw(),
        size: about.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_none_and_what_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        assert!(Disk.read(&at("absent"), 9).unwrap().is_none());
        assert!(Disk.read(&at("file/below"), 9).unwrap().is_none());
        assert!(Disk.about(&at("absent/below")).unwrap().is_none());
        assert_eq!(
            Disk.about(&at("dangling")).unwrap().unwrap().kind,
            Kind::Link
        );
        assert!(Disk.behind(&at("dangling")).unwrap().is_none());
        let behind = Disk.behind(&at("link")).unwrap().unwrap();
        assert_eq!((behind.kind, behind.size), (Kind::File, 4));
        assert!(Disk.read(folder.path(), 9).is_err());
        assert!(Disk.read(&at("loop"), 9).is_err());
        assert!(Disk.list(&at("absent"), 9).unwrap().is_none());
    }

    #[test]
    fn only_as_much_is_read_as_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(
            Disk.read(&file, 5).unwrap().unwrap(),
            Contents {
                bytes: b"12345".to_vec(),
                whole: true
            }
        );
        assert_eq!(
            Disk.read(&file, 4).unwrap().unwrap(),
            Contents {
                bytes: b"1234".to_vec(),
                whole: false
            }
        );
        assert_eq!(
            Disk.read_below(folder.path(), "a", 5).unwrap().unwrap(),
            b"12345"
        );
        assert!(Disk.read_below(folder.path(), "a", 4).is_err());
        std::fs::write(folder.path().join("b"), "").unwrap();
        assert!(Disk.list(folder.path(), 1).is_err());
        let names: Vec<_> = Disk
            .list(folder.path(), 2)
            .unwrap()
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_pipe_makes_nobody_wait_and_wakes_nobody() {
        use std::os::unix::fs::OpenOptionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        std::os::unix::fs::symlink("pipe", folder.path().join("link")).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let woken = std::thread::scope(|scope| {
            // A writer that would write whenever the pipe is open at its other end, however
            // shortly.
            let writer = scope.spawn(|| {
                let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
                let mut woken = false;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    woken |= std::fs::OpenOptions::new()
                        .write(true)
                        .custom_flags(flags)
                        .open(&pipe)
                        .is_ok();
                }
                woken
            });
            for _ in 0..2_000 {
                for name in ["pipe", "link"] {
                    assert!(Disk.read(&folder.path().join(name), 9).is_err());
                    assert!(
                        Disk.read_within(folder.path(), &folder.path().join(name), 9)
                            .is_err()
                    );
                    assert!(Disk.read_below(folder.path(), name, 9).is_err());
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert!(!woken, "the pipe was opened");
    }

    #[test]
    fn below_a_folder_no_link_leads_out() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("../secret", inner.join("a")).unwrap();
        assert!(Disk.read_below(&inner, "a", 9).is_err());
        assert!(Disk.read_below(&inner, "../secret", 9).is_err());
        assert_eq!(Disk.read(&inner.join("a"), 9).unwrap().unwrap().bytes, b"s");
    }

    #[test]
    fn within_a_folder_links_lead_anywhere_but_out() {
        let outer = tempfile::tempdir().unwrap();
        let at = |path: &str| outer.path().join(path);
        std::fs::create_dir_all(at("inner/deep")).unwrap();
        std::fs::write(at("secret"), "s").unwrap();
        std::fs::write(at("inner/deep/file"), "12345").unwrap();
        std::fs::create_dir(at("inner-too")).unwrap();
        std::fs::write(at("inner-too/file"), "s").unwrap();
        let link =
            |target: &Path, path: &str| std::os::unix::fs::symlink(target, at(path)).unwrap();
        link(Path::new("inner"), "root");
        link(Path::new("deep"), "inner/folder");
        link(&at("inner/deep/file"), "inner/whole");
        link(Path::new("../secret"), "inner/out");
        link(&at("inner-too"), "inner/beside");
        link(Path::new("../.."), "inner/deep/up");
        link(Path::new("nowhere"), "inner/dangling");
        for root in ["inner", "root"] {
            let read = |path: &str, most| Disk.read_within(&at(root), &at(root).join(path), most);
            for path in [
                "deep/file",
                "folder/file",
                "whole",
                "deep/../deep/file",
                "deep/up/root/deep/file",
            ] {
                assert_eq!(
                    read(path, 5).unwrap().unwrap(),
                    Contents {
                        bytes: b"12345".to_vec(),
                        whole: true
                    },
                    "{path}"
                );
                assert!(!Disk.leads_out(&at(root), &at(root).join(path)), "{path}");
            }
            assert_eq!(
                read("whole", 4).unwrap().unwrap(),
                Contents {
                    bytes: b"1234".to_vec(),
                    whole: false
                }
            );
            for path in ["out", "beside/file", "deep/up/secret", "../secret"] {
                let why = read(path, 9).unwrap_err().to_string();
                assert!(why.starts_with("a link leads out of "), "{path}: {why}");
                assert!(Disk.leads_out(&at(root), &at(root).join(path)), "{path}");
            }
            for path in ["", "deep", "folder"] {
                assert_eq!(
                    read(path, 9).unwrap_err().to_string(),
                    "it is no file",
                    "{path}"
                );
            }
            for path in ["absent", "dangling", "deep/file/below"] {
                assert_eq!(read(path, 9).unwrap(), None, "{path}");
                assert!(!Disk.leads_out(&at(root), &at(root).join(path)), "{path}");
            }
        }
    }
}
