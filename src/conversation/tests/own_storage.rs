//! Case 13 of the reference: what is kept is in the store that was given, in nothing else, and
//! sealed.

use std::path::Path;
use std::sync::Arc;

use helmdeck_core::SystemClock;
use helmdeck_events::Bus;
use helmdeck_memory::drivers::sqlite::Sqlite;
use helmdeck_memory::{Config as StoreConfig, DriverStore, Kind, Put, Store, open};
use helmdeck_testkit::{Postgres as Server, keyring};

use crate::conformance::ScriptedSummarizer;
use crate::{Config, ConversationMemory, Dependencies, Identity, NewTurn, Strategy};

/// Texts that are looked for in raw bytes.
const SECRET: &str = "a-turn-that-nobody-may-read";
const ANSWER: &str = "an-answer-that-nobody-may-read";
const SUMMARY: &str = "a-mark-that-nobody-may-read";
const ONCE: &str = "a-name-that-may-be-read";

async fn store(url: &str) -> Arc<dyn Store> {
    open(
        url,
        keyring(),
        StoreConfig::default(),
        Arc::new(SystemClock::default()),
    )
    .await
    .unwrap()
}

fn memory(store: Arc<dyn Store>) -> ConversationMemory {
    let config = Config {
        strategy: Strategy::RollingSummary,
        budget_tokens: 0,
        ..Config::default()
    };
    let clock = Arc::new(SystemClock::default());
    let dependencies = Dependencies {
        store,
        events: Bus::new(16, clock.clone()),
        clock,
        summarizer: Some(Arc::new(ScriptedSummarizer::default())),
    };
    ConversationMemory::open(config, dependencies).unwrap()
}

async fn fill(memory: &ConversationMemory, identity: &Identity) {
    for number in 0..9 {
        let user = format!("[{SUMMARY}-{number}] {SECRET}");
        let turn = NewTurn {
            once: Some(format!("{ONCE}-{number}")),
            ..NewTurn::new(user, ANSWER)
        };
        memory.add_turn(identity, turn).await.unwrap();
    }
    while memory
        .summarise(identity, std::time::Duration::from_secs(30))
        .await
        .unwrap()
        > 0
    {}
}

async fn is_whole(memory: &ConversationMemory, identity: &Identity) {
    let patch = memory.context(identity).await.unwrap();
    assert_eq!(crate::conformance::marks(&patch.summary).len(), 5);
    assert_eq!(patch.recent_turns.len(), 4);
    assert!(
        patch
            .recent_turns
            .iter()
            .all(|recent| recent.turn.assistant_response == ANSWER)
    );
}

fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_files_show_no_turn() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("memory.db").display());
    let identity = Identity::new("t", "u", "s");
    let first = store(&url).await;
    let writing = memory(Arc::clone(&first));
    fill(&writing, &identity).await;
    // Also in the log that is not yet in the file.
    for text in [SECRET, ANSWER, SUMMARY] {
        assert_eq!(files_with(folder.path(), text), Vec::<String>::new());
    }
    assert!(
        !files_with(folder.path(), ONCE).is_empty(),
        "the scan finds what is in the clear, keys, so it would find texts"
    );
    writing.close(std::time::Duration::from_secs(30)).await;
    first.close().await.unwrap();
    for text in [SECRET, ANSWER, SUMMARY] {
        assert_eq!(files_with(folder.path(), text), Vec::<String>::new());
    }
    // Another process finds everything in the file, and nothing where the file is not.
    let second = store(&url).await;
    assert!(second.stats().await.unwrap().rows_by_kind[Kind::Conversation.as_str()] >= 11);
    is_whole(&memory(second), &identity).await;
    let elsewhere = memory(store("memory:").await);
    assert!(elsewhere.context(&identity).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_rows_show_no_turn() {
    let server = Server::shared();
    let url = server.database();
    let identity = Identity::new("t", "u", "s");
    let writing = memory(store(&url).await);
    fill(&writing, &identity).await;
    let tables = server.query(
        &url,
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    );
    let (mut rows, mut clear) = (0, 0);
    for table in tables.lines() {
        for row in server
            .query(&url, &format!("SELECT {table}::text FROM {table}"))
            .lines()
        {
            rows += 1;
            let shows = |text: &str| {
                let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
                row.contains(text) || row.contains(&hex)
            };
            clear += usize::from(shows(ONCE));
            for text in [SECRET, ANSWER, SUMMARY] {
                assert!(!shows(text), "{table} shows a turn");
            }
        }
    }
    assert!(
        rows > 20 && clear == 9,
        "{rows} rows, {clear} of them named: SQL was reached"
    );
    is_whole(&memory(store(&url).await), &identity).await;
    // A row deleted from the table is gone for every process: there is no other copy.
    server.sql(&url, "DELETE FROM memory_entries WHERE key LIKE 'turn/%'");
    let patch = memory(store(&url).await).context(&identity).await.unwrap();
    assert!(patch.recent_turns.is_empty());
}

/// Simulates an attacker that can write to the file and has no key: replaces a row.
async fn alter(path: &Path, identity: &Identity, key: &str) {
    let config = StoreConfig::default();
    let plain = DriverStore::plain(
        Sqlite::open(path, &config).unwrap(),
        &config,
        Arc::new(SystemClock::default()),
    );
    let namespace = identity.namespace().unwrap();
    let put = Put::new(namespace, Kind::Conversation, key, "{}".to_owned());
    assert!(plain.put(put).await.unwrap().version > 1, "{key} was there");
    plain.close().await.unwrap();
}

/// A file altered by an attacker: what does not open is skipped and counted, never shown.
///
/// A flush makes the conversation whole again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_altered_from_outside_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let url = format!("sqlite:{}", path.display());
    let identity = Identity::new("t", "u", "s");
    let first = store(&url).await;
    let writing = memory(Arc::clone(&first));
    fill(&writing, &identity).await;
    writing.close(std::time::Duration::from_secs(30)).await;
    first.close().await.unwrap();
    alter(&path, &identity, "turn/00000000000000000007").await;
    let second = store(&url).await;
    let reading = memory(Arc::clone(&second));
    let patch = reading.context(&identity).await.unwrap();
    assert_eq!((patch.recent_turns.len(), patch.unreadable), (3, 1));
    reading.close(std::time::Duration::from_secs(30)).await;
    second.close().await.unwrap();
    for key in ["~checkpoint", "~head"] {
        alter(&path, &identity, key).await;
        let third = store(&url).await;
        let reading = memory(Arc::clone(&third));
        let refused = reading.context(&identity).await;
        assert!(
            matches!(refused, Err(crate::ConversationError::Corrupt(_))),
            "{key}: {refused:?}"
        );
        let refused = reading.add_turn(&identity, NewTurn::new("u", "a")).await;
        assert!(
            matches!(refused, Err(crate::ConversationError::Corrupt(_))),
            "{key}: {refused:?}"
        );
        reading.flush(&identity).await.unwrap();
        assert!(reading.context(&identity).await.unwrap().is_empty());
        fill(&reading, &identity).await;
        is_whole(&reading, &identity).await;
        reading.close(std::time::Duration::from_secs(30)).await;
        third.close().await.unwrap();
    }
}
