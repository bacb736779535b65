//! Runs the checks of invariants.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::knowledge::{Invariant, Knowledge};
use crate::project::Project;
use crate::runner::{self, Line};

/// How much of a check's output is kept, in bytes: its end.
const OUTPUT: usize = 4 << 10;

/// What checking the invariants found. A transport ends with exit code 1 unless `holds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Whether everything holds that must: no invariant of severity `error` was found broken.
    pub holds: bool,
    /// How many were checked.
    pub checked: usize,
    /// How many of them hold.
    pub passed: usize,
    /// How many invariants are only text, without a check.
    pub unchecked: usize,
    /// Each that was checked, in the order of the file.
    pub results: Vec<Outcome>,
}

/// Whether an invariant holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// What must hold.
    pub text: String,
    /// How bad it is if it does not.
    pub severity: String,
    /// The command that checks it.
    pub check: String,
    /// The result.
    pub state: State,
    /// The command's exit code; none if it was ended by a signal, ran out of time or could not be
    /// started.
    pub exit: Option<i32>,
    /// How long it ran, in milliseconds.
    pub ms: u64,
    /// The end of its output, at most 4 KiB, without lines that look like they contain a
    /// credential.
    pub output: String,
}

/// Result of the check of an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It holds.
    Holds,
    /// It does not.
    Broken,
    /// Its check ran out of time, so the result is unknown. Counts as broken.
    TimedOut,
    /// Its check could not be started, so the result is unknown. Counts as broken.
    CannotStart,
}

/// Runs the checks of all current invariants, one after the other.
///
/// Each may take 60 seconds, unless `[verify] invariant_timeout_s` says otherwise. It holds no lock
/// and writes nothing.
///
/// # Errors
/// `Corrupt` if the knowledge is damaged; the errors of reading. An invariant that does not hold is
/// not an error.
pub fn check(project: &Project) -> Result<Checked> {
    let file = Knowledge::new(project).read()?;
    let timeout = Duration::from_secs(project.config().verify.invariant_timeout_s);
    let mut checked = Checked {
        holds: true,
        checked: 0,
        passed: 0,
        unchecked: 0,
        results: Vec::new(),
    };
    for invariant in file.current_invariants() {
        let Some(check) = invariant.check() else {
            checked.unchecked += 1;
            continue;
        };
        let severity = match invariant {
            Invariant::Full(full) => full.severity.clone(),
            Invariant::Text(_) => None,
        };
        let mut outcome = Outcome {
            text: invariant.text().to_owned(),
            severity: severity.unwrap_or_else(|| "error".to_owned()),
            check: check.to_owned(),
            state: State::CannotStart,
            exit: None,
            ms: 0,
            output: String::new(),
        };
        match runner::check(project, Line::Project(check, None), timeout) {
            Ok(ran) => {
                outcome.state = match (ran.timed_out, ran.passed()) {
                    (true, _) => State::TimedOut,
                    (false, true) => State::Holds,
                    (false, false) => State::Broken,
                };
                (outcome.exit, outcome.ms) = (ran.exit, ran.ms);
                outcome.output = ran.end(OUTPUT);
            }
            // A malformed check cannot be run. The others are checked anyway.
            Err(error) => outcome.output = error.to_string(),
        }
        checked.checked += 1;
        checked.passed += usize::from(outcome.state == State::Holds);
        checked.holds &= outcome.state == State::Holds || !invariant.is_error();
        checked.results.push(outcome);
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::ProjectEnvironment;
    use crate::layout::KNOWLEDGE;

    fn check(invariants: &str, config: &str) -> Checked {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: String| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            KNOWLEDGE,
            format!(r#"{{"schema_version":"1.0","invariants":{invariants}}}"#),
        );
        write(crate::layout::CONFIG, config.to_owned());
        super::check(
            &Project::open(folder.path(), ProjectEnvironment::default())
                .unwrap()
                .unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn each_invariant_with_a_check_is_checked() {
        let checked = check(
            r#"["in words", {"text":"a","check":"true"}, {"text":"b","check":"sh: echo why; exit 3"},
                {"text":"c","check":"no-such-program"}, {"text":"d","check":"false","superseded_by":"x"}, {"text":"e"}]"#,
            "",
        );
        assert_eq!(
            (
                checked.holds,
                checked.checked,
                checked.passed,
                checked.unchecked
            ),
            (false, 3, 1, 2)
        );
        let states: Vec<State> = checked
            .results
            .iter()
            .map(|outcome| outcome.state)
            .collect();
        assert_eq!(states, [State::Holds, State::Broken, State::CannotStart]);
        assert_eq!(
            (checked.results[1].exit, checked.results[1].output.as_str()),
            (Some(3), "why\n")
        );
    }

    #[test]
    fn only_an_error_stops_the_work() {
        let checked = check(r#"[{"text":"a","check":"false","severity":"warning"}]"#, "");
        assert_eq!((checked.holds, checked.passed), (true, 0));
        assert!(!check(r#"[{"text":"a","check":"false"}]"#, "").holds);
        assert!(check("[]", "").holds);
    }

    #[test]
    fn a_check_that_runs_out_of_time_does_not_hold() {
        let checked = check(
            r#"[{"text":"a","check":"sleep 600"}]"#,
            "[verify]\ninvariant_timeout_s = 0\n",
        );
        assert_eq!(
            (checked.holds, checked.results[0].state),
            (false, State::TimedOut)
        );
    }
}
