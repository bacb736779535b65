//! The pack routes: list, show, and the one that matters: run. The input goes to the engine as the bytes that came in.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use helmdeck_core::{Call, Caller, Code, Error, PackName, Permission, Permissions, Version};
use helmdeck_engine::{Found, PackInfo};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::path::PathValues;
use super::prefer::Prefer;
use super::{JSON, body, cache_headers, directive, jobs, json, session_header};
use crate::access::{By, need_run};
use crate::app::App;
use crate::idempotency::{self, Answer, Begun, Operation};
use crate::problem::Problem;

/// What an empty body stands for.
const NO_INPUT: Bytes = Bytes::from_static(b"{}");

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
}

#[derive(Serialize)]
struct Refused {
    file: String,
    line: Option<usize>,
    message: String,
}

/// Lists the packs that the caller may run, latest versions, by name.
///
/// `refused` are the manifests that were not understood, each with its first problem; an administrator sees them.
#[utoipa::path(get, path = "/api/v1/packs", tag = "packs", operation_id = "list_packs", responses(
    (status = 200, description = "The packs", body = ref("#/components/schemas/PackList")),
))]
pub(crate) async fn list(State(app): State<Arc<App>>, By(caller): By) -> Result<Response, Problem> {
    let infos = app.engine.packs();
    let may_run = |info: &&PackInfo| caller.permissions.allow_run(info.name.as_str());
    let packs = infos.iter().filter(may_run).map(summary).collect();
    // They name files of this machine.
    let operator = caller.permissions.allow(&Permission::Admin);
    let refused = app.engine.refused().into_iter().filter(|_| operator);
    let refused = refused.map(|error| Refused { file: error.file, line: error.line, message: error.message }).collect();
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
    }
}

/// Shows a pack: its whole contract, with both schemas.
///
/// Without a version, the latest one.
#[utoipa::path(get, path = "/api/v1/packs/{name}", tag = "packs", operation_id = "show_pack",
    params(("name" = String, Path, description = "The pack's name, for example `github.list_issues`")),
    responses(
        (status = 200, description = "The pack", body = ref("#/components/schemas/Pack")),
        (status = 404, description = "No such pack or version", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
) -> Result<Response, Problem> {
    let (name, version) = address(&path)?;
    need_run(&caller, &pack_name(&app, &caller.permissions, name)?)?;
    json(&app.engine.pack(name, version).map_err(|error| discreet(&app, &caller.permissions, name, error))?)
}

/// Runs a pack. The request body is its input; an empty body stands for `{}`.
///
/// `Cache-Control` says what is wanted of the cache: `no-cache` runs the handler and stores, `no-store` leaves the cache
/// alone, `only-if-cached` never runs the handler; `max-age` and `max-stale` bound the age. If the operator and the pack's
/// author both opted in to memory, the answer has `Cache-Status` and `Age`. `Idempotency-Key` on a pack that writes makes
/// a repeat answer what the first call did.
///
/// A pack that is `async` runs as a job: the answer is 202 and the job, unless the caller waits (`Prefer: wait=<seconds>`, or
/// `wait` alone for as long as a request may take) and the outcome is there in time. `Prefer: respond-async` makes a job of any
/// call.
#[utoipa::path(post, path = "/api/v1/packs/{name}", tag = "packs", operation_id = "run_pack",
    params(
        ("name" = String, Path, description = "The pack's name, for example `github.list_issues`"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters; kept for 24 hours"),
        ("Cache-Control" = Option<String>, Header, description = "What is wanted of the cache (RFC 9111)"),
        ("Helmdeck-Session" = Option<String>, Header, description = "The session of the call, one conversation of its caller: 1 to 256 visible characters"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`, `wait=<seconds>` (RFC 7240)"),
    ),
    request_body(content = ref("#/components/schemas/Input"), content_type = "application/json", description = "The input"),
    responses(
        (status = 200, description = "The outcome", body = ref("#/components/schemas/Outcome"), headers(
            ("Cache-Status" = String, description = "What the cache did (RFC 9211), if both gates are open"),
            ("Age" = u64, description = "How many seconds old the answer is, if both gates are open"),
            ("Idempotency-Replayed" = bool, description = "`true` if this is the answer of an earlier call"),
        )),
        (status = 202, description = "The job that the call became", body = ref("#/components/schemas/Job")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    request: Request,
) -> Result<Response, Problem> {
    let asked = asked(&app, &caller, &path, request).await?;
    let (name, _) = address(&path)?;
    let discreet = |error| discreet(&app, &caller.permissions, name, error);
    let pack = app.engine.find(&asked.call).await.map_err(discreet)?;
    if wants_job(&caller, &asked, &pack) {
        // Boxed, so that a hit does not carry it along.
        return Box::pin(jobs::run(&app, &caller, asked)).await;
    }
    let Asked { mut call, headers } = asked;
    call.deadline = Instant::now().checked_add(app.config.request_deadline);
    if let Some(key) = idempotency::key(&headers)?
        && !pack.read_only()
    {
        if call.identity.is_anonymous() {
            // All callers without a token are one: the answer that is kept could be somebody else's.
            return Err(Problem::new(Code::Unauthenticated, "an Idempotency-Key needs a bearer token"));
        }
        return run_once(&app, pack, call, key).await;
    }
    let directive = call.directive;
    let outcome = pack.call(call).await.map_err(discreet)?;
    let mut response = success(outcome.to_json().into());
    if let Some(cache) = &outcome.cache {
        cache_headers::add(cache, directive, response.headers_mut());
    }
    Ok(response)
}

/// A call as a request asks for it.
pub(super) struct Asked {
    pub(super) call: Call,
    pub(super) headers: HeaderMap,
}

/// Reads a request for a call, of a caller who may make it.
pub(super) async fn asked(
    app: &App,
    caller: &Caller,
    path: &RawPathParams,
    request: Request,
) -> Result<Asked, Problem> {
    let (name, version) = address(path)?;
    let pack = pack_name(app, &caller.permissions, name)?;
    need_run(caller, &pack)?;
    let (parts, body) = request.into_parts();
    let (limit, timeout) = (app.config.max_body_bytes, app.config.body_timeout);
    let input = body::read(&parts.headers, body, limit, timeout, parts.extensions.get()).await?;
    let mut call = Call::new(pack, if input.is_empty() { NO_INPUT } else { input }, Arc::clone(&caller.identity));
    call.version = version;
    directive::apply(&parts.headers, &mut call);
    session_header::apply(&parts.headers, &mut call)?;
    Ok(Asked { call, headers: parts.headers })
}

/// Says whether a call runs as a job: its caller prefers that, or its pack is made for it.
fn wants_job(caller: &Caller, asked: &Asked, pack: &Found) -> bool {
    let prefer = if asked.headers.contains_key("prefer") { Prefer::of(&asked.headers) } else { Prefer::default() };
    // A caller without a token owns no jobs, but may wait.
    let waits = caller.identity.is_anonymous() && (prefer.wait.is_some() || prefer.respond_async);
    !waits && (prefer.respond_async || pack.is_async())
}

/// Runs a pack that writes at most once for a key: a repeat gets the answer of the first call.
///
/// All of it is a task of its own, so that a client which lost its connection finds the answer when it asks again.
async fn run_once(app: &Arc<App>, pack: Found, call: Call, key: String) -> Result<Response, Problem> {
    let own = Arc::clone(app);
    let task = app.calls.spawn(async move {
        match own.idempotency.begin(Operation::Call, &call, &key).await? {
            Begun::New(ticket) => {
                let answer = pack.call(call).await.map(|outcome| Bytes::from(outcome.to_json()));
                ticket.finish(&answer).await;
                Ok(success(answer?))
            }
            Begun::Repeat(answer) => Ok(replay(answer)),
        }
    });
    let lost = |error| Error::new(Code::Internal, "the call ended without an answer").with_source(error);
    task.await.map_err(lost)?
}

fn replay(answer: Answer) -> Response {
    let mut response = match answer {
        Ok(body) => success(body),
        Err(error) => Problem::from(error).into_response(),
    };
    let (name, value) = idempotency::REPLAYED;
    response.headers_mut().insert(name, value);
    response
}

pub(super) fn success(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, JSON);
    *response.headers_mut() = headers;
    response
}

/// Reads a pack's name.
fn pack_name(app: &App, permissions: &Permissions, name: &str) -> Result<PackName, Error> {
    PackName::new(name).map_err(|message| {
        // The engine's own refusal is better: it suggests the pack that was meant.
        let suggestion = app.engine.pack(name, None).err().filter(|_| permissions.allow(&Permission::RunAny));
        suggestion.unwrap_or_else(|| Error::new(Code::NotFound, message))
    })
}

/// Takes the suggestion out of what the engine says of a pack that there is not, for a caller who may not run every pack: it
/// would tell of one that the caller does not see in lists.
pub(super) fn discreet(app: &App, permissions: &Permissions, name: &str, error: Error) -> Error {
    let told = error.code() != Code::NotFound || permissions.allow(&Permission::RunAny);
    // A pack that is there may answer `not_found` itself, about what it was asked.
    if told || app.engine.pack(name, None).is_ok() {
        return error;
    }
    Error::new(Code::NotFound, format!("pack \"{name}\" is not registered"))
}

/// Returns the name and the version that a path names; `latest` and no version mean the same.
fn address(path: &RawPathParams) -> Result<(&str, Option<Version>), Problem> {
    let part = |wanted: &str| path.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let version = match part("version") {
        None | Some("latest") => None,
        Some(text) => Some(Version::parse(text).map_err(|message| Problem::new(Code::InvalidInput, message))?),
    };
    Ok((part("name").unwrap_or_default(), version))
}
