//! `POST /webhooks/linear`: deliveries of an issue tracker. They prove themselves by a signature,
//! not by a token.

use std::fmt;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use helmdeck_core::Code;
use http::{HeaderMap, StatusCode};

use crate::problem::Problem;

/// The path of the route.
pub(crate) const PATH: &str = "/webhooks/linear";
/// Limit of a delivery, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Outcome of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookAnswer {
    /// It is new, or was received before: the sender is done.
    Accepted,
    /// Signature or time are wrong.
    Unauthorised,
    /// It is not as documented.
    Malformed,
}

/// Receiver of deliveries. It answers at once and does the work later.
pub trait WebhookReceiver: fmt::Debug + Send + Sync {
    /// Checks a delivery.
    fn receive(&self, headers: &HeaderMap, body: &[u8]) -> WebhookAnswer;
}

pub(crate) async fn receive(
    State(receiver): State<Arc<dyn WebhookReceiver>>,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BYTES).await else {
        return Problem::new(Code::TooLarge, "a delivery has at most 1 MiB").into_response();
    };
    match receiver.receive(&head.headers, &body) {
        WebhookAnswer::Accepted => StatusCode::OK.into_response(),
        WebhookAnswer::Unauthorised => Problem::new(
            Code::Unauthenticated,
            "the delivery is not signed, or too old",
        )
        .into_response(),
        WebhookAnswer::Malformed => {
            Problem::new(Code::InvalidInput, "the delivery is malformed").into_response()
        }
    }
}
