//! The overview of the project: five parts with their health, what is paused, what is worked on.

use askama::Template;
use axum::Router;
use axum::response::Response;
use serde_json::json;

use super::{
    API, Part, Tab, Top, answered, change, changed, frame, live_frame, optional, text, trouble,
};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest;
use crate::shown::Time;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/project", page_at(|visit| Box::pin(show(visit))))
        .route(
            "/ui/project/pause/token",
            form_at(|post| Box::pin(ask(post))),
        )
        .route("/ui/project/pause/end", form_at(|post| Box::pin(end(post))))
}

answer! {
    /// Health of the project.
    #[derive(Debug)]
    struct Health {
        overall: String,
        measured_at: Time,
        long_term: Component,
        short_term: Component,
        features: Component,
        git: Component,
        linear: Component,
    }

    #[derive(Debug)]
    struct Component {
        colour: String,
        reasons: Vec<Reason>,
    }

    #[derive(Debug)]
    struct Reason {
        code: String,
        detail: String,
        since: Option<Time>,
        next: String,
    }
}

/// A part of the project on the page: what it is, the folder whose colour it has, where more is
/// shown.
#[derive(Debug)]
struct Section {
    name: &'static str,
    folder: &'static str,
    path: &'static str,
    component: Component,
}

answer! {
    /// Colours at one time.
    #[derive(Debug)]
    struct Sample {
        at: Time,
        overall: String,
    }

    #[derive(Debug)]
    struct Recovery {
        paused: Option<Paused>,
        report: Option<Report>,
    }

    /// Why work is paused.
    #[derive(Debug)]
    struct Paused {
        reason: String,
        since: Time,
        report: Option<Report>,
    }

    /// Distance to the last checkpoint.
    #[derive(Debug)]
    struct Report {
        class: String,
        action: String,
        unknown: Vec<Unknown>,
        checkpoint: Option<String>,
        branch: Option<String>,
        head: Option<String>,
        measures: Option<Measures>,
    }

    #[derive(Debug)]
    struct Unknown {
        text: String,
        next: String,
    }

    #[derive(Debug)]
    struct Measures {
        files: u64,
        lines: u64,
        commits: u64,
        size: String,
    }

    #[derive(Debug)]
    struct ShownFocus {
        focus: Focus,
    }

    /// What is worked on.
    #[derive(Debug)]
    struct Focus {
        task: Option<String>,
        linear_issue: Option<String>,
        feature_id: Option<String>,
        phase: String,
        blockers: Vec<String> = default,
        started_at: Option<Time>,
    }

    #[derive(Debug)]
    struct Sessions {
        sessions: Vec<Session>,
        checkpoint_advised: Option<String>,
    }

    /// A work session.
    #[derive(Debug)]
    struct Session {
        id: String,
        agent: String,
        state: String,
        started_at: Time,
        seen_at: Time,
        branch: Option<String>,
    }
}

#[derive(Template)]
#[template(path = "project/overview.html")]
struct OverviewPage {
    frame: Frame,
    top: Top,
    overall: String,
    measured_at: Time,
    /// Since when the overall colour is what it is, as far as it was recorded.
    since: Option<Time>,
    sections: Vec<Section>,
    recovery: Option<Recovery>,
    focus: Option<Focus>,
    sessions: Option<Sessions>,
    /// Whether the merge driver of the memory is missing in this clone.
    merge_driver_missing: bool,
}

crate::frame::framed!(OverviewPage);

async fn show(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let health: Health = ui.rest.get(&caller, &format!("{API}/health")).await?;
        let history: Option<Part<Sample>> =
            optional(&ui, &caller, "health/history?limit=1000").await;
        let samples = history.map(|history| history.items).unwrap_or_default();
        let same = samples
            .iter()
            .take_while(|sample| sample.overall == health.overall);
        let since = same.last().map(|sample| sample.at);
        let focus: Option<Option<ShownFocus>> = optional(&ui, &caller, "focus").await;
        let merge_driver_missing = health
            .git
            .reasons
            .iter()
            .any(|reason| reason.code == "merge_driver_missing");
        let section = |name, folder, path, component| Section {
            name,
            folder,
            path,
            component,
        };
        Ok(page(&OverviewPage {
            frame: live_frame("Project", &ui, &caller),
            top: Top::new(Tab::Overview, &state, &ui, &caller),
            overall: health.overall,
            measured_at: health.measured_at,
            since,
            merge_driver_missing,
            sections: vec![
                section(
                    "Knowledge",
                    "long-term",
                    "/ui/project/knowledge",
                    health.long_term,
                ),
                section(
                    "Work in progress",
                    "short-term",
                    "/ui/project/timeline",
                    health.short_term,
                ),
                section(
                    "Features",
                    "artifacts",
                    "/ui/project/features",
                    health.features,
                ),
                section("Issues", "linear", "/ui/project/issues", health.linear),
                section("Repository", "git", "/ui/project/checkpoints", health.git),
            ],
            recovery: optional(&ui, &caller, "recovery").await,
            focus: focus.flatten().map(|shown| shown.focus),
            sessions: optional(&ui, &caller, "sessions").await,
        }))
    };
    answered(&ui, &caller, Tab::Overview, answer.await)
}

answer! {
    struct PauseToken {
        token: String,
        seconds: u64,
    }
}

/// Page on which a person ends a pause.
#[derive(Template)]
#[template(path = "project/pause.html")]
struct PausePage {
    frame: Frame,
    top: Top,
    token: String,
    minutes: u64,
    paused: Option<Paused>,
}

crate::frame::framed!(PausePage);

/// Shows a person why work is paused, with a token that ends it once.
async fn ask(Post { ui, sent, .. }: Post) -> Response {
    let answer = async {
        let answer = change(&ui, &sent, "recovery/token", &json!({})).await?;
        let token: PauseToken = rest::read(&answer)?;
        let recovery: Option<Recovery> = optional(&ui, &sent.caller, "recovery").await;
        Ok(page(&PausePage {
            frame: frame("End the pause", &ui, &sent.caller),
            top: Top {
                tab: Tab::Overview,
                done: String::new(),
            },
            token: token.token,
            minutes: token.seconds / 60,
            paused: recovery.and_then(|recovery| recovery.paused),
        }))
    };
    match answer.await {
        Ok(response) => response,
        Err(failure) => trouble(&ui, &sent.caller, Tab::Overview, &failure),
    }
}

async fn end(Post { ui, sent, .. }: Post) -> Response {
    let body = json!({ "reason": text(&sent, "reason"), "token": sent.value("token") });
    let answer = change(&ui, &sent, "recovery/acknowledge", &body).await;
    changed(
        &ui,
        &sent,
        Tab::Overview,
        "/ui/project",
        "The pause has ended.",
        answer,
    )
}
