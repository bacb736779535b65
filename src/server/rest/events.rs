//! The events of a job as they happen: server-sent events (HTML standard, section 9.2).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
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

use super::path::PathValues;
use super::{NO_STORE, jobs};
use crate::access::By;
use crate::app::App;
use crate::limits::{Permit, Share};
use crate::problem::Problem;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Keeps proxies from holding events back.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
/// How often a stream without events says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams the events of a job as they happen: how it stands, then each report and change; it ends after the last one.
///
/// Each event has a number (`id`), a name (`state` or `progress`) and the job as data. `Last-Event-ID` goes on after that number;
/// the answer is 204 if nothing follows. A stream ends after ten minutes, and when the server stops: its client comes again.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", tag = "jobs", operation_id = "job_events",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("Last-Event-ID" = Option<String>, Header, description = "The number of the last event that was seen"),
    ),
    responses(
        (status = 200, description = "The events", content_type = "text/event-stream", body = String),
        (status = 204, description = "The last event was seen already"),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn follow(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let job = jobs::find(&app, &caller, &path).await?;
    let after = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    if job.state.is_final() && after.is_some_and(|after| job.revision <= after) {
        // It tells an EventSource to come no more.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let full = |error: helmdeck_core::Error| error.with_message("too many streams of events of yours are open");
    let share = app.streams_of.enter(&caller.identity.without_session()).map_err(full)?;
    let place = app.streams.enter().map_err(|error| error.with_message("too many streams of events are open"))?;
    let events = app.engine.follow_job(jobs::owner(&caller), &job.id, after).await?;
    let open = Open {
        events: Box::pin(events),
        state: None,
        drain: app.drain.clone(),
        ends: Instant::now() + jobs::STREAM_LIFE,
        _place: (place, share),
    };
    let lines = stream::unfold(open, |mut open| async move {
        let lines = open.next().await?;
        Some((Ok::<_, Infallible>(lines), open))
    });
    let headers = [(CONTENT_TYPE, EVENTS), (CACHE_CONTROL, NO_STORE), UNBUFFERED];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// A stream that somebody reads.
struct Open {
    events: Pin<Box<dyn Stream<Item = JobEvent> + Send>>,
    /// The state of the last event.
    state: Option<JobState>,
    drain: CancellationToken,
    ends: Instant,
    /// Never looked at: what matters is when it is dropped.
    _place: (Permit, Share),
}

impl Open {
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            biased;
            () = self.drain.cancelled() => None,
            () = tokio::time::sleep_until(self.ends) => None,
            event = self.events.next() => self.write(&event?),
            () = tokio::time::sleep(KEEP_ALIVE) => Some(Bytes::from_static(b":\n\n")),
        }
    }

    fn write(&mut self, event: &JobEvent) -> Option<Bytes> {
        let name = if self.state.replace(event.job.state) == Some(event.job.state) { "progress" } else { "state" };
        // JSON has no line feeds of its own.
        let data = serde_json::to_string(&*event.job).ok()?;
        Some(format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.number).into())
    }
}
