//! What several tests share.
//!
//! The program in a separate home (`program`), three of it behind a balancer (`balancer`), the
//! engine as the program wires it (`engine`), an engine over a real file (`fixture`), other
//! projects' MCP clients and servers (`mcp`), raw MCP (`raw_mcp`), a collector of telemetry
//! (`otlp`), what their conformance suite wants to find (`conformance`), a git server (`git`), a
//! scripted model (`model`) and a real one (`small_model`), real bugs to fix with a model (`swe`),
//! and an engine that runs commands in sessions (`sessions`).

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

pub(crate) use helmdeck_testkit::{STUCK, wait_for};

/// A memory key.
pub(crate) const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Another one.
pub(crate) const OTHER_KEY: &str =
    "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Time budgets of the program that no test runs out of by chance, as variables of its environment.
///
/// A test that is about a budget, or about a store that does not answer, sets its own after these.
pub(crate) const PATIENT: [(&str, &str); 6] = [
    ("HELMDECK_CACHE__READ_BUDGET", "5m"),
    ("HELMDECK_CACHE__WRITE_BUDGET", "5m"),
    ("HELMDECK_CACHE__CLUSTER_WAIT", "5m"),
    ("HELMDECK_MEMORY__BUSY_TIMEOUT", "5m"),
    ("HELMDECK_MEMORY__CONNECT_TIMEOUT", "5m"),
    ("HELMDECK_SERVER__REQUEST_DEADLINE", "10m"),
];

/// Setting of servers on PostgreSQL that call an answer a hit as long as nothing was deleted.
///
/// A server that could not read the deletes of others for five intervals drops its answers, and
/// does not trust rows of the last minute for 10 s. Without this, that is 0.7 s. Deletes arrive
/// sooner, by notification.
pub(crate) const RARELY_POLLED: (&str, &str) = ("HELMDECK_CACHE__WATCH_INTERVAL", "20s");

/// Looks into a database from outside, as another program would.
pub(crate) fn outside(path: &std::path::Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(STUCK).unwrap();
    connection
}

/// Returns what SQLite says about the soundness of a file: `ok`, or what is wrong.
pub(crate) fn integrity(path: &std::path::Path) -> String {
    outside(path)
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap()
}

/// Opens the store of a home as the program does, with the first key as the current one.
pub(crate) async fn store(
    path: &std::path::Path,
    keys: &[&str],
) -> std::sync::Arc<dyn helmdeck_memory::Store> {
    store_at(&format!("sqlite:{}", path.display()), keys).await
}

/// Opens a store by its URL, with the first key as the current one.
pub(crate) async fn store_at(
    url: &str,
    keys: &[&str],
) -> std::sync::Arc<dyn helmdeck_memory::Store> {
    let previous = keys[1..].join(",");
    let previous = (!previous.is_empty()).then_some(("P", previous.as_str()));
    let ring = helmdeck_memory::KeyRing::parse(("K", keys[0]), previous).unwrap();
    let clock = std::sync::Arc::new(helmdeck_core::SystemClock::default());
    let mut config = helmdeck_memory::Config {
        busy_timeout: STUCK,
        ..helmdeck_memory::Config::default()
    };
    config.postgres.connect_timeout = STUCK;
    helmdeck_memory::open(url, ring, config, clock)
        .await
        .unwrap()
}
