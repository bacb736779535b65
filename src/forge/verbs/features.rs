//! `forge.features_*`: features and their state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::features::{
    Add, BlockedBy, Changed, Chosen, Counts, Edit, Features, Item, Standing, Status,
};
use crate::project::Project;
use crate::verb::{Access, Verb};

/// Input of `forge.features_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListFeatures {
    /// Only features with one of these values of `standing`
    #[schemars(length(max = 9))]
    pub standing: Vec<Standing>,
    /// Maximum number of features
    #[schemars(range(min = 1, max = 1000))]
    pub limit: usize,
}

impl Default for ListFeatures {
    fn default() -> Self {
        Self {
            standing: Vec::new(),
            limit: 100,
        }
    }
}

/// A list of features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureMatches {
    /// Version of the list, for `if_match`
    pub etag: Option<String>,
    /// Number of all features by standing
    pub counts: Counts,
    /// Number of features that match, including those beyond the limit
    pub total: usize,
    /// The features
    pub features: Vec<Item>,
    /// The feature to work on next
    pub next: Option<Chosen>,
}

impl Verb for ListFeatures {
    const NAME: &'static str = "forge.features_list";
    const ACCESS: Access = Access::Read;
    type Output = FeatureMatches;

    fn run(self, project: &Project) -> Result<FeatureMatches> {
        let listed = Features::new(project).list()?;
        let mut features = listed.features;
        features.retain(|item| self.standing.is_empty() || self.standing.contains(&item.standing));
        let total = features.len();
        features.truncate(self.limit);
        Ok(FeatureMatches {
            etag: listed.etag,
            counts: listed.counts,
            total,
            features,
            next: Features::new(project).next()?,
        })
    }
}

/// Input of `forge.features_add`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddFeature {
    /// Id. Default: the next number, such as FORGE-003
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub id: Option<String>,
    /// Name of the feature
    #[schemars(length(min = 1, max = 500))]
    pub name: String,
    /// Tests that prove the feature: a name, or a prefix followed by *. To use another runner than
    /// the default, put pytest:, go:, node:, npm: or a runner of the project in front
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 500)))]
    pub tests: Vec<String>,
    /// Files and folders that the feature is about: a pass is stale once they change. Default: the
    /// packages of its tests
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 500)))]
    pub paths: Vec<String>,
    /// Steps to see that it works
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 500)))]
    pub steps: Vec<String>,
    /// Category of the feature
    #[serde(default)]
    #[schemars(length(min = 1, max = 500))]
    pub category: Option<String>,
    /// What it waits for: an id, ids, or text
    #[serde(default)]
    #[schemars(schema_with = "blockers")]
    pub blocked_by: Option<BlockedBy>,
}

impl Verb for AddFeature {
    const NAME: &'static str = "forge.features_add";
    const ACCESS: Access = Access::Change;
    type Output = Changed;

    fn run(self, project: &Project) -> Result<Changed> {
        check_tests(project, !self.tests.is_empty())?;
        let add = Add {
            id: self.id,
            name: self.name,
            tests: self.tests,
            paths: self.paths,
            steps: self.steps,
            category: self.category,
            blocked_by: self.blocked_by,
        };
        Features::new(project).add(&add, None)
    }
}

/// Input of `forge.features_set`. Absent members stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetFeature {
    /// Id of the feature, such as FORGE-001
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// New status. blocked requires `blocked_by` or a reason; deferred requires a reason. Only tests
    /// make it passing
    #[serde(default)]
    pub status: Option<NewStatus>,
    /// Reason for its status, or for changing what was agreed at the last checkpoint, which is
    /// logged; empty removes it
    #[serde(default)]
    #[schemars(length(max = 500))]
    pub reason: Option<String>,
    /// What it waits for; empty = nothing
    #[serde(default)]
    #[schemars(schema_with = "new_blockers")]
    pub blocked_by: Option<BlockedBy>,
    /// Name
    #[serde(default)]
    #[schemars(length(min = 1, max = 500))]
    pub name: Option<String>,
    /// New tests
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 500)))]
    pub tests: Option<Vec<String>>,
    /// Files and folders that the feature is about: a pass is stale once they change. Default: the
    /// packages of its tests
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 500)))]
    pub paths: Option<Vec<String>>,
    /// New steps
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 500)))]
    pub steps: Option<Vec<String>>,
    /// Category of the feature
    #[serde(default)]
    #[schemars(length(min = 1, max = 500))]
    pub category: Option<String>,
    /// Remove it; its id is never given again
    #[serde(default)]
    pub remove: bool,
    /// The etag of the list that you read. If the list has changed since, the call returns conflict
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    pub if_match: Option<String>,
}

/// A status that a caller may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewStatus {
    /// It is not begun.
    NotImplemented,
    /// It is being worked on.
    InProgress,
    /// It does not work.
    Failing,
    /// It waits for something else.
    Blocked,
    /// It is left for later, and counts for nothing.
    Deferred,
}

impl From<NewStatus> for Status {
    fn from(status: NewStatus) -> Self {
        match status {
            NewStatus::NotImplemented => Self::NotImplemented,
            NewStatus::InProgress => Self::InProgress,
            NewStatus::Failing => Self::Failing,
            NewStatus::Blocked => Self::Blocked,
            NewStatus::Deferred => Self::Deferred,
        }
    }
}

impl Verb for SetFeature {
    const NAME: &'static str = "forge.features_set";
    const ACCESS: Access = Access::Change;
    type Output = Changed;

    fn run(self, project: &Project) -> Result<Changed> {
        check_tests(project, self.tests.is_some())?;
        let edit = Edit {
            status: self.status.map(Status::from),
            reason: self.reason,
            blocked_by: self.blocked_by,
            name: self.name,
            tests: self.tests,
            paths: self.paths,
            steps: self.steps,
            category: self.category,
        };
        let (features, if_match) = (Features::new(project), self.if_match.as_deref());
        if !self.remove {
            return features.set(&self.id, &edit, if_match);
        }
        let reason = edit.reason.clone();
        if (Edit {
            reason: None,
            ..edit
        }) != Edit::default()
        {
            return Err(Error::usage(
                "a feature that is removed is not changed too: give only a reason",
            ));
        }
        features.remove(&self.id, reason.as_deref(), if_match)
    }
}

/// A named test is a file that another caller's `verify` runs.
fn check_tests(project: &Project, named: bool) -> Result<()> {
    if !named || project.environment().may_name_tests {
        return Ok(());
    }
    Err(
        Error::refused("tests may only be named by who may run programs here")
            .hint("leave \"tests\" out, or set [forge] run in the configuration of helmdeck"),
    )
}

fn blockers(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": ["string", "array"], "minLength": 1, "maxLength": 500, "maxItems": 50,
        "items": { "type": "string", "minLength": 1, "maxLength": 500 },
    })
}

fn new_blockers(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": ["string", "array", "null"], "maxLength": 500, "maxItems": 50,
        "items": { "type": "string", "minLength": 1, "maxLength": 500 },
    })
}
