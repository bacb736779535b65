//! The branches of a repository: `branches.json`, a cache.

use helmdeck_forge_files::files::Document;
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::layout;
use helmdeck_forge_files::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The branches, as `branches.json` has them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Branches {
    /// When the file was made.
    pub generated_at: Time,
    /// The commit that was checked out.
    pub head: Option<String>,
    /// What the branches are measured against (`origin/main`).
    pub base: Option<String>,
    /// The branches, in the order of their names.
    pub branches: Vec<BranchState>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// A branch, as `branches.json` has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BranchState {
    /// Its name.
    pub name: String,
    /// Its commit.
    pub sha: String,
    /// The branch that it follows.
    pub upstream: Option<String>,
    /// How many commits it has that the one it is measured against has not: its upstream, or else
    /// the base.
    pub ahead: Option<u64>,
    /// How many commits that one has that it has not.
    pub behind: Option<u64>,
    /// When its commit was committed.
    pub last_commit_at: Time,
    /// The key of the issue in its name.
    pub key: Option<String>,
    /// The session that made its commit.
    pub session: Option<String>,
    /// The work tree in which it is checked out.
    pub worktree: Option<String>,
    /// Whether the base has all of it.
    pub merged: bool,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Document for Branches {
    const PATH: &'static str = layout::BRANCHES;

    fn skeleton() -> Self {
        Self::default()
    }
}
