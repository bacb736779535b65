//! Work sessions, their progress, and the events of the project.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::Code;
use helmdeck_forge::events::{Events, Replay, Replayed};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::{Subject, view};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PageQuery, ProjectState};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;
use crate::rest::reply::{Problems, json as answer};
use crate::rest::request::{Params, PathValues, page_size};

const PACK: &str = "forge.prime";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(progress))
        .routes(routes!(progress_of))
        .routes(routes!(events))
}

/// Lists the work sessions of the work tree as `helmdeck forge status` does. It renews none of
/// them.
#[utoipa::path(get, path = "/api/v1/project/sessions", tag = "project", operation_id = "project_sessions",
    responses((status = 200, description = "The sessions", body = ref("#/components/schemas/ProjectSessions")), Problems))]
async fn list(State(state): State<ProjectState>, By(caller): By) -> Result<Response, Problem> {
    let read = state.read(&caller, PACK, |project| {
        let sessions = Sessions::new(project).seen()?.sessions;
        let advice = Sessions::new(project).advice()?;
        Ok(json!({ "sessions": sessions, "checkpoint_advised": advice }))
    });
    answer(&read.await?)
}

/// Returns the progress of the current session, and the sessions whose progress is archived, newest
/// first.
#[utoipa::path(get, path = "/api/v1/project/progress", tag = "project", operation_id = "project_progress",
    params(PageQuery),
    responses((status = 200, description = "The progress", body = ref("#/components/schemas/ProjectProgress")), Problems))]
async fn progress(
    State(state): State<ProjectState>,
    By(caller): By,
    page: Params<PageQuery>,
) -> Result<Response, Problem> {
    let wanted = page.read()?.wanted()?;
    answer(
        &state
            .read(&caller, PACK, move |project| {
                view::progress(project, &wanted)
            })
            .await?,
    )
}

/// Returns the archived progress of a session.
#[utoipa::path(get, path = "/api/v1/project/progress/{session}", tag = "project", operation_id = "project_progress_of",
    params(("session" = String, Path, description = "The name of the session")),
    responses((status = 200, description = "The progress", body = ref("#/components/schemas/ProjectLog")), Problems))]
async fn progress_of(
    State(state): State<ProjectState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let session = path.value("session").to_owned();
    let name = session.clone();
    let log = state
        .read(&caller, PACK, move |project| {
            view::progress_of(project, &session)
        })
        .await?;
    answer(&log.ok_or_else(|| {
        Problem::new(
            Code::NotFound,
            format!("no progress of {name:?} is archived"),
        )
    })?)
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    /// Only events after this sequence number
    #[serde(default)]
    #[param(value_type = Option<u64>)]
    after: u64,
    /// Only events of this subject, such as `commit`
    about: Option<String>,
    /// Only events of this session
    session: Option<String>,
    /// 1 to 1000, the newest; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
}

/// Events, and where to go on.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct EventTail {
    #[serde(flatten)]
    replayed: Replayed,
    /// Sequence number of the newest event here; pass it as `after` to get later ones.
    seq: u64,
}

/// Returns the newest events of the journal, oldest first. With `after`, those that follow a
/// sequence number.
#[utoipa::path(get, path = "/api/v1/project/events", tag = "project", operation_id = "project_events",
    params(EventQuery),
    responses((status = 200, description = "The events", body = ref("#/components/schemas/ProjectEvents")), Problems))]
async fn events(
    State(state): State<ProjectState>,
    By(caller): By,
    query: Params<EventQuery>,
) -> Result<Response, Problem> {
    let query = query.read()?;
    let about = match query.about.filter(|about| !about.is_empty()) {
        None => Vec::new(),
        Some(word) => vec![
            serde_json::from_value::<Subject>(Value::String(word)).map_err(|_| {
                Problem::new(Code::InvalidInput, "about is a subject that events have")
            })?,
        ],
    };
    let replay = Replay {
        after: query.after,
        about,
        session: query.session.filter(|session| !session.is_empty()),
        last: Some(page_size(query.limit)?),
        ..Replay::default()
    };
    let read = state.read(&caller, PACK, move |project| {
        let replayed = Events::new(project).replay(&replay)?;
        let seq = replayed
            .events
            .iter()
            .map(|event| event.seq)
            .max()
            .unwrap_or(replay.after);
        Ok(EventTail { replayed, seq })
    });
    answer(&read.await?)
}
