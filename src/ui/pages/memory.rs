//! Facts about the caller: show, store, forget; and what each namespace holds.

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
    Router::new()
        .route("/ui/memory", get(list))
        .route("/ui/memory/store", post(store))
        .route("/ui/memory/forget", post(forget))
}

/// A fact with its value.
#[derive(Debug, Deserialize)]
struct Fact {
    key: String,
    value: String,
    category: String,
    tags: Vec<String>,
    pack: Option<String>,
    updated_at: Time,
    expires_at: Option<Time>,
}

#[derive(Debug, Deserialize)]
struct FactList {
    facts: Vec<Fact>,
    unreadable: u64,
    next: Option<String>,
}

/// What a namespace holds of one kind.
#[derive(Debug, Deserialize)]
struct Holding {
    tenant: String,
    subject: String,
    session: Option<String>,
    kind: String,
    rows: u64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Holdings {
    namespaces: Vec<Holding>,
}

/// Number of namespaces on the page: an administrator may see very many.
const NAMESPACES: usize = 50;

#[derive(Template)]
#[template(path = "memory.html")]
struct MemoryPage {
    frame: Frame,
    done: String,
    prefix: String,
    category: String,
    list: FactList,
    holdings: Vec<Holding>,
    more_holdings: usize,
}

async fn list(State(ui): State<Ui>, By(caller): By, query: RawQuery) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let mut wanted = json!({ "limit": 50 });
        for name in ["prefix", "category", "tag", "after"] {
            if !state.get(name).is_empty() {
                wanted[name] = state.get(name).into();
            }
        }
        let answer = ui.rest.send(&caller, Method::POST, "/api/v1/memory/recall", Some(&wanted)).await?;
        let mut holdings: Holdings = ui.rest.get(&caller, "/api/v1/memory/namespaces").await?;
        let more_holdings = holdings.namespaces.len().saturating_sub(NAMESPACES);
        holdings.namespaces.truncate(NAMESPACES);
        Ok(page(&MemoryPage {
            frame: Frame::new("Memory", Place::Memory, &caller, &ui),
            done: state.get("done").to_owned(),
            prefix: state.get("prefix").to_owned(),
            category: state.get("category").to_owned(),
            list: rest::read(&answer)?,
            holdings: holdings.namespaces,
            more_holdings,
        }))
    };
    answered(&ui, &caller, Place::Memory, answer.await)
}

async fn store(State(ui): State<Ui>, sent: Sent) -> Response {
    let mut fact = json!({ "key": sent.value("key"), "value": sent.value("value") });
    if let Some(category) = sent.get("category") {
        fact["category"] = category.into();
    }
    match ui.rest.send(&sent.caller, Method::POST, "/api/v1/memory/store", Some(&fact)).await {
        Ok(_) => done("/ui/memory", "The fact was stored."),
        Err(failure) => failed(&ui, &sent.caller, Place::Memory, &failure),
    }
}

async fn forget(State(ui): State<Ui>, sent: Sent) -> Response {
    let what = match sent.get("key") {
        Some(key) => json!({ "key": key }),
        None => json!({ "all": true, "what": ["facts"] }),
    };
    let forgotten = ui.rest.send(&sent.caller, Method::POST, "/api/v1/memory/forget", Some(&what)).await;
    match forgotten.and_then(|answer| rest::read::<Value>(&answer)) {
        Ok(forgotten) => {
            let facts = forgotten["removed"]["facts"].as_u64().unwrap_or_default();
            done("/ui/memory", &format!("Receipt: {} deleted.", shown::count(facts, "fact")))
        }
        Err(failure) => failed(&ui, &sent.caller, Place::Memory, &failure),
    }
}
