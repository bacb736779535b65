//! Our hooks in the settings of an agent, each in that agent's format.
//!
//! Everything else in the file stays, with its comments. An object on one line that gets a hook is
//! written on several.

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, json};

use super::hooks::Event;
use super::{Agent, AgentHook};

/// What every command of ours has in it.
pub(super) const MARK: &str = "helmdeck forge hook run agent-";

/// Returns our hooks for an agent.
pub(super) fn hooks(agent: Agent) -> Vec<AgentHook> {
    Event::ALL
        .map(|event| AgentHook {
            event: event_name(agent, event),
            command: command(agent, event),
        })
        .to_vec()
}

/// Returns the agent's name of an event.
const fn event_name(agent: Agent, event: Event) -> &'static str {
    match (agent, event) {
        (Agent::Cursor, Event::Start) => "sessionStart",
        (Agent::Cursor, Event::Compact) => "preCompact",
        (Agent::Cursor, Event::Stop) => "sessionEnd",
        (_, Event::Start) => "SessionStart",
        (Agent::Gemini, Event::Compact) => "PreCompress",
        (_, Event::Compact) => "PreCompact",
        // Codex has no event at the end of a session.
        (Agent::Codex, Event::Stop) => "Stop",
        (_, Event::Stop) => "SessionEnd",
    }
}

/// Returns the shell command of a hook. It does nothing where the program is not installed.
fn command(agent: Agent, event: Event) -> String {
    let (agent, event) = (agent.name(), event.name());
    format!("command -v helmdeck >/dev/null 2>&1 || exit 0; exec {MARK}{event} {agent}")
}

/// Returns the element that stands in the list of an event. Its time limit is in seconds, that of
/// Gemini in milliseconds.
fn element(agent: Agent, event: Event) -> CstInputValue {
    let command = command(agent, event);
    let timeout = if event == Event::Stop { 60_u64 } else { 30 };
    let millis = timeout * 1000;
    match agent {
        Agent::Cursor => json!({"command": command, "timeout": timeout}),
        Agent::Gemini => json!({
            "hooks": [{"name": "helmdeck", "type": "command", "command": command, "timeout": millis}]
        }),
        Agent::Claude | Agent::Codex => {
            json!({"hooks": [{"type": "command", "command": command, "timeout": timeout}]})
        }
    }
}

/// Returns the content of a new file without hooks.
const fn empty(agent: Agent) -> &'static str {
    match agent {
        Agent::Cursor => "{\n  \"version\": 1\n}\n",
        _ => "{}\n",
    }
}

/// Returns settings with our hooks.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn with(agent: Agent, old: Option<&str>) -> Result<String, String> {
    let text = old
        .filter(|old| !old.trim().is_empty())
        .unwrap_or(empty(agent));
    let root = parse(text)?;
    let is_there = |event: Event| {
        let wanted = command(agent, event);
        list(&root, agent, event).is_some_and(|list| {
            list.elements()
                .iter()
                .flat_map(commands)
                .any(|known| known == wanted)
        })
    };
    if Event::ALL.into_iter().all(is_there) {
        return Ok(text.to_owned());
    }
    // Hooks of another version are replaced.
    cut(&root, agent);
    let hooks = root
        .object_value_or_create()
        .and_then(|root| root.object_value_or_create("hooks"));
    let hooks = hooks.ok_or("expected an object of hooks")?;
    for event in Event::ALL {
        let name = event_name(agent, event);
        let list = hooks
            .array_value_or_create(name)
            .ok_or_else(|| format!("expected a list at hooks.{name}"))?;
        list.append(element(agent, event));
    }
    Ok(root.to_string())
}

/// Returns settings without our hooks. `None` if nothing else was in them.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn without(agent: Agent, old: &str) -> Result<Option<String>, String> {
    if !old.contains(MARK) {
        return Ok(Some(old.to_owned()));
    }
    let root = parse(old)?;
    cut(&root, agent);
    let text = root.to_string();
    Ok((text != empty(agent)).then_some(text))
}

fn parse(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

/// Removes our hooks, with the lists that were made for them.
fn cut(root: &CstRootNode, agent: Agent) {
    for event in Event::ALL {
        let Some(list) = list(root, agent, event) else {
            continue;
        };
        let ours: Vec<CstNode> = list.elements().into_iter().filter(is_ours).collect();
        if ours.is_empty() {
            continue;
        }
        ours.into_iter().for_each(CstNode::remove);
        let Some(hooks) = hooks_of(root).filter(|_| list.elements().is_empty()) else {
            continue;
        };
        remove(&hooks, event_name(agent, event));
        if let Some(root) = root
            .object_value()
            .filter(|_| hooks.properties().is_empty())
        {
            remove(&root, "hooks");
        }
    }
}

fn remove(object: &CstObject, name: &str) {
    if let Some(member) = object.get(name) {
        member.remove();
    }
}

fn hooks_of(root: &CstRootNode) -> Option<CstObject> {
    root.object_value()?.object_value("hooks")
}

/// Returns the list of an event.
fn list(root: &CstRootNode, agent: Agent, event: Event) -> Option<CstArray> {
    hooks_of(root)?.array_value(event_name(agent, event))
}

/// Says whether an element of a list has only hooks of ours.
fn is_ours(element: &CstNode) -> bool {
    let commands = commands(element);
    !commands.is_empty() && commands.iter().all(|command| command.contains(MARK))
}

/// Returns the commands of an element: its own or those of its hooks. A hook without one has an
/// empty one.
fn commands(element: &CstNode) -> Vec<String> {
    let command = |node: &CstNode| {
        node.as_object()?
            .get("command")?
            .value()?
            .as_string_lit()?
            .decoded_value()
            .ok()
    };
    let hooks = element
        .as_object()
        .and_then(|element| element.array_value("hooks"));
    let all = hooks.map_or_else(|| vec![element.clone()], |hooks| hooks.elements());
    all.iter()
        .map(|node| command(node).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    fn has(text: &str, agent: Agent, event: Event) -> bool {
        let list = list(&parse(text).unwrap(), agent, event).unwrap();
        list.elements()
            .iter()
            .flat_map(commands)
            .any(|known| known == command(agent, event))
    }

    #[test]
    fn removal_restores_every_settings_file() {
        let files = [
            "{\n  \"permissions\": { \"allow\": [\"Bash(ls:*)\", \"Read\"] }\n}\n",
            "{\n\t\"hooks\": {\n\t\t\"SessionStart\": [\n\t\t\t{ \"hooks\": [{ \"type\": \"command\", \"command\": \"mine\" }] }\n\t\t]\n\t}\n}",
            "{\n  \"version\": 1,\n  \"hooks\": {\n    \"sessionStart\": [\n      { \"command\": \"mine\" }\n    ],\n    \"stop\": []\n  }\n}",
            "// comments are mine\n{\n    \"theme\": \"dark\", // too\n}\n",
        ];
        for agent in Agent::ALL {
            for before in files {
                let after = with(agent, Some(before)).unwrap();
                assert!(
                    Event::ALL.iter().all(|event| has(&after, agent, *event)),
                    "{after}"
                );
                assert_eq!(
                    with(agent, Some(&after)).unwrap(),
                    after,
                    "a repeat changes nothing"
                );
                assert_eq!(
                    without(agent, &after).unwrap().as_deref(),
                    Some(before),
                    "{agent:?}: {after}"
                );
            }
            let new = with(agent, None).unwrap();
            assert!(serde_json::from_str::<Json>(&new).is_ok(), "{new}");
            assert_eq!(without(agent, &new).unwrap(), None);
        }
    }

    #[test]
    fn hooks_of_another_version_are_replaced() {
        let now = with(Agent::Claude, Some("{\"a\": 1}")).unwrap();
        let older = now.replace("|| exit 0; exec ", "&& ");
        assert_eq!(with(Agent::Claude, Some(&older)).unwrap(), now);
    }

    #[test]
    fn files_of_another_format_are_refused() {
        for wrong in [
            "[]",
            "{\"hooks\": []}",
            "{\"hooks\": {\"SessionStart\": {}}}",
            "{",
            "not json",
        ] {
            assert!(with(Agent::Claude, Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_agent_has_its_own_format() {
        let read = |agent| serde_json::from_str::<Json>(&with(agent, None).unwrap()).unwrap();
        let claude = read(Agent::Claude);
        let hook = &claude["hooks"]["SessionStart"][0]["hooks"][0];
        assert_eq!(
            (hook["type"].as_str(), hook["timeout"].as_u64()),
            (Some("command"), Some(30))
        );
        assert!(
            claude["hooks"]["PreCompact"].is_array() && claude["hooks"]["SessionEnd"].is_array()
        );
        let cursor = read(Agent::Cursor);
        assert_eq!(cursor["version"], 1);
        assert!(
            cursor["hooks"]["sessionEnd"][0]["command"]
                .as_str()
                .unwrap()
                .ends_with("hook run agent-stop cursor")
        );
        let gemini = read(Agent::Gemini);
        assert_eq!(
            gemini["hooks"]["PreCompress"][0]["hooks"][0]["timeout"], 30_000,
            "milliseconds"
        );
        assert!(read(Agent::Codex)["hooks"]["Stop"].is_array());
    }
}
