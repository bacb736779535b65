//! Past calls as they end: whose, which pack, what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::future::BoxFuture;
use helmdeck_core::{Caller, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::answered;
use crate::Ui;
use crate::frame::{Frame, Place, page};
use crate::live::{Change, Live, Viewer};
use crate::request::By;
use crate::rest::{Failure, segment};
use crate::shown::{self, Time};

/// Parameters of the page that select calls.
const FILTERS: [&str; 4] = ["pack", "outcome", "tenant", "user"];
/// Number of calls on a page.
const ROWS: usize = 100;

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/calls", get(list))
}

/// A call.
#[derive(Debug, Deserialize)]
struct Call {
    at: Time,
    tenant: String,
    user: String,
    pack: String,
    version: String,
    outcome: String,
    cache: Option<String>,
    duration_us: u64,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    #[serde(default)]
    findings: Vec<Finding>,
}

/// Finding of a pack.
#[derive(Debug, Deserialize)]
struct Finding {
    code: String,
    #[serde(default)]
    severity: String,
    #[serde(default)]
    file: String,
}

/// A page of calls.
#[derive(Debug, Default, Deserialize)]
struct CallList {
    calls: Vec<Call>,
    next: Option<String>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    unreadable: u64,
}

/// Row of a call.
#[derive(Template)]
#[template(path = "call_row.html")]
pub(super) struct CallRow {
    call: Call,
    now: Timestamp,
}

impl CallRow {
    /// Returns the id of the row: the same call has the same one from the list and from the stream.
    fn id(&self) -> String {
        format!("call-{}-{}-{}", self.call.at.0.micros(), self.call.duration_us, self.call.pack)
    }

    /// Returns the page with the cached answers of this caller and pack.
    fn cache_path(&self) -> String {
        let Call { tenant, user, pack, .. } = &self.call;
        format!("/ui/cache?pack={}&tenant={}&subject={}", segment(pack), segment(tenant), segment(user))
    }
}

#[derive(Template)]
#[template(path = "calls.html")]
struct CallsPage {
    frame: Frame,
    rows: Vec<CallRow>,
    list: CallList,
    pack: String,
    outcome: String,
    tenant: String,
    user: String,
    since: String,
    /// Query of the next page without its cursor.
    query: String,
}

impl CallsPage {
    /// Choices of the time that is shown, as value and label.
    const SINCE: [(&'static str, &'static str); 4] =
        [("", "any time"), ("hour", "the last hour"), ("day", "the last day"), ("week", "the last week")];
}

/// Returns the newest calls that a caller may see.
pub(super) async fn newest(ui: &Ui, caller: &Caller, limit: usize) -> Result<Vec<CallRow>, Failure> {
    let list: CallList = ui.rest.get(caller, &format!("/api/v1/audit?limit={limit}")).await?;
    let now = ui.clock.now();
    Ok(list.calls.into_iter().map(|call| CallRow { call, now }).collect())
}

/// Returns the start of a time that was chosen.
fn since(choice: &str, now: Timestamp) -> Option<String> {
    let hours = match choice {
        "hour" => 1,
        "day" => 24,
        "week" => 7 * 24,
        _ => return None,
    };
    let back = i64::try_from(Duration::from_secs(hours * 3_600).as_micros()).ok()?;
    Some(Timestamp(now.micros().saturating_sub(back)).to_rfc3339())
}

async fn list(State(ui): State<Ui>, By(caller): By, query: RawQuery) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let filter = state.query(&FILTERS);
        let now = ui.clock.now();
        let from = since(state.get("since"), now).map(|at| format!("&since={}", segment(&at))).unwrap_or_default();
        let cursor = state.query(&["cursor"]);
        let route = format!("/api/v1/audit?limit={ROWS}{filter}{from}{cursor}");
        let mut list: CallList = ui.rest.get(&caller, &route).await?;
        let mut frame = Frame::new("Calls", Place::Calls, &caller, &ui);
        // An older page does not change.
        if cursor.is_empty() {
            frame = frame.live(&format!("view=calls{filter}"));
        }
        Ok(page(&CallsPage {
            frame,
            rows: std::mem::take(&mut list.calls).into_iter().map(|call| CallRow { call, now }).collect(),
            list,
            pack: state.get("pack").to_owned(),
            outcome: state.get("outcome").to_owned(),
            tenant: state.get("tenant").to_owned(),
            user: state.get("user").to_owned(),
            since: state.get("since").to_owned(),
            query: state.query(&["pack", "outcome", "tenant", "user", "since"]),
        }))
    };
    answered(&ui, &caller, Place::Calls, answer.await)
}

/// Live view of the page: new calls come first.
struct LiveCalls {
    filter: String,
}

/// Returns the live view of a page of calls.
pub(super) fn live(state: &super::State) -> Box<dyn Live> {
    Box::new(LiveCalls { filter: state.query(&FILTERS) })
}

impl Live for LiveCalls {
    fn source(&self) -> String {
        format!("/api/v1/events?topics=calls{}", self.filter)
    }

    fn changes<'a>(&'a mut self, at: &'a Viewer, _: &'a str, data: Value) -> BoxFuture<'a, Vec<Change>> {
        Box::pin(async move {
            let skipped = data["skipped"].as_u64().unwrap_or_default();
            let mut changes = rows(at, data, ROWS);
            if skipped > 0 {
                let text = shown::count(skipped, "more call");
                let html = format!("<p id=\"calls-skipped\" class=\"note\">{text} came too fast to be listed.</p>");
                changes.push(Change::Put { id: "calls-skipped".to_owned(), html });
            }
            changes
        })
    }
}

/// Returns the rows of an event with calls, for an element `calls` that keeps at most `max`.
pub(super) fn rows(at: &Viewer, data: Value, max: usize) -> Vec<Change> {
    let now = at.now();
    let mut calls = CallList::deserialize(data).unwrap_or_default().calls;
    // Older ones would be dropped at once.
    calls.drain(..calls.len().saturating_sub(max));
    let add = |call| {
        let row = CallRow { call, now };
        Some(Change::Add { to: "calls", id: row.id(), html: row.render().ok()?, max })
    };
    let mut changes: Vec<Change> = calls.into_iter().filter_map(add).collect();
    if !changes.is_empty() {
        changes.push(Change::Drop { id: "calls-empty".to_owned() });
    }
    changes
}
