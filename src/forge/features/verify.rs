//! Verifies features by running their tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use helmdeck_forge_documents::checkpoints::FeaturePass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::code::{self, CodeSnapshot, Packages};
use super::file::{Feature, FeaturesFile, Status, unknown};
use super::reports::{self, Pass, Probes, VerificationReport};
use super::suite::Suite;
use super::{Features, Standing, execute, status_inputs};
use crate::artifacts::{self, Artifacts, Put};
use crate::error::{Category, Error, Result};
use crate::layout::CONFIG;
use crate::runner::{self, Line};

/// Number of bytes kept of a test's output: its end.
pub(super) const OUTPUT: usize = 4 << 10;

/// Why the tests of a project without settings and without Cargo cannot be run.
const NO_RUNNER: &str =
    "no command is set that runs the tests here, and the default (cargo test) needs a Cargo.toml";
/// What to do after a pass of code that is not committed.
const UNCOMMITTED: &str =
    "commit the code: until then the pass is that of no commit, and the list shows passing_stale";

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
    /// Where entries have files of their own, it is stored in this clone only. Features without
    /// stored evidence are never probed.
    Probe,
}

/// How the tests of a feature went.
#[derive(Debug)]
struct Tested {
    runs: Vec<TestRun>,
    problem: Option<Problem>,
    executed: u64,
}

impl Features<'_> {
    /// Runs the tests of a feature.
    ///
    /// It passes if every command ends with 0 and each ran at least one test; a report then keeps
    /// the result. A feature that worked and no longer does is marked as regressed. A feature whose
    /// tests could not be started, or did not end, keeps its status. No lock is held while tests
    /// run.
    ///
    /// # Errors
    /// `NotFound` for an unknown feature; `Stale` if the commit or the feature
    /// changed while its tests ran; errors from writing. A failing test is not an error.
    pub fn verify(&self, id: &str) -> Result<Verified> {
        self.verify_each(&Which::Named(vec![id.to_owned()]))?
            .pop()
            .ok_or_else(|| unknown(id))
    }

    /// Verifies several features, and writes one report.
    ///
    /// A suite that many of them belong to is run once, if its output names each test. Deferred
    /// features, and those without tests, are skipped unless they are named.
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
                        matches!(
                            standing,
                            Standing::PassingStale | Standing::UnverifiedPass | Standing::Regressed
                        )
                    }
                    _ => standing != Standing::Deferred,
                };
                let all = file.features.iter().zip(standings);
                all.filter(|(feature, standing)| !feature.tests().is_empty() && wanted(*standing))
                    .map(|(feature, _)| feature.id.clone())
                    .collect()
            }
        };
        self.test(&ids, Purpose::Verification)
    }

    /// Runs the tests of features and stores the result.
    fn test(&self, ids: &[String], purpose: Purpose) -> Result<Vec<Verified>> {
        let project = self.project;
        project.check_not_paused()?;
        let file = self.read()?;
        let mut features = Vec::new();
        for id in ids {
            features.push(file.get(id).ok_or_else(|| unknown(id))?.clone());
        }
        if features.is_empty() {
            return Ok(Vec::new());
        }
        let git = project.repository()?;
        let code = || git.as_ref().map(CodeSnapshot::of_work_tree).transpose();
        let before = code()?;
        let tested = self.run_all(&file, &features)?;
        let after = code()?;
        let commit =
            |code: &Option<CodeSnapshot>| code.as_ref().and_then(|code| code.commit.clone());
        if commit(&before) != commit(&after) {
            let message = "the commit changed while the tests ran, so they say nothing about it";
            return Err(Error::new(Category::Stale, "E_STALE", message)
                .hint("verify again")
                .next(format!("helmdeck forge verify {}", ids.join(" "))));
        }
        // If the code changed during the tests, the result belongs to no known code.
        let code = after.clone().filter(|_| before == after);
        let trees = match (&git, &code) {
            (Some(git), Some(code)) => {
                let packages = Packages::read(git)?;
                let paths: Vec<BTreeSet<String>> = features
                    .iter()
                    .map(|feature| packages.paths(feature))
                    .collect();
                let objects = code.objects(git, &paths.iter().flatten().cloned().collect())?;
                paths
                    .iter()
                    .map(|paths| code::trees(paths, &objects))
                    .collect()
            }
            _ => vec![BTreeMap::new(); features.len()],
        };
        let now = project.environment().now().seconds();
        let passes = trees.into_iter().map(|trees| Pass {
            at: now,
            code_tree: code.as_ref().and_then(|code| code.tree.clone()),
            trees,
        });
        let tested: Vec<(Feature, Tested, Pass)> = features
            .into_iter()
            .zip(tested)
            .zip(passes)
            .map(|((feature, tested), pass)| (feature, tested, pass))
            .collect();
        let dirty = after.as_ref().is_some_and(|code| code.dirty);
        self.settle(
            &tested,
            purpose,
            commit(&after).map(|oid| oid.to_string()),
            dirty,
        )
    }

    /// Writes the report and what changes of the features.
    fn settle(
        &self,
        tested: &[(Feature, Tested, Pass)],
        purpose: Purpose,
        commit: Option<String>,
        dirty: bool,
    ) -> Result<Vec<Verified>> {
        let project = self.project;
        let standings = status_inputs::judge(
            project,
            &tested.iter().map(|one| one.0.clone()).collect::<Vec<_>>(),
        )?;
        // A pass that is known already needs no report; one that a session start sees stays in this
        // clone.
        let known = |at: usize, feature: &Feature, pass: &Pass| {
            feature.status == Status::Passing
                && (standings[at] == Standing::Passing
                    || (purpose == Purpose::Probe
                        && standings[at].counts()
                        && pass.code_tree.is_some()))
        };
        let passed = || {
            tested
                .iter()
                .enumerate()
                .filter(|(_, (_, tested, _))| tested.problem.is_none())
        };
        if purpose == Purpose::Probe {
            let seen = passed().filter(|(at, (feature, _, pass))| known(*at, feature, pass));
            let seen: Vec<(&str, Pass)> = seen
                .map(|(_, (feature, _, pass))| (feature.id.as_str(), pass.clone()))
                .collect();
            reports::record(project, &seen);
        }
        let new: Vec<_> = passed()
            .filter(|(at, (feature, _, pass))| !known(*at, feature, pass))
            .map(|(_, one)| one)
            .collect();
        let evidence = match new.first() {
            Some((_, _, pass)) => Some(self.report(&new, pass, commit.as_deref(), dirty)?),
            None => None,
        };
        let now = project.environment().now().seconds();
        let changes = project.files().edit(None, |file: &mut FeaturesFile| {
            let mut changes = Vec::new();
            for (at, (feature, tested, pass)) in tested.iter().enumerate() {
                let current = file.get_mut(&feature.id)?;
                if current.tests != feature.tests {
                    let message = format!("{} was changed while its tests ran", feature.id);
                    return Err(
                        Error::new(Category::Stale, "E_STALE", message).hint("verify it again")
                    );
                }
                let from = current.status;
                let nothing = tested.problem.is_some_and(Problem::says_nothing);
                let mut regressed = false;
                if tested.problem.is_none() {
                    // The report says that it passed again.
                    if from != Status::Passing || standings[at] == Standing::UnverifiedPass {
                        current.become_(Status::Passing, now);
                        current.evidence.clone_from(&evidence);
                        current.verified_at = Some(now);
                        current.verified_commit.clone_from(&commit);
                        current.verified_code_tree.clone_from(&pass.code_tree);
                        current.regressed_before =
                            current.regressed_at.take().or(current.regressed_before);
                        current.reason = None;
                    }
                } else if !(from == Status::Passing && nothing) {
                    regressed = from == Status::Passing && current.evidence.is_some();
                    // Its owner and its deferral stay, and tests that did not run show nothing.
                    if !nothing
                        && !matches!(
                            from,
                            Status::InProgress | Status::Blocked | Status::Deferred
                        )
                    {
                        current.become_(Status::Failing, now);
                    }
                    current.reason = tested.problem.map(|problem| problem.as_str().to_owned());
                }
                changes.push((from, current.status, regressed, current.evidence.clone()));
            }
            Ok(changes)
        })?;
        let file = self.read()?;
        let now: Vec<Feature> = tested
            .iter()
            .filter_map(|(feature, ..)| file.get(&feature.id).cloned())
            .collect();
        let standings = status_inputs::judge(project, &now)?;
        let verified = tested.iter().zip(changes).enumerate().map(
            |(at, ((feature, tested, pass), change))| {
                let (from, status, regressed, shown) = change;
                let passed = tested.problem.is_none();
                self.tell(
                    &feature.id,
                    from,
                    status,
                    shown.as_deref().filter(|_| passed),
                );
                let standing = standings.get(at).copied();
                let hint = tested.problem.filter(|_| tested.executed == 0);
                let hint = hint.map(|problem| hint_of(&feature.id, problem, &tested.runs));
                let uncommitted = passed && dirty && standing == Some(Standing::PassingStale);
                Verified {
                    id: feature.id.clone(),
                    passed,
                    status,
                    standing,
                    problem: tested.problem,
                    regressed,
                    executed: tested.executed,
                    runs: tested.runs.clone(),
                    evidence: evidence.clone().or(shown).filter(|_| passed),
                    commit: commit.clone(),
                    code_tree: pass.code_tree.clone(),
                    dirty,
                    hint: hint.or_else(|| uncommitted.then(|| UNCOMMITTED.to_owned())),
                }
            },
        );
        Ok(verified.collect())
    }

    /// Stores the report of some passes of one run. Returns its reference.
    fn report(
        &self,
        passed: &[&(Feature, Tested, Pass)],
        of: &Pass,
        commit: Option<&str>,
        dirty: bool,
    ) -> Result<String> {
        let mut runs: Vec<&TestRun> = Vec::new();
        for run in passed.iter().flat_map(|(_, tested, _)| &tested.runs) {
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        let settled = |tested: &Tested, pass: &Pass| FeaturePass {
            executed: tested.executed,
            trees: pass.trees.clone(),
        };
        let report = VerificationReport {
            schema_version: "1.0",
            report: "verification",
            at: of.at,
            agent: &self.project.environment().agent,
            commit,
            code_tree: of.code_tree.as_deref(),
            dirty,
            features: passed
                .iter()
                .map(|(feature, tested, pass)| (feature.id.as_str(), settled(tested, pass)))
                .collect(),
            runs,
        };
        let bytes = crate::json::print(&report).map_err(|error| {
            Error::new(
                Category::Failed,
                "E_INVALID",
                format!("the report: {error}"),
            )
        })?;
        let put = Put::new(artifacts::Kind::Reports, artifacts::VERIFICATION);
        Ok(Artifacts::new(self.project)
            .put(&bytes, &put)?
            .entry
            .triv
            .to_string())
    }

    /// Tests some passing features again: those with the oldest verification.
    ///
    /// A regression is recorded.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub(crate) fn probe(&self, count: usize) -> Result<Vec<Verified>> {
        let file = self.read()?;
        let standings = status_inputs::judge(self.project, &file.features)?;
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
        wanted.sort_by_key(|feature| {
            feature
                .verified_at
                .max(seen.get(&feature.id).map(|pass| pass.at))
        });
        let probed = wanted.into_iter().take(count).map(|feature| {
            match self.test(std::slice::from_ref(&feature.id), Purpose::Probe) {
                // An invalid test is reported by `verify`. It must not stop a session from
                // starting.
                Err(error) if error.category == Category::Usage => Ok(unknown(feature)),
                tested => Ok(tested?.pop().unwrap_or_else(|| unknown(feature))),
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
        let tested = self.run(file.get(id).ok_or_else(|| unknown(id))?, &HashMap::new())?;
        Ok((tested.runs, tested.problem))
    }

    /// Runs the tests of features: of a suite that has at least half of its features among them
    /// once, else one by one.
    fn run_all(&self, file: &FeaturesFile, features: &[Feature]) -> Result<Vec<Tested>> {
        let verify = &self.project.config().verify;
        let templates = |features: &[Feature]| -> Result<HashMap<String, usize>> {
            let mut counts = HashMap::new();
            for test in features.iter().flat_map(Feature::tests) {
                *counts
                    .entry(execute::call(verify, test)?.template.to_owned())
                    .or_default() += 1;
            }
            Ok(counts)
        };
        let wanted = templates(features)?;
        // What is invalid among the others is theirs.
        let all = templates(&file.features).unwrap_or_default();
        let mut suites = HashMap::new();
        for (template, wanted) in wanted {
            if wanted > 1
                && 2 * wanted >= all.get(&template).copied().unwrap_or_default()
                && self.can_run(&template)
            {
                suites.extend(Suite::run(self.project, &template)?.map(|suite| (template, suite)));
            }
        }
        features
            .iter()
            .map(|feature| self.run(feature, &suites))
            .collect()
    }

    fn can_run(&self, template: &str) -> bool {
        self.project.has_runner() || template != self.project.config().verify.runner
    }

    fn run(&self, feature: &Feature, suites: &HashMap<String, Suite>) -> Result<Tested> {
        let verify = &self.project.config().verify;
        let mut runs = Vec::new();
        let mut problem = feature.tests().is_empty().then_some(Problem::NoTests);
        let mut executed = 0;
        for test in feature.tests() {
            let call = execute::call(verify, test)?;
            let of_suite = suites
                .get(call.template)
                .and_then(|suite| Some((suite, suite.outcome(call.prefix)?)));
            let (run, count, found) = match of_suite {
                Some((suite, (count, found))) => (suite.run.clone(), count, found),
                None => {
                    let (run, found) = self.run_one(test, &call)?;
                    let count = run.executed;
                    (run, count, found)
                }
            };
            executed += count;
            runs.push(run);
            // The first problem is reported, unless it says nothing about the feature and a later
            // one does. The remaining tests still run, so that one verification shows all failures.
            problem = match (problem, found) {
                (Some(first), Some(other)) if first.says_nothing() && !other.says_nothing() => {
                    Some(other)
                }
                (first, other) => first.or(other),
            };
            if found == Some(Problem::TimedOut) {
                break;
            }
        }
        Ok(Tested {
            runs,
            problem,
            executed,
        })
    }

    fn run_one(&self, test: &str, call: &execute::Call<'_>) -> Result<(TestRun, Option<Problem>)> {
        let verify = &self.project.config().verify;
        let mut run = TestRun {
            test: test.to_owned(),
            command: call.command.clone(),
            exit: None,
            timed_out: false,
            ms: 0,
            executed: 0,
            output: String::new(),
        };
        let ran = if !self.project.has_runner() && execute::has_no_own_runner(verify, test) {
            run.command.clear();
            Err(Error::new(Category::Failed, "E_CANNOT_START", NO_RUNNER))
        } else {
            runner::check(
                self.project,
                Line::Project(call.template, Some(call.prefix)),
                verify.timeout(),
            )
        };
        let found = match ran {
            Err(error) if error.code == "E_CANNOT_START" => {
                run.output = error.to_string();
                Some(Problem::CannotStart)
            }
            Err(error) => return Err(error),
            Ok(ran) => {
                run.executed = execute::count(call, &ran.output)?;
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
        Ok((run, found))
    }
}

/// Returns a hint about the test setup of a feature.
fn hint_of(id: &str, problem: Problem, runs: &[TestRun]) -> String {
    match (problem, runs.last()) {
        (Problem::TimedOut, _) => format!("give it more time: verify.timeout_s in {CONFIG}"),
        (Problem::CannotStart, Some(run)) if run.command.is_empty() => format!(
            "{NO_RUNNER}: set verify.runner in {CONFIG}, such as \"pytest {{prefix}}\", or let the test name its runner: \
             helmdeck forge features set {id} --test pytest:tests/test_a.py"
        ),
        (Problem::CannotStart, Some(run)) => format!(
            "`{}` could not be started: install the program that runs the tests, or set verify.runner in {CONFIG}",
            runs.iter()
                .find(|run| run.exit.is_none())
                .unwrap_or(run)
                .command
        ),
        (Problem::TestsFailed, Some(run)) => {
            let failed = runs.iter().find(|run| run.exit != Some(0)).unwrap_or(run);
            format!(
                "`{}` failed before it ran a test: the end of its output says why",
                failed.command
            )
        }
        (_, Some(run)) => format!(
            "{} ran no test: name the tests as they are called, or, if tests are not run so here, set verify.runner in {CONFIG}",
            run.command
        ),
        (_, None) => format!("no test is named: helmdeck forge features set {id} --test <test>"),
    }
}
