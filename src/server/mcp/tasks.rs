//! Long packs as tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663).
//!
//! A task is a job of the engine, with the same id. A client that declares the extension gets a
//! task instead of the answer of a pack with `async = true`, and polls it by `tasks/get` until it
//! has ended. Other clients wait for the answer. A running task never asks the client for anything.
//! A task belongs to the caller that began it, in any session; for all other callers it does not
//! exist.

use helmdeck_core::{Caller, Code, Result, Timestamp};
use helmdeck_engine::{Job, JobId, JobState};
use rmcp::model::{DetailedTask, ErrorData, JsonObject, Task, TaskPayload, TaskStatus};

use super::answer;
use super::state::{McpState, rpc_error};

/// Poll interval for clients, in milliseconds.
const POLL_MS: u64 = 1000;

/// Returns the state of a task, with its answer if it has ended.
///
/// # Errors
/// The same error for an unknown id, for another caller's id and for an invalid id; the engine's
/// error if it cannot tell.
pub(crate) async fn get(
    mcp: &McpState,
    caller: &Caller,
    id: &str,
) -> Result<DetailedTask, ErrorData> {
    let job = find(mcp, caller, id).await?;
    let payload = payload(mcp, caller, &job).await?;
    Ok(DetailedTask::new(task(&job), payload))
}

/// Accepts input from a client for a task. Tasks request no input, so it is ignored.
///
/// # Errors
/// As [`get`].
pub(crate) async fn update(mcp: &McpState, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    find(mcp, caller, id).await.map(|_| ())
}

/// Requests the cancellation of a task. A task that has ended stays unchanged.
///
/// # Errors
/// As [`get`].
pub(crate) async fn cancel(mcp: &McpState, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    let job = find(mcp, caller, id).await?;
    let cancelled = mcp.engine.cancel_job(Some(&caller.identity), &job.id).await;
    cancelled.map(|_| ()).map_err(|error| refusal(&error))
}

/// Returns a job of a caller that may run its pack.
async fn find(mcp: &McpState, caller: &Caller, id: &str) -> Result<Job, ErrorData> {
    let id = JobId::parse(id).map_err(|_| unknown())?;
    let job = mcp
        .engine
        .job(Some(&caller.identity), &id)
        .await
        .map_err(|error| refusal(&error))?;
    caller
        .need_run(&job.pack)
        .map(|()| job)
        .map_err(|_| unknown())
}

fn refusal(error: &helmdeck_core::Error) -> ErrorData {
    if error.code() == Code::NotFound {
        unknown()
    } else {
        rpc_error(error)
    }
}

/// Builds the error for an unknown task. Nothing is known of a wrong id, so the text names none.
pub(crate) fn unknown() -> ErrorData {
    ErrorData::invalid_params(
        "there is no such task; it may have been forgotten after its end",
        None,
    )
}

/// Returns the details of a job besides its state.
async fn payload(mcp: &McpState, caller: &Caller, job: &Job) -> Result<TaskPayload, ErrorData> {
    match job.state {
        JobState::Queued | JobState::Running => Ok(TaskPayload::Working),
        JobState::Cancelled => Ok(TaskPayload::Cancelled),
        JobState::Succeeded | JobState::Failed => {
            let mut text = Vec::new();
            match mcp
                .engine
                .job_outcome(Some(&caller.identity), &job.id)
                .await
            {
                Ok(outcome) => answer::write_outcome(&outcome, true, None, &mut text),
                Err(error) if job.state == JobState::Failed && !is_ours(error.code()) => {
                    answer::write_failure(&error, true, mcp.tables.current().names(), &mut text);
                }
                Err(error) => {
                    return Ok(TaskPayload::Failed {
                        error: object(&serde_json::to_vec(&rpc_error(&error)).unwrap_or_default())?,
                    });
                }
            }
            Ok(TaskPayload::Completed {
                result: object(&text)?,
            })
        }
    }
}

/// Says whether an error is the server's: it failed or stopped.
///
/// Then the task has failed. All other errors are answers of the tool, and complete the task.
const fn is_ours(code: Code) -> bool {
    matches!(code, Code::Internal | Code::Overloaded)
}

/// Returns the state of a job as a task status.
pub(crate) fn task(job: &Job) -> Task {
    let status = match job.state {
        JobState::Queued | JobState::Running => TaskStatus::Working,
        JobState::Succeeded => TaskStatus::Completed,
        JobState::Failed => TaskStatus::Failed,
        JobState::Cancelled => TaskStatus::Cancelled,
    };
    let kept = job.expires_at.since(job.created_at).as_millis();
    let mut task = Task::new(
        job.id.as_str(),
        status,
        job.created_at.to_rfc3339(),
        changed_at(job).to_rfc3339(),
    )
    .with_ttl_ms(u64::try_from(kept).unwrap_or(u64::MAX))
    .with_poll_interval_ms(POLL_MS);
    task.status_message = said(job);
    task
}

/// Returns the time of the last change of a job.
fn changed_at(job: &Job) -> Timestamp {
    let said = job.progress.as_ref().map(|progress| progress.at);
    [job.started_at, said, job.ended_at]
        .into_iter()
        .flatten()
        .fold(job.created_at, Timestamp::max)
}

/// Describes a job for people.
fn said(job: &Job) -> Option<String> {
    match (job.state, &job.progress) {
        (JobState::Queued, _) => Some("waiting for its turn".to_owned()),
        (JobState::Running, Some(progress)) => Some(match progress.percent {
            Some(percent) => format!("{percent:.0}% {}", progress.message)
                .trim_end()
                .to_owned(),
            None => progress.message.clone(),
        }),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}

fn object(text: &[u8]) -> Result<JsonObject, ErrorData> {
    serde_json::from_slice(text)
        .map_err(|_| ErrorData::internal_error("the answer cannot be written", None))
}

#[cfg(test)]
mod tests {
    use helmdeck_core::{PackName, Version};
    use helmdeck_engine::JobProgress;

    use super::*;

    fn job(state: JobState, progress: Option<(Option<f32>, &str)>) -> Job {
        Job {
            id: JobId::parse(&"a".repeat(32)).unwrap(),
            pack: PackName::new("a.b").unwrap(),
            version: Version::new(1).unwrap(),
            tenant: "t".to_owned(),
            user: "u".to_owned(),
            state,
            progress: progress.map(|(percent, message)| JobProgress {
                percent,
                message: message.to_owned(),
                at: Timestamp(3_000_000),
            }),
            created_at: Timestamp(1_000_000),
            started_at: Some(Timestamp(2_000_000)),
            ended_at: None,
            expires_at: Timestamp(61_000_000),
            error: None,
            has_result: false,
            artifacts: Vec::new(),
            attempt: None,
            schedule: None,
            revision: 1,
        }
    }

    #[test]
    fn a_task_tells_what_the_job_says() {
        let running = task(&job(JobState::Running, Some((Some(40.4), "reading"))));
        let expected = serde_json::json!({
            "taskId": "a".repeat(32), "status": "working", "statusMessage": "40% reading",
            "createdAt": "1970-01-01T00:00:01.000000Z", "lastUpdatedAt": "1970-01-01T00:00:03.000000Z",
            "ttlMs": 60_000, "pollIntervalMs": 1000,
        });
        assert_eq!(serde_json::to_value(running).unwrap(), expected);
        let message = |state, progress| task(&job(state, progress)).status_message;
        assert_eq!(
            message(JobState::Queued, None).as_deref(),
            Some("waiting for its turn")
        );
        assert_eq!(
            message(JobState::Running, Some((None, "thinking"))).as_deref(),
            Some("thinking")
        );
        assert_eq!(
            message(JobState::Running, Some((Some(5.0), ""))).as_deref(),
            Some("5%")
        );
        assert_eq!(message(JobState::Running, Some((None, ""))), None);
        assert_eq!(
            message(JobState::Succeeded, Some((Some(100.0), "done"))),
            None
        );
    }
}
