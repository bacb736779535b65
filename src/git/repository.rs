//! A repository with a work tree: its folders, what is checked out, and the relation of its
//! commits.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use helmdeck_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::oid::Oid;
use crate::run::{self, Output, Run};

/// The default time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time limit.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A repository with a work tree.
#[derive(Debug, Clone)]
pub struct Git {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    environment: Vec<(String, OsString)>,
    timeout: Duration,
    excluded: String,
    trailer_prefix: &'static str,
    agent: (&'static str, &'static str),
    /// The number of bytes of an object id, once it is known.
    pub(crate) hash_bytes: OnceLock<usize>,
    /// The code trees of commits and trees, once they are known.
    pub(crate) code_trees: Arc<Mutex<HashMap<Oid, String>>>,
}

/// An operation in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A merge.
    Merge,
    /// A rebase.
    Rebase,
    /// Patches from mail.
    Apply,
    /// A cherry-pick.
    CherryPick,
    /// A revert.
    Revert,
    /// A bisection.
    Bisect,
}

impl Operation {
    /// Returns the name of git's command for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Rebase => "rebase",
            Self::Apply => "am",
            Self::CherryPick => "cherry-pick",
            Self::Revert => "revert",
            Self::Bisect => "bisect",
        }
    }
}

impl Git {
    /// Finds the repository around a folder. If there is none, git is not started.
    ///
    /// # Errors
    /// `E_BARE_REPO` (refused) if it has no work tree; `E_NO_GIT` if git is not installed; `E_GIT`
    /// if git will not read it.
    pub fn find(start: &Path) -> Result<Option<Self>> {
        let start = start
            .canonicalize()
            .map_err(|error| Error::io("cannot read", start, &error))?;
        let is_bare = |folder: &Path| {
            folder.join("HEAD").is_file()
                && folder.join("objects").is_dir()
                && folder.join("refs").is_dir()
        };
        if !start
            .ancestors()
            .any(|folder| folder.join(".git").exists() || is_bare(folder))
        {
            return Ok(None);
        }
        let args = [
            "rev-parse",
            "--is-inside-work-tree",
            "--absolute-git-dir",
            "--git-common-dir",
            "--show-toplevel",
        ];
        let output = run::run(&start, &[], TIMEOUT, &args, &Run::default())?;
        // A path need not be text.
        let mut lines = output
            .stdout
            .split(|byte| *byte == b'\n')
            .map(OsStr::from_bytes);
        match (lines.next(), lines.next(), lines.next(), lines.next()) {
            (Some(inside), Some(git_dir), Some(common_dir), Some(root))
                if output.ok() && inside == "true" =>
            {
                Ok(Some(Self {
                    root: root.into(),
                    git_dir: git_dir.into(),
                    // Printed relative to the folder where git ran, unless it is elsewhere.
                    common_dir: start.join(common_dir).canonicalize().map_err(|error| {
                        Error::io("cannot read", &start.join(common_dir), &error)
                    })?,
                    environment: Vec::new(),
                    timeout: TIMEOUT,
                    excluded: String::new(),
                    trailer_prefix: "",
                    agent: ("helmdeck", "helmdeck@localhost"),
                    hash_bytes: OnceLock::new(),
                    code_trees: Arc::default(),
                }))
            }
            (Some(inside), ..) if inside == "false" => {
                let message = format!(
                    "{} is inside a repository of git, but in no work tree",
                    start.display()
                );
                Err(Error::new(Kind::Refused, "E_BARE_REPO", message))
            }
            _ if output.stderr.contains("not a git repository") => Ok(None),
            _ => Err(complaint(&args, &output)),
        }
    }

    /// Sets a variable for every run, in addition to those of the process.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the default time limit of a run; 60 seconds by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// Excludes a folder below the root of the work tree: its files are not code.
    ///
    /// The folder around it is the scope: statuses, changes, patches and code trees are about
    /// nothing else.
    #[must_use]
    pub fn excluding(mut self, folder: impl Into<String>) -> Self {
        self.excluded = folder.into();
        self.code_trees = Arc::default();
        self
    }

    /// Returns the excluded folder; empty if there is none.
    #[must_use]
    pub fn excluded(&self) -> &str {
        &self.excluded
    }

    /// Returns the scope: the folder around the excluded one, below the root of the work tree;
    /// empty for all of it.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.excluded
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder)
    }

    /// Returns the pathspecs of the scope.
    #[must_use]
    pub fn scope_pathspecs(&self) -> Vec<String> {
        let scope = if self.scope().is_empty() {
            ":/".to_owned()
        } else {
            format!(":(top,literal){}", self.scope())
        };
        let excluded =
            (!self.excluded.is_empty()).then(|| format!(":(exclude,top,literal){}", self.excluded));
        std::iter::once(scope).chain(excluded).collect()
    }

    /// Reads trailers with this prefix in any paragraph of a message.
    ///
    /// A squash leaves several blocks of trailers.
    #[must_use]
    pub const fn trailers_anywhere(mut self, prefix: &'static str) -> Self {
        self.trailer_prefix = prefix;
        self
    }

    pub(crate) const fn trailer_prefix(&self) -> &'static str {
        self.trailer_prefix
    }

    /// Sets the identity of commits without a user identity, and of [`Git::commit_tree`].
    #[must_use]
    pub const fn agent(mut self, name: &'static str, email: &'static str) -> Self {
        self.agent = (name, email);
        self
    }

    pub(crate) fn with_options_of(mut self, other: &Self) -> Self {
        self.environment.clone_from(&other.environment);
        self.timeout = other.timeout;
        self.excluded.clone_from(&other.excluded);
        self.trailer_prefix = other.trailer_prefix;
        self.agent = other.agent;
        self
    }

    /// Returns the root of the work tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns git's folder of this work tree.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns git's folder for all work trees.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Runs git to its end, with any exit code.
    ///
    /// Messages are English. No variable redirects git, and it never prompts.
    ///
    /// # Errors
    /// `E_NO_GIT`, `E_TIMEOUT`, `E_TOO_LARGE`; `E_GIT` if it cannot be started.
    pub fn run(&self, args: &[&str], options: &Run) -> Result<Output> {
        run::run(&self.root, &self.environment, self.timeout, args, options)
    }

    /// Runs git. Any exit code but 0 is an error.
    ///
    /// # Errors
    /// As [`Git::run`]; `E_GIT` with git's own message if it exits with another code.
    pub fn succeed(&self, args: &[&str], options: &Run) -> Result<Output> {
        let output = self.run(args, options)?;
        if output.ok() {
            Ok(output)
        } else {
            Err(complaint(args, &output))
        }
    }

    /// Runs git with the default options. Any exit code but 0 is an error.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn read(&self, args: &[&str]) -> Result<Output> {
        self.succeed(args, &Run::default())
    }

    /// Returns the commit that is checked out; `None` before the first.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn head(&self) -> Result<Option<Oid>> {
        self.resolve("HEAD")
    }

    /// Returns the branch that is checked out, which may have no commit yet; `None` if `HEAD` is
    /// detached.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn branch(&self) -> Result<Option<String>> {
        let output = self.run(&["symbolic-ref", "--quiet", "HEAD"], &Run::default())?;
        Ok(output
            .text()
            .strip_prefix("refs/heads/")
            .map(ToOwned::to_owned)
            .filter(|_| output.ok()))
    }

    /// Resolves a name to a commit: a branch, a tag, `HEAD~2`, the first digits of an id.
    ///
    /// `None` if the commit does not exist.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn resolve(&self, name: &str) -> Result<Option<Oid>> {
        let name = format!("{name}^{{commit}}");
        let output = self.run(
            &[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &name,
            ],
            &Run::default(),
        )?;
        Ok(Oid::parse(&output.text()).filter(|_| output.ok()))
    }

    /// Returns the operation in progress.
    ///
    /// # Errors
    /// None at present; unreadable files count as absent.
    pub fn operation(&self) -> Result<Option<Operation>> {
        let has = |name: &str| self.git_dir.join(name).exists();
        Ok(if has("rebase-apply/applying") {
            Some(Operation::Apply)
        } else if has("rebase-merge") || has("rebase-apply") {
            Some(Operation::Rebase)
        } else if has("MERGE_HEAD") {
            Some(Operation::Merge)
        } else if has("CHERRY_PICK_HEAD") {
            Some(Operation::CherryPick)
        } else if has("REVERT_HEAD") {
            Some(Operation::Revert)
        } else if has("sequencer/todo") {
            // Between two commits of a sequence, only the list of remaining commits shows it.
            let todo = fs::read_to_string(self.git_dir.join("sequencer/todo")).unwrap_or_default();
            Some(if todo.starts_with("revert") {
                Operation::Revert
            } else {
                Operation::CherryPick
            })
        } else if has("BISECT_LOG") {
            Some(Operation::Bisect)
        } else {
            None
        })
    }

    /// Returns the time since which the index is locked.
    ///
    /// A lock that is minutes old comes from a git that was killed.
    ///
    /// # Errors
    /// `E_IO` if the lock cannot be read.
    pub fn index_locked_since(&self) -> Result<Option<Timestamp>> {
        let path = self.git_dir.join("index.lock");
        let modified = match fs::symlink_metadata(&path).and_then(|data| data.modified()) {
            Ok(modified) => modified,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("cannot read", &path, &error)),
        };
        let since = modified
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_micros();
        Ok(Some(Timestamp(i64::try_from(since).unwrap_or(i64::MAX))))
    }

    /// Says whether `a` is `b` or one of its ancestors. An unknown commit is not an ancestor.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn is_ancestor(&self, a: &Oid, b: &Oid) -> Result<bool> {
        Ok(self
            .run(
                &["merge-base", "--is-ancestor", a.as_str(), b.as_str()],
                &Run::default(),
            )?
            .ok())
    }

    /// Returns the best common ancestor of two commits; `None` if they have none.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn merge_base(&self, a: &Oid, b: &Oid) -> Result<Option<Oid>> {
        let output = self.run(&["merge-base", a.as_str(), b.as_str()], &Run::default())?;
        Ok(Oid::parse(&output.text()))
    }

    /// Returns the number of commits that only `a` has, and that only `b` has: ahead and behind.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn ahead_behind(&self, a: &Oid, b: &Oid) -> Result<(u64, u64)> {
        let range = format!("{a}...{b}");
        let args = [
            "rev-list",
            "--left-right",
            "--count",
            "--end-of-options",
            &range,
            "--",
        ];
        let output = self.read(&args)?;
        let text = output.text();
        let mut counts = text.split_ascii_whitespace().map(str::parse);
        match (counts.next(), counts.next()) {
            (Some(Ok(ahead)), Some(Ok(behind))) => Ok((ahead, behind)),
            _ => Err(complaint(&args, &output)),
        }
    }

    /// Returns the number of commits in a range, such as `a..b`.
    ///
    /// # Errors
    /// As [`Git::succeed`]; `E_GIT` if the range has an unknown name.
    pub fn count(&self, range: &str) -> Result<u64> {
        let args = ["rev-list", "--count", "--end-of-options", range, "--"];
        let output = self.read(&args)?;
        output.text().parse().map_err(|_| complaint(&args, &output))
    }

    /// Returns the root commit of `HEAD`. `None` before the first commit.
    ///
    /// If there are several, it is the one with the smallest id.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn root_commit(&self) -> Result<Option<Oid>> {
        let output = self.run(
            &["rev-list", "--max-parents=0", "HEAD", "--"],
            &Run::default(),
        )?;
        Ok(output.text().lines().filter_map(Oid::parse).min())
    }

    /// Returns a setting; `None` if it is not set.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn setting(&self, name: &str) -> Result<Option<String>> {
        let output = self.run(&["config", "--get", name], &Run::default())?;
        Ok(output.ok().then(|| output.text()))
    }

    /// Sets a setting of this repository.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn set_setting(&self, name: &str, value: &str) -> Result<()> {
        self.succeed(&["config", "--local", name, value], &Run::writing())
            .map(drop)
    }

    /// Returns variables with the identity of the agent for the roles that git has none for.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn identity(&self) -> Result<Vec<(String, OsString)>> {
        let mut variables = Vec::new();
        for role in ["AUTHOR", "COMMITTER"] {
            let who = format!("GIT_{role}_IDENT");
            // Without this setting, git makes up an address from the host name.
            let output = self.run(
                &["-c", "user.useConfigOnly=true", "var", &who],
                &Run::default(),
            )?;
            if !output.ok() {
                variables.extend(self.agent_as(role));
            }
        }
        Ok(variables)
    }

    /// Returns the variables of a role (`AUTHOR`, `COMMITTER`) for the agent.
    pub(crate) fn agent_as(&self, role: &str) -> [(String, OsString); 2] {
        let (name, email) = self.agent;
        [
            (format!("GIT_{role}_NAME"), name.into()),
            (format!("GIT_{role}_EMAIL"), email.into()),
        ]
    }
}

/// Makes an error of a failed run, from the last error line of git.
#[must_use]
pub fn complaint(args: &[&str], output: &Output) -> Error {
    let said = output
        .stderr
        .lines()
        .rfind(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    // Hints of git may recommend commands that destroy something.
    let last = || {
        output
            .stderr
            .lines()
            .rfind(|line| !line.starts_with("hint:"))
    };
    let said = said.or_else(last).unwrap_or("nothing is said why");
    let status = output
        .status
        .map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}"));
    run::failed(args, format!("failed ({status}): {said}"))
}

#[cfg(test)]
mod tests;
