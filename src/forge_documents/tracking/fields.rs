//! Fields of an issue that both sides have, in the words of the project.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use strum::{EnumString, IntoStaticStr};

/// A field that is kept equal on both sides.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Field {
    /// The title.
    Title,
    /// The description, without the list of criteria.
    Description,
    /// The type: `feature`, `bug`, `task`, `chore`.
    Type,
    /// The state.
    State,
    /// The priority.
    Priority,
    /// The labels, without the one of the type.
    Labels,
    /// The assignee.
    Assignee,
    /// The key of the issue that it is part of.
    Parent,
    /// The keys of issues that must be done first.
    BlockedBy,
    /// The acceptance criteria.
    Criteria,
    /// The milestone.
    Milestone,
}

impl Field {
    /// Returns its name: `blocked_by`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the field with a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Every field.
    pub const ALL: [Self; 11] = {
        use Field::*;
        [
            Title,
            Description,
            Type,
            State,
            Priority,
            Labels,
            Assignee,
            Parent,
            BlockedBy,
            Criteria,
            Milestone,
        ]
    };
}

/// An acceptance criterion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct CheckItem {
    /// The sentence.
    pub text: String,
    /// Whether it holds.
    pub done: bool,
}

/// The value of a field. An empty one is absent from [`Fields`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A priority.
    Number(u8),
    /// A text, a name or a key.
    Text(String),
    /// The criteria.
    Criteria(Vec<CheckItem>),
    /// Labels or keys.
    Set(BTreeSet<String>),
}

impl Value {
    /// Says whether it is the same as if the field were absent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Text(text) => text.is_empty(),
            Self::Criteria(items) => items.is_empty(),
            Self::Set(set) => set.is_empty(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Criteria(items) => {
                let shown = |item: &CheckItem| {
                    format!("[{}] {}", if item.done { 'x' } else { ' ' }, item.text)
                };
                f.write_str(&items.iter().map(shown).collect::<Vec<_>>().join("; "))
            }
            Self::Set(set) => f.write_str(
                &set.iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }
}

/// The fields of an issue that have a value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Fields(pub BTreeMap<Field, Value>);

impl Fields {
    /// Returns a field.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<&Value> {
        self.0.get(&field)
    }

    /// Sets a field; an empty value removes it.
    pub fn set(&mut self, field: Field, value: Option<Value>) {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.0.insert(field, value),
            None => self.0.remove(&field),
        };
    }

    /// Returns a field that is a text; empty if it is absent.
    #[must_use]
    pub fn text(&self, field: Field) -> &str {
        match self.get(field) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns a field that is a set; empty if it is absent.
    #[must_use]
    pub fn names(&self, field: Field) -> BTreeSet<String> {
        match self.get(field) {
            Some(Value::Set(set)) => set.clone(),
            _ => BTreeSet::new(),
        }
    }

    /// Returns the criteria.
    #[must_use]
    pub fn criteria(&self) -> &[CheckItem] {
        match self.get(Field::Criteria) {
            Some(Value::Criteria(items)) => items,
            _ => &[],
        }
    }

    /// Returns a short digest, by which another clone knows whether it has the same values.
    #[must_use]
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        helmdeck_core::hex(&Sha256::digest(text.as_bytes())[..8])
    }
}
