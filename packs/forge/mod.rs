//! The `forge.*` packs: memory of the operator's project, the folder `.forge/` in its repository.
//!
//! No input is a command, and none is a path outside of the project. Packs that run programs
//! (tests, checks, git hooks) run what the project's own files say. They are offered only if the
//! operator lets callers run programs. No pack resumes paused work: people decide that.

mod brief;
mod checkpoints;
mod features;
mod knowledge;
mod place;
mod recovery;
mod skills;
#[cfg(test)]
mod tests;
mod work;

use std::path::PathBuf;

use helmdeck_core::{Builtin, Need};
use helmdeck_forge::issues::{AddIssue, ListIssues, SetIssue, ShowIssue};
use helmdeck_forge::{Project, ProjectEnvironment};

use place::{ProjectOpener, Runs, Verb};

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
    let (add, set): (features::Adding, features::Setting) = if config.run {
        (features::add, features::set)
    } else {
        (features::add_untested, features::set_untested)
    };
    let mut packs = vec![
        pack!(
            "forge",
            "prime",
            Verb::new(place, brief::prime).in_session().or_defaults()
        ),
        pack!(
            "forge",
            "health",
            Verb::new(place, brief::health).quiet().or_defaults()
        ),
        pack!(
            "forge",
            "remember",
            Verb::new(place, knowledge::remember)
                .in_session()
                .changing()
        ),
        pack!(
            "forge",
            "knowledge_search",
            Verb::new(place, knowledge::search)
        ),
        pack!("forge", "features_list", Verb::new(place, features::list)),
        pack!("forge", "features_add", Verb::new(place, add).changing()),
        pack!("forge", "features_set", Verb::new(place, set).changing()),
        pack!("forge", "issue_list", Runs::<ListIssues>::new(place)),
        pack!("forge", "issue_show", Runs::<ShowIssue>::new(place)),
        pack!("forge", "issue_add", Runs::<AddIssue>::new(place)),
        pack!("forge", "issue_set", Runs::<SetIssue>::new(place)),
        pack!("forge", "skill", Verb::new(place, skills::skill)),
        pack!(
            "forge",
            "checkpoint_list",
            Verb::new(place, checkpoints::list)
        ),
    ];
    if config.run {
        packs.extend([
            pack!("forge", "start", Verb::new(place, work::start).in_session()),
            pack!(
                "forge",
                "verify",
                Verb::new(place, work::verify).in_session().changing()
            ),
            pack!(
                "forge",
                "commit",
                Verb::new(place, work::commit).in_session()
            ),
            pack!("forge", "done", Verb::new(place, work::done).in_session()),
            pack!(
                "forge",
                "checkpoint_create",
                Verb::new(place, checkpoints::create).changing()
            ),
            pack!(
                "forge",
                "recover_assess",
                Verb::new(place, recovery::assess)
            ),
            pack!("forge", "recover_apply", Verb::new(place, recovery::apply)),
        ]);
    }
    packs
}
