//! Words of a shell command.

use std::path::Path;

/// Quotes a path as one word of a shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}
