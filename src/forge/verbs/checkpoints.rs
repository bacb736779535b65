//! `forge.checkpoint_*`: create and list checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoints::{Checkpoint, Checkpoints, Create, Made};
use crate::error::Result;
use crate::project::Project;
use crate::verb::{Access, Verb};

/// Input of `forge.checkpoint_create`.
///
/// The project configures what must succeed, and people decide where a tag goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreateCheckpoint {
    /// Key of the issue, such as SX9-123
    #[schemars(
        length(max = 45),
        regex(pattern = "^[A-Z][A-Z0-9]{0,9}-[1-9][0-9]{0,8}$")
    )]
    pub key: Option<String>,
    /// Description of what works
    #[schemars(length(min = 1, max = 2000))]
    pub message: Option<String>,
    /// Issues that this checkpoint closes
    #[schemars(
        length(max = 50),
        inner(
            length(max = 45),
            regex(pattern = "^[A-Z][A-Z0-9]{0,9}-[1-9][0-9]{0,8}$")
        )
    )]
    pub closes: Vec<String>,
}

impl Verb for CreateCheckpoint {
    const NAME: &'static str = "forge.checkpoint_create";
    const ACCESS: Access = Access::Change;
    type Output = Made;

    fn run(self, project: &Project) -> Result<Made> {
        Checkpoints::new(project).create(&Create {
            key: self.key,
            message: self.message,
            closes: self.closes,
            ..Create::default()
        })
    }
}

/// Input of `forge.checkpoint_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListCheckpoints {
    /// Only this checkpoint, by its name or tag
    #[schemars(length(min = 1, max = 100))]
    pub name: Option<String>,
    /// Maximum number of checkpoints
    #[schemars(range(min = 1, max = 200))]
    pub limit: usize,
}

impl Default for ListCheckpoints {
    fn default() -> Self {
        Self {
            name: None,
            limit: 20,
        }
    }
}

/// A list of checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CheckpointList {
    /// Number of checkpoints, including those beyond the limit
    pub total: usize,
    /// The checkpoints, newest first
    pub checkpoints: Vec<Checkpoint>,
}

impl Verb for ListCheckpoints {
    const NAME: &'static str = "forge.checkpoint_list";
    const ACCESS: Access = Access::Read;
    type Output = CheckpointList;

    fn run(self, project: &Project) -> Result<CheckpointList> {
        let mut checkpoints = match self.name {
            Some(name) => vec![Checkpoints::new(project).show(&name)?],
            None => Checkpoints::new(project).list()?,
        };
        let total = checkpoints.len();
        checkpoints.truncate(self.limit);
        Ok(CheckpointList { total, checkpoints })
    }
}
