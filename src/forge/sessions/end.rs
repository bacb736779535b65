//! End of a session: steps in a fixed order, each recorded when it is done.
//!
//! The request is stored before the first step, so an interrupted end resumes the same way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::commit::MemoryCommit;
use super::record::{Ending, Session, State};
use super::{SessionId, Sessions, announce, commit, session_of};
use crate::error::{Category, Error, Result};
use crate::features::remove_superseded_reports;
use crate::issues::is_key;
use crate::knowledge::{Knowledge, Learning};
use crate::progress::ENDING;

/// Maximum number of uncommitted paths that are named.
const NAMED: usize = 5;

/// Request to end a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct End {
    /// What was learned.
    pub learned: Vec<Learning>,
    /// The next step, in one line of at most 500 characters.
    pub next: Option<String>,
    /// Why uncommitted code is left behind. It serves as the next step, unless that is given.
    pub leave_dirty: Option<String>,
    /// The issue key for the commit of the memory; none = `[session]`.
    pub key: Option<String>,
}

/// An ended session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Finished {
    /// The session.
    pub session: String,
    /// Whether it had already ended: then nothing was done.
    pub again: bool,
    /// Duration of the session, in seconds.
    pub duration_s: u64,
    /// Number of commits made in it.
    pub commits: usize,
    /// The ids of what was learned in it.
    pub learned: Vec<String>,
    /// The commit that holds its memory; `null` if there was nothing to commit, or no git.
    pub commit: Option<String>,
    /// The next step.
    pub next: Option<String>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// The names of the steps, in their order.
pub(super) mod step {
    pub(in super::super) const ENTRY: &str = "end_entry";
    pub(in super::super) const LEARNED: &str = "end_learned";
    pub(in super::super) const CACHES: &str = "end_caches";
    pub(in super::super) const COMMIT: &str = "end_commit";
    pub(in super::super) const EVENT: &str = "end_event";
}

impl Sessions<'_> {
    /// Ends the current session. After an interruption, the same command resumes; a repeat changes
    /// nothing.
    ///
    /// In this order: the last entry; the learnings; the caches; the archive; the commit of the
    /// memory, archive included; the event; the release of the session.
    ///
    /// # Errors
    /// `Refused` (`E_DIRTY`) if code is not committed and no reason is given; `NotFound` without a
    /// session; `Paused`, `Secret`.
    pub fn end(&self, end: &End) -> Result<Finished> {
        match (self.acting(), &self.project.environment().session) {
            (Ok(Some(session)), _) => self.end_of(&session.id, end),
            (Ok(None), _) => self.ended_before(None),
            (Err(over), Some(named)) => self.ended_before(Some(named)).map_err(|_| over),
            // Only another agent's session is active: this agent's may have ended before.
            (Err(live), None) if !self.has_own()? => self.ended_before(None).map_err(|_| live),
            (Err(other), None) => Err(other),
        }
    }

    /// Says whether this agent has an active session.
    fn has_own(&self) -> Result<bool> {
        let agent = &self.project.environment().agent;
        Ok(self
            .living()?
            .sessions
            .iter()
            .any(|session| session.state.is_alive() && session.agent == *agent))
    }

    /// Ends a session.
    fn end_of(&self, id: &str, end: &End) -> Result<Finished> {
        self.prepare(id, end)?;
        self.finish(id, Then::Stop)
    }

    /// Stores how a session ends, before any step.
    fn prepare(&self, id: &str, end: &End) -> Result<()> {
        self.project.check_not_paused()?;
        if let Some(key) = end.key.as_deref().filter(|key| !is_key(key)) {
            return Err(Error::usage(format!(
                "{key:?} is no key of an issue such as SX9-123"
            )));
        }
        let living = self.living()?;
        let session = super::active::named_one(&living, id)?;
        let ending = match &session.ending {
            None => {
                let (dirty, now) = (
                    self.leaves_code(end)?,
                    self.project.environment().now().seconds(),
                );
                // A reason to leave code is checked also where there is none, and then counts for
                // nothing.
                Ending::begun(end, now).check(self.project, session)?;
                let leave_dirty = end.leave_dirty.clone().filter(|_| dirty);
                Some(Ending::begun(
                    &End {
                        leave_dirty,
                        ..end.clone()
                    },
                    now,
                ))
            }
            // An end that was refused for its text continues with the new text.
            Some(kept) => Some(kept.replaced(end, session)).filter(|ending| ending != kept),
        };
        if let Some(ending) = ending {
            ending.check(self.project, session)?;
            self.change(id, |session| {
                session.state = State::Ending;
                session.ending = Some(ending);
            })?;
        }
        Ok(())
    }

    /// Does the remaining steps of an end.
    pub(super) fn finish(&self, id: &str, then: Then) -> Result<Finished> {
        // The work belongs to this session, even if another session finishes it.
        Sessions {
            project: &self.project.within(id),
        }
        .finish_inside(id, then)
    }

    fn finish_inside(&self, id: &str, then: Then) -> Result<Finished> {
        let session = self.living()?.get(id).cloned();
        let session = session
            .ok_or_else(|| Error::not_found(format!("no session {id} lives in this work tree")))?;
        let mut on = EndContext {
            sessions: *self,
            ending: session.ending.clone().unwrap_or_default(),
            session,
            warnings: Vec::new(),
        };
        let entry = on.entry();
        on.or_go_on(step::ENTRY, then, entry)?;
        let learned = on.learned();
        on.or_go_on(step::LEARNED, then, learned)?;
        if on.did_nothing() {
            self.remove_folder(&on.over())?;
            on.done(step::COMMIT, None)?;
        } else {
            on.archive()?;
            on.reports();
            let commit = on.commit();
            on.or_go_on(step::COMMIT, then, commit)?;
        }
        on.caches()?;
        on.event()?;
        let finished = on.finished(false);
        // The steps after the commit. From here on the session is not active.
        self.keep_over(&on.over())?;
        self.forget(id)?;
        Ok(finished)
    }

    /// Says whether code stays uncommitted, and refuses that without a reason.
    fn leaves_code(&self, end: &End) -> Result<bool> {
        let Some(git) = self.git() else {
            return Ok(true);
        };
        let status = git.status()?;
        let dirty: Vec<&str> = status.outside(git.memory()).collect();
        if dirty.is_empty()
            || end
                .leave_dirty
                .as_deref()
                .is_some_and(|why| !why.trim().is_empty())
        {
            return Ok(!dirty.is_empty());
        }
        let more = if dirty.len() > NAMED {
            format!(" and {} more", dirty.len() - NAMED)
        } else {
            String::new()
        };
        let named = dirty
            .iter()
            .take(NAMED)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        Err(Error::new(
            Category::Refused,
            "E_DIRTY",
            format!("code is not committed: {named}{more}"),
        )
        .hint("commit it, or say why it stays with --leave-dirty: that becomes what comes next")
        .next("git status"))
    }

    /// Returns the result of an ended session: the named one, or the newest of this agent.
    fn ended_before(&self, named: Option<&str>) -> Result<Finished> {
        let none = || {
            Error::not_found(
                "no session lives in this work tree, and none of this agent has ended here",
            )
            .next("helmdeck forge session start")
        };
        let agent = &self.project.environment().agent;
        let wanted =
            |session: &Session| named.map_or(session.agent == *agent, |named| session.id == named);
        let over = match self.ended_here(wanted) {
            Some(here) => Some(here),
            None => self.newest_archived(wanted)?,
        };
        // An abandoned session did not end.
        let session = over
            .filter(|session| session.state == State::Ended)
            .ok_or_else(none)?;
        let ending = session.ending.clone().unwrap_or_default();
        Ok(EndContext {
            sessions: *self,
            session,
            ending,
            warnings: Vec::new(),
        }
        .finished(true))
    }

    /// Returns the newest matching session that has a folder.
    fn newest_archived(&self, wanted: impl Fn(&Session) -> bool) -> Result<Option<Session>> {
        let mut folders = self.folders(|_| true)?;
        folders
            .sort_by_key(|folder| std::cmp::Reverse(session_of(folder).parse::<SessionId>().ok()));
        for folder in folders {
            if let Some(session) = self.archived(&folder)?.filter(&wanted) {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }
}

/// What a failed step means for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The end stops there until the caller corrects it.
    Stop,
    /// The end continues without it: the next session cannot fix it.
    GoOn,
}

/// State of an end in progress.
struct EndContext<'a> {
    sessions: Sessions<'a>,
    session: Session,
    ending: Ending,
    warnings: Vec<String>,
}

impl EndContext<'_> {
    fn is_done(&self, step: &str) -> bool {
        self.session.step(step).is_some()
    }

    fn done(&mut self, step: &str, note: Option<String>) -> Result<()> {
        self.session = self.sessions.note(&self.session.id, step, note)?;
        Ok(())
    }

    /// Turns a failed step into a warning.
    ///
    /// Nothing is lost: the archived record contains how the session was to end.
    fn or_go_on(&mut self, step: &str, then: Then, went: Result<()>) -> Result<()> {
        match went {
            Err(error)
                if then == Then::GoOn
                    && !matches!(error.category, Category::Paused | Category::Locked) =>
            {
                self.warnings.push(format!(
                    "the end of {} went on without a step ({step}): {error}",
                    self.session.id
                ));
                self.done(step, None)
            }
            went => went,
        }
    }

    fn entry(&mut self) -> Result<()> {
        if self.is_done(step::ENTRY) {
            return Ok(());
        }
        let progress = self.sessions.progress(&self.session)?;
        let there = progress.read()?;
        let said = there.and_then(|log| log.entries.last().map(|entry| entry.text == ENDING));
        if said != Some(true) {
            progress.log(ENDING)?;
        }
        if let Some(next) = &self.ending.next {
            progress.next(next)?;
        }
        self.done(step::ENTRY, None)
    }

    /// Stores the learnings. Each is recorded separately, so none counts twice.
    fn learned(&mut self) -> Result<()> {
        if self.is_done(step::LEARNED) {
            return Ok(());
        }
        let mut ids = Vec::new();
        for (at, learning) in self.ending.learned.clone().into_iter().enumerate() {
            let name = format!("{}_{at}", step::LEARNED);
            if let Some(done) = self.session.step(&name) {
                ids.extend(done.note.clone());
                continue;
            }
            let id =
                match commit::learned_since(self.sessions.project, &learning, self.ending.since)? {
                    Some(id) => id,
                    None => {
                        let session = Some(self.session.id.clone());
                        let learning = Learning {
                            session: learning.session.clone().or(session),
                            ..learning
                        };
                        match Knowledge::new(self.sessions.project).add(&learning, None) {
                            Ok(added) => added.id,
                            // The file got a newer version after the end began. A retry cannot help;
                            // the record keeps the learnings.
                            Err(error) if error.code == "E_SCHEMA_NEWER" => {
                                self.warnings.push(format!(
                                "what was learned stands only in the record of the session: {error}"
                            ));
                                break;
                            }
                            Err(error) => return Err(error),
                        }
                    }
                };
            self.done(&name, Some(id.clone()))?;
            ids.push(id);
        }
        for id in commit::learned_in(self.sessions.project, &self.session) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        self.done(
            step::LEARNED,
            Some(ids.join(" ")).filter(|ids| !ids.is_empty()),
        )
    }

    /// Rebuilds the caches. They can be rebuilt at any time, so a failure is only a warning.
    fn caches(&mut self) -> Result<()> {
        if self.is_done(step::CACHES) {
            return Ok(());
        }
        if let Err(error) = commit::caches(self.sessions.project) {
            self.warnings
                .push(format!("the caches of git were not written: {error}"));
        }
        self.done(step::CACHES, None)
    }

    fn commit(&mut self) -> Result<()> {
        if self.is_done(step::COMMIT) {
            return Ok(());
        }
        match commit::commit(self.sessions.project, &self.session, &self.ending)? {
            MemoryCommit::Made(commit) => self.done(step::COMMIT, Some(commit)),
            MemoryCommit::Nothing => self.done(step::COMMIT, None),
            MemoryCommit::Skipped(why) => {
                self.warnings.push(why);
                self.done(step::COMMIT, None)
            }
        }
    }

    /// Returns the final record of the session. It is the same each time an end resumes.
    fn over(&self) -> Session {
        let session = self.session.clone();
        let until = self.ending.since.unwrap_or(session.seen_at);
        Session {
            state: State::Ended,
            ended_at: self.ending.since,
            seen_at: until,
            lease_until: until,
            ..session
        }
    }

    /// Archives the session before the commit, so that the commit includes it and nothing is left
    /// over.
    fn archive(&self) -> Result<()> {
        if self.is_done(step::COMMIT) {
            Ok(())
        } else {
            self.sessions.archive(&self.over())
        }
    }

    /// Removes reports of verifications that a newer one or a checkpoint replaces. A failure is
    /// only a warning.
    fn reports(&mut self) {
        if self.is_done(step::COMMIT) {
            return;
        }
        if let Err(error) = remove_superseded_reports(self.sessions.project) {
            self.warnings
                .push(format!("old reports of verifications stay: {error}"));
        }
    }

    /// Says whether the session leaves nothing to commit.
    ///
    /// It made no commit, learned nothing, has no text of the caller, and did not change the
    /// memory. `false` if git cannot tell.
    fn did_nothing(&self) -> bool {
        let project = self.sessions.project;
        let learned = self
            .session
            .step(step::LEARNED)
            .and_then(|step| step.note.as_deref());
        let spoke = || -> Result<bool> {
            let log = self.sessions.progress(&self.session)?.read()?;
            Ok(log.is_some_and(|log| !log.is_automatic()))
        };
        !self.is_done(step::COMMIT)
            && self.ending.has_no_text()
            && learned.is_none()
            && matches!(spoke(), Ok(false))
            && commit::commits(project, &self.session) == 0
            && matches!(
                commit::is_memory_committed(project, &self.session),
                Ok(true)
            )
    }

    fn event(&mut self) -> Result<()> {
        if self.is_done(step::EVENT) {
            return Ok(());
        }
        let finished = self.finished(false);
        announce::end(
            self.sessions.project,
            &finished,
            self.ending.leave_dirty.is_some(),
        );
        self.done(step::EVENT, Some(finished.commits.to_string()))
    }

    fn finished(&self, again: bool) -> Finished {
        let learned = self
            .session
            .step(step::LEARNED)
            .and_then(|step| step.note.as_deref())
            .unwrap_or_default();
        let until = self.ending.since.unwrap_or(self.session.seen_at);
        let seconds = until
            .0
            .as_second()
            .saturating_sub(self.session.started_at.0.as_second());
        let counted = self
            .session
            .step(step::EVENT)
            .and_then(|step| step.note.as_deref()?.parse().ok());
        Finished {
            session: self.session.id.clone(),
            again,
            duration_s: u64::try_from(seconds).unwrap_or_default(),
            commits: counted
                .unwrap_or_else(|| commit::commits(self.sessions.project, &self.session)),
            learned: learned.split_whitespace().map(str::to_owned).collect(),
            commit: self
                .session
                .step(step::COMMIT)
                .and_then(|step| step.note.clone()),
            next: self.ending.next.clone(),
            warnings: self.warnings.clone(),
        }
    }
}
