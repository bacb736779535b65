//! Checks of a start: readable long-term memory, working features, and the state of the code.

use std::collections::BTreeSet;

use super::select::Named;
use super::start::Probed;
use crate::error::Result;
use crate::features::{Feature, Features, FeaturesFile, Standing};
use crate::git::Git;
use crate::project::Project;
use crate::recovery::{Action, Assess, Recovery, Unknown};
use crate::repair::{self, Extent};

/// Result of assessing the code at a start.
pub(super) struct Assessed {
    /// The class of the assessment, in one word.
    pub(super) class: String,
    /// The proposal, unless it is to continue.
    pub(super) warning: Option<String>,
    /// The reason of a new pause.
    pub(super) paused: Option<String>,
}

/// Refuses to start if knowledge or features are damaged or lost.
pub(super) fn check_long_term(project: &Project) -> Result<()> {
    let damaged = repair::damage(project, repair::is_long_term)?;
    let damaged = damaged.iter().find(|one| one.extent != Extent::Newer);
    damaged.map_or(Ok(()), |damaged| Err(damaged.error()))
}

/// Returns a warning if the memory's merge driver is not set up in this clone.
pub(super) fn merge_driver(project: &Project) -> Option<String> {
    let missing = project
        .git()
        .and_then(Git::is_merge_driver_missing)
        .unwrap_or(false);
    missing.then(|| {
        let next = crate::health::Code::MergeDriverMissing.next();
        format!("the merge driver of the memory is not set up in this clone (merge_driver_missing); run `{next}`")
    })
}

/// Tests some passing features again: those with the oldest test results.
pub(super) fn probe(project: &Project) -> Result<Vec<Probed>> {
    let probed = Features::new(project).probe(project.config().session.probes)?;
    Ok(probed
        .into_iter()
        .map(|feature| Probed {
            passing: feature.passed,
            problem: feature.problem.map(|problem| problem.as_str().to_owned()),
            regressed: feature.regressed,
            id: feature.id,
        })
        .collect())
}

/// Compares the code with the last checkpoint, and pauses the work if its state is unknown.
///
/// No test runs: earlier results count. Without git there is no result.
pub(super) fn assess(project: &Project) -> Result<Option<Assessed>> {
    if project.git().is_err() {
        return Ok(None);
    }
    let report = Recovery::new(project).assess(Assess { verify: false })?;
    let class = report.class.to_string();
    if !report.must_pause() {
        let aside = report
            .unknown
            .iter()
            .find(|reason| reason.reason != Unknown::NoCheckpoint);
        let warning = match report.action {
            Action::Pause => aside.map(|reason| format!("{}; run `{}`", reason.text, reason.next)),
            Action::Continue => None,
            action => Some(format!(
                "{class} (row {} of the recovery table): {}",
                report.row,
                action.text()
            )),
        };
        return Ok(Some(Assessed {
            class,
            warning,
            paused: None,
        }));
    }
    let reasons: Vec<_> = report
        .unknown
        .iter()
        .map(|reason| reason.text.as_str())
        .collect();
    let paused = Recovery::new(project).pause(&reasons.join("; "), Some(&report))?;
    Ok(Some(Assessed {
        class,
        warning: None,
        paused: Some(paused.reason),
    }))
}

/// The features and their standing.
pub(super) struct JudgedFeatures {
    file: FeaturesFile,
    standings: Vec<Standing>,
}

impl JudgedFeatures {
    pub(super) fn read(project: &Project) -> Result<Self> {
        let (file, standings) = Features::new(project).judged()?;
        Ok(Self { file, standings })
    }

    /// Returns the first regressed feature and the next one to work on. Other sessions' claims are
    /// skipped.
    pub(super) fn open(
        &self,
        agent: &str,
        claimed: &BTreeSet<String>,
    ) -> (Option<Named>, Option<Named>) {
        let named = |feature: &Feature| Named {
            id: feature.id.clone(),
            name: feature.name.clone(),
        };
        let mut all = self.file.features.iter().zip(&self.standings);
        let regressed = all.find(|(feature, standing)| {
            **standing == Standing::Regressed && !claimed.contains(&feature.id)
        });
        let next = self.file.next(&self.standings, agent, claimed);
        (
            regressed.map(|(feature, _)| named(feature)),
            next.map(|(feature, _)| named(feature)),
        )
    }
}
