//! The output of `swe.solve`.

use std::time::Duration;

use helmdeck_core::Error;
use helmdeck_core::session::Executed;
use serde::Serialize;

use super::ending::Ending;
use super::observation;
use super::trajectory::{Spent, ended, exit};

/// Maximum length of the tests' output in the answer, in bytes.
const MAX_TAIL_BYTES: usize = 4000;

/// Maximum size of a patch in the answer if all of it is an artifact, in bytes.
///
/// As JSON it is at most six times as long, so the answer always fits into the limit of a job's
/// result (`jobs.max_result_bytes`, 4 MiB).
const MAX_PATCH_BYTES: usize = 512 << 10;

/// The output.
#[derive(Debug, Serialize)]
pub(super) struct Output {
    pub(super) success: bool,
    pub(super) summary: String,
    pub(super) ended: &'static str,
    pub(super) patch: String,
    pub(super) patch_truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch_artifact_key: Option<String>,
    pub(super) base_commit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pr_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trajectory_artifact_key: Option<String>,
    pub(super) steps_executed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tests: Option<Tests>,
    pub(super) usage: UsageOut,
    pub(super) model: String,
}

/// Returns the start of a long patch, up to the end of a line, and whether there is more.
pub(super) fn start(patch: String) -> (String, bool) {
    if patch.len() <= MAX_PATCH_BYTES {
        return (patch, false);
    }
    let head = &patch[..patch.floor_char_boundary(MAX_PATCH_BYTES)];
    let end = head.rfind('\n').map_or(head.len(), |end| end + 1);
    (head[..end].to_owned(), true)
}

/// Result of the tests.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Tests {
    pub(super) command: String,
    pub(super) ended: &'static str,
    pub(super) exit: Option<i32>,
    pub(super) tail: String,
}

impl Tests {
    /// Makes the result of a test command.
    pub(super) fn new(command: &str, executed: &Executed) -> Self {
        let (text, _) = observation::output(&executed.stdout, MAX_TAIL_BYTES * 2);
        let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_TAIL_BYTES));
        Self {
            command: command.to_owned(),
            ended: ended(executed.ended),
            exit: exit(executed.ended),
            tail: text[start..].to_owned(),
        }
    }

    /// Makes the result for tests that did not run: there was no time or no session for them.
    pub(super) fn not_run(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            ended: "not_run",
            exit: None,
            tail: String::new(),
        }
    }

    /// Returns whether they passed.
    pub(super) const fn passed(&self) -> bool {
        matches!(self.exit, Some(0))
    }

    /// Describes the result for a person.
    pub(super) fn shown(&self) -> String {
        match self.exit {
            Some(status) => format!("`{}` exited with {status}", self.command),
            None => format!("`{}`: {}", self.command, self.ended.replace('_', " ")),
        }
    }
}

/// Usage, on the wire.
#[derive(Debug, Serialize)]
pub(super) struct UsageOut {
    steps: u32,
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    seconds: f64,
}

impl UsageOut {
    pub(super) fn new(spent: &Spent, took: Duration) -> Self {
        Self {
            steps: spent.steps,
            prompt_tokens: spent.usage.prompt_tokens,
            completion_tokens: spent.usage.completion_tokens,
            cached_tokens: spent.usage.cached_tokens,
            cost: spent.known_cost(),
            seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
        }
    }
}

/// Returns whether a run succeeded.
///
/// It submitted by itself, changed something, and the tests pass if there are any.
pub(super) fn succeeded(ending: &Ending, changed: bool, tests: Option<&Tests>) -> bool {
    matches!(ending, Ending::Submitted(_)) && changed && tests.is_none_or(Tests::passed)
}

/// Summarises a run, its tests and its change for a person.
///
/// `changed` is an error if it is unknown whether there is a change.
pub(super) fn summary(
    ending: &Ending,
    changed: Result<bool, &Error>,
    tests: Option<&Tests>,
) -> String {
    let mut text = ending.summary();
    match changed {
        Ok(true) => {}
        Ok(false) => text.push_str("\nNothing was changed."),
        Err(error) => text.push_str(&format!(
            "\nWhat was changed could not be taken as a patch: {error}."
        )),
    }
    if let Some(tests) = tests.filter(|tests| !tests.passed()) {
        text.push_str(&format!("\nThe tests did not pass: {}.", tests.shown()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_needs_a_submission_a_change_and_tests_that_pass() {
        let done = Ending::Submitted("done".into());
        let tests = |exit| Tests {
            exit,
            ..Tests::not_run("t")
        };
        assert!(succeeded(&done, true, None));
        assert!(succeeded(&done, true, Some(&tests(Some(0)))));
        assert!(!succeeded(&done, false, None));
        assert!(!succeeded(&done, true, Some(&tests(Some(1)))));
        assert!(!succeeded(&done, true, Some(&tests(None))));
        assert!(!succeeded(&Ending::Steps(3), true, Some(&tests(Some(0)))));
        let said = summary(&done, Ok(false), Some(&tests(Some(1))));
        assert!(
            said.contains("Nothing was changed") && said.contains("exited with 1"),
            "{said}"
        );
    }
}
