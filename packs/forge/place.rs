//! Opens the project for one call, and maps its errors.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use helmdeck_core::{Code, Context, Error, Handler, Identity, Json, Reply, Result};
use helmdeck_forge::error::Error as ProjectError;
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::verb;
use helmdeck_forge::{Project, ProjectEnvironment};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::Config;

/// A result of the project.
pub(super) type Done<T> = Result<T, ProjectError>;

/// Opens the project for a caller.
#[derive(Clone)]
pub(super) struct ProjectOpener(Arc<Config>);

impl ProjectOpener {
    pub(super) fn new(config: Config) -> Self {
        Self(Arc::new(config))
    }

    /// Opens the project. Blocks.
    fn open(
        &self,
        caller: &Identity,
        session: Option<String>,
        settings: Settings,
    ) -> Result<Project> {
        let Some(root) = &self.0.root else {
            return Err(Error::new(
                Code::NotFound,
                "no project: start helmdeck in its folder, or name the folder in the configuration, [forge] root \
                 (HELMDECK_FORGE__ROOT)",
            ));
        };
        let base = &self.0.environment;
        let environment = if is_local(caller) {
            ProjectEnvironment {
                session: session.or_else(|| base.session.clone()),
                ..base.clone()
            }
        } else {
            ProjectEnvironment {
                agent: caller.user().to_owned(),
                session,
                ..base.clone()
            }
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

/// Returns whether the caller is the local user.
fn is_local(caller: &Identity) -> bool {
    let local = Identity::local();
    !caller.is_anonymous() && (caller.tenant(), caller.user()) == (local.tenant(), local.user())
}

/// Policy for damaged settings of the project.
#[derive(Debug, Clone, Copy)]
enum Settings {
    /// Refuse: they are needed.
    Needed,
    /// Use the defaults; a reader sees the damage in the answer.
    OrDefaults,
}

/// A handler: parses its input and works on the project on a blocking thread.
pub(super) struct Verb<I, O> {
    place: ProjectOpener,
    work: fn(&Project, I) -> Done<O>,
    /// Whether the input may name a work session.
    in_session: bool,
    settings: Settings,
    /// Whether a call renews the session's sign of life.
    lives: bool,
    /// Whether the call fails after the session ended.
    changes: bool,
}

impl<I, O> Verb<I, O> {
    pub(super) fn new(place: &ProjectOpener, work: fn(&Project, I) -> Done<O>) -> Self {
        Self {
            place: place.clone(),
            work,
            in_session: false,
            settings: Settings::Needed,
            lives: true,
            changes: false,
        }
    }

    /// Takes the work session from the member `session`.
    pub(super) fn in_session(self) -> Self {
        Self {
            in_session: true,
            ..self
        }
    }

    /// Accepts damaged settings.
    pub(super) fn or_defaults(self) -> Self {
        Self {
            settings: Settings::OrDefaults,
            ..self
        }
    }

    /// Changes something, so the session must not have ended.
    pub(super) fn changing(self) -> Self {
        Self {
            changes: true,
            ..self
        }
    }

    /// Changes nothing, not even the session's last sign of life.
    pub(super) fn quiet(self) -> Self {
        Self {
            lives: false,
            ..self
        }
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
            return Err(Error::new(
                Code::Unauthenticated,
                "the memory of a project is only for callers who are known",
            ));
        }
        let (session, input) = if self.in_session {
            crate::take_session(input)?
        } else {
            (None, input)
        };
        let input: I = input.read()?;
        let (place, work, settings) = (self.place.clone(), self.work, self.settings);
        let (lives, changes) = (self.lives, self.changes);
        let (caller, wait) = (Arc::clone(&context.identity), Wait::of(&context));
        // A started change is finished even if the caller goes away.
        crate::blocking(move || {
            wait.check()?;
            let project = place.open(&caller, session, settings)?;
            wait.check()?;
            if changes {
                Sessions::new(&project)
                    .check_not_over()
                    .map_err(|error| said(&error))?;
            }
            if lives {
                Sessions::new(&project).renew_lease();
            }
            let done = work(&project, input).map_err(|error| said(&error));
            if lives {
                Sessions::new(&project).renew_lease();
            }
            done
        })
        .await
    }
}

/// A handler: runs a verb of the project on a blocking thread.
pub(super) struct Runs<V> {
    place: ProjectOpener,
    verb: PhantomData<fn() -> V>,
}

impl<V: verb::Verb> Runs<V> {
    pub(super) fn new(place: &ProjectOpener) -> Self {
        Self {
            place: place.clone(),
            verb: PhantomData,
        }
    }
}

#[async_trait]
impl<V: verb::Verb> Handler for Runs<V> {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        if context.identity.is_anonymous() {
            return Err(Error::new(
                Code::Unauthenticated,
                "the memory of a project is only for callers who are known",
            ));
        }
        let verb: V = input.read()?;
        let place = self.place.clone();
        let (caller, wait) = (Arc::clone(&context.identity), Wait::of(&context));
        let settings = match V::WITH_DAMAGED_SETTINGS {
            true => Settings::OrDefaults,
            false => Settings::Needed,
        };
        // A started change is finished even if the caller goes away.
        crate::blocking(move || {
            wait.check()?;
            let session = verb.session().map(str::to_owned);
            let mut project = place.open(&caller, session, settings)?;
            if V::ACCESS == verb::Access::Observe {
                project = project.reading();
            }
            wait.check()?;
            verb::call(&project, verb).map_err(|error| said(&error))
        })
        .await
    }
}

/// Until when the caller waits.
struct Wait {
    deadline: Option<Instant>,
    cancel: Option<CancellationToken>,
}

impl Wait {
    fn of(context: &Context) -> Self {
        Self {
            deadline: context.deadline,
            cancel: context.cancel.clone(),
        }
    }

    /// Returns whether it is worth starting.
    fn check(&self) -> Result<()> {
        if self
            .cancel
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
        {
            return Err(Error::new(
                Code::Cancelled,
                "cancelled before anything was done",
            ));
        }
        if self
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
        {
            return Err(Error::new(
                Code::Timeout,
                "the deadline passed before anything was done",
            ));
        }
        Ok(())
    }
}

/// Maps an error of the project: with its code and what to do.
pub(super) fn said(error: &ProjectError) -> Error {
    error.into()
}

/// Input of packs without parameters.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}
