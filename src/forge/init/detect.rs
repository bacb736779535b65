//! Detects how a project is tested, from the files at its root.

use std::path::Path;

use serde::Serialize;

use crate::shared;

/// The settings lines that show the defaults.
const RUNNER: &str = "# runner = ";
const COMMANDS: &str = "# commands = ";
const RUNNERS: &str = "# runners.name = ";
/// Runner of Maven, without its program.
const MAVEN: &str = "-B test -Dtest={prefix}";
/// Runner of Gradle, without its program. `cleanTest` and `--info` make it run and list every test.
const GRADLE: &str = "cleanTest test --info --tests {prefix}";

/// Test setup of a project, for its settings file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tests {
    /// The file that `runner` was detected from; `null` if none says how tests are run.
    pub because: Option<&'static str>,
    /// `verify.runner`; empty if unknown.
    pub runner: String,
    /// `verify.commands`; empty if unknown.
    pub commands: Vec<String>,
    /// Everything that was found, the most specific first.
    pub found: Vec<TestSetup>,
    /// What to do if the setup is wrong or missing.
    pub hint: &'static str,
}

/// One way in which tests are run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestSetup {
    /// The file that it was detected from.
    pub file: &'static str,
    /// The name of its runner, as tests may name it: `pnpm:src/a.test.ts`.
    pub name: &'static str,
    /// The command that runs the tests of a feature.
    pub runner: String,
    /// The commands that a checkpoint runs.
    pub commands: Vec<String>,
}

/// Detects how tests are run. A recipe of just or make counts only if nothing more specific is
/// there.
pub(crate) fn tests(root: &Path) -> Tests {
    let has = |name: &str| root.join(name).is_file();
    let mut found: Vec<TestSetup> = [
        cargo(&has),
        go(&has),
        python(root, &has),
        javascript(root, &has),
        maven(&has),
        gradle(&has),
    ]
    .into_iter()
    .flatten()
    .collect();
    if found.is_empty() {
        found.extend([just(root), make(root)].into_iter().flatten());
    }
    let hint = match found.first().map(|first| first.name) {
        None => {
            "no file says how tests are run here: set verify.runner and verify.commands in .forge/config.toml"
        }
        Some("just" | "make") => {
            "it does not say how many tests it ran: set verify.count_regex in .forge/config.toml"
        }
        Some(_) => "if that is wrong, set verify.runner and verify.commands in .forge/config.toml",
    };
    Tests {
        because: found.first().map(|first| first.file),
        runner: found
            .first()
            .map(|first| first.runner.clone())
            .unwrap_or_default(),
        commands: found
            .iter()
            .flat_map(|setup| setup.commands.clone())
            .collect(),
        found,
        hint,
    }
}

fn setup(file: &'static str, name: &'static str, runner: &str, commands: &[&str]) -> TestSetup {
    let commands = commands
        .iter()
        .map(|command| (*command).to_owned())
        .collect();
    TestSetup {
        file,
        name,
        runner: runner.to_owned(),
        commands,
    }
}

fn cargo(has: &dyn Fn(&str) -> bool) -> Option<TestSetup> {
    has("Cargo.toml").then(|| {
        setup(
            "Cargo.toml",
            "cargo",
            "cargo test {prefix}",
            &["cargo test", "cargo check"],
        )
    })
}

fn go(has: &dyn Fn(&str) -> bool) -> Option<TestSetup> {
    let runner = "go test ./... -json -run {prefix}";
    has("go.mod").then(|| setup("go.mod", "go", runner, &["go test ./...", "go vet ./..."]))
}

/// Python: pytest, in the environment that a lock file names.
fn python(root: &Path, has: &dyn Fn(&str) -> bool) -> Option<TestSetup> {
    const FILES: [&str; 5] = [
        "pyproject.toml",
        "pytest.ini",
        "setup.cfg",
        "setup.py",
        "tox.ini",
    ];
    let file = FILES.into_iter().find(|name| has(name)).or_else(|| {
        let file = "requirements.txt";
        text(root, file)
            .lines()
            .any(|line| line.trim_start().starts_with("pytest"))
            .then_some(file)
    })?;
    let command = match () {
        () if has("uv.lock") => "uv run pytest",
        () if has("poetry.lock") => "poetry run pytest",
        () if has("Pipfile.lock") => "pipenv run pytest",
        // pytest alone finds no package that lies beside the tests and is not installed.
        () if is_flat(root, has) => "python3 -m pytest",
        () => "pytest",
    };
    Some(setup(
        file,
        "pytest",
        &format!("{command} {{prefix}}"),
        &[command],
    ))
}

/// Says whether a Python package lies at the root, and no setting tells pytest to look there.
fn is_flat(root: &Path, has: &dyn Fn(&str) -> bool) -> bool {
    let is_set = ["pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini"]
        .into_iter()
        .any(|name| text(root, name).contains("pythonpath"));
    let entries = || std::fs::read_dir(root).into_iter().flatten().flatten();
    let is_package = |entry: std::fs::DirEntry| {
        !matches!(entry.file_name().to_str(), Some("tests" | "test"))
            && entry.path().join("__init__.py").is_file()
    };
    !is_set && !has("conftest.py") && entries().any(is_package)
}

/// The test script of `package.json`, run by the package manager whose lock file is there.
fn javascript(root: &Path, has: &dyn Fn(&str) -> bool) -> Option<TestSetup> {
    let package = serde_json::from_str::<serde_json::Value>(&text(root, "package.json")).ok()?;
    let named = package["packageManager"]
        .as_str()
        .and_then(|named| named.split('@').next())
        .unwrap_or_default();
    let locked = |files: &[&str], name: &str| files.iter().any(|file| has(file)) || named == name;
    // The default script of `npm init` is not a test.
    let script = package["scripts"]["test"]
        .as_str()
        .is_some_and(|script| !script.contains("no test specified"));
    let file = "package.json";
    Some(match script {
        true if locked(&["pnpm-lock.yaml"], "pnpm") => {
            setup(file, "pnpm", "pnpm test {prefix}", &["pnpm test"])
        }
        true if locked(&["yarn.lock"], "yarn") => {
            setup(file, "yarn", "yarn test {prefix}", &["yarn test"])
        }
        true if locked(&["bun.lock", "bun.lockb"], "bun") => {
            setup(file, "bun", "bun run test {prefix}", &["bun run test"])
        }
        true => setup(file, "npm", "npm test -- {prefix}", &["npm test"]),
        // Bun runs tests without a script.
        false if locked(&["bun.lock", "bun.lockb"], "bun") => {
            setup(file, "bun", "bun test {prefix}", &["bun test"])
        }
        false => return None,
    })
}

fn maven(has: &dyn Fn(&str) -> bool) -> Option<TestSetup> {
    let program = if has("mvnw") { "./mvnw" } else { "mvn" };
    has("pom.xml").then(|| {
        setup(
            "pom.xml",
            "maven",
            &format!("{program} {MAVEN}"),
            &[&format!("{program} -B verify")],
        )
    })
}

fn gradle(has: &dyn Fn(&str) -> bool) -> Option<TestSetup> {
    let file = ["build.gradle.kts", "build.gradle"]
        .into_iter()
        .find(|name| has(name))?;
    let program = if has("gradlew") {
        "./gradlew"
    } else {
        "gradle"
    };
    Some(setup(
        file,
        "gradle",
        &format!("{program} {GRADLE}"),
        &[&format!("{program} check")],
    ))
}

fn just(root: &Path) -> Option<TestSetup> {
    let file = ["justfile", "Justfile", ".justfile"]
        .into_iter()
        .find(|name| root.join(name).is_file())?;
    let text = text(root, file);
    let head = text
        .lines()
        .find_map(|line| recipe(line.strip_prefix('@').unwrap_or(line)))?;
    // A recipe without parameters accepts no name of a test.
    let runner = if head.trim().is_empty() {
        "just test"
    } else {
        "just test {prefix}"
    };
    Some(setup(file, "just", runner, &["just test"]))
}

/// Returns the parameters of the recipe `test`, if this line begins it.
fn recipe(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("test")?;
    let colon = rest.find(':')?;
    let is_it = !rest[colon..].starts_with(":=") && rest.starts_with([' ', '\t', ':']);
    is_it.then(|| &rest[..colon])
}

fn make(root: &Path) -> Option<TestSetup> {
    let file = ["GNUmakefile", "Makefile", "makefile"]
        .into_iter()
        .find(|name| root.join(name).is_file())?;
    let is_target = |line: &str| line.starts_with("test:") && !line.starts_with("test:=");
    text(root, file)
        .lines()
        .any(is_target)
        .then(|| setup(file, "make", "make test", &["make test"]))
}

impl Tests {
    /// Writes the setup into the settings of a new project, in place of the defaults.
    pub(super) fn fill(&self, settings: &str) -> String {
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        let mut filled = String::new();
        for line in settings.lines() {
            match self.because {
                Some(because) if line.starts_with(RUNNER) => {
                    filled.push_str(&format!(
                        "runner = {}   # {because} is there",
                        quoted(&self.runner)
                    ));
                }
                Some(_) if line.starts_with(COMMANDS) => {
                    let commands: Vec<String> = self
                        .commands
                        .iter()
                        .map(|command| quoted(command))
                        .collect();
                    let commands = commands.join(", ");
                    filled.push_str(&format!(
                        "commands = [{commands}]   # a checkpoint runs them; assess only the first"
                    ));
                }
                Some(_) if line.starts_with(RUNNERS) => {
                    for setup in self.found.iter().skip(1) {
                        let command = quoted(&setup.runner);
                        filled.push_str(&format!(
                            "runners.{} = {{ command = {command} }}   # {} is there\n",
                            setup.name, setup.file
                        ));
                    }
                    filled.push_str(line);
                }
                _ => filled.push_str(line),
            }
            filled.push('\n');
        }
        filled
    }
}

fn text(root: &Path, name: &str) -> String {
    let path = root.join(name);
    let bytes = if path.is_file() {
        shared::read(&path)
    } else {
        None
    };
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const JEST: &str = r#"{"scripts": {"test": "jest"}}"#;

    /// Detects what these files say, and reads it back from the settings.
    fn detected(files: &[(&str, &str)]) -> (Tests, Config) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = tests(folder.path());
        let config = Config::parse(&found.fill(include_str!("config.toml"))).unwrap();
        (found, config)
    }

    #[test]
    fn each_build_file_gives_its_runner() {
        let pnpm = format!(r#"{{"packageManager": "pnpm@9.1.0", {}"#, &JEST[1..]);
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a str);
        let cases: &[Case<'_>] = &[
            (
                &[("Cargo.toml", "")],
                "Cargo.toml",
                "cargo test {prefix}",
                "cargo test",
            ),
            (
                &[("go.mod", "")],
                "go.mod",
                "go test ./... -json -run {prefix}",
                "go test ./...",
            ),
            (
                &[("pyproject.toml", "")],
                "pyproject.toml",
                "pytest {prefix}",
                "pytest",
            ),
            (
                &[("pyproject.toml", ""), ("shop/__init__.py", "")],
                "pyproject.toml",
                "python3 -m pytest {prefix}",
                "python3 -m pytest",
            ),
            (
                &[
                    ("pytest.ini", "[pytest]\npythonpath = .\n"),
                    ("shop/__init__.py", ""),
                    ("tests/__init__.py", ""),
                ],
                "pytest.ini",
                "pytest {prefix}",
                "pytest",
            ),
            (
                &[("pytest.ini", ""), ("uv.lock", "")],
                "pytest.ini",
                "uv run pytest {prefix}",
                "uv run pytest",
            ),
            (
                &[("requirements.txt", "a\npytest==8\n")],
                "requirements.txt",
                "pytest {prefix}",
                "pytest",
            ),
            (
                &[("package.json", JEST)],
                "package.json",
                "npm test -- {prefix}",
                "npm test",
            ),
            (
                &[("package.json", JEST), ("yarn.lock", "")],
                "package.json",
                "yarn test {prefix}",
                "yarn test",
            ),
            (
                &[("package.json", JEST), ("pnpm-lock.yaml", "")],
                "package.json",
                "pnpm test {prefix}",
                "pnpm test",
            ),
            (
                &[("package.json", &pnpm)],
                "package.json",
                "pnpm test {prefix}",
                "pnpm test",
            ),
            (
                &[("package.json", JEST), ("bun.lock", "")],
                "package.json",
                "bun run test {prefix}",
                "bun run test",
            ),
            (
                &[("package.json", "{}"), ("bun.lockb", "")],
                "package.json",
                "bun test {prefix}",
                "bun test",
            ),
            (
                &[("pom.xml", "")],
                "pom.xml",
                "mvn -B test -Dtest={prefix}",
                "mvn -B verify",
            ),
            (
                &[("pom.xml", ""), ("mvnw", "")],
                "pom.xml",
                "./mvnw -B test -Dtest={prefix}",
                "./mvnw -B verify",
            ),
            (
                &[("build.gradle.kts", ""), ("gradlew", "")],
                "build.gradle.kts",
                "./gradlew cleanTest test --info --tests {prefix}",
                "./gradlew check",
            ),
            (
                &[("justfile", "test:\n  x\n")],
                "justfile",
                "just test",
                "just test",
            ),
            (
                &[("justfile", "@test *args:\n  x\n")],
                "justfile",
                "just test {prefix}",
                "just test",
            ),
            (
                &[("package.json", "{"), ("Makefile", "all:\n\ntest: all\n")],
                "Makefile",
                "make test",
                "make test",
            ),
        ];
        for (files, because, runner, first) in cases {
            let (found, config) = detected(files);
            assert_eq!(
                (found.because, found.runner.as_str()),
                (Some(*because), *runner),
                "{files:?}"
            );
            assert_eq!(
                (
                    config.verify.runner.as_str(),
                    config.verify.commands[0].as_str()
                ),
                (*runner, *first)
            );
        }
    }

    #[test]
    fn several_build_files_give_several_runners() {
        let (found, config) = detected(&[
            ("package.json", JEST),
            ("pnpm-lock.yaml", ""),
            ("pyproject.toml", ""),
            ("go.mod", ""),
            ("Makefile", "test:\n\tgo test\n"),
        ]);
        let names: Vec<_> = found.found.iter().map(|setup| setup.name).collect();
        assert_eq!(
            names,
            ["go", "pytest", "pnpm"],
            "make only calls the others"
        );
        assert_eq!(
            config.verify.commands,
            ["go test ./...", "go vet ./...", "pytest", "pnpm test"]
        );
        assert_eq!(config.verify.runners["pnpm"].command, "pnpm test {prefix}");
        assert_eq!(config.verify.runner, "go test ./... -json -run {prefix}");
    }

    #[test]
    fn unknown_projects_get_no_runner() {
        let placeholder = r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;
        for files in [
            &[][..],
            &[("package.json", placeholder)],
            &[("Makefile", "tests:\n")],
            &[("justfile", "test := 'a'\ntesting:\n  x\n")],
            &[("requirements.txt", "requests\n")],
        ] {
            let (found, config) = detected(files);
            assert_eq!(
                (found.because, found.runner.as_str(), found.commands.len()),
                (None, "", 0),
                "{files:?}"
            );
            assert_eq!(config.verify, Config::default().verify, "{files:?}");
        }
    }
}
