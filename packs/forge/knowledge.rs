//! `forge.knowledge_*`, `forge.invariants_check`: durable knowledge.

use helmdeck_forge::error::Error;
use helmdeck_forge::invariants::Checked;
use helmdeck_forge::knowledge::{Added, Confirmed, Kind, Knowledge, Learning, Search, SearchHit, Superseded, What};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::{Project, Result};
use serde::Deserialize;

use super::place::{Done, Nothing};

/// A new entry. The check of an invariant is a command, so callers can't set it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Learn {
    kind: Kind,
    context: Option<String>,
    approach: Option<String>,
    issue: Option<String>,
    resolution: Option<String>,
    decision: Option<String>,
    rationale: Option<String>,
    text: Option<String>,
    severity: Option<String>,
    linear: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
}

impl Learn {
    /// Returns what was learned.
    ///
    /// # Errors
    /// `Usage` if a text is missing that its kind has, or there is one that it has not.
    pub(super) fn learning(mut self) -> Result<Learning> {
        let (linear, paths) = (self.linear.take(), std::mem::take(&mut self.paths));
        let kind = self.kind;
        let what = match kind {
            Kind::Successful => What::Successful {
                context: wanted(kind, "context", self.context.take())?,
                approach: wanted(kind, "approach", self.approach.take())?,
            },
            Kind::Failed => What::Failed {
                context: wanted(kind, "context", self.context.take())?,
                issue: wanted(kind, "issue", self.issue.take())?,
                resolution: wanted(kind, "resolution", self.resolution.take())?,
            },
            Kind::Decision => What::Decision {
                context: wanted(kind, "context", self.context.take())?,
                decision: wanted(kind, "decision", self.decision.take())?,
                rationale: wanted(kind, "rationale", self.rationale.take())?,
            },
            Kind::Invariant => What::Invariant {
                text: wanted(kind, "text", self.text.take())?,
                severity: self.severity.take(),
                check: None,
            },
        };
        let left = [
            ("context", self.context),
            ("approach", self.approach),
            ("issue", self.issue),
            ("resolution", self.resolution),
            ("decision", self.decision),
            ("rationale", self.rationale),
            ("text", self.text),
            ("severity", self.severity),
        ];
        if let Some((name, _)) = left.iter().find(|(_, left)| left.is_some()) {
            return Err(Error::usage(format!("{:?} is nothing that a learning of the kind {} has", name, word(kind))));
        }
        Ok(Learning { linear, paths, ..Learning::new(what) })
    }
}

fn wanted(kind: Kind, name: &str, text: Option<String>) -> Result<String> {
    text.ok_or_else(|| Error::usage(format!("a learning of the kind {} needs {name:?}", word(kind))))
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Successful => "successful",
        Kind::Failed => "failed",
        Kind::Decision => "decision",
        Kind::Invariant => "invariant",
    }
}

pub(super) fn add(project: &Project, input: Learn) -> Done<Added> {
    Sessions::new(project).learn(input.learning()?)
}

pub(super) fn search(project: &Project, input: Search) -> Done<SearchHit> {
    Knowledge::new(project).search(&input)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Confirm {
    id: String,
}

pub(super) fn confirm(project: &Project, input: Confirm) -> Done<Confirmed> {
    Knowledge::new(project).confirm(&input.id, None)
}

/// An entry and what replaces it.
#[derive(Deserialize)]
pub(super) struct Replace {
    id: String,
    #[serde(flatten)]
    by: Learn,
}

pub(super) fn supersede(project: &Project, input: Replace) -> Done<Superseded> {
    Knowledge::new(project).supersede(&input.id, &input.by.learning()?, None)
}

pub(super) fn check(project: &Project, _: Nothing) -> Done<Checked> {
    helmdeck_forge::invariants::check(project)
}
