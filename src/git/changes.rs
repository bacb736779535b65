//! The distance of the work tree from a commit, in files and lines.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::Git;
use crate::run::Output;

/// The number of lines that a binary file counts for.
pub const BINARY_LINES: u64 = 50;
/// The number of bytes that decide whether a file is binary, as in git.
const SNIFFED: usize = 8000;

/// A path that differs from a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The path below the root, with `/`. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Lines that the commit does not have; 0 if it is binary.
    pub added: u64,
    /// Lines that only the commit has; 0 if it is binary.
    pub deleted: u64,
    /// Whether it is a binary file, which has no lines.
    pub binary: bool,
    /// Whether the path is untracked.
    pub untracked: bool,
}

impl Change {
    /// Returns how many lines it counts for: those added and deleted, or [`BINARY_LINES`].
    #[must_use]
    pub fn lines(&self) -> u64 {
        if self.binary {
            BINARY_LINES
        } else {
            self.added.saturating_add(self.deleted)
        }
    }
}

impl Git {
    /// Returns the differences between a commit and the work tree, sorted by path.
    ///
    /// They include later commits, staged and unstaged changes, and untracked files that are not
    /// ignored. What is outside of the scope is left out, and so is the excluded folder. A renamed
    /// file is two paths.
    ///
    /// # Errors
    /// `E_GIT` if the commit does not exist.
    pub fn changes(&self, from: &Oid) -> Result<Vec<Change>> {
        // Staged changes that the work tree no longer has count too, and so do files that only the
        // index lost.
        let mut changes = self.numstat(&["--cached", from.as_str()])?;
        // git compares a commit with a part of the work tree in a time that is quadratic in the
        // number of all files.
        if !self.numstat(&[])?.is_empty() {
            changes.extend(self.numstat(&[from.as_str()])?);
        }
        let args = ["ls-files", "-z", "--others", "--exclude-standard", "--"];
        let output = self.read_in_scope(&args)?;
        for path in output.records() {
            let path = String::from_utf8_lossy(path).into_owned();
            let lines = lines(&self.root().join(&path));
            let (added, binary) = (lines.unwrap_or(0), lines.is_none());
            changes.insert(
                path.clone(),
                Change {
                    path,
                    added,
                    deleted: 0,
                    binary,
                    untracked: true,
                },
            );
        }
        Ok(changes.into_values().collect())
    }

    fn numstat(&self, what: &[&str]) -> Result<BTreeMap<String, Change>> {
        Ok(parse(
            &self
                .read_in_scope(&[NUMSTAT, what, &["--"]].concat())?
                .stdout,
        ))
    }

    /// Runs git on the scope without the excluded folder. The arguments end with `--`.
    pub(crate) fn read_in_scope(&self, args: &[&str]) -> Result<Output> {
        let paths = self.scope_pathspecs();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        self.read(&[args, &paths].concat())
    }
}

const NUMSTAT: &[&str] = &[
    "diff",
    "--numstat",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=none",
    "--no-relative",
];

/// Reads `git diff --numstat -z`: added TAB deleted TAB path, `-` for binary files.
fn parse(bytes: &[u8]) -> BTreeMap<String, Change> {
    let records = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let changes = records.filter_map(|record| {
        let mut fields = record.splitn(3, '\t');
        let (added, deleted, path) = (fields.next()?, fields.next()?, fields.next()?);
        let count = |text: &str| text.parse().unwrap_or(0);
        let change = Change {
            path: path.to_owned(),
            added: count(added),
            deleted: count(deleted),
            binary: added == "-",
            untracked: false,
        };
        Some((path.to_owned(), change))
    });
    changes.collect()
}

/// Counts the lines of a file, including a last line without a line feed.
///
/// `None` if it is binary, not a file, or cannot be read.
fn lines(path: &Path) -> Option<u64> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if kind.is_symlink() {
        // git stores where it points to: a line.
        return Some(1);
    }
    // Opening a pipe would wait for its other end.
    if !kind.is_file() {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let mut buffer = vec![0; 64 << 10];
    let (mut lines, mut last, mut seen) = (0_u64, b'\n', 0_usize);
    loop {
        let count = file.read(&mut buffer).ok()?;
        let Some(end) = count.checked_sub(1) else {
            break;
        };
        let read = &buffer[..count];
        if read
            .iter()
            .take(SNIFFED.saturating_sub(seen))
            .any(|byte| *byte == 0)
        {
            return None;
        }
        lines += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        (last, seen) = (read[end], seen.saturating_add(count));
    }
    Some(lines + u64::from(last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Repository;

    fn short(changes: &[Change]) -> Vec<(&str, u64, u64, u64)> {
        changes
            .iter()
            .map(|change| {
                (
                    change.path.as_str(),
                    change.added,
                    change.deleted,
                    change.lines(),
                )
            })
            .collect()
    }

    #[test]
    fn differences_count_once_without_the_excluded_folder() {
        let repository = Repository::new();
        let git = repository.git().excluding(".forge");
        for path in [
            "committed",
            "staged",
            "changed",
            "deleted",
            "renamed",
            "forgotten",
        ] {
            repository.write(path, "1\n2\n3\n");
        }
        repository.write(".gitignore", "ignored\n");
        repository.write(".forge/a", "1\n");
        let from = repository.commit("first");
        assert_eq!(git.changes(&from).unwrap(), []);
        repository.write("committed", "1\n2\n3\n4\n");
        repository.commit("second");
        repository.write("staged", "1\n2\n");
        repository.run(&["add", "staged"]);
        repository.write("changed", "1\nx\n3\n");
        std::fs::remove_file(repository.path().join("deleted")).unwrap();
        repository.run(&["mv", "renamed", "to"]);
        repository.run(&["rm", "--quiet", "--cached", "forgotten"]);
        repository.write("new\tfile", "1\n2");
        repository.write("binary", b"\0\n\n");
        repository.write("ignored", "1\n");
        repository.write(".forge/a", "2\n");
        repository.write(".forge/new", "2\n");
        std::os::unix::fs::symlink("nowhere", repository.path().join("link")).unwrap();
        let changes = git.changes(&from).unwrap();
        assert_eq!(
            short(&changes),
            [
                ("binary", 0, 0, 50),
                ("changed", 1, 1, 2),
                ("committed", 1, 0, 1),
                ("deleted", 0, 3, 3),
                ("forgotten", 3, 0, 3),
                ("link", 1, 0, 1),
                ("new\tfile", 2, 0, 2),
                ("renamed", 0, 3, 3),
                ("staged", 0, 1, 1),
                ("to", 3, 0, 3),
            ]
        );
    }
}
