//! Routes of packs: list, show, run. The input of a call goes to the engine as unchanged bytes.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use helmdeck_core::{Call, Caller, Code, Correlation, Error, PackName, Permission, Version};
use helmdeck_engine::{Engine, Found, PackInfo};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method};
use http_body::Body as _;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::call::{CallRequest, address, pack_name, without_suggestion};
use super::prefer::Prefer;
use super::reply::{Problems, json, outcome};
use super::request::{Params, PathValues};
use super::state::CallState;
use super::{cache_headers, jobs};
use crate::access::{By, need_run};
use crate::app::App;
use crate::idempotency::{self, Begun, Operation};
use crate::position::{self, POSITION};
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(show, run))
        // The document gets these operations as copies of those without a version.
        .route("/api/v1/packs/{name}/{version}", get(show).post(run))
}

/// Which packs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct PackQuery {
    /// Those too that wait for something
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    all: bool,
}

#[derive(Serialize)]
struct List<'a> {
    packs: Vec<Summary<'a>>,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Summary<'a> {
    name: &'a PackName,
    version: Version,
    versions: &'a [Version],
    description: &'a str,
    read_only: bool,
    cached: bool,
    #[serde(rename = "async")]
    asynchronous: bool,
    needs_session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'static str>,
}

#[derive(Serialize)]
struct Refused {
    file: String,
    line: Option<usize>,
    message: String,
}

/// Lists the packs that the caller may run and that can work, latest versions, by name.
///
/// With `all=true` the others are in the list too: `waits_for` says what is missing and how to
/// supply it.
///
/// `refused` lists the manifests that could not be read, each with its first problem; only
/// administrators see it.
#[utoipa::path(get, path = "/api/v1/packs", tag = "packs", operation_id = "list_packs", params(PackQuery),
    responses((status = 200, description = "The packs", body = ref("#/components/schemas/PackList"))))]
async fn list(
    State(engine): State<Engine>,
    By(caller): By,
    filter: Params<PackQuery>,
) -> Result<Response, Problem> {
    let infos = if filter.read()?.all {
        engine.all_packs()
    } else {
        engine.packs()
    };
    let may_run = |info: &&PackInfo| caller.permissions.allow_run(info.name.as_str());
    let packs = infos.iter().filter(may_run).map(summary).collect();
    // They contain paths of this machine.
    let operator = caller.permissions.allow(&Permission::Admin);
    let refused = engine.refused().into_iter().filter(|_| operator);
    let refused = refused
        .map(|error| Refused {
            file: error.file,
            line: error.line,
            message: error.message,
        })
        .collect();
    json(&List { packs, refused })
}

fn summary(info: &PackInfo) -> Summary<'_> {
    Summary {
        name: &info.name,
        version: info.version,
        versions: &info.versions,
        description: &info.description,
        read_only: info.read_only,
        cached: info.cached,
        asynchronous: info.asynchronous,
        needs_session: info.needs_session,
        waits_for: info.waits_for,
    }
}

/// Shows a pack: its whole contract, with both schemas.
///
/// Without a version, the latest one.
#[utoipa::path(get, path = "/api/v1/packs/{name}", tag = "packs", operation_id = "show_pack",
    params(("name" = String, Path, description = "The pack's name, for example `github.list_issues`")),
    responses(
        (status = 200, description = "The pack", body = ref("#/components/schemas/Pack")),
        (status = 404, description = "Pack or version not found"),
    ))]
async fn show(
    State(engine): State<Engine>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    let (name, version) = address(&path)?;
    need_run(&caller, &pack_name(&engine, &caller.permissions, name)?)?;
    let refused = |error| without_suggestion(&engine, &caller.permissions, name, error);
    json(&engine.pack(name, version).map_err(refused)?)
}

/// Runs a pack. The request body is its input; an empty body stands for `{}`.
///
/// `Cache-Control` controls the cache: `no-cache` runs the handler and stores the answer,
/// `no-store` bypasses the cache, `only-if-cached` never runs the handler; `max-age` and
/// `max-stale` limit the age. If both the operator and the pack's author opted in to memory, the
/// answer has `Cache-Status` and `Age`. With `Idempotency-Key`, a pack that writes runs once: a
/// repeat gets the first answer.
///
/// A pack that is `async` runs as a job: the answer is 202 and the job, unless the caller waits
/// (`Prefer: wait=<seconds>`, or `wait` alone for as long as a request may take) and the outcome is
/// there in time. `Prefer: respond-async` makes a job of any call.
#[utoipa::path(post, path = "/api/v1/packs/{name}", tag = "packs", operation_id = "run_pack",
    params(
        ("name" = String, Path, description = "The pack's name, for example `github.list_issues`"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters; kept for 24 hours"),
        ("Cache-Control" = Option<String>, Header, description = "How the cache is used (RFC 9111)"),
        ("Helmdeck-After" = Option<String>, Header, description = "A `Helmdeck-Position`: the answer is none that deletes before it removed"),
        ("Helmdeck-Session" = Option<String>, Header, description = "The session of the call, one conversation of its caller: 1 to 256 visible characters"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`, `wait=<seconds>` (RFC 7240)"),
    ),
    request_body(content = ref("#/components/schemas/Input"), content_type = "application/json", description = "The input"),
    responses(
        (status = 200, description = "The outcome", body = ref("#/components/schemas/Outcome"), headers(
            ("Cache-Status" = String, description = "What the cache did (RFC 9211), if both gates are open"),
            ("Age" = u64, description = "Age of the answer in seconds, if both gates are open"),
            ("Idempotency-Replayed" = bool, description = "`true` if this is the answer of an earlier call"),
            ("Helmdeck-Position" = String, description = "The position after what the pack wrote, with a PostgreSQL store"),
        )),
        (status = 202, description = "The job that the call became", body = ref("#/components/schemas/Job")),
        Problems,
    ))]
async fn run(
    State(state): State<CallState>,
    By(caller): By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    run_pack(&state, &caller, &path, request).await
}

/// Returns the name of the pack that a request runs, `None` for any other request and for names
/// that need decoding.
pub(crate) fn named(method: &Method, path: &str) -> Option<Box<str>> {
    let name = path
        .strip_prefix("/api/v1/packs/")
        .filter(|_| method == Method::POST)?;
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_')
    };
    (!name.is_empty() && name.bytes().all(plain)).then(|| name.into())
}

/// Runs a pack without the router, which would clone its state and box its future for each request.
pub(crate) async fn run_named(
    state: &CallState,
    caller: Caller,
    name: Box<str>,
    request: Request,
) -> Response {
    let answered = run_pack(state, &caller, &PathValues::Name(name), request).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    // As the router does, so that the bytes are the same.
    if let Some(length) = response.body().size_hint().exact() {
        response
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(length));
    }
    response
}

pub(super) async fn run_pack(
    state: &CallState,
    caller: &Caller,
    path: &PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let asked = CallRequest::read(&state.engine, caller, path, request).await?;
    let engine = &state.engine.engine;
    let refused =
        |error| without_suggestion(engine, &caller.permissions, path.value("name"), error);
    let pack = engine.find(&asked.call).await.map_err(refused)?;
    if wants_job(caller, &asked, &pack) {
        // Boxed, so that a cache hit does not carry its size.
        return Box::pin(jobs::run(state, caller, asked)).await;
    }
    let CallRequest { mut call, headers } = asked;
    call.deadline = Instant::now().checked_add(state.engine.limits.deadline);
    if let Some(key) = idempotency::key(&headers)?
        && !pack.read_only()
    {
        if call.identity.is_anonymous() {
            // All callers without a token are one: the stored answer could be another client's.
            return Err(Problem::new(
                Code::Unauthenticated,
                "an Idempotency-Key needs a bearer token",
            ));
        }
        let mut response = run_once(state, pack, call, key).await?;
        add_position(engine, &mut response);
        return Ok(response);
    }
    let directive = call.directive;
    let answer = pack.call(call).await.map_err(refused)?;
    let mut response = outcome(answer.to_json().into());
    if !pack.read_only() {
        add_position(engine, &mut response);
    }
    if let Some(cache) = &answer.cache {
        cache_headers::add(cache, directive, response.headers_mut());
    }
    Ok(response)
}

/// Names the position after what a pack wrote.
fn add_position(engine: &Engine, response: &mut Response) {
    response
        .headers_mut()
        .extend(position::header(engine).map(|value| (POSITION, value)));
}

/// Says whether a call runs as a job: its caller prefers that, or the pack is `async`.
fn wants_job(caller: &Caller, asked: &CallRequest, pack: &Found) -> bool {
    let prefer = if asked.headers.contains_key("prefer") {
        Prefer::of(&asked.headers)
    } else {
        Prefer::default()
    };
    // A caller without a token owns no jobs, but may wait.
    let waits = caller.identity.is_anonymous() && (prefer.wait.is_some() || prefer.respond_async);
    !waits && (prefer.respond_async || pack.is_async())
}

/// Runs a pack that writes at most once per key: a repeat gets the answer of the first call.
///
/// All of it runs as its own task, so that a client which lost its connection finds the answer when
/// it asks again.
async fn run_once(
    state: &CallState,
    pack: Found,
    call: Call,
    key: String,
) -> Result<Response, Problem> {
    let idempotency = state.idempotency.clone();
    let task = state.tasks.spawn(Correlation::current().scope(async move {
        let (answer, replayed) = match idempotency
            .begin(Operation::Call, &call, &key, pack.is_idempotent())
            .await?
        {
            Begun::New(ticket) => {
                let answer = pack
                    .call(call)
                    .await
                    .map(|outcome| Bytes::from(outcome.to_json()));
                ticket.finish(&answer).await;
                (answer, false)
            }
            Begun::Repeat(answer) => (answer, true),
        };
        let mut response =
            answer.map_or_else(|error| Problem::from(error).into_response(), outcome);
        idempotency::mark(&mut response, replayed);
        Ok(response)
    }));
    let lost =
        |error| Error::new(Code::Internal, "the call ended without an answer").with_source(error);
    task.await.map_err(lost)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_calls_need_no_router() {
        assert_eq!(
            named(&Method::POST, "/api/v1/packs/github.list_issues").as_deref(),
            Some("github.list_issues")
        );
        for other in [
            "/api/v1/packs/",
            "/api/v1/packs",
            "/api/v1/packs/a.b/v1",
            "/api/v1/packs/a.b/jobs",
            "/api/v1/packs/a%2Eb",
            "/api/v1/packs/A.b",
            "/api/v1/packsa.b",
            "//api/v1/packs/a.b",
        ] {
            assert_eq!(named(&Method::POST, other), None, "{other}");
        }
        assert_eq!(named(&Method::GET, "/api/v1/packs/a.b"), None);
    }
}
