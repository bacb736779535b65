//! What a session asks of the other parts of the project's memory.

use super::record::Session;
use super::select::Named;
use super::{Finished, Probed};
use crate::error::Result;
use crate::events::{Subject, data};
use crate::features::FeaturesFile;
use crate::knowledge::Learning;
use crate::project::Project;
use crate::time::Time;

/// What an assessment of the state of the code means for a start.
pub(super) struct Assessed {
    /// How bad it is, in a word.
    pub(super) class: String,
    /// What is proposed, if that is not to go on.
    pub(super) warning: Option<String>,
    /// Why the work is paused now.
    pub(super) paused: Option<String>,
}

/// Returns how long a brief may be.
pub(super) fn budget(project: &Project) -> usize {
    usize::try_from(project.config().session.prime_tokens).unwrap_or(crate::prime::BUDGET)
}

/// Reads the features, to find out whether they can be read.
pub(super) fn read_features(project: &Project) -> Result<()> {
    project.files().load::<FeaturesFile>().map(drop)
}

/// Tests some features again that worked.
pub(super) fn probe(_project: &Project) -> Result<Vec<Probed>> {
    Ok(Vec::new())
}

/// Compares the state of the code with the last checkpoint, and pauses the work if nobody can say what state it is in.
pub(super) fn assess(_project: &Project) -> Result<Option<Assessed>> {
    Ok(None)
}

/// Returns the first feature that worked once and does not, and the one that comes next.
pub(super) fn features(_project: &Project) -> Result<(Option<Named>, Option<Named>)> {
    Ok((None, None))
}

/// Returns the id of a learning that was kept since a time: an end that was cut short after it was written does not count it again.
pub(super) fn learned_since(project: &Project, learning: &Learning, since: Option<Time>) -> Result<Option<String>> {
    let Some(since) = since else { return Ok(None) };
    let id = learning.what.id();
    let file = project.knowledge().read()?;
    let kept = file.entries().find(|entry| entry.id() == id);
    let fresh = kept.and_then(|entry| entry.fresh_at()).is_some_and(|fresh| fresh >= since);
    Ok(fresh.then_some(id))
}

/// Writes the caches of git anew.
pub(super) fn caches(_project: &Project) -> Result<()> {
    Ok(())
}

/// Commits the memory, if there is anything to commit. Returns the commit, also if it was made before.
pub(super) fn commit(_project: &Project, _session: &Session, _key: Option<&str>) -> Result<Option<String>> {
    Ok(None)
}

/// Counts the commits made in a session.
pub(super) fn commits(project: &Project, session: &Session) -> usize {
    let range = session.head.as_ref().map_or_else(|| "HEAD".to_owned(), |head| format!("{head}..HEAD"));
    let counted = project.git().and_then(|git| git.count(&range));
    counted.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// Tells others that a session began.
pub(super) fn tell_start(project: &Project, session: &Session, issues: Vec<String>) {
    let told = data::Started { branch: session.branch.clone(), active_issues: issues, ..data::Started::default() };
    project.emit(Subject::SessionStart, told);
}

/// Tells others that a session ended.
pub(super) fn tell_end(project: &Project, finished: &Finished, dirty: bool) {
    let told = data::Ended {
        reason: "done".to_owned(),
        commits: count(finished.commits),
        learned: count(finished.learned.len()),
        duration_s: finished.duration_s,
        dirty,
    };
    project.emit(Subject::SessionEnd, told);
}

/// Tells others that a session was given up.
pub(super) fn tell_abandoned(project: &Project, session: &Session) {
    let seconds = session.seen_at.0.as_second().saturating_sub(session.started_at.0.as_second());
    let told = data::Ended {
        reason: "abandoned".to_owned(),
        duration_s: u64::try_from(seconds).unwrap_or_default(),
        ..data::Ended::default()
    };
    project.emit(Subject::SessionAbandoned, told);
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
