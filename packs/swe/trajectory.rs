//! Trajectory of a run: every message, command and ending, with times and tokens.
//!
//! It is written in our own format or, by `mini`, in that of mini-swe-agent.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::session::{Ended, Executed};
use helmdeck_core::{Clock, Error, Timestamp};
use helmdeck_llm::{Answer, Finish, ToolCall, Usage};
use serde::Serialize;
use serde_json::{Value, json};

use super::ending::Ending;

/// The name of our own format.
pub(super) const FORMAT: &str = "helmdeck-1";

/// Something that happened, and when.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) what: What,
}

/// Kind of a step.
#[derive(Debug)]
pub(super) enum What {
    /// The rules, as sent to the model.
    Rules(String),
    /// The task, as sent to the model.
    Task(String),
    /// The model answered.
    Answered { answer: Answer, took: Duration },
    /// A command ended and was shown to the model.
    Observed {
        id: Option<String>,
        command: String,
        shown: String,
        left_out: u64,
        executed: Box<Executed>,
    },
    /// A reminder to the model that something is wrong with its answer.
    Reminded { id: Option<String>, text: String },
    /// Old outputs were left out of the conversation, or shortened in it.
    LeftOut(usize),
    /// A failed request to the model, or a command that could not run.
    Failed(Error),
}

/// Usage so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    /// The answers of the model.
    pub(super) steps: u32,
    /// Their tokens, as far as the endpoint tells them.
    pub(super) usage: Usage,
    /// Cost in USD; `None` as soon as one cost is unknown, including that of a lost answer.
    pub(super) cost: Option<f64>,
}

impl Default for Spent {
    fn default() -> Self {
        Self {
            steps: 0,
            usage: Usage::default(),
            cost: Some(0.0),
        }
    }
}

impl Spent {
    /// Adds an answer.
    pub(super) fn add(&mut self, answer: &Answer) {
        self.steps += 1;
        self.usage.add(&answer.usage.unwrap_or_default());
        self.cost = self.cost.zip(answer.cost).map(|(all, one)| all + one);
    }

    /// Returns the cost; `None` if it is unknown, or without any request.
    pub(super) fn known_cost(&self) -> Option<f64> {
        self.cost.filter(|_| self.steps > 0)
    }
}

/// Header of a trajectory, about its run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RunHeader {
    pub(super) run: String,
    pub(super) task: String,
    /// The repository, normalised.
    pub(super) repository: String,
    /// The commit that the work began at.
    pub(super) base_commit: String,
    pub(super) model: String,
    /// Scheme, host and port of the endpoint.
    pub(super) endpoint: String,
    /// The limits: steps, seconds and USD.
    pub(super) max_steps: u32,
    pub(super) max_seconds: u64,
    pub(super) max_cost: Option<f64>,
}

/// The events of one run.
pub(super) struct Trajectory {
    clock: Arc<dyn Clock>,
    events: Vec<Event>,
    pub(super) spent: Spent,
}

impl Trajectory {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            events: Vec::new(),
            spent: Spent::default(),
        }
    }

    pub(super) fn add(&mut self, what: What) {
        if let What::Answered { answer, .. } = &what {
            self.spent.add(answer);
        }
        self.events.push(Event {
            at: self.clock.now(),
            what,
        });
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns whether a command was run.
    pub(super) fn has_commands(&self) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event.what, What::Observed { .. }))
    }

    /// Returns it in our own format.
    pub(super) fn to_json(
        &self,
        about: &RunHeader,
        ending: &Ending,
        patch: &str,
        tests: Option<&Value>,
    ) -> Value {
        json!({
            "trajectory_format": FORMAT,
            "about": about,
            "ended": ending.name(),
            "summary": ending.summary(),
            "usage": {
                "steps": self.spent.steps,
                "prompt_tokens": self.spent.usage.prompt_tokens,
                "completion_tokens": self.spent.usage.completion_tokens,
                "cached_tokens": self.spent.usage.cached_tokens,
                "cost": self.spent.known_cost(),
            },
            "tests": tests,
            "patch": patch,
            "messages": self.events.iter().map(Event::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Event {
    fn to_json(&self) -> Value {
        let mut value = match &self.what {
            What::Rules(content) => json!({"role": "system", "content": content}),
            What::Task(content) => json!({"role": "user", "content": content}),
            What::Answered { answer, took } => json!({
                "role": "assistant",
                "content": answer.text,
                "tool_calls": calls(&answer.tool_calls),
                "finish": finish(answer.finish),
                "usage": answer.usage,
                "cost": answer.cost,
                "attempts": answer.attempts,
                "seconds": seconds(*took),
            }),
            What::Observed {
                id,
                command,
                shown,
                left_out,
                executed,
            } => json!({
                "role": role(id.as_ref()),
                "tool_call_id": id,
                "content": shown,
                "command": command,
                "ended": ended(executed.ended),
                "exit": exit(executed.ended),
                "left_out_bytes": left_out,
                "seconds": seconds(executed.duration),
            }),
            What::Reminded { id, text } => {
                json!({"role": role(id.as_ref()), "tool_call_id": id, "content": text})
            }
            What::LeftOut(count) => {
                json!({"role": "engine", "content": format!("{count} old outputs left out or shortened")})
            }
            What::Failed(error) => {
                json!({"role": "engine", "content": error.to_string(), "code": error.code()})
            }
        };
        value["at"] = self.at.to_rfc3339().into();
        value
    }
}

/// Returns calls of tools as the protocol spells them.
pub(super) fn calls(calls: &[ToolCall]) -> Value {
    serde_json::to_value(calls).unwrap_or(Value::Null)
}

/// Returns the role of the message: the tool for the result of a call, else the user.
pub(super) const fn role(id: Option<&String>) -> &'static str {
    if id.is_some() { "tool" } else { "user" }
}

/// Returns the status that a command exited with, `None` if it did not.
pub(super) const fn exit(ended: Ended) -> Option<i32> {
    match ended {
        Ended::Exited(status) => Some(status),
        _ => None,
    }
}

/// Returns the word for how a command ended.
pub(super) const fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Exited(_) => "exited",
        Ended::Signalled(_) => "signalled",
        Ended::TimedOut => "timed_out",
        Ended::OutOfMemory => "out_of_memory",
        Ended::OutOfDisk => "out_of_disk",
    }
}

fn finish(finish: Finish) -> Value {
    serde_json::to_value(finish).unwrap_or(Value::Null)
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
