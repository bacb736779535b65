//! Where the progress of sessions that have ended is kept.

use schemars::JsonSchema;
use serde::Serialize;

use super::session_folder;
use super::text::Log;
use crate::committed;
use crate::error::Result;
use crate::files::etag;
use crate::layout::SESSIONS;
use crate::project::Project;

/// Where the progress of a session was put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Archived {
    /// The session; one without a name gets the day and a piece of the content's hash.
    pub session: String,
    /// The file, below the root.
    pub path: String,
    /// What was done in it, in entries.
    pub entries: usize,
}

/// Returns where the progress goes. `None` says that there is nothing worth keeping.
fn target(path: &str, bytes: &[u8], log: &Log) -> Option<Archived> {
    if log.session.is_none() && log.entries.is_empty() && log.next.is_none() && log.malformed_lines == 0 {
        return None;
    }
    let named = log.session.clone().filter(|session| session_folder(session).is_ok());
    let session = named.unwrap_or_else(|| {
        let sch = etag(bytes);
        format!("{}-unnamed-{}", log.date.as_deref().unwrap_or("0000-00-00"), sch.get(..8).unwrap_or_default())
    });
    let archive = format!("{SESSIONS}/{session}/progress.txt");
    (archive != path).then_some(Archived { session, path: archive, entries: log.entries.len() })
}

/// Copies the progress to its session's folder; its own place keeps it until the next session begins.
pub(super) fn copy(project: &Project, path: &str, log: &Log) -> Result<Option<Archived>> {
    let files = project.files();
    let bytes = files.read(path)?.unwrap_or_default();
    let Some(archived) = target(path, &bytes, log) else { return Ok(None) };
    match files.read(&archived.path)? {
        Some(old) if old == bytes => Ok(Some(archived)),
        Some(old) if !bytes.starts_with(&old) => {
            let archived = another(project, archived, &bytes)?;
            files.write(&archived.path, &bytes)?;
            Ok(Some(archived))
        }
        _ => {
            files.write(&archived.path, &bytes)?;
            Ok(Some(archived))
        }
    }
}

/// Moves the progress to its session's folder. Killed between this and what follows, it is simply done.
pub(super) fn rotate(project: &Project, path: &str, log: &Log) -> Result<Option<Archived>> {
    let files = project.files();
    let bytes = files.read(path)?.unwrap_or_default();
    let Some(mut archived) = target(path, &bytes, log) else { return Ok(None) };
    // From here on git will have it, and whoever has the repository.
    files.check_secrets(path, &bytes)?;
    if files.read(&archived.path)?.is_some_and(|old| !bytes.starts_with(&old)) {
        archived = another(project, archived, &bytes)?;
    }
    files.rename(path, &archived.path)?;
    Ok(Some(archived))
}

/// Finds a place beside an archive that holds something else: nothing is ever written over.
fn another(project: &Project, archived: Archived, bytes: &[u8]) -> Result<Archived> {
    let folder = session_folder(&archived.session)?;
    let mut n = 2;
    loop {
        let path = format!("{folder}/progress-{n}.txt");
        if project.files().read(&path)?.is_none_or(|old| bytes.starts_with(&old)) {
            return Ok(Archived { path, ..archived });
        }
        n += 1;
    }
}

/// Returns the sessions that have a folder, the oldest first.
pub(super) fn list(project: &Project) -> Result<Vec<String>> {
    let entries = project.files().list(SESSIONS)?;
    Ok(entries.into_iter().filter(|entry| entry.folder).map(|entry| entry.name).collect())
}

/// Removes the folders of old sessions, but only what git has exactly so: nothing is lost by it. Returns the sessions.
pub(super) fn prune(project: &Project) -> Result<Vec<String>> {
    let sessions = list(project)?;
    let old = &sessions[..sessions.len().saturating_sub(project.config().session.archives)];
    let mut removed = Vec::new();
    if old.is_empty() {
        return Ok(removed);
    }
    let Some(committed) = committed::below(project, SESSIONS) else { return Ok(removed) };
    for session in old {
        let folder = format!("{SESSIONS}/{session}");
        let files = project.files().list(&folder)?;
        let paths: Vec<String> = files.iter().map(|file| format!("{folder}/{}", file.name)).collect();
        if !paths.iter().all(|path| committed.contains(path)) {
            continue;
        }
        for path in &paths {
            project.files().remove(path)?;
        }
        // A folder that is not empty stays.
        let _ = std::fs::remove_dir(project.root().join(&folder));
        removed.push(session.clone());
    }
    Ok(removed)
}
