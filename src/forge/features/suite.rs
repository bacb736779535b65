//! A suite of tests that is run once for many features: its output names each test.

use std::sync::LazyLock;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use regex::Regex;

use super::execute;
use super::verify::{OUTPUT, Problem, TestRun};
use crate::error::Result;
use crate::files::read_below;
use crate::project::Project;
use crate::runner::{self, Line};

/// The largest report of a suite that is read, in bytes.
const MAX_REPORT: u64 = 64 << 20;

/// A suite that was run.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) run: TestRun,
    harness: Harness,
    /// Each test by name, and whether it passed.
    tests: Vec<(String, bool)>,
    /// Why no test says anything.
    problem: Option<Problem>,
}

/// A program that runs tests and names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harness {
    /// libtest, by Cargo or nextest: a filter is a part of the name.
    Cargo,
    /// Names begin with the path of their file.
    Pytest,
    /// `go test -json`: a filter is a pattern.
    Go,
    /// `node --test` with a pattern of names. Its report is in the form of `JUnit`.
    Node,
    /// A program that leaves a report in the form of `JUnit`: a filter is a part of class and name.
    Junit,
}

impl Suite {
    /// Runs all tests of a command; `None` if what it prints does not name them.
    ///
    /// # Errors
    /// As [`runner::check`].
    pub(super) fn run(project: &Project, template: &str) -> Result<Option<Self>> {
        let verify = &project.config().verify;
        let report = verify.junit(template);
        let harness = if report.is_some() {
            Some(Harness::Junit)
        } else {
            Harness::of(template)
        };
        let Some(harness) = harness else {
            return Ok(None);
        };
        let timeout = verify.timeout();
        let all = if matches!(harness, Harness::Go | Harness::Node) {
            "."
        } else {
            ""
        };
        let variable = match harness {
            // The summary at the end of its output names each test.
            Harness::Pytest => Some(("PYTEST_ADDOPTS", "-rA")),
            Harness::Node => Some(("NODE_OPTIONS", "--test-reporter=junit")),
            _ => None,
        };
        let written = || {
            std::fs::metadata(project.root().join(report?))
                .and_then(|data| data.modified())
                .ok()
        };
        let before = written();
        let command = runner::text_of(&runner::argv(template, Some(all))?);
        let mut run = TestRun {
            test: "*".to_owned(),
            command,
            exit: None,
            timed_out: false,
            ms: 0,
            executed: 0,
            output: String::new(),
        };
        let (tests, problem) = match runner::check_with(
            project,
            Line::Project(template, Some(all)),
            timeout,
            variable,
        ) {
            Err(error) if error.code == "E_CANNOT_START" => {
                run.output = error.to_string();
                (Vec::new(), Some(Problem::CannotStart))
            }
            Err(error) => return Err(error),
            Ok(ran) => {
                let tests = match report {
                    Some(path) if written() != before => {
                        let bytes =
                            read_below(project.root(), path, MAX_REPORT)?.unwrap_or_default();
                        harness.tests(&String::from_utf8_lossy(&bytes))
                    }
                    // One of an earlier run says nothing.
                    Some(_) => Vec::new(),
                    None => harness.tests(&execute::plain(&ran.output)),
                };
                (run.exit, run.timed_out, run.ms) = (ran.exit, ran.timed_out, ran.ms);
                run.executed = tests.len() as u64;
                run.output = ran.end(OUTPUT);
                let problem = match (ran.timed_out, ran.passed(), tests.is_empty()) {
                    (true, ..) => Some(Problem::TimedOut),
                    (_, false, true) => Some(Problem::TestsFailed),
                    _ => None,
                };
                (tests, problem)
            }
        };
        Ok(Some(Self {
            run,
            harness,
            tests,
            problem,
        }))
    }

    /// Returns how many tests a name stands for, and what is wrong with them; `None` if none of
    /// them ran.
    pub(super) fn outcome(&self, name: &str) -> Option<(u64, Option<Problem>)> {
        if self.problem.is_some() {
            return Some((0, self.problem));
        }
        let pattern = matches!(self.harness, Harness::Go | Harness::Node)
            .then(|| Regex::new(name))
            .transpose()
            .ok()?;
        let fits = |test: &str| match (self.harness, &pattern) {
            (Harness::Cargo | Harness::Junit, _) => test.contains(name),
            (Harness::Pytest, _) => test
                .strip_prefix(name.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '['])),
            (Harness::Go | Harness::Node, pattern) => pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(test)),
        };
        let ran: Vec<bool> = self
            .tests
            .iter()
            .filter(|(test, _)| fits(test))
            .map(|(_, passed)| *passed)
            .collect();
        let failed = ran.contains(&false).then_some(Problem::TestsFailed);
        (!ran.is_empty()).then_some((ran.len() as u64, failed))
    }
}

impl Harness {
    fn of(template: &str) -> Option<Self> {
        let words = shlex::split(template.trim_start_matches("sh:"))?;
        words
            .iter()
            .find_map(|word| match word.rsplit('/').next().unwrap_or(word) {
                "cargo" => Some(Self::Cargo),
                "pytest" | "py.test" => Some(Self::Pytest),
                "go" if words.iter().any(|word| word == "-json") => Some(Self::Go),
                "node"
                    if words
                        .iter()
                        .any(|word| word.starts_with("--test-name-pattern")) =>
                {
                    Some(Self::Node)
                }
                _ => None,
            })
    }

    /// Reads the names of the tests that ran, each with whether it passed.
    fn tests(self, output: &str) -> Vec<(String, bool)> {
        static LIBTEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"(?m)^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED)\b").ok()
        });
        static NEXTEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(
                r"(?m)^\s+(PASS|FAIL|SIGABRT|SIGSEGV|TIMEOUT) \[[^\]]*\](?: \([^)]*\))? \S+ (\S+)$",
            )
            .ok()
        });
        static PYTEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"(?m)^(PASSED|FAILED|ERROR|XPASS) (\S+(?:\[.*?\])?)").ok()
        });
        #[derive(serde::Deserialize)]
        struct GoEvent {
            #[serde(rename = "Action")]
            action: String,
            #[serde(rename = "Test")]
            test: Option<String>,
        }
        let found = |pattern: &LazyLock<Option<Regex>>,
                     name: usize,
                     word: usize,
                     good: &str|
         -> Vec<(String, bool)> {
            let all = pattern
                .as_ref()
                .into_iter()
                .flat_map(|pattern| pattern.captures_iter(output));
            all.map(|found| (found[name].to_owned(), &found[word] == good))
                .collect()
        };
        match self {
            Self::Cargo => {
                let libtest = found(&LIBTEST, 1, 2, "ok");
                if libtest.is_empty() {
                    found(&NEXTEST, 2, 1, "PASS")
                } else {
                    libtest
                }
            }
            Self::Pytest => found(&PYTEST, 2, 1, "PASSED"),
            Self::Go => {
                let events = output
                    .lines()
                    .filter_map(|line| serde_json::from_str::<GoEvent>(line).ok());
                let ended = events.filter(|event| matches!(event.action.as_str(), "pass" | "fail"));
                ended
                    .filter_map(|event| Some((event.test?, event.action == "pass")))
                    .collect()
            }
            Self::Node => junit(output, |suites, [_, name]| {
                [suites, &[name]].concat().join(" ")
            }),
            Self::Junit => junit(output, |_, case| case.join(".")),
        }
    }
}

/// Reads a report in the form of `JUnit`, as far as it is well-formed: the tests that ran, each
/// with whether it passed.
///
/// `name` makes the name of a test of the suites around it, its class and its own name.
fn junit(report: &str, name: impl Fn(&[String], [String; 2]) -> String) -> Vec<(String, bool)> {
    let attribute = |tag: &BytesStart<'_>, name: &str| {
        let found = tag.try_get_attribute(name).ok().flatten();
        found
            .and_then(|found| found.normalized_value(XmlVersion::Implicit1_0).ok())
            .unwrap_or_default()
            .into_owned()
    };
    let (mut suites, mut tests, mut inside) = (Vec::new(), Vec::new(), None);
    let mut reader = Reader::from_str(report);
    reader.config_mut().expand_empty_elements = true;
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => match (tag.name().as_ref(), &mut inside) {
                (b"testsuite", _) => suites.push(attribute(&tag, "name")),
                (b"testcase", _) => {
                    let case = [attribute(&tag, "classname"), attribute(&tag, "name")];
                    inside = Some((name(&suites, case), Some(true)));
                }
                (b"failure" | b"error", Some((_, outcome))) => *outcome = Some(false),
                (b"skipped", Some((_, outcome))) => *outcome = None,
                _ => {}
            },
            Ok(Event::End(tag)) => match tag.name().as_ref() {
                b"testsuite" => drop(suites.pop()),
                b"testcase" => {
                    let ended = inside.take();
                    tests.extend(ended.and_then(|(name, outcome)| Some((name, outcome?))));
                }
                _ => {}
            },
            Ok(Event::Eof) | Err(_) => return tests,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(template: &str, output: &str) -> Suite {
        let harness = Harness::of(template).unwrap();
        let run = TestRun {
            test: "*".into(),
            command: template.into(),
            exit: Some(0),
            timed_out: false,
            ms: 1,
            executed: 0,
            output: String::new(),
        };
        Suite {
            run,
            harness,
            tests: harness.tests(output),
            problem: None,
        }
    }

    #[test]
    fn each_program_names_its_tests() {
        let libtest = "running 4 tests\ntest a::one ... ok\ntest a::two ... FAILED\ntest b::x - should panic ... ok\n\
                       test b::slow ... ignored\ntest src/lib.rs - half (line 3) ... ok\n";
        let cargo = suite("cargo test {prefix}", libtest);
        assert_eq!(cargo.outcome("a::one"), Some((1, None)));
        assert_eq!(cargo.outcome("a::"), Some((2, Some(Problem::TestsFailed))));
        assert_eq!(cargo.outcome("b::x"), Some((1, None)));
        assert_eq!(cargo.outcome("b::slow"), None, "it did not run");
        let nextest = "        PASS [   0.072s] (1/2) sums a::one\n        FAIL [   0.384s] (2/2) sums::it a::two\n";
        let nextest = suite("cargo nextest run {prefix}", nextest);
        assert_eq!(
            (nextest.outcome("a::one"), nextest.outcome("a::two")),
            (Some((1, None)), Some((1, Some(Problem::TestsFailed))))
        );
        let pytest = "PASSED tests/test_a.py::test_x\nPASSED tests/test_a.py::test_y[1-a b]\nFAILED tests/test_ab.py::T::test_z - assert 0\n";
        let pytest = suite("pytest {prefix}", pytest);
        assert_eq!(pytest.outcome("tests/test_a.py"), Some((2, None)));
        assert_eq!(pytest.outcome("tests/test_a.py::test_y"), Some((1, None)));
        assert_eq!(
            pytest.outcome("tests/"),
            Some((3, Some(Problem::TestsFailed)))
        );
        let go = "{\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"TestA\"}\n{\"Action\":\"fail\",\"Package\":\"p\",\"Test\":\"TestB\"}\n\
                  {\"Action\":\"fail\",\"Package\":\"p\"}\n";
        let go = suite("go test ./... -json -run {prefix}", go);
        assert_eq!(
            (go.outcome("TestA"), go.outcome("Test")),
            (Some((1, None)), Some((2, Some(Problem::TestsFailed))))
        );
        assert!(Harness::of("make check").is_none() && Harness::of("go test ./...").is_none());
        assert!(
            Harness::of("node --test {prefix}").is_none(),
            "its filter is a file, which the report does not name"
        );
    }

    #[test]
    fn reports_of_junit_name_tests_with_their_suites_or_classes() {
        // As `node --test` of version 20 prints it.
        let report = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<testsuites>\n\
            \t<testcase name=\"halves &lt;1&gt;\" time=\"0.005\" classname=\"test\"/>\n\
            \t<testcase name=\"fails\" time=\"0.002\" classname=\"test\" failure=\"1 == 2\">\n\
            \t\t<failure type=\"testCodeFailure\" message=\"1 == 2\">\n[Error: &lt;testcase name=\"x\"/>]\n\t\t</failure>\n\t</testcase>\n\
            \t<testsuite name=\"group\" tests=\"2\">\n\t\t<testcase name=\"inner\" classname=\"test\"/>\n\
            \t\t<testcase name=\"later\" classname=\"test\"><skipped type=\"skipped\"/></testcase>\n\
            \t</testsuite>\n\t<testcase name=\"last\" classname=\"test\"/>\n\t<!-- tests 4 -->\n</testsuites>";
        let node = suite("node --test --test-name-pattern={prefix}", report);
        assert_eq!(node.outcome("^halves <1>"), Some((1, None)));
        assert_eq!(node.outcome("fails"), Some((1, Some(Problem::TestsFailed))));
        assert_eq!(
            (node.outcome("^group inner$"), node.outcome("later")),
            (Some((1, None)), None)
        );
        assert_eq!(
            node.outcome("^last$"),
            Some((1, None)),
            "the suite has ended"
        );
        let named: Vec<_> = Harness::Junit
            .tests(report)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            named,
            ["test.halves <1>", "test.fails", "test.inner", "test.last"]
        );
        assert_eq!(
            Harness::Junit.tests("<testsuite><testcase name=\"a\"/><testcase name=\"b"),
            [(".a".into(), true)]
        );
        assert_eq!(Harness::Junit.tests("no XML"), []);
    }
}
