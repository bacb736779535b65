//! Addresses of verbs: a method and a path for a pack. Path, query and body are its input, and the
//! answer is its output. Everything else is as for `POST /api/v1/packs/{name}`.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use helmdeck_core::{Caller, Code, schema};
use helmdeck_engine::Engine;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;

use super::call::pack_name;
use super::packs::run_pack;
use super::request::PathValues;
use super::state::CallState;
use crate::access::{By, need_run};
use crate::app::App;
use crate::body;
use crate::headers::{JSON, NO_STORE};
use crate::problem::Problem;

/// An address of a pack.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) method: Method,
    /// The path; `{member}` is a member of the input.
    pub(crate) path: &'static str,
    pub(crate) pack: &'static str,
}

/// Every address, by family.
pub(crate) const ADDRESSES: &[Address] = &[
    read("/api/v1/project/issues", "forge.issue_list"),
    read("/api/v1/project/issues/{key}", "forge.issue_show"),
    write("/api/v1/project/issues", "forge.issue_add"),
    write("/api/v1/project/issues/{key}", "forge.issue_set"),
];

const fn read(path: &'static str, pack: &'static str) -> Address {
    Address {
        method: Method::GET,
        path,
        pack,
    }
}

const fn write(path: &'static str, pack: &'static str) -> Address {
    Address {
        method: Method::POST,
        path,
        pack,
    }
}

pub(super) fn routes() -> OpenApiRouter<App> {
    ADDRESSES
        .iter()
        .fold(OpenApiRouter::default(), |router, address| {
            router.route(address.path, handler(address))
        })
}

fn handler(address: &'static Address) -> MethodRouter<App> {
    let run = move |State(state): State<CallState>, By(caller): By, path: PathValues, request| {
        run(address, state, caller, path, request)
    };
    match address.method {
        Method::GET => get(run),
        _ => post(run),
    }
}

async fn run(
    address: &Address,
    state: CallState,
    caller: Caller,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    // Before the body is read.
    let name = pack_name(&state.engine.engine, &caller.permissions, address.pack)?;
    need_run(&caller, &name)?;
    let (mut parts, body) = request.into_parts();
    let limits = &state.engine.limits;
    let (limit, timeout) = (limits.max_body_bytes, limits.body_timeout);
    let sent = body::read(&parts.headers, body, limit, timeout, parts.extensions.get()).await?;
    let mut input: Map<String, Value> = match sent.is_empty() {
        true => Map::new(),
        false => serde_json::from_slice(&sent).map_err(|error| {
            Problem::new(
                Code::InvalidInput,
                format!("the body is not a JSON object: {error}"),
            )
        })?,
    };
    let known = members(&state.engine.engine, address.pack);
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let named = names(address.path).map(|name| (name.to_owned(), path.value(name).to_owned()));
    let query = form_urlencoded::parse(query).into_owned();
    for (name, text) in named.chain(query.filter(|(_, text)| !text.is_empty())) {
        let value = value(known.get(&name), text);
        match input.get_mut(&name) {
            None => drop(input.insert(name, value)),
            // `?label=a&label=b`
            Some(Value::Array(all)) if value.is_array() => {
                all.extend(value.as_array().cloned().unwrap_or_default());
            }
            Some(_) => {
                return Err(Problem::new(
                    Code::InvalidInput,
                    format!("{name} is there twice"),
                ));
            }
        }
    }
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, JSON);
    let input = serde_json::to_vec(&input).map_err(super::reply::unwritable)?;
    let pack = PathValues::Name(address.pack.into());
    let request = Request::from_parts(parts, Body::from(input));
    output(run_pack(&state, &caller, &pack, request).await?).await
}

/// Returns the names in the path of an address.
pub(crate) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Returns the members of a pack's input with their schemas.
fn members(engine: &Engine, pack: &str) -> Map<String, Value> {
    let info = engine.pack(pack, None);
    info.map(|info| schema::properties(&info.input))
        .unwrap_or_default()
}

/// Reads a text of a path or query as its schema says. What does not fit stays a text, so that the
/// schema refuses it.
fn value(schema: Option<&Value>, text: String) -> Value {
    let kind = schema
        .and_then(|schema| schema.get("type"))
        .and_then(Value::as_str);
    match kind {
        Some("integer" | "number" | "boolean") => {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        Some("array") => Value::Array(vec![Value::String(text)]),
        _ => Value::String(text),
    }
}

/// Answers with the output of an outcome alone.
async fn output(response: Response) -> Result<Response, Problem> {
    #[derive(serde::Deserialize)]
    struct Outcome<'a> {
        #[serde(borrow)]
        output: &'a RawValue,
    }

    if response.status() != StatusCode::OK {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    // It is in memory.
    let text = to_bytes(body, usize::MAX).await.map_err(|error| {
        helmdeck_core::Error::new(Code::Internal, "the outcome was lost").with_source(error)
    })?;
    let outcome: Outcome<'_> = serde_json::from_slice(&text).map_err(super::reply::unwritable)?;
    let output = outcome.output.get().to_owned();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    Ok((parts, output).into_response())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_addresses_get_the_type_of_their_member() {
        let read = |kind: &str, text: &str| value(Some(&json!({ "type": kind })), text.to_owned());
        assert_eq!(read("integer", "7"), json!(7));
        assert_eq!(read("integer", "seven"), json!("seven"));
        assert_eq!(read("boolean", "true"), json!(true));
        assert_eq!(read("array", "a"), json!(["a"]));
        assert_eq!(read("string", "7"), json!("7"));
        assert_eq!(value(None, "7".to_owned()), json!("7"));
        let found: Vec<_> = names("/api/v1/project/issues/{key}").collect();
        assert_eq!(found, ["key"]);
    }
}
