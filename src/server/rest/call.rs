//! Request for a call of a pack: name, version, input, cache directive and session.

use std::sync::Arc;

use axum::extract::Request;
use bytes::Bytes;
use helmdeck_core::{
    Call, Caller, Code, Correlation, Error, PackName, Permission, Permissions, Version,
};
use helmdeck_engine::Engine;
use http::HeaderMap;

use super::directive;
use super::request::PathValues;
use super::state::EngineState;
use crate::access::need_run;
use crate::position::Behind;
use crate::problem::Problem;
use crate::{body, session_header};

/// Input of an empty body.
const NO_INPUT: Bytes = Bytes::from_static(b"{}");

/// A call, with the headers of its request.
pub(super) struct CallRequest {
    pub(super) call: Call,
    pub(super) headers: HeaderMap,
}

impl CallRequest {
    /// Reads the request of a caller that may run the pack.
    pub(super) async fn read(
        state: &EngineState,
        caller: &Caller,
        path: &PathValues,
        request: Request,
    ) -> Result<Self, Problem> {
        let (name, version) = address(path)?;
        let pack = pack_name(&state.engine, &caller.permissions, name)?;
        need_run(caller, &pack)?;
        let (parts, body) = request.into_parts();
        let (limit, timeout) = (state.limits.max_body_bytes, state.limits.body_timeout);
        let input =
            body::read(&parts.headers, body, limit, timeout, parts.extensions.get()).await?;
        let mut call = Call::new(
            pack,
            if input.is_empty() { NO_INPUT } else { input },
            Arc::clone(&caller.identity),
        );
        call.version = version;
        call.administrator = caller.permissions.allow(&Permission::Admin);
        call.correlation = Correlation::current();
        directive::apply(&parts.headers, &mut call);
        call.behind = parts.extensions.get::<Behind>().is_some();
        call.identity = session_header::narrowed(&parts.headers, &call.identity)?;
        Ok(Self {
            call,
            headers: parts.headers,
        })
    }
}

/// Reads a pack's name.
pub(super) fn pack_name(
    engine: &Engine,
    permissions: &Permissions,
    name: &str,
) -> Result<PackName, Error> {
    PackName::new(name).map_err(|message| {
        // The engine's own refusal is better: it suggests a similar pack.
        let suggestion = engine
            .pack(name, None)
            .err()
            .filter(|_| permissions.allow(&Permission::RunAny));
        suggestion.unwrap_or_else(|| Error::new(Code::NotFound, message))
    })
}

/// Removes the suggestion from a `not_found` of the engine, for callers that may not run every
/// pack.
///
/// The suggestion could name a pack that they don't see in lists.
pub(super) fn without_suggestion(
    engine: &Engine,
    permissions: &Permissions,
    name: &str,
    error: Error,
) -> Error {
    let shown = error.code() != Code::NotFound || permissions.allow(&Permission::RunAny);
    // A registered pack may answer `not_found` itself, about its input.
    if shown || engine.pack(name, None).is_ok() {
        return error;
    }
    Error::new(Code::NotFound, format!("pack \"{name}\" is not registered"))
}

/// Returns the name and the version in a path. `latest` and no version mean the same.
pub(super) fn address(path: &PathValues) -> Result<(&str, Option<Version>), Problem> {
    let version = match path.get("version") {
        None | Some("latest") => None,
        Some(text) => Some(
            Version::parse(text).map_err(|message| Problem::new(Code::InvalidInput, message))?,
        ),
    };
    Ok((path.value("name"), version))
}
