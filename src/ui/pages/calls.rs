//! The newest calls of the caller, from its audit.

use askama::Template;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use helmdeck_core::Caller;
use serde::Deserialize;

use super::answered;
use crate::Ui;
use crate::frame::{Frame, Place, page};
use crate::request::By;
use crate::rest::Failure;
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/calls", get(list))
}

/// Habits of a caller, from its audit.
#[derive(Debug, Deserialize)]
pub(super) struct Habits {
    pub(super) packs: Vec<UsedPack>,
    pub(super) recent: Vec<Row>,
}

/// A pack that the caller uses.
#[derive(Debug, Deserialize)]
pub(super) struct UsedPack {
    pub(super) pack: String,
    pub(super) calls: u64,
    pub(super) last_used: Time,
}

/// A call.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) pack: String,
    pub(super) outcome: String,
    pub(super) at: Time,
    pub(super) duration_ms: u64,
    pub(super) cache: Option<String>,
}

/// Returns the habits of the caller, or of another one by `tenant` and `subject` in `query`.
pub(super) async fn habits(ui: &Ui, caller: &Caller, query: &str) -> Result<Habits, Failure> {
    ui.rest.get(caller, &format!("/api/v1/memory/defaults?{}", query.trim_start_matches('&'))).await
}

#[derive(Template)]
#[template(path = "calls.html")]
struct CallsPage {
    frame: Frame,
    habits: Habits,
    pack: String,
    outcome: String,
    tenant: String,
    subject: String,
}

async fn list(State(ui): State<Ui>, By(caller): By, query: RawQuery) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let mut habits = habits(&ui, &caller, &state.query(&["tenant", "subject"])).await?;
        let (pack, outcome) = (state.get("pack"), state.get("outcome"));
        let matches = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        habits.recent.retain(|call| matches(pack, &call.pack) && matches(outcome, &call.outcome));
        Ok(page(&CallsPage {
            frame: Frame::new("Calls", Place::Calls, &caller, &ui),
            pack: pack.to_owned(),
            outcome: outcome.to_owned(),
            tenant: state.get("tenant").to_owned(),
            subject: state.get("subject").to_owned(),
            habits,
        }))
    };
    answered(&ui, &caller, Place::Calls, answer.await)
}
