//! Which session a start belongs to: one that lives, or a new one. Pure: the file is changed by who calls.

use std::time::Duration;

use super::record::{ActiveSessions, Session, State};
use crate::error::{Category, Error, Result};
use crate::time::Time;

/// The code of the error that says that a session of somebody else lives.
pub(super) const LIVE: &str = "E_SESSION_LIVE";

/// Who starts, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who<'a> {
    /// The agent.
    pub(super) agent: &'a str,
    /// The session it says it is in.
    pub(super) named: Option<&'a str>,
    /// Whether it works beside a session that lives.
    pub(super) join: bool,
    /// Whether a session that only its lease keeps alive is given up for it.
    pub(super) take_over: bool,
    /// The time.
    pub(super) now: Time,
    /// How long a session lives without a command.
    pub(super) lease: Duration,
}

/// Gives up the sessions that nobody works in any more, and returns the id of the one that the start belongs to: it is among those
/// that live. `free` says whether nobody keeps the lock of a session; `fresh` makes a new one.
pub(super) fn take_place(
    living: &mut ActiveSessions,
    who: &Who<'_>,
    free: &dyn Fn(&str) -> bool,
    fresh: impl FnOnce(&ActiveSessions) -> Result<Session>,
) -> Result<String> {
    let mut taken_over = false;
    for session in living.sessions.iter_mut().filter(|session| session.state.is_alive()) {
        let free = free(&session.id);
        let taken = who.takes(session, free);
        taken_over |= taken;
        let why = session.given_up(who.now, free);
        if let Some(why) = why.or_else(|| taken.then(|| format!("{} took its place", who.agent))) {
            session.state = State::Abandoned;
            session.abandoned = Some(why);
            session.ended_at = Some(who.now.seconds());
        }
    }
    let own = match who.named {
        Some(named) => Some(named_one(living, named)?),
        None if who.join || taken_over => None,
        None => own(living, who.agent)?,
    };
    let id = match own {
        Some(own) if who.named.is_none() && !free(&own.id) => return Err(live(own)),
        Some(own) => own.id.clone(),
        None => {
            let primary = living.primary().is_none();
            let left =
                living.sessions.iter().rev().find(|session| session.state == State::Abandoned && session.primary);
            let resumes = left.filter(|_| primary).map(|session| session.id.clone());
            let session = Session { primary, resumes, ..fresh(living)? };
            let id = session.id.clone();
            living.sessions.push(session);
            id
        }
    };
    if let Some(session) = living.get_mut(&id) {
        session.renew(who.now, who.lease);
    }
    Ok(id)
}

impl Who<'_> {
    /// Says whether a session is given up for who starts.
    pub(super) fn takes(&self, session: &Session, free: bool) -> bool {
        self.take_over && session.primary && free && self.named != Some(session.id.as_str())
    }
}

/// Returns the session of who names none: the only one of the agent's name. `None` if nobody's primary session is in the way.
///
/// # Errors
/// `Locked` if the primary session is another agent's, and if several sessions have the agent's name.
pub(super) fn own<'a>(living: &'a ActiveSessions, agent: &str) -> Result<Option<&'a Session>> {
    let all: Vec<&Session> =
        living.sessions.iter().filter(|session| session.state.is_alive() && session.agent == agent).collect();
    match (all.as_slice(), living.primary()) {
        ([own], _) => Ok(Some(own)),
        ([], None) => Ok(None),
        ([], Some(primary)) => Err(live(primary)),
        (several, _) => {
            let ids: Vec<_> = several.iter().map(|session| session.id.as_str()).collect();
            let message = format!("{} sessions of {agent} live in this work tree: {}", ids.len(), ids.join(", "));
            Err(Error::new(Category::Locked, LIVE, message)
                .hint("say which is yours, with --session or HELMDECK_FORGE_SESSION")
                .next("helmdeck forge session status"))
        }
    }
}

/// Returns the session that somebody says they are in.
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
            Err(gone(format!("session {named} does not live any more: {why}")))
        }
        None => Err(gone(format!("no session {named} lives in this work tree"))),
    }
}

/// Says whose session is in the way.
fn live(session: &Session) -> Error {
    let Session { id, agent, seen_at, .. } = session;
    let process = session.holder.as_ref().map(|holder| format!(", process {}", holder.pid)).unwrap_or_default();
    Error::new(
        Category::Locked,
        LIVE,
        format!("session {id} of {agent}{process} lives in this work tree, last seen at {}", seen_at.seconds()),
    )
    .hint(
        "if it is yours, name it (--session or HELMDECK_FORGE_SESSION); else work in another work tree, beside it (--join), or in its \
         place if it is stuck (--take-over)",
    )
    .next("helmdeck forge session start --join")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Document as _;
    use crate::sessions::record::{Holder, LEASE, later};

    fn time() -> Time {
        Time::parse("2025-12-24T11:00:00Z").unwrap()
    }

    fn session(id: &str, agent: &str) -> Session {
        Session {
            id: id.to_owned(),
            agent: agent.to_owned(),
            primary: true,
            state: State::Live,
            started_at: time(),
            seen_at: time(),
            lease_until: later(time(), LEASE),
            ..Session::skeleton()
        }
    }

    fn who() -> Who<'static> {
        Who { agent: "Forge", named: None, join: false, take_over: false, now: time(), lease: LEASE }
    }

    fn place(living: &mut ActiveSessions, who: &Who<'_>, free: bool) -> Result<String> {
        take_place(living, who, &|_| free, |_| Ok(session("new", who.agent)))
    }

    #[test]
    fn the_first_start_makes_a_primary_session_and_the_next_is_in_it() {
        let mut living = ActiveSessions::empty();
        assert_eq!(place(&mut living, &who(), true).unwrap(), "new");
        assert!(living.primary().is_some());
        let later = Who { now: later(time(), LEASE), ..who() };
        assert_eq!(place(&mut living, &later, true).unwrap(), "new");
        assert_eq!(living.sessions.len(), 1);
        assert_eq!(living.sessions[0].seen_at, later.now, "its lease is renewed");
    }

    #[test]
    fn another_agent_is_refused_and_told_who_is_there() {
        let mut living = ActiveSessions { sessions: vec![session("old", "Axiom")], ..ActiveSessions::empty() };
        let error = place(&mut living, &who(), true).unwrap_err();
        assert_eq!((error.category, error.code), (Category::Locked, "E_SESSION_LIVE"));
        assert!(error.message.contains("session old of Axiom"), "{error}");
        assert_eq!(place(&mut living, &Who { named: Some("old"), ..who() }, true).unwrap(), "old");
        assert_eq!(place(&mut living, &Who { join: true, ..who() }, true).unwrap(), "new");
        assert!(!living.get("new").unwrap().primary);
    }

    #[test]
    fn who_is_not_in_a_held_session_does_not_get_it_by_its_agents_name() {
        let held = Session { holder: Some(Holder { pid: 7, since: time() }), ..session("old", "Forge") };
        let mut living = ActiveSessions { sessions: vec![held], ..ActiveSessions::empty() };
        for who in [who(), Who { take_over: true, ..who() }] {
            let error = place(&mut living, &who, false).unwrap_err();
            assert!(error.message.contains("process 7"), "{error}");
        }
        assert_eq!(place(&mut living, &Who { named: Some("old"), ..who() }, false).unwrap(), "old");
    }

    #[test]
    fn a_session_nobody_works_in_is_given_up_and_taken_up() {
        for (claim, old, who) in [
            ("its lease ran out", session("old", "Axiom"), Who { now: later(time(), 2 * LEASE), ..who() }),
            (
                "its process died",
                Session { holder: Some(Holder { pid: 7, since: time() }), ..session("old", "Forge") },
                who(),
            ),
            ("somebody takes over", session("old", "Forge"), Who { take_over: true, ..who() }),
        ] {
            let mut living = ActiveSessions { sessions: vec![old], ..ActiveSessions::empty() };
            assert_eq!(place(&mut living, &who, true).unwrap(), "new", "{claim}");
            let (old, new) = (living.get("old").unwrap(), living.get("new").unwrap());
            assert_eq!((old.state, old.abandoned.is_some(), old.ended_at), (State::Abandoned, true, Some(who.now)));
            assert_eq!((new.primary, new.resumes.as_deref()), (true, Some("old")), "{claim}");
        }
    }

    #[test]
    fn who_names_a_session_that_is_over_is_told() {
        let over = Session {
            state: State::Abandoned,
            abandoned: Some("no command ran".to_owned()),
            ..session("old", "Forge")
        };
        let mut living = ActiveSessions { sessions: vec![over], ..ActiveSessions::empty() };
        for (named, words) in [("old", "no command ran"), ("other", "no session other lives")] {
            let error = place(&mut living, &Who { named: Some(named), ..who() }, true).unwrap_err();
            assert_eq!(error.category, Category::NotFound);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
