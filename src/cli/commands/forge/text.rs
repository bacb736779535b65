//! Answers of `helmdeck forge` as text for people.

use helmdeck_core::text::{count, one_line};
use helmdeck_forge::TrustState;
use helmdeck_forge::agents::AgentSetup;
use helmdeck_forge::health::Health;
use helmdeck_forge::init::Initialised;
use serde_json::Value;

pub(super) fn health_text(health: &Health) -> String {
    let mut text = format!("{}\n", health.overall.as_str());
    for (name, colour, reasons) in health.components() {
        text.push_str(&format!("  {name}: {}\n", colour.as_str()));
        for reason in reasons {
            text.push_str(&format!(
                "    {}: {}\n",
                reason.code.as_str(),
                reason.detail
            ));
            text.push_str(&format!("      next: {}\n", reason.next));
        }
    }
    text
}

/// Number of lines that are printed of a list; `--json` has all.
const SHOWN: usize = 8;

/// Says what `init` did, on one screen.
pub(super) fn init_text(done: &Initialised, agent: Option<&AgentSetup>) -> String {
    let mut lines = vec![match done.created.len() {
        0 => format!("{}: nothing is missing", done.root.display()),
        created => format!(
            "{}: {} created below .forge/",
            done.root.display(),
            count(created, "path")
        ),
    }];
    if let Some(tests) = &done.tests {
        lines.extend(
            tests.because.map(|because| {
                format!("tests of a feature: {} ({because} is there)", tests.runner)
            }),
        );
        if !tests.commands.is_empty() {
            lines.push(format!(
                "checks of a checkpoint: {}",
                tests.commands.join("; ")
            ));
        }
        lines.push(format!("  {}", tests.hint));
    }
    lines.extend(
        done.settings
            .iter()
            .map(|setting| format!("set in this clone: {setting}")),
    );
    if let Some(adopted) = &done.adopted {
        let (features, issues) = (
            count(adopted.features.len(), "feature"),
            count(adopted.issues.len(), "issue"),
        );
        lines.push(format!(
            "taken over: {features}, {issues}, {}",
            count(adopted.progress.len(), "progress file")
        ));
        let notes = adopted.proposals.iter().map(|note| {
            format!(
                "  worth learning? {}:{}: {}",
                note.from, note.line, note.text
            )
        });
        lines.extend(some(notes.collect()));
        lines.extend(some(
            adopted
                .skipped
                .iter()
                .map(|skipped| format!("  skipped: {skipped}"))
                .collect(),
        ));
    }
    if let Some(agent) = agent {
        lines.push(match agent.changed.as_slice() {
            [] => "the agent is set up already".to_owned(),
            changed => format!("set up for the agent: {}", changed.join(", ")),
        });
        lines.extend(agent.note.map(|note| format!("  {note}")));
    }
    for offer in &done.offers {
        lines.push(format!("offer: helmdeck forge init {}", offer.option));
        lines.push(format!("  {}", offer.why));
    }
    if !done.created.is_empty() {
        lines.push(
            "next: git add .forge && git commit -m \"[session] Give the project a memory\""
                .to_owned(),
        );
        lines.push("then: helmdeck forge start \"WHAT YOU WORK ON\"".to_owned());
    }
    lines.join("\n")
}

/// Returns the first of some lines, and how many more there are.
fn some(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more: --json lists all"));
    }
    lines
}

/// Writes a value as lines of names and values, indented by level.
pub(super) fn plain(value: &Value) -> String {
    let mut text = String::new();
    write_plain(&mut text, value, 0);
    text
}

fn write_plain(text: &mut String, value: &Value, level: usize) {
    let indent = "  ".repeat(level);
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(_, value)| !is_nothing(value)) {
                match scalar(value) {
                    Some(word) => text.push_str(&format!("{indent}{name}: {word}\n")),
                    None => {
                        text.push_str(&format!("{indent}{name}:\n"));
                        write_plain(text, value, level + 1);
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match scalar(item) {
                    Some(word) => text.push_str(&format!("{indent}- {word}\n")),
                    None => {
                        let mut inner = String::new();
                        write_plain(&mut inner, item, level + 1);
                        text.push_str(&format!("{indent}- {}", inner.trim_start()));
                    }
                }
            }
        }
        word => text.push_str(&format!("{indent}{}\n", scalar(word).unwrap_or_default())),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Returns a value that fits on a line.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("none".to_owned()),
        Value::String(text) if text.contains('\n') => Some(text.trim_end().replace('\n', "\n    ")),
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(items) if items.is_empty() => Some("none".to_owned()),
        Value::Object(members) if members.is_empty() => Some("none".to_owned()),
        _ => None,
    }
}

/// Lists what a project would run, one per line; commands that are not trusted yet are marked.
pub(super) fn trust_text(state: &TrustState) -> String {
    let mut text = match state.trusted {
        true => format!("trusted: {}\n", state.clone),
        false => format!("not trusted: {}\n", state.clone),
    };
    let width = state
        .commands
        .iter()
        .map(|one| one.purpose.len())
        .max()
        .unwrap_or(0);
    for one in &state.commands {
        let mark = if state.new.contains(one) {
            "new"
        } else {
            "   "
        };
        text.push_str(&format!(
            "  {mark} {:width$}  {}\n",
            one.purpose,
            one_line(&one.command)
        ));
        for (file, digest) in &one.files {
            text.push_str(&format!(
                "      {:width$}    {}  sha256:{digest}\n",
                "",
                one_line(file)
            ));
        }
    }
    for change in &state.changed {
        text.push_str(&format!("changed: {}\n", one_line(change)));
    }
    text.push_str(
        "these run what the repository holds, such as its tests; a command, file or setting that changes is asked for again",
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_lines_of_names_and_values() {
        let value = json!({"id": "A-001", "none": null, "yes": true, "list": ["a", "b"], "in": {"n": 1}, "all": [{"a": 1, "b": 2}]});
        assert_eq!(
            plain(&value),
            "all:\n  - a: 1\n    b: 2\nid: A-001\nin:\n  n: 1\nlist:\n  - a\n  - b\nyes: yes\n"
        );
    }
}
