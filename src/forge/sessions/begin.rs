//! The first step of a start: which session it is in, under the lock that all work trees share, so that names are given once.

use std::io::Read as _;
use std::path::PathBuf;

use jiff::civil::Date;

use super::place::{Who, take_place};
use super::record::{ActiveSessions, LEASE, Session, State};
use super::{SessionId, Sessions, Start, session_of};
use crate::error::{Error, Result};
use crate::files::Document as _;
use crate::git::{Git, Run};

/// So many trailers of sessions are looked at.
const TRAILERS: &str = "--max-count=1000";
/// The longest name of a session, in bytes.
const MAX_NAME: u64 = 100;

/// What git knows of a new session.
#[derive(Debug, Default)]
struct Prepared {
    branch: Option<String>,
    head: Option<String>,
    /// The names that were given.
    known: Vec<String>,
}

impl Sessions<'_> {
    /// Finds the session that the start is in, or makes one, and gives up those in which nobody works any more.
    pub(super) fn begin(&self, start: &Start) -> Result<Session> {
        let environment = self.project.environment();
        let now = environment.now();
        let today = environment.zone.to_datetime(now.0).date();
        let _common = self.project.common_lock()?;
        // git is asked before anybody waits for the work tree.
        let prepared = self.ground_of(today)?;
        let _local = self.project.files().lock()?;
        let who = Who { now, ..self.who(start) };
        self.project.files().edit::<ActiveSessions, Session>(None, |living| {
            let id = take_place(living, &who, &|id| self.is_free(id), |living| self.fresh(living, today, prepared))?;
            living.get(&id).cloned().ok_or_else(|| Error::not_found(format!("no session {id} lives in this work tree")))
        })
    }

    /// Returns who starts, and how.
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

    /// Finds out what git knows. The caller holds the common lock.
    fn ground_of(&self, today: Date) -> Result<Prepared> {
        let Some(git) = self.git() else { return Ok(Prepared::default()) };
        let mut known = trailers(git, today)?;
        known.extend(last_given(git));
        Ok(Prepared { branch: git.branch()?, head: git.head()?.map(|head| head.to_string()), known })
    }

    fn fresh(&self, living: &ActiveSessions, today: Date, prepared: Prepared) -> Result<Session> {
        let environment = self.project.environment();
        let now = environment.now();
        let Prepared { branch, head, mut known } = prepared;
        known.extend(living.sessions.iter().map(|session| session.id.clone()));
        known.extend(self.folders(|_| true)?.iter().map(|folder| session_of(folder).to_owned()));
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

/// Returns the sessions that commits of the last days name.
fn trailers(git: &Git, today: Date) -> Result<Vec<String>> {
    // A day more on each side than any zone needs; names of other days do not count.
    let since = today.saturating_sub(jiff::Span::new().days(2));
    let since = format!("--since={since}T00:00:00Z");
    let format = "--format=%(trailers:key=Forge-Session,valueonly)";
    let output = git.run(&["log", "--all", TRAILERS, &since, format], &Run::default())?;
    // A repository without commits has none.
    Ok(output.text().lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// Where the name stands that was given last in any work tree of the repository.
fn last_path(git: &Git) -> PathBuf {
    git.common_dir().join("forge").join("session")
}

fn last_given(git: &Git) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(last_path(git)).ok()?.take(MAX_NAME).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

/// Keeps the name for the other work trees: until it is committed they cannot see it. The caller holds the common lock. Half a
/// name, left by a crash, is none; the record of its session was not written then either.
fn give(git: &Git, id: &str) -> Result<()> {
    let path = last_path(git);
    let folder = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, format!("{id}\n")))
        .map_err(|error| Error::io("cannot write", &path, &error))
}
