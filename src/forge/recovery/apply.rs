//! Applies an assessment: roll back or pause.

use helmdeck_core::text::count;
use schemars::JsonSchema;
use serde::Serialize;

use super::Recovery;
use super::assess::Assess;
use super::decide::{Action, Class};
use super::report::Report;
use super::rollback::Rollback;
use crate::checkpoints::{Checkpoint, Checkpoints, State};
use crate::error::{Category, Error, Result};
use crate::redact::redact;

/// Maximum length of a reason, in characters.
const WHY: usize = 4_000;

/// Request to roll back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apply {
    /// The target checkpoint. Default: the newest one that is safe to roll back to.
    ///
    /// A named checkpoint is used whatever the decision table says, unless a git operation is in
    /// progress, the memory is damaged, another session works on the files, or the clock is wrong.
    pub checkpoint: Option<String>,
    /// The reason, in 1 to 4,000 characters; default: the measurements.
    ///
    /// It is learned as the reason of the failed pattern.
    pub why: Option<String>,
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Applied {
    /// The assessment.
    pub report: Report,
    /// The rollback; absent if none was needed.
    pub rollback: Option<Rollback>,
    /// What to do next.
    pub next: String,
}

impl Recovery<'_> {
    /// Assesses, and does what the assessment proposes.
    ///
    /// A rollback is one commit on this branch, whose code is that of the checkpoint. It keeps
    /// everything: a commit at `refs/forge/rescue/` holds the work tree, the index and the branch
    /// as they were, and neither an untracked nor an ignored file is deleted.
    ///
    /// # Errors
    /// `Unknown` (`E_UNKNOWN`) if the state of the project cannot be determined: then work is
    /// paused. `Refused` if the named checkpoint cannot be rolled back to, or if an untracked file
    /// is in the way. Errors from git and the files; the next call then does the rest.
    pub fn apply(&self, asked: &Apply) -> Result<Applied> {
        self.project.check_not_paused()?;
        let named = asked
            .checkpoint
            .as_deref()
            .map(|name| self.named(name))
            .transpose()?;
        let report = self.assess(Assess {
            verify: named.is_none(),
        })?;
        let checkpoint = match named {
            Some(_)
                if report
                    .unknown
                    .iter()
                    .any(|found| found.reason.forbids(report.acknowledged)) =>
            {
                return Err(self.unknown(&report)?);
            }
            Some(named) => named,
            None if report.class == Class::Unknown => return Err(self.unknown(&report)?),
            None if report.action != Action::RollBack => {
                let next = format!("nothing to roll back: {}", report.action.text());
                return Ok(Applied {
                    report,
                    rollback: None,
                    next,
                });
            }
            None => match Checkpoints::new(self.project).newest_usable()? {
                Some(checkpoint) => checkpoint,
                None => return Err(Error::not_found("the checkpoint has gone meanwhile")),
            },
        };
        let rollback = self.roll_back(&checkpoint, &self.why(&report, asked)?)?;
        let next = format!("go on here: the code is that of {}", rollback.checkpoint);
        Ok(Applied {
            report,
            rollback: Some(rollback),
            next,
        })
    }

    fn named(&self, name: &str) -> Result<Checkpoint> {
        let checkpoint = Checkpoints::new(self.project).show(name)?;
        let whole = matches!(checkpoint.state, State::Ok | State::NotAncestor);
        if whole
            && checkpoint
                .manifest
                .as_ref()
                .is_some_and(|manifest| manifest.proven())
        {
            return Ok(checkpoint);
        }
        let message = format!(
            "{} is none to go back to: it is {}",
            checkpoint.tag,
            checkpoint.state.as_str()
        );
        Err(Error::refused(message)
            .hint("one goes back only to a checkpoint whose checks all succeeded")
            .next("helmdeck forge checkpoint list"))
    }

    fn unknown(&self, report: &Report) -> Result<Error> {
        let reasons: Vec<&str> = report
            .unknown
            .iter()
            .map(|reason| reason.text.as_str())
            .collect();
        let reasons = reasons.join("; ");
        if report.must_pause() {
            self.pause(&reasons, Some(report))?;
        }
        let next = report
            .unknown
            .first()
            .map_or("helmdeck forge recover assess", |reason| {
                reason.reason.next()
            });
        Ok(Error::new(
            Category::Unknown,
            "E_UNKNOWN",
            format!("nobody can say in what state things are: {reasons}"),
        )
        .hint("a person has to look at it; nothing was changed")
        .next(next))
    }

    /// Returns the reason of the rollback, in a form that every later step can write.
    fn why(&self, report: &Report, asked: &Apply) -> Result<String> {
        let Some(text) = &asked.why else {
            let text: String = redact(&why(report)).chars().take(WHY).collect();
            return Ok(text
                .replace(|c: char| c.is_control(), " ")
                .trim()
                .to_owned());
        };
        let text = given(text)?;
        self.project
            .files()
            .check_secrets("the reason to go back", text.as_bytes())?;
        Ok(text)
    }
}

/// Returns the given text if it can be learned.
fn given(text: &str) -> Result<String> {
    let text = text.trim();
    let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.is_empty() || text.chars().count() > WHY || text.chars().any(odd) {
        return Err(Error::usage(format!(
            "say why one goes back in 1 to {WHY} characters, none of them a control character"
        )));
    }
    Ok(text.to_owned())
}

/// Derives the reason of the rollback from the measurements.
fn why(report: &Report) -> String {
    let Some(measures) = &report.measures else {
        return "asked for".to_owned();
    };
    let mut parts = Vec::new();
    if !measures.verify.passed {
        parts.push(format!(
            "{} fails",
            measures
                .verify
                .command
                .as_deref()
                .unwrap_or("the verification")
        ));
    }
    if !measures.regressions.is_empty() {
        parts.push(format!("regressed: {}", measures.regressions.join(", ")));
    }
    parts.push(format!(
        "{} and {} since the checkpoint",
        count(measures.files, "file"),
        count(measures.lines, "line")
    ));
    parts.join("; ")
}
