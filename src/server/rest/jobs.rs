//! Routes of jobs: start, show, get the result, cancel. The stream of events is in `events`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use helmdeck_core::{Call, Caller, Code, Error, Identity};
use helmdeck_engine::{Job, JobId, JobQuery, JobState};
use http::header::{CACHE_CONTROL, LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::cache_headers;
use super::call::{CallRequest, without_suggestion};
use super::prefer::{self, Prefer};
use super::reply::{self, Problems, json};
use super::request::{Params, PathValues};
use super::state::{CallState, EngineState};
use crate::access::{By, need_run, need_token, reach};
use crate::app::App;
use crate::headers::NO_STORE;
use crate::idempotency::{self, Begun, Operation};
use crate::problem::Problem;

/// `Retry-After` of a job that has not ended, in seconds.
const RETRY: HeaderValue = HeaderValue::from_static("2");

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(start))
        .routes(routes!(list))
        .routes(routes!(show, cancel))
        .routes(routes!(result))
        .routes(routes!(progress))
}

/// Starts a pack as a job. The request body is its input; an invalid input is refused at once.
///
/// The job goes on if the client hangs up. With `Idempotency-Key`, a repeat gets the same job.
#[utoipa::path(post, path = "/api/v1/packs/{name}/jobs", tag = "jobs", operation_id = "start_job",
    params(
        ("name" = String, Path, description = "The pack's name, for example `github.list_issues`"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters; kept for 24 hours"),
        ("Prefer" = Option<String>, Header, description = "`wait=<seconds>`: wait for the outcome for so long (RFC 7240)"),
    ),
    request_body(content = ref("#/components/schemas/Input"), content_type = "application/json", description = "The input"),
    responses(
        (status = 202, description = "The job; `Location` is its address", body = ref("#/components/schemas/Job")),
        (status = 200, description = "The outcome, if the caller waited and it was there in time", body = ref("#/components/schemas/Outcome")),
        Problems,
    ))]
async fn start(
    State(state): State<CallState>,
    By(caller): By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let asked = CallRequest::read(&state.engine, &caller, &path, request).await?;
    run(&state, &caller, asked).await
}

/// Answers a call that runs as a job: with the job, or with its outcome.
///
/// The outcome is returned if the caller waits and the job ends in time.
pub(super) async fn run(
    state: &CallState,
    caller: &Caller,
    asked: CallRequest,
) -> Result<Response, Problem> {
    let CallRequest { call, headers } = asked;
    let owner = Some(need_token(caller, JOB)?);
    let name = call.pack.clone();
    let EngineState { engine, limits } = &state.engine;
    let prefer = Prefer::of(&headers);
    let (job, replayed) = match idempotency::key(&headers)? {
        Some(key) => submit_once(state, call, key).await?,
        // No time limit: if the submit were cut off, the job could continue and no client would
        // know its id.
        None => {
            let refused =
                |error| without_suggestion(engine, &caller.permissions, name.as_str(), error);
            (engine.submit(call).await.map_err(refused)?, false)
        }
    };
    let mut response = match prefer.wait {
        Some(wait) => {
            let job = engine
                .wait_for_job(owner, &job.id, wait.min(limits.deadline))
                .await?;
            if job.state.is_final() {
                outcome(&state.engine, owner, &job.id).await?
            } else {
                accepted(&job)?
            }
        }
        None => accepted(&job)?,
    };
    if let Some(applied) = prefer.applied() {
        response.headers_mut().insert(prefer::APPLIED, applied);
    }
    idempotency::mark(&mut response, replayed);
    Ok(response)
}

/// Starts at most one job per key. Returns the job as it now stands, and whether this is a repeat.
async fn submit_once(state: &CallState, call: Call, key: String) -> Result<(Job, bool), Problem> {
    let (engine, idempotency) = (state.engine.engine.clone(), state.idempotency.clone());
    let task = state.tasks.spawn(async move {
        let identity = Arc::clone(&call.identity);
        match idempotency
            .begin(Operation::Job, &call, &key, false)
            .await?
        {
            Begun::New(ticket) => {
                let job = engine.submit(call).await;
                let answer = job
                    .as_ref()
                    .map(|job| Bytes::from(job.id.to_string()))
                    .map_err(Clone::clone);
                ticket.finish(&answer).await;
                Ok((job?, false))
            }
            Begun::Repeat(answer) => {
                let id = String::from_utf8_lossy(&answer?).into_owned();
                let id =
                    JobId::parse(&id).map_err(|message| Error::new(Code::Internal, message))?;
                Ok((engine.job(Some(&identity), &id).await?, true))
            }
        }
    });
    let lost = |error| {
        Error::new(Code::Internal, "the request ended without an answer").with_source(error)
    };
    task.await.map_err(lost)?
}

fn accepted(job: &Job) -> Result<Response, Problem> {
    let mut response = shown(job)?;
    *response.status_mut() = StatusCode::ACCEPTED;
    // Digits only, so it always is a header value.
    if let Ok(address) = HeaderValue::try_from(format!("/api/v1/jobs/{}", job.id)) {
        response.headers_mut().insert(LOCATION, address);
    }
    Ok(response)
}

/// Answers with a job, and when to ask again if it has not ended.
fn shown(job: &Job) -> Result<Response, Problem> {
    let mut response = json(job)?;
    if !job.state.is_final() {
        response.headers_mut().insert(RETRY_AFTER, RETRY);
    }
    Ok(response)
}

/// Which jobs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct JobListQuery {
    /// `queued`, `running`, `succeeded`, `failed` or `cancelled`
    #[param(value_type = Option<String>)]
    state: Option<JobState>,
    /// The `next` of the page before
    #[param(value_type = Option<String>)]
    after: Option<JobId>,
    /// Maximum number of jobs; 50 by default, never more than 500
    limit: Option<usize>,
}

/// Lists the caller's jobs, newest first. An administrator sees those of everybody.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    params(JobListQuery),
    responses((status = 200, description = "The jobs", body = ref("#/components/schemas/JobList")), Problems))]
async fn list(
    State(state): State<EngineState>,
    By(caller): By,
    filter: Params<JobListQuery>,
) -> Result<Response, Problem> {
    let owner = reach(&caller, JOB)?;
    let filter = filter.read()?;
    let query = JobQuery {
        state: filter.state,
        after: filter.after,
        limit: filter.limit.unwrap_or(0),
    };
    let mut page = state
        .limits
        .in_time(state.engine.jobs(owner, &query))
        .await??;
    page.jobs
        .retain(|job| caller.permissions.allow_run(job.pack.as_str()));
    json(&page)
}

/// Shows a job: its state, its progress, and how it ended.
///
/// Only the owner and administrators can see a job; for everyone else it is not found.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "show_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job", body = ref("#/components/schemas/Job"), headers(
            ("Retry-After" = u64, description = "When to ask again, in seconds, if it has not ended"),
        )),
        (status = 404, description = "Job not found"),
    ))]
async fn show(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    shown(&find(&state, &caller, &path).await?)
}

/// Returns what the job's call answered: its outcome, or its error, as the call itself would have.
///
/// A job that has not ended, or whose result is no longer kept, is an error.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/result", tag = "jobs", operation_id = "job_result",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The outcome", body = ref("#/components/schemas/Outcome")),
        (status = 409, description = "The job has not ended"),
        (status = "default", description = "The error of the call, or of this request"),
    ))]
async fn result(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let job = find(&state, &caller, &path).await?;
    outcome(&state, reach(&caller, JOB)?, &job.id).await
}

/// Lists the progress reports of a job, oldest first.
///
/// Of a job that runs in this process the last 256 are kept until a few seconds after its end; else
/// only the last one.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/progress", tag = "jobs", operation_id = "job_progress",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The reports", body = ref("#/components/schemas/JobReports")),
        (status = 404, description = "Job not found"),
    ))]
async fn progress(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let job = find(&state, &caller, &path).await?;
    let reports = state
        .limits
        .in_time(state.engine.job_reports(reach(&caller, JOB)?, &job.id))
        .await??;
    json(&serde_json::json!({ "reports": reports }))
}

async fn outcome(
    state: &EngineState,
    owner: Option<&Identity>,
    id: &JobId,
) -> Result<Response, Problem> {
    let outcome = state
        .limits
        .in_time(state.engine.job_outcome(owner, id))
        .await??;
    let mut response = reply::outcome(outcome.to_json().into());
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    if let Some(cache) = &outcome.cache {
        cache_headers::add(
            cache,
            helmdeck_core::Directive::Default,
            response.headers_mut(),
        );
    }
    Ok(response)
}

/// Cancels a job. A job that has ended stays as it is.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "cancel_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job, which has ended", body = ref("#/components/schemas/Job")),
        (status = 202, description = "The job, which is about to end", body = ref("#/components/schemas/Job")),
        (status = 404, description = "Job not found"),
    ))]
async fn cancel(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let job = find(&state, &caller, &path).await?;
    let job = state
        .limits
        .in_time(state.engine.cancel_job(reach(&caller, JOB)?, &job.id))
        .await??;
    if job.state.is_final() {
        shown(&job)
    } else {
        accepted(&job)
    }
}

/// Name of a job in refusals.
pub(super) const JOB: &str = "a job";

/// Returns the job that a path names, if the caller owns it and may run its pack.
pub(super) async fn find(
    state: &EngineState,
    caller: &Caller,
    path: &PathValues,
) -> Result<Job, Problem> {
    let owner = reach(caller, JOB)?;
    let missing = |message| Problem::new(Code::NotFound, format!("job not found: {message}"));
    let id = JobId::parse(path.value("id")).map_err(missing)?;
    let job = state.limits.in_time(state.engine.job(owner, &id)).await??;
    need_run(caller, &job.pack)?;
    Ok(job)
}
