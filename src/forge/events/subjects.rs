//! Subjects of events, and the Redux action types that mirror them.
//!
//! `forge/memory/session/start` is `sx9.forge.memory.session.start`, and the other way round.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Default prefix of subjects.
pub const PREFIX: &str = "sx9";

/// The subjects, with the default prefix. The first five are those of the RFC.
pub mod memory {
    /// A session began.
    pub const SESSION_START: &str = "sx9.forge.memory.session.start";
    /// A session ended.
    pub const SESSION_END: &str = "sx9.forge.memory.session.end";
    /// A checkpoint was created.
    pub const CHECKPOINT: &str = "sx9.forge.memory.checkpoint";
    /// Something was learned.
    pub const LEARNING: &str = "sx9.forge.memory.learning";
    /// The focus changed.
    pub const FOCUS_CHANGE: &str = "sx9.forge.memory.focus";

    /// A session was found abandoned.
    pub const SESSION_ABANDONED: &str = "sx9.forge.memory.session.abandoned";
    /// A feature was added, or its status changed.
    pub const FEATURE: &str = "sx9.forge.memory.feature";
    /// The health changed.
    pub const HEALTH: &str = "sx9.forge.memory.health";
    /// A recovery: an assessment, a rollback, or an acknowledged pause.
    pub const RECOVERY: &str = "sx9.forge.memory.recovery";
    /// An artifact was stored or removed.
    pub const ARTIFACT: &str = "sx9.forge.memory.artifact";
    /// A skill was used.
    pub const SKILL: &str = "sx9.forge.memory.skill";
    /// An issue changed.
    pub const LINEAR: &str = "sx9.forge.memory.linear";
}

/// Subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// [`memory::SESSION_START`].
    SessionStart,
    /// [`memory::SESSION_END`].
    SessionEnd,
    /// [`memory::CHECKPOINT`].
    Checkpoint,
    /// [`memory::LEARNING`].
    Learning,
    /// [`memory::FOCUS_CHANGE`].
    FocusChange,
    /// [`memory::SESSION_ABANDONED`].
    SessionAbandoned,
    /// [`memory::FEATURE`].
    Feature,
    /// [`memory::HEALTH`].
    Health,
    /// [`memory::RECOVERY`].
    Recovery,
    /// [`memory::ARTIFACT`].
    Artifact,
    /// [`memory::SKILL`].
    Skill,
    /// [`memory::LINEAR`].
    Linear,
}

impl Subject {
    /// Every subject, those of the RFC first.
    pub const ALL: [Self; 12] = [
        Self::SessionStart,
        Self::SessionEnd,
        Self::Checkpoint,
        Self::Learning,
        Self::FocusChange,
        Self::SessionAbandoned,
        Self::Feature,
        Self::Health,
        Self::Recovery,
        Self::Artifact,
        Self::Skill,
        Self::Linear,
    ];

    /// Returns the subject with the default prefix.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SessionStart => memory::SESSION_START,
            Self::SessionEnd => memory::SESSION_END,
            Self::Checkpoint => memory::CHECKPOINT,
            Self::Learning => memory::LEARNING,
            Self::FocusChange => memory::FOCUS_CHANGE,
            Self::SessionAbandoned => memory::SESSION_ABANDONED,
            Self::Feature => memory::FEATURE,
            Self::Health => memory::HEALTH,
            Self::Recovery => memory::RECOVERY,
            Self::Artifact => memory::ARTIFACT,
            Self::Skill => memory::SKILL,
            Self::Linear => memory::LINEAR,
        }
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
        Self::ALL.into_iter().find(|subject| subject.redux().strip_prefix("forge/memory/") == Some(action))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the wildcard subject of an event stream: `sx9.forge.memory.>`.
#[must_use]
pub fn all_with(prefix: &str) -> String {
    format!("{prefix}.forge.memory.>")
}

/// Turns a subject with a prefix into a Redux action type.
///
/// `None` if the subject has another prefix, or is unknown.
#[must_use]
pub fn to_redux(prefix: &str, subject: &str) -> Option<String> {
    let rest = subject.strip_prefix(prefix)?.strip_prefix('.')?;
    rest.split('.').all(is_word).then(|| rest.replace('.', "/"))
}

/// Turns a Redux action type into a subject with a prefix. `None` for an unknown type.
#[must_use]
pub fn from_redux(prefix: &str, action: &str) -> Option<String> {
    action.split('/').all(is_word).then(|| format!("{prefix}.{}", action.replace('/', ".")))
}

/// Checks a subject prefix: words of letters, digits, `_` and `-`, separated by dots.
///
/// # Errors
/// `Usage` (`E_USAGE`).
pub fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.len() <= 64 && prefix.split('.').all(is_word) {
        return Ok(());
    }
    Err(Error::usage("the prefix under [events] is words of letters, digits, _ and - with dots between them")
        .hint(format!("the usual one is {PREFIX}")))
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_subjects_of_the_rfc_are_as_printed() {
        let rfc = include_str!("subjects.txt");
        let printed: Vec<_> = rfc.lines().filter_map(|line| line.split_once(": &str = \"")).collect();
        assert_eq!(printed.len(), 5);
        for (subject, (name, value)) in Subject::ALL.into_iter().zip(printed) {
            assert_eq!(format!("{subject}\";"), value, "{name}");
        }
    }

    #[test]
    fn every_subject_is_an_action_and_the_other_way_round() {
        let mut actions = BTreeSet::new();
        for subject in Subject::ALL {
            for prefix in [PREFIX, "acme.team-1"] {
                let action = to_redux(prefix, &subject.with(prefix)).unwrap();
                assert_eq!(action, subject.redux());
                assert_eq!(from_redux(prefix, &action), Some(subject.with(prefix)));
            }
            assert_eq!(Subject::of_redux(&subject.redux()), Some(subject));
            assert!(actions.insert(subject.redux()), "{subject} is there twice");
        }
        assert_eq!(Subject::SessionStart.redux(), "forge/memory/session/start");
        assert_eq!(Subject::of_redux("session/start"), Some(Subject::SessionStart));
        assert_eq!(Subject::of_redux("start"), None);
    }

    #[test]
    fn what_is_no_subject_is_no_action() {
        for no in ["sx9", "sx9.", "sx9..a", "sx9.a.", "sx9.a/b", "sx9.*", "sx9.>", "sx9.a b", "sx99.a", "ax9.a", ""] {
            assert_eq!(to_redux("sx9", no), None, "{no}");
        }
        for no in ["", "/", "a/", "/a", "a//b", "a.b", "a/*", "a/>", "a b"] {
            assert_eq!(from_redux("sx9", no), None, "{no}");
        }
        for no in ["", ".", "a.", "a/b", "a b", "*", ">", "a.>"] {
            assert!(check_prefix(no).is_err(), "{no}");
        }
        assert!(check_prefix("sx9").is_ok() && check_prefix("acme.team-1").is_ok());
    }

    proptest! {
        #[test]
        fn both_ways_lead_back(words in prop::collection::vec("[a-zA-Z0-9_-]{1,8}", 1..6), prefix in "[a-z0-9]{1,5}(\\.[a-z]{1,5})?") {
            let (subject, action) = (format!("{prefix}.{}", words.join(".")), words.join("/"));
            prop_assert_eq!(to_redux(&prefix, &subject), Some(action.clone()));
            prop_assert_eq!(from_redux(&prefix, &action), Some(subject));
        }
    }
}
