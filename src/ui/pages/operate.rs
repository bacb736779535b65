//! State of the server and its store, what an operator can start, and the settings.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::Value;

use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::{self, Failure};
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/operate", page_at(|visit| Box::pin(show(visit))))
        .route("/ui/operate/{action}", form_at(|post| Box::pin(act(post))))
}

answer! {
    #[derive(Debug)]
    struct Status {
        version: String,
        started_at: Time,
        checks: BTreeMap<String, String>,
        packs: u64,
        refused_manifests: u64,
        jobs: JobCounts,
        breaker_open: bool,
        cache_writes_dropped: u64,
        audit_rows_dropped: u64,
        unreadable_rows: u64,
    }

    #[derive(Debug)]
    struct JobCounts {
        queued: u64,
        running: u64,
    }

    #[derive(Debug)]
    struct Store {
        driver: String,
        rows: u64,
        expired: u64,
        bytes: u64,
        disk_bytes: u64,
        rows_by_kind: BTreeMap<String, u64>,
        rows_by_key: BTreeMap<String, u64>,
        key_id: Option<String>,
        rotation: Rotation,
    }
}

impl Store {
    /// Returns how many rows other keys than the current one have sealed.
    fn of_other_keys(&self) -> u64 {
        let others = self
            .rows_by_key
            .iter()
            .filter(|(id, _)| self.key_id.as_ref() != Some(id));
        others.map(|(_, rows)| rows).sum()
    }

    /// Returns that number with its noun.
    fn other_rows(&self) -> String {
        shown::count(self.of_other_keys(), "row")
    }
}

answer! {
    /// The last rotation of the server's process.
    #[derive(Debug)]
    struct Rotation {
        state: String,
        ended_at: Option<Time>,
        end: Option<String>,
        resealed: u64 = default,
        total: Option<u64>,
        remaining: u64 = default,
        unreadable: u64 = default,
        error: Option<String>,
    }

    /// A setting; secrets are `(set)`.
    #[derive(Debug)]
    struct Setting {
        name: String,
        value: Value,
        origin: Option<String>,
    }

    #[derive(Debug)]
    struct Settings {
        settings: Vec<Setting>,
    }
}

#[derive(Template)]
#[template(path = "operate.html")]
struct OperatePage {
    frame: Frame,
    done: String,
    status: Status,
    store: Option<Store>,
    /// Why the store does not answer.
    trouble: String,
    filter: String,
    settings: Vec<Setting>,
}

crate::frame::framed!(OperatePage);

async fn show(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let status = ui.rest.get(&caller, "/api/v1/status").await?;
        // Without a memory key there is no store.
        let store = if ui.memory {
            Some(ui.rest.get(&caller, "/api/v1/store").await)
        } else {
            None
        };
        let (store, trouble) = match store.transpose() {
            Ok(store) => (store, String::new()),
            // The rest of the page helps to find out why.
            Err(failure) if failure.status >= 500 => (None, failure.detail),
            Err(failure) => return Err(failure),
        };
        let mut settings: Settings = ui.rest.get(&caller, "/api/v1/config").await?;
        let filter = state.get("filter").trim().to_owned();
        settings
            .settings
            .retain(|setting| setting.name.contains(&filter));
        Ok(page(&OperatePage {
            frame: Frame::new("Operate", Place::Operate, &caller, &ui)
                .live("view=page&topics=stats,server"),
            done: state.done(&ui, &caller),
            status,
            store,
            trouble,
            filter,
            settings: settings.settings,
        }))
    };
    answered(&ui, &caller, Place::Operate, answer.await)
}

/// Starts a rotation, a sweep or the drain.
async fn act(Post { ui, path, sent }: Post) -> Response {
    let route = match path_value(&path, "action") {
        action @ ("rotate" | "sweep") => format!("/api/v1/store/{action}"),
        "drain" => "/api/v1/drain".to_owned(),
        _ => {
            let failure = Failure::new(StatusCode::NOT_FOUND, "there is no such action");
            return failed(&ui, &sent.caller, Place::Operate, &failure);
        }
    };
    let answer = ui.rest.send(&sent.caller, Method::POST, &route, None).await;
    match answer.and_then(|answer| rest::read::<Value>(&answer)) {
        Ok(value) if value["state"] == "draining" => {
            let sentence =
                "The server drains: it is not ready any more, finishes what runs, and ends.";
            done(&ui, &sent.caller, "/ui/operate", sentence)
        }
        Ok(value) if value.get("state").is_some() => done(
            &ui,
            &sent.caller,
            "/ui/operate",
            "The rotation has begun. Reload the page to see how far it is.",
        ),
        Ok(swept) => {
            let rows = |name: &str| swept[name].as_u64().unwrap_or_default();
            let total = rows("store_rows") + rows("trimmed_answers") + rows("system_rows");
            done(
                &ui,
                &sent.caller,
                "/ui/operate",
                &format!("Swept: {} deleted.", shown::count(total, "row")),
            )
        }
        Err(failure) => failed(&ui, &sent.caller, Place::Operate, &failure),
    }
}
