//! Cached answers: what is stored, and purging it after a look at what goes.

use askama::Template;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{answered, done};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::request::{By, Sent};
use crate::rest;
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/cache", get(list)).route("/ui/cache/purge", post(purge))
}

/// A cached answer, without its value.
#[derive(Debug, Deserialize)]
struct Entry {
    key: String,
    tags: Vec<String>,
    updated_at: Time,
    expires_at: Option<Time>,
    size: u64,
    tenant: String,
    subject: String,
    session: Option<String>,
}

impl Entry {
    /// Returns the pack of the answer: a key starts with it.
    fn pack(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }

    /// Returns the first digits of the key, as `Cache-Status` has them.
    fn short_key(&self) -> &str {
        let digits = self.key.rsplit('/').next().unwrap_or_default();
        digits.get(..16).unwrap_or(digits)
    }
}

#[derive(Debug, Deserialize)]
struct EntryList {
    entries: Vec<Entry>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "cache.html")]
struct CachePage {
    frame: Frame,
    done: String,
    pack: String,
    tenant: String,
    subject: String,
    list: EntryList,
}

async fn list(State(ui): State<Ui>, By(caller): By, query: RawQuery) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let filter = state.query(&["pack", "tenant", "subject", "session", "after"]);
        let list = ui.rest.get(&caller, &format!("/api/v1/memory/entries?limit=50{filter}")).await?;
        let or_own =
            |name: &str, own: &str| Some(state.get(name)).filter(|text| !text.is_empty()).unwrap_or(own).to_owned();
        Ok(page(&CachePage {
            frame: Frame::new("Cache", Place::Cache, &caller, &ui),
            done: state.get("done").to_owned(),
            pack: state.get("pack").to_owned(),
            tenant: or_own("tenant", caller.identity.tenant()),
            subject: or_own("subject", caller.identity.user()),
            list,
        }))
    };
    answered(&ui, &caller, Place::Cache, answer.await)
}

async fn purge(State(ui): State<Ui>, sent: Sent) -> Response {
    let mut namespace = json!({ "tenant": sent.value("tenant"), "subject": sent.value("subject") });
    if let Some(session) = sent.get("session") {
        namespace["session"] = session.into();
    }
    let selector = match (sent.get("key"), sent.get("pack"), sent.get("tag")) {
        (Some(key), ..) => json!({ "namespace": namespace, "key": key }),
        (None, Some(pack), _) => json!({ "pack": pack }),
        (None, None, Some(tag)) => json!({ "tag": tag }),
        (None, None, None) => json!({ "namespace": namespace }),
    };
    let purged = ui.rest.send(&sent.caller, Method::POST, "/api/v1/memory/purge", Some(&selector)).await;
    match purged.and_then(|answer| rest::read::<Value>(&answer)) {
        Ok(purged) => {
            let rows = shown::count(purged["rows"].as_u64().unwrap_or_default(), "answer");
            let pending =
                if purged["pending"] == true { " The store will delete the rest when it can be reached." } else { "" };
            done("/ui/cache", &format!("Purged {rows}.{pending}"))
        }
        Err(failure) => failed(&ui, &sent.caller, Place::Cache, &failure),
    }
}
