//! An output of a pack as people read it: short values first, text in lines as it is. Programs use `--json` instead.

use helmdeck_core::{CacheInfo, Outcome};
use serde_json::{Map, Value};

/// The longest list of plain values that is written on one line, in characters.
const LINE: usize = 100;

/// Returns the output and the artifacts of an outcome as text.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    let mut text = String::new();
    match outcome.output.to_value() {
        Value::Object(object) => top(&object, &mut text),
        Value::String(plain) => text.push_str(&plain),
        other => value(&other, 0, &mut text),
    }
    if !outcome.artifacts.is_empty() {
        end_line(&mut text);
        text.push_str("artifacts:\n");
        for artifact in outcome.artifacts.iter() {
            text.push_str(&format!(
                "  {} ({}, {})\n",
                artifact.key,
                artifact.media_type,
                crate::output::size(artifact.size)
            ));
        }
    }
    text
}

/// Returns the line that says how the call went: pack, duration and, when both gates are open, the cache.
pub(crate) fn status(outcome: &Outcome) -> String {
    let mut line = format!("{} {}: {} ms", outcome.pack, outcome.version, outcome.duration.as_millis());
    if let Some(cache) = &outcome.cache {
        line.push_str(&format!(", cache {}", cache_status(cache)));
    }
    line
}

fn cache_status(cache: &CacheInfo) -> String {
    use helmdeck_core::CacheStatus::{Bypass, Coalesced, Miss};
    match cache.status {
        Miss | Bypass | Coalesced => cache.status.as_str().to_owned(),
        other => format!("{} ({} s old)", other.as_str(), cache.age.as_secs()),
    }
}

/// Writes the members of the whole output: plain values, then structures, then text of several lines. Where there is such a
/// text it is what people came for, so long lists beside it are only counted.
fn top(object: &Map<String, Value>, out: &mut String) {
    let has_text = object.values().any(is_text);
    for (name, member) in object.iter().filter(|(_, member)| is_plain(member) && !is_text(member)) {
        out.push_str(&format!("{name}: {}\n", plain(member)));
    }
    for (name, member) in object.iter().filter(|(_, member)| !is_plain(member)) {
        match member {
            Value::Array(items) if has_text && items.iter().any(|item| !is_plain(item)) => {
                out.push_str(&format!("{name}: {} (--json prints them)\n", items.len()));
            }
            member => self::member(name, member, 0, out),
        }
    }
    for (name, member) in object.iter().filter(|(_, member)| is_text(member)) {
        self::member(name, member, 0, out);
    }
}

fn member(name: &str, member: &Value, indent: usize, out: &mut String) {
    out.push_str(&format!("{:indent$}{name}:", ""));
    match member {
        Value::Array(items) if items.is_empty() => out.push_str(" none\n"),
        Value::Object(object) if object.is_empty() => out.push_str(" none\n"),
        Value::Array(items) if one_line(items).is_some() => {
            out.push_str(&format!(" {}\n", one_line(items).unwrap_or_default()));
        }
        Value::Array(_) | Value::Object(_) => {
            out.push('\n');
            value(member, indent + 2, out);
        }
        text if is_text(text) => {
            out.push('\n');
            block(text.as_str().unwrap_or_default(), indent + 2, out);
        }
        other => out.push_str(&format!(" {}\n", plain(other))),
    }
}

fn value(of: &Value, indent: usize, out: &mut String) {
    match of {
        Value::Object(object) => {
            for (name, inner) in object {
                member(name, inner, indent, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                let start = out.len();
                value(item, indent + 2, out);
                // The first line of an item gets the dash, the others stay below it.
                if out.len() > start + indent {
                    out.replace_range(start + indent..start + indent + 1, "-");
                }
            }
        }
        text if is_text(text) => block(text.as_str().unwrap_or_default(), indent, out),
        other => out.push_str(&format!("{:indent$}{}\n", "", plain(other))),
    }
}

fn block(text: &str, indent: usize, out: &mut String) {
    for line in text.lines() {
        out.push_str(format!("{:indent$}{line}", "").trim_end());
        out.push('\n');
    }
}

fn one_line(items: &[Value]) -> Option<String> {
    if !items.iter().all(|item| is_plain(item) && !is_text(item)) {
        return None;
    }
    let line = items.iter().map(plain).collect::<Vec<_>>().join(", ");
    (line.chars().count() <= LINE).then_some(line)
}

fn is_plain(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim_end().contains('\n'))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.trim().is_empty() => format!("{text:?}"),
        Value::String(text) => text.trim_end().to_owned(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use helmdeck_core::outcome::Remark;
    use helmdeck_core::{CacheStatus, Json, PackName, Version};
    use serde_json::json;

    use super::*;

    fn made(output: Value) -> Outcome {
        Outcome {
            pack: PackName::new("a.b").unwrap(),
            version: Version::new(1).unwrap(),
            output: Json::from(output),
            artifacts: Arc::new([]),
            duration: Duration::from_micros(12_900),
            session_id: None,
            cache: None,
            remark: Remark::default(),
        }
    }

    #[test]
    fn structures_are_indented_and_lists_have_dashes() {
        let output = json!({"b": [{"n": 1, "labels": ["x", "y"], "o": {"k": null}}, {"n": 2, "labels": []}], "a": "text", "e": ""});
        let expected =
            "a: text\ne: \"\"\nb:\n  - labels: x, y\n    n: 1\n    o:\n      k: none\n  - labels: none\n    n: 2\n";
        assert_eq!(outcome(&made(output)), expected);
        assert_eq!(outcome(&made(json!([1, "x"]))), "- 1\n- x\n");
        assert_eq!(outcome(&made(json!("plain"))), "plain");
    }

    #[test]
    fn text_stands_last_in_its_own_lines_and_lists_beside_it_are_counted() {
        let output = json!({"map": "one\n  two\n", "files": [{"path": "x"}], "skipped": {"a": 1}, "tokens": 5});
        let expected = "tokens: 5\nfiles: 1 (--json prints them)\nskipped:\n  a: 1\nmap:\n  one\n    two\n";
        assert_eq!(outcome(&made(output)), expected);
    }

    #[test]
    fn the_status_line_speaks_of_the_cache_only_when_it_took_part() {
        let mut outcome = made(json!({}));
        assert_eq!(status(&outcome), "a.b v1: 12 ms");
        outcome.cache = Some(CacheInfo {
            status: CacheStatus::Hit,
            age: Duration::from_secs(7),
            ttl: Duration::from_secs(60),
            key: [0; 8],
        });
        assert_eq!(status(&outcome), "a.b v1: 12 ms, cache hit (7 s old)");
    }
}
