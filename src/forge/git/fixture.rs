//! Real repositories for tests, with the memory of a project.

use std::ops::Deref;
use std::path::Path;

use super::Git;
use crate::environment::ProjectEnvironment;
use crate::project::Project;

pub(crate) use helmdeck_git::blob_name as blob;
pub(crate) use helmdeck_git::fixture::run_at;
use helmdeck_git::fixture::{self, IDENTITY, SETTINGS};

/// A repository in its own temporary folder.
pub(crate) struct Repository(fixture::Repository);

impl Deref for Repository {
    type Target = fixture::Repository;

    fn deref(&self) -> &fixture::Repository {
        &self.0
    }
}

impl Repository {
    /// Creates one with the branch `main`.
    pub(crate) fn new() -> Self {
        Self(fixture::Repository::new())
    }

    /// Creates one with an object format (`sha1`, `sha256`).
    pub(crate) fn with_format(format: &str) -> Self {
        Self(fixture::Repository::with_format(format))
    }

    /// Returns the project in it, which has a memory and an identity.
    pub(crate) fn project(&self) -> Project {
        for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
            self.run(&["config", name, value]);
        }
        self.write(
            ".forge/.gitignore",
            ".local/\ngit/commits.log\ngit/branches.json\n",
        );
        Project::open(self.path(), ProjectEnvironment::default())
            .unwrap()
            .unwrap()
    }

    /// Returns a copy of all its files.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.snapshot())
    }

    /// Returns git for it, with an identity.
    pub(crate) fn git(&self) -> Git {
        Self::git_at(self.path())
    }

    /// Returns git for a folder, with an identity.
    pub(crate) fn git_at(path: &Path) -> Git {
        IDENTITY
            .iter()
            .fold(Self::bare_git_at(path), |git, (name, value)| {
                git.variable(*name, value)
            })
    }

    /// Returns git for a folder, without an identity.
    pub(crate) fn bare_git_at(path: &Path) -> Git {
        SETTINGS
            .iter()
            .fold(Git::find(path).unwrap().unwrap(), |git, (name, value)| {
                git.variable(*name, value)
            })
    }
}

/// The files of a repository, from which copies are made without running git.
pub(crate) struct Snapshot(fixture::Snapshot);

impl Snapshot {
    /// Makes a repository of them.
    pub(crate) fn repository(&self) -> Repository {
        Repository(self.0.repository())
    }
}
