//! Small files in the common folder of a repository's work trees.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Maximum number of bytes of one that are read.
const LARGEST: u64 = 1 << 20;

/// Reads a file. `None` if it is absent, larger than 1 MiB or unreadable, so that callers can go
/// on.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 <= LARGEST).then_some(bytes)
}

/// Writes one, durably and whole. The caller holds the common lock.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().ok_or(std::io::ErrorKind::NotFound)?;
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
