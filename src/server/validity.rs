//! Whether the credential of a request is still valid while its answer lasts.
//!
//! A request is checked once, when it comes. An answer that takes long (an event stream, a
//! download, a wait for a job) is checked again all the while, so that a revoked token reads
//! nothing more. `EntryService` wraps every such answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::access::revoked;
use crate::headers::EVENTS;

/// Interval of the checks. An API token is cached for as long, so an answer ends within a second of
/// a revocation.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Standing of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is valid, or cannot be checked at the moment.
    Good,
    /// Its time is over. What it began may end: an event stream has a lifetime of its own.
    Expired,
    /// It was revoked, or its key was withdrawn.
    Revoked,
}

/// Check whether a caller's credential is still valid.
///
/// Without authentication it is valid forever.
#[derive(Clone, Default)]
pub(crate) struct Validity(Option<Arc<dyn Fn() -> BoxFuture<'static, Standing> + Send + Sync>>);

/// Extension of an answer whose request ended its own credential: it is given all the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndsCredential;

impl Validity {
    pub(crate) fn new<F: Future<Output = Standing> + Send + 'static>(
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(move || Box::pin(check()))))
    }

    /// Runs the check.
    pub(crate) async fn standing(&self) -> Standing {
        match &self.0 {
            Some(check) => check().await,
            None => Standing::Good,
        }
    }

    /// Returns whether the credential is valid.
    pub(crate) async fn holds(&self) -> bool {
        self.standing().await == Standing::Good
    }

    /// Returns the answer to a request, as far as the credential allows it.
    ///
    /// One that took long to begin, `took`, is refused if the credential was revoked meanwhile. A
    /// body without a known size ends when it is.
    pub(crate) async fn guard(self, response: Response, took: Duration) -> Response {
        let is_checked =
            took >= CHECK_EVERY && response.extensions().get::<EndsCredential>().is_none();
        if is_checked && self.standing().await == Standing::Revoked {
            return revoked().into_response();
        }
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        let is_events = response.headers().get(CONTENT_TYPE) == Some(&EVENTS);
        response.map(|body| {
            Body::new(CheckedBody {
                body,
                validity: self,
                state: State::waiting(),
                is_events,
            })
        })
    }
}

impl std::fmt::Debug for Validity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Validity")
            .field("checked", &self.0.is_some())
            .finish()
    }
}

/// Body that ends when the credential of its request is revoked.
struct CheckedBody {
    body: Body,
    validity: Validity,
    state: State,
    /// Whether it is an event stream, which may end at any message. Any other body is broken off,
    /// so that nobody takes a part for the whole.
    is_events: bool,
}

enum State {
    Waiting(Pin<Box<Sleep>>),
    Checking(BoxFuture<'static, Standing>),
    Ended,
}

impl State {
    fn waiting() -> Self {
        Self::Waiting(Box::pin(tokio::time::sleep_until(
            Instant::now() + CHECK_EVERY,
        )))
    }
}

impl CheckedBody {
    /// Runs the check when it is due. Returns whether the body may go on.
    fn may_go_on(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            self.state = match &mut self.state {
                State::Waiting(sleep) => {
                    if sleep.as_mut().poll(cx).is_pending() {
                        return true;
                    }
                    let validity = self.validity.clone();
                    State::Checking(Box::pin(async move { validity.standing().await }))
                }
                State::Checking(check) => match check.as_mut().poll(cx) {
                    Poll::Pending => return true,
                    // One that has expired may be revoked all the same.
                    Poll::Ready(Standing::Good | Standing::Expired) => State::waiting(),
                    Poll::Ready(Standing::Revoked) => State::Ended,
                },
                State::Ended => return false,
            }
        }
    }
}

impl http_body::Body for CheckedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.may_go_on(cx) {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        tracing::info!("an answer was ended: its token was revoked");
        if self.is_events {
            Poll::Ready(None)
        } else {
            Poll::Ready(Some(Err(axum::Error::new("the token was revoked"))))
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended) && self.is_events || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
