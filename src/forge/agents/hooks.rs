//! What the hooks of an agent do, and how they answer in the agent's format.

use serde::Deserialize;
use serde_json::json;
use strum::IntoStaticStr;

use super::Agent;
use crate::error::{Category, Result};
use crate::focus::Phase;
use crate::prime;
use crate::project::Project;
use crate::sessions::{End, Log, Sessions};

/// An event of an agent's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// A session of the agent starts or goes on: it gets the briefing.
    Start,
    /// The agent is about to compact its context: the work session notes it.
    Compact,
    /// A session of the agent ends: the work session ends too.
    Stop,
}

impl Event {
    /// All events, in their order.
    pub const ALL: [Self; 3] = [Self::Start, Self::Compact, Self::Stop];

    /// Returns the name, as commands have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What an agent tells a hook on its standard input. Other members have no effect.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct HookInput {
    /// Why the context is compacted: `auto` or `manual`.
    pub trigger: Option<String>,
    /// Why the session ends: `exit`, `clear`, ….
    pub reason: Option<String>,
}

impl HookInput {
    /// Reads the input of a hook. Anything that is not such an input counts as none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Returns a reason that is a plain word, for the progress.
    fn word(text: Option<&String>) -> String {
        let plain = |text: &&String| {
            (1..=32).contains(&text.len())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        text.filter(plain)
            .map(|text| format!(" ({text})"))
            .unwrap_or_default()
    }
}

/// Does what an event asks for. Returns the text for the agent: one JSON object.
///
/// At a compaction and at an end it does nothing unless a work session of this agent is active.
///
/// # Errors
/// The errors of the operation. The caller reports them and ends with success, since an agent must
/// go on.
pub fn run(project: &Project, agent: Agent, event: Event, input: &HookInput) -> Result<String> {
    let answer = match event {
        Event::Start => {
            let sessions = Sessions::new(project);
            let briefing = prime::gather(project, sessions.shown()?.as_ref(), &[])
                .render(prime::budget(project))
                .text;
            match agent {
                Agent::Cursor => json!({"additional_context": briefing}),
                _ => {
                    json!({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": briefing}})
                }
            }
        }
        Event::Compact => {
            if Sessions::new(project).mine()?.is_some() {
                let text = format!(
                    "The agent compacted its context{}",
                    HookInput::word(input.trigger.as_ref())
                );
                Sessions::new(project).log(&Log { text, next: None })?;
            }
            json!({})
        }
        Event::Stop => {
            end(project, agent, input)?;
            json!({})
        }
    };
    Ok(answer.to_string())
}

/// Ends the work session of this agent. Uncommitted code stays, with the next step that was noted.
fn end(project: &Project, agent: Agent, input: &HookInput) -> Result<()> {
    let sessions = Sessions::new(project);
    let Some(session) = sessions.mine()? else {
        return Ok(());
    };
    // Codex tells the end of a turn only. Then a session goes on, unless its work is done.
    let is_done = || -> Result<bool> {
        let focus = sessions.focus_now()?.show()?;
        Ok(focus.is_some_and(|shown| shown.focus.phase == Phase::Done))
    };
    if agent == Agent::Codex && !is_done()? {
        return Ok(());
    }
    match sessions.end(&End::default()) {
        Err(error) if error.category == Category::Refused && error.code == "E_DIRTY" => {
            let why = format!(
                "The agent stopped{}",
                HookInput::word(input.reason.as_ref())
            );
            let next = sessions.next_step(&session)?;
            sessions
                .end(&End {
                    leave_dirty: Some(why),
                    next,
                    ..End::default()
                })
                .map(drop)
        }
        ended => ended.map(drop),
    }
}
