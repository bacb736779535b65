//! Add, confirm and supersede entries of the knowledge file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{
    Decision, Failed, FullInvariant, Invariant, Kind, KnowledgeFile, Successful, Trace,
};
use super::text;
use helmdeck_forge_files::error::{Error, Result};
use helmdeck_forge_files::files::check_path;
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::time::Time;

/// Something that was learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Learning {
    /// What it is.
    #[serde(flatten)]
    pub what: What,
    /// The session in which it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The issue on which it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear: Option<String>,
    /// The commit at which it was learned. With `paths` and without this: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The files and folders it is about, from the root of the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Content of a learning. A context has 1 to 500 characters, every other text 1 to 4,000.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// Something that works.
    Successful {
        /// When it applies.
        context: String,
        /// What to do then.
        approach: String,
    },
    /// Something that does not.
    Failed {
        /// What was tried.
        context: String,
        /// What went wrong.
        issue: String,
        /// What helped, or why it was given up.
        resolution: String,
    },
    /// Something that was decided.
    Decision {
        /// What it is about.
        context: String,
        /// What was decided.
        decision: String,
        /// Why.
        rationale: String,
    },
    /// Something that must always hold.
    Invariant {
        /// What must hold.
        text: String,
        /// A command that ends with 0 if it holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        check: Option<String>,
        /// Severity if it does not hold: `error` (the default), `warning` or `info`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        severity: Option<String>,
    },
}

impl Learning {
    /// Makes a learning without origin and paths.
    #[must_use]
    pub fn new(what: What) -> Self {
        Self {
            what,
            session: None,
            linear: None,
            commit: None,
            paths: Vec::new(),
        }
    }
}

/// Result of adding a learning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Added {
    /// The entry's id.
    pub id: String,
    /// What kind of entry it is.
    pub kind: Kind,
    /// Whether it is new. Otherwise the entry existed, and is counted once more.
    pub new: bool,
    /// How often it was learned.
    pub seen: u64,
    /// The id of the entry that superseded it, if it existed and was superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
}

/// Result of confirming an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmed {
    /// The entry's id.
    pub id: String,
    /// What kind of entry it is.
    pub kind: Kind,
    /// When it was confirmed.
    pub last_confirmed_at: Time,
}

/// Result of superseding an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Superseded {
    /// The id of the entry that was superseded. It stays.
    pub id: String,
    /// The entry that supersedes it.
    pub by: Added,
}

impl KnowledgeFile {
    /// Adds a learning. An entry that exists already is counted once more and confirmed.
    pub fn add(&mut self, learning: &Learning, now: Time) -> Result<Added> {
        let mut trace = Trace {
            session: learning.session.clone(),
            linear: learning.linear.clone(),
            commit: learning.commit.clone(),
            paths: paths(&learning.paths)?,
            ..Trace::default()
        };
        let what = stored(&learning.what)?;
        let id = what.id();
        let kind = what.kind();
        let known = self.entries().position(|entry| {
            entry.kind == kind
                && (entry.id() == id || text::id(entry.texts().iter().map(|(_, text)| *text)) == id)
        });
        if let Some(at) = known {
            self.give_check(at, &what)?;
            // A text alone has no room for more: its first repetition gives it that.
            let known_id = self.entries().nth(at).map(|entry| entry.id()).unwrap_or(id);
            let Some(known) = self.trace_mut(at) else {
                return Err(Error::not_found(format!("there is no entry {known_id}")));
            };
            known.id = Some(known_id.clone());
            let seen = known.seen.unwrap_or(1).saturating_add(1);
            known.seen = Some(seen);
            known.last_confirmed_at = Some(now);
            for path in trace.paths {
                if !known.paths.contains(&path) {
                    known.paths.push(path);
                }
            }
            // It holds at this commit: earlier changes no longer make it doubtful.
            if trace.commit.is_some() {
                known.commit = trace.commit;
            }
            return Ok(Added {
                id: known_id,
                kind,
                new: false,
                seen,
                superseded_by: known.superseded_by.clone(),
            });
        }
        trace.id = Some(id.clone());
        let (learned_at, other) = (now, Members::default());
        match what {
            What::Successful { context, approach } => {
                self.patterns.successful.push(Successful {
                    context,
                    approach,
                    learned_at,
                    trace,
                    other,
                });
            }
            What::Failed {
                context,
                issue,
                resolution,
            } => {
                self.patterns.failed.push(Failed {
                    context,
                    issue,
                    resolution,
                    learned_at,
                    trace,
                    other,
                });
            }
            What::Decision {
                context,
                decision,
                rationale,
            } => {
                self.decisions.push(Decision {
                    context,
                    decision,
                    rationale,
                    learned_at,
                    trace,
                    other,
                });
            }
            What::Invariant {
                text,
                check,
                severity,
            } => {
                let full = FullInvariant {
                    text,
                    check,
                    severity,
                    trace,
                    other,
                };
                self.invariants.push(Invariant::Full(Box::new(full)));
            }
        }
        Ok(Added {
            id,
            kind,
            new: true,
            seen: 1,
            superseded_by: None,
        })
    }

    /// Returns the invariants in whose place no other was put.
    pub fn current_invariants(&self) -> impl Iterator<Item = &Invariant> {
        self.invariants.iter().filter(|one| {
            one.trace()
                .is_none_or(|trace| trace.superseded_by.is_none())
        })
    }

    /// Gives the invariant that is known a check and how bad it is if it does not hold, where it
    /// has none.
    fn give_check(&mut self, at: usize, what: &What) -> Result<()> {
        let What::Invariant {
            text,
            check,
            severity,
        } = what
        else {
            return Ok(());
        };
        if check.is_none() && severity.is_none() {
            return Ok(());
        }
        // Invariants come after all other entries.
        let Some(at) = at.checked_sub(self.entries().count().saturating_sub(self.invariants.len()))
        else {
            return Ok(());
        };
        // `trace_mut` turns a bare text into a full entry, which can hold more.
        let Some(known) = self.invariants.get_mut(at) else {
            return Ok(());
        };
        known.trace_mut();
        let Invariant::Full(known) = known else {
            return Ok(());
        };
        for (name, has, wanted) in [
            ("check", &mut known.check, check),
            ("severity", &mut known.severity, severity),
        ] {
            match (&has, wanted) {
                (_, None) => {}
                (None, Some(wanted)) => *has = Some(wanted.clone()),
                (Some(there), Some(wanted)) if there == wanted => {}
                (Some(there), Some(_)) => {
                    let message =
                        format!("the invariant {text:?} has the {name} {there:?} already");
                    return Err(Error::usage(message)
                        .hint("supersede it with an invariant that is worded in another way"));
                }
            }
        }
        Ok(())
    }

    /// Confirms that an entry still holds.
    pub fn confirm(&mut self, id: &str, commit: Option<&str>, now: Time) -> Result<Confirmed> {
        let (at, id, kind) = self.find(id)?;
        if let Some(trace) = self.trace_mut(at) {
            trace.id = Some(id.clone());
            trace.last_confirmed_at = Some(now);
            if !trace.paths.is_empty() && commit.is_some() {
                trace.commit = commit.map(str::to_owned);
            }
        }
        Ok(Confirmed {
            id,
            kind,
            last_confirmed_at: now,
        })
    }

    /// Replaces an entry by a new one. The old entry stays, marked as superseded.
    pub fn supersede(&mut self, id: &str, learning: &Learning, now: Time) -> Result<Superseded> {
        let (at, id, kind) = self.find(id)?;
        let what = stored(&learning.what)?;
        if what.id() == id && what.kind() == kind {
            return Err(Error::usage(format!(
                "the entry {id} cannot supersede itself: say what is different now"
            )));
        }
        if self.leads_to(&what.id(), &id) {
            return Err(Error::usage(format!(
                "the entry {} was superseded by {id} itself: they cannot take each other's place",
                what.id()
            )));
        }
        let taken = self
            .entries()
            .nth(at)
            .and_then(|entry| entry.trace.superseded_by.clone());
        if let Some(other) = taken.filter(|other| *other != what.id()) {
            // An entry has one successor: a reader follows the links from entry to entry, and would
            // miss a second one.
            return Err(
                Error::usage(format!("the entry {id} was superseded by {other} already"))
                    .hint(format!("supersede {other}, which holds in its place")),
            );
        }
        let by = self.add(learning, now)?;
        // Entries only ever grow at the end of their kind: the place must be looked up again.
        let at = self
            .entries()
            .position(|entry| entry.kind == kind && entry.id() == id)
            .unwrap_or(at);
        if let Some(trace) = self.trace_mut(at) {
            trace.id = Some(id.clone());
            trace.superseded_by = Some(by.id.clone());
        }
        Ok(Superseded { id, by })
    }

    /// Says whether the chain of superseding entries leads from one entry to another.
    fn leads_to(&self, from: &str, to: &str) -> bool {
        let mut at = from.to_owned();
        for _ in 0..=self.entries().count() {
            if at == to {
                return true;
            }
            match self
                .entries()
                .find(|entry| entry.id() == at)
                .and_then(|entry| entry.trace.superseded_by.clone())
            {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    /// Finds an entry by its id, or by how that begins: its place, its id, its kind.
    pub fn find(&self, id: &str) -> Result<(usize, String, Kind)> {
        const SHORTEST: usize = 6;
        let all: Vec<_> = self
            .entries()
            .map(|entry| (entry.id(), entry.kind))
            .collect();
        if let Some(at) = all.iter().position(|(known, _)| known == id) {
            return Ok((at, all[at].0.clone(), all[at].1));
        }
        let mut begin = all
            .iter()
            .enumerate()
            .filter(|(_, (known, _))| id.len() >= SHORTEST && known.starts_with(id));
        match (begin.next(), begin.next()) {
            (Some((at, (id, kind))), None) => Ok((at, id.clone(), *kind)),
            (Some(_), Some(_)) => Err(Error::usage(format!(
                "more than one entry begins with {id:?}: write more of it"
            ))),
            (None, _) => Err(Error::not_found(format!("there is no entry {id:?}"))
                .hint("ids have 25 characters; the first 6 are enough if no other begins so")
                .next("helmdeck forge knowledge search")),
        }
    }
}

impl What {
    /// Returns what kind of entry it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Successful { .. } => Kind::Successful,
            Self::Failed { .. } => Kind::Failed,
            Self::Decision { .. } => Kind::Decision,
            Self::Invariant { .. } => Kind::Invariant,
        }
    }

    /// Returns the id of an entry with these texts.
    #[must_use]
    pub fn id(&self) -> String {
        let texts = match self {
            Self::Successful { context, approach } => vec![context, approach],
            Self::Failed {
                context,
                issue,
                resolution,
            } => vec![context, issue, resolution],
            Self::Decision {
                context,
                decision,
                rationale,
            } => vec![context, decision, rationale],
            Self::Invariant { text, .. } => vec![text],
        };
        text::id(texts.into_iter().map(String::as_str))
    }
}

fn stored(what: &What) -> Result<What> {
    Ok(match what {
        What::Successful { context, approach } => What::Successful {
            context: text::stored("context", context)?,
            approach: text::stored("approach", approach)?,
        },
        What::Failed {
            context,
            issue,
            resolution,
        } => What::Failed {
            context: text::stored("context", context)?,
            issue: text::stored("issue", issue)?,
            resolution: text::stored("resolution", resolution)?,
        },
        What::Decision {
            context,
            decision,
            rationale,
        } => What::Decision {
            context: text::stored("context", context)?,
            decision: text::stored("decision", decision)?,
            rationale: text::stored("rationale", rationale)?,
        },
        What::Invariant {
            text,
            check,
            severity,
        } => {
            if let Some(severity) = severity.as_deref()
                && !matches!(severity, "error" | "warning" | "info")
            {
                return Err(Error::usage(format!(
                    "the severity {severity:?} is none of error, warning, info"
                )));
            }
            What::Invariant {
                text: text::stored("text", text)?,
                check: check
                    .as_deref()
                    .map(|check| text::stored("check", check))
                    .transpose()?,
                severity: severity.clone(),
            }
        }
    })
}

/// Returns paths as they are stored, each once.
fn paths(all: &[String]) -> Result<Vec<String>> {
    const MOST: usize = 100;
    let mut stored: Vec<String> = Vec::new();
    for path in all {
        let path = path.trim().trim_start_matches("./").trim_end_matches('/');
        check_path(path)?;
        if !stored.iter().any(|known| known == path) {
            stored.push(path.to_owned());
        }
    }
    if stored.len() > MOST {
        return Err(Error::usage(format!(
            "an entry may name {MOST} paths, not {}: name their folder",
            stored.len()
        )));
    }
    Ok(stored)
}

#[cfg(test)]
mod tests;
