//! Test commands of a feature, and the number of tests that ran.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use crate::config::Verify;
use crate::error::{Error, Result};
use crate::runner::{argv, text_of};

/// Test command, and how its tests are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// The command with its placeholder.
    pub(crate) template: &'a str,
    /// What takes the placeholder's place.
    pub(crate) prefix: &'a str,
    /// The command that is run.
    pub(crate) command: String,
    /// Pattern that counts the tests in its output, if the default for the program does not apply.
    pub(crate) count: Option<String>,
}

/// Known runners, which need no settings, by the prefix of a test: `pytest:tests/test_a.py`.
const KNOWN: [(&str, &str); 8] = [
    ("cargo", "cargo test {prefix}"),
    ("pytest", "pytest {prefix}"),
    ("go", "go test ./... -json -run {prefix}"),
    ("node", "node --test {prefix}"),
    ("npm", "npm test -- {prefix}"),
    ("pnpm", "pnpm test {prefix}"),
    ("yarn", "yarn test {prefix}"),
    ("bun", "bun test {prefix}"),
];

/// Returns the command for a test.
///
/// # Errors
/// `Usage` for a test that is empty or looks like an option, and for a runner that cannot be split
/// into words.
pub(crate) fn call<'a>(config: &'a Verify, test: &'a str) -> Result<Call<'a>> {
    let (template, count, pattern) = runner(config, test);
    let prefix = pattern.split('*').next().unwrap_or_default().trim();
    if test.trim().is_empty() || prefix.starts_with('-') || prefix.contains(char::is_control) {
        return Err(Error::usage(format!(
            "{test:?} is no test: write a name, or how names begin with a * after it"
        )));
    }
    if leaves(prefix) {
        return Err(Error::usage(format!(
            "{test:?} leads out of the project: a path in it is one below the root"
        )));
    }
    let command = text_of(&argv(template, Some(prefix))?);
    Ok(Call {
        template,
        prefix,
        command,
        count,
    })
}

/// Says whether a path in a test leaves the folder in which it runs.
///
/// Runners that take files would run files outside of it.
fn leaves(prefix: &str) -> bool {
    prefix.split(char::is_whitespace).any(|word| {
        word.starts_with(['/', '~']) || word.split(['/', '\\']).any(|part| part == "..")
    })
}

/// Returns the name and the command of the built-in runner of a test, if one runs it.
pub(crate) fn built_in(config: &Verify, test: &str) -> Option<(&'static str, &'static str)> {
    let (name, pattern) = test.split_once(':')?;
    let known = KNOWN.iter().find(|(known, _)| *known == name).copied();
    known.filter(|_| !pattern.starts_with(':') && !config.runners.contains_key(name))
}

/// Says whether a test is run by `verify.runner`: it names no runner of its own.
pub(crate) fn has_no_own_runner(config: &Verify, test: &str) -> bool {
    let named = test
        .split_once(':')
        .filter(|(_, pattern)| !pattern.starts_with(':'));
    built_in(config, test).is_none()
        && named.is_none_or(|(name, _)| !config.runners.contains_key(name))
}

/// Returns the runner of a test, its count pattern, and the test without the runner's name.
fn runner<'a>(config: &'a Verify, test: &'a str) -> (&'a str, Option<String>, &'a str) {
    if let Some((name, pattern)) = test.split_once(':')
        && !pattern.starts_with(':')
    {
        if let Some(runner) = config.runners.get(name) {
            return (&runner.command, runner.count_regex.clone(), pattern);
        }
        if let Some((_, command)) = built_in(config, test) {
            return (command, None, pattern);
        }
    }
    (&config.runner, config.count_regex.clone(), test)
}

/// Returns an output without colours.
pub(super) fn plain(output: &str) -> Cow<'_, str> {
    static COLOURS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new("\x1b\\[[0-9;]*[A-Za-z]").ok());
    COLOURS.as_ref().map_or(Cow::Borrowed(output), |colours| {
        colours.replace_all(output, "")
    })
}

/// Counts the tests that ran, from the output.
///
/// # Errors
/// `Usage` for an invalid pattern.
pub(crate) fn count(call: &Call<'_>, output: &str) -> Result<u64> {
    let output = plain(output);
    let sum = |pattern: &str| -> Result<u64> {
        let pattern = Regex::new(pattern).map_err(|error| {
            Error::usage(format!("count_regex under [verify] is no pattern: {error}"))
        })?;
        // A group captures a number; without a group, each match is one test.
        let numbers = pattern
            .captures_iter(&output)
            .map(|found| match found.get(1) {
                Some(number) => number.as_str().replace([',', '_'], "").parse().unwrap_or(0),
                None => 1,
            });
        Ok(numbers.fold(0, u64::saturating_add))
    };
    if let Some(pattern) = &call.count {
        return sum(pattern);
    }
    let mut most = 0;
    for pattern in patterns(&call.command) {
        most = most.max(sum(pattern)?);
    }
    Ok(most)
}

/// Returns the count patterns of a known program.
///
/// An unknown program needs a configured pattern, because its output may have any form.
fn patterns(command: &str) -> &'static [&'static str] {
    const CARGO: &[&str] = &[
        // One line for each binary. A failed test ran as well.
        r"(?m)^test result: [a-zA-Z]+\. (\d+) passed;",
        r"(?m)^\s+Summary \[[^\]]*\]\s+(\d+) tests? run",
    ];
    const PYTEST: &[&str] = &[r"(?m)^(?:=+ )?(?:\d+ \w+, )*(\d+) passed\b"];
    const GO: &[&str] = &[
        r#"(?m)^\{.*"Action":"(?:pass)".*"Test":"[^"]+".*\}$"#,
        r"(?m)^\s*--- PASS: \S+ ",
    ];
    const NODE: &[&str] = &[
        r"(?m)^(?:#|ℹ) pass (\d+)$",
        r"(?m)^Tests:.*?(\d+) passed",
        r"(?m)^\s*Tests\s+(?:\d+ \w+ \| )*(\d+) passed",
        r"(?m)^\s*(\d+) passing\b",
        // Bun.
        r"(?m)^\s*(\d+) pass$",
    ];
    // The totals, one for each module; lines of single classes have a time.
    const MAVEN: &[&str] =
        &[r"(?m)^(?:\[\w+\] )?Tests run: (\d+), Failures: \d+, Errors: \d+, Skipped: \d+\s*$"];
    const GRADLE: &[&str] = &[r"(?m)^\S.* > .+ PASSED$"];
    const NONE: &[&str] = &[];
    let Some(words) = shlex::split(command.trim_start_matches("sh:")) else {
        return NONE;
    };
    for word in &words {
        match word.rsplit('/').next().unwrap_or(word) {
            "cargo" => return CARGO,
            "pytest" | "py.test" => return PYTEST,
            "go" => return GO,
            "node" | "npm" | "npx" | "yarn" | "pnpm" | "bun" => return NODE,
            "mvn" | "mvnw" => return MAVEN,
            "gradle" | "gradlew" => return GRADLE,
            _ => {}
        }
    }
    NONE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Runner;

    fn command(test: &str) -> String {
        call(&Verify::default(), test).unwrap().command
    }

    #[test]
    fn rfc_tests_run_with_cargo() {
        assert_eq!(
            command("nats::subjects::tests::*"),
            "cargo test nats::subjects::tests::"
        );
        assert_eq!(command("a::exact_name"), "cargo test a::exact_name");
        assert_eq!(command("*"), "cargo test");
        for wrong in ["", "  ", "--help", "-p other", "a\nb"] {
            assert!(call(&Verify::default(), wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tests_cannot_name_outside_files() {
        for wrong in [
            "node:/tmp/x.js",
            "pytest:../x.py::test",
            "node:a/../../x.js",
            "pytest: /tmp/x.py",
            "npm:a /x",
            "node:~/x.js",
            "../x",
        ] {
            let error = call(&Verify::default(), wrong).unwrap_err();
            assert!(
                error.message.contains("leads out of the project"),
                "{wrong}: {error}"
            );
        }
        for fine in [
            "node:a/b.js",
            "pytest:tests/..x/a.py",
            "a::b",
            "go:TestA..B",
        ] {
            call(&Verify::default(), fine).unwrap();
        }
    }

    #[test]
    fn a_test_may_name_its_runner() {
        assert_eq!(
            command("pytest:tests/test_a.py::test_x"),
            "pytest tests/test_a.py::test_x"
        );
        assert_eq!(
            command("go:TestSubjects*"),
            "go test ./... -json -run TestSubjects"
        );
        assert_eq!(
            command("other:thing"),
            "cargo test other:thing",
            "that is no runner"
        );
        let mut config = Verify {
            runner: "just test {prefix}".into(),
            ..Verify::default()
        };
        config.count_regex = Some(r"ran (\d+)".into());
        let runner = Runner {
            command: "sh: cd web && npm test -- {prefix}".into(),
            count_regex: Some("ok".into()),
            junit: None,
        };
        config.runners.insert("web".into(), runner);
        let web = call(&config, "web:it's").unwrap();
        assert_eq!(
            (web.command.as_str(), web.count.as_deref()),
            (r"sh: cd web && npm test -- 'it'\''s'", Some("ok"))
        );
        let plain = call(&config, "a b").unwrap();
        assert_eq!(
            (plain.command.as_str(), plain.count.as_deref()),
            ("just test 'a b'", Some(r"ran (\d+)"))
        );
    }

    #[test]
    fn tests_are_counted_in_what_each_program_writes() {
        let cases = [
            (
                "cargo test a",
                "running 2 tests\ntest a ... ok\n\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n\
                 running 0 tests\n\ntest result: ok. 0 passed; 0 failed;\ntest result: \u{1b}[32mok\u{1b}[0m. 6 passed; 0 failed;\n",
                8,
            ),
            (
                "cargo test a",
                "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n",
                0,
            ),
            ("cargo test a", "a test said: 5 passed;\n", 0),
            (
                "cargo nextest run a",
                "     Summary [   0.05s] 3 tests run: 3 passed, 7 skipped\n",
                3,
            ),
            (
                "python3 -m pytest a",
                "....\n==== 4 passed, 1 skipped in 0.03s ====\n",
                4,
            ),
            ("pytest a", "1 failed, 3 passed in 0.03s\n", 3),
            ("pytest a", "==== no tests ran in 0.01s ====\n", 0),
            (
                "go test ./... -json",
                "{\"Action\":\"run\",\"Test\":\"TestA\"}\n{\"Time\":\"t\",\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"TestA\",\"Elapsed\":0}\n\
                 {\"Action\":\"pass\",\"Package\":\"p\",\"Elapsed\":0}\n",
                1,
            ),
            (
                "go test -v ./...",
                "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\nPASS\n",
                2,
            ),
            ("node --test a", "# tests 5\n# pass 4\n# fail 1\n", 4),
            ("node --test a", "ℹ tests 5\nℹ pass 5\n", 5),
            (
                "npm test -- a",
                "Tests:       1 skipped, 7 passed, 8 total\n",
                7,
            ),
            (
                "npm test -- a",
                "      Tests  2 skipped | 6 passed (8)\n",
                6,
            ),
            ("npm test -- a", "  12 passing (30ms)\n", 12),
            (
                "bun test a",
                " 4 pass\n 1 fail\n 9 expect() calls\nRan 5 tests across 1 file. [9.00ms]\n",
                4,
            ),
            (
                "./mvnw -B test -Dtest=A",
                "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.04 s -- in a.ATest\n[INFO] \n\
                 [INFO] Results:\n[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0\n[INFO] BUILD SUCCESS\n",
                3,
            ),
            (
                "mvn test",
                "[INFO] No tests to run.\n[INFO] BUILD SUCCESS\n",
                0,
            ),
            (
                "./gradlew cleanTest test --info --tests a",
                "> Task :test\na.ATest > one() PASSED\n\na.ATest > two() PASSED\n\nBUILD SUCCESSFUL in 1s\n",
                2,
            ),
            ("make check", "test result: ok. 2 passed; 0 failed;\n", 0),
        ];
        for (command, output, expected) in cases {
            let call = Call {
                template: "",
                prefix: "",
                command: command.into(),
                count: None,
            };
            assert_eq!(
                count(&call, output).unwrap(),
                expected,
                "{command}: {output}"
            );
        }
    }

    #[test]
    fn configured_pattern_counts_numbers_or_matches() {
        let with = |pattern: &str, output: &str| {
            count(
                &Call {
                    template: "",
                    prefix: "",
                    command: "x".into(),
                    count: Some(pattern.into()),
                },
                output,
            )
        };
        assert_eq!(
            with(r"ran (\d[\d,]*) tests", "ran 1,200 tests\nran 3 tests\n").unwrap(),
            1_203
        );
        assert_eq!(with("(?m)^ok ", "ok 1\nok 2\nnot ok 3\n").unwrap(), 2);
        assert!(with("(", "").is_err());
    }
}
