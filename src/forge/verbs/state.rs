//! `forge.prime`, `forge.health`: the state of the project.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::health::{self, Health};
use crate::prime::{self, Primed};
use crate::project::Project;
use crate::verb::{Access, Verb};

/// Input of `forge.prime`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prime {
    /// Work session to read. Default: this agent's own, else the primary one of the work tree
    #[schemars(length(min = 1, max = 64))]
    pub session: Option<String>,
    /// Maximum length of the text, in estimated tokens. Default: the project's setting (300)
    #[schemars(range(min = 300, max = 20_000))]
    pub budget: Option<usize>,
}

impl Verb for Prime {
    const NAME: &'static str = "forge.prime";
    const ACCESS: Access = Access::Read;
    const WITH_DAMAGED_SETTINGS: bool = true;
    type Output = Primed;

    fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn run(self, project: &Project) -> Result<Primed> {
        prime::prime(project, self.budget)
    }
}

/// Input of `forge.health`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasureHealth {}

impl Verb for MeasureHealth {
    const NAME: &'static str = "forge.health";
    const ACCESS: Access = Access::Observe;
    const WITH_DAMAGED_SETTINGS: bool = true;
    type Output = Health;

    fn run(self, project: &Project) -> Result<Health> {
        Ok(health::measure(project))
    }
}
