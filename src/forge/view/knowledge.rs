//! Knowledge with its age, now or at an earlier commit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ListPage, PageRequest, SeenCommit, revisions};
use crate::error::{Error, Result};
use crate::knowledge::{Hit, KnowledgeFile, Search};
use crate::layout::{KNOWLEDGE, KNOWLEDGE_ENTRIES};
use crate::project::Project;

/// Number of earlier versions that are named.
const VERSIONS: usize = 50;

/// Knowledge, as a page shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgeView {
    /// The commit that it is of; null = the work tree.
    pub as_of: Option<String>,
    /// Version tag of the file, for a change. None at an earlier commit, or without a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The entries that match: the best first; without words, the newest first.
    #[serde(flatten)]
    pub entries: ListPage<Hit>,
    /// The newest commits that changed the knowledge, newest first.
    pub versions: Vec<SeenCommit>,
}

/// Returns knowledge, with superseded entries if the search wants them; of an earlier commit with
/// `as_of`.
///
/// # Errors
/// `NotFound` for an unknown commit; `Usage` for an unknown `after`; `Corrupt` if the file is
/// damaged; errors from git.
pub fn knowledge(
    project: &Project,
    search: &Search,
    as_of: Option<&str>,
    wanted: &PageRequest,
) -> Result<KnowledgeView> {
    let (file, as_of, tag) = match as_of {
        None => {
            let loaded = project.files().load::<KnowledgeFile>()?;
            let tag = loaded.as_ref().map(|loaded| loaded.etag.clone());
            (loaded.map(|loaded| loaded.value), None, tag)
        }
        Some(name) => {
            let (file, commit) = at(project, name)?;
            (file, Some(commit), None)
        }
    };
    let hits = file.map(|file| {
        file.search(&Search {
            limit: Some(usize::MAX),
            ..search.clone()
        })
        .entries
    });
    let entries = ListPage::of(hits.unwrap_or_default(), wanted, |hit: &Hit| hit.id.clone())?;
    let versions =
        revisions(project, &[KNOWLEDGE, KNOWLEDGE_ENTRIES], VERSIONS).unwrap_or_default();
    Ok(KnowledgeView {
        as_of,
        etag: tag,
        entries,
        versions,
    })
}

/// Returns the knowledge that a commit has, and the commit.
fn at(project: &Project, name: &str) -> Result<(Option<KnowledgeFile>, String)> {
    let git = project.git()?;
    let commit = git
        .resolve(name)?
        .ok_or_else(|| Error::not_found(format!("{name:?} names no commit of this clone")))?;
    Ok((git.document_at(&commit)?, commit.to_string()))
}
