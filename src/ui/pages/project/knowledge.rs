//! Knowledge: what was learned, how old it is, and how it was at an earlier commit.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::response::Response;
use helmdeck_forge::view::SeenCommit;
use serde_json::{Value, json};

use super::{API, Tab, Top, answered, change, changed, frame, live_frame, text};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::{Failure, segment};
use crate::shown::{self, Time, TimeHtml as _};

/// Number of entries on a page.
const LIMIT: usize = 50;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/knowledge",
            page_at(|visit| Box::pin(list(visit))),
        )
        .route(
            "/ui/project/knowledge/{id}",
            page_at(|visit| Box::pin(show(visit))),
        )
        .route(
            "/ui/project/knowledge/{id}/confirm",
            form_at(|post| Box::pin(confirm(post))),
        )
        .route(
            "/ui/project/knowledge/{id}/supersede",
            form_at(|post| Box::pin(supersede(post))),
        )
}

answer! {
    #[derive(Debug)]
    struct Knowledge {
        as_of: Option<String>,
        etag: Option<String>,
        items: Vec<Entry>,
        total: u64,
        next: Option<String>,
        versions: Vec<SeenCommit>,
    }

    /// Something that was learned.
    #[derive(Debug)]
    struct Entry {
        id: String,
        kind: String,
        texts: BTreeMap<String, String>,
        learned_at: Option<Time>,
        last_confirmed_at: Option<Time>,
        paths: Vec<String> = default,
        seen: u64,
        superseded_by: Option<String>,
    }
}

impl Entry {
    fn path(&self) -> String {
        entry_path(&self.id)
    }

    fn form(&self, action: &str) -> String {
        format!("{}/{action}", self.path())
    }

    /// Returns the kind in words.
    fn words(&self) -> &str {
        match self.kind.as_str() {
            "successful" => "works",
            "failed" => "does not work",
            other => other,
        }
    }

    /// Returns the texts in the order in which they are read.
    fn read(&self) -> Vec<(&str, &str)> {
        const ORDER: [&str; 7] = [
            "context",
            "approach",
            "issue",
            "resolution",
            "decision",
            "rationale",
            "text",
        ];
        ORDER
            .iter()
            .filter_map(|name| Some((*name, self.texts.get(*name)?.as_str())))
            .collect()
    }
}

fn entry_path(id: &str) -> String {
    format!("/ui/project/knowledge/{}", segment(id))
}

#[derive(Template)]
#[template(path = "project/knowledge.html")]
struct KnowledgePage {
    frame: Frame,
    top: Top,
    q: String,
    kind: String,
    kinds: [(&'static str, &'static str); 5],
    superseded: bool,
    as_of: String,
    list: Knowledge,
    /// Query of the filter, for the link to the next page.
    filter: String,
}

crate::frame::framed!(KnowledgePage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let filter = state.query(&["q", "kind", "superseded", "as_of"]);
        let after = state.query(&["after"]);
        let list = ui
            .rest
            .get(
                &caller,
                &format!("{API}/knowledge?limit={LIMIT}{filter}{after}"),
            )
            .await?;
        Ok(page(&KnowledgePage {
            frame: live_frame("Knowledge", &ui, &caller),
            top: Top::new(Tab::Knowledge, &state, &ui, &caller),
            q: state.get("q").to_owned(),
            kind: state.get("kind").to_owned(),
            kinds: [
                ("", "all"),
                ("successful", "works"),
                ("failed", "does not work"),
                ("decision", "decision"),
                ("invariant", "invariant"),
            ],
            superseded: state.get("superseded") == "true",
            as_of: state.get("as_of").to_owned(),
            list,
            filter,
        }))
    };
    answered(&ui, &caller, Tab::Knowledge, answer.await)
}

/// A text field of the form that supersedes an entry.
struct TextField {
    name: &'static str,
    value: String,
}

#[derive(Template)]
#[template(path = "project/knowledge_entry.html")]
struct EntryPage {
    frame: Frame,
    top: Top,
    etag: String,
    entry: Entry,
    fields: Vec<TextField>,
}

crate::frame::framed!(EntryPage);

/// Returns the texts that an entry of a kind has.
fn fields_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "failed" => &["context", "issue", "resolution"],
        "decision" => &["context", "decision", "rationale"],
        "invariant" => &["text"],
        _ => &["context", "approach"],
    }
}

async fn show(
    Visit {
        ui,
        caller,
        path,
        query,
        ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let id = super::super::path_value(&path, "id");
        let route = format!("{API}/knowledge?superseded=true&limit=50&q={}", segment(id));
        let list: Knowledge = ui.rest.get(&caller, &route).await?;
        let absent = || {
            Failure::new(
                http::StatusCode::NOT_FOUND,
                "no entry of the knowledge has this id",
            )
        };
        let entry = list
            .items
            .into_iter()
            .find(|entry| entry.id == id)
            .ok_or_else(absent)?;
        let field = |name: &&'static str| TextField {
            name,
            value: entry.texts.get(*name).cloned().unwrap_or_default(),
        };
        Ok(page(&EntryPage {
            frame: frame("Entry of the knowledge", &ui, &caller),
            top: Top::new(Tab::Knowledge, &state, &ui, &caller),
            etag: list.etag.unwrap_or_default(),
            fields: fields_of(&entry.kind).iter().map(field).collect(),
            entry,
        }))
    };
    answered(&ui, &caller, Tab::Knowledge, answer.await)
}

async fn confirm(Post { ui, path, sent }: Post) -> Response {
    let id = super::super::path_value(&path, "id");
    let mut body = json!({});
    if let Some(etag) = sent.get("etag") {
        body["if_match"] = etag.into();
    }
    let answer = change(
        &ui,
        &sent,
        &format!("knowledge/{}/confirm", segment(id)),
        &body,
    )
    .await;
    changed(
        &ui,
        &sent,
        Tab::Knowledge,
        &entry_path(id),
        "Confirmed: it still holds.",
        answer,
    )
}

async fn supersede(Post { ui, path, sent }: Post) -> Response {
    let id = super::super::path_value(&path, "id");
    let kind = sent.value("kind");
    let mut body = json!({ "kind": kind });
    for name in fields_of(kind) {
        body[*name] = Value::String(text(&sent, name));
    }
    if let Some(etag) = sent.get("etag") {
        body["if_match"] = etag.into();
    }
    let answer = change(
        &ui,
        &sent,
        &format!("knowledge/{}/supersede", segment(id)),
        &body,
    )
    .await;
    changed(
        &ui,
        &sent,
        Tab::Knowledge,
        &entry_path(id),
        "A newer entry has taken its place.",
        answer,
    )
}
