//! Jobs: a list by state, and one with its progress and result.

use askama::Template;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::files::Artifact;
use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::request::{By, PathParams, Sent};
use crate::rest::segment;
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/jobs", get(list))
        .route("/ui/jobs/{id}", get(show))
        .route("/ui/jobs/{id}/cancel", post(cancel))
}

/// A job.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) pack: String,
    version: String,
    tenant: String,
    user: String,
    pub(super) state: String,
    pub(super) progress: Option<Progress>,
    pub(super) created_at: Time,
    started_at: Option<Time>,
    ended_at: Option<Time>,
    error: Option<JobError>,
    has_result: bool,
    #[serde(default)]
    artifacts: Vec<Artifact>,
}

impl Job {
    pub(super) fn is_final(&self) -> bool {
        !matches!(self.state.as_str(), "queued" | "running")
    }
}

/// Last report of a job.
#[derive(Debug, Deserialize)]
pub(super) struct Progress {
    pub(super) percent: Option<f64>,
    pub(super) message: String,
    pub(super) at: Time,
}

#[derive(Debug, Deserialize)]
struct JobError {
    code: String,
    message: String,
}

/// A page of the jobs.
#[derive(Debug, Deserialize)]
pub(super) struct JobList {
    pub(super) jobs: Vec<Job>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    done: String,
    state: String,
    states: [&'static str; 6],
    list: JobList,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    job: Job,
    done: String,
    output: Option<String>,
}

async fn list(State(ui): State<Ui>, By(caller): By, query: RawQuery) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let list = ui.rest.get(&caller, &format!("/api/v1/jobs?limit=50{}", state.query(&["state", "after"]))).await?;
        Ok(page(&JobsPage {
            frame: Frame::new("Jobs", Place::Jobs, &caller, &ui),
            done: state.get("done").to_owned(),
            state: state.get("state").to_owned(),
            states: ["", "queued", "running", "succeeded", "failed", "cancelled"],
            list,
        }))
    };
    answered(&ui, &caller, Place::Jobs, answer.await)
}

async fn show(State(ui): State<Ui>, By(caller): By, path: PathParams, query: RawQuery) -> Response {
    let route = format!("/api/v1/jobs/{}", segment(path_value(&path, "id")));
    let answer = async {
        let job: Job = ui.rest.get(&caller, &route).await?;
        let output = if job.has_result {
            let outcome: Value = ui.rest.get(&caller, &format!("{route}/result")).await?;
            Some(shown::json(&outcome["output"]))
        } else {
            None
        };
        let frame = Frame::new(&format!("Job of {}", job.pack), Place::Jobs, &caller, &ui);
        Ok(page(&JobPage { frame, job, output, done: super::State::of(&query).get("done").to_owned() }))
    };
    answered(&ui, &caller, Place::Jobs, answer.await)
}

async fn cancel(State(ui): State<Ui>, path: PathParams, sent: Sent) -> Response {
    let id = segment(path_value(&path, "id"));
    match ui.rest.send(&sent.caller, Method::DELETE, &format!("/api/v1/jobs/{id}"), None).await {
        Ok(_) => done(&format!("/ui/jobs/{id}"), "The job was cancelled."),
        Err(failure) => failed(&ui, &sent.caller, Place::Jobs, &failure),
    }
}
