//! `helmdeck job`: jobs of all callers in the system database, with or without a running server.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::context::ProgressSink;
use helmdeck_core::duration::format_duration;
use helmdeck_core::{Clock, Code, Outcome, SystemClock, Timestamp};
use helmdeck_engine::{Job, JobBook, JobId, JobQuery, JobState};
use serde_json::Value;

use super::run;
use crate::args::{JobCommand, JobListArgs};
use crate::exit::{Exit, Failure, Result};
use crate::progress::Progress;
use crate::signals::Stop;
use crate::table::table;
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// Poll interval of a job that the command waits for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Runs `helmdeck job`.
///
/// # Errors
/// Exit 3 for a job or a result that is not found; exit 1 if the job failed, was cancelled or has
/// not ended, or if the system database cannot be reached.
pub(crate) async fn job(setup: &Setup, command: &JobCommand) -> Result<()> {
    let book = JobBook::new(
        setup.system()?,
        setup.ring.clone().map(Arc::new),
        Arc::new(SystemClock::default()),
        setup.settings.engine.jobs.retention,
    );
    match command {
        JobCommand::List(arguments) => list(setup, &book, arguments).await,
        JobCommand::Show { id } => {
            let job = book.job(None, id).await.map_err(failure)?;
            print(setup, &job)
        }
        JobCommand::Wait { id, timeout } => wait(setup, &book, id, *timeout).await,
        JobCommand::Result { id } => {
            let outcome = book.outcome(None, id).await.map_err(failure)?;
            let schema = if setup.output.json {
                Value::Null
            } else {
                schema(setup, &outcome).await
            };
            run::print(&setup.output, &outcome, &schema)
        }
        JobCommand::Cancel { id } => {
            let job = book.cancel(None, id).await.map_err(failure)?;
            print(setup, &job)?;
            if job.state.is_final() {
                return Ok(());
            }
            Err(Failure::new(
                Exit::Failed,
                format!("job {id} was asked to end and has not ended yet"),
            )
            .with_hint(format!("`helmdeck job wait {id}` waits for it")))
        }
    }
}

async fn list(setup: &Setup, book: &JobBook, arguments: &JobListArgs) -> Result<()> {
    let query = JobQuery {
        state: arguments.state.map(JobState::from),
        after: arguments.after.clone(),
        limit: arguments.limit,
    };
    let page = book.jobs(None, &query).await.map_err(failure)?;
    let now = SystemClock::default().now();
    setup.output.either(&value(&page)?, || {
        if page.jobs.is_empty() {
            return "there are no jobs".to_owned();
        }
        let rows = page.jobs.iter().map(|job| {
            [
                job.id.to_string(),
                format!("{}@{}", job.pack, job.version),
                format!("{}/{}", job.tenant, job.user),
                job.state.as_str().to_owned(),
                ago(now, since(job)),
                said(job),
            ]
        });
        let mut text = table(["ID", "PACK", "CALLER", "STATE", "SINCE", "PROGRESS"], rows);
        if let Some(next) = &page.next {
            text.push_str(&format!("more: helmdeck job list --after {next}\n"));
        }
        text
    })
}

async fn wait(setup: &Setup, book: &JobBook, id: &JobId, timeout: Option<Duration>) -> Result<()> {
    let progress = Progress::of_call(setup.output, true);
    let mut stop = Stop::catch()?;
    let ended = async {
        let mut seen = None;
        loop {
            let job = book.job(None, id).await?;
            if job.state.is_final() {
                return Ok(job);
            }
            if let Some(now) = job.progress.filter(|now| Some(now) != seen.as_ref()) {
                progress.report(now.percent, &now.message);
                seen = Some(now);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let late = tokio::time::sleep(timeout.unwrap_or(Duration::from_secs(u64::from(u32::MAX))));
    let ended: Result<Job> = tokio::select! {
        ended = ended => ended.map_err(failure),
        () = late => Err(Failure::new(Exit::Failed, format!("job {id} has not ended in time"))),
        () = stop.wait() => Err(Failure::new(Exit::Failed, format!("interrupted; job {id} goes on"))),
    };
    progress.clear();
    let job = ended?;
    print(setup, &job)?;
    match (&job.error, job.state) {
        (_, JobState::Succeeded) => Ok(()),
        (Some(error), _) => Err(error.to_error().into()),
        (None, state) => Err(Failure::new(
            Exit::Failed,
            format!("job {id} is {}", state.as_str()),
        )),
    }
}

/// Returns the output schema of the job's pack, `null` if the pack is gone.
async fn schema(setup: &Setup, outcome: &Outcome) -> Value {
    let Ok(engine) = setup.engine(MemoryUse::Nothing, false).await else {
        return Value::Null;
    };
    engine
        .pack(outcome.pack.as_str(), Some(outcome.version))
        .map_or(Value::Null, |pack| pack.output)
}

fn print(setup: &Setup, job: &Job) -> Result<()> {
    setup.output.either(&value(job)?, || {
        let mut rows = vec![
            vec!["job".to_owned(), job.id.to_string()],
            vec!["pack".to_owned(), format!("{}@{}", job.pack, job.version)],
            vec!["caller".to_owned(), format!("{}/{}", job.tenant, job.user)],
            vec!["state".to_owned(), job.state.as_str().to_owned()],
        ];
        let mut add = |name: &str, text: String| rows.push(vec![name.to_owned(), text]);
        if job.progress.is_some() || job.error.is_some() {
            add("progress", said(job));
        }
        add("created", job.created_at.to_rfc3339());
        for (name, time) in [("started", job.started_at), ("ended", job.ended_at)] {
            if let Some(time) = time {
                add(name, time.to_rfc3339());
            }
        }
        if job.state.is_final() {
            add("kept until", job.expires_at.to_rfc3339());
        }
        for artifact in &job.artifacts {
            add("artifact", artifact.key.clone());
        }
        if job.has_result {
            add("result", format!("helmdeck job result {}", job.id));
        }
        columns(&rows)
    })
}

/// Returns the last message of a job, or why it failed, on one line.
fn said(job: &Job) -> String {
    let text = match (&job.error, &job.progress) {
        (Some(error), _) => format!("{}: {}", error.code, error.message),
        (None, Some(progress)) => {
            let percent = progress
                .percent
                .map(|percent| format!("{percent:.0}% "))
                .unwrap_or_default();
            format!("{percent}{}", progress.message)
        }
        (None, None) => String::new(),
    };
    text.replace(['\n', '\t'], " ")
}

/// Returns the time at which a job entered its state.
fn since(job: &Job) -> Timestamp {
    job.ended_at.or(job.started_at).unwrap_or(job.created_at)
}

fn ago(now: Timestamp, then: Timestamp) -> String {
    format!(
        "{} ago",
        format_duration(Duration::from_secs(now.since(then).as_secs()))
    )
}

fn value<T: serde::Serialize>(value: &T) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Builds the failure of an engine error; a missing job has another hint than a missing pack.
fn failure(error: helmdeck_core::Error) -> Failure {
    let missing = error.code() == Code::NotFound && error.message().starts_with("there is no job");
    let failure = Failure::from(error);
    if missing {
        failure.with_hint("`helmdeck job list` shows the jobs that there are")
    } else {
        failure
    }
}
