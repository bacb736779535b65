//! The commit of the memory at the end of a session, and what was learned and committed in it.

use helmdeck_core::text::collapse_whitespace;

use super::record::{ActiveSessions, Ending, Session};
use crate::error::Result;
use crate::git::{Commits, Git, NewCommit, Origin};
use crate::knowledge::{Knowledge, Learning, What};
use crate::layout::session_folder;
use crate::project::Project;
use crate::time::Time;

/// Subject of the commit of a session's memory, as in the RFC.
const SUBJECT: &str = "Session checkpoint";

/// Returns the id of a learning that was stored since a time.
///
/// An end that was interrupted after storing it does not count it again.
pub(super) fn learned_since(
    project: &Project,
    learning: &Learning,
    since: Option<Time>,
) -> Result<Option<String>> {
    let Some(since) = since else { return Ok(None) };
    let id = learning.what.id();
    let file = Knowledge::new(project).read()?;
    let kept = file.entries().find(|entry| entry.id() == id);
    let fresh = kept
        .and_then(|entry| entry.fresh_at())
        .is_some_and(|fresh| fresh >= since);
    Ok(fresh.then_some(id))
}

/// Returns the ids of what was learned in a session, if the knowledge is readable.
pub(super) fn learned_in(project: &Project, session: &Session) -> Vec<String> {
    let Ok(file) = Knowledge::new(project).read() else {
        return Vec::new();
    };
    // Another clone may have a session of the same name.
    let mine = file.entries().filter(|entry| {
        entry.trace.session.as_deref() == Some(session.id.as_str())
            && entry
                .learned_at
                .is_none_or(|then| then >= session.started_at)
    });
    mine.map(|entry| entry.id()).collect()
}

/// Rebuilds the git caches.
pub(super) fn caches(project: &Project) -> Result<()> {
    if project.git().is_err() {
        Ok(())
    } else {
        Commits::new(project).refresh()
    }
}

/// Outcome of committing the memory.
pub(super) enum MemoryCommit {
    /// It was committed in this commit.
    Made(String),
    /// There was nothing to commit, or no git.
    Nothing,
    /// It was not committed, for this reason.
    Skipped(String),
}

/// Commits the memory, if it changed: with the session's own commit of work, else alone, as with a
/// key for it.
///
/// An end that is resumed after its commit finds that commit.
pub(super) fn commit(
    project: &Project,
    session: &Session,
    ending: &Ending,
) -> Result<MemoryCommit> {
    let Ok(git) = project.git() else {
        return Ok(MemoryCommit::Nothing);
    };
    if let Some(operation) = git.operation()? {
        return Ok(MemoryCommit::Skipped(
            format!("the memory was not committed: {operation:?} is in progress").to_lowercase(),
        ));
    }
    if git.ignores_memory()? {
        return Ok(MemoryCommit::Skipped(
            "the memory was not committed: git ignores it".to_owned(),
        ));
    }
    match amend_or_create(project, git, session, ending) {
        Ok(Some(made)) => Ok(MemoryCommit::Made(made)),
        Ok(None) => Ok(MemoryCommit::Skipped(
            "the memory was not committed: code is staged, and would be committed with it"
                .to_owned(),
        )),
        Err(error) if error.code == "E_NOTHING_STAGED" => {
            let head = git.log("HEAD", 1)?.pop();
            let mine = head.filter(|head| {
                head.trailer("Forge-Session-Id")
                    .any(|id| id == session.uuid)
            });
            Ok(mine.map_or(MemoryCommit::Nothing, |head| {
                MemoryCommit::Made(head.oid.to_string())
            }))
        }
        // The session ends all the same. The next end, or a commit, includes the memory after its
        // repair.
        Err(error) if error.code == "E_CORRUPT" => {
            let next = error
                .next
                .as_deref()
                .map(|next| format!("; see {next}"))
                .unwrap_or_default();
            Ok(MemoryCommit::Skipped(format!(
                "the memory was not committed, for a file of it is damaged: {error}{next}"
            )))
        }
        Err(error) => Err(error),
    }
}

/// Returns the commit with the memory; `None` if staged code is in the way.
fn amend_or_create(
    project: &Project,
    git: &Git,
    session: &Session,
    ending: &Ending,
) -> Result<Option<String>> {
    let commits = Commits::new(project);
    if ending.key.is_none()
        && let Some((before, made)) = commits.amend(session.head.as_deref())?
    {
        // A session that began at the old commit goes on from the new one.
        project.files().edit::<ActiveSessions, ()>(None, |living| {
            for other in living
                .sessions
                .iter_mut()
                .filter(|other| other.head.as_deref() == Some(before.as_str()))
            {
                other.head = Some(made.to_string());
            }
            Ok(())
        })?;
        return Ok(Some(made.to_string()));
    }
    if git
        .status()?
        .staged()
        .any(|path| !git.is_memory(path.as_bytes()))
    {
        return Ok(None);
    }
    let made = commits.create(
        &new_commit(session, ending),
        &commits.origin(&session.id, &session.uuid)?,
    )?;
    Ok(Some(made.oid.to_string()))
}

/// Checks that the texts of an end are valid in the commit of the memory.
pub(super) fn check_commit(project: &Project, session: &Session, ending: &Ending) -> Result<()> {
    if project.git().is_err() {
        return Ok(());
    }
    Commits::new(project).check(&new_commit(session, ending), &origin(session))
}

fn new_commit(session: &Session, ending: &Ending) -> NewCommit {
    let why = ending.next.as_ref().map(|next| format!("Next: {next}"));
    NewCommit {
        key: ending.key.clone(),
        session_commit: ending.key.is_none(),
        subject: SUBJECT.to_owned(),
        what: vec![format!("End session {}", session.id)],
        why: why.unwrap_or_else(|| "The next session goes on from here.".to_owned()),
        learned: ending
            .learned
            .iter()
            .map(|learning| context(&learning.what))
            .collect(),
        ..NewCommit::default()
    }
}

fn origin(session: &Session) -> Origin {
    Origin {
        session: session.id.clone(),
        session_id: session.uuid.clone(),
        checkpoint: None,
    }
}

/// Says whether the memory is committed as it is on disk, except for the folder of the session.
pub(super) fn is_memory_committed(project: &Project, session: &Session) -> Result<bool> {
    let git = project.git()?;
    let own = git.in_memory(&session_folder(&session.folder())?);
    let own = own.as_bytes();
    let below_own = |path: &[u8]| {
        path.strip_prefix(own)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let changed = |path: &str| git.is_memory(path.as_bytes()) && !below_own(path.as_bytes());
    Ok(!git
        .status()?
        .entries
        .iter()
        .any(|entry| changed(&entry.path)))
}

/// Returns the context of a learning, in one line.
fn context(what: &What) -> String {
    let text = match what {
        What::Successful { context, .. }
        | What::Failed { context, .. }
        | What::Decision { context, .. } => context,
        What::Invariant { text, .. } => text,
    };
    collapse_whitespace(text)
}

/// Counts the commits made in a session.
pub(super) fn commits(project: &Project, session: &Session) -> usize {
    let range = session
        .head
        .as_ref()
        .map_or_else(|| "HEAD".to_owned(), |head| format!("{head}..HEAD"));
    let counted = project.git().and_then(|git| Ok(git.count(&range)?));
    counted
        .ok()
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0)
}
