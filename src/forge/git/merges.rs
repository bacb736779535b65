//! Whether two commits would merge. git does the merge, in a repository of its own that holds nothing but a way to the objects: no
//! settings, no attributes and so no program of the user's has a say, and nothing is written where it stays.

use std::fs;
use std::path::Path;

use super::oid::Oid;
use super::repository::Git;
use super::run::Run;
use crate::error::Result;

/// What a merge of two commits would come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// No conflict.
    Cleanly,
    /// Conflicts.
    WithConflicts,
    /// This git cannot tell: it is older than 2.38, the commits have nothing in common, or objects are not here.
    Unknown,
}

/// The merge driver, as attributes name it.
const NAME: &str = "merge=forge-json";
const ATTRIBUTES: &str = ".forge/.gitattributes";

/// The versions of a file that git could not merge. A side that has no such file is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stages {
    /// What both come from.
    pub base: Vec<u8>,
    /// The version of this branch.
    pub ours: Vec<u8>,
    /// The version of the branch that is merged.
    pub theirs: Vec<u8>,
}

/// The setting under which documents of the memory are merged by their entries.
const DRIVER: &str = "merge.forge-json.driver";

impl Git {
    /// Says whether two commits would merge without a conflict. Nothing changes and no program but git is started, so what a merge
    /// driver would settle counts as a conflict; but for the memory, if its own driver is set up here.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn merges(&self, ours: &Oid, theirs: &Oid) -> Result<Merged> {
        let folder = tempfile::tempdir().ok();
        let Some(folder) = folder.filter(|folder| self.bare(folder.path(), ours).is_ok()) else {
            return Ok(Merged::Unknown);
        };
        let run = Run::default()
            .variable("GIT_DIR", folder.path())
            .variable("GIT_ATTR_NOSYSTEM", "1")
            .variable("GIT_NO_LAZY_FETCH", "1")
            .variable("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.common_dir().join("objects")));
        let args = ["-c", "core.attributesFile=/dev/null", "-c", "merge.default=text", "merge-tree", "--write-tree"];
        let rest = ["-z", "--name-only", "--no-messages", ours.as_str(), theirs.as_str()];
        let output = self.run(&[&args[..], &rest].concat(), &run)?;
        Ok(match output.status {
            Some(0) => Merged::Cleanly,
            // It exits so for names it does not know, too, and says that.
            Some(1) if output.stderr.is_empty() => {
                // First the tree, then each path with a conflict.
                let mut paths = output.stdout.split(|byte| *byte == 0).skip(1).filter(|path| !path.is_empty());
                let memory =
                    |path: &[u8]| self.is_memory(path) && (path.ends_with(b".json") || path.ends_with(b".jsonl"));
                if paths.all(memory) && self.setting(DRIVER)?.is_some() {
                    Merged::Cleanly
                } else {
                    Merged::WithConflicts
                }
            }
            _ => Merged::Unknown,
        })
    }

    /// Returns the versions of a file of the memory that a merge left in the index; none if git has no conflict there.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn stages(&self, path: &str) -> Result<Option<Stages>> {
        let path = self.in_memory(path);
        let output = self.read(&["--literal-pathspecs", "ls-files", "--unmerged", "-z", "--full-name", "--", &path])?;
        if output.stdout.is_empty() {
            return Ok(None);
        }
        let stage =
            |number: u8| -> Result<Vec<u8>> { Ok(self.blob(&format!(":{number}:{path}"))?.unwrap_or_default()) };
        Ok(Some(Stages { base: stage(1)?, ours: stage(2)?, theirs: stage(3)? }))
    }

    /// Tells git that the conflict in a file of the memory is resolved, as `git add` does.
    ///
    /// # Errors
    /// `E_GIT` if the index cannot be written.
    pub fn mark_resolved(&self, path: &str) -> Result<()> {
        let path = self.in_memory(path);
        self.succeed(&["--literal-pathspecs", "add", "--", &path], &Run::writing()).map(drop)
    }

    /// Says whether branches can be merged here and the memory's merge driver is not set up: settings of git are never cloned.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn is_merge_driver_missing(&self) -> Result<bool> {
        if self.setting(DRIVER)?.is_some() {
            return Ok(false);
        }
        let attributes = std::fs::read(self.root().join(self.in_memory(ATTRIBUTES))).unwrap_or_default();
        let wanted = attributes.windows(NAME.len()).any(|window| window == NAME.as_bytes());
        // With one branch and no other clone there is nothing to merge.
        let args = ["for-each-ref", "--count=2", "--format=%(refname)", "refs/heads/", "refs/remotes/"];
        Ok(wanted && self.read(&args)?.text().lines().count() > 1)
    }

    /// Makes a repository that holds nothing.
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
        // Where a history was cut off, it ends here too.
        match fs::copy(self.common_dir().join("shallow"), folder.join("shallow")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Writes a path for a list of paths: with a `:` or a `"` in it, git reads it only in quotes.
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
    use super::super::fixture::Repository;
    use super::*;

    #[test]
    fn a_merge_is_foretold_and_leaves_no_trace() {
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
        assert_eq!(git.merges(&main, &clean).unwrap(), Merged::Cleanly);
        assert_eq!(git.merges(&main, &conflict).unwrap(), Merged::WithConflicts);
        assert_eq!(git.merges(&main, &main.none_like()).unwrap(), Merged::Unknown);
        assert_eq!(repository.run(&["count-objects", "-v"]), objects);
    }

    /// Two branches that changed a file differently.
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
    fn foretelling_a_merge_starts_no_driver() {
        let (repository, main, side) = apart("a.json");
        let trace = repository.path().join(".git/started");
        let driver = format!("touch {}; exit 0", trace.display());
        repository.run(&["config", "merge.own.driver", &driver]);
        repository.run(&["config", "merge.default", "own"]);
        for place in [".gitattributes", ".git/info/attributes"] {
            repository.write(place, "*.json merge=own\n");
        }
        repository.run(&["config", "core.attributesFile", repository.path().join(".gitattributes").to_str().unwrap()]);
        assert_eq!(repository.git().merges(&main, &side).unwrap(), Merged::WithConflicts);
        assert!(!trace.exists());
    }

    #[test]
    fn conflicts_of_the_memory_are_for_its_own_driver() {
        let (repository, main, side) = apart("sub/.forge/memory/long-term/knowledge.json");
        let git = repository.git().with_memory("sub/.forge");
        assert_eq!(git.merges(&main, &side).unwrap(), Merged::WithConflicts);
        repository.run(&["config", DRIVER, "false"]);
        assert_eq!(git.merges(&main, &side).unwrap(), Merged::Cleanly);
        assert_eq!(repository.git().merges(&main, &side).unwrap(), Merged::WithConflicts);
    }

    #[test]
    fn a_shallow_history_and_long_names_of_objects_are_read() {
        let repository = Repository::new();
        std::fs::remove_dir_all(repository.path().join(".git")).unwrap();
        repository.run(&["init", "--quiet", "--initial-branch=main", "--object-format=sha256"]);
        repository.write("a", "1\n");
        let first = repository.commit("first");
        repository.write("a", "2\n");
        let second = repository.commit("second");
        assert_eq!(repository.git().merges(&first, &second).unwrap(), Merged::Cleanly);

        let (origin, ..) = apart("a");
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (format!("file://{}", origin.path().display()), folder.path().join("a:clone"));
        origin.run(&["clone", "--quiet", "--depth=1", &from, to.to_str().unwrap()]);
        let git = Repository::bare_git_at(&to);
        let head = git.head().unwrap().unwrap();
        assert_eq!(git.merges(&head, &head).unwrap(), Merged::Cleanly);
    }
}
