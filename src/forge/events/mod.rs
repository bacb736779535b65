//! Events of the memory, in order.
//!
//! Each event is written to the journal of the work tree, and sent to a server if one is
//! configured. It is emitted after the change is written, and never delays it.

pub mod data;
mod envelope;
mod journal;
mod outbox;
mod read;
pub mod subjects;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use helmdeck_events::Sink;
use serde::Serialize;

pub use envelope::{Envelope, MOST_BYTES};
pub use outbox::{Drained, MOST_WAITING};
pub use read::{Gap, Replay, Replayed};
pub use subjects::Subject;

use crate::error::{Category, Error, Result};
use crate::files::{self, Guard};
use crate::git::Git;
use crate::json::Json;
use crate::layout::CONFIG;
use crate::project::Project;
use crate::sessions::Sessions;
use crate::trust;

/// Longest time that a command waits for the event server.
pub const CAP: Duration = Duration::from_millis(250);

/// Back-off: no command contacts the server for this long after a timeout.
const REST: Duration = Duration::from_secs(30);
/// Refused events after which a command stops sending.
const MOST_REFUSED: usize = 16;

/// Error text if a server is configured, but this program was built without support for it.
const NOT_BUILT: &str = "this program was built without support for event servers (feature `nats`)";
/// Error text if no server is configured.
const NO_SERVER: &str = "no event server is configured";

/// How often the lock of the project is tried, for its usual time each.
const LOCK_TRIES: u32 = 4;

/// Number of characters of the path's hash that make a work tree's name unique.
const TELLING: usize = 8;
/// Maximum length of a folder name in an event, in characters.
const LONGEST: usize = 40;

/// The events of a project.
#[derive(Debug, Clone, Copy)]
pub struct Events<'a> {
    project: &'a Project,
}

/// Emits an event after a change was written.
///
/// The event is in the journal afterwards. The server gets it now, or later if it does not answer
/// within 250 ms. Emitting never fails: an event that cannot be written is logged.
pub fn emit(project: &Project, subject: Subject, data: impl Serialize) {
    Events::new(project).say(subject, None, &data);
}

/// Emits an event of a session that need not be the current one: an abandoned or ended one.
pub fn emit_of(project: &Project, session: &str, subject: Subject, data: impl Serialize) {
    Events::new(project).say(subject, Some(session), &data);
}

impl<'a> Events<'a> {
    /// Returns the events of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }

    fn say(&self, subject: Subject, session: Option<&str>, data: &impl Serialize) {
        if let Err(error) = self.tell(subject, session, data) {
            tracing::warn!(%subject, %error, "an event was not emitted");
        }
    }

    fn tell(&self, subject: Subject, session: Option<&str>, data: &impl Serialize) -> Result<()> {
        let project = self.project;
        let files = project.files();
        // A payload that cannot be serialised is a bug here. Emit the event all the same.
        let data = serde_json::to_vec(data)
            .and_then(|bytes| serde_json::from_slice(&bytes))
            .unwrap_or(Json::Null);
        let last = journal::last(files)?;
        // Query git before taking the lock.
        let mut event = self.event(subject, session, data, last.as_ref());
        let guard = lock(project)?;
        // Another process may have added events since.
        event.seq = outbox::catch_up(files)?.map_or(1, |last| last.seq.saturating_add(1));
        let environment = project.environment();
        event.ts = environment.now();
        event.id = environment.ids.uuid(event.ts);
        let (_, line) = event.line();
        if environment.sink.is_some() || project.config().events.server.is_some() {
            // Write the outbox first: if this process dies here, the journal catches up from it.
            outbox::add(files, &line)?;
        }
        journal::add(files, &line)?;
        drop(guard);
        let now = millis(environment.clock.monotonic());
        if now >= project.server_rests.load(Ordering::Relaxed)
            && let Ok(sink) = self.sink()
        {
            let (drained, waited) =
                outbox::drain(files, environment, sink.as_ref(), CAP, MOST_REFUSED)?;
            if waited {
                // A command that emits several events does not wait for the server each time.
                project
                    .server_rests
                    .store(now.saturating_add(millis(REST)), Ordering::Relaxed);
            }
            if let Some(error) = drained.error {
                tracing::debug!(%subject, error, waiting = drained.waiting, "events wait for the server");
            }
        }
        Ok(())
    }

    /// Makes an event without time and number. What git cannot tell is left out, so that the event
    /// is not lost.
    fn event(
        &self,
        subject: Subject,
        session: Option<&str>,
        data: Json,
        last: Option<&Envelope>,
    ) -> Envelope {
        let project = self.project;
        let git = project.git().ok();
        let ask = |question: fn(&Git) -> Option<String>| git.and_then(question);
        Envelope {
            v: 1,
            kind: subject.redux(),
            subject: subject.with(self.prefix()),
            // It never changes, and finding it is slow.
            repo: last.and_then(|last| last.repo.clone()).or_else(|| {
                ask(|git| {
                    git.root_commit()
                        .ok()
                        .flatten()
                        .map(|commit| commit.to_string())
                })
            }),
            worktree: worktree(project),
            branch: ask(|git| git.branch().ok().flatten()),
            head: ask(|git| git.head().ok().flatten().map(|commit| commit.to_string())),
            session: session.map(ToOwned::to_owned).or_else(|| current(project)),
            agent: project.environment().agent.clone(),
            data,
            ..Envelope::default()
        }
    }

    /// Sends the events in the outbox, oldest first, for at most `within`. Without a server it
    /// sends none.
    ///
    /// # Errors
    /// `Locked`; `Failed` if the outbox file cannot be read or written.
    pub fn drain(&self, within: Duration) -> Result<Drained> {
        let files = self.project.files();
        match self.sink() {
            Ok(sink) => {
                let (drained, _) = outbox::drain(
                    files,
                    self.project.environment(),
                    sink.as_ref(),
                    within,
                    usize::MAX,
                )?;
                Ok(drained)
            }
            Err(error) => {
                let waiting = outbox::read(files)?;
                let (waiting, dropped) = (waiting.waiting.len() as u64, waiting.dropped);
                Ok(Drained {
                    sent: 0,
                    waiting,
                    dropped,
                    error: Some(error.message),
                })
            }
        }
    }

    /// Returns the sink of this project. A clone that is not trusted gets none of the user's
    /// servers.
    ///
    /// # Errors
    /// `NotFound` (`E_NO_SERVER`) without a server; `Failed` (`E_NOT_BUILT`) if this program cannot
    /// reach servers; `Refused` (`E_UNTRUSTED`).
    fn sink(&self) -> Result<Arc<dyn Sink>> {
        let environment = self.project.environment();
        if let Some(sink) = &environment.sink {
            return Ok(Arc::clone(sink));
        }
        let Some(server) = &self.project.config().events.server else {
            let hint = format!(
                "define [forge.events.NAME] in your helmdeck.toml, and [events] use = \"NAME\" in {CONFIG}"
            );
            return Err(Error::new(Category::NotFound, "E_NO_SERVER", NO_SERVER).hint(hint));
        };
        let Some(links) = &environment.links else {
            return Err(Error::new(Category::Failed, "E_NOT_BUILT", NOT_BUILT).hint(
                "install it with `--features nats`; `events` without --server reads the journal",
            ));
        };
        trust::check(self.project)?;
        Ok(links.link(server, self.prefix()))
    }

    /// Returns what is wrong with the settings, as far as a local check can tell.
    ///
    /// Wrong settings stop nothing: events still go to the journal and wait in the outbox.
    #[must_use]
    pub fn wrong_settings(&self) -> Option<String> {
        let prefix = subjects::check_prefix(&self.project.config().events.prefix).err();
        let prefix = prefix.map(|error| {
            format!(
                "{}; {} stands in its place",
                error.message,
                subjects::PREFIX
            )
        });
        prefix.or_else(|| match self.sink() {
            Ok(sink) => sink.check().err().map(|error| error.to_string()),
            Err(error) if error.code == "E_NO_SERVER" => None,
            Err(error) => Some(format!("{}; events stay in the outbox", error.message)),
        })
    }

    /// Returns the subject prefix of this project: the default prefix if the configured one is
    /// invalid.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.project.config().events.valid_prefix()
    }
}

/// Takes the lock of a project. The change of the event is made, so this waits longer than other
/// work does.
fn lock(project: &Project) -> Result<Guard> {
    let mut tries = 1;
    loop {
        match project.files().lock() {
            Err(error) if error.category == Category::Locked && tries < LOCK_TRIES => tries += 1,
            taken => return taken,
        }
    }
}

fn current(project: &Project) -> Option<String> {
    Sessions::new(project)
        .current()
        .ok()
        .flatten()
        .map(|session| session.id)
}

/// Names a work tree without exposing its path.
fn worktree(project: &Project) -> String {
    let path = project.root();
    let name: String = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect();
    let telling = files::etag(path.as_os_str().as_encoded_bytes());
    format!("{name}-{}", &telling[..TELLING.min(telling.len())])
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
