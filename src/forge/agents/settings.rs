//! Our hooks in the settings of an agent, each in that agent's format.

use serde_json::{Value as Json, json};

use super::hooks::Event;
use super::json_text::{Member, Node, Value, insert, parse, remove, unit};
use super::{Agent, AgentHook};

/// What every command of ours has in it.
pub(super) const MARK: &str = "helmdeck forge hook agent";
/// Depth of the list of an event in the settings.
const LIST: usize = 2;

/// Returns our hooks for an agent.
pub(super) fn hooks(agent: Agent) -> Vec<AgentHook> {
    Event::ALL
        .iter()
        .map(|event| AgentHook { event: event_name(agent, *event), command: command(agent, *event) })
        .collect()
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
    format!("command -v helmdeck >/dev/null 2>&1 || exit 0; exec {MARK} {event} {agent}")
}

/// Time limit of a hook, in seconds.
const fn timeout(event: Event) -> u64 {
    match event {
        Event::Start | Event::Compact => 30,
        Event::Stop => 60,
    }
}

/// Returns the element that stands in the list of an event.
fn element(agent: Agent, event: Event) -> Json {
    let command = command(agent, event);
    match agent {
        Agent::Cursor => json!({"command": command, "timeout": timeout(event)}),
        Agent::Gemini => {
            let hook =
                json!({"name": "helmdeck", "type": "command", "command": command, "timeout": timeout(event) * 1000});
            json!({"hooks": [hook]})
        }
        Agent::Claude | Agent::Codex => {
            json!({"hooks": [{"type": "command", "command": command, "timeout": timeout(event)}]})
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

/// Returns settings with our hooks; other content keeps its bytes.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn with(agent: Agent, old: Option<&str>) -> Result<String, String> {
    let mut text = match old {
        Some(old) if !old.trim().is_empty() => old.to_owned(),
        _ => empty(agent).to_owned(),
    };
    if Event::ALL.iter().all(|event| has(&text, agent, *event)) {
        return Ok(text);
    }
    // Hooks of another version are replaced.
    if old.is_some_and(|old| old.contains(MARK)) {
        text = cut(agent, text)?;
    }
    let unit = unit(&text);
    for event in Event::ALL {
        let name = event_name(agent, event);
        text = with_member(&text, |root| Some(root), 0, "hooks", "{}", &unit)?;
        text = with_member(&text, |root| root.member("hooks"), 1, name, "[]", &unit)?;
        let root = parse(&text)?;
        let Some(list) = root.member("hooks").and_then(|hooks| hooks.member(name)) else { continue };
        let element = pretty(&element(agent, event), &unit);
        text = insert(&text, list, &element, &unit, LIST);
    }
    Ok(text)
}

/// Adds a member to an object, unless it is there.
fn with_member(
    text: &str,
    find: impl Fn(&Node) -> Option<&Node>,
    depth: usize,
    name: &str,
    value: &str,
    unit: &str,
) -> Result<String, String> {
    let root = parse(text)?;
    let Some(parent) = find(&root).filter(|parent| matches!(parent.value, Value::Object(_))) else {
        return Err("expected an object of hooks".to_owned());
    };
    Ok(match parent.member(name) {
        None => insert(text, parent, &format!("\"{name}\": {value}"), unit, depth),
        Some(there) if value == "[]" && !matches!(there.value, Value::Array(_)) => {
            return Err(format!("expected a list at hooks.{name}"));
        }
        Some(_) => text.to_owned(),
    })
}

/// Returns settings without our hooks. `None` if nothing else was in them.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn without(agent: Agent, old: &str) -> Result<Option<String>, String> {
    if !old.contains(MARK) {
        return Ok(Some(old.to_owned()));
    }
    let text = cut(agent, old.to_owned())?;
    Ok((text != empty(agent)).then_some(text))
}

/// Removes our hooks, the last one first, so that lists which were made for them go too.
fn cut(agent: Agent, mut text: String) -> Result<String, String> {
    let unit = unit(&text);
    for event in Event::ALL.into_iter().rev() {
        let name = event_name(agent, event);
        loop {
            let root = parse(&text)?;
            let list = root.member("hooks").and_then(|hooks| hooks.member(name));
            let Some((list, at)) = list.and_then(|list| Some((list, list.elements().iter().position(is_ours)?))) else {
                break;
            };
            text = remove(&text, list, at, &unit, LIST);
        }
        text = without_empty(&text, |root| root.member("hooks"), 1, name, &unit)?;
    }
    without_empty(&text, |root| Some(root), 0, "hooks", &unit)
}

/// Removes a member that is an empty list or object.
fn without_empty(
    text: &str,
    find: impl Fn(&Node) -> Option<&Node>,
    depth: usize,
    name: &str,
    unit: &str,
) -> Result<String, String> {
    let root = parse(text)?;
    let Some(Node { value: Value::Object(members), .. }) = find(&root) else { return Ok(text.to_owned()) };
    let is_it = |member: &Member| {
        let container = matches!(member.node.value, Value::Array(_) | Value::Object(_));
        member.name == name && container && member.node.is_empty()
    };
    match (members.iter().position(is_it), find(&root)) {
        (Some(at), Some(parent)) => Ok(remove(text, parent, at, unit, depth)),
        _ => Ok(text.to_owned()),
    }
}

/// Says whether an element of a list has only hooks of ours.
fn is_ours(element: &Node) -> bool {
    let ours = |node: &Node| node.member("command").and_then(Node::text).is_some_and(|command| command.contains(MARK));
    let hooks = element.member("hooks").map(Node::elements).unwrap_or_default();
    ours(element) || (!hooks.is_empty() && hooks.iter().all(ours))
}

/// Says whether the current hook of an event is there.
fn has(text: &str, agent: Agent, event: Event) -> bool {
    let Ok(root) = parse(text) else { return false };
    let command = command(agent, event);
    let is_it = |node: &Node| node.member("command").and_then(Node::text) == Some(command.as_str());
    let list = root.member("hooks").and_then(|hooks| hooks.member(event_name(agent, event)));
    list.is_some_and(|list| {
        list.elements().iter().any(|element| {
            is_it(element) || element.member("hooks").is_some_and(|hooks| hooks.elements().iter().any(is_it))
        })
    })
}

fn pretty(value: &Json, unit: &str) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let indented = text.lines().map(|line| {
        let rest = line.trim_start_matches(' ');
        format!("{}{rest}", unit.repeat((line.len() - rest.len()) / 2))
    });
    indented.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_restores_every_settings_file() {
        let files = [
            "{\n  \"permissions\": { \"allow\": [\"Bash(ls:*)\", \"Read\"] }\n}\n",
            "{\n\t\"hooks\": {\n\t\t\"SessionStart\": [\n\t\t\t{ \"hooks\": [{ \"type\": \"command\", \"command\": \"mine\" }] }\n\t\t]\n\t}\n}",
            "{ \"version\": 1, \"hooks\": { \"sessionStart\": [{ \"command\": \"mine\" }], \"stop\": [] } }",
            "// comments are mine\n{\n    \"theme\": \"dark\", // too\n}\n",
        ];
        for agent in Agent::ALL {
            for before in files {
                let after = with(agent, Some(before)).unwrap();
                assert!(Event::ALL.iter().all(|event| has(&after, agent, *event)), "{after}");
                assert_eq!(with(agent, Some(&after)).unwrap(), after, "a repeat changes nothing");
                assert_eq!(without(agent, &after).unwrap().as_deref(), Some(before), "{agent:?}: {after}");
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
        for wrong in ["[]", "{\"hooks\": []}", "{\"hooks\": {\"SessionStart\": {}}}", "{", "not json"] {
            assert!(with(Agent::Claude, Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_agent_has_its_own_format() {
        let read = |agent| serde_json::from_str::<Json>(&with(agent, None).unwrap()).unwrap();
        let claude = read(Agent::Claude);
        let hook = &claude["hooks"]["SessionStart"][0]["hooks"][0];
        assert_eq!((hook["type"].as_str(), hook["timeout"].as_u64()), (Some("command"), Some(30)));
        assert!(claude["hooks"]["PreCompact"].is_array() && claude["hooks"]["SessionEnd"].is_array());
        let cursor = read(Agent::Cursor);
        assert_eq!(cursor["version"], 1);
        assert!(cursor["hooks"]["sessionEnd"][0]["command"].as_str().unwrap().ends_with("hook agent stop cursor"));
        let gemini = read(Agent::Gemini);
        assert_eq!(gemini["hooks"]["PreCompress"][0]["hooks"][0]["timeout"], 30_000, "milliseconds");
        assert!(read(Agent::Codex)["hooks"]["Stop"].is_array());
    }
}
