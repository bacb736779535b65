//! Outcomes as text for people: short values first, then text, diffs last.
//!
//! Scripts use `--json` instead. The text has no control characters except its own colours.

use std::time::Duration;

use helmdeck_core::context::ArtifactRef;
use helmdeck_core::text::shell_quoted;
use helmdeck_core::{CacheInfo, Outcome};
use serde_json::{Map, Value};

use crate::diff;
use crate::output::{printable, size};
use crate::terminal::{Look, Paint};

/// The longest list of plain values that is written on one line, in characters.
const LINE: usize = 100;
/// How many lines of a diff a terminal gets if all of it can be had from an artifact.
const DIFF_LINES: usize = 300;

/// Where an outcome is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputStyle {
    /// Whether a person reads it at a terminal: then it is said what can be done next.
    pub(crate) terminal: bool,
    /// How it is painted.
    pub(crate) paint: Paint,
}

/// Returns an outcome as text: the output by the pack's output schema, the artifacts, the session.
pub(crate) fn outcome(outcome: &Outcome, schema: &Value, place: OutputStyle) -> String {
    let mut text = String::new();
    let mut diffs = Vec::new();
    match outcome.output.to_value() {
        Value::Object(mut object) => {
            diffs = take_diffs(&mut object, schema);
            if let Some(Value::Bool(success)) = object.get("success").cloned() {
                object.remove("success");
                let look = if success { Look::Green } else { Look::Red };
                text.push_str(&place.paint.text(look, &format!("success: {success}")));
                text.push('\n');
            }
            let mut members = String::new();
            top(&object, !diffs.is_empty(), &mut members);
            text.push_str(&printable(&members));
        }
        Value::String(plain) => text.push_str(&printable(&plain)),
        other => {
            let mut plain = String::new();
            value(&other, 0, &mut plain);
            text.push_str(&printable(&plain));
        }
    }
    artifacts(&outcome.artifacts, place, &mut text);
    session(outcome.session_id.as_deref(), place, &mut text);
    for (name, diff) in diffs {
        add_diff(&name, &diff, &outcome.artifacts, place, &mut text);
    }
    text
}

/// Takes those members out that the schema says are diffs.
fn take_diffs(object: &mut Map<String, Value>, schema: &Value) -> Vec<(String, String)> {
    let says_so = |name: &str| schema["properties"][name]["contentMediaType"] == diff::MEDIA_TYPE;
    let is_diff = |(name, value): (&String, &Value)| {
        says_so(name) && value.as_str().is_some_and(|text| !text.trim().is_empty())
    };
    let names: Vec<String> = object
        .iter()
        .filter(|member| is_diff(*member))
        .map(|(name, _)| name.clone())
        .collect();
    let take = |name: String| match object.remove(&name) {
        Some(Value::String(diff)) => Some((name, diff)),
        _ => None,
    };
    names.into_iter().filter_map(take).collect()
}

/// Adds a diff, from the first column on, so that it can be copied.
///
/// A terminal gets only the start of a long diff if an artifact holds the rest; without an artifact
/// it gets all of it.
fn add_diff(
    name: &str,
    text: &str,
    artifacts: &[ArtifactRef],
    place: OutputStyle,
    out: &mut String,
) {
    let kept = artifacts.iter().find(|artifact| {
        artifact.media_type.split(';').next() == Some(diff::MEDIA_TYPE)
            && artifact.size >= text.len() as u64
    });
    let limit = if place.terminal && kept.is_some() {
        DIFF_LINES
    } else {
        usize::MAX
    };
    let (shown, left_out) = diff::shown(text, place.paint, place.terminal, limit);
    out.push_str(&format!("{}:\n{shown}", printable(name)));
    if let (Some(kept), true) = (kept, left_out > 0) {
        out.push_str(&format!("… {left_out} lines more: {}\n", get(&kept.key)));
    }
}

fn artifacts(artifacts: &[ArtifactRef], place: OutputStyle, out: &mut String) {
    let Some(first) = artifacts.first() else {
        return;
    };
    end_line(out);
    out.push_str("artifacts:\n");
    for artifact in artifacts {
        let line = format!(
            "  {} ({}, {})\n",
            artifact.key,
            artifact.media_type,
            size(artifact.size)
        );
        out.push_str(&printable(&line));
    }
    if place.terminal {
        out.push_str(&format!("  to get one: {}\n", get(&first.key)));
    }
}

/// Returns the command that gets an artifact.
fn get(key: &str) -> String {
    format!("helmdeck artifact get {}", shell_quoted(&printable(key)))
}

fn session(id: Option<&str>, place: OutputStyle, out: &mut String) {
    let Some(id) = id else { return };
    end_line(out);
    out.push_str(&printable(&format!("session: {id}\n")));
    if place.terminal {
        let id = shell_quoted(&printable(id));
        out.push_str(&format!(
            "  to use it: helmdeck session exec {id} -- ls\n  to end it: helmdeck session end {id}\n"
        ));
    }
}

/// Returns the status line of a call: pack, duration and, if both gates are open, the cache.
pub(crate) fn status(outcome: &Outcome) -> String {
    let mut line = format!(
        "{} {}: {}",
        outcome.pack,
        outcome.version,
        took(outcome.duration)
    );
    if let Some(cache) = &outcome.cache {
        line.push_str(&format!(", cache {}", cache_status(cache)));
    }
    if outcome.pending {
        line.push_str(", pending: what it invalidates is not deleted from the store yet");
    }
    line
}

/// Writes a duration for people: `12 ms`, `12.3 s`, `2 min 3 s`.
pub(crate) fn took(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..10_000 => format!("{millis} ms"),
        millis @ 10_000..60_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        millis => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
    }
}

fn cache_status(cache: &CacheInfo) -> String {
    use helmdeck_core::CacheStatus::{Bypass, Coalesced, Miss};
    match cache.status {
        Miss | Bypass | Coalesced => {
            let store = cache.store_error.map(|word| format!("store: {word}"));
            let kept = cache
                .not_kept
                .map(|why| format!("not kept: {}", why.text()));
            let why = [store, cache.reason.map(str::to_owned), kept]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", ");
            match why.as_str() {
                "" => cache.status.as_str().to_owned(),
                why => format!("{} ({})", cache.status.as_str(), why.replace('_', " ")),
            }
        }
        other => {
            let why = cache
                .reason
                .map(|word| format!(", {}", word.replace('_', " ")))
                .unwrap_or_default();
            let again = cache
                .retry_after
                .map(|after| format!(", asked again in {}", took(after)))
                .unwrap_or_default();
            format!(
                "{} ({} s old{why}{again})",
                other.as_str(),
                cache.age.as_secs()
            )
        }
    }
}

/// Writes the members of the whole output: plain values, then structures, then text of several
/// lines.
///
/// Beside such a text, or a diff, long lists are only counted: the text is what people want to
/// read.
fn top(object: &Map<String, Value>, has_diff: bool, out: &mut String) {
    let has_text = has_diff || object.values().any(is_text);
    for (name, member) in object
        .iter()
        .filter(|(_, member)| is_plain(member) && !is_text(member))
    {
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
    value
        .as_str()
        .is_some_and(|text| text.trim_end().contains('\n'))
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

    const PIPE: OutputStyle = OutputStyle {
        terminal: false,
        paint: Paint(false),
    };
    const SCREEN: OutputStyle = OutputStyle {
        terminal: true,
        paint: Paint(true),
    };

    fn outcome(of: &Outcome) -> String {
        super::outcome(of, &json!(true), PIPE)
    }

    fn artifact(name: &str, media_type: &str, size: u64) -> ArtifactRef {
        ArtifactRef {
            key: format!("a.b/run/{name}"),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            size,
            sha256: String::new(),
            expires_at: helmdeck_core::Timestamp(0),
        }
    }

    fn made(output: Value) -> Outcome {
        Outcome {
            pack: PackName::new("a.b").unwrap(),
            version: Version::new(1).unwrap(),
            output: Json::from(output),
            artifacts: Arc::new([]),
            duration: Duration::from_micros(12_900),
            session_id: None,
            cache: None,
            pending: false,
            remark: Remark::default(),
        }
    }

    #[test]
    fn structures_are_indented_and_lists_have_dashes() {
        let output = json!({"b": [{"n": 1, "labels": ["x", "y"], "o": {"k": null}}, {"n": 2, "labels": []}], "a": "text", "e": ""});
        let expected = "a: text\ne: \"\"\nb:\n  - labels: x, y\n    n: 1\n    o:\n      k: none\n  - labels: none\n    n: 2\n";
        assert_eq!(outcome(&made(output)), expected);
        assert_eq!(outcome(&made(json!([1, "x"]))), "- 1\n- x\n");
        assert_eq!(outcome(&made(json!("plain"))), "plain");
    }

    #[test]
    fn text_stands_last_in_its_own_lines_and_lists_beside_it_are_counted() {
        let output = json!({"map": "one\n  two\n", "files": [{"path": "x"}], "skipped": {"a": 1}, "tokens": 5});
        let expected =
            "tokens: 5\nfiles: 1 (--json prints them)\nskipped:\n  a: 1\nmap:\n  one\n    two\n";
        assert_eq!(outcome(&made(output)), expected);
    }

    #[test]
    fn a_diff_comes_last_and_success_first() {
        let schema = json!({"properties": {"patch": {"contentMediaType": "text/x-diff"}, "empty": {"contentMediaType": "text/x-diff"}}});
        let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        let mut of = made(
            json!({"patch": diff, "empty": "", "steps": 3, "success": false, "zest": "one\ntwo"}),
        );
        of.artifacts = Arc::new([artifact("it's.json", "application/json", 17)]);
        of.session_id = Some("s1".into());
        let expected = format!(
            "success: false\nempty: \"\"\nsteps: 3\nzest:\n  one\n  two\nartifacts:\n  a.b/run/it's.json (application/json, 17 B)\n\
             session: s1\npatch:\n{diff}"
        );
        assert_eq!(super::outcome(&of, &schema, PIPE), expected);
        let screen = super::outcome(&of, &schema, SCREEN);
        assert!(
            screen.starts_with("\x1b[31msuccess: false\x1b[0m\n"),
            "{screen}"
        );
        assert!(
            screen.contains(r"  to get one: helmdeck artifact get 'a.b/run/it'\''s.json'"),
            "{screen}"
        );
        assert!(
            screen.contains("\x1b[31m-a\x1b[0m\n\x1b[32m+b\x1b[0m\n"),
            "{screen}"
        );
    }

    #[test]
    fn only_a_diff_that_is_kept_elsewhere_too_is_cut() {
        let schema = json!({"properties": {"patch": {"contentMediaType": "text/x-diff"}}});
        let diff = format!("@@ -0,0 +1,400 @@\n{}", "+x\n".repeat(400));
        let mut of = made(json!({"patch": diff}));
        assert_eq!(
            super::outcome(&of, &schema, SCREEN).matches("+x").count(),
            400
        );
        of.artifacts = Arc::new([artifact("p.diff", "text/x-diff", diff.len() as u64)]);
        let screen = super::outcome(&of, &schema, SCREEN);
        assert_eq!(screen.matches("+x").count(), 299);
        assert!(
            screen.ends_with("… 101 lines more: helmdeck artifact get a.b/run/p.diff\n"),
            "{screen}"
        );
        assert_eq!(
            super::outcome(&of, &schema, PIPE).matches("+x").count(),
            400
        );
    }

    #[test]
    fn no_part_of_an_outcome_steers_the_terminal() {
        let schema = json!({"properties": {"patch": {"contentMediaType": "text/x-diff"}}});
        let bad = "\x1b]0;x\x07\r\u{9b}m\u{202e}";
        let mut of =
            made(json!({"patch": bad, bad: bad, "list": [bad], "text": format!("{bad}\n{bad}\n")}));
        of.artifacts = Arc::new([artifact(bad, bad, 1)]);
        of.session_id = Some(bad.into());
        for output in [of.output.to_value(), json!(bad), json!([bad])] {
            of.output = Json::from(output);
            for place in [PIPE, SCREEN] {
                let text = super::outcome(&of, &schema, place);
                let text = ["\x1b[1m", "\x1b[0m"]
                    .iter()
                    .fold(text, |text, code| text.replace(code, ""));
                assert!(
                    !text.contains(['\x1b', '\x07', '\r', '\u{9b}', '\u{202e}']),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn a_duration_reads_well() {
        let took =
            [9_999, 12_345, 123_456].map(|millis| super::took(Duration::from_millis(millis)));
        assert_eq!(took, ["9999 ms", "12.3 s", "2 min 3 s"]);
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
            store_error: None,
            reason: None,
            not_kept: None,
            retry_after: None,
        });
        assert_eq!(status(&outcome), "a.b v1: 12 ms, cache hit (7 s old)");
        let cache = outcome.cache.as_mut().unwrap();
        (cache.status, cache.store_error) = (CacheStatus::Miss, Some("read_only"));
        assert_eq!(
            status(&outcome),
            "a.b v1: 12 ms, cache miss (store: read only)"
        );
        let cache = outcome.cache.as_mut().unwrap();
        (cache.status, cache.store_error, cache.reason) =
            (CacheStatus::Stale, None, Some("upstream_backoff"));
        cache.retry_after = Some(Duration::from_millis(5_500));
        let expected =
            "a.b v1: 12 ms, cache stale (7 s old, upstream backoff, asked again in 5500 ms)";
        assert_eq!(status(&outcome), expected);
    }
}
