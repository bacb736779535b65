//! The `forge.*` packs: memory of the operator's project, the folder `.forge/` in its repository.
//!
//! No input is a command, and none is a path outside of the project. Packs that run programs (tests, checks, git hooks)
//! run what the project's own files say. They are offered only if the operator lets callers run programs. No pack
//! resumes paused work: people decide that.

mod artifacts;
mod brief;
mod checkpoints;
mod features;
mod focus;
mod knowledge;
mod place;
mod recovery;
mod sessions;
mod skills;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use helmdeck_core::Builtin;
use helmdeck_forge::{Project, ProjectEnvironment};

use place::{ProjectOpener, Verb};

/// Settings of the `forge.*` packs.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// A folder of the project; none = every call answers `not_found` and says what to set. Nothing is opened before
    /// the first call.
    pub root: Option<PathBuf>,
    /// Whether the packs that run programs are offered, and tests may be named that those run. No by default.
    pub run: bool,
    /// The clock, the zone, new ids, and the ways to event servers. Who works is the caller; the local one has the
    /// name, and unless it says otherwise the session, that stand here.
    pub environment: ProjectEnvironment,
}

impl Config {
    /// Says whether the project is there and a person has agreed to run its commands (`helmdeck forge trust`).
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let project = self.root.as_deref().map(|root| Project::open(root, self.environment.clone()));
        matches!(project, Some(Ok(Some(project))) if helmdeck_forge::trust::check(&project).is_ok())
    }
}

/// Makes a pack of a verb and what it does.
macro_rules! pack {
    ($verb:literal, $handler:expr) => {
        Builtin {
            file: concat!("packs/forge/", $verb, ".toml"),
            manifest: include_str!(concat!($verb, ".toml")),
            handler: Arc::new($handler),
        }
    };
}

/// Returns the packs of this family.
pub(crate) fn packs(config: &Config) -> Vec<Builtin> {
    let place = &ProjectOpener::new(config.clone());
    let (add, set): (features::Adding, features::Setting) =
        if config.run { (features::add, features::set) } else { (features::add_untested, features::set_untested) };
    let mut packs = vec![
        pack!("prime", Verb::new(place, brief::prime).in_session().or_defaults()),
        pack!("health", Verb::new(place, brief::health).quiet().or_defaults()),
        pack!("events_tail", Verb::new(place, brief::events_tail)),
        pack!("knowledge_add", Verb::new(place, knowledge::add).in_session()),
        pack!("knowledge_search", Verb::new(place, knowledge::search)),
        pack!("knowledge_confirm", Verb::new(place, knowledge::confirm).changing()),
        pack!("knowledge_supersede", Verb::new(place, knowledge::supersede).changing()),
        pack!("features_list", Verb::new(place, features::list)),
        pack!("features_next", Verb::new(place, features::next)),
        pack!("features_add", Verb::new(place, add).changing()),
        pack!("features_set", Verb::new(place, set).changing()),
        pack!("focus_show", Verb::new(place, focus::show).in_session()),
        pack!("focus_set", Verb::new(place, focus::set).in_session()),
        pack!("session_log", Verb::new(place, sessions::log).in_session()),
        pack!("artifact_put", Verb::new(place, artifacts::put).in_session().changing()),
        pack!("artifact_snapshot", Verb::new(place, artifacts::snapshot).in_session().changing()),
        pack!("artifact_get", Verb::new(place, artifacts::get)),
        pack!("artifact_list", Verb::new(place, artifacts::list)),
        pack!("skill_list", Verb::new(place, skills::list)),
        pack!("skill_show", Verb::new(place, skills::show)),
        pack!("skill_match", Verb::new(place, skills::matching).changing()),
        pack!("skill_activate", Verb::new(place, skills::activate).in_session().changing()),
        pack!("checkpoint_list", Verb::new(place, checkpoints::list)),
        pack!("checkpoint_show", Verb::new(place, checkpoints::show)),
        pack!("recover_tried", Verb::new(place, recovery::tried).changing()),
    ];
    if config.run {
        packs.extend([
            pack!("invariants_check", Verb::new(place, knowledge::check)),
            pack!("features_verify", Verb::new(place, features::verify).changing()),
            pack!("session_start", Verb::new(place, sessions::start).in_session()),
            pack!("session_end", Verb::new(place, sessions::end).in_session()),
            pack!("commit", Verb::new(place, sessions::commit).in_session()),
            pack!("checkpoint_create", Verb::new(place, checkpoints::create).changing()),
            pack!("recover_assess", Verb::new(place, recovery::assess)),
            pack!("recover_apply", Verb::new(place, recovery::apply)),
        ]);
    }
    packs
}
