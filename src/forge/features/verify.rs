//! Verifies features by running their tests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::file::{Feature, FeaturesFile, Status, unknown};
use super::probes::{self, Probes};
use super::{Features, Standing, execute, status_inputs};
use crate::artifacts::{self, Artifacts, Put};
use crate::error::{Category, Error, Result};
use crate::layout::CONFIG;
use crate::recovery::Recovery;
use crate::runner::{self, Line};
use crate::time::Time;

/// Number of bytes kept of a test's output: its end.
const OUTPUT: usize = 4 << 10;

/// Why the tests of a project without settings and without Cargo cannot be run.
const NO_RUNNER: &str = "no command is set that runs the tests here, and the default (cargo test) needs a Cargo.toml";
/// What to do after a pass of code that is not committed.
const UNCOMMITTED: &str = "commit the code: until then the pass is that of no commit, and the list shows passing_stale";

/// Result of verifying a feature. A transport ends with exit code 1 unless it passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// The feature.
    pub id: String,
    /// Whether it passed: every command ended with 0, and each ran at least one test.
    pub passed: bool,
    /// Its status now.
    pub status: Status,
    /// Its standing now, as the list shows it.
    ///
    /// A pass of code that is not committed is `passing_stale` until that code is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// Why it did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Whether it regressed.
    pub regressed: bool,
    /// Number of tests that ran.
    pub executed: u64,
    /// The commands that ran.
    pub runs: Vec<TestRun>,
    /// The artifact that is the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The tested code tree with uncommitted changes, without `.forge/`.
    ///
    /// Absent without git, and if the code changed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_tree: Option<String>,
    /// Whether the code differs from that of the commit.
    pub dirty: bool,
    /// A hint about the test setup, if no test ran, or about code that is not committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Why a feature did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Problem {
    /// It names no tests.
    NoTests,
    /// A command ended with 0, and ran no test.
    NoTestsMatched,
    /// A command did not end with 0.
    TestsFailed,
    /// A command ran out of time.
    TimedOut,
    /// A command could not be started.
    CannotStart,
}

impl Problem {
    /// Says whether it tells nothing about the feature: its environment has changed, or is slow.
    #[must_use]
    pub const fn says_nothing(self) -> bool {
        matches!(self, Self::TimedOut | Self::CannotStart)
    }

    /// Returns the problem as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A command that ran tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestRun {
    /// The test, as the feature names it.
    pub test: String,
    /// The command.
    pub command: String,
    /// Its exit code; none if a signal ended it, it timed out or it could not be started.
    pub exit: Option<i32>,
    /// Whether it timed out.
    pub timed_out: bool,
    /// Duration, in milliseconds.
    pub ms: u64,
    /// Number of tests it ran.
    pub executed: u64,
    /// The end of its output, at most 4 KiB, without lines that look like they hold a credential.
    pub output: String,
}

/// Which features to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The named features.
    Named(Vec<String>),
    /// Every feature with runnable tests.
    All,
    /// Features that passed or claim to, without evidence for the current code.
    Stale,
}

/// Why the tests of a feature are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A requested verification: a pass is always stored.
    Verification,
    /// A session starts: a pass is stored only if the code differs from the code that passed.
    ///
    /// Where entries have files of their own, it is stored in this clone only. Features without stored evidence are
    /// never probed.
    Probe,
}

/// Evidence report of a feature.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema_version: &'static str,
    report: &'static str,
    feature: &'a str,
    name: &'a str,
    at: Time,
    agent: &'a str,
    commit: Option<&'a str>,
    code_tree: Option<&'a str>,
    dirty: bool,
    executed: u64,
    runs: &'a [TestRun],
}

/// The tested code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Code {
    commit: Option<String>,
    tree: Option<String>,
    dirty: bool,
}

impl Features<'_> {
    /// Runs the tests of a feature.
    ///
    /// It passes if every command ends with 0 and each ran at least one test; an artifact then keeps the
    /// result. A feature that worked and no longer does is marked as regressed. A feature whose tests could
    /// not be started, or did not end, keeps its status. No lock is held while tests run.
    ///
    /// # Errors
    /// `NotFound` for an unknown feature; `Usage` for a manual feature; `Stale` if the commit or the feature
    /// changed while its tests ran; errors from writing. A failing test is not an error.
    pub fn verify(&self, id: &str) -> Result<Verified> {
        let verified = self.test(id, Purpose::Verification)?;
        // A command that does not start, or does not end, tells nothing about the code.
        if !verified.problem.is_some_and(Problem::says_nothing) {
            Recovery::new(self.project).tried_feature(verified.passed, id);
        }
        Ok(verified)
    }

    /// Verifies several features, one after the other.
    ///
    /// Manual and deferred features, and those without tests, are skipped unless they are named.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_each(&self, which: &Which) -> Result<Vec<Verified>> {
        let ids = match which {
            Which::Named(ids) => ids.clone(),
            Which::All | Which::Stale => {
                let (file, standings) = self.judged()?;
                let wanted = |standing: Standing| match which {
                    Which::Stale => {
                        matches!(standing, Standing::PassingStale | Standing::UnverifiedPass | Standing::Regressed)
                    }
                    _ => standing != Standing::Deferred,
                };
                let all = file.features.iter().zip(standings);
                all.filter(|(feature, standing)| {
                    feature.manual != Some(true) && !feature.tests().is_empty() && wanted(*standing)
                })
                .map(|(feature, _)| feature.id.clone())
                .collect()
            }
        };
        ids.iter().map(|id| self.verify(id)).collect()
    }

    /// Runs the tests of a feature and stores the result.
    fn test(&self, id: &str, purpose: Purpose) -> Result<Verified> {
        let project = self.project;
        project.check_not_paused()?;
        let file = self.read()?;
        let feature = file.get(id).ok_or_else(|| unknown(id))?.clone();
        if feature.manual == Some(true) {
            return Err(Error::usage(format!("{id} is verified by a person, not by tests"))
                .hint(format!("store what shows that it works as an artifact, then `helmdeck forge features manual {id} --evidence TRIV --by NAME`"))
                .next("helmdeck forge artifact list"));
        }
        let before = self.code()?;
        let (runs, problem) = self.run(&feature)?;
        let after = self.code()?;
        if before.commit != after.commit {
            return Err(Error::new(
                Category::Stale,
                "E_STALE",
                format!("the commit changed while the tests of {id} ran, so they say nothing about it"),
            )
            .hint("verify it again")
            .next(format!("helmdeck forge features verify {id}")));
        }
        // If the code changed during the tests, the result belongs to no known code tree.
        let tree = after.tree.clone().filter(|tree| before.tree.as_ref() == Some(tree));
        let executed = runs.iter().map(|run| run.executed).sum();
        let now = project.environment().now().seconds();
        let known = purpose == Purpose::Probe
            && problem.is_none()
            && feature.status == Status::Passing
            && tree.is_some()
            && (feature.verified_code_tree == tree || project.config().files.per_entry);
        if let Some(tree) = tree.as_deref().filter(|tree| known && feature.verified_code_tree.as_deref() != Some(tree))
        {
            probes::record(project, id, now, tree);
        }
        let mut evidence = feature.evidence.clone().filter(|_| known);
        if problem.is_none() && !known {
            let report = Report {
                schema_version: "1.0",
                report: "feature_verification",
                feature: id,
                name: &feature.name,
                at: now,
                agent: &project.environment().agent,
                commit: after.commit.as_deref(),
                code_tree: tree.as_deref(),
                dirty: after.dirty,
                executed,
                runs: &runs,
            };
            let bytes = crate::json::print(&report)
                .map_err(|error| Error::new(Category::Failed, "E_INVALID", format!("the report of {id}: {error}")))?;
            let put = Put::new(artifacts::Kind::Reports, status_inputs::report_name(id));
            evidence = Some(Artifacts::new(project).put(&bytes, &put)?.entry.triv.to_string());
        }
        let (from, status, regressed) = project.files().edit(None, |file: &mut FeaturesFile| {
            let current = file.get_mut(id)?;
            if current.tests != feature.tests || current.manual != feature.manual {
                return Err(Error::new(Category::Stale, "E_STALE", format!("{id} was changed while its tests ran"))
                    .hint("verify it again"));
            }
            let from = current.status;
            let mut regressed = false;
            let nothing = problem.is_some_and(Problem::says_nothing);
            if known || from == Status::Passing && nothing {
                return Ok((from, from, false));
            }
            if let Some(evidence) = &evidence {
                current.become_(Status::Passing, now);
                current.evidence = Some(evidence.clone());
                current.verified_at = Some(now);
                current.verified_commit.clone_from(&after.commit);
                current.verified_code_tree.clone_from(&tree);
                current.regressed_before = current.regressed_at.take().or(current.regressed_before);
                (current.verified_by, current.reason) = (None, None);
            } else {
                regressed = from == Status::Passing && current.evidence.is_some();
                // Its owner and its deferral stay, and tests that did not run show nothing.
                if !nothing && !matches!(from, Status::InProgress | Status::Blocked | Status::Deferred) {
                    current.become_(Status::Failing, now);
                }
                current.reason = problem.map(|problem| problem.as_str().to_owned());
            }
            Ok((from, current.status, regressed))
        })?;
        self.tell(id, from, status, evidence.as_deref());
        let now = self.read()?.get(id).cloned();
        let standing = now.and_then(|now| status_inputs::judge(project, &[now], false).ok()?.pop());
        let hint = problem.filter(|_| executed == 0).map(|problem| hint(id, problem, &runs));
        let uncommitted = problem.is_none() && after.dirty && standing == Some(Standing::PassingStale);
        let hint = hint.or_else(|| uncommitted.then(|| UNCOMMITTED.to_owned()));
        Ok(Verified {
            id: id.to_owned(),
            passed: problem.is_none(),
            status,
            standing,
            problem,
            regressed,
            executed,
            runs,
            evidence,
            commit: after.commit,
            code_tree: tree,
            dirty: after.dirty,
            hint,
        })
    }

    /// Tests some passing features again: those with the oldest verification.
    ///
    /// 2 unless `[session] probes` says otherwise. A regression is recorded.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn probe(&self, count: Option<usize>) -> Result<Vec<Verified>> {
        let file = self.read()?;
        let standings = status_inputs::judge(self.project, &file.features, false)?;
        let count = count.unwrap_or(self.project.config().session.probes);
        let unknown = |feature: &Feature| Verified {
            id: feature.id.clone(),
            passed: false,
            status: feature.status,
            standing: None,
            problem: Some(Problem::CannotStart),
            regressed: false,
            executed: 0,
            runs: Vec::new(),
            evidence: None,
            commit: None,
            code_tree: None,
            dirty: false,
            hint: None,
        };
        let seen = Probes::read(self.project);
        let mut wanted = file.least_recent(&standings, usize::MAX);
        wanted.sort_by_key(|feature| seen.seen(feature));
        let probed = wanted.into_iter().take(count).map(|feature| {
            match self.test(&feature.id, Purpose::Probe) {
                // An invalid test is reported by `verify`. It must not stop a session from starting.
                Err(error) if error.category == Category::Usage => Ok(unknown(feature)),
                tested => tested,
            }
        });
        probed.collect()
    }

    /// Runs the tests of a feature without storing the result, for an assessment of the project.
    ///
    /// # Errors
    /// `NotFound` for an unknown feature; `Usage` for tests that cannot be run.
    pub fn works(&self, id: &str) -> Result<(Vec<TestRun>, Option<Problem>)> {
        let file = self.read()?;
        self.run(file.get(id).ok_or_else(|| unknown(id))?)
    }

    fn run(&self, feature: &Feature) -> Result<(Vec<TestRun>, Option<Problem>)> {
        let verify = &self.project.config().verify;
        let mut runs = Vec::new();
        let mut problem = feature.tests().is_empty().then_some(Problem::NoTests);
        for test in feature.tests() {
            let call = execute::call(verify, test)?;
            let mut run = TestRun {
                test: test.clone(),
                command: call.command.clone(),
                exit: None,
                timed_out: false,
                ms: 0,
                executed: 0,
                output: String::new(),
            };
            let unset = !self.project.has_runner() && execute::has_no_own_runner(verify, test);
            let ran = if unset {
                run.command.clear();
                Err(Error::new(Category::Failed, "E_CANNOT_START", NO_RUNNER))
            } else {
                let command = Line::Project(call.template, Some(call.prefix));
                runner::check(self.project, command, verify.timeout())
            };
            let found = match ran {
                Err(error) if error.code == "E_CANNOT_START" => {
                    run.output = error.to_string();
                    Some(Problem::CannotStart)
                }
                Err(error) => return Err(error),
                Ok(ran) => {
                    run.executed = execute::count(&call, &ran.output)?;
                    (run.exit, run.timed_out, run.ms) = (ran.exit, ran.timed_out, ran.ms);
                    run.output = ran.end(OUTPUT);
                    if ran.timed_out {
                        Some(Problem::TimedOut)
                    } else if !ran.passed() {
                        Some(Problem::TestsFailed)
                    } else if run.executed == 0 {
                        Some(Problem::NoTestsMatched)
                    } else {
                        None
                    }
                }
            };
            runs.push(run);
            // The first problem is reported, unless it says nothing about the feature and a later one does.
            // The remaining tests still run, so that one verification shows all failures.
            problem = match (problem, found) {
                (Some(first), Some(other)) if first.says_nothing() && !other.says_nothing() => Some(other),
                (first, other) => first.or(other),
            };
            if found == Some(Problem::TimedOut) {
                break;
            }
        }
        Ok((runs, problem))
    }

    fn code(&self) -> Result<Code> {
        let Some(git) = self.project.repository()? else { return Ok(Code::default()) };
        let head = git.head()?;
        let dirty = head.is_none() || git.status()?.outside(git.memory()).next().is_some();
        let tree = match &head {
            Some(head) if !dirty => Some(git.code_tree(head)?),
            _ => Some(status_inputs::work_tree(&git)?),
        };
        Ok(Code { commit: head.map(|oid| oid.as_str().to_owned()), tree, dirty })
    }
}

/// Returns a hint about the test setup of a feature.
fn hint(id: &str, problem: Problem, runs: &[TestRun]) -> String {
    match (problem, runs.last()) {
        (Problem::TimedOut, _) => format!("give it more time: verify.timeout_s in {CONFIG}"),
        (Problem::CannotStart, Some(run)) if run.command.is_empty() => format!(
            "{NO_RUNNER}: set verify.runner in {CONFIG}, such as \"pytest {{prefix}}\", or let the test name its runner: \
             helmdeck forge features set {id} --test pytest:tests/test_a.py"
        ),
        (Problem::CannotStart, Some(run)) => format!(
            "`{}` could not be started: install the program that runs the tests, or set verify.runner in {CONFIG}",
            runs.iter().find(|run| run.exit.is_none()).unwrap_or(run).command
        ),
        (Problem::TestsFailed, Some(run)) => {
            let failed = runs.iter().find(|run| run.exit != Some(0)).unwrap_or(run);
            format!("`{}` failed before it ran a test: the end of its output says why", failed.command)
        }
        (_, Some(run)) => format!(
            "{} ran no test: name the tests as they are called, or, if tests are not run so here, set verify.runner in {CONFIG}",
            run.command
        ),
        (_, None) => format!("no test is named: helmdeck forge features set {id} --test <test>"),
    }
}
