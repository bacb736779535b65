//! The caller as a route's argument.

use axum::extract::FromRequestParts;
use helmdeck_core::{Caller, Code};
use http::request::Parts;

use crate::problem::Problem;

/// Caller of the request. Every request that passed `EntryService` has one.
#[derive(Debug)]
pub(crate) struct By(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        // A request that did not pass `EntryService` was not authenticated: refuse it.
        caller
            .map(Self)
            .ok_or_else(|| Problem::new(Code::Internal, "the request has no caller"))
    }
}
