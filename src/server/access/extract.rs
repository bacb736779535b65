//! The caller as a route's argument.

use axum::extract::FromRequestParts;
use helmdeck_core::{Caller, Code};
use http::request::Parts;

use crate::problem::Problem;

/// Who made the request. Every request that passed the front has one.
#[derive(Debug)]
pub(crate) struct By(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        // A request that came some other way is nobody's: refusing it is the safe side.
        caller.map(Self).ok_or_else(|| Problem::new(Code::Internal, "the request has no caller"))
    }
}
