//! Tests of the habits, over hand-written entries of the audit.

use std::collections::BTreeMap;

use bytes::Bytes;
use helmdeck_memory::EntryMeta;
use serde_json::{Value, json};

use super::*;

/// An entry of the audit with these rows; `start` is in seconds.
fn page(pack: &str, start: i64, rows: Value) -> Entry {
    entry(json!({"pack": pack, "version": "v1", "start": start * 1_000_000, "rows": rows}).to_string())
}

fn entry(value: impl Into<Bytes>) -> Entry {
    let meta = EntryMeta {
        namespace: Namespace::new("t", "u", None),
        kind: Kind::Audit,
        key: "pack/a.b/1".into(),
        category: "pack".into(),
        tags: Vec::new(),
        attributes: BTreeMap::new(),
        fingerprint: String::new(),
        version: 1,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        expires_at: None,
        size: 0,
    };
    Entry { meta, value: value.into() }
}

fn names(defaults: &Defaults) -> Vec<(&str, u64)> {
    defaults.packs.iter().map(|of| (of.pack.as_str(), of.calls)).collect()
}

fn ok(count: usize) -> Value {
    Value::Array((0..count).map(|n| json!({"t": n, "us": 1500})).collect())
}

#[test]
fn no_history_gives_empty_lists_and_says_so() {
    let answer = serde_json::to_value(project(&[])).unwrap();
    for list in ["packs", "common_findings", "recent"] {
        assert_eq!(answer[list], json!([]), "{list}");
    }
    assert_eq!(answer["note"], "there is no history of calls yet");
    assert!(project(&[page("a.b", 1, ok(1))]).note.is_none());
}

#[test]
fn packs_rank_by_successes_last_use_and_name() {
    let pages = [
        page("a.once", 9, ok(1)),
        page("b.twice", 1, ok(2)),
        page("d.tie", 5, ok(1)),
        page("c.tie", 5, ok(1)),
        page("z.fails", 50, json!([{"t": 0, "us": 1, "o": "timeout"}, {"t": 1, "us": 1, "o": "handler_failed"}])),
        page("y.mixed", 0, json!([{"t": 0, "us": 1, "o": "timeout"}, {"t": 1, "us": 1}])),
    ];
    let defaults = project(&pages);
    assert_eq!(names(&defaults), [("b.twice", 2), ("a.once", 1), ("c.tie", 1), ("d.tie", 1), ("y.mixed", 1)]);
    assert_eq!(defaults.packs[0].last_used, Timestamp(1_000_001));
    assert_eq!(defaults.recent.len(), 9, "failures are recent calls too");
}

#[test]
fn habits_are_limited_per_list() {
    let findings = |n: usize| json!([{"t": 0, "us": 1, "f": [{"code": format!("c{n:02}")}]}]);
    let mut pages: Vec<Entry> = (0..25).map(|n| page(&format!("p.n{n:02}"), n as i64, findings(n))).collect();
    pages.push(page("p.n03", 100, ok(2000)));
    let defaults = project(&pages);
    assert_eq!((defaults.packs.len(), defaults.common_findings.len(), defaults.recent.len()), (12, 20, 200));
    assert_eq!(names(&defaults)[..2], [("p.n03", 2001), ("p.n24", 1)]);
    assert_eq!(defaults.common_findings[19].code, "c19", "ties go by code");
    let newest: Vec<i64> = defaults.recent.iter().map(|call| call.at.micros() - 100_000_000).collect();
    assert_eq!(newest, (1800..2000).rev().collect::<Vec<i64>>());
    assert_eq!((defaults.recent[0].duration_ms, defaults.recent[0].outcome.as_str()), (1, "ok"));
}

#[test]
fn most_frequent_input_wins_ties_by_text() {
    let row = |persona: &str, theme: &str| json!({"t": 0, "us": 1, "in": {"persona": persona, "theme": theme}});
    let failed = json!({"t": 0, "us": 1, "o": "timeout", "in": {"persona": "a"}});
    let odd = json!({"t": 0, "us": 1, "in": {"persona": 7, "theme": null}});
    let rows = json!([
        row("dev", "light"),
        row("dev", "dark"),
        row("ops", "dark"),
        row("ops", "light"),
        failed,
        failed,
        failed,
        odd
    ]);
    let defaults = project(&[page("a.b", 1, rows)]);
    let expected = BTreeMap::from([("persona".to_owned(), "dev".to_owned()), ("theme".to_owned(), "dark".to_owned())]);
    assert_eq!(defaults.packs[0].common_inputs, expected, "calls that failed teach nothing");
}

#[test]
fn findings_count_all_outcomes_and_show_the_latest() {
    let found = |t: i64, outcome: &str, codes: &[(&str, &str)]| {
        let list: Vec<Value> =
            codes.iter().map(|(code, severity)| json!({"code": code, "severity": severity})).collect();
        json!({"t": t, "us": 1, "o": outcome, "f": list})
    };
    let pages = [
        page(
            "a.lint",
            10,
            json!([found(0, "ok", &[("x", "low"), ("y", "low")]), found(1, "handler_failed", &[("x", "mid")])]),
        ),
        page("b.lint", 20, json!([found(0, "ok", &[("x", "high"), ("z", "low"), ("y", "")])])),
    ];
    let defaults = project(&pages);
    let shown: Vec<(&str, u64, &str, &str)> = defaults
        .common_findings
        .iter()
        .map(|of| (of.code.as_str(), of.occurrence_count, of.pack.as_str(), of.severity.as_str()))
        .collect();
    assert_eq!(shown, [("x", 3, "b.lint", "high"), ("y", 2, "b.lint", ""), ("z", 1, "b.lint", "low")]);
    assert_eq!(defaults.common_findings[0].last_seen, Timestamp(20_000_000));
}

#[test]
fn rows_in_any_order_give_the_same_answer() {
    let mut pages: Vec<Entry> = (0..30)
        .map(|n| {
            let row = json!({"t": 0, "us": n, "in": {"persona": format!("p{}", n % 3)}, "f": [{"code": format!("c{}", n % 4), "severity": format!("s{}", n % 5)}]});
            page(&format!("p.n{}", n % 7), n / 10, json!([row]))
        })
        .collect();
    let forwards = project(&pages);
    pages.reverse();
    assert_eq!(project(&pages), forwards);
    pages.sort_by_key(|entry| entry.value.to_vec());
    assert_eq!(project(&pages), forwards);
}

#[test]
fn what_makes_no_sense_is_skipped_and_counted() {
    let pages = [
        entry("not json"),
        entry("{}"),
        page("not a name", 1, ok(1)),
        page(
            "a.b",
            1,
            json!([{"t": 0, "us": 1}, 7, {"t": "x"}, {"t": i64::MAX, "us": 1, "f": []}, {"t": 1, "us": -1}]),
        ),
    ];
    let defaults = project(&pages);
    assert_eq!((defaults.unreadable, defaults.malformed), (3, 3));
    assert_eq!(names(&defaults), [("a.b", 2)]);
}

#[test]
fn rows_beyond_the_limit_are_dropped_oldest_first() {
    let pages: Vec<Entry> = (0..11).rev().map(|n| page("a.b", n, ok(MAX_ROWS / 10))).collect();
    let defaults = project(&pages);
    assert!(defaults.truncated);
    assert_eq!(defaults.packs[0].calls, MAX_ROWS as u64);
    assert!(!project(&pages[..10]).truncated);
}
