//! What the tests of `swe.solve` run beside it, which `swe/install.sh` installs: real bugs of real
//! packages, an interpreter with pytest for them, and mini-swe-agent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::git::git;

/// Where the programs and the tasks are.
#[derive(Debug)]
pub(crate) struct Programs {
    /// A Python environment with pytest. Its interpreter is one of `/usr`.
    pub(crate) pytest: PathBuf,
    /// The program `mini`.
    pub(crate) mini: PathBuf,
    tasks: PathBuf,
}

impl Programs {
    /// Returns what `tests/run` installed; without `tests/run`, installs the same (about a minute,
    /// once).
    ///
    /// The environment gives the places: `HELMDECK_TEST_SWE_PYTEST`, `HELMDECK_TEST_SWE_MINI` and
    /// `HELMDECK_TEST_SWE_TASKS`, all three or none.
    #[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
    pub(crate) fn installed() -> &'static Self {
        static FOUND: OnceLock<Programs> = OnceLock::new();
        FOUND.get_or_init(|| {
            let names = [
                "HELMDECK_TEST_SWE_PYTEST",
                "HELMDECK_TEST_SWE_MINI",
                "HELMDECK_TEST_SWE_TASKS",
            ];
            let given = names
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?.into())));
            let given: HashMap<String, PathBuf> = given.collect();
            let places = if given.is_empty() { install() } else { given };
            let [pytest, mini, tasks] = names.map(|name| {
                let place = places
                    .get(name)
                    .unwrap_or_else(|| panic!("{name} is not set, but another of {names:?} is"));
                assert!(place.exists(), "{name}: there is no {}", place.display());
                place.clone()
            });
            Self {
                pytest,
                mini,
                tasks,
            }
        })
    }

    /// Returns a task: `parse` or `sqlparse`.
    pub(crate) fn task(&self, name: &'static str) -> Task {
        let folder = self.tasks.join(name);
        assert!(
            folder.join("origin.git").exists(),
            "there is no task {name}"
        );
        Task {
            name,
            folder,
            python: self.pytest.join("bin/python"),
        }
    }
}

fn install() -> HashMap<String, PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/swe/install.sh");
    let output = Command::new(script)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the programs cannot be installed; see above"
    );
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, place)| (name.to_owned(), place.into()))
        .collect()
}

/// A real bug: a package at a release that has it, with the tests of the release that has not.
#[derive(Debug)]
pub(crate) struct Task {
    /// The package.
    pub(crate) name: &'static str,
    folder: PathBuf,
    python: PathBuf,
}

impl Task {
    /// Returns the bare repository to start from.
    pub(crate) fn origin(&self) -> PathBuf {
        self.folder.join("origin.git")
    }

    /// Returns the upstream fix, as `git diff` writes it.
    pub(crate) fn gold(&self) -> String {
        std::fs::read_to_string(self.folder.join("gold.patch")).unwrap()
    }

    /// Returns the command that applies the upstream fix.
    pub(crate) fn mend(&self) -> String {
        format!("git apply - <<'END_OF_PATCH'\n{}END_OF_PATCH", self.gold())
    }

    /// Returns the tests that fail until it is mended.
    pub(crate) fn fails(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("fails")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Clones it into a new folder, by the name of the package.
    pub(crate) fn clone_into(&self, folder: &Path) -> PathBuf {
        let to = folder.join(self.name);
        git(
            folder,
            &[
                "clone",
                "-q",
                self.origin().to_str().unwrap(),
                to.to_str().unwrap(),
            ],
        );
        to
    }

    /// Runs its tests in a folder: all, or those that are named. Says which of them passed as a
    /// whole, and what pytest said.
    pub(crate) fn test(&self, folder: &Path, names: &[String]) -> (bool, String) {
        let mut command = Command::new(&self.python);
        command.args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
        ]);
        let all = ["tests".to_owned()];
        command.args(if names.is_empty() { &all } else { names });
        command
            .current_dir(folder)
            .env_clear()
            .env("PYTHONPATH", ".")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let Output { status, stdout, .. } = command.stdin(Stdio::null()).output().unwrap();
        (
            status.success(),
            String::from_utf8_lossy(&stdout).into_owned(),
        )
    }

    /// Checks that a patch fixes the bug.
    ///
    /// In a fresh clone its tests fail, `git apply` takes the patch, and then all tests pass.
    #[track_caller]
    pub(crate) fn assert_mended_by(&self, patch: &str) {
        let folder = tempfile::tempdir().unwrap();
        let clone = self.clone_into(folder.path());
        let (passed, said) = self.test(&clone, &self.fails());
        let all_fail = format!("\n{} failed in ", self.fails().len());
        assert!(!passed && said.contains(&all_fail), "before: {said}");
        let file = folder.path().join("the.patch");
        std::fs::write(&file, patch).unwrap();
        git(&clone, &["apply", file.to_str().unwrap()]);
        // All, so those that failed are among them.
        let (passed, said) = self.test(&clone, &[]);
        assert!(passed, "after: {said}");
    }
}
