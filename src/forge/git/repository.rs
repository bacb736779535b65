//! The repository of a project: git, with the folder of the memory below the root of the work tree.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use std::ffi::OsString;

use helmdeck_forge_files::files::{Document, EntryFile, decode};
use helmdeck_git::{Merged, Stages};

use super::{Oid, Run};
use crate::error::{Category, Error, Result};
use crate::layout::FORGE;
use crate::time::Time;

/// The prefix of the trailers of a project.
pub(super) const TRAILERS: &str = "Forge-";
/// The setting for the merge driver of the memory.
const DRIVER: &str = "merge.forge-json.driver";
/// The merge driver in attributes.
const NAME: &str = "merge=forge-json";
const ATTRIBUTES: &str = ".forge/.gitattributes";

/// The repository of a project.
#[derive(Debug, Clone)]
pub struct Git(helmdeck_git::Git);

impl Deref for Git {
    type Target = helmdeck_git::Git;

    fn deref(&self) -> &helmdeck_git::Git {
        #[cfg(test)]
        assert!(
            !crate::files::holds_local(),
            "git is used under the lock of a work tree, for which others wait"
        );
        &self.0
    }
}

impl Git {
    /// Finds the repository around a folder. Without one, git is not started.
    ///
    /// # Errors
    /// `E_BARE_REPO` (refused) if it has no work tree; `E_NO_GIT` if git is not installed; `E_GIT`
    /// if git cannot read it.
    pub fn find(start: &Path) -> Result<Option<Self>> {
        let found = helmdeck_git::Git::find(start).map_err(|error| match error.code {
            "E_BARE_REPO" => Error::from(error).hint(
                "a bare repository holds no memory: use one with a work tree, from within it",
            ),
            _ => error.into(),
        })?;
        let agent = ("forge-agent", "forge-agent@localhost");
        Ok(found.map(|git| {
            Self(
                git.excluding(FORGE)
                    .trailers_anywhere(TRAILERS)
                    .agent(agent.0, agent.1),
            )
        }))
    }

    /// Sets a variable for every run of git, in addition to those of the process.
    #[must_use]
    pub fn variable(self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        Self(self.0.variable(name, value))
    }

    /// Sets the default time limit of a run; 60 seconds by default.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// Sets the folder of the memory, below the root of the work tree; `.forge` by default.
    #[must_use]
    pub fn with_memory(self, folder: impl Into<String>) -> Self {
        Self(self.0.excluding(folder))
    }

    /// Returns another work tree, with the same options.
    ///
    /// # Errors
    /// As [`Git::find`].
    pub fn elsewhere(&self, path: &Path) -> Result<Option<Self>> {
        Ok(helmdeck_git::Git::elsewhere(self, path)?.map(Self))
    }

    /// Returns this repository with writes of objects redirected into a temporary folder.
    pub(super) fn aside(&self, folder: &Path) -> Result<Self> {
        Ok(Self(helmdeck_git::Git::aside(self, folder)?))
    }

    /// Returns the root of the work tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.0.root()
    }

    /// Returns the git directory of this work tree.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        self.0.git_dir()
    }

    /// Returns the git directory that all work trees share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        self.0.common_dir()
    }

    /// Returns the folder of the memory, below the root of the work tree. Its files do not count as
    /// code.
    #[must_use]
    pub fn memory(&self) -> &str {
        self.0.excluded()
    }

    /// Returns the path of a memory file below the root of the work tree.
    ///
    /// `.forge/x` is `sub/.forge/x` in a project below `sub`.
    #[must_use]
    pub fn in_memory(&self, path: &str) -> String {
        let rest = path.strip_prefix(FORGE).unwrap_or(path);
        format!("{}{rest}", self.memory())
    }

    /// Returns a document of the long-term memory as a commit or a tree has it. `None` if it has
    /// none.
    ///
    /// A damaged entry is left out: it is reported where its file is read.
    ///
    /// # Errors
    /// The errors of running git; `Corrupt` if the document of an older project is damaged.
    pub fn document_at<D: Document>(&self, tree: &Oid) -> Result<Option<D>> {
        let Some(entries) = D::ENTRIES else {
            return Ok(None);
        };
        let whole = self.file_at(tree, &self.in_memory(D::PATH))?;
        let whole = whole
            .map(|bytes| decode::<D>(&bytes).map(|(document, _)| document))
            .transpose()
            .map_err(|_| {
                Error::new(
                    Category::Corrupt,
                    "E_CORRUPT",
                    format!("{} of {tree} cannot be read", D::PATH),
                )
            })?;
        let folder = format!("{}/", self.in_memory(entries.folder));
        let listed = self.succeed(
            &["ls-tree", "-z", "--full-tree", tree.as_str(), "--", &folder],
            &Run::default(),
        )?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        // Each is "mode type id<tab>path".
        let files = listed.split('\0').filter_map(|line| {
            let (about, file) = line.split_once('\t')?;
            let is_one =
                file.rsplit('/').next().is_some_and(EntryFile::is_one) && about.contains(" blob ");
            is_one.then(|| Some((file.to_owned(), about.split(' ').nth(2)?.to_owned())))?
        });
        let (files, names): (Vec<String>, Vec<String>) = files.unzip();
        if whole.is_none() && files.is_empty() {
            return Ok(None);
        }
        let objects = self.objects(&names.join("\n"))?;
        let read = |(path, object): (_, Option<helmdeck_git::Object>)| {
            Some(EntryFile {
                path,
                bytes: object?.bytes,
                modified: Time::UNKNOWN,
            })
        };
        let files: Vec<EntryFile> = files.into_iter().zip(objects).filter_map(read).collect();
        Ok(Some((entries.join)(&files, whole).document))
    }

    /// Says whether git ignores the memory: some users keep it out of the repository.
    ///
    /// # Errors
    /// The errors of running git.
    pub fn ignores_memory(&self) -> Result<bool> {
        let run = Run::default().stdin(format!("{}\0", self.memory()));
        Ok(!self
            .run(&["check-ignore", "-z", "--stdin"], &run)?
            .stdout
            .is_empty())
    }

    /// Says whether a path below the root of the work tree is in the memory.
    #[must_use]
    pub fn is_memory(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.memory().as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Makes a path below the root of the work tree relative to the project; `None` if it is
    /// outside.
    #[must_use]
    pub fn in_project<'a>(&self, path: &'a str) -> Option<&'a str> {
        let folder = self.memory().strip_suffix(FORGE).unwrap_or_default();
        path.strip_prefix(folder)
    }

    /// Returns the path of a project's file below the root: `a` is `sub/a` in a project below
    /// `sub`.
    #[must_use]
    pub fn of_project(&self, path: &str) -> String {
        format!(
            "{}{path}",
            self.memory().strip_suffix(FORGE).unwrap_or_default()
        )
    }

    /// Returns the number of work commits in a range that touch the project, without those that
    /// only save a session's memory.
    ///
    /// # Errors
    /// As [`helmdeck_git::Git::count`].
    pub fn count_work(&self, range: &str) -> Result<u64> {
        let kept = [
            r"--grep=^(\[session\]|chore\(session\):) ",
            r"--grep=^(\[[A-Z][A-Z0-9]*-[0-9]+\]|[a-z]+\([A-Z][A-Z0-9]*-[0-9]+\):) Session checkpoint$",
        ];
        let args = [
            "rev-list",
            "--count",
            "--extended-regexp",
            "--invert-grep",
            kept[0],
            kept[1],
            "--end-of-options",
            range,
            "--",
        ];
        let args = [&args[..], &self.below_scope()].concat();
        let output = self.read(&args)?;
        output
            .text()
            .parse()
            .map_err(|_| helmdeck_git::complaint(&args, &output).into())
    }

    /// Returns the path that limits a list of commits to the scope; none if that is the whole
    /// repository.
    pub(crate) fn below_scope(&self) -> Vec<&str> {
        // git leaves out empty commits if there is a path.
        Some(self.scope())
            .filter(|scope| !scope.is_empty())
            .into_iter()
            .collect()
    }

    /// Says whether two commits merge, as [`helmdeck_git::Git::try_merge`] does.
    ///
    /// Conflicts in documents of the memory do not count if its merge driver is set up here.
    ///
    /// # Errors
    /// As [`helmdeck_git::Git::run`].
    pub fn merges(&self, ours: &Oid, theirs: &Oid) -> Result<Merged> {
        let merged = self.try_merge(ours, theirs)?;
        let is_document = |path: &Vec<u8>| {
            self.is_memory(path) && (path.ends_with(b".json") || path.ends_with(b".jsonl"))
        };
        Ok(match &merged {
            Merged::WithConflicts(paths)
                if paths.iter().all(is_document) && self.setting(DRIVER)?.is_some() =>
            {
                Merged::Cleanly
            }
            _ => merged,
        })
    }

    /// Returns the conflict stages of a memory file in the index; `None` if it has no conflict.
    ///
    /// # Errors
    /// As [`helmdeck_git::Git::run`].
    pub fn stages(&self, path: &str) -> Result<Option<Stages>> {
        Ok(helmdeck_git::Git::stages(self, &self.in_memory(path))?)
    }

    /// Marks the conflict of a memory file as resolved, as `git add` does.
    ///
    /// # Errors
    /// `E_GIT` if the index cannot be written.
    pub fn mark_resolved(&self, path: &str) -> Result<()> {
        Ok(helmdeck_git::Git::mark_resolved(
            self,
            &self.in_memory(path),
        )?)
    }

    /// Says whether merges are possible here, but the merge driver of the memory is not set up.
    ///
    /// A clone does not inherit git settings.
    ///
    /// # Errors
    /// As [`helmdeck_git::Git::run`].
    pub fn is_merge_driver_missing(&self) -> Result<bool> {
        if self.setting(DRIVER)?.is_some() {
            return Ok(false);
        }
        let attributes =
            std::fs::read(self.root().join(self.in_memory(ATTRIBUTES))).unwrap_or_default();
        let wanted = attributes
            .windows(NAME.len())
            .any(|window| window == NAME.as_bytes());
        // With one branch and no other clone there is nothing to merge.
        let args = [
            "for-each-ref",
            "--count=2",
            "--format=%(refname)",
            "refs/heads/",
            "refs/remotes/",
        ];
        Ok(wanted && self.read(&args)?.text().lines().count() > 1)
    }

    /// Returns the command that fetches the checkpoint tags and, in a shallow clone, the missing
    /// history.
    ///
    /// Without a remote it is the command that creates a new checkpoint.
    ///
    /// # Errors
    /// As [`helmdeck_git::Git::succeed`].
    pub fn fetch_checkpoints(&self) -> Result<String> {
        let plain = |name: &String| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        };
        Ok(match self.default_remote()?.filter(plain) {
            Some(remote) if self.is_shallow() => format!("git fetch --unshallow --tags {remote}"),
            Some(remote) => {
                format!("git fetch {remote} 'refs/tags/checkpoint/*:refs/tags/checkpoint/*'")
            }
            None => "helmdeck forge checkpoint create".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::git::fixture::{Repository, run_at};

    use super::*;

    #[test]
    fn memory_conflicts_are_left_to_its_driver() {
        let path = "sub/.forge/memory/long-term/knowledge.json";
        let repository = Repository::new();
        repository.write(path, "{\"a\": 0}\n");
        repository.commit("first");
        repository.run(&["switch", "--quiet", "-c", "side"]);
        repository.write(path, "{\"a\": 1}\n");
        let side = repository.commit("side");
        repository.run(&["switch", "--quiet", "main"]);
        repository.write(path, "{\"a\": 2}\n");
        let main = repository.commit("main");
        let git = repository.git().with_memory("sub/.forge");
        let conflict = Merged::WithConflicts(vec![path.into()]);
        assert_eq!(git.merges(&main, &side).unwrap(), conflict);
        repository.run(&["config", DRIVER, "false"]);
        assert_eq!(git.merges(&main, &side).unwrap(), Merged::Cleanly);
        assert_eq!(repository.git().merges(&main, &side).unwrap(), conflict);
    }

    #[test]
    fn project_path_need_not_be_utf8() {
        use std::os::unix::ffi::OsStrExt as _;

        let folder = tempfile::tempdir().unwrap();
        let root = folder
            .path()
            .canonicalize()
            .unwrap()
            .join(std::ffi::OsStr::from_bytes(b"r\xff\xfe"));
        std::fs::create_dir_all(root.join(".forge")).unwrap();
        run_at(&root, &["init", "--quiet", "--initial-branch=main"]);
        let project = crate::Project::open(&root, crate::ProjectEnvironment::default())
            .unwrap()
            .unwrap();
        crate::progress::Progress::new(&project)
            .log("Done")
            .unwrap();
        assert!(project.git().unwrap().status().unwrap().untracked().count() > 0);
        crate::events::emit(&project, crate::Subject::Learning, 1);
        assert_eq!(
            crate::events::Events::new(&project)
                .replay(&crate::events::Replay::default())
                .unwrap()
                .events
                .len(),
            1
        );
    }
}
