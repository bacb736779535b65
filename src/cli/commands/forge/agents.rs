//! `helmdeck forge init --agent`, and the hooks of agents.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _};

use clap::ValueEnum as _;
use helmdeck_forge::agents::{self, Agent, AgentSetup, Event, HookInput};
use helmdeck_forge::{Category, Error, Project};

use super::context::{Answer, CommandContext, Stop};
use crate::args::forge::AgentName;
use crate::exit::Failure;

/// Maximum size of the input of a hook, in bytes.
const MAX_INPUT: u64 = 1 << 20;

const fn which(name: AgentName) -> Agent {
    match name {
        AgentName::Claude => Agent::Claude,
        AgentName::Codex => Agent::Codex,
        AgentName::Cursor => Agent::Cursor,
        AgentName::Gemini => Agent::Gemini,
    }
}

/// Returns the agent to set up that `--agent` names.
pub(super) fn named(on: &CommandContext, remove: bool, yes: bool) -> Result<Option<Agent>, Stop> {
    let agent = on
        .named_agent
        .as_deref()
        .and_then(|name| AgentName::from_str(name, false).ok());
    if agent.is_none() && (remove || yes) {
        let error = Error::usage(
            "--remove and --yes are about an agent, and --agent names none of those that can be set up",
        );
        return Err(error
            .hint("say --agent claude, codex, cursor or gemini")
            .into());
    }
    if let (None, Some(name)) = (agent, &on.named_agent) {
        on.output.note(&format!(
            "{name:?} is not claude, codex, cursor or gemini: no agent is set up"
        ));
    }
    Ok(agent.map(which))
}

/// Shows what an agent's setup changes, asks once, and writes it.
pub(super) fn set_up(
    on: &CommandContext,
    project: &Project,
    agent: Agent,
    yes: bool,
) -> Result<AgentSetup, Stop> {
    let planned = agents::plan(project, agent, false)?;
    if !planned.changed.is_empty() && !yes {
        let commands = planned
            .hooks
            .iter()
            .map(|hook| format!("  {}: {}", hook.event, hook.command));
        let commands = commands.collect::<Vec<_>>().join("\n");
        if !on.is_interactive() {
            let message = format!(
                "{} would run hooks of this project, and there is no terminal to ask on",
                agent.name()
            );
            let error = Error::new(Category::Refused, "E_NOT_AGREED", message);
            return Err(error
                .hint(format!(
                    "if a person agrees to these commands, say --yes:\n{commands}"
                ))
                .into());
        }
        on.output.note(&format!(
            "{} will run these commands by itself:\n{commands}",
            agent.name()
        ));
        on.ask(
            &format!("change {}", planned.changed.join(" and ")),
            "no agent was set up",
        )?;
    }
    Ok(agents::apply(project, agent, false)?)
}

/// Answers a hook of an agent. It never fails for the project, and tells errors on stderr: the
/// agent goes on.
pub(super) fn hook(on: &CommandContext, event: Event, agent: Option<&OsString>) -> Answer {
    let agent = agent.and_then(|name| AgentName::from_str(name.to_str()?, false).ok());
    let agent =
        agent.ok_or_else(|| Error::usage("the agent is claude, codex, cursor or gemini"))?;
    let answer = match on.find() {
        Ok(Some(project)) => {
            agents::run(&project, which(agent), event, &HookInput::parse(&input()))
                .map_err(Stop::from)
        }
        Ok(None) => Ok("{}".to_owned()),
        Err(error) => Err(error),
    };
    let text = answer.unwrap_or_else(|error| {
        let message = match error {
            Stop::Project(error) => error.to_string(),
            Stop::Cli(failure) => failure.message().to_string(),
            Stop::NoMemory => String::new(),
        };
        on.output.note(&message);
        "{}".to_owned()
    });
    if on.is_json() {
        let answer: serde_json::Value = serde_json::from_str(&text).map_err(Failure::internal)?;
        return on.print(&answer, String::new);
    }
    Ok(on.output.text(&text)?)
}

/// Reads what the agent writes to its hook. Unreadable input counts as none.
fn input() -> Vec<u8> {
    let mut bytes = Vec::new();
    if !std::io::stdin().is_terminal() {
        let _ = std::io::stdin()
            .lock()
            .take(MAX_INPUT)
            .read_to_end(&mut bytes);
    }
    bytes
}
