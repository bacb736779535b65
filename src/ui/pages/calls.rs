//! Past calls as they end: whose, which pack, what came of it.

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::response::Response;
use futures_util::future::BoxFuture;
use helmdeck_core::{Caller, Timestamp};

use super::answered;
use super::list::{ListOf, Listed};
use crate::Ui;
use crate::frame::{Frame, Place, page};
use crate::json::{self, answer};
use crate::live::{Change, Live, Viewer};
use crate::request::{Visit, page_at};
use crate::rest::{Failure, segment};
use crate::shown::{self, Time};

const LIST: ListOf = ListOf {
    place: Place::Calls,
    title: "Calls",
    route: "/api/v1/audit",
    filters: &["pack", "outcome", "tenant", "user"],
    own: &["since"],
    cursor: "cursor",
    rows: 100,
};

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/calls", page_at(|visit| Box::pin(list(visit))))
}

answer! {
    /// A call.
    #[derive(Debug)]
    pub(super) struct Call {
        at: Time,
        tenant: String,
        user: String,
        pack: String,
        version: String,
        outcome: String,
        cache: Option<String>,
        duration_us: u64,
        findings: Vec<Finding> = default,
    }

    /// Finding of a pack.
    #[derive(Debug)]
    struct Finding {
        code: String,
        severity: String = default,
        file: String = default,
    }

    /// A page of calls.
    #[derive(Debug, Default)]
    struct CallList {
        calls: Vec<Call>,
        next: Option<String>,
        /// Number of calls that a stream left out.
        skipped: u64 = default,
        truncated: bool = default,
        unreadable: u64 = default,
    }
}

/// Row of a call.
#[derive(Template)]
#[template(path = "call_row.html")]
pub(super) struct CallRow<'a> {
    pub(super) call: &'a Call,
    pub(super) now: Timestamp,
}

impl CallRow<'_> {
    /// Returns the id of the row: the same call has the same one from the list and from the stream.
    fn id(&self) -> String {
        format!(
            "call-{}-{}-{}",
            self.call.at.0.micros(),
            self.call.duration_us,
            self.call.pack
        )
    }

    /// Returns the page with the cached answers of this caller and pack.
    fn cache_path(&self) -> String {
        let Call {
            tenant, user, pack, ..
        } = self.call;
        format!(
            "/ui/cache?pack={}&tenant={}&subject={}",
            segment(pack),
            segment(tenant),
            segment(user)
        )
    }
}

#[derive(Template)]
#[template(path = "calls.html")]
struct CallsPage {
    frame: Frame,
    list: Listed<CallList>,
}

crate::frame::framed!(CallsPage);

impl CallsPage {
    /// Choices of the time that is shown, as value and label.
    const SINCE: [(&'static str, &'static str); 4] = [
        ("", "any time"),
        ("hour", "the last hour"),
        ("day", "the last day"),
        ("week", "the last week"),
    ];

    fn row<'a>(&self, call: &'a Call) -> CallRow<'a> {
        CallRow {
            call,
            now: self.frame.now,
        }
    }
}

/// Returns the newest calls that a caller may see.
pub(super) async fn newest(ui: &Ui, caller: &Caller, limit: usize) -> Result<Vec<Call>, Failure> {
    let list: CallList = ui
        .rest
        .get(caller, &format!("{}?limit={limit}", LIST.route))
        .await?;
    Ok(list.calls)
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

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let from =
        since(state.get("since"), ui.clock.now()).map(|at| format!("&since={}", segment(&at)));
    let answer = async {
        let list: Listed<CallList> = LIST
            .read_with(&ui, &caller, &query, &from.unwrap_or_default())
            .await?;
        let mut frame = Frame::new(LIST.title, LIST.place, &caller, &ui);
        if !list.is_older() {
            frame = frame.live(&format!("view=calls{}", list.filter()));
        }
        Ok(page(&CallsPage { frame, list }))
    };
    answered(&ui, &caller, LIST.place, answer.await)
}

/// Live view of the page: new calls come first.
struct LiveCalls {
    filter: String,
}

/// Returns the live view of a page of calls.
pub(super) fn live(state: &super::State) -> Box<dyn Live> {
    Box::new(LiveCalls {
        filter: state.query(LIST.filters),
    })
}

impl Live for LiveCalls {
    fn source(&self) -> String {
        format!("/api/v1/events?topics=calls{}", self.filter)
    }

    fn changes<'a>(
        &'a mut self,
        at: &'a Viewer,
        _: &'a str,
        data: &'a [u8],
    ) -> BoxFuture<'a, Vec<Change>> {
        Box::pin(async move {
            let list = read(data);
            let skipped = list.skipped;
            let mut changes = rows(at, list.calls, LIST.rows);
            if skipped > 0 {
                let text = shown::count(skipped, "more call");
                let html = format!(
                    "<p id=\"calls-skipped\" class=\"note\">{text} came too fast to be listed.</p>"
                );
                changes.push(Change::Put {
                    id: "calls-skipped".to_owned(),
                    html,
                });
            }
            changes
        })
    }
}

fn read(data: &[u8]) -> CallList {
    json::from_slice(data).unwrap_or_default()
}

/// Returns the changes of an event with calls, for an element `calls` that keeps at most `max`.
pub(super) fn changes(at: &Viewer, data: &[u8], max: usize) -> Vec<Change> {
    rows(at, read(data).calls, max)
}

fn rows(at: &Viewer, mut calls: Vec<Call>, max: usize) -> Vec<Change> {
    let now = at.now();
    // Older ones would be dropped at once.
    calls.drain(..calls.len().saturating_sub(max));
    let add = |call: Call| {
        let row = CallRow { call: &call, now };
        Some(Change::Add {
            to: "calls",
            id: row.id(),
            html: row.render().ok()?,
            max,
        })
    };
    let mut changes: Vec<Change> = calls.into_iter().filter_map(add).collect();
    if !changes.is_empty() {
        changes.push(Change::Drop {
            id: "calls-empty".to_owned(),
        });
    }
    changes
}
