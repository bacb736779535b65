//! Routes of a project: the memory in its `.forge/`, and the changes that people make on a page.
//!
//! They call the same functions as `helmdeck forge`, so items have the JSON of the command line. A
//! caller may read what the pack of the same name would return to it. Reading writes nothing, also
//! not the lease of a session. No route runs a program of the project.

mod artifacts;
mod change;
mod features;
mod git;
mod health;
mod knowledge;
mod measured;
mod recovery;
mod sessions;
mod shapes;
mod skills;
#[cfg(test)]
pub(crate) mod tests;
mod tracker;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use helmdeck_core::{Caller, Code, Error, Identity, PackName};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::view::PageRequest;
use helmdeck_forge::{Project, ProjectEnvironment};
use serde::Deserialize;
use tokio::sync::{Semaphore, oneshot, watch as channel};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;

use super::request::page_size;
use super::state::RequestLimits;
use crate::access::need_run;
use crate::app::App;
use crate::problem::Problem;

use measured::Measured;
pub(crate) use shapes::schemas;
use watch::ProjectWatch;

/// Limit of requests that read a project at once: each may start several processes of git.
const READERS: usize = 8;

/// Settings of the project routes.
#[derive(Debug, Clone, Default)]
pub struct ProjectSettings {
    /// A folder of the project. `None` = every route answers `not_found` and says what to set.
    pub root: Option<PathBuf>,
    /// The clock, time zone, id generator, and connections to event servers.
    ///
    /// The caller is the one who works. The local caller gets the name from here.
    pub environment: ProjectEnvironment,
}

/// Work on a project. Boxed: the program has what runs it once for each type of answer, not for
/// each route.
type ProjectWork<T> = Box<dyn FnOnce(&Project) -> helmdeck_forge::Result<T> + Send>;

/// State for the routes of a project.
#[derive(Debug, Clone)]
pub(crate) struct ProjectState {
    settings: Arc<ProjectSettings>,
    limits: RequestLimits,
    readers: Arc<Semaphore>,
    watch: ProjectWatch,
    measured: Measured,
}

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .merge(health::routes())
        .merge(features::routes())
        .merge(knowledge::routes())
        .merge(sessions::routes())
        .merge(git::routes())
        .merge(recovery::routes())
        .merge(skills::routes())
        .merge(artifacts::routes())
        .merge(tracker::routes())
        .merge(change::routes())
}

impl ProjectState {
    pub(crate) fn new(settings: ProjectSettings, limits: RequestLimits) -> Self {
        let settings = Arc::new(settings);
        let watch = ProjectWatch::new(Arc::clone(&settings));
        Self {
            settings,
            limits,
            readers: Arc::new(Semaphore::new(READERS)),
            watch,
            measured: Measured::default(),
        }
    }

    /// Follows changes of the project, if the caller may see its health. The number grows with each
    /// change.
    pub(crate) fn follow(&self, caller: &Caller) -> Result<channel::Receiver<u64>, Problem> {
        check(caller, health::PACK)?;
        Ok(self.watch.follow())
    }

    /// Reads the project, if the caller may run the pack that returns the same. Writes nothing.
    async fn read<T: Send + 'static>(
        &self,
        caller: &Caller,
        pack: &str,
        work: impl FnOnce(&Project) -> helmdeck_forge::Result<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.read_boxed(caller, pack, Box::new(work)).await
    }

    async fn read_boxed<T: Send + 'static>(
        &self,
        caller: &Caller,
        pack: &str,
        work: ProjectWork<T>,
    ) -> Result<T, Problem> {
        check(caller, pack)?;
        let (settings, caller) = (Arc::clone(&self.settings), caller.clone());
        self.blocking(move || {
            let environment = ProjectEnvironment {
                links: None,
                ..environment(&settings, &caller.identity)
            };
            let project =
                opened(&settings, |root| Project::open_anyway(root, environment))?.reading();
            Ok(work(&project).map_err(|error| Error::from(&error))?)
        })
        .await
    }

    /// Changes the project, if the caller may run the pack that does the same.
    async fn change<T: Send + 'static>(
        &self,
        caller: &Caller,
        pack: &str,
        work: impl FnOnce(&Project) -> helmdeck_forge::Result<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.change_boxed(caller, pack, Box::new(work)).await
    }

    async fn change_boxed<T: Send + 'static>(
        &self,
        caller: &Caller,
        pack: &str,
        work: ProjectWork<T>,
    ) -> Result<T, Problem> {
        check(caller, pack)?;
        let (settings, caller, measured) = (
            Arc::clone(&self.settings),
            caller.clone(),
            self.measured.clone(),
        );
        self.blocking(move || {
            let environment = environment(&settings, &caller.identity);
            let project = opened(&settings, |root| Project::open(root, environment))?;
            let done = Sessions::new(&project)
                .check_not_over()
                .and_then(|()| work(&project));
            measured.forget();
            Ok(done.map_err(|error| Error::from(&error))?)
        })
        .await
    }

    /// Runs work that blocks. Work that was begun ends, also if its caller goes away.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (reply, mut answer) = oneshot::channel();
        self.blocking_task(Box::new(move || drop(reply.send(work()))))
            .await?;
        answer
            .try_recv()
            .map_err(|_| Problem::new(Code::Internal, "reading the project gave no answer"))?
    }

    /// As [`Self::blocking`], without a type of the answer: the program has this once, and not for
    /// each route.
    async fn blocking_task(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Problem> {
        let readers = Arc::clone(&self.readers);
        let done = async {
            let stopped = |_| Problem::new(Code::Internal, "the server is stopping");
            let permit = readers.acquire_owned().await.map_err(stopped)?;
            let task = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                work();
            });
            let failed =
                |error| Error::new(Code::Internal, "reading the project failed").with_source(error);
            Ok(task.await.map_err(failed)?)
        };
        self.limits.in_time(done).await?
    }
}

/// Refuses a caller without a token, and one that may not run a pack.
fn check(caller: &Caller, pack: &str) -> Result<(), Problem> {
    let name = PackName::new(pack).map_err(|error| Error::new(Code::Internal, error))?;
    need_run(caller, &name)?;
    if caller.identity.is_anonymous() {
        return Err(Problem::new(
            Code::Unauthenticated,
            "the memory of a project is for known callers only",
        ));
    }
    Ok(())
}

/// Returns the environment of the project for a caller: other callers than the local one act under
/// their own name.
fn environment(settings: &ProjectSettings, caller: &Identity) -> ProjectEnvironment {
    let local = Identity::local();
    let base = settings.environment.clone();
    if (caller.tenant(), caller.user()) == (local.tenant(), local.user()) {
        return base;
    }
    ProjectEnvironment {
        agent: caller.user().to_owned(),
        session: None,
        ..base
    }
}

/// Opens the project of the settings.
fn opened(
    settings: &ProjectSettings,
    open: impl FnOnce(&std::path::Path) -> helmdeck_forge::Result<Option<Project>>,
) -> Result<Project, Problem> {
    let Some(root) = &settings.root else {
        let detail = "no project: start the server in its folder, or name the folder in the configuration, [forge] root \
                      (HELMDECK_FORGE__ROOT)";
        return Err(Problem::new(Code::NotFound, detail));
    };
    let found = open(root).map_err(|error| Error::from(&error))?;
    found.ok_or_else(|| {
        let detail = format!(
            "no project with a .forge/ is at {}: make one there with `helmdeck forge init`, or set [forge] root",
            root.display()
        );
        Problem::new(Code::NotFound, detail)
    })
}

/// Which page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

impl PageQuery {
    fn wanted(self) -> Result<PageRequest, Problem> {
        wanted(self.limit, self.after)
    }
}

fn wanted(limit: Option<usize>, after: Option<String>) -> Result<PageRequest, Problem> {
    Ok(PageRequest {
        after: after.filter(|after| !after.is_empty()),
        limit: page_size(limit)?,
    })
}
