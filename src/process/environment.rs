//! Environment of a program, and the search path of programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prepares a program that inherits no variable of this process.
///
/// It gets a search path, `LANG=C.UTF-8` and `TZ=UTC`. Every other variable must be added by name.
#[must_use]
pub fn command(program: impl AsRef<OsStr>, path: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path)
        .env("LANG", "C.UTF-8")
        .env("TZ", "UTC");
    command
}

/// Finds a program in a search path.
#[must_use]
pub fn find(name: &str, path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|program| program.is_file())
}
