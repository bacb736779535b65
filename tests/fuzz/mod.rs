//! The fuzz targets in the normal test run: their seeds, and some thousand mutations of them. `scripts/fuzz` runs them for longer.

#[expect(unreachable_pub, reason = "shared with fuzz/")]
mod targets;

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use targets::TARGETS;

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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(seeds.len() >= 3, "{} has too few seeds", folder.display());
    seeds.iter().for_each(|seed| target(seed));
    let config = Config::default();
    let config = Config { cases: config.cases.max(CASES), failure_persistence: None, ..config };
    let strategy = (proptest::sample::select(seeds), proptest::collection::vec(change(), 1..6));
    let tried = TestRunner::new(config).run(&strategy, |(seed, changes)| {
        target(&changed(seed, &changes));
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{name}: {error}");
    }
}

#[test]
fn every_target_has_seeds_and_every_folder_of_seeds_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut found: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
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
        ("defaults", 200),
        ("metrics", 200),
        ("health", 200),
        ("duplicate", 400),
        ("deep", 400),
        ("not_utf8", 400),
    ] {
        let data = std::fs::read(folder.join(seed)).unwrap();
        assert_eq!(targets::rest_status(&data), Some(status), "{seed}");
    }
}

/// The same for the MCP door: it is there, and it knows a message from what is none.
#[test]
fn the_seeds_of_json_rpc_reach_the_door() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/json_rpc");
    for (seed, status) in [("initialize", 200), ("not_utf8", 400), ("duplicate", 400)] {
        let data = std::fs::read(folder.join(seed)).unwrap();
        assert_eq!(targets::json_rpc_status(&data), Some(status), "{seed}");
    }
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
