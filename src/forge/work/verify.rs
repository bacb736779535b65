//! `verify`: the tests of features, and the checks of invariants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Work;
use crate::error::Result;
use crate::features::{Features, Verified, Which};
use crate::invariants::{self, Checked};

/// Request to verify.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Verify {
    /// The features. Default: those of the focus.
    pub ids: Vec<String>,
    /// Whether all features that have tests are verified.
    pub all: bool,
    /// Whether the features are verified that passed before and are untested on the current code.
    pub stale: bool,
}

/// What was verified. A transport ends with exit code 1 unless it passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// Whether every feature passed, and every invariant holds that must.
    pub passed: bool,
    /// The features.
    pub features: Vec<Verified>,
    /// The invariants that have a check; none if features were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invariants: Option<Checked>,
}

impl Work<'_> {
    /// Runs the tests of features and stores the results; without names, it also runs the checks of
    /// the invariants.
    ///
    /// # Errors
    /// `Usage` if the focus has no feature; as [`Features::verify`] and [`invariants::check`].
    pub fn verify(&self, verify: &Verify) -> Result<Verification> {
        let which = match verify {
            Verify { all: true, .. } => Which::All,
            Verify { stale: true, .. } => Which::Stale,
            Verify { ids, .. } if ids.is_empty() => Which::Named(self.features()?),
            Verify { ids, .. } => Which::Named(ids.clone()),
        };
        let features = Features::new(self.project).verify_each(&which)?;
        let invariants = if verify.ids.is_empty() {
            Some(invariants::check(self.project)?)
        } else {
            None
        };
        let holds = invariants.as_ref().is_none_or(|checked| checked.holds);
        let invariants = invariants.filter(|checked| checked.checked > 0);
        Ok(Verification {
            passed: holds && features.iter().all(|feature| feature.passed),
            features,
            invariants,
        })
    }
}
