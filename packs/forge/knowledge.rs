//! `forge.remember`, `forge.knowledge_search`: durable knowledge.

use helmdeck_forge::error::Error;
use helmdeck_forge::knowledge::{Added, Kind, Knowledge, Learning, Search, SearchHit, What};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::work::Work;
use helmdeck_forge::{Project, Result};
use serde::{Deserialize, Serialize};

use super::place::Done;

/// A new entry; without a kind, a text alone. The check of an invariant is a command, so callers
/// can't set it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Learn {
    kind: Option<Kind>,
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
    pub(super) fn learning(mut self, project: &Project) -> Result<Learning> {
        let (linear, paths) = (self.linear.take(), std::mem::take(&mut self.paths));
        let Some(kind) = self.kind else {
            let text = self
                .text
                .take()
                .ok_or_else(|| Error::usage("say what to remember: \"text\", or a \"kind\""))?;
            self.refuse_left("a learning without a kind")?;
            let learning = Work::new(project).learning(&text)?;
            return Ok(Learning {
                linear: linear.or(learning.linear),
                paths,
                ..Learning::new(learning.what)
            });
        };
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
        self.refuse_left(&format!("a learning of the kind {}", word(kind)))?;
        Ok(Learning {
            linear,
            paths,
            ..Learning::new(what)
        })
    }

    /// Refuses the texts that are not used.
    fn refuse_left(self, what: &str) -> Result<()> {
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
        match left.iter().find(|(_, left)| left.is_some()) {
            Some((name, _)) => Err(Error::usage(format!("{name:?} is nothing that {what} has"))),
            None => Ok(()),
        }
    }
}

fn wanted(kind: Kind, name: &str, text: Option<String>) -> Result<String> {
    text.ok_or_else(|| {
        Error::usage(format!(
            "a learning of the kind {} needs {name:?}",
            word(kind)
        ))
    })
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Successful => "successful",
        Kind::Failed => "failed",
        Kind::Decision => "decision",
        Kind::Invariant => "invariant",
    }
}

/// What is remembered, and what it replaces.
#[derive(Deserialize)]
pub(super) struct Remember {
    replaces: Option<String>,
    #[serde(flatten)]
    what: Learn,
}

/// What was remembered.
#[derive(Serialize)]
pub(super) struct Remembered {
    #[serde(flatten)]
    added: Added,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<String>,
}

pub(super) fn remember(project: &Project, input: Remember) -> Done<Remembered> {
    let learning = input.what.learning(project)?;
    let Some(id) = input.replaces else {
        return Ok(Remembered {
            added: Sessions::new(project).learn(learning)?,
            replaced: None,
        });
    };
    let session = Sessions::new(project).mine()?.map(|session| session.id);
    let done = Knowledge::new(project).supersede(
        &id,
        &Learning {
            session,
            ..learning
        },
        None,
    )?;
    Ok(Remembered {
        added: done.by,
        replaced: Some(done.id),
    })
}

pub(super) fn search(project: &Project, input: Search) -> Done<SearchHit> {
    Knowledge::new(project).search(&input)
}
