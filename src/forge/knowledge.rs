//! Knowledge of a project, a file for each entry.
//!
//! Nothing in it is deleted by age. What no longer holds is superseded and stays; what did not work
//! stays as a warning.

pub(crate) mod adopt;
#[cfg(test)]
mod tests;

pub use helmdeck_forge_documents::knowledge::{
    Added, Confirmed, Decision, Failed, FullInvariant, Hit, Invariant, Kind, KnowledgeEntry,
    KnowledgeFile, Learning, LearningEntry, Patterns, Search, SearchHit, Successful, Superseded,
    Trace, What,
};

use crate::error::Result;
use crate::events;
use crate::events::data::Learned;
use crate::events::subjects::Subject;
use crate::files::Document as _;
use crate::project::Project;
use crate::trust;

/// Knowledge of a project: everything that was learned, kept for good.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    project: &'a Project,
}

impl<'a> Knowledge<'a> {
    /// Returns the knowledge of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Knowledge<'_> {
    /// Returns all knowledge; empty if there is no file.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged.
    pub fn read(&self) -> Result<KnowledgeFile> {
        Ok(self
            .project
            .files()
            .load::<KnowledgeFile>()?
            .map_or_else(KnowledgeFile::skeleton, |loaded| loaded.value))
    }

    /// Adds a learning. An entry that exists already is counted once more and confirmed.
    ///
    /// # Errors
    /// `Usage` for a text that is empty or too long; the errors of writing.
    pub fn add(&self, learning: &Learning, if_match: Option<&str>) -> Result<Added> {
        self.project.check_not_paused()?;
        let learning = self.at_commit(learning)?;
        let now = self.project.environment().now().seconds();
        let files = self.project.files();
        let added = trust::keep(self.project, || {
            files.edit(if_match, |file: &mut KnowledgeFile| {
                file.add(&learning, now)
            })
        })?;
        self.tell(&learning, &added);
        Ok(added)
    }

    /// Confirms that an entry still holds: now, and at the current commit.
    ///
    /// The id may be shortened to 6 characters.
    ///
    /// # Errors
    /// `NotFound` for an entry that does not exist; the errors of writing.
    pub fn confirm(&self, id: &str, if_match: Option<&str>) -> Result<Confirmed> {
        self.project.check_not_paused()?;
        let now = self.project.environment().now().seconds();
        let head = self.head()?;
        self.project
            .files()
            .edit(if_match, |file: &mut KnowledgeFile| {
                file.confirm(id, head.as_deref(), now)
            })
    }

    /// Replaces an entry by a new one. The old entry stays, marked as superseded.
    ///
    /// # Errors
    /// `NotFound` for an entry that does not exist; `Usage` if both are the same, or would
    /// supersede each other; the errors of writing.
    pub fn supersede(
        &self,
        id: &str,
        learning: &Learning,
        if_match: Option<&str>,
    ) -> Result<Superseded> {
        self.project.check_not_paused()?;
        let learning = self.at_commit(learning)?;
        let now = self.project.environment().now().seconds();
        let files = self.project.files();
        let done = trust::keep(self.project, || {
            files.edit(if_match, |file: &mut KnowledgeFile| {
                file.supersede(id, &learning, now)
            })
        })?;
        self.tell(&learning, &done.by);
        Ok(done)
    }

    /// Returns the entries that fit some words best.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged.
    pub fn search(&self, search: &Search) -> Result<SearchHit> {
        Ok(match self.project.files().load::<KnowledgeFile>()? {
            Some(loaded) => SearchHit {
                etag: Some(loaded.etag),
                ..loaded.value.search(search)
            },
            None => KnowledgeFile::skeleton().search(search),
        })
    }

    fn tell(&self, learning: &Learning, added: &Added) {
        let (kind, context) = match &learning.what {
            What::Successful { context, .. } => ("pattern", context),
            What::Failed { context, .. } => ("mistake", context),
            What::Decision { context, .. } => ("decision", context),
            What::Invariant { text, .. } => ("invariant", text),
        };
        let context = context.trim().chars().take(200).collect();
        events::emit(
            self.project,
            Subject::Learning,
            Learned {
                id: added.id.clone(),
                kind: kind.to_owned(),
                context,
            },
        );
    }

    /// Adds the current commit to a learning that names files and no commit.
    fn at_commit(&self, learning: &Learning) -> Result<Learning> {
        let mut learning = learning.clone();
        if learning.commit.is_none() && !learning.paths.is_empty() {
            learning.commit = self.head()?;
        }
        Ok(learning)
    }

    fn head(&self) -> Result<Option<String>> {
        match self.project.repository()? {
            Some(git) => Ok(git.head()?.map(|oid| oid.as_str().to_owned())),
            None => Ok(None),
        }
    }
}
