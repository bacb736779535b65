//! Server-sent events of a job as they happen (HTML standard, section 9.2).

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use helmdeck_engine::{JobEvent, JobState};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::{self, JOB};
use super::reply::Problems;
use super::request::PathValues;
use super::state::EventState;
use crate::access::{By, reach};
use crate::app::App;
use crate::draining::RECONNECT;
use crate::headers::{EVENTS, NO_STORE};
use crate::limits::{Permit, Share};
use crate::problem::Problem;

pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Keeps proxies from holding events back.
pub(super) const UNBUFFERED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);
/// Interval of comments on a stream without events, which show its client that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum age of a stream. Its client reconnects then, with a token that is still valid.
const STREAM_LIFE: Duration = Duration::from_secs(10 * 60);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(follow))
}

/// Streams the events of a job as they happen: its current state, then each report and change. It
/// ends after the last one.
///
/// Each event has a number (`id`), a name (`state` or `progress`) and the job as data.
/// `Last-Event-ID` resumes after that number; the answer is 204 if nothing follows. A stream ends
/// after ten minutes, and when the server stops: reconnect to go on.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", tag = "jobs", operation_id = "job_events",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("Last-Event-ID" = Option<String>, Header, description = "The number of the last event that was received"),
    ),
    responses(
        (status = 200, description = "The events", content_type = "text/event-stream", body = String),
        (status = 204, description = "The last event was already received"),
        Problems,
    ))]
async fn follow(
    State(state): State<EventState>,
    By(caller): By,
    path: PathValues,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let job = jobs::find(&state.engine, &caller, &path).await?;
    let after = headers
        .get(LAST_EVENT_ID)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
    if job.state.is_final() && after.is_some_and(|after| job.revision <= after) {
        // It tells an EventSource not to reconnect.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let full =
        |error: helmdeck_core::Error| error.with_message("you have too many event streams open");
    let share = state
        .streams_of
        .enter(&caller.identity.without_session())
        .map_err(full)?;
    let permit = state
        .streams
        .enter()
        .map_err(|error| error.with_message("too many event streams are open"))?;
    let events = state
        .engine
        .engine
        .follow_job(reach(&caller, JOB)?, &job.id, after)
        .await?;
    let open = Open {
        events: Box::pin(events),
        state: None,
        ended: false,
        drain: state.drain.clone(),
        ends: Instant::now() + STREAM_LIFE,
        _permits: (permit, share),
    };
    let lines = stream::unfold(open, |mut open| async move {
        let lines = open.next().await?;
        Some((Ok::<_, Infallible>(lines), open))
    });
    let headers = [
        (CONTENT_TYPE, EVENTS),
        (CACHE_CONTROL, NO_STORE),
        UNBUFFERED,
    ];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// An open stream.
struct Open {
    events: Pin<Box<dyn Stream<Item = JobEvent> + Send>>,
    /// State in the last event.
    state: Option<JobState>,
    /// Whether the server ended the stream.
    ended: bool,
    drain: CancellationToken,
    ends: Instant,
    /// Held until the stream is dropped.
    _permits: (Permit, Share),
}

impl Open {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        tokio::select! {
            biased;
            () = self.drain.cancelled() => {
                self.ended = true;
                Some(Bytes::from_static(RECONNECT))
            }
            () = tokio::time::sleep_until(self.ends) => None,
            event = self.events.next() => self.write(&event?),
            () = tokio::time::sleep(KEEP_ALIVE) => Some(Bytes::from_static(b":\n\n")),
        }
    }

    fn write(&mut self, event: &JobEvent) -> Option<Bytes> {
        let name = if self.state.replace(event.job.state) == Some(event.job.state) {
            "progress"
        } else {
            "state"
        };
        // Compact JSON has no line feeds.
        let data = serde_json::to_string(&*event.job).ok()?;
        Some(format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.number).into())
    }
}
