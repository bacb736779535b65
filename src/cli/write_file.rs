//! Atomic file writes: a file is either the old one or the whole new one.

use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Creates a file of mode 0600, and its folder (0700) if it is missing.
///
/// # Errors
/// `AlreadyExists` if the file exists, which is then unchanged; whatever the system answers.
pub(crate) fn create(path: &Path, text: &[u8]) -> Result<()> {
    let aside = aside(path, text, 0o600)?;
    // Unlike a rename, a hard link never replaces a file that another process made meanwhile.
    let linked = std::fs::hard_link(&aside, path);
    let _ = std::fs::remove_file(&aside);
    linked
}

/// Replaces a file, or creates it with mode 0600. An existing file keeps its mode, and a link its
/// target.
///
/// # Errors
/// Whatever the system answers; the file is then unchanged.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<()> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode =
        std::fs::metadata(&path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o7777);
    let aside = aside(&path, text, mode)?;
    std::fs::rename(&aside, &path).inspect_err(|_| {
        let _ = std::fs::remove_file(&aside);
    })
}

/// Writes the text to a new file beside `path`.
fn aside(path: &Path, text: &[u8], mode: u32) -> Result<PathBuf> {
    let folder = path
        .parent()
        .ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&aside)?;
        // The process's umask may have taken bits away.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(text)?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(aside),
        Err(error) => {
            if error.kind() != ErrorKind::AlreadyExists {
                let _ = std::fs::remove_file(&aside);
            }
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_never_overwrites_and_replace_keeps_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file");
        create(&path, b"one").unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            create(&path, b"two").unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }
}
