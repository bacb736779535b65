//! A skill as it is known without its instructions.

use std::collections::BTreeMap;

use helmdeck_forge_files::layout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest name of a skill, in bytes.
const NAME: usize = 64;

/// Metadata of a skill, from either form of its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// The name: that of the folder.
    pub name: String,
    /// What it does and when to use it, 1 to 1,024 characters.
    pub description: String,
    /// The version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its manifest below the root of the project, or its folder without one.
    pub path: String,
    /// When it fires.
    pub triggers: Triggers,
    /// Its resources: a path below its folder for each name. `instructions` is one of them.
    pub resources: BTreeMap<String, String>,
    /// The skills that it is chained to.
    #[serde(default, skip_serializing_if = "Dependencies::is_empty")]
    pub dependencies: Dependencies,
    /// How much there is to read.
    pub tokens: Tokens,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Problem>,
    /// Harmless problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Problem>,
}

/// When a skill fires.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Triggers {
    /// Words and phrases, found as whole words by their stems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Patterns of files. Without a slash they are compared with the name of the file, else with
    /// its path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_patterns: Vec<String>,
    /// Labels of an issue, in any case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub linear_labels: Vec<String>,
    /// Whether it fires only in a project whose issues are in a tracker.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tracker: bool,
}

impl Triggers {
    /// Returns how many there are. The fewer, the more specific is the skill.
    pub(crate) const fn count(&self) -> usize {
        self.keywords.len() + self.file_patterns.len() + self.linear_labels.len()
    }
}

/// What a skill is chained to: names of skills.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Dependencies {
    /// These must exist, and run after this skill.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// These run before this skill, if they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// These run after this skill, if they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl Dependencies {
    /// Says whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requires.is_empty() && self.before.is_empty() && self.after.is_empty()
    }
}

/// How much there is to read. These are estimates: a token for every four bytes, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Name, description and triggers.
    pub metadata: u64,
    /// The instructions.
    pub instructions: u64,
}

/// Estimates the tokens of a text from its size in bytes.
#[must_use]
pub const fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Error or warning about a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// What kind of problem: `description_length`, `unknown_key`.
    pub code: String,
    /// What it is.
    pub message: String,
    /// The line of the manifest, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Problem {
    /// Makes a problem without a line number.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            line: None,
        }
    }

    /// Returns the line and the message.
    #[must_use]
    pub fn text(&self) -> String {
        match self.line {
            Some(line) => format!("line {line}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

impl Skill {
    /// Makes a skill of which only the folder is known.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: format!("{}/{name}", layout::SKILLS),
            ..Self::default()
        }
    }

    pub(crate) fn error(&mut self, code: &str, message: impl Into<String>) {
        self.errors.push(Problem::new(code, message));
    }

    pub(crate) fn warn(&mut self, code: &str, message: impl Into<String>) {
        self.warnings.push(Problem::new(code, message));
    }

    /// Says whether the skill can be used.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns why the skill cannot be used, in one line.
    #[must_use]
    pub fn why_invalid(&self) -> String {
        self.errors
            .iter()
            .map(Problem::text)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Says whether a text is a valid name of a skill.
///
/// A name is 1 to 64 of `a-z`, `0-9` and `-`, with no `-` at either end and no two in a row.
#[must_use]
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_agent_skills() {
        for name in ["a", "a-1", &"a".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a--b", "A", "a_b", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
