//! Issues, as the RFC's "Issue as Memory Unit" prints one.
//!
//! An issue has a file of its own, `linear/issues/<KEY>.json`, or is an entry of
//! `linear/active.json`. Text from a tracker never becomes an invariant or a skill by itself.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use helmdeck_forge_files::files::Document;
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::layout::{ACTIVE, COMMENTS, ISSUES};
use helmdeck_forge_files::time::Time;

use crate::marks;

mod file;

/// State of an issue that nobody has begun.
pub const OPEN: &str = "Open";
/// State of an issue that somebody works on.
pub const IN_PROGRESS: &str = "In Progress";
/// State of an issue that is finished.
pub const DONE: &str = "Done";
/// State of an issue that nobody will finish.
pub const CANCELLED: &str = "Cancelled";
/// Prefix of the keys of issues that no tracker has.
pub const LOCAL: &str = "LOCAL";

/// The version that is written.
const VERSION: &str = "1.0";

/// The file `linear/active.json`: `{"schema_version", "synced_at", "issues"}`.
///
/// A bare list of issues is read too.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Active {
    /// The version of the file's form.
    pub schema_version: String,
    /// When the tracker was last asked; `null` if it never was.
    pub synced_at: Option<Time>,
    /// The issues.
    pub issues: Vec<Issue>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// One issue: a unit of memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// Its key: `SX9-123`, or `LOCAL-1` until a tracker has given it one.
    pub linear_id: String,
    /// The name of the files of a local one: the number that it got first, with its mark.
    #[serde(skip)]
    pub file: Option<String>,
    /// What it is about, in one line.
    pub title: String,
    /// What it is about, in Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What kind it is: `feature`, `bug`, `task`, `chore`, or another word.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where it comes from.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "unless_empty"
    )]
    pub memory_trace: Option<MemoryTrace>,
    /// The agent that is to work on it, and how.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "unless_empty"
    )]
    pub agent_state: Option<AgentState>,
    /// When it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance_criteria: Vec<Criterion>,
    /// The branch and the commits of the work.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "unless_empty"
    )]
    pub git_refs: Option<GitRefs>,
    /// The tracker's name for its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// 1 = urgent to 4 = low, 0 = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The assignee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The keys of issues that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// The features it is about, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// The milestone that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milestone: Option<String>,
    /// Where it can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// When the tracker, or the program it comes from, last saw a change. Git knows the changes
    /// made here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
    /// Its comments, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<Comment>,
    /// Its earlier keys, local ones with the mark. Commits keep the key they were made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The issue as the tracker last reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Members>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// Where an issue comes from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryTrace {
    /// What led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_from: Option<String>,
    /// The key of the issue it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_issue: Option<String>,
    /// The artifact with the context snapshot at its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_snapshot: Option<String>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// The agent that is to work on an issue, and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentState {
    /// `Forge`, `Axiom`, `Vector`, `Sentinel`, `Guardian`, or another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_persona: Option<String>,
    /// `Autonomous`, `Research`, `Build`, `Security`, `Planning`, or another word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness_mode: Option<String>,
    /// `small`, `medium`, `large`, `low`, `high`, or another word: kept as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_complexity: Option<String>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// One thing that must hold before an issue is done.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Criterion {
    /// A sentence.
    Text(String),
    /// A sentence, and whether it holds.
    Checked(Checked),
}

/// A sentence, and whether it holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The sentence.
    pub text: String,
    /// Whether it holds.
    #[serde(default)]
    pub done: bool,
    /// What shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// A comment on an issue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Comment {
    /// Its id: 1 to 64 letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// What it says, in Markdown.
    pub text: String,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// Git references of the work on an issue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GitRefs {
    /// Its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Its commits.
    #[serde(default)]
    pub commits: Vec<String>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

impl Active {
    /// Returns what a project without issues has.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            schema_version: VERSION.to_owned(),
            synced_at: None,
            issues: Vec::new(),
            other: Members::default(),
        }
    }

    /// Returns the place of the issue with a key, or else of the one that had it.
    #[must_use]
    pub fn position(&self, key: &str) -> Option<usize> {
        let now = self.issues.iter().position(|issue| issue.linear_id == key);
        now.or_else(|| self.issues.iter().position(|issue| issue.answers_to(key)))
    }

    /// Returns the issue with a key, or else the one that had it.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Issue> {
        self.issues.get(self.position(key)?)
    }
}

impl Document for Active {
    const PATH: &'static str = ACTIVE;

    fn skeleton() -> Self {
        Self::empty()
    }

    /// Checks what the types cannot express: keys are valid and unique, priorities are 0 to 4.
    fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for issue in &self.issues {
            issue.check().map_err(|what| format!("issues: {what}"))?;
            if !seen.insert(&issue.linear_id) {
                return Err(format!("issues: {} stands there twice", issue.linear_id));
            }
        }
        Ok(())
    }
}

impl Document for Issue {
    const PATH: &'static str = ISSUES;

    fn skeleton() -> Self {
        Self::default()
    }

    /// Checks what the types cannot express: the key is valid, the priority is 0 to 4.
    fn check(&self) -> Result<(), String> {
        let key = self.linear_id.as_str();
        check_key(key).map_err(|what| format!("linear_id {what}"))?;
        if self.priority.is_some_and(|priority| priority > 4) {
            return Err(format!("the priority of {key} is not one of 0 to 4"));
        }
        Ok(())
    }

    fn print(&self) -> Result<Vec<u8>, serde_json::Error> {
        file::print(self)
    }
}

impl Document for Comment {
    const PATH: &'static str = COMMENTS;

    fn skeleton() -> Self {
        Self::default()
    }

    fn check(&self) -> Result<(), String> {
        if is_comment_id(&self.id) {
            Ok(())
        } else {
            Err(format!("id {:?} is no id of a comment", self.id))
        }
    }
}

/// Says whether a text is the id of a comment, and so the name of a file.
#[must_use]
pub fn is_comment_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain)
}

/// Checks the key of an issue.
///
/// # Errors
/// What is wrong with it; a placeholder such as `SX9-xxx` is named as one.
pub fn check_key(text: &str) -> Result<(), String> {
    if is_key(text) {
        return Ok(());
    }
    let what = if is_placeholder(text) {
        "is a placeholder, not a key"
    } else {
        "is no key such as SX9-123"
    };
    Err(format!("{text:?} {what}"))
}

impl Issue {
    /// Says whether its state is one in which nothing is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state_is(&["done", "completed", "cancelled", "canceled", "duplicate"])
    }

    /// Says whether its state, in any case of letters, is one of these.
    #[must_use]
    pub fn state_is(&self, states: &[&str]) -> bool {
        self.state.as_ref().is_some_and(|state| {
            states
                .iter()
                .any(|one| state.trim().eq_ignore_ascii_case(one))
        })
    }

    /// Says whether no tracker has it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.linear_id
            .strip_prefix(LOCAL)
            .is_some_and(|rest| rest.starts_with('-'))
    }

    /// Returns the name of its files.
    #[must_use]
    pub fn stem(&self) -> &str {
        self.file.as_deref().unwrap_or(&self.linear_id)
    }

    /// Returns its earlier keys, without marks.
    pub fn earlier_keys(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().map(|alias| marks::split(alias).0)
    }

    /// Says whether a key is its key, or was.
    ///
    /// A number that it gave up because another issue has it is that one's; with the mark, it is
    /// still its own.
    #[must_use]
    pub fn answers_to(&self, key: &str) -> bool {
        if self.linear_id == key || self.aliases.iter().any(|alias| alias == key) {
            return true;
        }
        match marks::split(key).1 {
            Some(mark) => {
                let earlier = || {
                    self.aliases
                        .iter()
                        .any(|alias| marks::split(alias).1 == Some(mark))
                };
                marks::split(self.stem()).1 == Some(mark) || earlier()
            }
            None => !self.is_local() && self.earlier_keys().any(|earlier| earlier == key),
        }
    }

    /// Returns the key of the issue it is part of.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.memory_trace
            .as_ref()
            .and_then(|trace| trace.parent_issue.as_deref())
    }

    /// Returns the assignee of the tracker, or else the assigned persona.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        let persona = || {
            self.agent_state
                .as_ref()
                .and_then(|state| state.assigned_persona.as_deref())
        };
        self.assignee
            .as_deref()
            .or_else(persona)
            .filter(|owner| !owner.trim().is_empty())
    }
}

/// Maximum number of digits of the number of an issue.
const DIGITS: usize = 9;

/// Says whether a text is the key of an issue.
///
/// That is one to ten capital letters and digits, the first a letter, a hyphen, and a number of at
/// most nine digits that does not begin with a zero. It is the same everywhere.
#[must_use]
pub fn is_key(text: &str) -> bool {
    text.split_once('-').is_some_and(|(team, number)| {
        is_team(team)
            && !number.starts_with('0')
            && (1..=DIGITS).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Says whether a text is a placeholder for an issue key: `SX9-xxx`.
#[must_use]
pub fn is_placeholder(text: &str) -> bool {
    text.split_once('-').is_some_and(|(team, number)| {
        is_team(team)
            && !number.is_empty()
            && number
                .bytes()
                .all(|byte| matches!(byte, b'x' | b'X' | b'N' | b'n' | b'#'))
    })
}

fn is_team(text: &str) -> bool {
    text.len() <= 10
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Orders keys as people count: by team, then by number.
#[must_use]
pub fn key_order(key: &str) -> (&str, usize, &str) {
    let (team, number) = key.split_once('-').unwrap_or((key, ""));
    (team, number.len(), number)
}

impl Criterion {
    /// Returns the sentence.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Checked(checked) => &checked.text,
        }
    }

    /// Returns what shows that it holds.
    #[must_use]
    pub fn evidence(&self) -> &str {
        match self {
            Self::Text(_) => "",
            Self::Checked(checked) => checked.evidence.as_deref().unwrap_or_default(),
        }
    }

    /// Says whether it holds.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Checked(checked) => checked.done,
        }
    }
}

impl<'de> Deserialize<'de> for Active {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default = "version")]
            schema_version: String,
            #[serde(default)]
            synced_at: Option<Time>,
            issues: Vec<Issue>,
            #[serde(flatten)]
            other: Members,
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Active;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with issues, or a list of issues")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Active, A::Error> {
                let mut active = Active::empty();
                while let Some(issue) = items.next_element()? {
                    active.issues.push(issue);
                }
                Ok(active)
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Active, A::Error> {
                let File {
                    schema_version,
                    synced_at,
                    issues,
                    other,
                } = File::deserialize(MapAccessDeserializer::new(members))?;
                Ok(Active {
                    schema_version,
                    synced_at,
                    issues,
                    other,
                })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Reads an object; one with nothing in it is none.
fn unless_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default + PartialEq>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.filter(|value| *value != T::default()))
}

fn version() -> String {
    VERSION.to_owned()
}

impl<'de> Deserialize<'de> for Criterion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Criterion;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or an object with a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Criterion, E> {
                Ok(Criterion::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Criterion, A::Error> {
                Checked::deserialize(MapAccessDeserializer::new(members)).map(Criterion::Checked)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests;
