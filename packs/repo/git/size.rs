//! The size limit of a repository, checked while git fetches into it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::{Code, Error, Result};

/// Interval of the size check.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Waits until a folder has more than `most` bytes, and returns the error.
pub(super) async fn outgrown(folder: &Path, most: u64) -> Error {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = check(folder, most).await {
            return error;
        }
    }
}

/// Checks the size once.
///
/// # Errors
/// `too_large` if the folder has more than `most` bytes.
pub(super) async fn check(folder: &Path, most: u64) -> Result<()> {
    let folder = folder.to_owned();
    let size = tokio::task::spawn_blocking(move || size_of(folder)).await;
    let size = size.map_err(|error| {
        Error::new(Code::Internal, "a folder cannot be measured").with_source(error)
    })?;
    if size <= most {
        return Ok(());
    }
    let message = format!(
        "the repository has more than {most} bytes; fetch less of it with depth, or let the operator raise repo.max_bytes"
    );
    Err(Error::new(Code::TooLarge, message))
}

/// Returns the size of all files below a folder. Files that disappear meanwhile do not count.
fn size_of(folder: PathBuf) -> u64 {
    let mut size = 0;
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => size += found.len(),
                Err(_) => {}
            }
        }
    }
    size
}
