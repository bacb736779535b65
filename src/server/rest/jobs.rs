//! The routes of jobs: start one, look at it, get its result, cancel it. The stream of its events is in `events`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, RawPathParams, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use helmdeck_core::{Call, Caller, Code, Error, Identity, Permission};
use helmdeck_engine::{Job, JobId, JobQuery, JobState};
use http::header::{CACHE_CONTROL, LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::packs::{self, Asked};
use super::path::PathValues;
use super::prefer::{self, Prefer};
use super::{NO_STORE, cache_headers, in_time, json};
use crate::access::{By, need_run};
use crate::app::App;
use crate::idempotency::{self, Begun, Operation};
use crate::problem::Problem;

/// When to look at a job again.
const LOOK_AGAIN: HeaderValue = HeaderValue::from_static("2");

/// Starts a pack as a job. The request body is its input; what is wrong with it comes at once.
///
/// The job goes on whatever becomes of the request. With `Idempotency-Key` a repeat gets the same job.
#[utoipa::path(post, path = "/api/v1/packs/{name}/jobs", tag = "jobs", operation_id = "start_job",
    params(
        ("name" = String, Path, description = "The pack's name, for example `github.list_issues`"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters; kept for 24 hours"),
        ("Prefer" = Option<String>, Header, description = "`wait=<seconds>`: the outcome, if it is there in time (RFC 7240)"),
    ),
    request_body(content = ref("#/components/schemas/Input"), content_type = "application/json", description = "The input"),
    responses(
        (status = 202, description = "The job; `Location` says where it is looked at", body = ref("#/components/schemas/Job")),
        (status = 200, description = "The outcome, for a caller who waited", body = ref("#/components/schemas/Outcome")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let asked = packs::asked(&app, &caller, &path, request).await?;
    run(&app, &caller, asked).await
}

/// Answers a call that runs as a job: with the job, or with its outcome if the caller waits and it is there in time.
pub(super) async fn run(app: &Arc<App>, caller: &Caller, asked: Asked) -> Result<Response, Problem> {
    let Asked { call, headers } = asked;
    need_owner(caller)?;
    let name = call.pack.clone();
    let discreet = |error| packs::discreet(app, &caller.permissions, name.as_str(), error);
    let prefer = Prefer::of(&headers);
    let (job, replayed) = match idempotency::key(&headers)? {
        Some(key) => submit_once(app, call, key).await?,
        // Not within a limit: it goes on without us, and a job that nobody was told of would be left.
        None => (app.engine.submit(call).await.map_err(discreet)?, false),
    };
    let mut response = match prefer.wait {
        Some(wait) => {
            let limit = wait.min(app.config.request_deadline);
            let job = app.engine.wait_for_job(Some(&caller.identity), &job.id, limit).await?;
            if job.state.is_final() { outcome(app, Some(&caller.identity), &job.id).await? } else { accepted(&job)? }
        }
        None => accepted(&job)?,
    };
    if let Some(applied) = prefer.applied() {
        response.headers_mut().insert(prefer::APPLIED, applied);
    }
    if replayed {
        let (name, value) = idempotency::REPLAYED;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Starts at most one job for a key: a repeat gets the job of the first request, as it now stands; says whether it is one.
async fn submit_once(app: &Arc<App>, call: Call, key: String) -> Result<(Job, bool), Problem> {
    let own = Arc::clone(app);
    let task = app.calls.spawn(async move {
        let identity = Arc::clone(&call.identity);
        match own.idempotency.begin(Operation::Job, &call, &key).await? {
            Begun::New(ticket) => {
                let job = own.engine.submit(call).await;
                let answer = job.as_ref().map(|job| Bytes::from(job.id.to_string())).map_err(Clone::clone);
                ticket.finish(&answer).await;
                Ok((job?, false))
            }
            Begun::Repeat(answer) => {
                let id = String::from_utf8_lossy(&answer?).into_owned();
                let id = JobId::parse(&id).map_err(|message| Error::new(Code::Internal, message))?;
                Ok((own.engine.job(Some(&identity), &id).await?, true))
            }
        }
    });
    let lost = |error| Error::new(Code::Internal, "the request ended without an answer").with_source(error);
    task.await.map_err(lost)?
}

fn accepted(job: &Job) -> Result<Response, Problem> {
    let mut response = shown(job)?;
    *response.status_mut() = StatusCode::ACCEPTED;
    // Digits only.
    if let Ok(place) = HeaderValue::try_from(format!("/api/v1/jobs/{}", job.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// Answers with a job, and when to look again while it has not ended.
fn shown(job: &Job) -> Result<Response, Problem> {
    let mut response = json(job)?;
    if !job.state.is_final() {
        response.headers_mut().insert(RETRY_AFTER, LOOK_AGAIN);
    }
    Ok(response)
}

/// Which jobs; the newest unless told otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    state: Option<JobState>,
    after: Option<JobId>,
    limit: Option<usize>,
}

/// Lists the caller's jobs, the newest first; an administrator sees those of all.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    params(
        ("state" = Option<String>, Query, description = "`queued`, `running`, `succeeded`, `failed` or `cancelled`"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, description = "At most so many; 50 unless given, never more than 500"),
    ),
    responses(
        (status = 200, description = "The jobs", body = ref("#/components/schemas/JobList")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    By(caller): By,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Response, Problem> {
    need_owner(&caller)?;
    let Query(which) = which.map_err(|rejection| Problem::new(Code::InvalidInput, rejection.body_text()))?;
    let query = JobQuery { state: which.state, after: which.after, limit: which.limit.unwrap_or(0) };
    let mut page = in_time(&app, app.engine.jobs(owner(&caller), &query)).await??;
    page.jobs.retain(|job| caller.permissions.allow_run(job.pack.as_str()));
    json(&page)
}

/// Shows a job: its state, its progress, and how it ended.
///
/// The job of somebody else is not found, as one that never was; an administrator sees any.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "show_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job", body = ref("#/components/schemas/Job"), headers(
            ("Retry-After" = u64, description = "In how many seconds to look again, while it has not ended"),
        )),
        (status = 404, description = "No such job", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
) -> Result<Response, Problem> {
    shown(&find(&app, &caller, &path).await?)
}

/// Gives what a job's call answered: its outcome, or its error, as the call itself would have.
///
/// While it has not ended, and when its result is no longer there, the answer says so.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/result", tag = "jobs", operation_id = "job_result",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The outcome", body = ref("#/components/schemas/Outcome")),
        (status = 409, description = "It has not ended", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
        (status = "default", description = "The call's own error, or what went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn result(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
) -> Result<Response, Problem> {
    let job = find(&app, &caller, &path).await?;
    outcome(&app, owner(&caller), &job.id).await
}

async fn outcome(app: &App, owner: Option<&Identity>, id: &JobId) -> Result<Response, Problem> {
    let outcome = in_time(app, app.engine.job_outcome(owner, id)).await??;
    let mut response = packs::success(outcome.to_json().into());
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    if let Some(cache) = &outcome.cache {
        cache_headers::add(cache, helmdeck_core::Directive::Default, response.headers_mut());
    }
    Ok(response)
}

/// Cancels a job. One that has ended stays as it is.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "cancel_job",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job, which has ended", body = ref("#/components/schemas/Job")),
        (status = 202, description = "The job, which is about to end", body = ref("#/components/schemas/Job")),
        (status = 404, description = "No such job", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
) -> Result<Response, Problem> {
    let job = find(&app, &caller, &path).await?;
    let job = in_time(&app, app.engine.cancel_job(owner(&caller), &job.id)).await??;
    if job.state.is_final() { shown(&job) } else { accepted(&job).map(IntoResponse::into_response) }
}

/// Finds the job that a path names, if the caller may see it: it is theirs, and they may run its pack.
pub(super) async fn find(app: &App, caller: &Caller, path: &RawPathParams) -> Result<Job, Problem> {
    need_owner(caller)?;
    let text = path.iter().next().map(|(_, value)| value).unwrap_or_default();
    let id = JobId::parse(text)
        .map_err(|message| Problem::new(Code::NotFound, format!("there is no such job: {message}")))?;
    let job = in_time(app, app.engine.job(owner(caller), &id)).await??;
    need_run(caller, &job.pack)?;
    Ok(job)
}

/// Returns whose jobs a caller sees; `None` = everybody's.
pub(super) fn owner(caller: &Caller) -> Option<&Identity> {
    (!caller.permissions.allow(&Permission::Admin)).then_some(&*caller.identity)
}

fn need_owner(caller: &Caller) -> Result<(), Problem> {
    if caller.identity.is_anonymous() {
        // All callers without a token are one, and what one of them started is not for the others.
        return Err(Problem::new(Code::Unauthenticated, "a job is for whom a token proves to be its owner"));
    }
    Ok(())
}

/// How long a stream of events stays open before its client has to come again, with a token that is still good.
pub(super) const STREAM_LIFE: Duration = Duration::from_secs(10 * 60);
