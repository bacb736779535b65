//! Real repositories for tests, with nothing of the user's settings in them.

use std::path::Path;
use std::process::Command;

use super::{Git, Oid};
use crate::project::Project;
use crate::world::World;

/// A repository in a folder of its own.
pub(crate) struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    /// Makes one whose first branch is `main`.
    pub(crate) fn new() -> Self {
        Self::with_format("sha1")
    }

    /// Makes the folder of one, and nothing in it.
    pub(crate) fn absent() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Makes one whose objects are named by a hash of this kind.
    pub(crate) fn with_format(format: &str) -> Self {
        let repository = Self::absent();
        repository.run(&["init", "--quiet", "--initial-branch=main", &format!("--object-format={format}")]);
        // Whatever the settings of who runs the tests say.
        for name in ["commit.gpgSign", "tag.gpgSign"] {
            repository.run(&["config", name, "false"]);
        }
        repository
    }

    /// Returns the project in it, which has a memory and somebody who commits.
    pub(crate) fn project(&self) -> Project {
        for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
            self.run(&["config", name, value]);
        }
        self.write(".forge/.gitignore", ".local/\ngit/commits.log\ngit/branches.json\n");
        Project::open(self.path(), World::default()).unwrap().unwrap()
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns git for it, with an identity.
    pub(crate) fn git(&self) -> Git {
        Self::git_at(self.path())
    }

    /// Returns git for a folder, with an identity.
    pub(crate) fn git_at(path: &Path) -> Git {
        IDENTITY.iter().fold(Self::bare_git_at(path), |git, (name, value)| git.variable(*name, value))
    }

    /// Returns git for a folder, without an identity.
    pub(crate) fn bare_git_at(path: &Path) -> Git {
        SETTINGS.iter().fold(Git::find(path).unwrap().unwrap(), |git, (name, value)| git.variable(*name, value))
    }

    /// Runs git and wants it to succeed.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        run_at(self.path(), args)
    }

    /// Writes a file, with its folders.
    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Commits everything.
    pub(crate) fn commit(&self, message: &str) -> Oid {
        self.run(&["add", "-A"]);
        self.run(&["commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "-m", message]);
        Oid::parse(&self.run(&["rev-parse", "HEAD"])).unwrap()
    }
}

const SETTINGS: &[(&str, &str)] = &[("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")];
const IDENTITY: &[(&str, &str)] = &[
    ("GIT_AUTHOR_NAME", "Ann"),
    ("GIT_AUTHOR_EMAIL", "ann@example.com"),
    ("GIT_COMMITTER_NAME", "Ann"),
    ("GIT_COMMITTER_EMAIL", "ann@example.com"),
];

/// Returns the name of a blob, in a repository whose names have so many bytes.
pub(crate) fn blob(bytes: &[u8], hash_bytes: usize) -> String {
    super::trees::blob_name(bytes, hash_bytes)
}

/// Runs git in a folder and wants it to succeed.
pub(crate) fn run_at(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.envs(SETTINGS.iter().chain(IDENTITY).copied());
    for name in
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"]
    {
        command.env_remove(name);
    }
    let output = command.args(["-c", "protocol.file.allow=always"]).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
