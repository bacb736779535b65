//! First step of a start: find or create the session. It holds the common lock, so ids are unique.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use jiff::civil::Date;

use super::active::{named_one, own};
use super::record::{ActiveSessions, LEASE, Session, State};
use super::{SessionId, Sessions, Start, session_of};
use crate::error::{Error, Result};
use crate::files::Document as _;
use crate::git::{Git, Run};
use crate::time::Time;

/// Maximum number of commits that are searched for session trailers.
const TRAILERS: &str = "--max-count=1000";
/// Maximum length of a session name, in bytes.
const MAX_NAME: u64 = 100;

/// The caller of a start, and its options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who<'a> {
    /// The agent.
    pub(super) agent: &'a str,
    /// The session that the caller names.
    pub(super) named: Option<&'a str>,
    /// Whether it joins the work tree beside an active session.
    pub(super) join: bool,
    /// Whether it takes over a session that only its lease keeps active.
    pub(super) take_over: bool,
    /// The time.
    pub(super) now: Time,
    /// How long a session stays active without a command.
    pub(super) lease: Duration,
}

/// Reaps abandoned sessions, and returns the id of the session that the start belongs to.
///
/// That session is among the active ones. `fresh` makes a new session.
pub(super) fn take_place(
    living: &mut ActiveSessions,
    who: &Who<'_>,
    fresh: impl FnOnce(&ActiveSessions) -> Result<Session>,
) -> Result<String> {
    let mut taken_over = false;
    for session in living
        .sessions
        .iter_mut()
        .filter(|session| session.state.is_alive())
    {
        let taken = who.takes(session);
        taken_over |= taken;
        let why = session.given_up(who.now);
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
        Some(own) => own.id.clone(),
        None => {
            let primary = living.primary().is_none();
            let left = living
                .sessions
                .iter()
                .rev()
                .find(|session| session.state == State::Abandoned && session.primary);
            let resumes = left.filter(|_| primary).map(|session| session.id.clone());
            let session = Session {
                primary,
                resumes,
                ..fresh(living)?
            };
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
    /// Says whether the caller takes over a session.
    pub(super) fn takes(&self, session: &Session) -> bool {
        self.take_over && session.primary && self.named != Some(session.id.as_str())
    }
}

/// Facts from git for a new session.
#[derive(Debug, Default)]
struct Prepared {
    branch: Option<String>,
    head: Option<String>,
    /// The names in use.
    known: Vec<String>,
}

impl Sessions<'_> {
    /// Finds or creates the session of the start, and reaps abandoned sessions.
    pub(super) fn begin(&self, start: &Start) -> Result<Session> {
        let environment = self.project.environment();
        let now = environment.now();
        let today = environment.zone.to_datetime(now.0).date();
        let _common = self.project.common_lock()?;
        // Query git before waiting for the lock of the work tree.
        let prepared = self.ground_of(today)?;
        let _local = self.project.files().lock()?;
        let who = Who {
            now,
            ..self.who(start)
        };
        self.project
            .files()
            .edit::<ActiveSessions, Session>(None, |living| {
                let id = take_place(living, &who, |living| self.fresh(living, today, prepared))?;
                living.get(&id).cloned().ok_or_else(|| {
                    Error::not_found(format!("no session {id} lives in this work tree"))
                })
            })
    }

    /// Returns the caller of a start, and its options.
    pub(super) fn who(&self, start: &Start) -> Who<'_> {
        let environment = self.project.environment();
        Who {
            agent: &environment.agent,
            named: environment.session.as_deref(),
            join: start.join,
            take_over: start.take_over,
            now: environment.now(),
            lease: LEASE,
        }
    }

    /// Collects the facts from git. The caller holds the common lock.
    fn ground_of(&self, today: Date) -> Result<Prepared> {
        let Some(git) = self.git() else {
            return Ok(Prepared::default());
        };
        let mut known = trailers(git, today)?;
        known.extend(last_given(git));
        Ok(Prepared {
            branch: git.branch()?,
            head: git.head()?.map(|head| head.to_string()),
            known,
        })
    }

    fn fresh(&self, living: &ActiveSessions, today: Date, prepared: Prepared) -> Result<Session> {
        let environment = self.project.environment();
        let now = environment.now();
        let Prepared {
            branch,
            head,
            mut known,
        } = prepared;
        known.extend(living.sessions.iter().map(|session| session.id.clone()));
        known.extend(
            self.folders(|_| true)?
                .iter()
                .map(|folder| session_of(folder).to_owned()),
        );
        let id = SessionId::next(today, known.iter().map(String::as_str)).to_string();
        if let Some(git) = self.git() {
            give(git, &id)?;
        }
        Ok(Session {
            id,
            uuid: environment.uuid().to_string(),
            agent: environment.agent.clone(),
            state: State::Starting,
            started_at: now.seconds(),
            branch,
            head,
            ..Session::skeleton()
        })
    }
}

/// Returns the sessions that recent commits name.
fn trailers(git: &Git, today: Date) -> Result<Vec<String>> {
    // One day more on each side than any time zone needs. Names of other days do not count.
    let since = today.saturating_sub(jiff::Span::new().days(2));
    let since = format!("--since={since}T00:00:00Z");
    let format = "--format=%(trailers:key=Forge-Session,valueonly)";
    let output = git.run(&["log", "--all", TRAILERS, &since, format], &Run::default())?;
    // A repository without commits has no trailers.
    Ok(output
        .text()
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect())
}

/// Returns the path of the file with the last session name in any work tree of the repository.
fn last_path(git: &Git) -> PathBuf {
    git.common_dir().join("forge").join("session")
}

fn last_given(git: &Git) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(last_path(git))
        .ok()?
        .take(MAX_NAME)
        .read_to_string(&mut text)
        .ok()?;
    Some(text.trim().to_owned())
}

/// Stores the name for the other work trees, which cannot see it before it is committed.
///
/// The caller holds the common lock. A partial name after a crash is ignored: the record of its
/// session was not written either.
fn give(git: &Git, id: &str) -> Result<()> {
    let path = last_path(git);
    let folder = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, format!("{id}\n")))
        .map_err(|error| Error::io("cannot write", &path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Category;
    use crate::sessions::record::{LEASE, later};

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
        Who {
            agent: "Forge",
            named: None,
            join: false,
            take_over: false,
            now: time(),
            lease: LEASE,
        }
    }

    fn place(living: &mut ActiveSessions, who: &Who<'_>) -> Result<String> {
        take_place(living, who, |_| Ok(session("new", who.agent)))
    }

    #[test]
    fn the_first_start_makes_a_primary_session_and_the_next_is_in_it() {
        let mut living = ActiveSessions::empty();
        assert_eq!(place(&mut living, &who()).unwrap(), "new");
        assert!(living.primary().is_some());
        let later = Who {
            now: later(time(), LEASE),
            ..who()
        };
        assert_eq!(place(&mut living, &later).unwrap(), "new");
        assert_eq!(living.sessions.len(), 1);
        assert_eq!(
            living.sessions[0].seen_at, later.now,
            "its lease is renewed"
        );
    }

    #[test]
    fn another_agent_is_refused_and_told_who_is_there() {
        let mut living = ActiveSessions {
            sessions: vec![session("old", "Axiom")],
            ..ActiveSessions::empty()
        };
        let error = place(&mut living, &who()).unwrap_err();
        assert_eq!(
            (error.category, error.code),
            (Category::Locked, "E_SESSION_LIVE")
        );
        assert!(error.message.contains("session old of Axiom"), "{error}");
        assert_eq!(
            place(
                &mut living,
                &Who {
                    named: Some("old"),
                    ..who()
                }
            )
            .unwrap(),
            "old"
        );
        assert_eq!(
            place(
                &mut living,
                &Who {
                    join: true,
                    ..who()
                }
            )
            .unwrap(),
            "new"
        );
        assert!(!living.get("new").unwrap().primary);
    }

    #[test]
    fn a_session_nobody_works_in_is_given_up_and_taken_up() {
        for (claim, old, who) in [
            (
                "its lease ran out",
                session("old", "Axiom"),
                Who {
                    now: later(time(), 2 * LEASE),
                    ..who()
                },
            ),
            (
                "somebody takes over",
                session("old", "Forge"),
                Who {
                    take_over: true,
                    ..who()
                },
            ),
        ] {
            let mut living = ActiveSessions {
                sessions: vec![old],
                ..ActiveSessions::empty()
            };
            assert_eq!(place(&mut living, &who).unwrap(), "new", "{claim}");
            let (old, new) = (living.get("old").unwrap(), living.get("new").unwrap());
            assert_eq!(
                (old.state, old.abandoned.is_some(), old.ended_at),
                (State::Abandoned, true, Some(who.now))
            );
            assert_eq!(
                (new.primary, new.resumes.as_deref()),
                (true, Some("old")),
                "{claim}"
            );
        }
    }

    #[test]
    fn who_names_a_session_that_is_over_is_told() {
        let over = Session {
            state: State::Abandoned,
            abandoned: Some("no command ran".to_owned()),
            ..session("old", "Forge")
        };
        let mut living = ActiveSessions {
            sessions: vec![over],
            ..ActiveSessions::empty()
        };
        for (named, words) in [
            ("old", "no command ran"),
            ("other", "no session other lives"),
        ] {
            let error = place(
                &mut living,
                &Who {
                    named: Some(named),
                    ..who()
                },
            )
            .unwrap_err();
            assert_eq!(error.category, Category::NotFound);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
