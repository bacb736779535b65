//! What a refused caller is told: the header `WWW-Authenticate` in the words of RFC 6750, section 3, and no reason beyond them.

use helmdeck_core::{Caller, Code, Error, PackName, Permission};
use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;

use crate::problem::Problem;

/// What a 401 asks for when no token came.
pub(crate) const ASK: HeaderValue = HeaderValue::from_static("Bearer realm=\"helmdeck\"");

const INVALID_TOKEN: HeaderValue = HeaderValue::from_static("Bearer realm=\"helmdeck\", error=\"invalid_token\"");
const INVALID_REQUEST: HeaderValue = HeaderValue::from_static("Bearer realm=\"helmdeck\", error=\"invalid_request\"");

/// Why a request is refused, in the words of RFC 6750, section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The token is malformed, expired, revoked, or nobody we trust issued it.
    InvalidToken,
    /// The request carries credentials in a way that is not allowed.
    InvalidRequest,
    /// The request carries other credentials than a bearer token; RFC 6750 wants no error word then.
    OtherScheme,
}

/// Makes the answer to a request that does not prove who makes it.
pub(crate) fn challenge(refusal: Refusal, detail: &'static str) -> Problem {
    let (code, header) = match refusal {
        Refusal::InvalidToken => (Code::Unauthenticated, INVALID_TOKEN),
        Refusal::InvalidRequest => (Code::InvalidInput, INVALID_REQUEST),
        Refusal::OtherScheme => (Code::Unauthenticated, ASK),
    };
    Problem::new(code, detail).with_header(WWW_AUTHENTICATE, header)
}

/// Lets through who may do a thing.
pub(crate) fn need(caller: &Caller, permission: &Permission) -> Result<(), Problem> {
    caller.need(permission).map_err(|error| refused(error, &permission.to_string()))
}

/// Lets through who may run a pack.
pub(crate) fn need_run(caller: &Caller, pack: &PackName) -> Result<(), Problem> {
    caller.need_run(pack).map_err(|error| refused(error, &format!("packs:run:{pack}")))
}

/// Adds the scope that is missing, for programs that can ask for it.
fn refused(error: Error, scope: &str) -> Problem {
    let insufficient = error.code() == Code::Forbidden;
    let problem = Problem::from(error);
    let header = format!("Bearer realm=\"helmdeck\", error=\"insufficient_scope\", scope=\"{scope}\"");
    match HeaderValue::try_from(header) {
        Ok(header) if insufficient => problem.with_header(WWW_AUTHENTICATE, header),
        _ => problem,
    }
}
