//! A small crate in a real repository, worked on with the real program.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The code of the crate: two functions with a test each.
pub(crate) const SUMS: &str = "//! Sums.\n\n/// Adds.\npub fn add(a: i64, b: i64) -> i64 {\n    a + b\n}\n\n/// Doubles.\npub fn double(a: i64) -> i64 {\n    \
    add(a, a)\n}\n\n#[cfg(test)]\nmod adding {\n    #[test]\n    fn two_and_two() {\n        assert_eq!(super::add(2, 2), 4);\n    \
    }\n}\n\n#[cfg(test)]\nmod doubling {\n    #[test]\n    fn of_four() {\n        assert_eq!(super::double(4), 8);\n    }\n}\n";
const MANIFEST: &str =
    "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n";

/// A repository with the crate.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    /// Where `helmdeck` is found by git, which starts the merge driver.
    /// Where programs are looked up, the program under test first.
    pub(crate) path: String,
}

/// How a command ended.
pub(crate) struct Ended {
    /// The exit code.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it complained about.
    pub(crate) stderr: String,
}

impl Fixture {
    /// Makes the crate, gives it a memory whose settings end with some more, and commits both.
    pub(crate) fn new(settings: &str) -> Self {
        let fixture = Self::without_memory();
        fixture.forge(&["init", "--scissors", "--merge-driver"]);
        let verify = "runner = \"cargo test --offline {prefix}\"\ncommands = [\"cargo test --offline\", \"cargo check --offline\"]\n";
        fixture.write(
            ".forge/config.toml",
            &format!("[verify]\n{verify}{settings}"),
        );
        fixture.forge(&["trust", "--yes"]);
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "--quiet", "-m", "[session] Begin"]);
        fixture
    }

    /// As [`Self::new`], with tests and checks that need no compiler and always succeed.
    pub(crate) fn light(settings: &str) -> Self {
        Self::light_in(tempfile::tempdir().unwrap(), settings)
    }

    /// As [`Self::light`], in a folder in memory where the system has one: for tests that write
    /// very many files.
    pub(crate) fn light_in_memory(settings: &str) -> Self {
        Self::light_in(
            tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap(),
            settings,
        )
    }

    fn light_in(folder: tempfile::TempDir, settings: &str) -> Self {
        let fixture = Self::without_memory_in(folder);
        fixture.forge(&["init", "--scissors", "--merge-driver"]);
        let verify =
            "runner = \"sh: echo ran {prefix}\"\ncount_regex = \"ran\"\ncommands = [\"true\"]\n";
        fixture.write(
            ".forge/config.toml",
            &format!("[verify]\n{verify}{settings}"),
        );
        fixture.forge(&["trust", "--yes"]);
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "--quiet", "-m", "[session] Begin"]);
        fixture
    }

    /// Makes the crate and commits it.
    pub(crate) fn without_memory() -> Self {
        Self::without_memory_in(tempfile::tempdir().unwrap())
    }

    fn without_memory_in(folder: tempfile::TempDir) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_helmdeck")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let fixture = Self { folder, path };
        std::fs::create_dir(fixture.root()).unwrap();
        fixture.git(&["init", "--quiet", "--initial-branch=main"]);
        fixture.write("Cargo.toml", MANIFEST);
        fixture.write("src/lib.rs", SUMS);
        fixture.write(".gitignore", "/target/\n");
        let locked = fixture
            .prepare(
                "cargo",
                &fixture.root(),
                &["generate-lockfile", "--offline"],
            )
            .output()
            .unwrap();
        assert!(
            locked.status.success(),
            "{}",
            String::from_utf8_lossy(&locked.stderr)
        );
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "--quiet", "-m", "Begin"]);
        fixture
    }

    /// Returns the root of the repository.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("sums")
    }

    /// Returns a folder beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of the work tree.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Writes the user's own settings.
    pub(crate) fn configure(&self, text: &str) {
        let path = self.folder.path().join(".config/helmdeck/helmdeck.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Prepares a program with an environment without settings but those of [`Self::configure`].
    ///
    /// Of this process's environment it has only the places of tools.
    pub(crate) fn prepare(&self, program: &str, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .stdin(Stdio::null());
        let home = std::env::var("HOME").unwrap();
        for (name, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            command.env(
                name,
                std::env::var(name).unwrap_or_else(|_| format!("{home}/{below}")),
            );
        }
        if let Ok(toolchain) = std::env::var("RUSTUP_TOOLCHAIN") {
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        command
            .env("HOME", self.folder.path())
            .env("PATH", &self.path)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "Ann")
                .env(format!("GIT_{who}_EMAIL"), "ann@example.com");
        }
        command
    }

    /// Runs git and returns what it printed.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        self.git_in(&self.root(), arguments)
    }

    /// Runs git in a folder.
    pub(crate) fn git_in(&self, folder: &Path, arguments: &[&str]) -> String {
        let output = self.prepare("git", folder, arguments).output().unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// Prepares `helmdeck forge` in a folder.
    pub(crate) fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        self.prepare(
            env!("CARGO_BIN_EXE_helmdeck"),
            folder,
            &[&["forge"], arguments].concat(),
        )
    }

    /// Runs `helmdeck forge` to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_in(&self.root(), arguments)
    }

    /// Runs `helmdeck forge` in a folder to its end.
    pub(crate) fn run_in(&self, folder: &Path, arguments: &[&str]) -> Ended {
        let output = self.command(folder, arguments).output().unwrap();
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs `helmdeck forge --json`, wants it to succeed, and returns its data.
    #[track_caller]
    pub(crate) fn forge(&self, arguments: &[&str]) -> Value {
        self.forge_in(&self.root(), arguments)
    }

    /// As [`Self::forge`], in a folder.
    #[track_caller]
    pub(crate) fn forge_in(&self, folder: &Path, arguments: &[&str]) -> Value {
        self.ends_with(folder, 0, arguments)
    }

    /// Runs `helmdeck forge --json`, wants an exit code, and returns its data, or its error if it
    /// has none.
    #[track_caller]
    pub(crate) fn ends_with(&self, folder: &Path, code: i32, arguments: &[&str]) -> Value {
        let ended = self.run_in(folder, &[arguments, &["--json"]].concat());
        assert_eq!(
            ended.code, code,
            "{arguments:?}: {}{}",
            ended.stdout, ended.stderr
        );
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        let ok = answer["ok"] == true;
        answer[if ok { "data" } else { "error" }].clone()
    }

    /// Returns the bytes of a path in a commit.
    pub(crate) fn in_commit(&self, commit: &str, path: &str) -> Option<Vec<u8>> {
        let arguments = ["cat-file", "blob", &format!("{commit}:{path}")];
        let mut child = self
            .prepare("git", &self.root(), &arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut bytes = Vec::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        child.wait().unwrap().success().then_some(bytes)
    }
}
