//! The trajectory in the format of mini-swe-agent 2 (`mini-swe-agent-1.1`).
//!
//! It is for mini-swe-agent's inspector and other tools. Source: `minisweagent/agents/default.py`
//! and `models/utils/actions_toolcall.py` of mini-swe-agent 2.4.6.

use helmdeck_core::Timestamp;
use helmdeck_llm::Answer;
use serde_json::{Value, json};

use super::action;
use super::ending::Ending;
use super::observation;
use super::trajectory::{Event, RunHeader, Trajectory, What, calls, exit, role};

/// The version of mini-swe-agent whose format this is.
const VERSION: &str = "2.4.6";

/// Returns a trajectory as JSON.
///
/// `submission` is what mini gives as the result: the patch of a run that submitted, else empty.
pub(super) fn to_json(
    trajectory: &Trajectory,
    about: &RunHeader,
    ending: &Ending,
    patch: &str,
) -> Value {
    let submitted = matches!(ending, Ending::Submitted(_));
    let submission = if submitted { patch } else { "" };
    let status = ending.mini_name();
    let mut events: Vec<&Event> = trajectory.events().iter().collect();
    if submitted
        && let Some(last) = events
            .iter()
            .rposition(|event| matches!(event.what, What::Observed { .. }))
    {
        // What a submission prints is not shown to the model any more.
        events.remove(last);
    }
    // Rules that others took the place of were never followed.
    let rules = |event: &&Event| matches!(event.what, What::Rules(_));
    if let (Some(first), Some(last)) = (
        events.iter().position(rules),
        events.iter().rposition(rules),
    ) && first != last
    {
        events[first] = events.remove(last);
    }
    let mut messages: Vec<Value> = events.into_iter().filter_map(message).collect();
    let last = if submitted { submission } else { status };
    messages.push(json!({
        "role": "exit",
        "content": last,
        "extra": {"exit_status": status, "submission": submission},
    }));
    json!({
        "info": {
            "model_stats": {
                "instance_cost": trajectory.spent.known_cost().unwrap_or(0.0),
                "api_calls": trajectory.spent.steps,
            },
            "config": {
                "agent": {
                    "step_limit": about.max_steps,
                    "cost_limit": about.max_cost.unwrap_or(0.0),
                    "wall_time_limit_seconds": about.max_seconds,
                },
                "agent_type": "helmdeck.swe.solve",
                "model": {"model_name": about.model},
                "model_type": "helmdeck.llm",
                "environment": {"cwd": ""},
                "environment_type": "helmdeck.session",
            },
            "mini_version": VERSION,
            "exit_status": status,
            "submission": submission,
            "helmdeck": {
                "run": about.run,
                "task": about.task,
                "repository": about.repository,
                "base_commit": about.base_commit,
                "cost_known": trajectory.spent.known_cost().is_some(),
            },
        },
        "messages": messages,
        "trajectory_format": "mini-swe-agent-1.1",
    })
}

/// Returns what happened as a message; `None` for what mini has no word for.
fn message(event: &Event) -> Option<Value> {
    let timestamp = seconds(event.at);
    Some(match &event.what {
        What::Rules(content) => json!({"role": "system", "content": content}),
        What::Task(content) => json!({"role": "user", "content": content}),
        What::Answered { answer, .. } => answered(answer, timestamp),
        What::Observed {
            id,
            shown,
            executed,
            ..
        } => {
            let raw = observation::output(&executed.stdout, usize::MAX).0;
            let exception = exit(executed.ended)
                .is_none()
                .then(|| observation::ended(executed));
            let mut message = json!({
                "role": role(id.as_ref()),
                "content": shown,
                "extra": {
                    "raw_output": raw,
                    "returncode": exit(executed.ended).unwrap_or(-1),
                    "timestamp": timestamp,
                    "exception_info": exception,
                },
            });
            answering(&mut message, id.as_ref());
            message
        }
        What::Reminded { id, text } => {
            let mut message = json!({"role": role(id.as_ref()), "content": text, "extra": {"interrupt_type": "FormatError"}});
            answering(&mut message, id.as_ref());
            message
        }
        What::LeftOut(_) | What::Failed(_) => return None,
    })
}

fn answered(answer: &Answer, timestamp: f64) -> Value {
    let actions = action::find(answer).unwrap_or_default();
    let actions: Vec<Value> = actions
        .into_iter()
        .filter_map(|action| {
            let command = action.command.ok()?;
            let mut value = json!({"command": command});
            answering(&mut value, action.id.as_ref());
            Some(value)
        })
        .collect();
    let mut message = json!({
        "role": "assistant",
        "content": answer.text,
        "extra": {
            "actions": actions,
            "cost": answer.cost.unwrap_or(0.0),
            "response": {"usage": answer.usage},
            "timestamp": timestamp,
        },
    });
    if !answer.tool_calls.is_empty() {
        message["tool_calls"] = calls(&answer.tool_calls);
    }
    message
}

fn answering(message: &mut Value, id: Option<&String>) {
    if let Some(id) = id {
        message["tool_call_id"] = id.as_str().into();
    }
}

/// Returns seconds since 1970, as Python's `time.time()` counts them.
fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e6
}
