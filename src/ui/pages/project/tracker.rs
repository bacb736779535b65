//! The sync with an issue tracker: what waits, what failed, and conflicts with their settlement.

use askama::Template;
use axum::Router;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{API, Tab, Top, answered, change, changed, live_frame, optional};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/tracker",
            page_at(|visit| Box::pin(show(visit))),
        )
        .route(
            "/ui/project/tracker/resolve",
            form_at(|post| Box::pin(resolve(post))),
        )
}

answer! {
    #[derive(Debug)]
    struct Tracker {
        mode: String,
        kind: String,
        sync: Status,
    }

    /// State of the sync.
    #[derive(Debug)]
    struct Status {
        tracker: String = default,
        pulled_at: Option<Time>,
        failure: Option<Failure>,
        tracked: u64,
        local: Vec<String>,
        waiting: u64,
        failed: Vec<Operation>,
        conflicts: Vec<Conflict>,
        damaged: u64 = default,
    }

    #[derive(Debug)]
    struct Failure {
        since: Time,
        error: String,
    }

    /// A change that waits for the tracker.
    #[derive(Debug)]
    struct Operation {
        kind: String,
        issue: String,
        patch: Map<String, Value> = default,
        made_at: Time,
        attempts: u64 = default,
        last_error: Option<String>,
    }
}

impl Operation {
    /// Returns the names of the changed fields.
    fn fields(&self) -> String {
        self.patch.keys().cloned().collect::<Vec<_>>().join(", ")
    }
}

answer! {
    /// A field that was changed on both sides.
    #[derive(Debug)]
    struct Conflict {
        key: String,
        field: String,
        base: Option<Value>,
        ours: Option<Value>,
        theirs: Option<Value>,
        since: Time,
    }
}

impl Conflict {
    /// Says whether a third value can be entered: only a text or a number.
    fn takes_value(&self) -> bool {
        !matches!(self.field.as_str(), "labels" | "blocked_by" | "criteria")
    }
}

/// Returns a value of a field as a person reads it.
fn value(value: &Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(all)) if all.iter().all(Value::is_string) => all
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        Some(other) => shown::json(other),
    }
}

answer! {
    #[derive(Debug)]
    struct Outbox {
        waiting: Vec<Operation>,
    }
}

/// Number of waiting changes on the page.
const MOST: usize = 100;

#[derive(Template)]
#[template(path = "project/tracker.html")]
struct TrackerPage {
    frame: Frame,
    top: Top,
    tracker: Tracker,
    waiting: Vec<Operation>,
}

crate::frame::framed!(TrackerPage);

async fn show(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let tracker: Tracker = ui.rest.get(&caller, &format!("{API}/tracker")).await?;
        let outbox: Option<Outbox> = optional(&ui, &caller, "tracker/outbox").await;
        let mut waiting = outbox.map(|outbox| outbox.waiting).unwrap_or_default();
        waiting.truncate(MOST);
        let frame = live_frame("Tracker", &ui, &caller);
        Ok(page(&TrackerPage {
            frame,
            top: Top::new(Tab::Tracker, &state, &ui, &caller),
            tracker,
            waiting,
        }))
    };
    answered(&ui, &caller, Tab::Tracker, answer.await)
}

async fn resolve(Post { ui, sent, .. }: Post) -> Response {
    let mut body = json!({ "key": sent.value("key"), "field": sent.value("field"), "choice": sent.value("choice") });
    if let Some(since) = sent.get("since") {
        body["since"] = since.into();
    }
    if sent.value("choice") == "value" {
        body["value"] = sent.value("value").into();
    }
    let answer = change(&ui, &sent, "tracker/resolve", &body).await;
    changed(
        &ui,
        &sent,
        Tab::Tracker,
        "/ui/project/tracker",
        "The conflict was settled.",
        answer,
    )
}
