//! Facts and notes about the caller: show, store, edit, forget, export; and what each namespace
//! holds.

use askama::Template;
use axum::Router;
use axum::response::Response;
use helmdeck_core::Caller;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{answered, done};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::{self, Failure, segment};
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/memory", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/memory/export",
            page_at(|visit| Box::pin(export(visit))),
        )
        .route("/ui/memory/store", form_at(|post| Box::pin(store(post))))
        .route("/ui/memory/forget", form_at(|post| Box::pin(forget(post))))
}

answer! {
    /// A fact with its value.
    #[derive(Debug)]
    struct Fact {
        key: String,
        value: String,
        category: String,
        tags: Vec<String>,
        pack: Option<String>,
        trust: String,
        updated_at: Time,
        expires_at: Option<Time>,
    }

    #[derive(Debug)]
    struct FactList {
        facts: Vec<Fact>,
        unreadable: u64,
        next: Option<String>,
    }

    /// What a namespace holds of one kind.
    #[derive(Debug)]
    struct Holding {
        tenant: String,
        subject: String,
        session: Option<String>,
        kind: String,
        rows: u64,
        bytes: u64,
    }

    #[derive(Debug)]
    struct Holdings {
        namespaces: Vec<Holding>,
        next: Option<String>,
    }

    /// A note of a pack about the caller, without its text.
    #[derive(Debug)]
    struct Note {
        key: String,
        category: String,
        tags: Vec<String>,
        updated_at: Time,
        expires_at: Option<Time>,
        size: u64,
    }

    #[derive(Debug)]
    struct NoteList {
        entries: Vec<Note>,
        next: Option<String>,
    }
}

/// Facts of one request of the export.
const EXPORTED: u64 = 100;
/// Limit of the export: the answer is one file.
const MAX_EXPORTED: usize = 100_000;

#[derive(Template)]
#[template(path = "memory.html")]
struct MemoryPage {
    frame: Frame,
    done: String,
    prefix: String,
    category: String,
    tag: String,
    kind: String,
    list: FactList,
    notes: NoteList,
    holdings: Holdings,
    /// The fact to edit: its key, value, category and tags.
    edited: Option<Fact>,
}

crate::frame::framed!(MemoryPage);

impl MemoryPage {
    fn is_filtered(&self) -> bool {
        [&self.prefix, &self.category, &self.tag]
            .iter()
            .any(|filter| !filter.is_empty())
    }

    /// URL of this page with another parameter.
    fn with(&self, name: &str, value: &str) -> String {
        let filters = [
            ("prefix", &self.prefix),
            ("category", &self.category),
            ("tag", &self.tag),
            ("kind", &self.kind),
        ];
        let kept = filters
            .iter()
            .filter(|(known, value)| *known != name && !value.is_empty());
        let kept: String = kept
            .map(|(name, value)| format!("{name}={}&", segment(value)))
            .collect();
        format!("/ui/memory?{kept}{name}={}", segment(value))
    }
}

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let mut wanted = json!({ "limit": 50 });
        for name in ["prefix", "category", "tag", "after"] {
            if !state.get(name).is_empty() {
                wanted[name] = state.get(name).into();
            }
        }
        let list = recall(&ui, &caller, &wanted).await?;
        let (notes_after, holders_after) = (
            named(&state, "notes_after", "after"),
            named(&state, "holders_after", "after"),
        );
        let notes = format!("/api/v1/memory/entries?kind=note&limit=20{notes_after}");
        let holders = format!(
            "/api/v1/memory/namespaces?limit=20{}{holders_after}",
            state.query(&["kind"])
        );
        let edited = match state.get("edit") {
            "" => None,
            key => recall(&ui, &caller, &json!({ "key": key }))
                .await?
                .facts
                .into_iter()
                .next(),
        };
        Ok(page(&MemoryPage {
            frame: Frame::new("Memory", Place::Memory, &caller, &ui),
            done: state.done(&ui, &caller),
            prefix: state.get("prefix").to_owned(),
            category: state.get("category").to_owned(),
            tag: state.get("tag").to_owned(),
            kind: state.get("kind").to_owned(),
            list,
            notes: ui.rest.get(&caller, &notes).await?,
            holdings: ui.rest.get(&caller, &holders).await?,
            edited,
        }))
    };
    answered(&ui, &caller, Place::Memory, answer.await)
}

/// Returns a parameter of the page under the name that a route has for it.
fn named(state: &super::State, name: &str, known: &str) -> String {
    match state.get(name) {
        "" => String::new(),
        value => format!("&{known}={}", segment(value)),
    }
}

async fn recall(ui: &Ui, caller: &Caller, wanted: &Value) -> Result<FactList, Failure> {
    rest::read(
        &ui.rest
            .send(caller, Method::POST, "/api/v1/memory/recall", Some(wanted))
            .await?,
    )
}

/// Sends all facts about the caller as a JSON file.
async fn export(Visit { ui, caller, .. }: Visit) -> Response {
    let all = async {
        let (mut facts, mut after) = (Vec::new(), Value::Null);
        loop {
            let mut wanted = json!({ "limit": EXPORTED });
            if !after.is_null() {
                wanted["after"] = after;
            }
            let answer = ui
                .rest
                .send(
                    &caller,
                    Method::POST,
                    "/api/v1/memory/recall",
                    Some(&wanted),
                )
                .await?;
            let mut part: Value = rest::read(&answer)?;
            facts.extend(
                part["facts"]
                    .as_array_mut()
                    .map(std::mem::take)
                    .unwrap_or_default(),
            );
            after = part["next"].take();
            if after.is_null() {
                return Ok(facts);
            }
            if facts.len() >= MAX_EXPORTED {
                let message = "there are too many facts for one file; use the REST route /api/v1/memory/recall";
                return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
        }
    };
    match all.await {
        Ok(facts) => super::download("facts.json", format!("{:#}\n", json!({ "facts": facts }))),
        Err(failure) => failed(&ui, &caller, Place::Memory, &failure),
    }
}

async fn store(Post { ui, sent, .. }: Post) -> Response {
    let mut fact =
        json!({ "key": sent.value("key"), "value": sent.value("value"), "trust": "person" });
    if let Some(category) = sent.get("category") {
        fact["category"] = category.into();
    }
    let tags: Vec<&str> = sent
        .value("tags")
        .split(',')
        .map(str::trim)
        .filter(|tag| !tag.is_empty())
        .collect();
    if !tags.is_empty() {
        fact["tags"] = tags.into();
    }
    match ui
        .rest
        .send(
            &sent.caller,
            Method::POST,
            "/api/v1/memory/store",
            Some(&fact),
        )
        .await
    {
        Ok(_) => done(&ui, &sent.caller, "/ui/memory", "The fact was stored."),
        Err(failure) => failed(&ui, &sent.caller, Place::Memory, &failure),
    }
}

async fn forget(Post { ui, sent, .. }: Post) -> Response {
    let part = if sent.value("what") == "notes" {
        "notes"
    } else {
        "facts"
    };
    let what = match (sent.get("key"), sent.get("category")) {
        (Some(key), _) => json!({ "key": key, "what": [part] }),
        (None, Some(category)) => json!({ "category": category, "what": [part] }),
        (None, None) => json!({ "all": true, "what": [part] }),
    };
    let forgotten = ui
        .rest
        .send(
            &sent.caller,
            Method::POST,
            "/api/v1/memory/forget",
            Some(&what),
        )
        .await;
    match forgotten.and_then(|answer| rest::read::<Value>(&answer)) {
        Ok(forgotten) => {
            let removed = forgotten["removed"][part].as_u64().unwrap_or_default();
            let noun = part.trim_end_matches('s');
            done(
                &ui,
                &sent.caller,
                "/ui/memory",
                &format!("Receipt: {} deleted.", shown::count(removed, noun)),
            )
        }
        Err(failure) => failed(&ui, &sent.caller, Place::Memory, &failure),
    }
}
