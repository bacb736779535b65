//! State of a checkpoint: whether its tag, manifest and commit still agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// State of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Everything agrees.
    Ok,
    /// The manifest exists, but its tag does not.
    TagMissing,
    /// The tag names another commit than the manifest.
    TagMoved,
    /// The commit is not in this clone: a shallow clone, or it was collected.
    CommitMissing,
    /// HEAD does not descend from the commit.
    NotAncestor,
    /// The manifest cannot be read, in the file or in the tag.
    ManifestCorrupt,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::TagMissing, Self::TagMoved, Self::CommitMissing, Self::NotAncestor, Self::ManifestCorrupt];

    /// Returns the word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Findings about a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRef {
    /// The manifest in the file or in the tag cannot be read.
    pub corrupt: bool,
    /// There is a tag.
    pub tag: bool,
    /// The tag, the manifest in it and the manifest in the file name the same commit.
    pub agree: bool,
    /// The commit is in this clone.
    pub commit: bool,
    /// HEAD descends from the commit, or is the commit.
    pub ancestor: bool,
}

impl CheckpointRef {
    /// Returns the state: the worst of the findings.
    pub const fn state(self) -> State {
        if self.corrupt {
            State::ManifestCorrupt
        } else if self.tag && !self.agree {
            State::TagMoved
        } else if !self.commit {
            State::CommitMissing
        } else if !self.tag {
            State::TagMissing
        } else if !self.ancestor {
            State::NotAncestor
        } else {
            State::Ok
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_well_only_if_everything_about_it_is() {
        let well = CheckpointRef { corrupt: false, tag: true, agree: true, commit: true, ancestor: true };
        assert_eq!(well.state(), State::Ok);
        assert_eq!(CheckpointRef { corrupt: true, tag: false, commit: false, ..well }.state(), State::ManifestCorrupt);
        assert_eq!(CheckpointRef { tag: false, ancestor: false, ..well }.state(), State::TagMissing);
        assert_eq!(CheckpointRef { tag: false, commit: false, ancestor: false, ..well }.state(), State::CommitMissing);
        assert_eq!(CheckpointRef { agree: false, commit: false, ..well }.state(), State::TagMoved);
        assert_eq!(CheckpointRef { commit: false, ancestor: false, ..well }.state(), State::CommitMissing);
        assert_eq!(CheckpointRef { ancestor: false, ..well }.state(), State::NotAncestor);
    }

    #[test]
    fn the_words_of_the_states_are_those_in_json() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
