//! Sessions: how work begins, is logged, ends, and is taken up by the next session when it did not end.
//!
//! Each step of a start and of an end is noted in the session's record when it is done, and is harmless when done twice: whoever is
//! killed between two steps, or within one, says the same again and gets to the same place.

mod advice;
mod archive;
mod begin;
mod claims;
#[cfg(test)]
mod crash_tests;
mod during;
mod end;
mod folder;
mod hold;
mod id;
mod parts;
mod place;
mod record;
mod run;
mod select;
mod start;
mod wanted;

use crate::error::{Category, Result};
use crate::focus::Focused;
use crate::git::Git;
use crate::progress::Progress;
use crate::project::Project;

pub use advice::{Advice, Since, advise};
pub use during::{Log, Logged};
pub use end::{End, Finished};
pub(crate) use folder::session_of;
pub use hold::Hold;
pub use id::SessionId;
pub use record::{ActiveSessions, Ending, Holder, LEASE, Session, State, Step};
pub use run::{How, Outcome, VARIABLE};
pub use select::{Choice, Inputs, Named, Rule, Unfinished, select_next_task};
pub use start::{Probed, Start, Started};

impl Project {
    /// Returns the sessions of this work tree.
    #[must_use]
    pub const fn sessions(&self) -> Sessions<'_> {
        Sessions { project: self }
    }
}

/// The sessions of a work tree.
#[derive(Debug, Clone, Copy)]
pub struct Sessions<'a> {
    project: &'a Project,
}

impl<'a> Sessions<'a> {
    /// Returns the sessions that live, and those that were given up and are not put away yet.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn living(&self) -> Result<ActiveSessions> {
        Ok(self.project.files().load::<ActiveSessions>()?.map_or_else(ActiveSessions::empty, |loaded| loaded.value))
    }

    /// As [`Self::living`], as the next start will see them: those whose process was killed or whose lease has run out are abandoned.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn seen(&self) -> Result<ActiveSessions> {
        let now = self.project.environment().now();
        let mut living = self.living()?;
        for session in living.sessions.iter_mut().filter(|session| session.state.is_alive()) {
            if let Some(why) = session.given_up(now, self.is_free(&session.id)) {
                session.state = State::Abandoned;
                session.abandoned = Some(why);
            }
        }
        Ok(living)
    }

    /// Returns the session of who works: the one that [`ProjectEnvironment::session`](crate::ProjectEnvironment::session) names, or else the only one of this
    /// agent's name. `None` if there is none, or if it cannot be told which.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn current(&self) -> Result<Option<Session>> {
        let environment = self.project.environment();
        let living = self.living()?;
        let session = match &environment.session {
            Some(named) => living.get(named).filter(|session| session.state.is_alive()),
            None => place::own(&living, &environment.agent).ok().flatten(),
        };
        Ok(session.cloned())
    }

    /// Returns the session that who only looks is shown: their own, or else the primary one.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn shown(&self) -> Result<Option<Session>> {
        match self.current()? {
            None if self.project.environment().session.is_none() => Ok(self.living()?.primary().cloned()),
            own => Ok(own),
        }
    }

    /// Returns the session in which something is changed. `None` says that none lives, and that it may be done without. Who names no
    /// session never works in another agent's.
    ///
    /// # Errors
    /// `NotFound` (`E_SESSION_OVER`) for a named one that does not live; `Locked` (`E_SESSION_LIVE`) if only another agent's lives, or
    /// several of this name; `Corrupt`.
    pub fn acting(&self) -> Result<Option<Session>> {
        let environment = self.project.environment();
        let living = self.living()?;
        match &environment.session {
            Some(named) => place::named_one(&living, named).cloned().map(Some),
            None => Ok(place::own(&living, &environment.agent)?.cloned()),
        }
    }

    /// Returns the session to which something belongs that can also belong to none. `None` if this agent has none.
    ///
    /// # Errors
    /// `NotFound` (`E_SESSION_OVER`) for a named one that does not live; `Corrupt`.
    pub fn mine(&self) -> Result<Option<Session>> {
        match self.acting() {
            Err(error) if error.code == place::LIVE => Ok(None),
            mine => mine,
        }
    }

    /// Refuses who names a session that is over: it takes nothing any more. A pause is said first, by what is asked for.
    ///
    /// # Errors
    /// `NotFound` (`E_SESSION_OVER`).
    pub fn check_not_over(&self) -> Result<()> {
        match self.mine() {
            Err(error) if error.category == Category::NotFound && self.project.check_not_paused().is_ok() => Err(error),
            _ => Ok(()),
        }
    }

    fn progress(&self, session: &Session) -> Result<Progress<'a>> {
        let progress = self.project.progress();
        if session.primary { Ok(progress) } else { progress.of(&session.folder()) }
    }

    fn focus(&self, session: &Session) -> Result<Focused<'a>> {
        let focus = self.project.focus();
        if session.primary { Ok(focus) } else { focus.of(&session.folder()) }
    }

    /// Returns the focus to look at: of one's own session, or else the primary one.
    ///
    /// # Errors
    /// `NotFound` for a session that does not live; `Corrupt`.
    pub fn focus_now(&self) -> Result<Focused<'a>> {
        // Refuses a named session that is over.
        self.mine()?;
        match self.shown()? {
            Some(session) => self.focus(&session),
            None => Ok(self.project.focus()),
        }
    }

    /// Returns the focus to change, and the session whose it is.
    ///
    /// # Errors
    /// As [`Self::acting`].
    pub fn focus_to_change(&self) -> Result<(Focused<'a>, Option<String>)> {
        match self.acting()? {
            Some(session) => Ok((self.focus(&session)?, Some(session.id))),
            None => Ok((self.project.focus(), None)),
        }
    }

    /// Returns git, if there is one.
    fn git(&self) -> Option<&'a Git> {
        self.project.git().ok()
    }

    /// Notes that a step is done.
    fn note(&self, id: &str, step: &str, note: Option<String>) -> Result<Session> {
        let now = self.project.environment().now();
        self.change(id, |session| session.done(step, now.seconds(), note))
    }

    /// Changes the record of a session, and returns it.
    fn change(&self, id: &str, change: impl FnOnce(&mut Session)) -> Result<Session> {
        // What a step does may be done, and not be noted.
        #[cfg(test)]
        crash_tests::point();
        self.project.files().edit::<ActiveSessions, Session>(None, |living| {
            place::named_one(living, id)?;
            match living.get_mut(id) {
                Some(session) => {
                    change(session);
                    Ok(session.clone())
                }
                None => Err(crate::Error::not_found(format!("no session {id} lives in this work tree"))),
            }
        })
    }
}

#[cfg(test)]
mod tests;
