//! Reads a key or secret from a variable, or from a file of at most 4 KiB.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use helmdeck_core::text::shell_quoted;
use zeroize::Zeroizing;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};

/// Limit of bytes that are read. A key has 64; the rest is white space and room for a clear error.
const MAX_BYTES: u64 = 4096;

/// Who else may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Only the owner: a file that its group or others can read is refused.
    OwnerOnly,
    /// Any user: the operator decides.
    Anybody,
}

/// Reads a secret from a variable, or from the file that another variable names.
///
/// Returns the name of the variable too.
///
/// # Errors
/// A configuration failure: both variables are set, the one for the file is empty, or as [`read`].
pub(crate) fn of_environment<'a>(
    env: &ProcessEnvironment,
    text: &'a str,
    file: &'a str,
    readers: Readers,
) -> Result<Option<(&'a str, Zeroizing<String>)>> {
    match (env.text(text)?, env.text(file)?) {
        (Some(_), Some(_)) => Err(Failure::config(format!(
            "{text} and {file} are both set; unset one of them"
        ))),
        (Some(secret), None) => Ok(Some((text, Zeroizing::new(secret.to_owned())))),
        (None, Some("")) => Err(Failure::config(format!(
            "{file} is empty; name a file, or unset it"
        ))),
        (None, Some(path)) => Ok(Some((
            file,
            read(file, &env.absolute(Path::new(path))?, readers)?,
        ))),
        (None, None) => Ok(None),
    }
}

/// Returns the files, named by these variables, that others than their owner can read.
pub(crate) fn exposed(
    env: &ProcessEnvironment,
    variables: &[&str],
) -> impl Iterator<Item = PathBuf> {
    variables.iter().filter_map(|name| {
        let path = env.absolute(&env.path(name)?).ok()?;
        let mode = std::fs::metadata(&path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(path)
    })
}

/// Reads a file named by a variable.
///
/// It also reads a pipe that the shell passes (`/dev/stdin`, `/dev/fd/63` of a process
/// substitution).
///
/// # Errors
/// A configuration failure that names variable and file: it does not exist, is not a regular file,
/// is too long, is not text, or users other than its owner can read it.
pub(crate) fn read(variable: &str, path: &Path, readers: Readers) -> Result<Zeroizing<String>> {
    let fail = |reason: &str| Failure::config(format!("{variable}: {}: {reason}", path.display()));
    // Check before opening: to open a named pipe waits for a writer.
    let metadata = std::fs::metadata(path).map_err(|error| fail(&error.to_string()))?;
    let handed_over = ["/dev/stdin", "/dev/fd", "/proc/self/fd"]
        .iter()
        .any(|place| path.starts_with(place));
    if !metadata.is_file()
        && !(handed_over && (metadata.file_type().is_fifo() || metadata.file_type().is_socket()))
    {
        return Err(fail("this is not a regular file"));
    }
    let mode = metadata.permissions().mode();
    if readers == Readers::OwnerOnly && metadata.is_file() && mode & 0o077 != 0 {
        let hint = if handed_over {
            // The path names the descriptor; what `chmod` has to change is the file behind it.
            format!(
                "run `chmod 600` on the file that the shell opened for {}, or hand the key over in a pipe",
                path.display()
            )
        } else {
            format!(
                "run `chmod 600 {}`; for a secret volume of Kubernetes, set its `defaultMode: 0400` and no `fsGroup`, and run \
                 as the file's owner",
                shell_quoted(&path.display().to_string())
            )
        };
        let failure = fail(&format!(
            "others than its owner can use the key file (its mode is {:04o})",
            mode & 0o7777
        ));
        return Err(failure.with_hint(hint));
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    let file = File::open(path).map_err(|error| fail(&error.to_string()))?;
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| fail(&error.to_string()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(fail(&format!(
            "the file is too long to be a key or a secret: the limit is {MAX_BYTES} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_devices_and_named_pipes_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        for path in [
            Path::new("/dev/zero"),
            Path::new("/dev/null"),
            &pipe,
            folder.path(),
        ] {
            let failure = read("VARIABLE", path, Readers::OwnerOnly).unwrap_err();
            assert_eq!(failure.exit() as u8, 78);
            assert!(
                failure.message().starts_with("VARIABLE: ")
                    && failure.message().contains("not a regular file")
            );
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_command_to_type() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it's a key");
        std::fs::write(&path, "text").unwrap();
        for (mode, fine) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o644, false),
            (0o620, false),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let strict = read("V", &path, Readers::OwnerOnly);
            assert_eq!(strict.is_ok(), fine, "{mode:o}");
            if let Err(failure) = strict {
                assert!(
                    failure.text().contains(&format!(
                        "chmod 600 {}`",
                        shell_quoted(&path.display().to_string())
                    )),
                    "{}",
                    failure.text()
                );
                assert!(
                    failure.text().contains("defaultMode: 0400"),
                    "{}",
                    failure.text()
                );
                assert!(
                    failure.text().contains(r"it'\''s a key'"),
                    "{}",
                    failure.text()
                );
            }
            assert_eq!(read("V", &path, Readers::Anybody).unwrap().as_str(), "text");
        }
    }

    #[test]
    fn redirected_file_gets_a_hint_about_the_file() {
        use std::os::fd::AsRawFd;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "text").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let file = File::open(&path).unwrap();
        let descriptor = format!("/dev/fd/{}", file.as_raw_fd());
        let failure = read("V", Path::new(&descriptor), Readers::OwnerOnly).unwrap_err();
        assert!(
            failure.text().contains("file that the shell opened")
                && !failure.text().contains("chmod 600 /dev")
        );
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "x".repeat(4096)).unwrap();
        assert_eq!(read("V", &path, Readers::Anybody).unwrap().len(), 4096);
        std::fs::write(&path, "x".repeat(4097)).unwrap();
        assert!(
            read("V", &path, Readers::Anybody)
                .unwrap_err()
                .message()
                .contains("too long")
        );
    }
}
