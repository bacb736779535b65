//! Merges that are tried without the work tree.
//!
//! git merges in an empty repository that borrows the objects. So no setting, attribute or program
//! of the user applies, and nothing is written to the user's repository.

use std::fs;
use std::path::Path;

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::Git;
use crate::run::Run;

/// The result of a merge of two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// No conflict.
    Cleanly,
    /// Conflicts in these paths.
    WithConflicts(Vec<Vec<u8>>),
    /// Unknown: git is older than 2.38, the commits have no common ancestor, or objects are
    /// missing.
    Unknown,
}

/// The versions of a file with a conflict. A side without the file is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stages {
    /// The common ancestor.
    pub base: Vec<u8>,
    /// The version of the current branch.
    pub ours: Vec<u8>,
    /// The version of the merged branch.
    pub theirs: Vec<u8>,
}

impl Git {
    /// Tries to merge two commits. Nothing is changed.
    ///
    /// No program but git is started, so files with a merge driver conflict.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn try_merge(&self, ours: &Oid, theirs: &Oid) -> Result<Merged> {
        let folder = tempfile::tempdir().ok();
        let Some(folder) = folder.filter(|folder| self.bare(folder.path(), ours).is_ok()) else {
            return Ok(Merged::Unknown);
        };
        let run = Run::default()
            .variable("GIT_DIR", folder.path())
            .variable("GIT_ATTR_NOSYSTEM", "1")
            .variable("GIT_NO_LAZY_FETCH", "1")
            .variable(
                "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                quoted(&self.common_dir().join("objects")),
            );
        let args = [
            "-c",
            "core.attributesFile=/dev/null",
            "-c",
            "merge.default=text",
            "merge-tree",
            "--write-tree",
        ];
        let rest = [
            "-z",
            "--name-only",
            "--no-messages",
            ours.as_str(),
            theirs.as_str(),
        ];
        let output = self.run(&[&args[..], &rest].concat(), &run)?;
        Ok(match output.status {
            Some(0) => Merged::Cleanly,
            // An unknown name has the same exit code, with a message.
            Some(1) if output.stderr.is_empty() => {
                // First the tree, then each path with a conflict.
                Merged::WithConflicts(output.records().skip(1).map(<[u8]>::to_vec).collect())
            }
            _ => Merged::Unknown,
        })
    }

    /// Returns the versions of a file that a merge left in the index; `None` if it has no conflict.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn stages(&self, path: &str) -> Result<Option<Stages>> {
        let output = self.read(&[
            "--literal-pathspecs",
            "ls-files",
            "--unmerged",
            "-z",
            "--full-name",
            "--",
            path,
        ])?;
        if output.stdout.is_empty() {
            return Ok(None);
        }
        let stage = |number: u8| -> Result<Vec<u8>> {
            Ok(self.blob(&format!(":{number}:{path}"))?.unwrap_or_default())
        };
        Ok(Some(Stages {
            base: stage(1)?,
            ours: stage(2)?,
            theirs: stage(3)?,
        }))
    }

    /// Marks the conflict of a file as resolved, as `git add` does.
    ///
    /// # Errors
    /// `E_GIT` if the index cannot be written.
    pub fn mark_resolved(&self, path: &str) -> Result<()> {
        self.succeed(&["--literal-pathspecs", "add", "--", path], &Run::writing())
            .map(drop)
    }

    /// Creates an empty repository.
    fn bare(&self, folder: &Path, like: &Oid) -> std::io::Result<()> {
        for name in ["objects", "refs"] {
            fs::create_dir(folder.join(name))?;
        }
        fs::write(folder.join("HEAD"), "ref: refs/heads/none\n")?;
        let (version, format) = match like.as_str().len() {
            64 => (1, "[extensions]\n\tobjectFormat = sha256\n"),
            _ => (0, ""),
        };
        fs::write(
            folder.join("config"),
            format!("[core]\n\trepositoryFormatVersion = {version}\n\tbare = true\n{format}"),
        )?;
        // A shallow history ends at the same commits.
        match fs::copy(self.common_dir().join("shallow"), folder.join("shallow")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Quotes a path for a list of paths, if it has a `:` or a `"`.
fn quoted(path: &Path) -> std::ffi::OsString {
    match path.to_str() {
        Some(text) if text.contains([':', '"']) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")).into()
        }
        _ => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Repository;

    #[test]
    fn tried_merge_leaves_no_trace() {
        let repository = Repository::new();
        let git = repository.git();
        repository.write("a", "1\n");
        repository.commit("first");
        repository.run(&["switch", "--quiet", "-c", "side"]);
        repository.write("b", "side\n");
        let clean = repository.commit("other file");
        repository.write("a", "side\n");
        let conflict = repository.commit("same file");
        repository.run(&["switch", "--quiet", "main"]);
        repository.write("a", "main\n");
        let main = repository.commit("main");
        let objects = repository.run(&["count-objects", "-v"]);
        assert_eq!(git.try_merge(&main, &clean).unwrap(), Merged::Cleanly);
        assert_eq!(
            git.try_merge(&main, &conflict).unwrap(),
            Merged::WithConflicts(vec![b"a".to_vec()])
        );
        assert_eq!(
            git.try_merge(&main, &main.none_like()).unwrap(),
            Merged::Unknown
        );
        assert_eq!(repository.run(&["count-objects", "-v"]), objects);
    }

    /// Creates two branches with different changes of a file.
    fn apart(path: &str) -> (Repository, Oid, Oid) {
        let repository = Repository::new();
        repository.write(path, "{\"a\": 0}\n");
        repository.commit("first");
        repository.run(&["switch", "--quiet", "-c", "side"]);
        repository.write(path, "{\"a\": 1}\n");
        let side = repository.commit("side");
        repository.run(&["switch", "--quiet", "main"]);
        repository.write(path, "{\"a\": 2}\n");
        let main = repository.commit("main");
        (repository, main, side)
    }

    #[test]
    fn tried_merge_starts_no_driver() {
        let (repository, main, side) = apart("a.json");
        let trace = repository.path().join(".git/started");
        let driver = format!("touch {}; exit 0", trace.display());
        repository.run(&["config", "merge.own.driver", &driver]);
        repository.run(&["config", "merge.default", "own"]);
        for place in [".gitattributes", ".git/info/attributes"] {
            repository.write(place, "*.json merge=own\n");
        }
        repository.run(&[
            "config",
            "core.attributesFile",
            repository.path().join(".gitattributes").to_str().unwrap(),
        ]);
        assert_eq!(
            repository.git().try_merge(&main, &side).unwrap(),
            Merged::WithConflicts(vec![b"a.json".to_vec()])
        );
        assert!(!trace.exists());
    }

    #[test]
    fn shallow_and_sha256_repositories_are_merged() {
        let repository = Repository::new();
        std::fs::remove_dir_all(repository.path().join(".git")).unwrap();
        repository.run(&[
            "init",
            "--quiet",
            "--initial-branch=main",
            "--object-format=sha256",
        ]);
        repository.write("a", "1\n");
        let first = repository.commit("first");
        repository.write("a", "2\n");
        let second = repository.commit("second");
        assert_eq!(
            repository.git().try_merge(&first, &second).unwrap(),
            Merged::Cleanly
        );

        let (origin, ..) = apart("a");
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (
            format!("file://{}", origin.path().display()),
            folder.path().join("a:clone"),
        );
        origin.run(&["clone", "--quiet", "--depth=1", &from, to.to_str().unwrap()]);
        let git = Repository::bare_git_at(&to);
        let head = git.head().unwrap().unwrap();
        assert_eq!(git.try_merge(&head, &head).unwrap(), Merged::Cleanly);
    }
}
