//! A repository with a work tree: where it lies, what is checked out, and how its commits hang together.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::oid::Oid;
use super::run::{self, Output, Run};
use crate::error::{Category, Error, Result};
use crate::layout;
use crate::time::Time;

/// How long a run may take unless something else is said.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest anybody may ask for.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A repository with a work tree.
#[derive(Debug, Clone)]
pub struct Git {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    environment: Vec<(String, OsString)>,
    timeout: Duration,
    longest: Option<Duration>,
    memory: String,
    /// How many bytes the name of an object has, once somebody asked: it never changes.
    pub(super) hash_bytes: OnceLock<usize>,
}

/// Something that git is in the middle of.
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
    /// Returns its name, as git's own command has it.
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
    /// Finds the repository that a folder is in. `None` if it is in none; git is then not even started.
    ///
    /// # Errors
    /// `E_BARE_REPO` (refused) if it has no work tree; `E_NO_GIT` if git is not installed; `E_GIT` if git will not read it.
    pub fn find(start: &Path) -> Result<Option<Self>> {
        let start = start.canonicalize().map_err(|error| Error::io("cannot read", start, &error))?;
        let is_bare = |folder: &Path| {
            folder.join("HEAD").is_file() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
        };
        if !start.ancestors().any(|folder| folder.join(".git").exists() || is_bare(folder)) {
            return Ok(None);
        }
        let args = ["rev-parse", "--is-inside-work-tree", "--absolute-git-dir", "--git-common-dir", "--show-toplevel"];
        let output = run::run(&start, &[], (TIMEOUT, None), &args, &Run::default())?;
        // A path need not be text.
        let mut lines = output.stdout.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
        match (lines.next(), lines.next(), lines.next(), lines.next()) {
            (Some(inside), Some(git_dir), Some(common_dir), Some(root)) if output.ok() && inside == "true" => {
                Ok(Some(Self {
                    root: root.into(),
                    git_dir: git_dir.into(),
                    // Printed relative to where git ran, unless it lies elsewhere.
                    common_dir: start
                        .join(common_dir)
                        .canonicalize()
                        .map_err(|error| Error::io("cannot read", &start.join(common_dir), &error))?,
                    environment: Vec::new(),
                    timeout: TIMEOUT,
                    longest: None,
                    memory: layout::FORGE.to_owned(),
                    hash_bytes: OnceLock::new(),
                }))
            }
            (Some(inside), ..) if inside == "false" => {
                let message = format!("{} is inside a repository of git, but in no work tree", start.display());
                Err(Error::new(Category::Refused, "E_BARE_REPO", message)
                    .hint("a bare repository holds no memory: use one with a work tree, from within it"))
            }
            _ if output.stderr.contains("not a git repository") => Ok(None),
            _ => Err(complaint(&args, &output)),
        }
    }

    /// Sets a variable of every run, besides those of the process.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets how long a run may take for which nothing else is said; 60 seconds by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// Lets nothing take longer than this, whatever it is, and whatever it usually may: for who has to end soon.
    #[must_use]
    pub(crate) fn hurried(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Sets the folder of the memory, below the root of the work tree; `.forge` unless said otherwise.
    #[must_use]
    pub fn with_memory(mut self, folder: impl Into<String>) -> Self {
        self.memory = folder.into();
        self
    }

    /// Returns the folder of the memory, below the root of the work tree: what is in it is no code.
    #[must_use]
    pub fn memory(&self) -> &str {
        &self.memory
    }

    /// Returns where a file of the memory lies below the root of the work tree: `.forge/x` is `sub/.forge/x` in a project below `sub`.
    #[must_use]
    pub fn in_memory(&self, path: &str) -> String {
        let rest = path.strip_prefix(layout::FORGE).unwrap_or(path);
        format!("{}{rest}", self.memory)
    }

    /// Says whether a path below the root of the work tree lies in the memory.
    #[must_use]
    pub fn is_memory(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.memory.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Returns a path below the root of the work tree as the project has it; `None` if it lies outside of the project.
    #[must_use]
    pub fn in_project<'a>(&self, path: &'a str) -> Option<&'a str> {
        let folder = self.memory.strip_suffix(layout::FORGE).unwrap_or_default();
        path.strip_prefix(folder)
    }

    /// Returns where a path of the project lies below the root of the work tree: `a` is `sub/a` in a project below `sub`.
    #[must_use]
    pub fn of_project(&self, path: &str) -> String {
        format!("{}{path}", self.memory.strip_suffix(layout::FORGE).unwrap_or_default())
    }

    pub(super) fn with_variables_of(mut self, other: &Self) -> Self {
        self.environment.clone_from(&other.environment);
        self.timeout = other.timeout;
        self.memory.clone_from(&other.memory);
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

    /// Returns git's folder that all work trees share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Runs git to its end, whatever it exits with. Its messages are English, no variable sends it elsewhere, it asks nobody anything.
    ///
    /// # Errors
    /// `E_NO_GIT`, `E_TIMEOUT`, `E_TOO_LARGE`; `E_GIT` if it cannot be started.
    pub fn run(&self, args: &[&str], options: &Run) -> Result<Output> {
        run::run(&self.root, &self.environment, (self.timeout, self.longest), args, options)
    }

    /// Runs git and wants it to succeed.
    ///
    /// # Errors
    /// As [`Git::run`]; `E_GIT` with what git said if it exits with anything but 0.
    pub fn succeed(&self, args: &[&str], options: &Run) -> Result<Output> {
        let output = self.run(args, options)?;
        if output.ok() { Ok(output) } else { Err(complaint(args, &output)) }
    }

    /// Reads: runs git with the usual limits, and wants it to succeed.
    pub(super) fn read(&self, args: &[&str]) -> Result<Output> {
        self.succeed(args, &Run::default())
    }

    /// Returns the commit that is checked out; `None` before the first.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn head(&self) -> Result<Option<Oid>> {
        self.resolve("HEAD")
    }

    /// Returns the branch that is checked out, which need not have a commit; `None` if it is none.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn branch(&self) -> Result<Option<String>> {
        let output = self.run(&["symbolic-ref", "--quiet", "HEAD"], &Run::default())?;
        Ok(output.text().strip_prefix("refs/heads/").map(ToOwned::to_owned).filter(|_| output.ok()))
    }

    /// Returns the commit that a name stands for: a branch, a tag, `HEAD~2`, the first digits of a commit. `None` if it is not here.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn resolve(&self, name: &str) -> Result<Option<Oid>> {
        let name = format!("{name}^{{commit}}");
        let output = self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name], &Run::default())?;
        Ok(Oid::parse(&output.text()).filter(|_| output.ok()))
    }

    /// Returns what git is in the middle of.
    ///
    /// # Errors
    /// None now; files that cannot be looked at count as absent.
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
            // Between two commits of a sequence, only the list of what is to come says so.
            let todo = fs::read_to_string(self.git_dir.join("sequencer/todo")).unwrap_or_default();
            Some(if todo.starts_with("revert") { Operation::Revert } else { Operation::CherryPick })
        } else if has("BISECT_LOG") {
            Some(Operation::Bisect)
        } else {
            None
        })
    }

    /// Returns since when the index is locked; `None` if it is not. A lock of minutes was left behind by a git that was killed.
    ///
    /// # Errors
    /// `E_IO` if the lock cannot be looked at.
    pub fn index_locked_since(&self) -> Result<Option<Time>> {
        let path = self.git_dir.join("index.lock");
        let modified = match fs::symlink_metadata(&path).and_then(|data| data.modified()) {
            Ok(modified) => modified,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("cannot read", &path, &error)),
        };
        Ok(jiff::Timestamp::try_from(modified).ok().map(Time))
    }

    /// Says whether `a` is `b` or one of its ancestors. A commit that is not here is nobody's ancestor.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn is_ancestor(&self, a: &Oid, b: &Oid) -> Result<bool> {
        Ok(self.run(&["merge-base", "--is-ancestor", a.as_str(), b.as_str()], &Run::default())?.ok())
    }

    /// Returns the best common ancestor; `None` if there is none.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn merge_base(&self, a: &Oid, b: &Oid) -> Result<Option<Oid>> {
        let output = self.run(&["merge-base", a.as_str(), b.as_str()], &Run::default())?;
        Ok(output.text().lines().next().and_then(Oid::parse).filter(|_| output.ok()))
    }

    /// Returns how many commits `a` has that `b` has not, and the other way round: ahead and behind.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn ahead_behind(&self, a: &Oid, b: &Oid) -> Result<(u64, u64)> {
        let range = format!("{a}...{b}");
        let args = ["rev-list", "--left-right", "--count", "--end-of-options", &range, "--"];
        let output = self.read(&args)?;
        let text = output.text();
        let mut counts = text.split_ascii_whitespace().map(str::parse);
        match (counts.next(), counts.next()) {
            (Some(Ok(ahead)), Some(Ok(behind))) => Ok((ahead, behind)),
            _ => Err(complaint(&args, &output)),
        }
    }

    /// Returns how many commits a range has, `a..b` for example.
    ///
    /// # Errors
    /// What [`Git::succeed`] says, so if the range names something that is not here.
    pub fn count(&self, range: &str) -> Result<u64> {
        let args = ["rev-list", "--count", "--end-of-options", range, "--"];
        let output = self.read(&args)?;
        output.text().parse().map_err(|_| complaint(&args, &output))
    }

    /// Returns how many commits of a range are work: those by which a session only keeps its memory are not.
    ///
    /// # Errors
    /// As [`Git::count`].
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
        let output = self.read(&args)?;
        output.text().parse().map_err(|_| complaint(&args, &output))
    }

    /// Returns the first commit of the history of `HEAD`; the smallest name if there are several. `None` before the first commit.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn root_commit(&self) -> Result<Option<Oid>> {
        let output = self.run(&["rev-list", "--max-parents=0", "HEAD", "--"], &Run::default())?;
        Ok(output.text().lines().filter_map(Oid::parse).min())
    }

    /// Returns a setting; `None` if it is not set.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn setting(&self, name: &str) -> Result<Option<String>> {
        let output = self.run(&["config", "--get", name], &Run::default())?;
        Ok(output.ok().then(|| output.text()))
    }

    /// Sets a setting of this repository.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn set_setting(&self, name: &str, value: &str) -> Result<()> {
        self.succeed(&["config", "--local", name, value], &Run::writing()).map(drop)
    }

    /// Returns the variables for who commits: none if git is told who, else those of the agent.
    pub(super) fn identity(&self) -> Result<Vec<(String, OsString)>> {
        let mut variables = Vec::new();
        for role in ["AUTHOR", "COMMITTER"] {
            let who = format!("GIT_{role}_IDENT");
            // Without this, git makes up an address from the name of the machine.
            let output = self.run(&["-c", "user.useConfigOnly=true", "var", &who], &Run::default())?;
            if !output.ok() {
                variables.extend(agent(role));
            }
        }
        Ok(variables)
    }
}

/// Returns the variables of a role (`AUTHOR`, `COMMITTER`) that is played by the agent.
pub(super) fn agent(role: &str) -> [(String, OsString); 2] {
    [(format!("GIT_{role}_NAME"), "forge-agent".into()), (format!("GIT_{role}_EMAIL"), "forge-agent@localhost".into())]
}

/// Makes an error of what git said.
pub(super) fn complaint(args: &[&str], output: &Output) -> Error {
    let said = output.stderr.lines().rfind(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    // What git advises may well destroy something.
    let last = || output.stderr.lines().rfind(|line| !line.starts_with("hint:"));
    let said = said.or_else(last).unwrap_or("nothing is said why");
    let status = output.status.map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}"));
    run::failed(args, format!("failed ({status}): {said}"))
}

#[cfg(test)]
mod tests;
