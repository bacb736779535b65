//! Subjects of events, and the Redux action types that mirror them.
//!
//! `forge/memory/session/start` is `sx9.forge.memory.session.start`, and the other way round.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::error::{Error, Result};

/// Default prefix of subjects.
pub const PREFIX: &str = "sx9";

/// Subject of an event, as it is with the default prefix. The first five are those of the RFC.
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
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A session began.
    #[strum(serialize = "sx9.forge.memory.session.start")]
    SessionStart,
    /// A session ended.
    #[strum(serialize = "sx9.forge.memory.session.end")]
    SessionEnd,
    /// A checkpoint was created.
    #[strum(serialize = "sx9.forge.memory.checkpoint")]
    Checkpoint,
    /// Something was learned.
    #[strum(serialize = "sx9.forge.memory.learning")]
    Learning,
    /// The focus changed.
    #[strum(serialize = "sx9.forge.memory.focus")]
    FocusChange,
    /// A session was found abandoned.
    #[strum(serialize = "sx9.forge.memory.session.abandoned")]
    SessionAbandoned,
    /// A feature was added, or its status changed.
    #[strum(serialize = "sx9.forge.memory.feature")]
    Feature,
    /// The health changed.
    #[strum(serialize = "sx9.forge.memory.health")]
    Health,
    /// A recovery: an assessment, a rollback, or an acknowledged pause.
    #[strum(serialize = "sx9.forge.memory.recovery")]
    Recovery,
    /// An artifact was stored or removed.
    #[strum(serialize = "sx9.forge.memory.artifact")]
    Artifact,
    /// An issue changed.
    #[strum(serialize = "sx9.forge.memory.linear")]
    Linear,
}

impl Subject {
    /// Every subject, those of the RFC first.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the subject with the default prefix.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the subject with a prefix.
    #[must_use]
    pub fn with(self, prefix: &str) -> String {
        format!("{prefix}{}", &self.as_str()[PREFIX.len()..])
    }

    /// Returns the Redux action type: `forge/memory/session/start`.
    #[must_use]
    pub fn redux(self) -> String {
        self.as_str()[PREFIX.len() + 1..].replace('.', "/")
    }

    /// Finds the subject of a Redux action type, with or without `forge/memory/`.
    #[must_use]
    pub fn of_redux(action: &str) -> Option<Self> {
        let action = action.strip_prefix("forge/memory/").unwrap_or(action);
        Self::ALL
            .iter()
            .copied()
            .find(|subject| subject.redux().strip_prefix("forge/memory/") == Some(action))
    }
}

/// Returns the wildcard subject of an event stream: `sx9.forge.memory.>`.
#[must_use]
pub fn all_with(prefix: &str) -> String {
    format!("{prefix}.forge.memory.>")
}

/// Checks a subject prefix: words of letters, digits, `_` and `-`, separated by dots.
///
/// # Errors
/// `Usage` (`E_USAGE`).
pub fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.len() <= 64 && prefix.split('.').all(is_word) {
        return Ok(());
    }
    Err(Error::usage(
        "the prefix under [events] is words of letters, digits, _ and - with dots between them",
    )
    .hint(format!("the usual one is {PREFIX}")))
}

fn is_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_subjects_of_the_rfc_are_as_printed() {
        let rfc = include_str!("subjects.txt");
        let printed: Vec<_> = rfc
            .lines()
            .filter_map(|line| line.split_once(": &str = \""))
            .collect();
        assert_eq!(printed.len(), 5);
        for (subject, (name, value)) in Subject::ALL.iter().zip(printed) {
            assert_eq!(format!("{subject}\";"), value, "{name}");
        }
    }

    #[test]
    fn every_subject_is_an_action() {
        let mut actions = BTreeSet::new();
        for subject in Subject::ALL {
            assert_eq!(
                format!("{PREFIX}.{}", subject.redux().replace('/', ".")),
                subject.as_str()
            );
            assert_eq!(
                subject.with("acme.team-1").strip_prefix("acme.team-1"),
                subject.as_str().strip_prefix(PREFIX)
            );
            assert_eq!(Subject::of_redux(&subject.redux()), Some(*subject));
            assert!(actions.insert(subject.redux()), "{subject} is there twice");
        }
        assert_eq!(Subject::SessionStart.redux(), "forge/memory/session/start");
        assert_eq!(
            Subject::of_redux("session/start"),
            Some(Subject::SessionStart)
        );
        assert_eq!(Subject::of_redux("start"), None);
    }

    #[test]
    fn a_prefix_is_words_with_dots() {
        for no in ["", ".", "a.", "a/b", "a b", "*", ">", "a.>"] {
            assert!(check_prefix(no).is_err(), "{no}");
        }
        assert!(check_prefix("sx9").is_ok() && check_prefix("acme.team-1").is_ok());
    }
}
