//! Commands during a session: log progress, learn, renew the lease.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Sessions;
use super::record::{ActiveSessions, LEASE, Session};
use crate::error::{Error, Result};
use crate::focus::Focused;
use crate::knowledge::{Added, Knowledge, Learning};
use crate::progress::Progress;
use crate::time::Time;

/// Minimum time between two renewals of a lease, in seconds.
const HEARTBEAT: u64 = 60;

/// A progress entry to log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// What was done, in one line of at most 500 characters.
    pub text: String,
    /// The next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A logged progress entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Logged {
    /// The session; `null` if none is active.
    pub session: Option<String>,
    /// The line.
    pub line: String,
    /// The file.
    pub path: String,
}

impl<'a> Sessions<'a> {
    pub(super) fn progress(&self, session: &Session) -> Result<Progress<'a>> {
        let progress = Progress::new(self.project);
        if session.primary {
            Ok(progress)
        } else {
            progress.of(&session.folder())
        }
    }

    pub(super) fn focus(&self, session: &Session) -> Result<Focused<'a>> {
        let focus = Focused::new(self.project);
        if session.primary {
            Ok(focus)
        } else {
            focus.of(&session.folder())
        }
    }

    /// Returns the focus to read: that of the caller's session, or else the primary one.
    ///
    /// # Errors
    /// `NotFound` if the named session is not active; `Corrupt`.
    pub fn focus_now(&self) -> Result<Focused<'a>> {
        // Refuse a named session that has ended.
        self.mine()?;
        match self.shown()? {
            Some(session) => self.focus(&session),
            None => Ok(Focused::new(self.project)),
        }
    }

    /// Returns the focus to change, and the session that owns it.
    ///
    /// # Errors
    /// As [`Self::acting`].
    pub fn focus_to_change(&self) -> Result<(Focused<'a>, Option<String>)> {
        match self.acting()? {
            Some(session) => Ok((self.focus(&session)?, Some(session.id))),
            None => Ok((Focused::new(self.project), None)),
        }
    }

    /// Logs what was done. It works without a session too.
    ///
    /// # Errors
    /// `Usage` if the text does not fit on a line, `Secret`, `Corrupt`, `Paused`, `Locked`.
    pub fn log(&self, log: &Log) -> Result<Logged> {
        self.project.check_not_paused()?;
        let session = self.acting()?;
        let progress = match &session {
            Some(session) => self.progress(session)?,
            None => Progress::new(self.project),
        };
        let logged = progress.log(&log.text)?;
        if let Some(next) = &log.next {
            progress.next(next)?;
        }
        self.touch()?;
        Ok(Logged {
            session: session.map(|session| session.id),
            line: logged.line,
            path: logged.path,
        })
    }

    /// Returns the next step that the progress of a session names.
    pub(crate) fn next_step(&self, session: &Session) -> Result<Option<String>> {
        Ok(self.progress(session)?.read()?.and_then(|log| log.next))
    }

    /// Stores a learning, as learned in this session.
    ///
    /// # Errors
    /// Errors from adding it.
    pub fn learn(&self, learning: Learning) -> Result<Added> {
        self.project.check_not_paused()?;
        let session = self.mine()?.map(|session| session.id);
        let added = Knowledge::new(self.project).add(
            &Learning {
                session: learning.session.or(session),
                ..learning
            },
            None,
        )?;
        self.touch()?;
        Ok(added)
    }

    /// Renews the lease of the session. Every command does so; it is written at most once a minute.
    ///
    /// # Errors
    /// `Locked`, `Corrupt`.
    pub fn touch(&self) -> Result<()> {
        let now = self.project.environment().now();
        let Some(session) = self.current()?.filter(|session| is_due(session, now)) else {
            return Ok(());
        };
        self.project
            .files()
            .edit::<ActiveSessions, ()>(None, |living| {
                if let Some(session) = living
                    .get_mut(&session.id)
                    .filter(|session| session.state.is_alive())
                {
                    session.renew(now, LEASE);
                }
                Ok(())
            })
    }

    /// Renews the lease if the caller is in a session.
    ///
    /// A failure is only logged: the lease then ends sooner.
    pub fn renew_lease(&self) {
        if let Err(error) = self.touch() {
            tracing::debug!(%error, "the lease of the session is not renewed");
        }
    }

    /// Returns the session of an operation that requires one.
    ///
    /// # Errors
    /// `NotFound` if none is active; errors of [`Self::acting`].
    pub fn required(&self) -> Result<Session> {
        self.acting()?.ok_or_else(|| {
            Error::not_found("no session lives in this work tree")
                .hint("`helmdeck forge session start` begins one")
                .next("helmdeck forge session start")
        })
    }
}

fn is_due(session: &Session, now: Time) -> bool {
    now.0.as_second().abs_diff(session.seen_at.0.as_second()) >= HEARTBEAT
}
