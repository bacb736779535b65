//! What several tests share.
//!
//! The program in a separate home (`program`), three of it behind a balancer (`balancer`), the engine as the program wires it (`engine`), an engine over a real
//! file (`fixture`), other projects' MCP clients and servers (`mcp`), raw MCP (`raw_mcp`), a collector of telemetry
//! (`otlp`), what their conformance suite
//! wants to find (`conformance`), a git server (`git`), a scripted model (`model`) and a real one (`small_model`), real
//! bugs to fix with a model (`swe`), and an engine that runs commands in sessions (`sessions`).

pub(crate) mod balancer;
pub(crate) mod conformance;
pub(crate) mod engine;
pub(crate) mod fixture;
pub(crate) mod git;
pub(crate) mod mcp;
pub(crate) mod model;
pub(crate) mod otlp;
pub(crate) mod program;
pub(crate) mod raw_mcp;
pub(crate) mod sessions;
pub(crate) mod small_model;
pub(crate) mod swe;

use std::time::{Duration, Instant};

/// A memory key.
pub(crate) const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Another one.
pub(crate) const OTHER_KEY: &str = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// How long anything may take before a test counts as stuck. Nothing is measured with it.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

/// Waits for something that another process or thread does.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    while !done() {
        assert!(start.elapsed() < STUCK, "waited a minute for {what}");
        std::thread::sleep(pause);
        // To look costs time too, which what is waited for could have.
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Looks into a database from outside, as another program would.
pub(crate) fn outside(path: &std::path::Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

/// Returns what SQLite says about the soundness of a file: `ok`, or what is wrong.
pub(crate) fn integrity(path: &std::path::Path) -> String {
    outside(path).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// Opens the store of a home as the program does, with the first key as the current one.
pub(crate) async fn store(path: &std::path::Path, keys: &[&str]) -> std::sync::Arc<dyn helmdeck_memory::Store> {
    store_at(&format!("sqlite:{}", path.display()), keys).await
}

/// Opens a store by its URL, with the first key as the current one.
pub(crate) async fn store_at(url: &str, keys: &[&str]) -> std::sync::Arc<dyn helmdeck_memory::Store> {
    let previous = keys[1..].join(",");
    let previous = (!previous.is_empty()).then_some(("P", previous.as_str()));
    let ring = helmdeck_memory::KeyRing::parse(("K", keys[0]), previous).unwrap();
    let clock = std::sync::Arc::new(helmdeck_core::SystemClock::default());
    helmdeck_memory::open(url, ring, helmdeck_memory::Config::default(), clock).await.unwrap()
}
