//! Opens the project for one call, and maps its errors.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use helmdeck_core::{Code, Context, Error, Handler, Identity, Json, Reply, Result};
use helmdeck_forge::verb;
use helmdeck_forge::{Project, ProjectEnvironment};
use tokio_util::sync::CancellationToken;

use super::Config;

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
        with_damaged_settings: bool,
    ) -> Result<Project> {
        let Some(root) = &self.0.root else {
            return Err(Error::new(
                Code::NotFound,
                "no project: start helmdeck in its folder, or name the folder in the configuration, [forge] root \
                 (HELMDECK_FORGE__ROOT)",
            ));
        };
        let base = ProjectEnvironment {
            may_name_tests: self.0.run,
            ..self.0.environment.clone()
        };
        let environment = if is_local(caller) {
            ProjectEnvironment {
                session: session.or_else(|| base.session.clone()),
                ..base
            }
        } else {
            ProjectEnvironment {
                agent: caller.user().to_owned(),
                session,
                ..base
            }
        };
        let project = match with_damaged_settings {
            false => Project::open(root, environment),
            true => Project::open_anyway(root, environment),
        };
        project.map_err(|error| Error::from(&error))?.ok_or_else(|| {
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
        // A started change is finished even if the caller goes away.
        crate::blocking(move || {
            wait.check()?;
            let session = verb.session().map(str::to_owned);
            let mut project = place.open(&caller, session, V::WITH_DAMAGED_SETTINGS)?;
            if V::ACCESS == verb::Access::Observe {
                project = project.reading();
            }
            wait.check()?;
            verb::call(&project, verb).map_err(|error| Error::from(&error))
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
