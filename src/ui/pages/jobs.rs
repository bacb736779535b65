//! Jobs: a list by state, and one with its steps and result. Both follow what happens.

use askama::Template;
use axum::Router;
use axum::response::Response;
use futures_util::future::BoxFuture;
use helmdeck_core::Timestamp;
use http::Method;
use serde_json::Value;

use super::files::Artifact;
use super::list::{ListOf, Listed};
use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::{self, answer};
use crate::live::{Change, Live, Viewer};
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::segment;
use crate::shown::{self, Time};

const LIST: ListOf = ListOf {
    place: Place::Jobs,
    title: "Jobs",
    route: "/api/v1/jobs",
    filters: &["state"],
    ..ListOf::PLAIN
};
/// Number of steps on a page.
const STEPS: usize = 256;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/jobs", page_at(|visit| Box::pin(list(visit))))
        .route("/ui/jobs/{id}", page_at(|visit| Box::pin(show(visit))))
        .route(
            "/ui/jobs/{id}/cancel",
            form_at(|post| Box::pin(cancel(post))),
        )
}

answer! {
    /// A job.
    #[derive(Debug)]
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
        artifacts: Vec<Artifact> = default,
    }
}

impl Job {
    pub(super) fn is_final(&self) -> bool {
        !matches!(self.state.as_str(), "queued" | "running")
    }
}

answer! {
    /// Last report of a job.
    #[derive(Debug)]
    pub(super) struct Progress {
        pub(super) percent: Option<f64>,
        pub(super) message: String,
        pub(super) at: Time,
    }

    #[derive(Debug)]
    struct JobError {
        code: String,
        message: String,
    }

    /// A page of the jobs.
    #[derive(Debug)]
    pub(super) struct JobList {
        pub(super) jobs: Vec<Job>,
        next: Option<String>,
    }

    /// Reports of a job, oldest first.
    #[derive(Debug, Default)]
    struct Reports {
        reports: Vec<Progress>,
    }
}

/// Row of a job in a list.
#[derive(Template)]
#[template(path = "job_row.html")]
pub(super) struct JobRow<'a> {
    pub(super) job: &'a Job,
    pub(super) now: Timestamp,
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    list: Listed<JobList>,
    states: [&'static str; 6],
}

crate::frame::framed!(JobsPage);

impl JobsPage {
    fn row<'a>(&self, job: &'a Job) -> JobRow<'a> {
        JobRow {
            job,
            now: self.frame.now,
        }
    }
}

/// State of a job: the part of its page that changes while it runs.
#[derive(Template)]
#[template(path = "job_facts.html")]
struct JobFacts<'a> {
    job: &'a Job,
    now: Timestamp,
}

/// Step of a job.
#[derive(Template)]
#[template(path = "job_step.html")]
struct JobStep<'a> {
    step: &'a Progress,
    now: Timestamp,
}

impl JobStep<'_> {
    fn id(&self) -> String {
        format!("step-{}", self.step.at.0.micros())
    }
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    job: Job,
    done: String,
    /// Steps, newest first.
    steps: Vec<Progress>,
    output: Option<String>,
    /// A patch in the output.
    patch: Option<String>,
}

crate::frame::framed!(JobPage);

impl JobPage {
    fn facts(&self) -> JobFacts<'_> {
        JobFacts {
            job: &self.job,
            now: self.frame.now,
        }
    }

    fn step<'a>(&self, step: &'a Progress) -> JobStep<'a> {
        JobStep {
            step,
            now: self.frame.now,
        }
    }
}

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let make = |mut frame: Frame, list: Listed<JobList>| {
        if !list.is_older() {
            frame = frame.live(&format!("view=jobs{}", list.filter()));
        }
        JobsPage {
            frame,
            list,
            states: ["", "queued", "running", "succeeded", "failed", "cancelled"],
        }
    };
    LIST.show(&ui, &caller, &query, make).await
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
    let route = format!("/api/v1/jobs/{}", segment(path_value(&path, "id")));
    let answer = async {
        let job: Job = ui.rest.get(&caller, &route).await?;
        let reports: Reports = ui.rest.get(&caller, &format!("{route}/progress")).await?;
        let mut steps = reports.reports;
        steps.reverse();
        let (mut output, mut patch) = (None, None);
        if job.has_result {
            let mut outcome: Value = ui.rest.get(&caller, &format!("{route}/result")).await?;
            patch = take_patch(&mut outcome["output"]);
            output = Some(shown::json(&outcome["output"]));
        }
        let mut frame = Frame::new(&format!("Job of {}", job.pack), Place::Jobs, &caller, &ui);
        if !job.is_final() {
            frame = frame.live(&format!("view=job&id={}", segment(&job.id)));
        }
        let done = super::State::of(&query).done(&ui, &caller);
        Ok(page(&JobPage {
            frame,
            job,
            done,
            steps,
            output,
            patch,
        }))
    };
    answered(&ui, &caller, Place::Jobs, answer.await)
}

async fn cancel(Post { ui, path, sent }: Post) -> Response {
    let id = segment(path_value(&path, "id"));
    match ui
        .rest
        .send(
            &sent.caller,
            Method::DELETE,
            &format!("/api/v1/jobs/{id}"),
            None,
        )
        .await
    {
        Ok(_) => done(
            &ui,
            &sent.caller,
            &format!("/ui/jobs/{id}"),
            "The job was cancelled.",
        ),
        Err(failure) => failed(&ui, &sent.caller, Place::Jobs, &failure),
    }
}

/// Takes a patch out of an output, to be shown in colour.
fn take_patch(output: &mut Value) -> Option<String> {
    output
        .get("patch")?
        .as_str()
        .filter(|patch| !patch.is_empty())?;
    match output.as_object_mut()?.remove("patch") {
        Some(Value::String(patch)) => Some(patch),
        _ => None,
    }
}

/// Live view of a list of jobs.
struct LiveJobs {
    state: String,
}

/// Returns the live view of a list of jobs.
pub(super) fn live(state: &super::State) -> Box<dyn Live> {
    Box::new(LiveJobs {
        state: state.get("state").to_owned(),
    })
}

impl Live for LiveJobs {
    fn source(&self) -> String {
        "/api/v1/events?topics=jobs".to_owned()
    }

    fn changes<'a>(
        &'a mut self,
        at: &'a Viewer,
        _: &'a str,
        data: &'a [u8],
    ) -> BoxFuture<'a, Vec<Change>> {
        Box::pin(async move {
            rows(at, data, LIST.rows, |job| {
                self.state.is_empty() || job.state == self.state
            })
        })
    }
}

/// Returns the changes of an event with jobs, for an element `jobs` with those that match.
pub(super) fn rows(
    at: &Viewer,
    data: &[u8],
    max: usize,
    matches: impl Fn(&Job) -> bool,
) -> Vec<Change> {
    let now = at.now();
    let jobs = json::from_slice::<JobList>(data)
        .map(|list| list.jobs)
        .unwrap_or_default();
    let change = |job: Job| {
        let id = format!("job-{}", job.id);
        if !matches(&job) {
            return Some(Change::Drop { id });
        }
        Some(Change::Add {
            to: "jobs",
            id,
            html: JobRow { job: &job, now }.render().ok()?,
            max,
        })
    };
    let mut changes: Vec<Change> = jobs.into_iter().filter_map(change).collect();
    if changes
        .iter()
        .any(|change| matches!(change, Change::Add { .. }))
    {
        changes.push(Change::Drop {
            id: "jobs-empty".to_owned(),
        });
    }
    changes
}

/// Live view of one job.
struct LiveJob {
    id: String,
}

/// Returns the live view of one job.
pub(super) fn live_job(state: &super::State) -> Box<dyn Live> {
    Box::new(LiveJob {
        id: state.get("id").to_owned(),
    })
}

impl Live for LiveJob {
    fn source(&self) -> String {
        format!("/api/v1/jobs/{}/events", segment(&self.id))
    }

    fn changes<'a>(
        &'a mut self,
        at: &'a Viewer,
        _: &'a str,
        data: &'a [u8],
    ) -> BoxFuture<'a, Vec<Change>> {
        Box::pin(async move {
            let Ok(job) = json::from_slice::<Job>(data) else {
                return Vec::new();
            };
            let now = at.now();
            let mut changes = Vec::new();
            if let Some(step) = &job.progress {
                let shown = JobStep { step, now };
                let id = shown.id();
                changes.extend(shown.render().ok().map(|html| Change::Add {
                    to: "steps",
                    id,
                    html,
                    max: STEPS,
                }));
            }
            let facts = JobFacts { job: &job, now }.render().ok();
            changes.extend(facts.map(|html| Change::Put {
                id: "facts".to_owned(),
                html,
            }));
            if job.is_final() {
                // Its result, and what can be done now.
                changes.extend([Change::Reload, Change::End]);
            }
            changes
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patch_is_shown_by_itself() {
        let mut output = json!({ "patch": "--- a", "model": "m" });
        assert_eq!(take_patch(&mut output).as_deref(), Some("--- a"));
        assert_eq!(output, json!({ "model": "m" }));
        for mut other in [
            json!({ "patch": "" }),
            json!({ "patch": 1 }),
            json!([1]),
            json!(null),
        ] {
            let before = other.clone();
            assert_eq!((take_patch(&mut other), other), (None, before));
        }
    }
}
