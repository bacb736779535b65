//! Add, change and remove features, within their contract.

use helmdeck_forge_documents::marks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Features;
use super::contract::{Difference, differences};
use super::file::{
    ADOPTED_FROM, Amendment, BlockedBy, Feature, FeaturesFile, Status, adopted_name, split_id,
};
use super::numbers::Numbers;
use crate::error::{Category, Error, Result};
use crate::events;
use crate::events::subjects::Subject;
use crate::files::check_path;
use crate::git::Git;
use crate::json::{Json, Members};
use crate::project::Project;
use crate::trust;

/// Default prefix of feature ids, for the first feature.
const PREFIX: &str = "FORGE";
/// Maximum length of a name or step, in characters.
const LONGEST: usize = 500;

/// Request to add a feature.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Add {
    /// Its id. Default: the next number after the last feature's prefix, such as `FORGE-003`.
    #[serde(default)]
    pub id: Option<String>,
    /// Its name: 1 to 500 characters.
    pub name: String,
    /// The tests that verify it.
    #[serde(default)]
    pub tests: Vec<String>,
    /// The files and folders that it is about. Without them it is about the packages of its tests.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Steps to check it.
    #[serde(default)]
    pub steps: Vec<String>,
    /// Its category.
    #[serde(default)]
    pub category: Option<String>,
    /// Its blockers: an id, ids, or a text.
    #[serde(default)]
    pub blocked_by: Option<BlockedBy>,
}

/// Request to change a feature. Absent members stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edit {
    /// Its status.
    ///
    /// `passing` is refused: verify the feature instead. `blocked` needs a blocker or a reason;
    /// `deferred` needs a reason.
    #[serde(default)]
    pub status: Option<Status>,
    /// The reason of its status, or of a change of the contract of the last checkpoint. An empty
    /// one removes it.
    ///
    /// The contract changes if the feature is renamed, its steps change, or tests are removed. That
    /// reason is logged.
    #[serde(default)]
    pub reason: Option<String>,
    /// Its blockers; an empty text or an inner `null` removes them.
    #[serde(default)]
    pub blocked_by: Option<BlockedBy>,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its tests.
    #[serde(default)]
    pub tests: Option<Vec<String>>,
    /// The files and folders that it is about; an empty list takes them away.
    #[serde(default)]
    pub paths: Option<Vec<String>>,
    /// Its steps.
    #[serde(default)]
    pub steps: Option<Vec<String>>,
    /// Its category.
    #[serde(default)]
    pub category: Option<String>,
}

/// A feature that was added or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// The feature after the change; before it, if it was removed.
    pub feature: Feature,
    /// The changes of the contract.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amended: Vec<Difference>,
}

/// The contract of a checkpoint.
struct Agreed {
    tag: String,
    file: FeaturesFile,
}

#[derive(Debug, Serialize)]
struct FeatureEvent<'a> {
    id: &'a str,
    from: Option<Status>,
    to: Option<Status>,
    evidence: Option<&'a str>,
}

/// Makes a feature that is not begun.
pub(crate) fn new_feature(project: &Project, id: String, name: String) -> Feature {
    let environment = project.environment();
    let mark = marks::new(environment.uuid().as_u128());
    Feature {
        created_at: Some(environment.now().seconds()),
        mark: Some(mark),
        ..Feature::new(id, name)
    }
}

/// Refuses a path that is not allowed in a file of the project. A folder may end with `/`.
fn check_paths(paths: &[String]) -> Result<()> {
    paths
        .iter()
        .try_for_each(|path| check_path(path.trim_end_matches('/')))
}

impl Features<'_> {
    /// Adds a feature at the end.
    ///
    /// # Errors
    /// `Usage` for an id that is taken, retired or malformed, and for unknown blockers; errors from
    /// writing.
    pub fn add(&self, add: &Add, if_match: Option<&str>) -> Result<Changed> {
        self.project.check_not_paused()?;
        let name = text("name", &add.name)?;
        let list = |all: &[String], what: &str| -> Result<Option<Vec<String>>> {
            let all: Vec<String> = all
                .iter()
                .map(|one| text(what, one))
                .collect::<Result<_>>()?;
            Ok((!all.is_empty()).then_some(all))
        };
        let (tests, steps, paths) = (
            list(&add.tests, "test")?,
            list(&add.steps, "step")?,
            list(&add.paths, "path")?,
        );
        check_paths(paths.as_deref().unwrap_or_default())?;
        let git = self.project.repository()?;
        let guard = self.project.common_lock()?;
        let mut numbers = Numbers::read(git.as_ref());
        let edit = |file: &mut FeaturesFile| {
            let id = match &add.id {
                Some(id) => id.clone(),
                None => numbers.next_id(file, last_prefix(file)),
            };
            let mut feature = new_feature(self.project, id, name);
            (feature.tests, feature.steps, feature.paths) = (tests, steps, paths);
            feature.category.clone_from(&add.category);
            feature.blocked_by.clone_from(&add.blocked_by);
            file.features.push(feature.clone());
            Ok(feature)
        };
        let feature = trust::keep(self.project, || self.project.files().edit(if_match, edit))?;
        numbers.note(&feature.id);
        numbers.write();
        drop(guard);
        self.event(&FeatureEvent {
            id: &feature.id,
            from: None,
            to: Some(feature.status),
            evidence: None,
        });
        Ok(Changed {
            feature,
            amended: Vec::new(),
        })
    }

    /// Changes a feature.
    ///
    /// # Errors
    /// `Refused` for `passing`, and (`E_CONTRACT`) for a contract change without a reason;
    /// `NotFound`; `Usage` if something that the status needs is missing; errors from writing.
    pub fn set(&self, id: &str, edit: &Edit, if_match: Option<&str>) -> Result<Changed> {
        self.project.check_not_paused()?;
        if edit.status == Some(Status::Passing) {
            return Err(Error::refused(format!(
                "{id} is passing only when its tests have shown it"
            ))
            .next(format!("helmdeck forge verify {id}")));
        }
        let now = self.project.environment().now().seconds();
        let agent = self.project.environment().agent.clone();
        let mut from = None;
        let changed = self.change(edit.reason.as_deref(), if_match, |file| {
            let feature = file.get_mut(id)?;
            from = Some(feature.status);
            if let Some(name) = &edit.name {
                feature.name = text("name", name)?;
            }
            if let Some(tests) = &edit.tests {
                feature.tests = Some(
                    tests
                        .iter()
                        .map(|test| text("test", test))
                        .collect::<Result<_>>()?,
                );
            }
            if let Some(paths) = &edit.paths {
                check_paths(paths)?;
                feature.paths = Some(paths.clone()).filter(|paths| !paths.is_empty());
            }
            if let Some(steps) = &edit.steps {
                feature.steps = Some(
                    steps
                        .iter()
                        .map(|step| text("step", step))
                        .collect::<Result<_>>()?,
                );
            }
            if let Some(category) = &edit.category {
                feature.category = Some(text("category", category)?);
            }
            if let Some(blockers) = &edit.blocked_by {
                feature.blocked_by = if blockers.all().next().is_some() {
                    Some(blockers.clone())
                } else {
                    None
                };
            }
            if let Some(reason) = &edit.reason {
                let reason = reason.trim();
                feature.reason = if reason.is_empty() {
                    None
                } else {
                    Some(text("reason", reason)?)
                };
            }
            // With other tests, the earlier result no longer counts.
            if feature.status == Status::Passing && edit.tests.is_some() {
                feature.evidence = None;
                feature.become_(Status::Failing, now);
            }
            if let Some(status) = edit.status {
                feature.become_(status, now);
                if status == Status::InProgress {
                    feature.agent = Some(agent);
                }
            }
            let why = feature.reason.is_some();
            match feature.status {
                Status::Blocked if !why && feature.blockers().next().is_none() => {
                    Err(Error::usage(format!(
                        "{id} cannot be blocked by nothing: say what it waits for, or why"
                    )))
                }
                Status::Deferred if !why => Err(Error::usage(format!(
                    "{id} cannot be left for later without a reason"
                ))),
                _ => Ok(feature.clone()),
            }
        })?;
        if from != Some(changed.feature.status) {
            self.event(&FeatureEvent {
                id,
                from,
                to: Some(changed.feature.status),
                evidence: None,
            });
        }
        Ok(changed)
    }

    /// Removes a feature. Its id is never reused.
    ///
    /// # Errors
    /// `Refused` (`E_CONTRACT`) if it was in the contract of the last checkpoint, unless a reason
    /// is given; `NotFound`; `Usage` if another feature waits for it; errors from writing.
    pub fn remove(
        &self,
        id: &str,
        reason: Option<&str>,
        if_match: Option<&str>,
    ) -> Result<Changed> {
        self.project.check_not_paused()?;
        let changed = self.change(reason, if_match, |file| {
            let feature = file.get_mut(id)?.clone();
            file.features.retain(|other| other.id != id);
            file.retired.push(id.to_owned());
            // An adopted feature that was removed must not be adopted again.
            if let Some(Json::String(from)) = feature.other.0.get(ADOPTED_FROM) {
                file.not_adopted.push(adopted_name(from, &feature.name));
            }
            Ok(feature)
        })?;
        self.event(&FeatureEvent {
            id,
            from: Some(changed.feature.status),
            to: None,
            evidence: None,
        });
        Ok(changed)
    }

    /// Changes the file, but not what was agreed at the last checkpoint unless a reason is given.
    ///
    /// Earlier edits by hand are not blamed on this change.
    fn change(
        &self,
        reason: Option<&str>,
        if_match: Option<&str>,
        change: impl FnOnce(&mut FeaturesFile) -> Result<Feature>,
    ) -> Result<Changed> {
        let project = self.project;
        let agreed = match project.repository()? {
            Some(git) => agreed(&git)?,
            None => None,
        };
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        let reason = reason.map(|reason| text("reason", reason)).transpose()?;
        let (now, by) = (
            project.environment().now().seconds(),
            project.environment().agent.clone(),
        );
        let edit = |file: &mut FeaturesFile| {
            let known = agreed
                .as_ref()
                .map(|agreed| differences(&agreed.file, file))
                .unwrap_or_default();
            let feature = change(file)?;
            let mut amended = agreed
                .as_ref()
                .map(|agreed| differences(&agreed.file, file))
                .unwrap_or_default();
            amended.retain(|difference| !known.contains(difference));
            if let (Some(first), Some(agreed)) = (amended.first(), &agreed) {
                let Some(reason) = reason else {
                    return Err(Error::new(
                        Category::Refused,
                        "E_CONTRACT",
                        format!("that changes what was agreed at {}: {first}", agreed.tag),
                    )
                    .hint("if it must be, say why with --reason; the reason is kept"));
                };
                let changes = amended.iter().map(ToString::to_string).collect();
                file.amendments.push(Amendment {
                    at: now,
                    by,
                    reason,
                    changes,
                    other: Members::default(),
                });
            }
            Ok(Changed { feature, amended })
        };
        trust::keep(project, || project.files().edit(if_match, edit))
    }

    pub(super) fn tell(&self, id: &str, from: Status, to: Status, evidence: Option<&str>) {
        if from != to || evidence.is_some() {
            self.event(&FeatureEvent {
                id,
                from: Some(from),
                to: Some(to),
                evidence,
            });
        }
    }

    fn event(&self, payload: &FeatureEvent<'_>) {
        events::emit(self.project, Subject::Feature, payload);
    }
}

/// Returns the contract of the newest checkpoint that HEAD descends from.
///
/// `None` if it has no features.
fn agreed(git: &Git) -> Result<Option<Agreed>> {
    let Some(head) = git.head()? else {
        return Ok(None);
    };
    let mut tags = git.tags("checkpoint/")?;
    tags.retain(|tag| tag.here);
    tags.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| b.name.cmp(&a.name)));
    for tag in tags {
        let Some(commit) = tag.commit else { continue };
        if !git.is_ancestor(&commit, &head)? {
            continue;
        }
        let Some(file) = git.document_at(&commit)? else {
            // That checkpoint has no contract.
            return Ok(None);
        };
        return Ok(Some(Agreed {
            tag: tag.name,
            file,
        }));
    }
    Ok(None)
}

/// Returns the prefix of the last feature's id.
fn last_prefix(file: &FeaturesFile) -> &str {
    file.features
        .iter()
        .rev()
        .find_map(|feature| split_id(&feature.id))
        .map_or(PREFIX, |(prefix, _)| prefix)
}

/// Returns a text in its stored form.
fn text(name: &str, text: &str) -> Result<String> {
    let text = text.trim();
    let count = text.chars().count();
    if count == 0 || count > LONGEST || text.chars().any(|c| c.is_control() && c != '\n') {
        return Err(Error::usage(format!(
            "{name} must have 1 to {LONGEST} characters, and no control characters"
        )));
    }
    Ok(unicode_normalization::UnicodeNormalization::nfc(text).collect())
}
