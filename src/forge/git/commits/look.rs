//! Secret scan of staged changes, so that no credential is committed.

use std::io::Seek as _;
use std::path::Path;
use std::sync::Arc;

use super::{COMMIT_TIME, Commits};
use crate::error::{Error, Result};
use crate::git::Git;
use crate::git::Run;
use crate::secrets::Pieces;

/// Diffs above this many bytes are scanned file by file.
///
/// Tests use a lower limit, to need no large files.
const LARGEST: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };
const DIFF: &[&str] = &[
    "diff",
    "--cached",
    "-U0",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-color",
    "--no-relative",
    "--src-prefix=a/",
    "--dst-prefix=b/",
];

impl Commits<'_> {
    /// Scans what an index has and a tree does not. Returns whether it has changes.
    ///
    /// # Errors
    /// `Secret`; errors from git.
    pub(super) fn look_for_secrets(
        &self,
        git: &Git,
        against: &str,
        run: &Run,
        folder: &Path,
    ) -> Result<bool> {
        let bounded = Run {
            max_output: LARGEST,
            ..run.clone()
        };
        // An attribute or a NUL makes a file binary for git, which hides its added lines. Hence
        // `--text`.
        match git.succeed(&[DIFF, &["--text", against]].concat(), &bounded) {
            Ok(output) => return self.look_at(&output.stdout),
            Err(error) if error.code == "E_TOO_LARGE" => {}
            Err(error) => return Err(error.into()),
        }
        // A large file is probably not text: scan the others in one diff, and each large file on
        // its own.
        let alone = match git.succeed(&[DIFF, &[against]].concat(), &bounded) {
            Ok(output) => {
                self.look_at(&output.stdout)?;
                changed(git, against, run, |added| added == b"-")?
            }
            Err(error) if error.code == "E_TOO_LARGE" => changed(git, against, run, |_| true)?,
            Err(error) => return Err(error.into()),
        };
        for path in alone {
            let one = ["--text", against, "--", path.as_str()];
            match git.succeed(&[&["--literal-pathspecs"], DIFF, &one].concat(), &bounded) {
                Ok(output) => drop(self.look_at(&output.stdout)?),
                Err(error) if error.code == "E_TOO_LARGE" => {
                    self.look_through(git, &path, run, folder)?
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Scans the added lines of a diff. Returns whether it has changes.
    fn look_at(&self, diff: &[u8]) -> Result<bool> {
        for (path, added) in added(diff) {
            self.project.files().check_secrets(&path, &added)?;
        }
        Ok(!diff.is_empty())
    }

    /// Scans a whole staged file of any size, including its old content.
    fn look_through(&self, git: &Git, path: &str, run: &Run, folder: &Path) -> Result<()> {
        let file = tempfile::tempfile_in(folder);
        let io =
            |error: &std::io::Error| Error::io("cannot look for secrets by way of", folder, error);
        let file = Arc::new(file.map_err(|error| io(&error))?);
        let to_file = Run {
            to: Some(Arc::clone(&file)),
            timeout: Some(COMMIT_TIME),
            ..run.clone()
        };
        git.succeed(&["cat-file", "blob", &format!(":0:{path}")], &to_file)?;
        let mut file = &*file;
        file.rewind().map_err(|error| io(&error))?;
        let mut pieces = Pieces::new(file);
        while let Some(found) = pieces.next_piece().map_err(|error| io(&error))? {
            self.project.files().check_found(path, found)?;
        }
        Ok(())
    }
}

/// Returns the paths that an index adds or changes, filtered by git's count of added lines.
///
/// The count is `-` for a file that git considers binary.
fn changed(
    git: &Git,
    against: &str,
    run: &Run,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<String>> {
    let args = [
        "diff",
        "--cached",
        "--numstat",
        "-z",
        "--diff-filter=d",
        "--no-ext-diff",
        "--no-textconv",
    ];
    let output = git.succeed(
        &[&args[..], &["--no-renames", "--no-relative", against]].concat(),
        run,
    )?;
    let records = output.stdout.split(|byte| *byte == 0).filter_map(|record| {
        let mut fields = record.splitn(3, |byte| *byte == b'\t');
        let (added, _, path) = (fields.next()?, fields.next()?, fields.next()?);
        wanted(added).then(|| String::from_utf8_lossy(path).into_owned())
    });
    Ok(records.collect())
}

/// Returns the lines that a diff adds, by path.
fn added(diff: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let mut in_head = true;
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"diff --git ") {
            in_head = true;
            continue;
        }
        if line.starts_with(b"@@ ") {
            in_head = false;
            continue;
        }
        if let Some(path) = line.strip_prefix(b"+++ ").filter(|_| in_head) {
            let path = String::from_utf8_lossy(path);
            let path = path.trim_end().trim_matches('"');
            all.push((
                path.strip_prefix("b/").unwrap_or(path).to_owned(),
                Vec::new(),
            ));
        } else if let (Some(line), Some((_, added)), false) =
            (line.strip_prefix(b"+"), all.last_mut(), in_head)
        {
            added.extend_from_slice(line);
        }
    }
    all
}
