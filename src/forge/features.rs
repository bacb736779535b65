//! The features, and which of them work.
//!
//! Only its tests can show that a feature works, and an artifact keeps their result. A feature that
//! claims to pass without such an artifact counts as failing.

mod code;
mod execute;
mod manage;
mod numbers;
mod reports;
mod status_inputs;
mod suite;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use code::CodeSnapshot;
pub(crate) use execute::built_in;
pub(crate) use helmdeck_forge_documents::features::file::unknown;
pub(crate) use helmdeck_forge_documents::features::{ADOPTED_FROM, adopted_name};
pub use helmdeck_forge_documents::features::{
    Amendment, BlockedBy, Change, Counts, Difference, Feature, FeatureEntry, FeaturesFile, Next,
    Standing, Status, is_id,
};
use helmdeck_forge_documents::features::{contract, file};
pub(crate) use manage::new_feature;
pub use manage::{Add, Changed, Edit};
pub(crate) use numbers::Numbers;
#[cfg(test)]
pub(crate) use reports::READ;
pub(crate) use reports::{Evidence, remove_superseded_reports};
pub(crate) use status_inputs::{judge_by, judge_by_evidence};
pub use verify::{Problem, TestRun, Verified, Which};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files::Document as _;
use crate::project::Project;
use crate::sessions::Sessions;

/// The features, and which of them work.
#[derive(Debug, Clone, Copy)]
pub struct Features<'a> {
    project: &'a Project,
}

/// List of all features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Version tag of the file; none if there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Number of features by standing.
    pub counts: Counts,
    /// The features, in the order of the file.
    pub features: Vec<Item>,
}

/// A feature, and its real standing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// The standing, by evidence.
    pub standing: Standing,
    /// The feature.
    pub feature: Feature,
}

/// The feature to work on next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chosen {
    /// Why it was chosen.
    pub why: Next,
    /// The feature.
    pub feature: Feature,
}

impl<'a> Features<'a> {
    /// Returns the features of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Features<'_> {
    /// Returns the features file; an empty one if there is none.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged.
    pub fn read(&self) -> Result<FeaturesFile> {
        Ok(self
            .project
            .files()
            .load::<FeaturesFile>()?
            .map_or_else(FeaturesFile::skeleton, |loaded| loaded.value))
    }

    /// Returns all features and their standing.
    ///
    /// A pass of older code is stale, which still counts as passing.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged; errors from git.
    pub fn list(&self) -> Result<Listed> {
        self.list_by(&Evidence::read(self.project)?)
    }

    /// As [`Self::list`], with evidence that was read before.
    pub(crate) fn list_by(&self, evidence: &Evidence) -> Result<Listed> {
        let loaded = self.project.files().load::<FeaturesFile>()?;
        let etag = loaded.as_ref().map(|loaded| loaded.etag.clone());
        let features = loaded
            .map(|loaded| loaded.value.features)
            .unwrap_or_default();
        let standings = status_inputs::judge_by(self.project, evidence, &features)?;
        let counts = FeaturesFile::counts(&standings);
        let features = features
            .into_iter()
            .zip(standings)
            .map(|(feature, standing)| Item { standing, feature })
            .collect();
        Ok(Listed {
            etag,
            counts,
            features,
        })
    }

    /// Returns the file, and the standing of each feature.
    pub(crate) fn judged(&self) -> Result<(FeaturesFile, Vec<Standing>)> {
        let file = self.read()?;
        let standings = status_inputs::judge(self.project, &file.features)?;
        Ok((file, standings))
    }

    /// Returns the feature to work on next; the features of other sessions are left out.
    ///
    /// The order: a feature that regressed, one that this agent works on, one that does not work,
    /// one that has not been started and whose dependencies are met.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged; errors from git.
    pub fn next(&self) -> Result<Option<Chosen>> {
        let (file, standings) = self.judged()?;
        let claimed = Sessions::new(self.project).claimed();
        let next = file.next(&standings, &self.project.environment().agent, &claimed);
        Ok(next.map(|(feature, why)| Chosen {
            why,
            feature: feature.clone(),
        }))
    }
}
