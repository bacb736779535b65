//! Size and removal of a session's folder.
//!
//! Its content was made by untrusted programs: links are never followed, and any depth and any name
//! is expected.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Uid, accessat, chownat,
    fchmod, fstat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// Limit of nesting. Deeper folders count as exceeding the disk limit.
const MAX_DEPTH: usize = 256;

/// Overhead of a file or folder: name, inode, and memory for its removal.
const PER_ENTRY: u64 = 4096;

/// Limit of files and folders, so that checks and removal stay fast.
///
/// More count as exceeding the disk limit.
const MAX_ENTRIES: u64 = 1 << 20;

/// Limit of attempts to make a folder readable that its owner closes again.
///
/// After that it counts as exceeding the disk limit.
const MAX_OPENINGS: u32 = 8;

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a folder, never through a link.
fn open(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, OPEN, Mode::empty())
}

/// A folder that is being measured.
///
/// A closed folder is opened for that time, because its content counts too.
struct Looked {
    dir: Dir,
    /// Its original mode, if it had to be opened.
    shut: Option<Mode>,
}

impl Drop for Looked {
    fn drop(&mut self) {
        let (Some(mode), Ok(fd)) = (self.shut, self.dir.fd()) else {
            return;
        };
        // Restore the mode, unless its owner changed it in the meantime.
        if fstat(fd)
            .is_ok_and(|about| Mode::from_raw_mode(about.st_mode & 0o7777) == mode | Mode::RWXU)
        {
            let _ = fchmod(fd, mode);
        }
    }
}

impl Looked {
    /// Opens a folder for reading, whatever its mode is.
    fn open(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let mut shut = None;
        for _ in 0..MAX_OPENINGS {
            let opened = open(parent, name).and_then(|fd| {
                // Without the right to search, it can be listed, but its entries cannot be read.
                accessat(
                    &fd,
                    c".",
                    Access::READ_OK | Access::EXEC_OK,
                    AtFlags::EACCESS,
                )
                .map(|()| fd)
            });
            match opened {
                Ok(fd) => {
                    return Ok(Self {
                        dir: Dir::new(fd)?,
                        shut,
                    });
                }
                Err(Errno::ACCESS) => {}
                Err(error) => return Err(error.into()),
            }
            let (itself, mode) = named(parent, name)?;
            shut.get_or_insert(mode);
            itself.set_mode(mode | Mode::RWXU)?;
        }
        Err(Errno::ACCESS.into())
    }
}

/// Opens a folder as a path only, never through a link, even if it is unreadable.
struct Itself(OwnedFd);

impl Itself {
    fn set_mode(&self, mode: Mode) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode.as_raw_mode()))
    }
}

/// Returns a folder, never through a link, and its mode.
fn named(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<(Itself, Mode)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&fd)?.st_mode & 0o7777);
    Ok((Itself(fd), mode))
}

/// Returns whether an error means that the folder is gone, or replaced by something else.
fn absent(error: &io::Error) -> bool {
    let kinds = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|number| kinds.contains(&number))
}

/// Returns the size of a folder in bytes on disk. Stops beyond `limit`, or when `stop` is set.
///
/// With `owner`, files that root made there are given to that user, so that commands can change
/// them, except files with further hard links.
///
/// # Errors
/// Those of the system; `Interrupted` if stopped. Files that disappear are skipped; closed folders
/// are opened for the time of the check.
pub(crate) fn usage(
    folder: &Path,
    limit: u64,
    owner: Option<u32>,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let (mut total, mut entries): (u64, u64) = (0, 0);
    let top = CString::new(folder.as_os_str().as_bytes())?;
    let mut looked = vec![Looked::open(CWD, &top)?];
    while let Some(Looked { dir, .. }) = looked.last_mut() {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let entry = match dir.read() {
            Some(Ok(entry)) => entry,
            // The folder itself has been removed.
            None | Some(Err(Errno::NOENT)) => {
                looked.pop();
                continue;
            }
            Some(Err(error)) => return Err(error.into()),
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let fd = dir.fd()?;
        let about = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => about,
            Err(Errno::NOENT) => continue,
            // Its owner makes it unreadable during the check.
            Err(Errno::ACCESS) => return Ok(u64::MAX),
            Err(error) => return Err(error.into()),
        };
        let is_folder = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
        if let Some(user) = owner
            && about.st_uid == 0
            && (is_folder || about.st_nlink == 1)
        {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
            let _ = chownat(fd, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
        let bytes = u64::try_from(about.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        total = total.saturating_add(bytes).saturating_add(PER_ENTRY);
        entries += 1;
        if total > limit {
            return Ok(total);
        }
        if entries > MAX_ENTRIES {
            return Ok(u64::MAX);
        }
        if is_folder {
            match Looked::open(fd, name) {
                Ok(_) if looked.len() >= MAX_DEPTH => return Ok(u64::MAX),
                Ok(inner) => looked.push(inner),
                Err(error) if absent(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(u64::MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(total)
}

/// Gives a file or folder of this process's user to another user.
///
/// # Errors
/// Those of the system.
pub(crate) fn give(path: &Path, user: u32) -> io::Result<()> {
    Ok(chownat(
        CWD,
        path,
        Some(Uid::from_raw(user)),
        Some(Gid::from_raw(user)),
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Removes a folder with its content, of any depth. A missing folder is no error.
///
/// No process may use it any more.
///
/// # Errors
/// Those of the system.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let root = match open(CWD, folder) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut flat = Flat { root, moved: 0 };
    for _ in 0..ROUNDS {
        while flat.empty_root()? {}
        match unlinkat(CWD, folder, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) => {}
            other => return Ok(gone(other)?),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Limit of rounds to empty a folder: another process that removes it too can move entries into it.
const ROUNDS: usize = 1000;

/// A folder that is being removed. Deep entries are moved up, so that at most two folders are open.
struct Flat {
    root: OwnedFd,
    moved: u64,
}

impl Flat {
    /// Removes the current entries of the root. Returns whether there were any, so that there may
    /// be more.
    fn empty_root(&mut self) -> io::Result<bool> {
        let root = self.root.as_fd().try_clone_to_owned()?;
        each(root.as_fd(), |name, is_folder| match is_folder {
            true => self.remove_folder(name),
            false => Ok(gone(unlinkat(&self.root, name, AtFlags::empty()))?),
        })
    }

    fn remove_folder(&mut self, name: &CStr) -> io::Result<()> {
        let Some(folder) = open_for_removal(self.root.as_fd(), name)? else {
            return Ok(());
        };
        // Entries that are made or moved during the read may be missed.
        while each(folder.as_fd(), |inner, is_folder| {
            if !is_folder {
                return Ok(gone(unlinkat(&folder, inner, AtFlags::empty()))?);
            }
            // Moving a folder changes its `..`, so it must be writable.
            drop(open_for_removal(folder.as_fd(), inner)?);
            self.move_up(folder.as_fd(), inner)
        })? {}
        match unlinkat(&self.root, name, AtFlags::REMOVEDIR) {
            // Another process that removes the folder moved an entry into it. The next round finds
            // it.
            Err(Errno::NOTEMPTY) => Ok(()),
            other => Ok(gone(other)?),
        }
    }

    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let free = format!(".moved-{}", self.moved);
            match renameat_with(from, name, &self.root, free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                other => return Ok(gone(other)?),
            }
        }
    }
}

/// Opens a folder and makes it writable, whatever its mode is.
///
/// Returns `None` if another process has removed it.
fn open_for_removal(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let opened = named(parent, name).and_then(|(itself, _)| {
        itself.set_mode(Mode::RWXU)?;
        Ok(open(parent, name)?)
    });
    match opened {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Visits each entry of a folder, and returns whether there was one.
///
/// The folder is read in steps, so that memory does not grow with it.
fn each(
    folder: BorrowedFd<'_>,
    mut with: impl FnMut(&CStr, bool) -> io::Result<()>,
) -> io::Result<bool> {
    let mut any = false;
    let mut dir = match Dir::read_from(folder) {
        Err(Errno::NOENT) => return Ok(false),
        other => other?,
    };
    while let Some(entry) = dir.read() {
        let entry = match entry {
            // The folder itself has been removed.
            Err(Errno::NOENT) => break,
            other => other?,
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Unknown => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => FileType::from_raw_mode(about.st_mode) == FileType::Directory,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            },
            known => known == FileType::Directory,
        };
        any = true;
        with(name, is_folder)?;
    }
    Ok(any)
}

/// Treats an error as success if another process did the same work.
fn gone(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn removal_handles_any_depth_and_mode_without_links() {
        let top = tempfile::tempdir().unwrap();
        let (kept, folder) = (top.path().join("kept"), top.path().join("folder"));
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join("file"), "stays").unwrap();
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&kept, folder.join("link")).unwrap();
        fs::create_dir(folder.join(".moved-1")).unwrap();
        fs::write(
            folder.join(".moved-1/x"),
            "a name that the removal would use",
        )
        .unwrap();
        // Deeper than the longest path, and than the number of file descriptors.
        let mut at = open(CWD, &folder).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "deep", Mode::from_raw_mode(0o700)).unwrap();
            let next = open(at.as_fd(), "deep").unwrap();
            rustix::fs::symlinkat("/", &next, "up").unwrap();
            at = next;
        }
        fs::create_dir(folder.join("shut")).unwrap();
        fs::write(folder.join("shut/x"), "").unwrap();
        fs::set_permissions(folder.join("shut"), fs::Permissions::from_mode(0o000)).unwrap();

        assert_eq!(
            usage(&folder, u64::MAX - 1, None, &GO_ON).unwrap(),
            u64::MAX,
            "too deep counts as too much"
        );
        remove(&folder).unwrap();
        assert!(!folder.exists());
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "stays");
        remove(&folder).unwrap();
    }

    #[test]
    fn usage_counts_disk_blocks_and_follows_no_link() {
        let top = tempfile::tempdir().unwrap();
        let (outside, folder) = (top.path().join("outside"), top.path().join("folder"));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("big"), vec![1; 8 << 20]).unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("a/link")).unwrap();
        fs::write(folder.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        let used = usage(&folder, u64::MAX, None, &GO_ON).unwrap();
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
        assert!(usage(&folder, 4096, None, &GO_ON).unwrap() > 4096);
    }

    #[test]
    fn linked_folder_is_neither_counted_nor_removed() {
        let top = tempfile::tempdir().unwrap();
        let (kept, link) = (top.path().join("kept"), top.path().join("link"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "stays").unwrap();
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        assert!(usage(&link, u64::MAX, None, &GO_ON).is_err() && remove(&link).is_err());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn many_small_files_count_overhead_and_are_removed() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("folder");
        for part in 0..4 {
            let part = folder.join(part.to_string());
            fs::create_dir_all(&part).unwrap();
            (0..2500).for_each(|n| drop(fs::File::create(part.join(n.to_string())).unwrap()));
        }
        let used = usage(&folder, u64::MAX, None, &GO_ON).unwrap();
        assert!(used >= 10_000 * 4096, "{used}");
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn two_that_remove_the_same_folder_both_succeed() {
        let top = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let folder = top.path().join(round.to_string());
            for part in 0..40 {
                fs::create_dir_all(folder.join(format!("{part}/a/b/c"))).unwrap();
                fs::write(folder.join(format!("{part}/a/file")), "x").unwrap();
            }
            std::thread::scope(|scope| {
                let both = [
                    scope.spawn(|| remove(&folder)),
                    scope.spawn(|| remove(&folder)),
                ];
                both.into_iter()
                    .for_each(|one| one.join().unwrap().unwrap());
            });
            assert!(!folder.exists());
        }
    }

    #[test]
    fn closed_folder_is_counted_and_stays_closed() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("folder");
        let at = |name: &str| folder.join(name);
        for name in ["unlisted", "unsearched", "shut"] {
            fs::create_dir_all(at(name).join("inner")).unwrap();
            fs::write(at(name).join("inner/file"), vec![1; 1 << 20]).unwrap();
        }
        let modes = [
            ("unlisted", 0o300),
            ("unsearched", 0o600),
            ("shut", 0o000),
            ("", 0o000),
        ];
        let nobody = 65_534;
        let look = || {
            // Root can read everything. The user is that of this thread only.
            if rustix::process::geteuid().is_root() {
                let (user, group) = (
                    rustix::thread::Uid::from_raw(nobody),
                    rustix::thread::Gid::from_raw(nobody),
                );
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                assert_eq!(
                    fs::read_dir(&folder).unwrap_err().kind(),
                    io::ErrorKind::PermissionDenied
                );
            }
            usage(&folder, u64::MAX, None, &GO_ON)
        };
        if rustix::process::geteuid().is_root() {
            let names = [
                "",
                "unlisted",
                "unlisted/inner",
                "unsearched",
                "unsearched/inner",
                "shut",
                "shut/inner",
            ];
            names
                .iter()
                .for_each(|name| give(&at(name), nobody).unwrap());
            give(top.path(), nobody).unwrap();
        }
        for (name, mode) in modes {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let used = std::thread::scope(|scope| scope.spawn(look).join().unwrap()).unwrap();
        assert!((3 << 20..4 << 20).contains(&used), "{used}");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        for (name, mode) in &modes[..3] {
            assert_eq!(
                fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777,
                *mode,
                "{name}"
            );
        }
    }

    #[test]
    fn a_look_that_is_stopped_says_so() {
        let top = tempfile::tempdir().unwrap();
        let stopped = usage(top.path(), u64::MAX, None, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
