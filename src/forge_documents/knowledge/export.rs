//! Export of knowledge: Markdown for people, JSON lines for programs.

use std::fmt::Write as _;

use helmdeck_core::text::collapse_whitespace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Kind, KnowledgeFile};

/// Export format of knowledge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Markdown, a heading for each kind.
    #[default]
    Markdown,
    /// One JSON object a line, each with `id` and `kind`.
    Jsonl,
    /// The stored file.
    Json,
}

impl KnowledgeFile {
    /// Returns all entries as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = "# Knowledge\n".to_owned();
        let mut last = None;
        for entry in self.entries() {
            if last != Some(entry.kind) {
                last = Some(entry.kind);
                let heading = match entry.kind {
                    Kind::Successful => "What works",
                    Kind::Failed => "What does not work",
                    Kind::Decision => "Decisions",
                    Kind::Invariant => "Invariants",
                };
                let _ = write!(text, "\n## {heading}\n\n");
            }
            let lines: Vec<String> = entry.texts().iter().map(|(_, text)| collapse_whitespace(text)).collect();
            if let Some((first, rest)) = lines.split_first() {
                let gone = if entry.trace.superseded_by.is_some() { " (superseded)" } else { "" };
                let _ = writeln!(text, "- {first}{gone}");
                for ((name, _), line) in entry.texts().iter().skip(1).zip(rest) {
                    let _ = writeln!(text, "  - {name}: {line}");
                }
            }
            if !entry.trace.paths.is_empty() {
                let _ = writeln!(text, "  - paths: {}", entry.trace.paths.join(", "));
            }
        }
        text
    }

    /// Returns all entries as JSON lines.
    pub fn jsonl(&self) -> String {
        let mut text = String::new();
        for entry in self.entries() {
            let mut line = serde_json::Map::new();
            line.insert("id".into(), entry.id().into());
            line.insert("kind".into(), serde_json::to_value(entry.kind).unwrap_or_default());
            for (name, value) in entry.texts() {
                line.insert((*name).into(), (*value).into());
            }
            if let Some(at) = entry.learned_at {
                line.insert("learned_at".into(), at.to_string().into());
            }
            if let Ok(serde_json::Value::Object(trace)) = serde_json::to_value(entry.trace) {
                for (name, value) in trace {
                    line.entry(name).or_insert(value);
                }
            }
            text.push_str(&serde_json::Value::Object(line).to_string());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_headings_and_programs_get_lines() {
        let file: KnowledgeFile = serde_json::from_str(include_str!("../fixtures/knowledge.json")).unwrap();
        let text = file.markdown();
        assert!(
            text.contains("## What works\n\n- Adding new NATS subject\n  - approach: Add to sx9-harness"),
            "{text}"
        );
        assert!(text.contains("## Invariants\n\n- Never use Blake3 - only Murmur3 trivariate\n"), "{text}");
        let lines: Vec<serde_json::Value> =
            file.jsonl().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[1]["kind"], "failed");
        assert_eq!(lines[1]["issue"], "Derive macros need serde in scope");
        assert_eq!(lines[4]["id"].as_str().unwrap().len(), 25);
    }
}
