//! The `forge.*` packs: memory of the operator's project, the folder `.forge/` in its repository.
//!
//! No input is a command, and none is a path outside of the project. Packs that run programs
//! (tests, checks, git hooks) run what the project's own files say. They are offered only if the
//! operator lets callers run programs. No pack resumes paused work: people decide that.

mod place;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use helmdeck_core::{Builtin, Need};
use helmdeck_forge::issues::{AddIssue, ListIssues, SetIssue, ShowIssue};
use helmdeck_forge::verbs::{
    AddFeature, ApplyRecovery, AssessRecovery, CommitWork, CreateCheckpoint, FinishWork,
    ListCheckpoints, ListFeatures, MeasureHealth, Prime, Remember, SearchKnowledge, SetFeature,
    StartWork, UseSkill, VerifyWork,
};
use helmdeck_forge::{Project, ProjectEnvironment};

use place::{ProjectOpener, Runs};

/// What packs of a project wait for if the operator named none.
pub(crate) const NO_PROJECT: &str =
    "a project: name its folder in the configuration, [forge] root (HELMDECK_FORGE__ROOT)";

/// Settings of the `forge.*` packs.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// A folder of the project. `None` = every call answers `not_found` and says what to set.
    ///
    /// Nothing is opened before the first call.
    pub root: Option<PathBuf>,
    /// Whether the packs that run programs are offered, and features may name tests to run.
    /// Default: no.
    pub run: bool,
    /// The clock, time zone, id generator, and connections to event servers.
    ///
    /// The caller is the one who works. The local caller gets the name from here, and the session
    /// too unless the call names one.
    pub environment: ProjectEnvironment,
}

impl Config {
    /// Returns whether the project exists and a person agreed to run its commands (`helmdeck forge
    /// trust`).
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let project = self
            .root
            .as_deref()
            .map(|root| Project::open(root, self.environment.clone()));
        matches!(project, Some(Ok(Some(project))) if helmdeck_forge::trust::check(&project).is_ok())
    }

    /// Returns the need of the family: a project.
    pub(crate) fn need(&self) -> Need {
        let root = self.root.clone();
        Need::check(move || {
            let Some(root) = &root else {
                return Some(NO_PROJECT);
            };
            match Project::exists(root) {
                Ok(true) => None,
                Ok(false) => Some(
                    "a project: run `helmdeck forge init` in its repository, or set [forge] root",
                ),
                Err(_) => Some(
                    "a project that can be opened: run `helmdeck forge doctor` in its repository",
                ),
            }
        })
    }
}

/// Schemas of the verbs: `tests::schemas` makes the file of their types.
const SCHEMAS: &str = include_str!("schemas.json");

/// Returns the packs of this family.
#[must_use]
pub fn packs(config: &Config) -> Vec<Builtin> {
    let place = &ProjectOpener::new(config.clone());
    let mut packs = vec![
        pack!("forge", "prime", Runs::<Prime>::new(place)),
        pack!("forge", "health", Runs::<MeasureHealth>::new(place)),
        pack!("forge", "remember", Runs::<Remember>::new(place)),
        pack!(
            "forge",
            "knowledge_search",
            Runs::<SearchKnowledge>::new(place)
        ),
        pack!("forge", "features_list", Runs::<ListFeatures>::new(place)),
        pack!("forge", "features_add", Runs::<AddFeature>::new(place)),
        pack!("forge", "features_set", Runs::<SetFeature>::new(place)),
        pack!("forge", "issue_list", Runs::<ListIssues>::new(place)),
        pack!("forge", "issue_show", Runs::<ShowIssue>::new(place)),
        pack!("forge", "issue_add", Runs::<AddIssue>::new(place)),
        pack!("forge", "issue_set", Runs::<SetIssue>::new(place)),
        pack!("forge", "skill", Runs::<UseSkill>::new(place)),
        pack!(
            "forge",
            "checkpoint_list",
            Runs::<ListCheckpoints>::new(place)
        ),
    ];
    if config.run {
        packs.extend([
            pack!("forge", "start", Runs::<StartWork>::new(place)),
            pack!("forge", "verify", Runs::<VerifyWork>::new(place)),
            pack!("forge", "commit", Runs::<CommitWork>::new(place)),
            pack!("forge", "done", Runs::<FinishWork>::new(place)),
            pack!(
                "forge",
                "checkpoint_create",
                Runs::<CreateCheckpoint>::new(place)
            ),
            pack!(
                "forge",
                "recover_assess",
                Runs::<AssessRecovery>::new(place)
            ),
            pack!("forge", "recover_apply", Runs::<ApplyRecovery>::new(place)),
        ]);
    }
    packs
}
