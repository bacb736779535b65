//! Archive of the progress of ended sessions.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};
use schemars::JsonSchema;
use serde::Serialize;

use super::text::Log;
use crate::committed;
use crate::error::Result;
use crate::files::etag;
use crate::layout::{SESSIONS, session_folder};
use crate::project::Project;
use crate::sessions::{ActiveSessions, Sessions};

/// What stays of the progress of a pruned session that other branches have: see
/// [`committed::only_here`].
const PRUNED: &[u8] = b"# removed: git has it\n";
/// How long it stays, from the day of its session.
const PRUNED_FOR: i32 = 60;

/// Where the progress of a session was put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Archived {
    /// The session; one without a name gets the day and a piece of the content's hash.
    pub session: String,
    /// The file, below the root.
    pub path: String,
    /// The number of its entries.
    pub entries: usize,
}

/// Returns where the progress is archived. `None` if nothing in it is worth keeping.
fn target(project: &Project, path: &str, bytes: &[u8], log: &Log) -> Result<Option<Archived>> {
    if log.session.is_none()
        && log.entries.is_empty()
        && log.next.is_none()
        && log.malformed_lines == 0
    {
        return Ok(None);
    }
    let named = log
        .session
        .clone()
        .filter(|session| session_folder(session).is_ok());
    let session = named.unwrap_or_else(|| {
        let sch = etag(bytes);
        format!(
            "{}-unnamed-{}",
            log.date.as_deref().unwrap_or("0000-00-00"),
            sch.get(..8).unwrap_or_default()
        )
    });
    let archive = format!(
        "{SESSIONS}/{}/progress.txt",
        Sessions::new(project).folder_of(&session)?
    );
    Ok((archive != path).then_some(Archived {
        session,
        path: archive,
        entries: log.entries.len(),
    }))
}

/// Copies the progress to its session's folder; its own place keeps it until the next session
/// begins.
pub(super) fn copy(project: &Project, path: &str, log: &Log) -> Result<Option<Archived>> {
    if log.is_automatic() {
        return Ok(None);
    }
    let files = project.files();
    let bytes = files.read(path)?.unwrap_or_default();
    let Some(archived) = target(project, path, &bytes, log)? else {
        return Ok(None);
    };
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

/// Moves the progress to its session's folder. Killed between this and what follows, it is simply
/// done.
pub(super) fn rotate(project: &Project, path: &str, log: &Log) -> Result<Option<Archived>> {
    let files = project.files();
    if log.is_automatic() {
        return Ok(None);
    }
    let bytes = files.read(path)?.unwrap_or_default();
    let Some(mut archived) = target(project, path, &bytes, log)? else {
        return Ok(None);
    };
    // After this, the text is in git, and everyone with a copy of the repository has it.
    files.check_secrets(path, &bytes)?;
    if files
        .read(&archived.path)?
        .is_some_and(|old| !bytes.starts_with(&old))
    {
        archived = another(project, archived, &bytes)?;
    }
    files.rename(path, &archived.path)?;
    Ok(Some(archived))
}

/// Finds a free path beside an archive with other content: nothing is ever overwritten.
fn another(project: &Project, archived: Archived, bytes: &[u8]) -> Result<Archived> {
    let folder = archived
        .path
        .rsplit_once('/')
        .map_or(SESSIONS, |(folder, _)| folder);
    let mut n = 2;
    loop {
        let path = format!("{folder}/progress-{n}.txt");
        if project
            .files()
            .read(&path)?
            .is_none_or(|old| bytes.starts_with(&old))
        {
            return Ok(Archived { path, ..archived });
        }
        n += 1;
    }
}

/// Returns the folders of sessions, the oldest first.
pub(super) fn list(project: &Project) -> Result<Vec<String>> {
    let entries = project.files().list(SESSIONS)?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.folder)
        .map(|entry| entry.name)
        .collect())
}

/// Removes the folders of old sessions, and returns those sessions.
///
/// Only files that git has unmodified are removed, so nothing is lost. The folders of active
/// sessions stay.
pub(super) fn prune(project: &Project) -> Result<Vec<String>> {
    let keep = project.config().session.archives;
    let old = |sessions: &[String]| sessions[..sessions.len().saturating_sub(keep)].to_vec();
    let before: Vec<(String, Held)> = old(&list(project)?)
        .into_iter()
        .map(|session| held(project, &session).map(|held| (session, held)))
        .collect::<Result<_>>()?;
    // A pruned folder goes some weeks later, when hardly a branch still prunes it too.
    let today = Zoned::new(project.environment().now().0, TimeZone::UTC).date();
    let is_recent = |session: &str| {
        let day = session.get(..10).and_then(|day| Date::from_str(day).ok());
        day.is_some_and(|day| day.saturating_add(PRUNED_FOR.days()) > today)
    };
    let pruned = etag(PRUNED);
    let is_pruned = |held: &Held| held.values().any(|etag| *etag == pruned);
    let before: Vec<_> = before
        .into_iter()
        .filter(|(session, held)| !(is_pruned(held) && is_recent(session)))
        .collect();
    if before.is_empty() {
        return Ok(Vec::new());
    }
    // git runs without the lock. A file that is changed meanwhile no longer matches the commit.
    let Some(committed) = committed::below(project, SESSIONS) else {
        return Ok(Vec::new());
    };
    let own = committed::only_here(project, SESSIONS).unwrap_or_default();
    let stays = |held: &Held| !is_pruned(held) && held.keys().any(|path| !own.contains(path));
    let files = project.files();
    let _guard = files.lock()?;
    let living = files
        .load::<ActiveSessions>()?
        .map(|loaded| loaded.value.sessions)
        .unwrap_or_default();
    let is_active = |folder: &str| {
        living
            .iter()
            .any(|session| session.folder() == folder && session.state.is_alive())
    };
    let mut removed = Vec::new();
    for (session, was) in before {
        if is_active(&session)
            || !was.keys().all(|path| committed.contains(path))
            || held(project, &session)? != was
        {
            continue;
        }
        if stays(&was) {
            for path in was.keys().filter(|path| path.ends_with(".txt")) {
                files.write(path, PRUNED)?;
            }
            removed.push(session);
            continue;
        }
        for path in was.keys() {
            files.remove(path)?;
        }
        // A folder that is not empty stays.
        let _ = std::fs::remove_dir(project.root().join(SESSIONS).join(&session));
        removed.push(session);
    }
    Ok(removed)
}

/// The files of a session's folder, with their etags.
type Held = BTreeMap<String, String>;

fn held(project: &Project, session: &str) -> Result<Held> {
    let folder = format!("{SESSIONS}/{session}");
    let mut all = Held::new();
    for entry in project.files().list(&folder)? {
        let path = format!("{folder}/{}", entry.name);
        let bytes = if entry.folder {
            None
        } else {
            project.files().read(&path)?
        };
        all.insert(path, bytes.map(|bytes| etag(&bytes)).unwrap_or_default());
    }
    Ok(all)
}
