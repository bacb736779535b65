//! Progress of the work sessions: the current one, and those that are over.

use schemars::JsonSchema;
use serde::Serialize;

use super::{ListPage, PageRequest};
use crate::error::Result;
use crate::progress::{Log, Progress};
use crate::project::Project;

/// Progress of the current session, and the names of those that are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProgressView {
    /// The progress of the current session; null if no session has begun here.
    pub current: Option<Log>,
    /// The sessions with an archive, newest first.
    #[serde(flatten)]
    pub sessions: ListPage<String>,
}

/// Returns the progress of the current session, and a part of the archive's names.
///
/// # Errors
/// `Corrupt` if the current file is no text; `Usage` for an unknown `after`; errors from the files.
pub fn progress(project: &Project, wanted: &PageRequest) -> Result<ProgressView> {
    let mut archives = Progress::new(project).archives()?;
    archives.reverse();
    let sessions = ListPage::of(archives, wanted, String::clone)?;
    Ok(ProgressView {
        current: Progress::new(project).read()?,
        sessions,
    })
}

/// Returns the progress of a session that is over. `None` if it has none.
///
/// # Errors
/// `Usage` for what is no name of a session; `Corrupt` if the file is no text.
pub fn progress_of(project: &Project, session: &str) -> Result<Option<Log>> {
    Progress::new(project).of(session)?.read()
}
