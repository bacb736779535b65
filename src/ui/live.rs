//! Live updates: one stream of events a page.
//!
//! A view turns what the REST routes stream into changes of fragments. Without the script a page is
//! whole; the stream only replaces what it shows by what is true now.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use helmdeck_core::{Caller, Timestamp};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::Ui;
use crate::frame::{Place, failed};
use crate::pages;
use crate::request::{Visit, page_at};
use crate::rest::Failure;

/// Limit of one event of the REST routes, in bytes.
const MAX_EVENT_BYTES: usize = 4 << 20;

pub(crate) fn routes() -> Router<Ui> {
    Router::new().route("/ui/stream", page_at(|visit| Box::pin(follow(visit))))
}

/// Change of a fragment, as the script of a page applies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Change {
    /// Replaces the element `id`; nothing if the page has none.
    Put { id: String, html: String },
    /// Puts an element first into the element `to`; one with the same id is replaced.
    ///
    /// The last ones above `max` are removed.
    Add {
        to: &'static str,
        id: String,
        html: String,
        max: usize,
    },
    /// Removes the element `id`.
    Drop { id: String },
    /// Reads the page again, and replaces its elements with `data-refresh` by their ids.
    Reload,
    /// Ends the stream: nothing on the page changes any more.
    End,
}

/// A page's share of the stream, for one visitor.
pub(crate) trait Live: Send {
    /// Returns the REST route that is followed.
    fn source(&self) -> String;

    /// Returns what an event changes on the page. `data` is its JSON.
    fn changes<'a>(
        &'a mut self,
        at: &'a Viewer,
        event: &'a str,
        data: &'a [u8],
    ) -> BoxFuture<'a, Vec<Change>>;
}

/// Who looks at a page.
pub(crate) struct Viewer {
    pub(crate) ui: Ui,
    pub(crate) caller: Caller,
}

impl Viewer {
    pub(crate) fn now(&self) -> Timestamp {
        self.ui.clock.now()
    }
}

/// View of a page that is read again when a topic has news. `topics` are those of `/api/v1/events`.
struct Reread {
    topics: String,
}

impl Live for Reread {
    fn source(&self) -> String {
        format!(
            "/api/v1/events?topics={}",
            crate::rest::segment(&self.topics)
        )
    }

    fn changes<'a>(
        &'a mut self,
        _: &'a Viewer,
        _: &'a str,
        _: &'a [u8],
    ) -> BoxFuture<'a, Vec<Change>> {
        Box::pin(async { vec![Change::Reload] })
    }
}

async fn follow(
    Visit {
        ui,
        caller,
        query,
        headers,
        ..
    }: Visit,
) -> Response {
    let state = pages::State::of(&query);
    let view: Option<Box<dyn Live>> = match state.get("view") {
        "page" => Some(Box::new(Reread {
            topics: state.get("topics").to_owned(),
        })),
        name => pages::view(name, &state),
    };
    let refuse = |failure: &Failure| failed(&ui, &caller, Place::Overview, failure);
    let Some(view) = view else {
        return refuse(&Failure::new(
            StatusCode::NOT_FOUND,
            "there is no such view",
        ));
    };
    let header = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    let last = header.or(Some(state.get("last")).filter(|last| !last.is_empty()));
    let opened = match ui.rest.follow(&caller, &view.source(), last).await {
        Ok(opened) => opened,
        Err(failure) => return refuse(&failure),
    };
    if opened.status() == StatusCode::NO_CONTENT {
        return StatusCode::NO_CONTENT.into_response();
    }
    let viewer = Viewer { ui, caller };
    let shown = Shown {
        events: Events::new(opened.into_body()),
        view,
        viewer,
    };
    let messages = stream::unfold(shown, |mut shown| async move {
        let message = shown.next().await?;
        Some((Ok::<_, Infallible>(message), shown))
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, Body::from_stream(messages)).into_response()
}

/// An open stream of changes.
struct Shown {
    events: Events,
    view: Box<dyn Live>,
    viewer: Viewer,
}

impl Shown {
    async fn next(&mut self) -> Option<Bytes> {
        let Event { id, name, data } = self.events.next().await?;
        if name.is_empty() {
            return Some(Bytes::from_static(b":\n\n"));
        }
        let changes = match name.as_str() {
            "lost" => vec![Change::Reload],
            name => self.view.changes(&self.viewer, name, data.as_bytes()).await,
        };
        // Compact JSON has no line feeds. The id is of our own routes, and of one line.
        let changes = serde_json::to_string(&changes).ok()?;
        Some(format!("id: {id}\ndata: {changes}\n\n").into())
    }
}

/// A server-sent event (HTML standard, section 9.2). A comment has no name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    id: String,
    name: String,
    data: String,
}

impl Event {
    fn parse(text: &str) -> Self {
        let mut event = Self::default();
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("data", data)) => event.data.push_str(data),
                _ => {}
            }
        }
        event
    }
}

/// Reads the events of a route's answer.
struct Events {
    body: BodyDataStream,
    text: Vec<u8>,
}

impl Events {
    fn new(body: Body) -> Self {
        Self {
            body: body.into_data_stream(),
            text: Vec::new(),
        }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let rest = self.text.split_off(end + 2);
                let event = std::mem::replace(&mut self.text, rest);
                return Some(Event::parse(&String::from_utf8_lossy(&event)));
            }
            if self.text.len() > MAX_EVENT_BYTES {
                return None;
            }
            self.text.extend_from_slice(&self.body.next().await?.ok()?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_read_across_chunks() {
        let chunks = [
            "id: 1-2\nev",
            "ent: calls\ndata: {\"a\"",
            ":1}\n\n:\n\nid: 3\nevent: x\nda",
            "ta: 2\n\n",
        ];
        let chunks = stream::iter(
            chunks.map(|chunk| Ok::<_, Infallible>(Bytes::from_static(chunk.as_bytes()))),
        );
        let mut events = Events::new(Body::from_stream(chunks));
        let of = |id: &str, name: &str, data: &str| Event {
            id: id.into(),
            name: name.into(),
            data: data.into(),
        };
        assert_eq!(events.next().await, Some(of("1-2", "calls", "{\"a\":1}")));
        assert_eq!(events.next().await, Some(Event::default()));
        assert_eq!(events.next().await, Some(of("3", "x", "2")));
        assert_eq!(events.next().await, None);
    }

    #[test]
    fn changes_have_one_line_each_and_their_operation() {
        let add = Change::Add {
            to: "rows",
            id: "a".into(),
            html: "<tr>\n</tr>".into(),
            max: 2,
        };
        let text = serde_json::to_string(&[add, Change::Reload]).unwrap();
        assert_eq!(
            text,
            r#"[{"op":"add","to":"rows","id":"a","html":"<tr>\n</tr>","max":2},{"op":"reload"}]"#
        );
    }
}
