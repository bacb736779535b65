//! Bytes of a small database file, flipped in turn: never wrong data, never a panic.

use std::path::Path;

use super::{alice, get, open_at, put};
use crate::drivers::sqlite::Sqlite;
use crate::{Config, Kind, Namespace, Order, Page, Put, StoreError};

const VALUES: [(&str, &str); 3] = [
    ("a", "value of a"),
    ("b", "value of b"),
    ("c", "value of c"),
];

/// Makes a closed database with small pages, to have few bytes to flip.
async fn make(path: &Path) -> Vec<u8> {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(&format!("PRAGMA page_size = {PAGE}; VACUUM"))
        .unwrap();
    drop(connection);
    let store = open_at(path).await.unwrap();
    for (key, value) in VALUES {
        store
            .put(Put {
                tags: vec!["t".into()],
                ..put(key, value)
            })
            .await
            .unwrap();
    }
    store
        .put(Put::new(
            Namespace::new("t", "bob", None),
            Kind::Cache,
            "a",
            "bob's",
        ))
        .await
        .unwrap();
    store.close().await.unwrap();
    let bytes = std::fs::read(path).unwrap();
    assert!(
        bytes.len() < 40 * PAGE,
        "{} bytes are too many to flip",
        bytes.len()
    );
    bytes
}

/// Size of a page of the database.
const PAGE: usize = 512;
/// Length of a page's header and of the pointers to its first cells.
const HEADER: usize = 32;

/// Returns the places of the bytes to flip.
///
/// They are all of the first page, of each page's header and of each page that holds a sealed
/// value, and of the rest one in 24, the same ones at each run.
fn places(path: &Path, bytes: &[u8]) -> Vec<usize> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut select = connection
        .prepare("SELECT value_nonce FROM memory_entries")
        .unwrap();
    let nonces: Vec<Vec<u8>> = select
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(nonces.len(), VALUES.len() + 1);
    let holds = |page: &[u8]| {
        nonces
            .iter()
            .any(|nonce| page.windows(nonce.len()).any(|part| part == nonce))
    };
    let sealed: Vec<bool> = bytes.chunks(PAGE).map(holds).collect();
    assert!(sealed.contains(&true), "no page holds a sealed value");
    let sampled = |place: usize| {
        (place as u32)
            .wrapping_mul(2_654_435_761)
            .is_multiple_of(24)
    };
    let chosen = |place: &usize| {
        *place < PAGE || place % PAGE < HEADER || sealed[place / PAGE] || sampled(*place)
    };
    (0..bytes.len()).filter(chosen).collect()
}

/// Counts of a store's answers over all flips.
#[derive(Debug, Default)]
struct Tally {
    right: u32,
    missed: u32,
    unreadable: u32,
    failed: u32,
    refused: u32,
}

async fn ask(path: &Path, tally: &mut Tally) {
    let store = match open_at(path).await {
        Ok(store) => store,
        Err(
            StoreError::Corrupt(_) | StoreError::Unavailable { .. } | StoreError::WrongKey { .. },
        ) => {
            tally.refused += 1;
            return;
        }
        Err(other) => panic!("{other:?}"),
    };
    for (key, value) in VALUES {
        match get(&store, key).await {
            Ok(Some(entry)) => {
                assert_eq!(entry.value, value);
                assert_eq!(entry.meta.tags, ["t"]);
                tally.right += 1;
            }
            Ok(None) => tally.missed += 1,
            Err(StoreError::Unreadable { .. }) => tally.unreadable += 1,
            Err(StoreError::Corrupt(_) | StoreError::Unavailable { .. }) => tally.failed += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    if let Ok(scan) = store
        .scan(&alice(), Kind::Cache, "", Order::KeyAscending, 10)
        .await
    {
        for entry in scan.entries {
            assert!(VALUES.contains(&(
                entry.meta.key.as_str(),
                std::str::from_utf8(&entry.value).unwrap()
            )));
        }
    }
    // Clear text is not proved, but nothing of it may hurt.
    let _ = store.list(&alice(), Kind::Cache, "", Page::default()).await;
    let _ = (
        store.stats().await,
        store.namespaces().await,
        store.generation().await,
    );
    let _ = store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_flipped_byte_gives_wrong_data() {
    // A file system in memory, where there is one: this opens a database for each byte.
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let path = folder.path().join("memory.db");
    let original = make(&path).await;
    let places = places(&path, &original);
    let mut tally = Tally::default();
    for index in places.iter().copied() {
        let mut bytes = original.clone();
        bytes[index] ^= 0xff;
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("memory.db{suffix}")));
        }
        std::fs::write(&path, bytes).unwrap();
        ask(&path, &mut tally).await;
    }
    println!(
        "{} of {} bytes flipped: {tally:?}",
        places.len(),
        original.len()
    );
    assert!(
        tally.right > 0 && tally.unreadable > 0 && tally.refused > 0,
        "{tally:?}"
    );
}

#[tokio::test]
async fn a_file_cut_anywhere_is_an_error_or_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let original = make(&path).await;
    let mut tally = Tally::default();
    for length in (0..original.len()).step_by(256) {
        std::fs::write(&path, &original[..length]).unwrap();
        ask(&path, &mut tally).await;
    }
    assert!(
        tally.refused + tally.failed > 0 && tally.missed > 0,
        "{tally:?}"
    );
}

#[tokio::test]
async fn foreign_file_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let garbage: Vec<u8> = (0..9000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&path, &garbage).unwrap();
    let error = Sqlite::open(&path, &Config::default()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt(message) if message.contains("memory.db")),
        "{error:?}"
    );
    assert!(std::fs::read(&path).unwrap() == garbage);

    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE memory_entries (id TEXT)")
        .unwrap();
    let error = open_at(&other).await.err().unwrap();
    assert!(error.to_string().contains("another program"), "{error}");

    let newer = folder.path().join("newer.db");
    open_at(&newer).await.unwrap().close().await.unwrap();
    super::tamper(
        &newer,
        "INSERT INTO memory_migrations VALUES (99, 'later', 0)",
    );
    let error = open_at(&newer).await.err().unwrap();
    assert!(
        error.to_string().contains("newer version (schema 99)"),
        "{error}"
    );
}
