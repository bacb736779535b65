//! The commit of the memory at the end of a session, and what was learned and committed in it.

use helmdeck_core::text::collapse_whitespace;

use super::record::{Ending, Session};
use crate::error::Result;
use crate::git::{Commits, Git, NewCommit, Origin, Run};
use crate::knowledge::{Knowledge, Learning, What};
use crate::project::Project;
use crate::time::Time;

/// Subject of the commit of a session's memory, as in the RFC.
const SUBJECT: &str = "Session checkpoint";

/// Returns the id of a learning that was stored since a time.
///
/// An end that was interrupted after storing it does not count it again.
pub(super) fn learned_since(project: &Project, learning: &Learning, since: Option<Time>) -> Result<Option<String>> {
    let Some(since) = since else { return Ok(None) };
    let id = learning.what.id();
    let file = Knowledge::new(project).read()?;
    let kept = file.entries().find(|entry| entry.id() == id);
    let fresh = kept.and_then(|entry| entry.fresh_at()).is_some_and(|fresh| fresh >= since);
    Ok(fresh.then_some(id))
}

/// Returns the ids of what was learned in a session, if the knowledge is readable.
pub(super) fn learned_in(project: &Project, session: &Session) -> Vec<String> {
    let Ok(file) = Knowledge::new(project).read() else { return Vec::new() };
    // Another clone may have a session of the same name.
    let mine = file.entries().filter(|entry| {
        entry.trace.session.as_deref() == Some(session.id.as_str())
            && entry.learned_at.is_none_or(|then| then >= session.started_at)
    });
    mine.map(|entry| entry.id()).collect()
}

/// Rebuilds the git caches.
pub(super) fn caches(project: &Project) -> Result<()> {
    if project.git().is_err() { Ok(()) } else { Commits::new(project).refresh() }
}

/// What happened to the memory at the end.
pub(super) enum Kept {
    /// It was committed in this commit.
    In(String),
    /// There was nothing to commit, or no git.
    Nothing,
    /// It was not committed, for this reason.
    Not(String),
}

/// Commits the memory, if it changed. An end that is resumed after its commit finds that commit.
pub(super) fn commit(project: &Project, session: &Session, ending: &Ending) -> Result<Kept> {
    let Ok(git) = project.git() else { return Ok(Kept::Nothing) };
    if let Some(operation) = git.operation()? {
        return Ok(Kept::Not(format!("the memory was not committed: {operation:?} is in progress").to_lowercase()));
    }
    if git.status()?.staged().any(|path| !below(path, git.memory())) {
        return Ok(Kept::Not(
            "the memory was not committed: code is staged, and would be committed with it".to_owned(),
        ));
    }
    if ignores(git)? {
        return Ok(Kept::Not("the memory was not committed: git ignores it".to_owned()));
    }
    let (new, origin) = (new_commit(session, ending), Commits::new(project).origin(&session.id, &session.uuid)?);
    match Commits::new(project).create(&new, &origin) {
        Ok(made) => Ok(Kept::In(made.oid.to_string())),
        Err(error) if error.code == "E_NOTHING_STAGED" => {
            let head = git.log("HEAD", 1)?.pop();
            let mine = head.filter(|head| {
                head.subject.ends_with(SUBJECT) && head.trailer("Forge-Session-Id").any(|id| id == session.uuid)
            });
            Ok(mine.map_or(Kept::Nothing, |head| Kept::In(head.oid.to_string())))
        }
        // The session ends all the same. The next end, or a commit, includes the memory after its repair.
        Err(error) if error.code == "E_CORRUPT" => {
            let next = error.next.as_deref().map(|next| format!("; see {next}")).unwrap_or_default();
            Ok(Kept::Not(format!("the memory was not committed, for a file of it is damaged: {error}{next}")))
        }
        Err(error) => Err(error),
    }
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
        learned: ending.learned.iter().map(|learning| context(&learning.what)).collect(),
        forge: true,
        ..NewCommit::default()
    }
}

fn origin(session: &Session) -> Origin {
    Origin { session: session.id.clone(), session_id: session.uuid.clone(), checkpoint: None }
}

/// Says whether git ignores the memory: some users keep it out of the repository.
fn ignores(git: &Git) -> Result<bool> {
    let run = Run::default().stdin(format!("{}\0", git.memory()));
    Ok(!git.run(&["check-ignore", "-z", "--stdin"], &run)?.stdout.is_empty())
}

/// Says whether the memory is committed as it is on disk.
pub(super) fn is_memory_committed(project: &Project) -> Result<bool> {
    let git = project.git()?;
    Ok(!git.status()?.entries.iter().any(|entry| below(&entry.path, git.memory())))
}

fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the context of a learning, in one line.
fn context(what: &What) -> String {
    let text = match what {
        What::Successful { context, .. } | What::Failed { context, .. } | What::Decision { context, .. } => context,
        What::Invariant { text, .. } => text,
    };
    collapse_whitespace(text)
}

/// Counts the commits made in a session.
pub(super) fn commits(project: &Project, session: &Session) -> usize {
    let range = session.head.as_ref().map_or_else(|| "HEAD".to_owned(), |head| format!("{head}..HEAD"));
    let counted = project.git().and_then(|git| Ok(git.count(&range)?));
    counted.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}
