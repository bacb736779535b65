//! Location of a caller, and the requested file.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::StateError;

/// Location of a caller. All of it may be absent; unknown members are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The root of the project, unchanged: without `~` expansion or a search above it.
    ///
    /// If absent or empty, it is the project around the working directory of the process.
    pub cwd: Option<PathBuf>,
    /// The phase: see [`Phase::of`](crate::Phase::of).
    pub phase: Option<String>,
    /// The plan: `foo`, `PLAN-foo` or `PLAN-foo.md`.
    ///
    /// A blank one is the plan without a name, whatever plan is bound.
    pub plan: Option<String>,
}

/// Which file of a plan.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Which {
    /// The plan.
    Plan,
    /// The progress so far.
    Progress,
    /// The state of the tasks.
    Tracker,
}

impl Which {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plan, Self::Progress, Self::Tracker];

    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Which {
    type Err = StateError;

    fn from_str(name: &str) -> Result<Self, StateError> {
        Self::ALL
            .into_iter()
            .find(|which| which.as_str() == name)
            .ok_or_else(|| StateError::usage(name))
    }
}
