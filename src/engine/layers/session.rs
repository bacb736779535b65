//! Gives a pack the session that its manifest asks for. There is no session runtime yet, so such a call is refused.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use helmdeck_core::{Call, Code, Error, Outcome, Result};
use tower::{Layer, Service};

/// Refuses calls of packs that need a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLayer;

impl<S> Layer<S> for SessionLayer {
    type Service = Session;

    fn layer(&self, _inner: S) -> Self::Service {
        Session
    }
}

/// The service of [`SessionLayer`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session;

impl Service<Call> for Session {
    type Response = Outcome;
    type Error = Error;
    type Future = Ready<Result<Outcome>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let message = format!("pack \"{}\" needs a session, and this server has no session runtime", call.pack);
        ready(Err(Error::new(Code::SessionUnavailable, message)))
    }
}
