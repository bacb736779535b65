//! Which sessions are active, and which one a caller works in.

use super::record::{ActiveSessions, Session, State};
use crate::error::{Category, Error, Result};
use crate::git::Git;
use crate::project::Project;

/// Error code: the active session belongs to another agent.
pub(super) const LIVE: &str = "E_SESSION_LIVE";

/// Work sessions of a work tree.
#[derive(Debug, Clone, Copy)]
pub struct Sessions<'a> {
    pub(super) project: &'a Project,
}

impl<'a> Sessions<'a> {
    /// Returns the work sessions of this work tree of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }

    /// Returns the active sessions, and the abandoned ones that are not archived yet.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn living(&self) -> Result<ActiveSessions> {
        Ok(self
            .project
            .files()
            .load::<ActiveSessions>()?
            .map_or_else(ActiveSessions::empty, |loaded| loaded.value))
    }

    /// Returns the sessions as the next start will see them.
    ///
    /// Like [`Self::living`], but a session whose lease has run out counts as abandoned.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn seen(&self) -> Result<ActiveSessions> {
        let now = self.project.environment().now();
        let mut living = self.living()?;
        for session in living
            .sessions
            .iter_mut()
            .filter(|session| session.state.is_alive())
        {
            if let Some(why) = session.given_up(now) {
                session.state = State::Abandoned;
                session.abandoned = Some(why);
            }
        }
        Ok(living)
    }

    /// Returns the caller's session. `None` if there is none, or if it is ambiguous.
    ///
    /// It is the one that [`ProjectEnvironment::session`](crate::ProjectEnvironment::session)
    /// names, or else the only one with this agent's name.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn current(&self) -> Result<Option<Session>> {
        let environment = self.project.environment();
        let living = self.living()?;
        let session = match &environment.session {
            Some(named) => living.get(named).filter(|session| session.state.is_alive()),
            None => own(&living, &environment.agent).ok().flatten(),
        };
        Ok(session.cloned())
    }

    /// Returns the session for a read-only command: the caller's own, or else the primary one.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn shown(&self) -> Result<Option<Session>> {
        match self.current()? {
            None if self.project.environment().session.is_none() => {
                Ok(self.living()?.primary().cloned())
            }
            own => Ok(own),
        }
    }

    /// Returns the session that a change belongs to.
    ///
    /// `None` if no session is active, and none is required. A caller that names no session never
    /// works in another agent's.
    ///
    /// # Errors
    /// `NotFound` (`E_SESSION_OVER`) if the named session is not active; `Locked`
    /// (`E_SESSION_LIVE`) if only another agent's session is active, or several of this name;
    /// `Corrupt`.
    pub fn acting(&self) -> Result<Option<Session>> {
        let environment = self.project.environment();
        let living = self.living()?;
        match &environment.session {
            Some(named) => named_one(&living, named).cloned().map(Some),
            None => Ok(own(&living, &environment.agent)?.cloned()),
        }
    }

    /// Returns the session for something that does not require one. `None` if this agent has none.
    ///
    /// # Errors
    /// `NotFound` (`E_SESSION_OVER`) if the named session is not active; `Corrupt`.
    pub fn mine(&self) -> Result<Option<Session>> {
        match self.acting() {
            Err(error) if error.code == LIVE => Ok(None),
            mine => mine,
        }
    }

    /// Refuses a caller that names an ended session, because nothing can be added to it.
    ///
    /// A pause takes precedence: the requested operation reports it.
    ///
    /// # Errors
    /// `NotFound` (`E_SESSION_OVER`).
    pub fn check_not_over(&self) -> Result<()> {
        match self.mine() {
            Err(error)
                if error.category == Category::NotFound
                    && self.project.check_not_paused().is_ok() =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Records that a session goes on on the current branch.
    ///
    /// # Errors
    /// `NotFound` if it is not active; errors from git and from writing.
    pub(crate) fn follow_branch(&self, id: &str) -> Result<()> {
        let branch = match self.project.repository()? {
            Some(git) => git.branch()?,
            None => return Ok(()),
        };
        if self
            .living()?
            .get(id)
            .is_some_and(|session| session.branch != branch)
        {
            self.change(id, |session| session.branch = branch)?;
        }
        Ok(())
    }

    /// Returns git, if the project is in a repository.
    pub(super) fn git(&self) -> Option<&'a Git> {
        self.project.git().ok()
    }

    /// Records that a step is done.
    pub(super) fn note(&self, id: &str, step: &str, note: Option<String>) -> Result<Session> {
        let now = self.project.environment().now();
        self.change(id, |session| session.done(step, now.seconds(), note))
    }

    /// Changes the record of a session, and returns it.
    pub(super) fn change(&self, id: &str, change: impl FnOnce(&mut Session)) -> Result<Session> {
        // A crash here leaves a step that is done but not recorded.
        #[cfg(test)]
        super::crash_tests::point();
        self.project
            .files()
            .edit::<ActiveSessions, Session>(None, |living| {
                named_one(living, id)?;
                match living.get_mut(id) {
                    Some(session) => {
                        change(session);
                        Ok(session.clone())
                    }
                    None => Err(Error::not_found(format!(
                        "no session {id} lives in this work tree"
                    ))),
                }
            })
    }
}

/// Returns the session of a caller that names none: the only one with the agent's name.
///
/// `None` if there is none, and no other agent has the primary session.
///
/// # Errors
/// `Locked` if the primary session is another agent's, and if several sessions have the agent's
/// name.
pub(super) fn own<'a>(living: &'a ActiveSessions, agent: &str) -> Result<Option<&'a Session>> {
    let all: Vec<&Session> = living
        .sessions
        .iter()
        .filter(|session| session.state.is_alive() && session.agent == agent)
        .collect();
    match (all.as_slice(), living.primary()) {
        ([own], _) => Ok(Some(own)),
        ([], None) => Ok(None),
        ([], Some(primary)) => Err(live(primary)),
        (several, _) => {
            let ids: Vec<_> = several.iter().map(|session| session.id.as_str()).collect();
            let message = format!(
                "{} sessions of {agent} live in this work tree: {}",
                ids.len(),
                ids.join(", ")
            );
            Err(Error::new(Category::Locked, LIVE, message)
                .hint("say which is yours, with --session or HELMDECK_FORGE_SESSION")
                .next("helmdeck forge status"))
        }
    }
}

/// Returns the session that the caller names.
pub(super) fn named_one<'a>(living: &'a ActiveSessions, named: &str) -> Result<&'a Session> {
    let gone = |message: String| {
        Error::new(Category::NotFound, "E_SESSION_OVER", message)
            .hint("its name comes with --session or HELMDECK_FORGE_SESSION; without one a new session begins")
            .next("helmdeck forge session start")
    };
    match living.get(named) {
        Some(session) if session.state.is_alive() => Ok(session),
        Some(session) => {
            let why = session.abandoned.as_deref().unwrap_or("it ended");
            Err(gone(format!(
                "session {named} does not live any more: {why}"
            )))
        }
        None => Err(gone(format!("no session {named} lives in this work tree"))),
    }
}

/// Makes the error that names the session in the way.
pub(super) fn live(session: &Session) -> Error {
    let Session {
        id, agent, seen_at, ..
    } = session;
    Error::new(
        Category::Locked,
        LIVE,
        format!("session {id} of {agent} lives in this work tree, last seen at {}", seen_at.seconds()),
    )
    .hint(
        "if it is yours, name it (--session or HELMDECK_FORGE_SESSION); else work in another work tree, beside it (--join), or in its \
         place if it is stuck (--take-over)",
    )
    .next("helmdeck forge session start --join")
}
