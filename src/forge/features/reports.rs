//! Reports of verifications, and the passes that they show.
//!
//! One run of `verify` writes one report, whatever the number of its features. A feature that
//! passed before and passes again is only in the report: its entry does not change. A checkpoint
//! keeps the passes of its code, and takes the place of their reports.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use helmdeck_forge_documents::checkpoints::FeaturePass;
use helmdeck_forge_documents::features::Feature;
use serde::{Deserialize, Serialize};

use super::verify::TestRun;
use crate::artifacts::{Kind, VERIFICATION};
use crate::committed;
use crate::error::Result;
use crate::layout::{CHECKPOINTS, LOCAL};
use crate::project::Project;
use crate::shared;
use crate::time::Time;
use crate::triv::FileName;

/// How long a superseded report that other branches have too stays.
const SHARED_FOR: Duration = Duration::from_secs(30 * 86_400);
/// Name of the file of passes that were seen at the start of a session, below the folder of this
/// clone.
const PROBES: &str = "probes.json";

/// A pass of a feature's tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pass {
    pub(super) at: Time,
    /// The code of the whole project.
    pub(super) code_tree: Option<String>,
    /// The objects of the paths that the feature is about; empty if it is about the whole project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) trees: BTreeMap<String, String>,
}

/// Report of a verification.
#[derive(Debug, Serialize)]
pub(super) struct VerificationReport<'a> {
    pub(super) schema_version: &'static str,
    pub(super) report: &'static str,
    pub(super) at: Time,
    pub(super) agent: &'a str,
    pub(super) commit: Option<&'a str>,
    pub(super) code_tree: Option<&'a str>,
    pub(super) dirty: bool,
    /// The features that passed.
    pub(super) features: BTreeMap<&'a str, FeaturePass>,
    /// The commands that ran.
    pub(super) runs: Vec<&'a TestRun>,
}

/// A report as it was stored, or the passes that a checkpoint's manifest keeps, as far as they are
/// read.
#[derive(Debug, Deserialize)]
struct StoredReport {
    #[serde(alias = "timestamp")]
    at: Time,
    code_tree: Option<String>,
    #[serde(alias = "passes")]
    features: BTreeMap<String, FeaturePass>,
}

/// The evidence that features pass: reports of verifications and manifests of checkpoints, by path.
#[derive(Debug, Default)]
pub(crate) struct Evidence(HashMap<String, StoredReport>);

#[cfg(test)]
thread_local! {
    /// How often this thread has read the evidence.
    pub(crate) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Evidence {
    /// Reads it. A file that cannot be read shows nothing.
    ///
    /// # Errors
    /// Errors from listing the folders.
    pub(crate) fn read(project: &Project) -> Result<Self> {
        #[cfg(test)]
        READ.set(READ.get() + 1);
        let files = project.files().reading();
        let mut all = HashMap::new();
        for (folder, is_manifest) in [
            (Kind::Reports.folder(), false),
            (CHECKPOINTS.to_owned(), true),
        ] {
            for file in files.list(&folder)?.into_iter().filter(|file| !file.folder) {
                if is_manifest
                    || FileName::parse(&file.name).is_ok_and(|name| name.slug() == VERIFICATION)
                {
                    let path = format!("{folder}/{}", file.name);
                    let report = files
                        .read(&path)
                        .ok()
                        .flatten()
                        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
                    all.extend(report.map(|report| (path, report)));
                }
            }
        }
        Ok(Self(all))
    }

    /// Says whether there is evidence that a feature passed.
    pub(super) fn shows(&self, feature: &Feature) -> bool {
        feature.evidence.is_some() && self.passes(&feature.id).next().is_some()
    }

    /// Returns the passes of a feature.
    pub(super) fn passes<'a>(&'a self, id: &'a str) -> impl Iterator<Item = Pass> + 'a {
        self.0.values().filter_map(move |report| {
            let trees = report.features.get(id)?.trees.clone();
            Some(Pass {
                at: report.at,
                code_tree: report.code_tree.clone(),
                trees,
            })
        })
    }

    /// Returns the passes of some features on exactly this code.
    pub(crate) fn of_code(&self, code_tree: &str, ids: &[String]) -> BTreeMap<String, FeaturePass> {
        let reports = || {
            self.0
                .values()
                .filter(|report| report.code_tree.as_deref() == Some(code_tree))
        };
        let newest = |id: &String| {
            let passes = reports().filter_map(|report| Some((report.at, report.features.get(id)?)));
            Some((id.clone(), passes.max_by_key(|(at, _)| *at)?.1.clone()))
        };
        ids.iter().filter_map(newest).collect()
    }
}

/// Removes the reports whose passes a newer report or a checkpoint shows too. Returns their paths.
///
/// A file that another branch has stays for a while: two branches that remove it and each add a
/// similar one would have a conflict.
///
/// # Errors
/// `Paused`, `Locked`; errors from the files.
pub(crate) fn remove_superseded_reports(project: &Project) -> Result<Vec<String>> {
    project.check_not_paused()?;
    let folder = Kind::Reports.folder();
    let shared = committed::shared(project, &folder).unwrap_or_default();
    let files = project.files();
    let _guard = files.lock()?;
    let Evidence(all) = Evidence::read(project)?;
    let now = project.environment().now();
    let is_old =
        |at: Time| Duration::try_from(now.0.duration_since(at.0)).is_ok_and(|age| age > SHARED_FOR);
    // Of a report and a checkpoint of the same second, the checkpoint is later.
    let order = |path: &str, report: &StoredReport| {
        (report.at, path.starts_with(CHECKPOINTS), path.to_owned())
    };
    let mut removed = Vec::new();
    for (path, report) in all.iter().filter(|(path, _)| path.starts_with(&folder)) {
        let newer: Vec<&StoredReport> = all
            .iter()
            .filter(|(other, later)| order(other, later) > order(path, report))
            .map(|(_, later)| later)
            .collect();
        let is_superseded = report
            .features
            .keys()
            .all(|id| newer.iter().any(|report| report.features.contains_key(id)));
        if is_superseded && (!shared.contains(path) || is_old(report.at)) {
            files.remove(path)?;
            removed.push(path.clone());
        }
    }
    removed.sort();
    Ok(removed)
}

/// The last pass of each feature that a session start saw in this clone, by id.
///
/// They are not committed: two people who start sessions would otherwise add a report each time.
#[derive(Debug, Default)]
pub(super) struct Probes(BTreeMap<String, Pass>);

impl Probes {
    /// Reads them. A file that cannot be read has none.
    pub(super) fn read(project: &Project) -> Self {
        Self(
            shared::read(&path(project))
                .and_then(|bytes| serde_json::from_slice(&bytes).ok())
                .unwrap_or_default(),
        )
    }

    pub(super) fn get(&self, id: &str) -> Option<&Pass> {
        self.0.get(id)
    }
}

/// Records that features passed. A failure to write it only costs another run of their tests.
pub(super) fn record(project: &Project, passes: &[(&str, Pass)]) {
    if passes.is_empty() {
        return;
    }
    let write = || -> Result<()> {
        let _guard = project.files().lock()?;
        let Probes(mut all) = Probes::read(project);
        all.extend(
            passes
                .iter()
                .map(|(id, pass)| ((*id).to_owned(), pass.clone())),
        );
        let path = path(project);
        let bytes = serde_json::to_vec(&all).unwrap_or_default();
        shared::write(&path, &bytes)
            .map_err(|error| crate::error::Error::io("cannot write", &path, &error))
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "the pass of a feature is not kept");
    }
}

fn path(project: &Project) -> PathBuf {
    project.root().join(LOCAL).join(PROBES)
}
