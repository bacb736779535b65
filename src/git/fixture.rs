//! Real repositories for tests, without the settings of the user.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    missing_debug_implementations
)]

use std::fs::{self, Permissions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::{Git, Oid};

/// A repository in its own temporary folder.
pub struct Repository {
    folder: tempfile::TempDir,
}

impl Default for Repository {
    fn default() -> Self {
        Self::new()
    }
}

impl Repository {
    /// Creates one with the branch `main`.
    pub fn new() -> Self {
        static EMPTY: LazyLock<Snapshot> =
            LazyLock::new(|| Repository::with_format("sha1").snapshot());
        EMPTY.repository()
    }

    /// Creates an empty folder for one: in memory where possible, since no test is about the disk.
    pub fn absent() -> Self {
        Self {
            folder: tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap(),
        }
    }

    /// Creates one with an object format (`sha1`, `sha256`).
    pub fn with_format(format: &str) -> Self {
        let repository = Self::absent();
        let format = format!("--object-format={format}");
        repository.run(&[
            "init",
            "--quiet",
            "--initial-branch=main",
            "--template=",
            &format,
        ]);
        // Independent of the user's settings.
        for name in ["commit.gpgSign", "tag.gpgSign"] {
            repository.run(&["config", name, "false"]);
        }
        repository
    }

    /// Returns a copy of all its files.
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Vec::new();
        Snapshot::gather(self.path(), Path::new(""), &mut all);
        Snapshot(all)
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns git for it, with an identity.
    pub fn git(&self) -> Git {
        Self::git_at(self.path())
    }

    /// Returns git for a folder, with an identity.
    pub fn git_at(path: &Path) -> Git {
        IDENTITY
            .iter()
            .fold(Self::bare_git_at(path), |git, (name, value)| {
                git.variable(*name, value)
            })
    }

    /// Returns git for a folder, without an identity.
    pub fn bare_git_at(path: &Path) -> Git {
        SETTINGS
            .iter()
            .fold(Git::find(path).unwrap().unwrap(), |git, (name, value)| {
                git.variable(*name, value)
            })
    }

    /// Runs git. It must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        run_at(self.path(), args)
    }

    /// Runs git. It must fail.
    pub fn refused(&self, args: &[&str]) {
        assert!(
            !output_at(self.path(), args).status.success(),
            "git {args:?} succeeded"
        );
    }

    /// Writes a file, with its folders.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits everything.
    pub fn commit(&self, message: &str) -> Oid {
        self.run(&["add", "-A"]);
        self.run(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--cleanup=verbatim",
            "-m",
            message,
        ]);
        Oid::parse(&self.run(&["rev-parse", "HEAD"])).unwrap()
    }
}

/// The files of a repository, from which copies are made without running git.
pub struct Snapshot(Vec<(PathBuf, Permissions, Kept)>);

enum Kept {
    Folder,
    File(Vec<u8>),
    Link(PathBuf),
}

impl Snapshot {
    fn gather(root: &Path, below: &Path, all: &mut Vec<(PathBuf, Permissions, Kept)>) {
        for entry in fs::read_dir(root.join(below)).unwrap() {
            let entry = entry.unwrap();
            let (path, found) = (below.join(entry.file_name()), entry.metadata().unwrap());
            let kept = match found.file_type() {
                kind if kind.is_dir() => Kept::Folder,
                kind if kind.is_symlink() => Kept::Link(fs::read_link(entry.path()).unwrap()),
                _ => Kept::File(fs::read(entry.path()).unwrap()),
            };
            all.push((path.clone(), found.permissions(), kept));
            if found.is_dir() {
                Self::gather(root, &path, all);
            }
        }
    }

    /// Makes a repository of them.
    pub fn repository(&self) -> Repository {
        let repository = Repository::absent();
        for (path, permissions, kept) in &self.0 {
            let path = repository.path().join(path);
            match kept {
                Kept::Folder => fs::create_dir(&path).unwrap(),
                Kept::File(bytes) => fs::write(&path, bytes).unwrap(),
                Kept::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
            }
            if !matches!(kept, Kept::Link(_)) {
                fs::set_permissions(&path, permissions.clone()).unwrap();
            }
        }
        repository
    }
}

/// Variables that hide the settings of the user and the system.
pub const SETTINGS: &[(&str, &str)] = &[
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
];
/// Variables with an identity.
pub const IDENTITY: &[(&str, &str)] = &[
    ("GIT_AUTHOR_NAME", "Ann"),
    ("GIT_AUTHOR_EMAIL", "ann@example.com"),
    ("GIT_COMMITTER_NAME", "Ann"),
    ("GIT_COMMITTER_EMAIL", "ann@example.com"),
];

/// Runs git in a folder. It must succeed.
pub fn run_at(folder: &Path, args: &[&str]) -> String {
    let output = output_at(folder, args);
    let said = |bytes| String::from_utf8_lossy(bytes);
    assert!(
        output.status.success(),
        "git {args:?}: {}{}",
        said(&output.stderr),
        said(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// Runs git in a folder, with an identity and without the settings of the user and the system.
fn output_at(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.envs(SETTINGS.iter().chain(IDENTITY).copied());
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_PREFIX",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
    ] {
        command.env_remove(name);
    }
    command
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}
