//! Guesses the test command of a project from the files at its root.

use std::io::Read as _;
use std::path::Path;

use serde::Serialize;

/// Maximum number of bytes read from a file.
const MOST: u64 = 1 << 20;
/// The settings lines that show the defaults.
const RUNNER: &str = "# runner = ";
const COMMANDS: &str = "# commands = ";

/// Test setup of a project, for its new settings file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tests {
    /// The file that this was detected from; `null` for a default.
    pub because: Option<&'static str>,
    /// `verify.runner`.
    pub runner: &'static str,
    /// `verify.commands`.
    pub commands: Vec<&'static str>,
    /// What to do if the setup is wrong.
    pub hint: &'static str,
}

/// Detects how tests are run.
///
/// The first file counts: Cargo.toml, go.mod, those of Python, package.json, Makefile.
pub(super) fn tests(root: &Path) -> Tests {
    const PYTHON: [&str; 5] = ["pyproject.toml", "pytest.ini", "setup.cfg", "setup.py", "tox.ini"];
    let hint = "if that is wrong, set verify.runner and verify.commands in .forge/config.toml";
    let found = |because, runner, commands: &[&'static str]| Tests {
        because: Some(because),
        runner,
        commands: commands.to_vec(),
        hint,
    };
    let is_there = |name: &str| root.join(name).is_file();
    if is_there("Cargo.toml") {
        return found("Cargo.toml", "cargo test {prefix}", &["cargo test", "cargo check"]);
    }
    if is_there("go.mod") {
        return found("go.mod", "go test ./... -json -run {prefix}", &["go test ./...", "go vet ./..."]);
    }
    if let Some(name) = PYTHON.into_iter().find(|name| is_there(name)) {
        return found(name, "pytest {prefix}", &["pytest"]);
    }
    if has_test_script(&text(root, "package.json")) {
        return found("package.json", "npm test -- {prefix}", &["npm test"]);
    }
    if text(root, "Makefile").lines().any(|line| line.starts_with("test:")) {
        let hint = "make does not say how many tests it ran: set verify.count_regex in .forge/config.toml";
        return Tests { hint, ..found("Makefile", "make test", &["make test"]) };
    }
    let hint = "no file says how tests are run here: set verify.runner and verify.commands in .forge/config.toml";
    Tests { because: None, hint, ..found("", "cargo test {prefix}", &["cargo test", "cargo check"]) }
}

impl Tests {
    /// Writes the setup into the settings of a new project, in place of the defaults.
    pub(super) fn fill(&self, settings: &str) -> String {
        let Some(because) = self.because else { return settings.to_owned() };
        let commands: Vec<String> = self.commands.iter().map(|command| format!("\"{command}\"")).collect();
        let mut filled = String::new();
        for line in settings.lines() {
            if line.starts_with(RUNNER) {
                filled.push_str(&format!("runner = \"{}\"   # {because} is there\n", self.runner));
            } else if line.starts_with(COMMANDS) {
                filled.push_str(&format!(
                    "commands = [{}]   # a checkpoint runs them; assess only the first\n",
                    commands.join(", ")
                ));
            } else {
                filled.push_str(line);
                filled.push('\n');
            }
        }
        filled
    }
}

fn text(root: &Path, name: &str) -> String {
    let mut bytes = Vec::new();
    let file =
        std::fs::File::open(root.join(name)).ok().filter(|file| file.metadata().is_ok_and(|about| about.is_file()));
    let read = file.and_then(|file| file.take(MOST).read_to_end(&mut bytes).ok());
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn has_test_script(package: &str) -> bool {
    let package = serde_json::from_str::<serde_json::Value>(package).unwrap_or_default();
    // The default script of `npm init` is not a test.
    package["scripts"]["test"].as_str().is_some_and(|script| !script.contains("no test specified"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_files_at_the_root_tell_how_tests_are_run() {
        let settings = include_str!("config.toml");
        for (files, because, runner, first) in [
            (
                &[("Cargo.toml", ""), ("package.json", r#"{"scripts": {"test": "jest"}}"#)][..],
                Some("Cargo.toml"),
                "cargo test {prefix}",
                "cargo test",
            ),
            (&[("pyproject.toml", "")], Some("pyproject.toml"), "pytest {prefix}", "pytest"),
            (&[("go.mod", "")], Some("go.mod"), "go test ./... -json -run {prefix}", "go test ./..."),
            (
                &[("package.json", r#"{"scripts": {"test": "jest"}}"#)],
                Some("package.json"),
                "npm test -- {prefix}",
                "npm test",
            ),
            (
                &[("package.json", r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#)],
                None,
                "cargo test {prefix}",
                "cargo test",
            ),
            (&[("package.json", "{"), ("Makefile", "all:\n\ntest: all\n")], Some("Makefile"), "make test", "make test"),
            (&[("Makefile", "tests:\n")], None, "cargo test {prefix}", "cargo test"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let found = tests(folder.path());
            assert_eq!((found.because, found.runner), (because, runner), "{files:?}");
            let config = Config::parse(&found.fill(settings)).unwrap();
            assert_eq!(
                (config.verify.runner.as_str(), config.verify.commands[0].as_str()),
                (runner, first),
                "{files:?}"
            );
        }
    }
}
