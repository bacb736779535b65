//! Names of commits: branches, what others call a base, and references of our own.

use std::time::Duration;

use serde::Serialize;

use super::oid::Oid;
use super::repository::{Git, complaint};
use super::run::Run;
use crate::error::{Error, Result};
use crate::time::Time;

/// What came of the change of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// It is done.
    Done,
    /// The reference does not hold what was expected; nothing changed.
    Differs,
}

/// A local branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Its name, without `refs/heads/`.
    pub name: String,
    /// Its commit.
    pub oid: Oid,
    /// The branch that it follows (`origin/main`), which need not be here any more.
    pub upstream: Option<String>,
    /// When its commit was committed.
    pub time: Time,
    /// The work tree in which it is checked out.
    pub worktree: Option<String>,
}

impl Git {
    /// Creates, moves or, with `to` = `None`, drops a reference, if it holds what is expected; `None` expects that there is none.
    ///
    /// # Errors
    /// `E_GIT` if the reference's name is no good or it cannot be written.
    pub fn update_ref(&self, name: &str, to: Option<&Oid>, expected: Option<&Oid>, message: &str) -> Result<Updated> {
        let verb = match (to, expected) {
            (Some(to), Some(expected)) => format!("update {name}\0{to}\0{expected}\0"),
            (Some(to), None) => format!("create {name}\0{to}\0"),
            (None, Some(expected)) => format!("delete {name}\0{expected}\0"),
            (None, None) => return Ok(Updated::Done),
        };
        let args = ["-c", "core.fsync=all", "update-ref", "-m", message, "-z", "--stdin"];
        let output = self.run(&args, &Run::writing().stdin(verb))?;
        if output.ok() {
            return Ok(Updated::Done);
        }
        if self.reference(name)?.as_ref() == expected { Err(complaint(&args, &output)) } else { Ok(Updated::Differs) }
    }

    /// Returns what a reference holds, by its full name (`refs/heads/main`); `None` if there is none.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn reference(&self, name: &str) -> Result<Option<Oid>> {
        let output = self.run(&["show-ref", "--verify", "--hash", "--", name], &Run::default())?;
        Ok(Oid::parse(&output.text()).filter(|_| output.ok()))
    }

    /// Returns the references whose full name begins so (`refs/forge/rescue/`), in the order of their names.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn references(&self, prefix: &str) -> Result<Vec<(String, Oid)>> {
        let output = self.read(&["for-each-ref", "--format=%(objectname) %(refname)", "--", prefix])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let refs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(refs.filter_map(|(oid, name)| Some((name.to_owned(), Oid::parse(oid)?))).collect())
    }

    /// Says whether git takes a name for a reference (`refs/tags/checkpoint/X-1-v1`).
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn is_reference_name(&self, name: &str) -> Result<bool> {
        Ok(!name.starts_with('-') && self.run(&["check-ref-format", name], &Run::default())?.ok())
    }

    /// Makes a branch at a commit, without checking it out.
    ///
    /// # Errors
    /// `E_REFUSED` if there is one of that name; `E_GIT` if the name is no good.
    pub fn create_branch(&self, name: &str, at: &Oid) -> Result<()> {
        let full = format!("refs/heads/{name}");
        if !self.is_reference_name(&full)? {
            return Err(Error::usage(format!("{name:?} is no name of a branch")));
        }
        match self.update_ref(&full, Some(at), None, "forge: branch")? {
            Updated::Done => Ok(()),
            Updated::Differs => Err(Error::refused(format!("there is a branch {name} already"))),
        }
    }

    /// Checks a branch out. git refuses where that would lose a change.
    ///
    /// # Errors
    /// `E_GIT` if git refuses.
    pub fn switch(&self, branch: &str) -> Result<()> {
        let run = Run::writing().timeout(Duration::from_secs(600));
        self.succeed(&["switch", "--quiet", "--no-guess", "--end-of-options", branch], &run).map(drop)
    }

    /// Returns the branches, in the order of their names.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn branches(&self) -> Result<Vec<Branch>> {
        let format =
            "--format=%(refname)%00%(objectname)%00%(upstream:short)%00%(committerdate:unix)%00%(worktreepath)%00";
        let output = self.read(&["for-each-ref", format, "refs/heads/"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<&str> = text.split('\0').collect();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let branches = fields.chunks_exact(5).filter_map(|fields| {
            Some(Branch {
                name: fields[0].trim_start().strip_prefix("refs/heads/")?.to_owned(),
                oid: Oid::parse(fields[1])?,
                upstream: some(fields[2]),
                time: Time(jiff::Timestamp::from_second(fields[3].parse().ok()?).ok()?),
                worktree: some(fields[4]),
            })
        });
        Ok(branches.collect())
    }

    /// Returns what other branches are measured against, with its commit: the one that is named if any, else the first there is of
    /// `origin/main`, `main` and what `origin/HEAD` stands for.
    ///
    /// # Errors
    /// What [`Git::run`] says. A name that is not here is `None`, as no base is.
    pub fn base(&self, named: Option<&str>) -> Result<Option<(String, Oid)>> {
        let usual = ["refs/remotes/origin/main", "refs/heads/main", "refs/remotes/origin/HEAD"];
        for name in named.as_ref().map_or(&usual[..], std::slice::from_ref) {
            if let Some(oid) = self.resolve(name)? {
                let short = name.trim_start_matches("refs/heads/").trim_start_matches("refs/remotes/");
                return Ok(Some((short.to_owned(), oid)));
            }
        }
        Ok(None)
    }

    /// Returns the remotes.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn remotes(&self) -> Result<Vec<String>> {
        Ok(self.read(&["remote"])?.text().lines().map(ToOwned::to_owned).collect())
    }

    /// Returns the remote to talk to if nobody names one: `origin`, or the only one.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn default_remote(&self) -> Result<Option<String>> {
        let mut remotes = self.remotes()?;
        Ok(match remotes.iter().position(|remote| remote == "origin") {
            Some(at) => Some(remotes.swap_remove(at)),
            None if remotes.len() == 1 => remotes.pop(),
            None => None,
        })
    }

    /// Says whether the history of this clone is cut off somewhere.
    #[must_use]
    pub fn is_shallow(&self) -> bool {
        self.common_dir().join("shallow").exists()
    }

    /// Returns the command that fetches the tags of checkpoints, and in a shallow clone the history that leads to them. Without a remote
    /// there is nothing to fetch: then it is the command that makes a new checkpoint.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn fetch_checkpoints(&self) -> Result<String> {
        let plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        Ok(match self.default_remote()?.filter(plain) {
            Some(remote) if self.is_shallow() => format!("git fetch --unshallow --tags {remote}"),
            Some(remote) => format!("git fetch {remote} 'refs/tags/checkpoint/*:refs/tags/checkpoint/*'"),
            None => "helmdeck forge checkpoint create".to_owned(),
        })
    }

    /// Asks a remote for its tags whose name begins so (`checkpoint/`). Nobody is asked for a password.
    ///
    /// # Errors
    /// `E_TIMEOUT`; `E_GIT` if the remote cannot be reached.
    pub fn remote_tags(&self, remote: &str, prefix: &str, timeout: Duration) -> Result<Vec<String>> {
        let pattern = format!("refs/tags/{prefix}*");
        let run = Run::default().timeout(timeout);
        let output = self.succeed(&["ls-remote", "--refs", "--tags", "--end-of-options", remote, &pattern], &run)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.split_once('\t')?.1.strip_prefix("refs/tags/"));
        Ok(names.filter(|name| name.starts_with(prefix)).map(ToOwned::to_owned).collect())
    }

    /// Pushes a tag, and nothing else. A remote that has another tag of that name keeps it.
    ///
    /// # Errors
    /// `E_TIMEOUT`; `E_GIT` if the remote refuses or cannot be reached.
    pub fn push_tag(&self, remote: &str, tag: &str, timeout: Duration) -> Result<()> {
        let spec = format!("refs/tags/{tag}:refs/tags/{tag}");
        let args = ["push", "--quiet", "--no-follow-tags", "--end-of-options", remote, &spec];
        self.succeed(&args, &Run::writing().timeout(timeout).with_hooks()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Repository, run_at};
    use super::*;

    #[test]
    fn a_reference_changes_only_from_what_is_expected() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        let second = repository.commit("second");
        let name = "refs/forge/rescue/s/1";
        assert_eq!(git.update_ref(name, Some(&first), None, "m").unwrap(), Updated::Done);
        assert_eq!(git.update_ref(name, Some(&second), None, "m").unwrap(), Updated::Differs);
        assert_eq!(git.update_ref(name, Some(&first), Some(&second), "m").unwrap(), Updated::Differs);
        assert_eq!(git.reference(name).unwrap(), Some(first.clone()));
        assert_eq!(git.update_ref(name, Some(&second), Some(&first), "m").unwrap(), Updated::Done);
        assert_eq!(git.references("refs/forge/").unwrap(), [(name.to_owned(), second.clone())]);
        assert_eq!(git.update_ref(name, None, Some(&first), "m").unwrap(), Updated::Differs);
        assert_eq!(git.update_ref(name, None, Some(&second), "m").unwrap(), Updated::Done);
        assert_eq!(git.reference(name).unwrap(), None);
        assert_eq!(git.update_ref("refs/forge/a..b", Some(&first), None, "m").unwrap_err().code, "E_GIT");
    }

    #[test]
    fn branches_are_listed_with_what_they_follow() {
        let origin = Repository::new();
        let first = origin.commit("first");
        let folder = tempfile::tempdir().unwrap();
        run_at(folder.path(), &["clone", "--quiet", origin.path().to_str().unwrap(), "clone"]);
        let git = Repository::git_at(&folder.path().join("clone"));
        git.create_branch("feature/X-1-a", &first).unwrap();
        assert_eq!(git.create_branch("feature/X-1-a", &first).unwrap_err().code, "E_REFUSED");
        assert_eq!(git.create_branch("a..b", &first).unwrap_err().code, "E_USAGE");
        let branches = git.branches().unwrap();
        let short: Vec<_> = branches.iter().map(|branch| (branch.name.as_str(), branch.upstream.as_deref())).collect();
        assert_eq!(short, [("feature/X-1-a", None), ("main", Some("origin/main"))]);
        assert!(branches[0].worktree.is_none() && branches[1].worktree.is_some());
        assert_eq!(git.base(None).unwrap(), Some(("origin/main".to_owned(), first)));
        assert_eq!(git.base(Some("feature/X-1-a")).unwrap().unwrap().0, "feature/X-1-a");
        assert_eq!(git.base(Some("gone")).unwrap(), None);
        git.switch("feature/X-1-a").unwrap();
        assert_eq!(git.branch().unwrap().as_deref(), Some("feature/X-1-a"));
    }

    #[test]
    fn tags_go_to_a_remote_and_are_seen_there() {
        let origin = Repository::new();
        let first = origin.commit("first");
        let folder = tempfile::tempdir().unwrap();
        run_at(folder.path(), &["clone", "--quiet", origin.path().to_str().unwrap(), "clone"]);
        let git = Repository::git_at(&folder.path().join("clone"));
        let limit = Duration::from_secs(30);
        assert_eq!(git.remotes().unwrap(), ["origin"]);
        git.create_tag("checkpoint/X-1-v1", &first, "one").unwrap();
        git.create_tag("checkpoint/X-1-v2", &first, "two").unwrap();
        git.push_tag("origin", "checkpoint/X-1-v2", limit).unwrap();
        assert_eq!(git.remote_tags("origin", "checkpoint/X-1-v", limit).unwrap(), ["checkpoint/X-1-v2"]);
        assert_eq!(git.remote_tags("nowhere", "checkpoint/", limit).unwrap_err().code, "E_GIT");
    }
}
