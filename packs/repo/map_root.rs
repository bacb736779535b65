//! The folder to map, and access to its files.
//!
//! In a session, links are never followed: commands may create one at any moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use helmdeck_core::session::Session;
use helmdeck_core::{Code, Error, Result};
use rustix::fs::{Mode, OFlags, open, openat};

/// A folder to map.
pub(super) struct MapRoot {
    /// Its path.
    pub(super) root: PathBuf,
    /// The path that callers see.
    pub(super) shown: String,
    /// The open folder, in a session.
    held: Option<OwnedFd>,
}

impl MapRoot {
    /// Finds a folder: in the session for a relative path, else on this machine.
    ///
    /// Without a session every path is on this machine.
    ///
    /// # Errors
    /// `invalid_input`, `not_found` or `forbidden`.
    pub(super) fn find(path: &str, session: Option<&dyn Session>) -> Result<Self> {
        match session {
            Some(session) if !Path::new(path).is_absolute() => Self::below(path, session),
            _ => {
                let root = root(path)?;
                Ok(Self {
                    shown: root.to_string_lossy().into_owned(),
                    root,
                    held: None,
                })
            }
        }
    }

    fn below(path: &str, session: &dyn Session) -> Result<Self> {
        let shown = path.escape_debug();
        let parts: Vec<&Path> = Path::new(path)
            .components()
            .filter(|part| *part != Component::CurDir)
            .map(|part| match part {
                Component::Normal(name) => Ok(Path::new(name)),
                _ => Err(Error::new(
                    Code::InvalidInput,
                    format!("path \"{shown}\" leads out of the session's folder"),
                )),
            })
            .collect::<Result<_>>()?;
        let gone = |error: rustix::io::Errno| {
            let message = format!(
                "path \"{shown}\" is no folder of the session; links are not followed there"
            );
            Error::new(Code::NotFound, message).with_source(error)
        };
        let mut held = open(session.folder(), FOLDER, Mode::empty()).map_err(gone)?;
        let (mut root, mut inside) = (
            session.folder().to_owned(),
            session.folder_inside().to_owned(),
        );
        for part in parts {
            held = openat(&held, part, FOLDER, Mode::empty()).map_err(gone)?;
            root.push(part);
            inside = format!("{inside}/{}", part.to_string_lossy());
        }
        Ok(Self {
            root,
            shown: inside,
            held: Some(held),
        })
    }

    /// Returns whether it is a folder of a session, where only the files themselves count.
    pub(super) const fn is_of_session(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the open folder, in a session.
    pub(super) fn held(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().map(AsFd::as_fd)
    }

    /// Returns where to start to walk: the open folder, wherever its path leads by now.
    pub(super) fn start(&self) -> PathBuf {
        let Some(held) = &self.held else {
            return self.root.clone();
        };
        PathBuf::from(format!("/proc/self/fd/{}/.", held.as_raw_fd()))
    }

    /// Opens a file by its path below the root.
    pub(super) fn open(&self, file: &Path) -> io::Result<File> {
        match self.held() {
            Some(held) => open_file(held, file),
            None => open_file(rustix::fs::CWD, &self.root.join(file)),
        }
    }
}

/// Opens a folder below another one, or by its absolute path, without following links below.
pub(super) fn open_folder(from: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    if path.is_absolute() {
        return Ok(open(path, FOLDER, Mode::empty())?);
    }
    let mut folder = from.as_fd().try_clone_to_owned()?;
    for part in path {
        folder = openat(&folder, part, FOLDER, Mode::empty())?;
    }
    Ok(folder)
}

/// Opens a regular file as [`open_folder`] opens a folder.
pub(super) fn open_file(from: impl AsFd, path: &Path) -> io::Result<File> {
    let (parent, name) = (
        path.parent().unwrap_or(Path::new("")),
        path.file_name().unwrap_or_default(),
    );
    let folder = open_folder(from, parent)?;
    // Opening a pipe would block.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(&folder, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no file"))
    }
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Checks the folder and resolves links in the path to it.
fn root(path: &str) -> Result<PathBuf> {
    let shown = path.escape_debug();
    if !Path::new(path).is_absolute() {
        // The answer is cached by this text, and a server's working directory means nothing to a
        // caller.
        return Err(Error::new(
            Code::InvalidInput,
            format!(
                "path \"{shown}\" is relative; give an absolute path (the command line makes it absolute itself)"
            ),
        ));
    }
    let root = std::fs::canonicalize(path).map_err(|error| {
        let (code, fact) = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                (Code::NotFound, "does not exist")
            }
            std::io::ErrorKind::PermissionDenied => (Code::Forbidden, "may not be read"),
            _ => (Code::InvalidInput, "cannot be resolved"),
        };
        Error::new(code, format!("path \"{shown}\" {fact}")).with_source(error)
    })?;
    if !root.is_dir() {
        return Err(Error::new(
            Code::InvalidInput,
            format!("path \"{shown}\" is a file; give the folder to map"),
        ));
    }
    std::fs::read_dir(&root).map_err(|error| {
        Error::new(Code::Forbidden, format!("path \"{shown}\" may not be read")).with_source(error)
    })?;
    Ok(root)
}
