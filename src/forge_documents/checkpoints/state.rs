//! State of a checkpoint: whether its tag, manifest and commit still agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// State of a checkpoint.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// A commit of this branch is the checkpoint: its own one, or another one with the same code or
    /// the same changes.
    Ok,
    /// The tag names another commit than the manifest.
    TagMoved,
    /// The commit is not in this clone: a shallow clone, or it was collected.
    CommitMissing,
    /// No commit of this branch has its code or its changes.
    NotAncestor,
    /// The manifest cannot be read, in the file or in the tag.
    ManifestCorrupt,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::TagMoved,
        Self::CommitMissing,
        Self::NotAncestor,
        Self::ManifestCorrupt,
    ];

    /// Returns the word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_states_are_those_in_json() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
