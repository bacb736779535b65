//! Evidence for a feature status: the code and the reports.

use std::collections::{BTreeMap, HashMap};

use helmdeck_forge_documents::features::Feature;
use helmdeck_forge_documents::features::standing::{Standing, StatusInputs};

use super::code::CurrentCode;
use super::reports::{Evidence, Pass, Probes};
use crate::error::Result;
use crate::project::Project;
use crate::time::Time;

/// Judges every feature without git: a pass counts even if its code has changed since.
///
/// Without evidence that can be read, no feature has any.
pub(crate) fn judge_by_evidence(
    evidence: Option<&Evidence>,
    features: &[Feature],
) -> Vec<Standing> {
    let shows = |feature: &Feature| evidence.is_some_and(|evidence| evidence.shows(feature));
    let status_inputs = StatusInputs {
        shows: &shows,
        is_same: &|_| true,
    };
    features
        .iter()
        .map(|feature| feature.standing(&status_inputs))
        .collect()
}

/// Judges every feature: a pass is of the current code or of older code.
pub(super) fn judge(project: &Project, features: &[Feature]) -> Result<Vec<Standing>> {
    judge_by(project, &Evidence::read(project)?, features)
}

/// As [`judge`], with evidence that was read before.
pub(crate) fn judge_by(
    project: &Project,
    evidence: &Evidence,
    features: &[Feature],
) -> Result<Vec<Standing>> {
    let Some(git) = project.repository()? else {
        return Ok(judge_by_evidence(Some(evidence), features));
    };
    let probes = Probes::read(project);
    let mut passes: HashMap<&str, Vec<Pass>> = HashMap::new();
    for feature in features {
        let seen = evidence
            .passes(&feature.id)
            .chain(probes.get(&feature.id).cloned());
        passes.insert(&feature.id, seen.collect());
    }
    let Some(current) = CurrentCode::read(&git, passes.values().flatten())? else {
        return Ok(judge_by_evidence(Some(evidence), features));
    };
    let seen = |feature: &Feature| passes.get(feature.id.as_str()).into_iter().flatten();
    let own = |feature: &Feature| Pass {
        at: feature
            .verified_at
            .unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)),
        code_tree: feature.verified_code_tree.clone(),
        trees: BTreeMap::new(),
    };
    let status_inputs = StatusInputs {
        shows: &|feature| evidence.shows(feature),
        is_same: &|feature| {
            seen(feature).any(|pass| current.is_of(pass)) || current.is_of(&own(feature))
        },
    };
    Ok(features
        .iter()
        .map(|feature| feature.standing(&status_inputs))
        .collect())
}
