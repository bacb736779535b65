//! A file system for the folder of one session: an ext4 image of the size of the disk limit, beside
//! the folder.
//!
//! It is mounted where helmdeck runs as root, so that helmdeck reads and writes the folder like any
//! other. Whatever a command does to hold room, the image has no more: files without a name, in
//! flight between two sockets, or mapped.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use helmdeck_process::Capture;
use helmdeck_process::blocking::{self, Options, Output};
use rustix::fs::{Access, access, statfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use super::disk;

/// Name of the image in a session.
const IMAGE: &str = "image";
/// Search path of the programs that make and mount an image.
const PLACES: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// Smallest image, in bytes: a file system needs room for itself.
const LEAST: u64 = 8 << 20;
/// Time limit of the programs that make and mount an image.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes that are kept of what they say last.
const MAX_SAID: usize = 4096;
/// Number of `CAP_SYS_ADMIN`, which mounting needs (`capabilities(7)`).
const SYS_ADMIN: u32 = 21;

/// The programs that make and mount images.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    mkfs: PathBuf,
    mount: PathBuf,
}

impl Images {
    /// Finds out whether images can be had. Changes nothing.
    ///
    /// # Errors
    /// Why not, for operators.
    pub(crate) fn find() -> Result<Self, String> {
        if !geteuid().is_root() {
            return Err("only root can mount one".to_owned());
        }
        if !has_capability() {
            return Err("helmdeck has no right to mount one (CAP_SYS_ADMIN)".to_owned());
        }
        let control = "/dev/loop-control";
        if access(control, Access::READ_OK | Access::WRITE_OK).is_err() {
            return Err(format!("{control} cannot be opened"));
        }
        let find = |name: &str, package: &str| {
            helmdeck_process::find(name, PLACES)
                .ok_or_else(|| format!("{name} is not installed (package {package})"))
        };
        Ok(Self {
            mkfs: find("mkfs.ext4", "e2fsprogs")?,
            mount: find("mount", "mount")?,
        })
    }

    /// Makes an image in a session, and mounts it over a folder there, which `owner` then owns.
    ///
    /// # Errors
    /// Those of the system, with what the programs say.
    pub(crate) fn make(
        &self,
        session: &Path,
        folder: &Path,
        size: u64,
        owner: u32,
    ) -> io::Result<()> {
        let image = session.join(IMAGE);
        // Without content: it takes room only for what is written.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&image)?;
        file.set_len(size.max(LEAST))?;
        drop(file);
        let options = format!("lazy_itable_init=1,nodiscard,root_owner={owner}:{owner}");
        // It never outlives the machine's run, so it needs no journal, and root needs no reserve.
        run(Command::new(&self.mkfs)
            .args([
                "-q",
                "-F",
                "-m",
                "0",
                "-b",
                "4096",
                "-i",
                "8192",
                "-O",
                "^has_journal",
                "-E",
                &options,
            ])
            .arg(&image))?;
        self.mount(&image, folder)?;
        // The folder of `fsck`. A program that wants an empty folder should find one.
        match std::fs::remove_dir(folder.join("lost+found")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        disk::give(folder, owner)
    }

    fn mount(&self, image: &Path, folder: &Path) -> io::Result<()> {
        let options = "loop,nosuid,nodev,noatime,discard,noinit_itable";
        run(Command::new(&self.mount)
            .args(["-t", "ext4", "-o", options])
            .arg(image)
            .arg(folder))
    }
}

/// Mounts the image of a session over its folder, if it has one that is not mounted here: its
/// mounts went with a container, or with the machine.
///
/// # Errors
/// Why it cannot be mounted, for callers.
pub(crate) fn remount(session: &Path, folder: &Path) -> Result<(), String> {
    let image = session.join(IMAGE);
    if !image.exists() || is_own(session, folder) {
        return Ok(());
    }
    let refused =
        |why: &str| format!("the file system of the session is not mounted here, and {why}");
    match is_clean(&image) {
        Ok(true) => {}
        // It is marked as clean when it is unmounted, not before.
        Ok(false) => {
            return Err(refused(
                "it was not unmounted: the machine lost power, or another process uses it among mounts of its own; end \
                 the session, or ask the operator to stop that process, or to run e2fsck on its image",
            ));
        }
        Err(error) => return Err(refused(&error.to_string())),
    }
    let images = Images::find().map_err(|why| refused(&why))?;
    images
        .mount(&image, folder)
        .map_err(|error| refused(&error.to_string()))
}

/// Returns whether an image was unmounted in good order, and is mounted nowhere.
///
/// The state of the file system is a field of its superblock, `s_state`: documentation of the
/// kernel, `filesystems/ext4/super`. Without a journal, a mount that writes clears it.
fn is_clean(image: &Path) -> io::Result<bool> {
    let mut state = [0; 2];
    std::fs::File::open(image)?.read_exact_at(&mut state, 1024 + 0x3A)?;
    Ok(u16::from_le_bytes(state) & 1 == 1)
}

/// Returns whether a folder is a file system of its own.
pub(crate) fn is_own(above: &Path, folder: &Path) -> bool {
    let device = |path: &Path| {
        std::fs::symlink_metadata(path)
            .map(|about| about.dev())
            .ok()
    };
    device(folder).is_some_and(|inner| device(above).is_some_and(|outer| inner != outer))
}

/// Returns whether a folder is on a volume that shares its room with others, although it looks like
/// one of its own: a subvolume of btrfs.
pub(crate) fn shares_room(folder: &Path) -> bool {
    const BTRFS: i128 = 0x9123_683E;
    statfs(folder).is_ok_and(|about| i128::from(about.f_type) == BTRFS)
}

/// Unmounts the folder of a session, if it is a file system of its own.
///
/// # Errors
/// Those of the system.
pub(crate) fn release(session: &Path, folder: &Path) -> io::Result<()> {
    if !is_own(session, folder) {
        return Ok(());
    }
    match unmount(folder, UnmountFlags::NOFOLLOW) {
        // This process still has a file of it open. Its room is free once that is closed.
        Err(Errno::BUSY) => Ok(unmount(
            folder,
            UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        )?),
        other => Ok(other?),
    }
}

/// Removes what a failed [`Images::make`] left.
///
/// # Errors
/// Those of the system.
pub(crate) fn unmake(session: &Path, folder: &Path) -> io::Result<()> {
    release(session, folder)?;
    match std::fs::remove_file(session.join(IMAGE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .env_clear()
        .env("PATH", PLACES)
        .env("LANG", "C.UTF-8")
        .current_dir("/");
    let options = Options {
        stdin: b"",
        output: Output::Separate {
            stdout: Capture::tail(0),
            stderr: Capture::tail(MAX_SAID),
        },
        timeout: LIMIT,
        kill_leftovers: true,
        running: None,
        tick: LIMIT,
    };
    let finished = blocking::run(command, options, &mut || ()).map_err(io::Error::other)?;
    if finished.status.success() {
        return Ok(());
    }
    let said = finished.stderr.into_text();
    Err(io::Error::other(format!(
        "{name}: {}",
        said.trim().lines().next_back().unwrap_or("it failed")
    )))
}

fn has_capability() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> SYS_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use helmdeck_core::waiting::wait_for;

    use super::*;

    #[test]
    fn image_holds_no_more_than_its_size() {
        let top = tempfile::tempdir().unwrap();
        let images = match Images::find() {
            Ok(images) => images,
            Err(reason) => {
                assert!(!geteuid().is_root() || !reason.is_empty());
                return;
            }
        };
        let place = crate::place::SessionFolder::new(top.path().join("sessions"));
        if let Err(error) = place.try_images(&images) {
            // A container may forbid it to its root.
            assert!(error.to_string().contains("mount"), "{error}");
            return;
        }
        assert_eq!(
            std::fs::read_dir(place.path()).unwrap().count(),
            0,
            "a trial leaves nothing"
        );
        let (session, folder) = (
            top.path().join("session"),
            top.path().join("session/folder"),
        );
        std::fs::create_dir_all(&folder).unwrap();
        images.make(&session, &folder, 20 << 20, 65_534).unwrap();
        let about = std::fs::metadata(&folder).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o7777), (65_534, 0o700));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(!is_clean(&session.join(IMAGE)).unwrap());
        assert!(is_own(&session, &folder));
        assert!(
            std::fs::metadata(session.join(IMAGE)).unwrap().blocks() * 512 < 4 << 20,
            "it takes no room yet"
        );
        let error = std::fs::write(folder.join("big"), vec![1; 30 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        std::fs::remove_file(folder.join("big")).unwrap();
        std::fs::write(folder.join("kept"), "kept").unwrap();
        // Many files without content are bounded, too.
        let count = (0..100_000)
            .take_while(|n| std::fs::write(folder.join(n.to_string()), "").is_ok())
            .count();
        assert!((100..20_000).contains(&count), "{count}");
        // With a file of it open, as a handler may have.
        let open = std::fs::File::open(folder.join("1")).unwrap();
        release(&session, &folder).unwrap();
        assert!(!is_own(&session, &folder));
        release(&session, &folder).unwrap();
        // Still used by whoever has a file open, which may be another process among mounts of its
        // own.
        assert!(!is_clean(&session.join(IMAGE)).unwrap());
        assert!(
            remount(&session, &folder)
                .unwrap_err()
                .contains("it was not unmounted")
        );
        drop(open);
        wait_for("the file system to be unmounted", || {
            is_clean(&session.join(IMAGE)).unwrap()
        });
        remount(&session, &folder).unwrap();
        remount(&session, &folder).unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.join("kept")).unwrap(),
            "kept"
        );
        release(&session, &folder).unwrap();
        disk::remove(&session).unwrap();
    }
}
