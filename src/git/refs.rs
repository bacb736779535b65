//! References, branches and remotes.

use std::time::Duration;

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::{Git, complaint};
use crate::run::Run;
use helmdeck_core::Timestamp;

/// The result of a change of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// It is done.
    Done,
    /// The reference has another value than expected; nothing changed.
    Differs,
}

/// A local branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its name, without `refs/heads/`.
    pub name: String,
    /// Its commit.
    pub oid: Oid,
    /// Its upstream (`origin/main`), which may no longer exist.
    pub upstream: Option<String>,
    /// The committer time of its commit.
    pub time: Timestamp,
    /// The work tree in which it is checked out.
    pub worktree: Option<String>,
}

impl Git {
    /// Sets a reference if it has the expected value, or deletes it with `to` = `None`.
    ///
    /// `expected` = `None` expects that it does not exist.
    ///
    /// # Errors
    /// `E_GIT` if the name is invalid or it cannot be written.
    pub fn update_ref(
        &self,
        name: &str,
        to: Option<&Oid>,
        expected: Option<&Oid>,
        message: &str,
    ) -> Result<Updated> {
        let verb = match (to, expected) {
            (Some(to), Some(expected)) => format!("update {name}\0{to}\0{expected}\0"),
            (Some(to), None) => format!("create {name}\0{to}\0"),
            (None, Some(expected)) => format!("delete {name}\0{expected}\0"),
            (None, None) => return Ok(Updated::Done),
        };
        let args = [
            "-c",
            "core.fsync=all",
            "update-ref",
            "-m",
            message,
            "-z",
            "--stdin",
        ];
        let output = self.run(&args, &Run::writing().stdin(verb))?;
        if output.ok() {
            return Ok(Updated::Done);
        }
        if self.reference(name)?.as_ref() == expected {
            Err(complaint(&args, &output))
        } else {
            Ok(Updated::Differs)
        }
    }

    /// Returns the value of a reference, by its full name (`refs/heads/main`); `None` if it does
    /// not exist.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn reference(&self, name: &str) -> Result<Option<Oid>> {
        let output = self.run(
            &["show-ref", "--verify", "--hash", "--", name],
            &Run::default(),
        )?;
        Ok(Oid::parse(&output.text()).filter(|_| output.ok()))
    }

    /// Returns the references with a prefix (`refs/tags/`), sorted by name.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn references(&self, prefix: &str) -> Result<Vec<(String, Oid)>> {
        let output = self.read(&[
            "for-each-ref",
            "--format=%(objectname) %(refname)",
            "--",
            prefix,
        ])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let refs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(refs
            .filter_map(|(oid, name)| Some((name.to_owned(), Oid::parse(oid)?)))
            .collect())
    }

    /// Says whether a name is valid for a reference (`refs/tags/checkpoint/X-1-v1`).
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn is_reference_name(&self, name: &str) -> Result<bool> {
        Ok(!name.starts_with('-') && self.run(&["check-ref-format", name], &Run::default())?.ok())
    }

    /// Returns the branches, sorted by name.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn branches(&self) -> Result<Vec<Branch>> {
        let format = "--format=%(refname)%00%(objectname)%00%(upstream:short)%00%(committerdate:unix)%00%(worktreepath)%00";
        let output = self.read(&["for-each-ref", format, "refs/heads/"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<&str> = text.split('\0').collect();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let branches = fields.chunks_exact(5).filter_map(|fields| {
            Some(Branch {
                name: fields[0]
                    .trim_start()
                    .strip_prefix("refs/heads/")?
                    .to_owned(),
                oid: Oid::parse(fields[1])?,
                upstream: some(fields[2]),
                time: crate::log::seconds(fields[3].parse().ok()?),
                worktree: some(fields[4]),
            })
        });
        Ok(branches.collect())
    }

    /// Returns the base that branches are compared with, and its commit.
    ///
    /// It is the named one, or the first that exists of `origin/main`, `main` and `origin/HEAD`.
    ///
    /// # Errors
    /// As [`Git::run`]. An unknown name is `None`.
    pub fn base(&self, named: Option<&str>) -> Result<Option<(String, Oid)>> {
        let usual = [
            "refs/remotes/origin/main",
            "refs/heads/main",
            "refs/remotes/origin/HEAD",
        ];
        for name in named.as_ref().map_or(&usual[..], std::slice::from_ref) {
            if let Some(oid) = self.resolve(name)? {
                let short = name
                    .trim_start_matches("refs/heads/")
                    .trim_start_matches("refs/remotes/");
                return Ok(Some((short.to_owned(), oid)));
            }
        }
        Ok(None)
    }

    /// Returns the remotes.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn remotes(&self) -> Result<Vec<String>> {
        Ok(self
            .read(&["remote"])?
            .text()
            .lines()
            .map(ToOwned::to_owned)
            .collect())
    }

    /// Returns the default remote: `origin`, or the only one.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn default_remote(&self) -> Result<Option<String>> {
        let mut remotes = self.remotes()?;
        Ok(match remotes.iter().position(|remote| remote == "origin") {
            Some(at) => Some(remotes.swap_remove(at)),
            None if remotes.len() == 1 => remotes.pop(),
            None => None,
        })
    }

    /// Says whether this is a shallow clone.
    #[must_use]
    pub fn is_shallow(&self) -> bool {
        self.common_dir().join("shallow").exists()
    }

    /// Asks a remote for its tags with a prefix (`checkpoint/`). Never asks for a password.
    ///
    /// # Errors
    /// `E_TIMEOUT`; `E_GIT` if the remote cannot be reached.
    pub fn remote_tags(
        &self,
        remote: &str,
        prefix: &str,
        timeout: Duration,
    ) -> Result<Vec<String>> {
        let pattern = format!("refs/tags/{prefix}*");
        let run = Run::default().timeout(timeout);
        let output = self.succeed(
            &[
                "ls-remote",
                "--refs",
                "--tags",
                "--end-of-options",
                remote,
                &pattern,
            ],
            &run,
        )?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text
            .lines()
            .filter_map(|line| line.split_once('\t')?.1.strip_prefix("refs/tags/"));
        Ok(names
            .filter(|name| name.starts_with(prefix))
            .map(ToOwned::to_owned)
            .collect())
    }

    /// Pushes one tag. A remote that has another tag of that name keeps it.
    ///
    /// # Errors
    /// `E_TIMEOUT`; `E_GIT` if the remote refuses or cannot be reached.
    pub fn push_tag(&self, remote: &str, tag: &str, timeout: Duration) -> Result<()> {
        let spec = format!("refs/tags/{tag}:refs/tags/{tag}");
        let args = [
            "push",
            "--quiet",
            "--no-follow-tags",
            "--end-of-options",
            remote,
            &spec,
        ];
        self.succeed(&args, &Run::writing().timeout(timeout).with_hooks())
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Repository, run_at};

    #[test]
    fn reference_changes_only_from_the_expected_value() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        let second = repository.commit("second");
        let name = "refs/forge/rescue/s/1";
        assert_eq!(
            git.update_ref(name, Some(&first), None, "m").unwrap(),
            Updated::Done
        );
        assert_eq!(
            git.update_ref(name, Some(&second), None, "m").unwrap(),
            Updated::Differs
        );
        assert_eq!(
            git.update_ref(name, Some(&first), Some(&second), "m")
                .unwrap(),
            Updated::Differs
        );
        assert_eq!(git.reference(name).unwrap(), Some(first.clone()));
        assert_eq!(
            git.update_ref(name, Some(&second), Some(&first), "m")
                .unwrap(),
            Updated::Done
        );
        assert_eq!(
            git.references("refs/forge/").unwrap(),
            [(name.to_owned(), second.clone())]
        );
        assert_eq!(
            git.update_ref(name, None, Some(&first), "m").unwrap(),
            Updated::Differs
        );
        assert_eq!(
            git.update_ref(name, None, Some(&second), "m").unwrap(),
            Updated::Done
        );
        assert_eq!(git.reference(name).unwrap(), None);
        assert_eq!(
            git.update_ref("refs/forge/a..b", Some(&first), None, "m")
                .unwrap_err()
                .code,
            "E_GIT"
        );
    }

    #[test]
    fn branches_are_listed_with_upstreams() {
        let origin = Repository::new();
        let first = origin.commit("first");
        let folder = tempfile::tempdir().unwrap();
        run_at(
            folder.path(),
            &["clone", "--quiet", origin.path().to_str().unwrap(), "clone"],
        );
        let git = Repository::git_at(&folder.path().join("clone"));
        run_at(
            git.root(),
            &["branch", "--no-track", "feature/X-1-a", first.as_str()],
        );
        let branches = git.branches().unwrap();
        let short: Vec<_> = branches
            .iter()
            .map(|branch| (branch.name.as_str(), branch.upstream.as_deref()))
            .collect();
        assert_eq!(
            short,
            [("feature/X-1-a", None), ("main", Some("origin/main"))]
        );
        assert!(branches[0].worktree.is_none() && branches[1].worktree.is_some());
        assert_eq!(
            git.base(None).unwrap(),
            Some(("origin/main".to_owned(), first))
        );
        assert_eq!(
            git.base(Some("feature/X-1-a")).unwrap().unwrap().0,
            "feature/X-1-a"
        );
        assert_eq!(git.base(Some("gone")).unwrap(), None);
    }

    #[test]
    fn pushed_tags_are_listed_on_the_remote() {
        let origin = Repository::new();
        let first = origin.commit("first");
        let folder = tempfile::tempdir().unwrap();
        run_at(
            folder.path(),
            &["clone", "--quiet", origin.path().to_str().unwrap(), "clone"],
        );
        let git = Repository::git_at(&folder.path().join("clone"));
        let limit = Duration::from_secs(30);
        assert_eq!(git.remotes().unwrap(), ["origin"]);
        git.create_tag("checkpoint/X-1-v1", &first, "one").unwrap();
        git.create_tag("checkpoint/X-1-v2", &first, "two").unwrap();
        git.push_tag("origin", "checkpoint/X-1-v2", limit).unwrap();
        assert_eq!(
            git.remote_tags("origin", "checkpoint/X-1-v", limit)
                .unwrap(),
            ["checkpoint/X-1-v2"]
        );
        assert_eq!(
            git.remote_tags("nowhere", "checkpoint/", limit)
                .unwrap_err()
                .code,
            "E_GIT"
        );
    }
}
