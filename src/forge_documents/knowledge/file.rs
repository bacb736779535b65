//! Types and rules of knowledge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text;
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::time::Time;

/// Knowledge of a project: patterns that work, patterns that do not, decisions and invariants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgeFile {
    /// The version of the format: `1.0`.
    pub schema_version: String,
    /// What was tried.
    #[serde(default)]
    pub patterns: Patterns,
    /// What must always hold.
    #[serde(default)]
    pub invariants: Vec<Invariant>,
    /// What was decided, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Patterns that were tried, by result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patterns {
    /// What works.
    #[serde(default)]
    pub successful: Vec<Successful>,
    /// What does not, kept as a warning.
    #[serde(default)]
    pub failed: Vec<Failed>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Something that works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Successful {
    /// When it applies: 1 to 500 characters.
    pub context: String,
    /// What to do then: 1 to 4,000 characters.
    pub approach: String,
    /// When it was learned.
    pub learned_at: Time,
    /// Its origin and history.
    #[serde(flatten)]
    pub trace: Trace,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Something that does not work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failed {
    /// What was tried: 1 to 500 characters.
    pub context: String,
    /// What went wrong: 1 to 4,000 characters.
    pub issue: String,
    /// What helped, or why it was given up: 1 to 4,000 characters.
    pub resolution: String,
    /// When it was learned.
    pub learned_at: Time,
    /// Its origin and history.
    #[serde(flatten)]
    pub trace: Trace,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Something that was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// What it is about: 1 to 500 characters.
    pub context: String,
    /// What was decided: 1 to 4,000 characters.
    pub decision: String,
    /// Why: 1 to 4,000 characters.
    pub rationale: String,
    /// When it was decided.
    pub learned_at: Time,
    /// Its origin and history.
    #[serde(flatten)]
    pub trace: Trace,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Something that must always hold: a text, or a text with more to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Invariant {
    /// A text alone. Only a reader can check it.
    Text(String),
    /// A text with more to it.
    Full(Box<FullInvariant>),
}

/// Something that must always hold, perhaps with a program that checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FullInvariant {
    /// What must hold: 1 to 4,000 characters.
    pub text: String,
    /// A command that ends with 0 if it holds. It is run without a shell unless it begins with
    /// `sh:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// How bad it is if it does not hold: `error` (the default), `warning` or `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Its origin and history.
    #[serde(flatten)]
    pub trace: Trace,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Invariant {
    /// Returns the text of the invariant.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Full(full) => &full.text,
        }
    }

    /// Returns the command that checks it.
    #[must_use]
    pub fn check(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Full(full) => full.check.as_deref(),
        }
    }

    /// Says whether work must stop while it does not hold.
    #[must_use]
    pub fn is_error(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Full(full) => !matches!(full.severity.as_deref(), Some("warning" | "info")),
        }
    }

    /// Returns where it comes from, if that is known.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        match self {
            Self::Text(_) => None,
            Self::Full(full) => Some(&full.trace),
        }
    }

    /// Returns where it comes from, to be changed: a text alone becomes one with more to it.
    pub fn trace_mut(&mut self) -> &mut Trace {
        match self {
            Self::Full(full) => &mut full.trace,
            Self::Text(text) => {
                let text = std::mem::take(text);
                *self = Self::Full(Box::new(FullInvariant {
                    text,
                    check: None,
                    severity: None,
                    trace: Trace::default(),
                    other: Members::default(),
                }));
                self.trace_mut()
            }
        }
    }
}

/// Origin and history of an entry. Every member is optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The entry's id: the SCH of its normalised texts. Computed where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The session in which it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The issue on which it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear: Option<String>,
    /// The commit at which it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The files and folders it is about, from the root of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// How often it was learned; absent means once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// When it was last confirmed that it still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_confirmed_at: Option<Time>,
    /// The id of the entry that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
}

/// What kind of entry it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something that works.
    Successful,
    /// Something that does not.
    Failed,
    /// Something that was decided.
    Decision,
    /// Something that must always hold.
    Invariant,
}

/// Read-only view of an entry of any kind.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeEntry<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its texts, each with its name, the context first.
    pub texts: [(&'static str, &'a str); 3],
    /// When it was learned; an invariant doesn't say.
    pub learned_at: Option<Time>,
    /// Its origin and history.
    pub trace: &'a Trace,
}

impl<'a> KnowledgeEntry<'a> {
    /// Returns the texts, each with its name.
    ///
    /// An invariant has one, a pattern that works has two, the others have three.
    #[must_use]
    pub fn texts(&self) -> &[(&'static str, &'a str)] {
        let count = match self.kind {
            Kind::Invariant => 1,
            Kind::Successful => 2,
            Kind::Failed | Kind::Decision => 3,
        };
        &self.texts[..count]
    }

    /// Returns its id, as written or computed.
    #[must_use]
    pub fn id(&self) -> String {
        match &self.trace.id {
            Some(id) => id.clone(),
            None => text::id(self.texts().iter().map(|(_, text)| *text)),
        }
    }

    /// Returns when it was learned or last confirmed, whichever is later.
    #[must_use]
    pub fn fresh_at(&self) -> Option<Time> {
        self.learned_at.max(self.trace.last_confirmed_at)
    }
}

impl<'a> From<&'a Successful> for KnowledgeEntry<'a> {
    fn from(entry: &'a Successful) -> Self {
        Self {
            kind: Kind::Successful,
            texts: [
                ("context", &entry.context),
                ("approach", &entry.approach),
                ("", ""),
            ],
            learned_at: Some(entry.learned_at),
            trace: &entry.trace,
        }
    }
}

impl<'a> From<&'a Failed> for KnowledgeEntry<'a> {
    fn from(entry: &'a Failed) -> Self {
        Self {
            kind: Kind::Failed,
            texts: [
                ("context", &entry.context),
                ("issue", &entry.issue),
                ("resolution", &entry.resolution),
            ],
            learned_at: Some(entry.learned_at),
            trace: &entry.trace,
        }
    }
}

impl<'a> From<&'a Decision> for KnowledgeEntry<'a> {
    fn from(entry: &'a Decision) -> Self {
        Self {
            kind: Kind::Decision,
            texts: [
                ("context", &entry.context),
                ("decision", &entry.decision),
                ("rationale", &entry.rationale),
            ],
            learned_at: Some(entry.learned_at),
            trace: &entry.trace,
        }
    }
}

impl<'a> From<&'a FullInvariant> for KnowledgeEntry<'a> {
    fn from(entry: &'a FullInvariant) -> Self {
        Self {
            kind: Kind::Invariant,
            texts: [("text", &entry.text), ("", ""), ("", "")],
            learned_at: None,
            trace: &entry.trace,
        }
    }
}

static NO_TRACE: Trace = Trace {
    id: None,
    session: None,
    linear: None,
    commit: None,
    paths: Vec::new(),
    seen: None,
    last_confirmed_at: None,
    superseded_by: None,
};

impl KnowledgeFile {
    /// Returns every entry, in the order of the file: what works, what does not, decisions,
    /// invariants.
    pub fn entries(&self) -> impl Iterator<Item = KnowledgeEntry<'_>> {
        let successful = self.patterns.successful.iter().map(KnowledgeEntry::from);
        let failed = self.patterns.failed.iter().map(KnowledgeEntry::from);
        let decisions = self.decisions.iter().map(KnowledgeEntry::from);
        let invariants = self.invariants.iter().map(|entry| match entry {
            Invariant::Full(full) => full.as_ref().into(),
            Invariant::Text(text) => KnowledgeEntry {
                kind: Kind::Invariant,
                texts: [("text", text), ("", ""), ("", "")],
                learned_at: None,
                trace: &NO_TRACE,
            },
        });
        successful.chain(failed).chain(decisions).chain(invariants)
    }

    /// Returns the trace of the entry at a place in the order of [`Self::entries`], to be changed.
    pub fn trace_mut(&mut self, at: usize) -> Option<&mut Trace> {
        let successful = self
            .patterns
            .successful
            .iter_mut()
            .map(|entry| &mut entry.trace);
        let failed = self
            .patterns
            .failed
            .iter_mut()
            .map(|entry| &mut entry.trace);
        let decisions = self.decisions.iter_mut().map(|entry| &mut entry.trace);
        let before = successful.len() + failed.len() + decisions.len();
        if at < before {
            successful.chain(failed).chain(decisions).nth(at)
        } else {
            self.invariants
                .get_mut(at - before)
                .map(Invariant::trace_mut)
        }
    }

    /// Returns when anything was last learned or confirmed.
    #[must_use]
    pub fn fresh_at(&self) -> Option<Time> {
        self.entries().filter_map(|entry| entry.fresh_at()).max()
    }

    /// Checks the content of the file, beyond its form.
    ///
    /// # Errors
    /// The first thing found, with the entry it is in.
    pub fn validate(&self) -> Result<(), String> {
        let mut ids = std::collections::HashSet::new();
        for (at, entry) in self.entries().enumerate() {
            for (name, value) in entry.texts() {
                text::check(name, value, text::limit(name))
                    .map_err(|why| format!("entry {}: {why}", at + 1))?;
            }
            if let Some(id) = &entry.trace.id
                && !ids.insert((entry.kind, id.as_str()))
            {
                return Err(format!("entry {}: the id {id:?} is there twice", at + 1));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helmdeck_forge_files::json;

    const RFC: &str = include_str!("../fixtures/knowledge.json");

    #[test]
    fn the_example_of_the_rfc_is_saved_as_it_was() {
        let file: KnowledgeFile = serde_json::from_str(RFC).unwrap();
        file.validate().unwrap();
        assert_eq!(file.entries().count(), 5);
        assert_eq!(String::from_utf8(json::print(&file).unwrap()).unwrap(), RFC);
        assert_eq!(file.fresh_at().unwrap().to_string(), "2025-12-24T11:00:00Z");
    }

    #[test]
    fn everything_optional_and_everything_unknown_is_kept() {
        let text = r#"{"schema_version":"1.3","patterns":{"successful":[{"context":"c","approach":"a","learned_at":"2025-12-24T10:30:00Z","id":"i","session":"2025-12-24-session-001","linear":"SX9-1","commit":"abc1234","paths":["src/a.rs"],"seen":2,"last_confirmed_at":"2025-12-25T10:30:00Z","superseded_by":"j","z":1,"y":null}],"failed":[],"odd":[]},"invariants":["t",{"text":"u","check":"true","severity":"warning","x":{}}],"decisions":[{"context":"c","decision":"d","rationale":"r","learned_at":"2025-12-24T10:30:00Z"}],"z":0}"#;
        let file: KnowledgeFile = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&file).unwrap(), text);
        assert_eq!(file.invariants[1].check(), Some("true"));
        assert!(file.invariants[0].is_error() && !file.invariants[1].is_error());
        let twice = text.replace(r#""seen":2"#, r#""seen":2,"seen":3"#);
        assert!(
            serde_json::from_str::<KnowledgeFile>(&twice).is_err(),
            "a duplicate member"
        );
    }

    #[test]
    fn an_entry_without_an_id_has_the_one_of_its_texts() {
        let mut file: KnowledgeFile = serde_json::from_str(RFC).unwrap();
        let worked_out = file.entries().next().unwrap().id();
        assert_eq!(worked_out.len(), 25);
        file.patterns.successful[0].approach =
            " Add to  sx9-harness/src/nats/subjects.rs,\n run tests ".into();
        assert_eq!(
            file.entries().next().unwrap().id(),
            worked_out,
            "blanks do not matter"
        );
        file.patterns.successful[0].approach.push('!');
        assert_ne!(file.entries().next().unwrap().id(), worked_out);
        file.patterns.successful[0].trace.id = Some("given".into());
        assert_eq!(file.entries().next().unwrap().id(), "given");
    }

    #[test]
    fn what_is_too_long_or_there_twice_is_found() {
        let mut file: KnowledgeFile = serde_json::from_str(RFC).unwrap();
        file.patterns.failed[0].context = "x".repeat(501);
        assert!(file.validate().unwrap_err().starts_with("entry 2: "));
        file.patterns.failed[0].context = String::new();
        assert!(file.validate().is_err());
        file.patterns.failed[0].context = "é".repeat(500);
        file.validate().unwrap();
        file.patterns
            .successful
            .push(file.patterns.successful[0].clone());
        file.validate().unwrap();
        for entry in &mut file.patterns.successful {
            entry.trace.id = Some("same".into());
        }
        assert!(file.validate().unwrap_err().contains("twice"));
    }
}
