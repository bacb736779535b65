//! Tests of the seam at its transports: the command line, the wrapper in Python, the packs.
//!
//! They also show that no crate below knows the seam.

mod absent;
mod commands;
mod doctor;
mod loud;
mod ports;
mod quiet;
mod transports;
mod wrapper;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A home, a repository and a vault, each in a separate folder.
struct Fixture(tempfile::TempDir);

/// How a run ended. What it printed need not be text.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Fixture {
    /// A project called `seam-fixture`, and a vault that knows it.
    fn new() -> Self {
        let place = Self::empty();
        place.write(
            "repo/.harness/project.json",
            "{\"vault_project\": \"seam-fixture\"}",
        );
        place.write(
            "vault/personal/_always-load/rule.md",
            "---\nkind: rule\n---\nALWAYS this\n",
        );
        place.write(
            "vault/projects/seam-fixture/decisions/one.md",
            "DECIDED that\n",
        );
        place.write(
            "vault/projects/seam-fixture/_harness/PLAN.md",
            "# Plan\nStatus: in work\n",
        );
        place.write(
            "vault/projects/seam-fixture/_harness/progress.md",
            "first\nlast words\n",
        );
        place
    }

    /// Three empty folders.
    fn empty() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for folder in ["home", "repo", "vault"] {
            std::fs::create_dir(place.path(folder)).unwrap();
        }
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        // On some systems the temporary folder is a link.
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    /// Prepares a run in the repository that knows of no vault, and finds no program.
    fn bare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_helmdeck"));
        command
            .env_clear()
            .env("HOME", self.path("home"))
            .env("PATH", "")
            .current_dir(self.path("repo"));
        command.arg("seam").args(words).stdin(Stdio::null());
        command
    }

    /// Prepares a run with the vault.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bare(words);
        command.env("MEMORY_VAULT_PATH", self.path("vault"));
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Ended {
        Ended::of(&mut self.command(words))
    }

    /// Returns every path below a folder with its times, permissions and content.
    fn snapshot(&self) -> Vec<(PathBuf, String)> {
        fn add(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let about = path.symlink_metadata().unwrap();
                let contents = if about.is_file() {
                    format!("{:?}", std::fs::read(&path).unwrap())
                } else {
                    String::new()
                };
                all.push((
                    path.clone(),
                    format!(
                        "{:?} {:?} {contents}",
                        about.modified().unwrap(),
                        about.permissions()
                    ),
                ));
                if about.is_dir() {
                    add(&path, all);
                }
            }
        }
        let mut all = Vec::new();
        add(self.0.path(), &mut all);
        all.sort();
        all
    }
}

impl Ended {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks that it failed in the usual way: exit code, empty stdout, one line on stderr.
    #[track_caller]
    fn is_loud(&self, exit: i32, code: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (exit, ""), "{self:?}");
        assert!(
            self.stderr.starts_with(&format!("error[{code}]: ")) && self.stderr.ends_with('\n'),
            "{self:?}"
        );
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        let line = self
            .stderr
            .trim_end()
            .strip_prefix(&format!("error[{code}]: "))
            .unwrap();
        let (path, rest) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("no path: {line}"));
        assert!(!path.is_empty() && rest.contains("; "), "{line}");
    }
}
