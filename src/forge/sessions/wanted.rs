//! Validates the request to end a session before any step writes.

use super::record::{Ending, Session};
use super::{End, commit, end};
use crate::error::{Error, Result};
use crate::files::Document as _;
use crate::files::newer;
use crate::knowledge::{Knowledge, KnowledgeFile, Learning};
use crate::layout::{KNOWLEDGE, PROGRESS};
use crate::progress::text;
use crate::project::Project;
use crate::time::Time;

impl Ending {
    /// Returns whether the caller gave no text for the end: no learning, no next step, no reason
    /// for uncommitted code, no issue key.
    pub(super) fn has_no_text(&self) -> bool {
        self.learned.is_empty()
            && self.next.is_none()
            && self.leave_dirty.is_none()
            && self.key.is_none()
    }

    /// Returns how a session ends, from the request and the time.
    pub(super) fn begun(asked: &End, now: Time) -> Self {
        let leave_dirty = asked
            .leave_dirty
            .clone()
            .filter(|why| !why.trim().is_empty());
        Self {
            since: Some(now),
            next: asked.next.clone().or_else(|| leave_dirty.clone()),
            leave_dirty,
            key: asked.key.clone(),
            learned: asked.learned.clone(),
        }
    }

    /// Returns how an interrupted end continues when it is requested again.
    ///
    /// For each step that is not done, the new request counts.
    pub(super) fn replaced(&self, asked: &End, session: &Session) -> Self {
        let fresh = Self::begun(asked, Time(jiff::Timestamp::UNIX_EPOCH));
        let mut ending = self.clone();
        if session.step(end::step::ENTRY).is_none() {
            ending.next = fresh.next.or(ending.next);
            ending.leave_dirty = fresh.leave_dirty.or(ending.leave_dirty);
        }
        if !fresh.learned.is_empty()
            && !session
                .steps
                .iter()
                .any(|step| step.name.starts_with(end::step::LEARNED))
        {
            ending.learned = fresh.learned;
        }
        if session.step(end::step::COMMIT).is_none() {
            ending.key = fresh.key.or(ending.key);
        }
        ending
    }

    /// Checks that every step of the end accepts its texts.
    ///
    /// # Errors
    /// `Usage` or `Refused` for a text that does not fit or is only a placeholder, `Secret` for one
    /// that looks like a credential.
    pub(super) fn check(&self, project: &Project, session: &Session) -> Result<()> {
        let files = project.files();
        for line in [&self.next, &self.leave_dirty].into_iter().flatten() {
            files.check_secrets(PROGRESS, text::next(line)?.as_bytes())?;
        }
        if !self.learned.is_empty()
            && let Some(loaded) = files
                .load::<KnowledgeFile>()?
                .filter(|loaded| loaded.read_only)
        {
            return Err(newer(KNOWLEDGE, &loaded.value.schema_version));
        }
        // Try it on a copy of the knowledge; nothing is written.
        let mut known = Knowledge::new(project).read()?;
        let mut alone = KnowledgeFile::skeleton();
        for learning in &self.learned {
            let session = learning
                .session
                .clone()
                .or_else(|| Some(session.id.clone()));
            let learning = Learning {
                session,
                ..learning.clone()
            };
            known.add(&learning, session_time(self))?;
            alone.add(&learning, session_time(self))?;
        }
        alone
            .check()
            .map_err(|why| Error::usage(format!("what was learned: {why}")))?;
        let bytes = crate::json::print(&alone).map_err(|error| {
            Error::usage(format!("what was learned cannot be written: {error}"))
        })?;
        files.check_secrets(KNOWLEDGE, bytes.as_ref())?;
        commit::check_commit(project, session, self)
    }
}

fn session_time(ending: &Ending) -> Time {
    ending.since.unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH))
}
