//! Add, change and remove features, within their contract.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contract::{self, Difference, Weakened, differences, weakened};
use super::file::{ADOPTED_FROM, Amendment, BlockedBy, Feature, FeaturesFile, Status, adopted_name, split_id};
use super::numbers::Numbers;
use super::{Features, status_inputs};
use crate::error::{Category, Error, Result};
use crate::events;
use crate::events::subjects::Subject;
use crate::git::{Git, Oid};
use crate::json::{Json, Members};
use crate::layout::FEATURES;
use crate::time::Time;
use crate::triv::Reference;
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
    /// Steps to check it.
    #[serde(default)]
    pub steps: Vec<String>,
    /// Its category.
    #[serde(default)]
    pub category: Option<String>,
    /// Its blockers: an id, ids, or a text.
    #[serde(default)]
    pub blocked_by: Option<BlockedBy>,
    /// Whether a person verifies it, because no test can.
    #[serde(default)]
    pub manual: bool,
}

/// Request to change a feature. Absent members stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edit {
    /// Its status.
    ///
    /// `passing` is refused: verify the feature instead. `blocked` needs a blocker or a reason; `deferred`
    /// needs a reason.
    #[serde(default)]
    pub status: Option<Status>,
    /// The reason of its status. An empty one removes it.
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
    /// Its steps.
    #[serde(default)]
    pub steps: Option<Vec<String>>,
    /// Its category.
    #[serde(default)]
    pub category: Option<String>,
    /// Whether a person verifies it.
    #[serde(default)]
    pub manual: Option<bool>,
    /// Reason for a change of the contract of the last checkpoint. It is logged.
    ///
    /// Such changes are a feature removed or renamed, steps changed, or tests removed.
    #[serde(default)]
    pub amend_contract: Option<String>,
}

/// A manual verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manual {
    /// The artifact that is the evidence.
    pub evidence: String,
    /// The name of the person who verified it. An agent's name is refused.
    pub by: String,
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

/// Differences between the features and those of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// The checkpoint's tag.
    pub since: String,
    /// Its commit.
    pub commit: String,
    /// Differences from the contract there.
    pub differences: Vec<Difference>,
    /// Test files that check less than they did there.
    pub weakened: Vec<Weakened>,
    /// Features that claim to pass without evidence.
    pub unverified: Vec<String>,
    /// Features of the contract that are deferred now: they do not count as regressed.
    pub put_off: Vec<String>,
    /// Contract changes since, with their reasons.
    pub amendments: Vec<Amendment>,
}

/// The contract of a checkpoint.
struct Agreed {
    tag: String,
    commit: Oid,
    time: Option<Time>,
    file: FeaturesFile,
}

#[derive(Debug, Serialize)]
struct FeatureEvent<'a> {
    id: &'a str,
    from: Option<Status>,
    to: Option<Status>,
    evidence: Option<&'a str>,
}

impl Features<'_> {
    /// Adds a feature at the end.
    ///
    /// # Errors
    /// `Usage` for an id that is taken, retired or malformed, and for unknown blockers; errors from writing.
    pub fn add(&self, add: &Add, if_match: Option<&str>) -> Result<Changed> {
        self.project.check_not_paused()?;
        let name = text("name", &add.name)?;
        let list = |all: &[String], what: &str| -> Result<Option<Vec<String>>> {
            let all: Vec<String> = all.iter().map(|one| text(what, one)).collect::<Result<_>>()?;
            Ok((!all.is_empty()).then_some(all))
        };
        let (tests, steps) = (list(&add.tests, "test")?, list(&add.steps, "step")?);
        let git = self.project.repository()?;
        let guard = self.project.common_lock()?;
        let mut numbers = Numbers::of(self.project, git.as_ref());
        let edit = |file: &mut FeaturesFile| {
            let id = match &add.id {
                Some(id) => id.clone(),
                None => numbers.next_id(file, last_prefix(file)),
            };
            let mut feature = Feature::new(id, name);
            (feature.tests, feature.steps) = (tests, steps);
            feature.category.clone_from(&add.category);
            feature.blocked_by.clone_from(&add.blocked_by);
            feature.manual = add.manual.then_some(true);
            file.features.push(feature.clone());
            Ok(feature)
        };
        let feature = trust::keep(self.project, || self.project.files().edit(if_match, edit))?;
        numbers.note(&feature.id);
        numbers.write();
        drop(guard);
        self.event(&FeatureEvent { id: &feature.id, from: None, to: Some(feature.status), evidence: None });
        Ok(Changed { feature, amended: Vec::new() })
    }

    /// Changes a feature.
    ///
    /// # Errors
    /// `Refused` for `passing`, and (`E_CONTRACT`) for a contract change without a reason; `NotFound`;
    /// `Usage` if something that the status needs is missing; errors from writing.
    pub fn set(&self, id: &str, edit: &Edit, if_match: Option<&str>) -> Result<Changed> {
        self.project.check_not_paused()?;
        if edit.status == Some(Status::Passing) {
            return Err(Error::refused(format!("{id} is passing only when its tests have shown it"))
                .next(format!("helmdeck forge features verify {id}")));
        }
        let now = self.project.environment().now().seconds();
        let agent = self.project.environment().agent.clone();
        let mut from = None;
        let changed = self.change(edit.amend_contract.as_deref(), if_match, |file| {
            let feature = file.get_mut(id)?;
            from = Some(feature.status);
            if let Some(name) = &edit.name {
                feature.name = text("name", name)?;
            }
            if let Some(tests) = &edit.tests {
                feature.tests = Some(tests.iter().map(|test| text("test", test)).collect::<Result<_>>()?);
            }
            if let Some(steps) = &edit.steps {
                feature.steps = Some(steps.iter().map(|step| text("step", step)).collect::<Result<_>>()?);
            }
            if let Some(category) = &edit.category {
                feature.category = Some(text("category", category)?);
            }
            if let Some(manual) = edit.manual {
                feature.manual = manual.then_some(true);
            }
            if let Some(blockers) = &edit.blocked_by {
                feature.blocked_by = if blockers.all().next().is_some() { Some(blockers.clone()) } else { None };
            }
            if let Some(reason) = &edit.reason {
                let reason = reason.trim();
                feature.reason = if reason.is_empty() { None } else { Some(text("reason", reason)?) };
            }
            // With other tests, or another way to verify, the earlier result no longer counts.
            if feature.status == Status::Passing && (edit.tests.is_some() || edit.manual.is_some()) {
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
                    Err(Error::usage(format!("{id} cannot be blocked by nothing: say what it waits for, or why")))
                }
                Status::Deferred if !why => {
                    Err(Error::usage(format!("{id} cannot be left for later without a reason")))
                }
                _ => Ok(feature.clone()),
            }
        })?;
        if from != Some(changed.feature.status) {
            self.event(&FeatureEvent { id, from, to: Some(changed.feature.status), evidence: None });
        }
        Ok(changed)
    }

    /// Removes a feature. Its id is never reused.
    ///
    /// # Errors
    /// `Refused` (`E_CONTRACT`) if it was in the contract of the last checkpoint, unless a reason is given;
    /// `NotFound`; `Usage` if another feature waits for it; errors from writing.
    pub fn remove(&self, id: &str, amend_contract: Option<&str>, if_match: Option<&str>) -> Result<Changed> {
        self.project.check_not_paused()?;
        let changed = self.change(amend_contract, if_match, |file| {
            let feature = file.get_mut(id)?.clone();
            file.features.retain(|other| other.id != id);
            file.retired.push(id.to_owned());
            // An adopted feature that was removed must not be adopted again.
            if let Some(Json::String(from)) = feature.other.0.get(ADOPTED_FROM) {
                file.not_adopted.push(adopted_name(from, &feature.name));
            }
            Ok(feature)
        })?;
        self.event(&FeatureEvent { id, from: Some(changed.feature.status), to: None, evidence: None });
        Ok(changed)
    }

    /// Records that a person verified a feature that no test can verify.
    ///
    /// # Errors
    /// `Usage` for a feature that tests verify, or without a person's name; `NotFound` for evidence
    /// that is not an artifact; errors from writing.
    pub fn manual(&self, id: &str, manual: &Manual) -> Result<Changed> {
        let project = self.project;
        project.check_not_paused()?;
        let by = text("by", &manual.by)?;
        if by.eq_ignore_ascii_case(&project.environment().agent) {
            return Err(Error::refused(format!("{by} is the agent: a person must have seen that {id} works")));
        }
        let reference = Reference::parse(&manual.evidence).map_err(Error::usage)?;
        if !status_inputs::Evidence::read(project)?.is_there(&reference) {
            return Err(
                Error::not_found(format!("there is no artifact {reference}")).next("helmdeck forge artifact list")
            );
        }
        let git = project.repository()?;
        let commit = match &git {
            Some(git) => git.head()?,
            None => None,
        };
        let tree = status_inputs::code_tree(git.as_ref())?;
        let now = project.environment().now().seconds();
        let (from, feature) = project.files().edit(None, |file: &mut FeaturesFile| {
            let feature = file.get_mut(id)?;
            if feature.manual != Some(true) {
                return Err(Error::usage(format!("{id} is verified by its tests, not by a person"))
                    .next(format!("helmdeck forge features verify {id}")));
            }
            let from = feature.status;
            feature.become_(Status::Passing, now);
            feature.evidence = Some(reference.to_string());
            feature.verified_at = Some(now);
            feature.verified_commit = commit.map(|oid| oid.as_str().to_owned());
            feature.verified_code_tree = tree;
            feature.verified_by = Some(by);
            feature.regressed_before = feature.regressed_at.take().or(feature.regressed_before);
            feature.reason = None;
            Ok((from, feature.clone()))
        })?;
        self.tell(id, from, feature.status, feature.evidence.as_deref());
        Ok(Changed { feature, amended: Vec::new() })
    }

    /// Compares the features and the test files with a checkpoint: the last one unless one is named.
    ///
    /// # Errors
    /// `NotFound` without such a checkpoint, or if it holds no features; `Corrupt` if the file is
    /// damaged; errors from git.
    pub fn audit(&self, since: Option<&str>) -> Result<Audit> {
        let file = self.read()?;
        let git = self.project.repository()?.ok_or_else(|| {
            Error::new(
                Category::NotFound,
                "E_NOT_A_REPO",
                "there is no git repository, and so no checkpoint to compare with",
            )
        })?;
        let agreed = agreed(&git, since)?.ok_or_else(|| {
            let which = since.map_or_else(|| "no checkpoint".to_owned(), |tag| format!("no checkpoint {tag:?}"));
            Error::not_found(format!("there is {which} with features that HEAD descends from"))
                .next("helmdeck forge checkpoint list")
        })?;
        let mut weak = Vec::new();
        for change in git.changes(&agreed.commit)? {
            if !contract::has_tests(&change.path) || change.binary {
                continue;
            }
            let Some(path) = git.in_project(&change.path) else { continue };
            let Some(before) = git.file_at(&agreed.commit, &change.path)? else { continue };
            let after = self.project.files().read(path).ok().flatten().unwrap_or_default();
            weak.extend(weakened(&change.path, &String::from_utf8_lossy(&before), &String::from_utf8_lossy(&after)));
        }
        let standings = status_inputs::judge(self.project, &file.features, false)?;
        let unverified = file.features.iter().zip(standings);
        let unverified = unverified.filter(|(_, standing)| *standing == super::Standing::UnverifiedPass);
        let put_off = file.features.iter().filter(|feature| feature.status == Status::Deferred);
        let put_off =
            put_off.filter(|feature| agreed.file.get(&feature.id).is_some_and(|then| then.status != Status::Deferred));
        let put_off = put_off.map(|feature| feature.id.clone()).collect();
        Ok(Audit {
            put_off,
            since: agreed.tag,
            commit: agreed.commit.as_str().to_owned(),
            differences: differences(&agreed.file, &file),
            weakened: weak,
            unverified: unverified.map(|(feature, _)| feature.id.clone()).collect(),
            amendments: file
                .amendments
                .into_iter()
                .filter(|amendment| agreed.time.is_none_or(|at| amendment.at >= at))
                .collect(),
        })
    }

    /// Changes the file, but not what was agreed at the last checkpoint unless a reason is given.
    ///
    /// Earlier manual edits are not blamed on this change: `audit` shows them.
    fn change(
        &self,
        amend: Option<&str>,
        if_match: Option<&str>,
        change: impl FnOnce(&mut FeaturesFile) -> Result<Feature>,
    ) -> Result<Changed> {
        let project = self.project;
        let agreed = match project.repository()? {
            Some(git) => agreed(&git, None)?,
            None => None,
        };
        let amend = amend.map(|reason| text("reason", reason)).transpose()?;
        let (now, by) = (project.environment().now().seconds(), project.environment().agent.clone());
        let edit = |file: &mut FeaturesFile| {
            let known = agreed.as_ref().map(|agreed| differences(&agreed.file, file)).unwrap_or_default();
            let feature = change(file)?;
            let mut amended = agreed.as_ref().map(|agreed| differences(&agreed.file, file)).unwrap_or_default();
            amended.retain(|difference| !known.contains(difference));
            if let (Some(first), Some(agreed)) = (amended.first(), &agreed) {
                let Some(reason) = amend else {
                    return Err(Error::new(
                        Category::Refused,
                        "E_CONTRACT",
                        format!("that changes what was agreed at {}: {first}", agreed.tag),
                    )
                    .hint("if it must be, say why with --amend-contract; the reason is kept"));
                };
                let changes = amended.iter().map(ToString::to_string).collect();
                file.amendments.push(Amendment { at: now, by, reason, changes, other: Members::default() });
            }
            Ok(Changed { feature, amended })
        };
        trust::keep(project, || project.files().edit(if_match, edit))
    }

    pub(super) fn tell(&self, id: &str, from: Status, to: Status, evidence: Option<&str>) {
        if from != to || evidence.is_some() {
            self.event(&FeatureEvent { id, from: Some(from), to: Some(to), evidence });
        }
    }

    fn event(&self, payload: &FeatureEvent<'_>) {
        events::emit(self.project, Subject::Feature, payload);
    }
}

/// Returns the contract of a checkpoint: the named one, or the newest ancestor of HEAD.
///
/// `None` if it has no features.
fn agreed(git: &Git, named: Option<&str>) -> Result<Option<Agreed>> {
    let Some(head) = git.head()? else { return Ok(None) };
    let wanted = named.map(|name| name.strip_prefix("checkpoint/").unwrap_or(name));
    let mut tags = git.tags("checkpoint/")?;
    tags.retain(|tag| tag.here && wanted.is_none_or(|wanted| tag.name.strip_prefix("checkpoint/") == Some(wanted)));
    tags.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| b.name.cmp(&a.name)));
    for tag in tags {
        let Some(commit) = tag.commit else { continue };
        if !git.is_ancestor(&commit, &head)? {
            continue;
        }
        let Some(bytes) = git.document_at(&commit, FEATURES)? else {
            // That checkpoint has no contract.
            return Ok(None);
        };
        let file = serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(Category::Corrupt, "E_CORRUPT", format!("{FEATURES} of {} cannot be read: {error}", tag.name))
        })?;
        return Ok(Some(Agreed { tag: tag.name, commit, time: tag.time.map(Time::from), file }));
    }
    Ok(None)
}

/// Returns the prefix of the last feature's id.
fn last_prefix(file: &FeaturesFile) -> &str {
    file.features.iter().rev().find_map(|feature| split_id(&feature.id)).map_or(PREFIX, |(prefix, _)| prefix)
}

/// Returns a text in its stored form.
fn text(name: &str, text: &str) -> Result<String> {
    let text = text.trim();
    let count = text.chars().count();
    if count == 0 || count > LONGEST || text.chars().any(|c| c.is_control() && c != '\n') {
        return Err(Error::usage(format!("{name} must have 1 to {LONGEST} characters, and no control characters")));
    }
    Ok(unicode_normalization::UnicodeNormalization::nfc(text).collect())
}
