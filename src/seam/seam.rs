//! The seam: three calls, and two that show more.

use std::path::PathBuf;
use std::sync::Arc;

use crate::readers::{Disk, Look};
use serde_json::Value;

use crate::config::SeamConfig;
use crate::context::{Context, Which};
use crate::doctor::Doctor;
use crate::error::StateError;
use crate::offer::{Candidate, Offer};
use crate::plans::Plans;
use crate::recall::Recall;
use crate::resolved::Resolved;
use crate::state::PlanFiles;

/// Read-only view of memory for a process. All access goes through a [`Look`].
#[derive(Debug, Clone)]
pub struct Seam {
    config: SeamConfig,
    look: Arc<dyn Look>,
}

impl Seam {
    /// Makes a seam. Nothing is opened: every call reads anew.
    pub fn new(config: SeamConfig, look: Arc<dyn Look>) -> Self {
        Self { config, look }
    }

    /// Makes a seam over the files of this machine, as [`Self::new`] does.
    #[must_use]
    pub fn on_disk(config: SeamConfig) -> Self {
        Self::new(config, Arc::new(Disk))
    }

    /// Returns what memory knows of where the caller works, as Markdown within a budget of `limit`
    /// tokens (that of the phase if absent or zero). It is empty if there is no memory, it cannot
    /// be read, or it knows nothing. `query` does nothing unless [`QueryUse`](crate::QueryUse) says
    /// otherwise.
    #[must_use]
    pub fn recall_here(
        &self,
        context: &Context,
        query: Option<&str>,
        limit: Option<usize>,
    ) -> String {
        self.recall(context, query, limit).text
    }

    /// Recalls as [`Self::recall_here`], with what was left out and what could not be read.
    #[must_use]
    pub fn recall(&self, context: &Context, query: Option<&str>, limit: Option<usize>) -> Recall {
        Recall::of(self.resolved(context), &self.config, context, query, limit)
    }

    /// Returns the candidate with the project, the phase and the place it would be saved in: one,
    /// or none if there is no memory, no project or nothing to save. Nothing is saved, and the
    /// candidate itself stays as it is.
    #[must_use]
    pub fn offer_save_here(&self, context: &Context, candidate: &Value) -> Vec<Candidate> {
        self.offer(context, candidate).candidates
    }

    /// Offers as [`Self::offer_save_here`], with what could not be read.
    #[must_use]
    pub fn offer(&self, context: &Context, candidate: &Value) -> Offer {
        Offer::of(self.resolved(context), &self.config, context, candidate)
    }

    /// Returns the path of a file of the plan. It need not exist.
    ///
    /// Without a vault it is in the project's own `.harness/`.
    ///
    /// # Errors
    /// `corrupt-state` if what binds the work tree to a plan exists and cannot be trusted;
    /// `unsafe-name` for a plan or a project whose name is no part of a path; `task-name-required`
    /// if the project has tasks and none is named.
    pub fn state_path(&self, context: &Context, which: Which) -> Result<PathBuf, StateError> {
        self.state(context)
            .map(|state| state.path(which).to_owned())
    }

    /// Returns the paths of all files of the plan: as [`Self::state_path`], looked up once.
    ///
    /// # Errors
    /// As [`Self::state_path`].
    pub fn state(&self, context: &Context) -> Result<PlanFiles, StateError> {
        PlanFiles::of(&self.resolved(context), context.plan.as_deref())
    }

    /// Returns the plans of the project. It never fails: the result contains the problems.
    #[must_use]
    pub fn plans(&self, context: &Context) -> Plans {
        Plans::of(self.resolved(context))
    }

    /// Says whether there is a vault, a `.forge/` or a `.harness/` to read. Reads no notes.
    #[must_use]
    pub fn has_source(&self, context: &Context) -> bool {
        let resolved = self.resolved(context);
        resolved.vault.is_some()
            || resolved
                .own_harness()
                .is_some_and(|harness| resolved.is_folder(&harness))
            || resolved
                .forge(&self.config)
                .is_ok_and(|forge| forge.is_some())
    }

    /// Returns a diagnosis of the seam for a context.
    #[must_use]
    pub fn doctor(&self, context: &Context) -> Doctor {
        Doctor::of(self.resolved(context), &self.config, context)
    }

    fn resolved(&self, context: &Context) -> Resolved<'_> {
        Resolved::of(&*self.look, &self.config, context)
    }
}
