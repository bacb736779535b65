//! `forge.recover_*`: assess damage and roll back without losing anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::project::Project;
use crate::recovery::{Applied, Apply, Assess, Recovery, Report};
use crate::verb::{Access, Verb};

/// Input of `forge.recover_assess`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AssessRecovery {
    /// Do not run the first verify command
    pub no_verify: bool,
}

impl Verb for AssessRecovery {
    const NAME: &'static str = "forge.recover_assess";
    const ACCESS: Access = Access::Read;
    type Output = Report;

    fn run(self, project: &Project) -> Result<Report> {
        Recovery::new(project).assess(Assess {
            verify: !self.no_verify,
        })
    }
}

/// Input of `forge.recover_apply`.
///
/// A caller does not choose the checkpoint. A rollback to a named one happens whatever the
/// assessment says, so a person must decide on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApplyRecovery {
    /// Reason; stored as the reason of the failed pattern
    #[schemars(length(min = 1, max = 500))]
    pub why: Option<String>,
}

impl Verb for ApplyRecovery {
    const NAME: &'static str = "forge.recover_apply";
    const ACCESS: Access = Access::Read;
    type Output = Applied;

    fn run(self, project: &Project) -> Result<Applied> {
        Recovery::new(project).apply(&Apply {
            why: self.why,
            ..Apply::default()
        })
    }
}
