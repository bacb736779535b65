//! Refusals of callers: `WWW-Authenticate` in the words of RFC 6750, section 3, and no further
//! reason.

use helmdeck_core::{Caller, Code, Error, Identity, PackName, Permission};
use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;

use crate::headers::ASK;
use crate::problem::Problem;

const INVALID_TOKEN: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"helmdeck\", error=\"invalid_token\"");
const INVALID_REQUEST: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"helmdeck\", error=\"invalid_request\"");

/// Why a request is refused, in the words of RFC 6750, section 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The token is malformed, expired, revoked, or not from a trusted issuer.
    InvalidToken,
    /// The request carries credentials in a way that is not allowed.
    InvalidRequest,
    /// The request carries other credentials than a bearer token; RFC 6750 wants no error word
    /// then.
    OtherScheme,
}

/// Makes the answer to a request whose token is not valid.
pub(crate) fn challenge(refusal: Refusal, detail: &'static str) -> Problem {
    let (code, header) = match refusal {
        Refusal::InvalidToken => (Code::Unauthenticated, INVALID_TOKEN),
        Refusal::InvalidRequest => (Code::InvalidInput, INVALID_REQUEST),
        Refusal::OtherScheme => (Code::Unauthenticated, ASK),
    };
    Problem::new(code, detail).with_header(WWW_AUTHENTICATE, header)
}

/// Makes the answer to a request whose token was revoked while it ran.
pub(crate) fn revoked() -> Problem {
    challenge(
        Refusal::InvalidToken,
        "the token was revoked while the request ran",
    )
}

/// Refuses callers without a permission.
pub(crate) fn need(caller: &Caller, permission: &Permission) -> Result<(), Problem> {
    caller
        .need(permission)
        .map_err(|error| refused(error, &permission.to_string()))
}

/// Refuses a caller that may not run a pack.
pub(crate) fn need_run(caller: &Caller, pack: &PackName) -> Result<(), Problem> {
    caller
        .need_run(pack)
        .map_err(|error| refused(error, &format!("packs:run:{pack}")))
}

/// Returns the owner of what a caller makes, and refuses callers without a token: they all are one.
pub(crate) fn need_token<'a>(caller: &'a Caller, thing: &str) -> Result<&'a Identity, Error> {
    if caller.identity.is_anonymous() {
        return Err(Error::new(
            Code::Unauthenticated,
            format!("{thing} belongs to one caller: send a bearer token"),
        ));
    }
    Ok(&caller.identity)
}

/// Returns the identity that a caller may act on; `None` = all identities, for an administrator.
pub(crate) fn reach<'a>(caller: &'a Caller, thing: &str) -> Result<Option<&'a Identity>, Error> {
    let own = need_token(caller, thing)?;
    Ok((!caller.permissions.allow(&Permission::Admin)).then_some(own))
}

/// Adds the scope that is missing, for programs that can ask for it.
fn refused(error: Error, scope: &str) -> Problem {
    let insufficient = error.code() == Code::Forbidden;
    let problem = Problem::from(error);
    let header =
        format!("Bearer realm=\"helmdeck\", error=\"insufficient_scope\", scope=\"{scope}\"");
    match HeaderValue::try_from(header) {
        Ok(header) if insufficient => problem.with_header(WWW_AUTHENTICATE, header),
        _ => problem,
    }
}
