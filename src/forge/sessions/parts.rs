//! What a session asks of the other parts of the project's memory.

use std::collections::BTreeSet;

use super::record::{Ending, Session};
use super::select::Named;
use super::{Finished, Probed};
use crate::error::Result;
use crate::events::{Replay, Subject, data};
use crate::features::{Feature, FeaturesFile, Standing};
use crate::git::{Git, NewCommit, Origin, Run};
use crate::knowledge::{Learning, What};
use crate::layout::{FEATURES, KNOWLEDGE};
use crate::project::Project;
use crate::recovery::{Action, Applied, Apply, Assess, Unknown};
use crate::repair::Extent;
use crate::time::Time;
use helmdeck_core::text;

/// What the commit of a session's memory is called, as the RFC calls it.
const SUBJECT: &str = "Session checkpoint";

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

/// Refuses to go on without what was learned if it was there.
pub(super) fn check_knowledge(project: &Project) -> Result<()> {
    project.damage_of(KNOWLEDGE).map_or(Ok(()), |damaged| Err(damaged.error()))
}

/// Reads the features and what shows that they work, to find out whether they can be read. Returns a warning if only some lines cannot.
pub(super) fn read_features(project: &Project) -> Result<Option<String>> {
    if project.files().load::<FeaturesFile>()?.is_none()
        && let Some(lost) = project.damage_of(FEATURES)
    {
        return Err(lost.error());
    }
    match project.damaged_index() {
        Some(damaged) if damaged.extent == Extent::Whole => Err(damaged.error()),
        Some(damaged) if damaged.extent == Extent::Lines => Ok(Some(damaged.error().to_string())),
        _ => Ok(None),
    }
}

/// Returns a warning if the memory's merge driver is not set up in this clone.
pub(super) fn merge_driver(project: &Project) -> Option<String> {
    let missing = project.git().and_then(Git::is_merge_driver_missing).unwrap_or(false);
    missing.then(|| {
        let next = crate::health::Code::MergeDriverMissing.next();
        format!("the merge driver of the memory is not set up in this clone (merge_driver_missing); run `{next}`")
    })
}

/// Tests some features again that worked: those whose last test is longest ago.
pub(super) fn probe(project: &Project) -> Result<Vec<Probed>> {
    let probed = project.features().probe(Some(project.config().session.probes))?;
    Ok(probed
        .into_iter()
        .map(|feature| Probed {
            passing: feature.passed,
            problem: feature.problem.map(|problem| problem.as_str().to_owned()),
            regressed: feature.regressed,
            id: feature.id,
        })
        .collect())
}

/// Compares the state of the code with the last checkpoint, and pauses the work if nobody can say what state it is in. No test is
/// run: what is known from before counts. Without git there is nothing to say.
pub(super) fn assess(project: &Project) -> Result<Option<Assessed>> {
    if project.git().is_err() {
        return Ok(None);
    }
    let report = project.recovery().assess(Assess { verify: false })?;
    let class = report.class.to_string();
    if report.action == Action::RollBack && project.config().recovery.auto {
        return go_back(project, class).map(Some);
    }
    if !report.must_pause() {
        let aside = report.unknown.iter().find(|reason| reason.reason != Unknown::NoCheckpoint);
        let warning = match report.action {
            Action::Pause => aside.map(|reason| format!("{}; run `{}`", reason.text, reason.next)),
            Action::Continue => None,
            action => Some(format!("{class} (row {} of the recovery table): {}", report.row, action.text())),
        };
        return Ok(Some(Assessed { class, warning, paused: None }));
    }
    let reasons: Vec<_> = report.unknown.iter().map(|reason| reason.text.as_str()).collect();
    let paused = project.recovery().pause(&reasons.join("; "), Some(&report))?;
    Ok(Some(Assessed { class, warning: None, paused: Some(paused.reason) }))
}

/// Goes back as `[recovery] auto` asks for, unless the verify command, which is run now, says otherwise. That it fails stops no start.
fn go_back(project: &Project, class: String) -> Result<Assessed> {
    let (warning, paused) = match project.recovery().apply(&Apply::default()) {
        Ok(Applied { rollback: Some(done), next, .. }) => {
            (format!("rolled back to {}, as [recovery] auto asks for: {next}", done.checkpoint), None)
        }
        Ok(Applied { next, .. }) => (format!("{class}, but {next}"), None),
        Err(error) => {
            let paused = project.recovery().paused()?.map(|paused| paused.reason);
            (format!("{class}, and it could not be rolled back: {error}"), paused)
        }
    };
    Ok(Assessed { class, warning: Some(warning), paused })
}

/// The features, and how each of them stands.
pub(super) struct Features {
    file: FeaturesFile,
    standings: Vec<Standing>,
}

impl Features {
    pub(super) fn read(project: &Project) -> Result<Self> {
        let (file, standings) = project.features().judged()?;
        Ok(Self { file, standings })
    }

    /// Returns the first one that worked once and does not, and the one that comes next; nothing that others work on.
    pub(super) fn open(&self, agent: &str, claimed: &BTreeSet<String>) -> (Option<Named>, Option<Named>) {
        let named = |feature: &Feature| Named { id: feature.id.clone(), name: feature.name.clone() };
        let mut all = self.file.features.iter().zip(&self.standings);
        let regressed =
            all.find(|(feature, standing)| **standing == Standing::Regressed && !claimed.contains(&feature.id));
        let next = self.file.next(&self.standings, agent, claimed);
        (regressed.map(|(feature, _)| named(feature)), next.map(|(feature, _)| named(feature)))
    }
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

/// Returns the ids of what was learned in a session, if what is known can be read.
pub(super) fn learned_in(project: &Project, session: &Session) -> Vec<String> {
    let Ok(file) = project.knowledge().read() else { return Vec::new() };
    // Another clone may have a session of the same name.
    let mine = file.entries().filter(|entry| {
        entry.trace.session.as_deref() == Some(session.id.as_str())
            && entry.learned_at.is_none_or(|then| then >= session.started_at)
    });
    mine.map(|entry| entry.id()).collect()
}

/// Writes the caches of git anew.
pub(super) fn caches(project: &Project) -> Result<()> {
    if project.git().is_err() { Ok(()) } else { project.commits().refresh() }
}

/// What became of the memory at the end.
pub(super) enum Kept {
    /// It is in this commit.
    In(String),
    /// There was nothing to commit, or no git.
    Nothing,
    /// It was not committed, for this reason.
    Not(String),
}

/// Commits the memory, if there is anything to commit. An end that was cut short after its commit finds it.
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
    let (new, origin) = (new_commit(session, ending), project.commits().origin(&session.id, &session.uuid)?);
    match project.commits().create(&new, &origin) {
        Ok(made) => Ok(Kept::In(made.oid.to_string())),
        Err(error) if error.code == "E_NOTHING_STAGED" => {
            let head = git.log("HEAD", 1)?.pop();
            let mine = head.filter(|head| {
                head.subject.ends_with(SUBJECT) && head.trailer("Forge-Session-Id").any(|id| id == session.uuid)
            });
            Ok(mine.map_or(Kept::Nothing, |head| Kept::In(head.oid.to_string())))
        }
        // It ends all the same: the next end, or a commit, takes the memory once it is repaired.
        Err(error) if error.code == "E_CORRUPT" => {
            let next = error.next.as_deref().map(|next| format!("; see {next}")).unwrap_or_default();
            Ok(Kept::Not(format!("the memory was not committed, for a file of it is damaged: {error}{next}")))
        }
        Err(error) => Err(error),
    }
}

/// Says whether the texts of an end fit into the commit of the memory.
pub(super) fn check_commit(project: &Project, session: &Session, ending: &Ending) -> Result<()> {
    if project.git().is_err() {
        return Ok(());
    }
    project.commits().check(&new_commit(session, ending), &origin(session))
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

/// Says whether git is told to ignore the memory: some keep it to themselves.
fn ignores(git: &Git) -> Result<bool> {
    let run = Run::default().stdin(format!("{}\0", git.memory()));
    Ok(!git.run(&["check-ignore", "-z", "--stdin"], &run)?.stdout.is_empty())
}

/// Returns whether git has the memory as it is.
pub(super) fn is_memory_committed(project: &Project) -> Result<bool> {
    let git = project.git()?;
    Ok(!git.status()?.entries.iter().any(|entry| below(&entry.path, git.memory())))
}

fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns when a learning applies, in one line.
fn context(what: &What) -> String {
    let text = match what {
        What::Successful { context, .. } | What::Failed { context, .. } | What::Decision { context, .. } => context,
        What::Invariant { text, .. } => text,
    };
    text::collapse_whitespace(text)
}

/// Counts the commits made in a session.
pub(super) fn commits(project: &Project, session: &Session) -> usize {
    let range = session.head.as_ref().map_or_else(|| "HEAD".to_owned(), |head| format!("{head}..HEAD"));
    let counted = project.git().and_then(|git| git.count(&range));
    counted.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// Tells others that a session began.
pub(super) fn tell_start(project: &Project, session: &Session, issues: Vec<String>) {
    if is_told(project, Subject::SessionStart, &session.id) {
        return;
    }
    let counts = project.features().list(false).map(|listed| listed.counts).unwrap_or_default();
    let told = data::Started {
        branch: session.branch.clone(),
        active_issues: issues,
        features: data::Tally { passing: count(counts.passing), total: count(counts.counted) },
        health: Some(health(project)),
    };
    project.emit(Subject::SessionStart, told);
}

/// Keeps how the memory is doing for the past, and returns the worst colour. Only looking at it keeps nothing.
fn health(project: &Project) -> String {
    let health = project.health();
    if let Err(error) = project.record_health(&health) {
        tracing::warn!(%error, "the health was not kept for the past");
    }
    health.overall.as_str().to_owned()
}

/// Tells others that a session ended.
pub(super) fn tell_end(project: &Project, finished: &Finished, dirty: bool, stopped: bool) {
    if is_told(project, Subject::SessionEnd, &finished.session) {
        return;
    }
    let told = data::Ended {
        reason: if stopped { "signal" } else { "done" }.to_owned(),
        commits: count(finished.commits),
        learned: count(finished.learned.len()),
        duration_s: finished.duration_s,
        dirty,
    };
    project.emit(Subject::SessionEnd, told);
    health(project);
}

/// Tells others that a session was given up.
pub(super) fn tell_abandoned(project: &Project, session: &Session) {
    if is_told(project, Subject::SessionAbandoned, &session.id) {
        return;
    }
    let seconds = session.seen_at.0.as_second().saturating_sub(session.started_at.0.as_second());
    let ended = data::Ended {
        reason: "abandoned".to_owned(),
        duration_s: u64::try_from(seconds).unwrap_or_default(),
        ..data::Ended::default()
    };
    project.emit_of(&session.id, Subject::SessionAbandoned, ended);
}

/// Says whether others were told: a step that was cut short after it tells nobody twice.
fn is_told(project: &Project, subject: Subject, session: &str) -> bool {
    let about = Replay { about: vec![subject], session: Some(session.to_owned()), ..Replay::default() };
    project.events().replay(&about).is_ok_and(|told| !told.events.is_empty())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
