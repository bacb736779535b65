//! The newest events of the project.

use askama::Template;
use axum::Router;
use axum::response::Response;
use serde_json::Value;

use super::{API, Tab, Top, answered, live_frame};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Visit, page_at};
use crate::shown::{self, Time};

/// Number of events on a page.
const LIMIT: usize = 100;

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/project/events", page_at(|visit| Box::pin(list(visit))))
}

answer! {
    #[derive(Debug)]
    struct Tail {
        events: Vec<Event>,
        gaps: Vec<Gap>,
        damaged: u64,
        seq: u64,
    }

    /// An event.
    #[derive(Debug)]
    struct Event {
        seq: u64,
        kind: String = "type",
        ts: Time,
        session: Option<String>,
        agent: String,
        data: Value = default,
    }
}

impl Event {
    fn json(&self) -> String {
        shown::json(&self.data)
    }
}

answer! {
    #[derive(Debug)]
    struct Gap {
        from: u64,
        to: u64,
    }
}

#[derive(Template)]
#[template(path = "project/events.html")]
struct EventsPage {
    frame: Frame,
    top: Top,
    session: String,
    tail: Tail,
}

crate::frame::framed!(EventsPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let route = format!(
            "{API}/events?limit={LIMIT}{}",
            state.query(&["session", "after"])
        );
        let mut tail: Tail = ui.rest.get(&caller, &route).await?;
        tail.events.reverse();
        Ok(page(&EventsPage {
            frame: live_frame("Events", &ui, &caller),
            top: Top::new(Tab::Events, &state, &ui, &caller),
            session: state.get("session").to_owned(),
            tail,
        }))
    };
    answered(&ui, &caller, Tab::Events, answer.await)
}
