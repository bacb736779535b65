//! Which session a start belongs to: one that lives, or a new one. Pure: the file is changed by who calls.

use std::time::Duration;

use super::record::{Living, Session, State};
use crate::error::{Category, Error, Result};
use crate::time::Time;

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
    living: &mut Living,
    who: &Who<'_>,
    free: &dyn Fn(&str) -> bool,
    fresh: impl FnOnce(&Living) -> Result<Session>,
) -> Result<String> {
    for session in living.sessions.iter_mut().filter(|session| session.state.is_alive()) {
        let free = free(&session.id);
        let taken = who.take_over && session.primary && free && who.named != Some(session.id.as_str());
        let why = session.given_up(who.now, free);
        if let Some(why) = why.or_else(|| taken.then(|| format!("{} took its place", who.agent))) {
            session.state = State::Abandoned;
            session.abandoned = Some(why);
            session.ended_at = Some(who.now.seconds());
        }
    }
    let id = match (who.named, living.primary()) {
        (Some(named), _) => named_one(living, named)?.id.clone(),
        (None, Some(primary)) if !who.join => again(primary, who, free)?.id.clone(),
        (None, primary) => {
            let primary = primary.is_none();
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

/// Returns the session that somebody says they are in.
pub(super) fn named_one<'a>(living: &'a Living, named: &str) -> Result<&'a Session> {
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

/// Returns the primary session to the agent whose it is; nobody else gets it.
fn again<'a>(primary: &'a Session, who: &Who<'_>, free: &dyn Fn(&str) -> bool) -> Result<&'a Session> {
    if primary.agent == who.agent && free(&primary.id) {
        return Ok(primary);
    }
    let Session { id, agent, seen_at, .. } = primary;
    let process = primary.holder.as_ref().map(|holder| format!(", process {}", holder.pid)).unwrap_or_default();
    Err(Error::new(
        Category::Locked,
        "E_SESSION_LIVE",
        format!("session {id} of {agent}{process} lives in this work tree, last seen at {}", seen_at.seconds()),
    )
    .hint("work in another work tree, beside it (--join), or in its place if it is yours and stuck (--take-over)")
    .next("helmdeck forge session start --join"))
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

    fn place(living: &mut Living, who: &Who<'_>, free: bool) -> Result<String> {
        take_place(living, who, &|_| free, |_| Ok(session("new", who.agent)))
    }

    #[test]
    fn the_first_start_makes_a_primary_session_and_the_next_is_in_it() {
        let mut living = Living::empty();
        assert_eq!(place(&mut living, &who(), true).unwrap(), "new");
        assert!(living.primary().is_some());
        let later = Who { now: later(time(), LEASE), ..who() };
        assert_eq!(place(&mut living, &later, true).unwrap(), "new");
        assert_eq!(living.sessions.len(), 1);
        assert_eq!(living.sessions[0].seen_at, later.now, "its lease is renewed");
    }

    #[test]
    fn another_agent_is_refused_and_told_who_is_there() {
        let mut living = Living { sessions: vec![session("old", "Axiom")], ..Living::empty() };
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
        let mut living = Living { sessions: vec![held], ..Living::empty() };
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
            let mut living = Living { sessions: vec![old], ..Living::empty() };
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
        let mut living = Living { sessions: vec![over], ..Living::empty() };
        for (named, words) in [("old", "no command ran"), ("other", "no session other lives")] {
            let error = place(&mut living, &Who { named: Some(named), ..who() }, true).unwrap_err();
            assert_eq!(error.category, Category::NotFound);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
