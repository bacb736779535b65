#![doc = include_str!("README.md")]

use std::sync::Arc;

use helmdeck_core::{Builtin, Clock};
use helmdeck_egress::Egress;

#[cfg(feature = "github")]
pub mod github;
mod memory;
pub mod repo;

/// What the packs are given when they are made.
#[derive(Clone)]
pub struct Dependencies {
    /// The way out.
    pub egress: Egress,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where GitHub is.
    #[cfg(feature = "github")]
    pub github: github::Config,
    /// How repositories are worked on.
    pub repo: repo::Config,
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dependencies").field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// Returns every pack of this build. Opens nothing and reads nothing yet.
#[must_use]
pub fn all(dependencies: &Dependencies) -> Vec<Builtin> {
    let families: Vec<Vec<Builtin>> = vec![
        memory::packs(),
        #[cfg(feature = "github")]
        github::packs(&dependencies.github, &dependencies.egress, &dependencies.clock),
        repo::packs(&repo::Git::new(dependencies.repo.clone(), dependencies.egress.clone())),
    ];
    families.into_iter().flatten().collect()
}
