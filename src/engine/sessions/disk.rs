//! How much a session's folder holds, and its removal. What stands in it was made by programs that nobody trusts: no link is
//! ever followed, no depth and no name is taken for granted.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Uid, chownat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// The deepest nesting of folders; deeper counts as more than a session may hold.
const MAX_DEPTH: usize = 256;

/// What a file or folder takes besides its content.
const PER_ENTRY: u64 = 512;

/// Opens a folder, never through a link.
fn open(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Adds up what a folder holds, in bytes on the disk, and stops beyond `limit`. With `owner`, what root made in it from outside is
/// given to that user, so that commands can change it; a file that has another name elsewhere is not.
///
/// # Errors
/// Of the system, for the folder itself. What disappears or cannot be read in it is passed over.
pub(crate) fn usage(folder: &Path, limit: u64, owner: Option<u32>) -> io::Result<u64> {
    let mut total: u64 = 0;
    let mut open_folders = vec![Dir::new(open(CWD, folder)?)?];
    while let Some(dir) = open_folders.last_mut() {
        let Some(entry) = dir.read() else {
            open_folders.pop();
            continue;
        };
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let fd = dir.fd()?;
        let Ok(about) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_folder = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
        if let Some(user) = owner
            && about.st_uid == 0
            && (is_folder || about.st_nlink == 1)
        {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
            let _ = chownat(fd, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
        let bytes = u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(512);
        total = total.saturating_add(bytes).saturating_add(PER_ENTRY);
        if total > limit {
            return Ok(total);
        }
        if is_folder && let Ok(inner) = open(fd, name) {
            if open_folders.len() >= MAX_DEPTH {
                return Ok(u64::MAX);
            }
            open_folders.push(Dir::new(inner)?);
        }
    }
    Ok(total)
}

/// Gives a file or folder of ours to a user.
///
/// # Errors
/// Of the system.
pub(crate) fn give(path: &Path, user: u32) -> io::Result<()> {
    Ok(chownat(CWD, path, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Removes a folder with everything in it, however deep. One that is not there is removed already.
///
/// Nothing may run in it any more.
///
/// # Errors
/// Of the system.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let root = match open(CWD, folder) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut flat = Flat { root, moved: 0 };
    loop {
        let entries = list(flat.root.as_fd())?;
        if entries.is_empty() {
            break;
        }
        for (name, is_folder) in entries {
            if is_folder {
                flat.remove_folder(&name)?;
            } else {
                gone(unlinkat(&flat.root, &name, AtFlags::empty()))?;
            }
        }
    }
    Ok(gone(unlinkat(CWD, folder, AtFlags::REMOVEDIR))?)
}

/// A folder that is being removed: what is deep in it is moved up, so that two folders are open at most.
struct Flat {
    root: OwnedFd,
    moved: u64,
}

impl Flat {
    fn remove_folder(&mut self, name: &CString) -> io::Result<()> {
        let folder = open_for_removal(self.root.as_fd(), name)?;
        for (inner, is_folder) in list(folder.as_fd())? {
            if is_folder {
                // Moving a folder changes it (its `..`), so it must be ours to change.
                drop(open_for_removal(folder.as_fd(), &inner)?);
                self.move_up(folder.as_fd(), &inner)?;
            } else {
                gone(unlinkat(&folder, &inner, AtFlags::empty()))?;
            }
        }
        Ok(gone(unlinkat(&self.root, name, AtFlags::REMOVEDIR))?)
    }

    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CString) -> io::Result<()> {
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

/// Opens a folder and makes it ours to change, whatever its mode forbids.
fn open_for_removal(parent: BorrowedFd<'_>, name: &CString) -> io::Result<OwnedFd> {
    let place =
        openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // The descriptor names the folder itself, so no link can be put in its place.
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    std::fs::set_permissions(itself, std::fs::Permissions::from_mode(0o700))?;
    Ok(open(parent, name)?)
}

fn list(folder: BorrowedFd<'_>) -> io::Result<Vec<(CString, bool)>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Unknown => {
                let about = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(about.st_mode) == FileType::Directory
            }
            known => known == FileType::Directory,
        };
        entries.push((name.to_owned(), is_folder));
    }
    Ok(entries)
}

/// Takes it for done if somebody else did it.
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

    #[test]
    fn what_is_removed_is_removed_whatever_its_depth_and_mode_and_no_link_is_followed() {
        let top = tempfile::tempdir().unwrap();
        let (kept, folder) = (top.path().join("kept"), top.path().join("folder"));
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join("file"), "stays").unwrap();
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&kept, folder.join("link")).unwrap();
        fs::create_dir(folder.join(".moved-1")).unwrap();
        fs::write(folder.join(".moved-1/x"), "a name that the removal would use").unwrap();
        // Deeper than a path can be long, and than there are file descriptors.
        let mut at = open(CWD, &folder).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "deep", Mode::from_raw_mode(0o700)).unwrap();
            let next = open(at.as_fd(), "deep").unwrap();
            rustix::fs::symlinkat("/", &next, "up").unwrap();
            at = next;
        }
        fs::create_dir(folder.join("shut")).unwrap();
        fs::write(folder.join("shut/x"), "").unwrap();
        fs::set_permissions(folder.join("shut"), fs::Permissions::from_mode(0)).unwrap();

        assert_eq!(usage(&folder, u64::MAX - 1, None).unwrap(), u64::MAX, "too deep counts as too much");
        remove(&folder).unwrap();
        assert!(!folder.exists());
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "stays");
        remove(&folder).unwrap();
    }

    #[test]
    fn usage_counts_what_is_on_the_disk_and_follows_no_link() {
        let top = tempfile::tempdir().unwrap();
        let (outside, folder) = (top.path().join("outside"), top.path().join("folder"));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("big"), vec![1; 8 << 20]).unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("a/link")).unwrap();
        fs::write(folder.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        let used = usage(&folder, u64::MAX, None).unwrap();
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
        assert!(usage(&folder, 4096, None).unwrap() > 4096);
    }

    #[test]
    fn a_folder_that_is_a_link_is_neither_counted_nor_removed() {
        let top = tempfile::tempdir().unwrap();
        let (kept, link) = (top.path().join("kept"), top.path().join("link"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "stays").unwrap();
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        assert!(usage(&link, u64::MAX, None).is_err() && remove(&link).is_err());
        assert!(kept.join("file").exists());
    }
}
