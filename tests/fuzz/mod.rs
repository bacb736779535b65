//! The fuzz targets in the normal test run: their seeds, and some thousand mutations of them.
//! `scripts/fuzz` runs them for longer.

#[expect(unreachable_pub, reason = "shared with fuzz/")]
mod targets;

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use targets::TARGETS;
use targets::json_rpc::Answer;

/// How many mutations of a seed each target gets; `PROPTEST_CASES` can only raise it.
const CASES: u32 = 2000;

/// Pieces that mean something to one of the targets.
const WORDS: &[&str] = &[
    "..",
    "/",
    "%2e",
    "%00",
    "\r\n",
    "\u{1e}",
    "{",
    "}",
    "{{",
    "{a}",
    "{b|c}",
    "\"",
    "\\",
    "@",
    "#",
    "?",
    "&",
    "=",
    "127.0.0.1",
    "0x7f.1",
    "[::ffff:7f00:1]",
    "①",
    "。",
    "null",
    "1e400",
    "[",
    "]",
    "\"id\":",
    "\"method\":\"tools/call\"",
    "\"_meta\":{$meta}",
    "\"progressToken\":1",
    "helmdeck://packs/",
    "helmdeck://jobs/",
    "\"taskId\":\"00000000000000000000000000000000\"",
    "\n",
    "\u{feff}",
    "content-type: ",
    "application/json",
    "cache-control: only-if-cached\n",
    "idempotency-key: a\n",
    "\n[memory]\n",
    "cache = true\n",
    "ttl = \"1s\"\n",
    "[handler.http]\n",
    "url = ",
    "-1",
    "99999999999999999999",
    "\u{202e}",
    "\0",
];

/// A change of a seed.
#[derive(Debug, Clone)]
enum Change {
    Byte(usize, u8),
    Insert(usize, usize),
    Cut(usize, usize),
    Twice(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (any::<usize>(), 0..WORDS.len()).prop_map(|(at, word)| Change::Insert(at, word)),
        (any::<usize>(), 1_usize..30).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<usize>(), 1_usize..200).prop_map(|(at, length)| Change::Twice(at, length)),
    ]
}

fn changed(mut seed: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let place = |at: usize| at % (seed.len() + 1);
        match *change {
            Change::Byte(at, byte) if place(at) < seed.len() => {
                let at = place(at);
                seed[at] = byte;
            }
            Change::Byte(_, byte) => seed.push(byte),
            Change::Insert(at, word) => {
                let at = place(at);
                seed.splice(at..at, WORDS[word].bytes());
            }
            Change::Cut(at, length) => {
                let at = place(at);
                seed.drain(at..(at + length).min(seed.len()));
            }
            Change::Twice(at, length) => {
                let at = place(at);
                let piece = seed[at..(at + length).min(seed.len())].to_vec();
                seed.splice(at..at, piece);
            }
        }
    }
    seed
}

/// Runs one target over its seeds and over mutations of them.
fn smoke(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(name);
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
    assert!(seeds.len() >= 3, "{} has too few seeds", folder.display());
    seeds.iter().for_each(|seed| target(seed));
    let config = Config::default();
    let config = Config {
        cases: config.cases.max(CASES),
        failure_persistence: None,
        ..config
    };
    let strategy = (
        proptest::sample::select(seeds),
        proptest::collection::vec(change(), 1..6),
    );
    let tried = TestRunner::new(config).run(&strategy, |(seed, changes)| {
        target(&changed(seed, &changes));
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{name}: {error}");
    }
}

#[test]
fn targets_and_seed_folders_match() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    found.sort();
    known.sort_unstable();
    assert_eq!(found, known);
}

/// Without this, a target that only ever hears "not found" would pass.
#[test]
fn the_seeds_of_rest_reach_what_they_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/rest");
    for (seed, status) in [
        ("call", 200),
        ("write", 200),
        ("list", 200),
        ("show", 200),
        ("openapi", 200),
        ("store", 200),
        ("facts", 200),
        ("metrics", 200),
        ("health", 200),
        ("duplicate", 400),
        ("deep", 400),
        ("not_utf8", 400),
        ("path_not_utf8", 400),
    ] {
        let data = std::fs::read(folder.join(seed)).unwrap();
        assert_eq!(targets::rest_status(&data), Some(status), "{seed}");
    }
}

fn json_rpc(seed: &str) -> Answer {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds/json_rpc")
        .join(seed);
    targets::json_rpc::answer(&std::fs::read(file).unwrap()).unwrap()
}

/// The same for the MCP transport: it is there, and it knows a message from what is none.
#[test]
fn the_seeds_of_json_rpc_reach_the_door() {
    for (seed, status) in [
        ("initialize", 200),
        ("not_utf8", 400),
        ("duplicate", 400),
        ("session_cancel", 202),
        ("session_tools", 200),
    ] {
        let answer = json_rpc(seed);
        assert_eq!(answer.status, status, "{seed}: {}", answer.text);
    }
    let codes: Vec<Value> = json_rpc("lines_garbage")
        .messages
        .iter()
        .map(|it| it["error"]["code"].clone())
        .collect();
    assert_eq!(codes, [-32700, -32600, -32600, -32600]);
}

/// A call gets to the handler of its pack both ways: the short one hands its output on as it was
/// written, the long one has parsed it.
#[test]
fn json_rpc_seeds_get_outputs_as_written() {
    const AS_WRITTEN: &str = r#""structuredContent":{"ran": 1.50, "input": "#;
    for seed in [
        "newest_call",
        "session_call",
        "lines_call",
        "newest_progress",
        "session_progress",
    ] {
        let Answer { text, messages, .. } = json_rpc(seed);
        let result = &messages.last().unwrap()["result"];
        assert_eq!(
            result["structuredContent"],
            json!({"ran": 1.5, "input": {"repo": "a/b", "n": 1.5}}),
            "{seed}: {text}"
        );
        assert!(text.contains(AS_WRITTEN), "{seed}: {text}");
    }
    let Answer { text, messages, .. } = json_rpc("lines_session");
    let mut ids: Vec<_> = messages
        .iter()
        .filter(|it| it.get("result").is_some())
        .map(|it| it["id"].as_i64())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3].map(Some), "{text}");
    assert_eq!(text.matches(AS_WRITTEN).count(), 2, "{text}");
    // The cache is open to these, and does what they want of it.
    let refreshed = json_rpc("newest_wish");
    assert!(
        refreshed.messages[0]["result"]["_meta"]["helmdeck/cache"].is_object(),
        "{}",
        refreshed.text
    );
    let cold = json_rpc("session_wish");
    assert_eq!(cold.messages[0]["result"]["isError"], true, "{}", cold.text);
}

#[test]
fn json_rpc_seeds_reach_lists_and_resources() {
    let contents = |seed: &str| {
        let answer = json_rpc(seed);
        answer.messages.last().unwrap()["result"]["contents"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(contents("newest_read").contains("\"fuzz.write\""));
    assert!(
        contents("session_read").contains("\"facts\""),
        "{}",
        contents("session_read")
    );
    for (seed, list, least) in [
        ("session_tools", "tools", 2),
        ("newest_tools", "tools", 2),
        ("session_resources", "resources", 4),
        ("session_templates", "resourceTemplates", 2),
        ("newest_discover", "supportedVersions", 5),
    ] {
        let answer = json_rpc(seed);
        let found = answer.messages.last().unwrap()["result"][list]
            .as_array()
            .map(Vec::len);
        assert!(found >= Some(least), "{seed}: {}", answer.text);
    }
    let begun = json_rpc("newest_task");
    assert_eq!(
        begun.messages[0]["result"]["resultType"], "task",
        "{}",
        begun.text
    );
    for seed in [
        "newest_task_get",
        "newest_task_update",
        "newest_task_cancel",
    ] {
        let unknown = json_rpc(seed);
        let message = unknown.messages[0]["error"]["message"]
            .as_str()
            .unwrap_or_default();
        assert!(
            message.starts_with("there is no such task"),
            "{}",
            unknown.text
        );
    }
    let missing = json_rpc("session_artifact");
    assert!(
        missing.messages.last().unwrap()["error"]["data"]["code"] == "not_found",
        "{}",
        missing.text
    );
    let listening = json_rpc("newest_listen");
    assert_eq!(
        listening.messages[0]["method"], "notifications/subscriptions/acknowledged",
        "{}",
        listening.text
    );
}

#[test]
fn rest_takes_anything() {
    smoke("rest");
}

#[test]
fn json_rpc_takes_anything() {
    smoke("json_rpc");
}

#[test]
fn manifests_are_read_or_refused() {
    smoke("manifest");
}

#[test]
fn no_url_passes_the_guard_inward() {
    smoke("url_guard");
}

#[test]
fn no_input_changes_where_a_request_goes() {
    smoke("template");
}

#[test]
fn checks_by_schemas_end_when_they_should() {
    smoke("schema");
}
