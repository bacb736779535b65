//! Features: a board by standing, with evidence.

use askama::Template;
use axum::Router;
use axum::response::Response;
use serde_json::{Value, json};

use super::{API, Tab, Top, answered, change, changed, live_frame};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::segment;
use crate::shown::Time;

/// Number of features on a page.
const LIMIT: usize = 100;
/// Columns of the board: the name, and the standings in it.
const COLUMNS: [(&str, &[&str]); 6] = [
    ("Not begun", &["not_implemented"]),
    ("In progress", &["in_progress"]),
    (
        "Does not work",
        &["regressed", "failing", "unverified_pass"],
    ),
    ("Blocked", &["blocked"]),
    ("Passing", &["passing", "passing_stale"]),
    ("For later", &["deferred"]),
];

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/features",
            page_at(|visit| Box::pin(list(visit))),
        )
        .route(
            "/ui/project/features/{feature}/status",
            form_at(|post| Box::pin(set(post))),
        )
}

answer! {
    #[derive(Debug)]
    struct FeatureList {
        etag: Option<String>,
        counts: Counts,
        items: Vec<Item>,
        total: u64,
        next: Option<String>,
    }

    #[derive(Debug)]
    struct Counts {
        counted: u64,
        passing: u64,
        stale: u64,
        unverified: u64,
        regressed: u64,
    }

    #[derive(Debug)]
    struct Item {
        standing: String,
        feature: Feature,
    }
}

impl Item {
    /// Returns the standing in words.
    fn words(&self) -> &str {
        match self.standing.as_str() {
            "passing" => "passing",
            "passing_stale" => "passing, with older code",
            "unverified_pass" => "claims to pass, without evidence",
            "regressed" => "no longer works",
            "failing" => "does not work",
            "in_progress" => "in progress",
            "not_implemented" => "not begun",
            "deferred" => "for later",
            other => other,
        }
    }

    /// Returns the health that the standing shows.
    fn colour(&self) -> &'static str {
        match self.standing.as_str() {
            "passing" => "green",
            "passing_stale" | "blocked" => "yellow",
            "regressed" | "failing" | "unverified_pass" => "red",
            _ => "grey",
        }
    }
}

answer! {
    /// A feature.
    #[derive(Debug)]
    struct Feature {
        id: String,
        name: String,
        tests: Vec<String> = default,
        verified_at: Option<Time>,
        blocked_by: Option<Value>,
        category: Option<String>,
        steps: Vec<String> = default,
        evidence: Option<String>,
        verified_commit: Option<String>,
        regressed_at: Option<Time>,
        reason: Option<String>,
        agent: Option<String>,
    }
}

impl Feature {
    fn form(&self) -> String {
        format!("/ui/project/features/{}/status", segment(&self.id))
    }

    fn evidence_path(&self) -> Option<String> {
        Some(format!(
            "/ui/project/artifacts/{}/download",
            segment(self.evidence.as_deref()?)
        ))
    }

    /// Returns what it waits for.
    fn blockers(&self) -> String {
        match &self.blocked_by {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(all)) => all
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(", "),
            _ => String::new(),
        }
    }
}

/// Features of a few standings.
struct Column {
    name: &'static str,
    items: Vec<Item>,
}

fn columns(mut items: Vec<Item>) -> Vec<Column> {
    let mut columns = Vec::new();
    for (name, standings) in COLUMNS {
        let (here, rest): (Vec<Item>, Vec<Item>) = items
            .into_iter()
            .partition(|item| standings.contains(&item.standing.as_str()));
        items = rest;
        if !here.is_empty() {
            columns.push(Column { name, items: here });
        }
    }
    // A standing that a newer server knows.
    if !items.is_empty() {
        columns.push(Column {
            name: "Other",
            items,
        });
    }
    columns
}

#[derive(Template)]
#[template(path = "project/features.html")]
struct FeaturesPage {
    frame: Frame,
    top: Top,
    standing: String,
    standings: Vec<&'static str>,
    statuses: [(&'static str, &'static str); 5],
    etag: String,
    counts: Counts,
    columns: Vec<Column>,
    shown: u64,
    total: u64,
    next: Option<String>,
}

crate::frame::framed!(FeaturesPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let route = format!(
            "{API}/features?limit={LIMIT}{}",
            state.query(&["standing", "after"])
        );
        let list: FeatureList = ui.rest.get(&caller, &route).await?;
        Ok(page(&FeaturesPage {
            frame: live_frame("Features", &ui, &caller),
            top: Top::new(Tab::Features, &state, &ui, &caller),
            standing: state.get("standing").to_owned(),
            standings: COLUMNS
                .iter()
                .flat_map(|(_, standings)| standings.iter().copied())
                .collect(),
            statuses: [
                ("not_implemented", "not begun"),
                ("in_progress", "in progress"),
                ("failing", "does not work"),
                ("blocked", "blocked"),
                ("deferred", "for later"),
            ],
            etag: list.etag.unwrap_or_default(),
            counts: list.counts,
            shown: list.items.len() as u64,
            columns: columns(list.items),
            total: list.total,
            next: list.next,
        }))
    };
    answered(&ui, &caller, Tab::Features, answer.await)
}

async fn set(Post { ui, path, sent }: Post) -> Response {
    let id = segment(super::super::path_value(&path, "feature"));
    let mut body = json!({ "if_match": sent.value("etag"), "status": sent.value("status") });
    if let Some(reason) = sent.get("reason") {
        body["reason"] = reason.into();
    }
    let answer = change(&ui, &sent, &format!("features/{id}"), &body).await;
    changed(
        &ui,
        &sent,
        Tab::Features,
        "/ui/project/features",
        "The status was changed.",
        answer,
    )
}
