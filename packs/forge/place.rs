//! The project, opened for one call, and what its errors are called at the transports.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use helmdeck_core::{Code, Context, Error, Handler, Identity, Json, Reply, Result, schema};
use helmdeck_forge::error::{Category, Error as ProjectError};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::{Project, ProjectEnvironment};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::Config;

/// A result of the project.
pub(super) type Done<T> = Result<T, ProjectError>;

/// Where the project is.
#[derive(Clone)]
pub(super) struct ProjectOpener(Arc<Config>);

impl ProjectOpener {
    pub(super) fn new(config: Config) -> Self {
        Self(Arc::new(config))
    }

    /// Opens the project. Blocks.
    fn open(&self, caller: &Identity, session: Option<String>, settings: Settings) -> Result<Project> {
        let Some(root) = &self.0.root else {
            return Err(Error::new(
                Code::NotFound,
                "no project is set: name its folder in the configuration, [forge] root (HELMDECK_FORGE__ROOT)",
            ));
        };
        let base = &self.0.environment;
        let environment = if is_local(caller) {
            ProjectEnvironment { session: session.or_else(|| base.session.clone()), ..base.clone() }
        } else {
            ProjectEnvironment { agent: caller.user().to_owned(), session, ..base.clone() }
        };
        let project = match settings {
            Settings::Needed => Project::open(root, environment),
            Settings::OrDefaults => Project::open_anyway(root, environment),
        };
        project.map_err(|error| said(&error))?.ok_or_else(|| {
            let message = format!(
                "no project with a .forge/ is at {}: make one there with `helmdeck forge init`, or set [forge] root",
                root.display()
            );
            Error::new(Code::NotFound, message).for_operator()
        })
    }
}

/// Says whether a caller is who runs this program.
fn is_local(caller: &Identity) -> bool {
    let local = Identity::local();
    !caller.is_anonymous() && (caller.tenant(), caller.user()) == (local.tenant(), local.user())
}

/// What is done if the settings of the project are damaged.
#[derive(Debug, Clone, Copy)]
enum Settings {
    /// Nothing: they are needed.
    Needed,
    /// Each has its default: whoever looks is told of the damage.
    OrDefaults,
}

/// A pack: reads its input, and does its work on the project, on a thread that may wait.
pub(super) struct Verb<I, O> {
    place: ProjectOpener,
    work: fn(&Project, I) -> Done<O>,
    /// Whether the input may name the session in which the work is done.
    in_session: bool,
    settings: Settings,
    /// Whether a call shows that the session lives.
    lives: bool,
    /// Whether a session that is over takes it no more.
    changes: bool,
}

impl<I, O> Verb<I, O> {
    pub(super) fn new(place: &ProjectOpener, work: fn(&Project, I) -> Done<O>) -> Self {
        Self { place: place.clone(), work, in_session: false, settings: Settings::Needed, lives: true, changes: false }
    }

    /// Takes `session` of the input for the session in which the work is done.
    pub(super) fn in_session(self) -> Self {
        Self { in_session: true, ..self }
    }

    /// Works also if the settings are damaged.
    pub(super) fn or_defaults(self) -> Self {
        Self { settings: Settings::OrDefaults, ..self }
    }

    /// Changes something, and so nothing in the name of a session that is over.
    pub(super) fn changing(self) -> Self {
        Self { changes: true, ..self }
    }

    /// Changes nothing at all, not even when the session was last seen.
    pub(super) fn quiet(self) -> Self {
        Self { lives: false, ..self }
    }
}

#[async_trait]
impl<I, O> Handler for Verb<I, O>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
{
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        if context.identity.is_anonymous() {
            return Err(Error::new(Code::Unauthenticated, "the memory of a project is only for callers who are known"));
        }
        let (session, input) = if self.in_session { without_session(input)? } else { (None, input) };
        let input: I = input.read()?;
        let (place, work, settings) = (self.place.clone(), self.work, self.settings);
        let (lives, changes) = (self.lives, self.changes);
        let (caller, wait) = (Arc::clone(&context.identity), Wait::of(&context));
        // Whoever goes away meanwhile does not cut it short: what was begun is done to its end, as it would be at a shell.
        let done = tokio::task::spawn_blocking(move || {
            wait.check()?;
            let project = place.open(&caller, session, settings)?;
            wait.check()?;
            if changes {
                Sessions::new(&project).check_not_over().map_err(|error| said(&error))?;
            }
            if lives {
                Sessions::new(&project).lives();
            }
            let done = work(&project, input).map_err(|error| said(&error));
            if lives {
                Sessions::new(&project).lives();
            }
            done
        });
        let done = done
            .await
            .map_err(|error| Error::new(Code::Internal, "the work came to a sudden end").with_source(error))?;
        Reply::value(&done?)
    }
}

/// Takes the session off an input.
fn without_session(input: Json) -> Result<(Option<String>, Json)> {
    let read = |text: String| {
        Json::parse(text)
            .map_err(|error| Error::new(Code::Internal, "a part of the input is no JSON").with_source(error))
    };
    match schema::take_member(input.as_str(), "session") {
        Some((session, rest)) => Ok((Some(read(session)?.read()?), read(rest)?)),
        None => Ok((None, input)),
    }
}

/// Until when somebody waits.
struct Wait {
    deadline: Option<Instant>,
    cancel: Option<CancellationToken>,
}

impl Wait {
    fn of(context: &Context) -> Self {
        Self { deadline: context.deadline, cancel: context.cancel.clone() }
    }

    /// Says whether it is still worth to begin.
    fn check(&self) -> Result<()> {
        if self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Err(Error::new(Code::Cancelled, "cancelled before anything was done"));
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::new(Code::Timeout, "the deadline passed before anything was done"));
        }
        Ok(())
    }
}

/// Returns an error of the project as a transport tells it: with its own code, and what to do.
pub(super) fn said(error: &ProjectError) -> Error {
    let code = match error.category {
        _ if error.code == "E_TOO_LARGE" => Code::TooLarge,
        Category::Usage | Category::Secret => Code::InvalidInput,
        Category::NotFound => Code::NotFound,
        Category::Refused | Category::Paused => Code::Forbidden,
        Category::Locked | Category::Stale | Category::Unknown => Code::Conflict,
        Category::Failed => Code::HandlerFailed,
        // Calling again changes nothing about it.
        Category::Corrupt => Code::Internal,
    };
    let mut message = format!("{} ({})", error.message, error.code);
    if let Some(hint) = &error.hint {
        message.push_str("; ");
        message.push_str(hint);
    }
    if let Some(next) = &error.next {
        message.push_str("; next, at a shell: ");
        message.push_str(next);
    }
    Error::new(code, message)
}

/// The input of packs that want to know nothing.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}
