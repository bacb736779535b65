//! Attacks by a process that can write the file but has no key; and what the file reveals.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::{KEY_A, KEY_B, alice, fresh, get, id, open_at, open_with, put, ring, tamper};
use crate::{Config, Delete, Kind, Namespace, Order, Page, Put, Reach, StoreError};

#[tokio::test]
async fn file_holds_no_plaintext() {
    const MARKER: &str = "MARKER-7f3a9c-plaintext";
    let (folder, path, store) = fresh().await;
    store.put(put("k", MARKER)).await.unwrap();
    let column: Vec<u8> = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT value_ciphertext FROM memory_entries", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(column.len() == MARKER.len() + 16 && !holds(&column, MARKER));
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        assert!(!holds(
            &std::fs::read(file.unwrap().path()).unwrap(),
            MARKER
        ));
    }
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, MARKER);
    drop(folder);
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn file_and_folder_are_for_their_owner_only() {
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "v")).await.unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn an_altered_row_does_not_open_and_its_neighbours_do() {
    let changes = [
        "UPDATE memory_entries SET key = 'renamed' WHERE key = 'victim'",
        "UPDATE memory_entries SET expires_at = expires_at + 1 WHERE key = 'victim'",
        "UPDATE memory_entries SET expires_at = NULL WHERE key = 'victim'",
        "UPDATE memory_entries SET tags = '[\"other\"]' WHERE key = 'victim'",
        "UPDATE memory_entries SET tags = 'no json' WHERE key = 'victim'",
        "UPDATE memory_entries SET attributes = '{\"a\":\"b\"}' WHERE key = 'victim'",
        "UPDATE memory_entries SET category = 'other' WHERE key = 'victim'",
        "UPDATE memory_entries SET fingerprint = 'other' WHERE key = 'victim'",
        "UPDATE memory_entries SET version = 7 WHERE key = 'victim'",
        "UPDATE memory_entries SET version = -1 WHERE key = 'victim'",
        "UPDATE memory_entries SET version = 9223372036854775807 WHERE key = 'victim'",
        "UPDATE memory_entries SET created_at = created_at - 1 WHERE key = 'victim'",
        "UPDATE memory_entries SET updated_at = updated_at + 1 WHERE key = 'victim'",
        "UPDATE memory_entries SET key_id = '' WHERE key = 'victim'",
        "UPDATE memory_entries SET key_id = '0123456789abcdef' WHERE key = 'victim'",
        "UPDATE memory_entries SET value_nonce = randomblob(12) WHERE key = 'victim'",
        "UPDATE memory_entries SET value_nonce = x'' WHERE key = 'victim'",
        "UPDATE memory_entries SET value_ciphertext = x'' WHERE key = 'victim'",
        "UPDATE memory_entries SET value_ciphertext = CAST('planted' AS BLOB) WHERE key = 'victim'",
        "UPDATE memory_entries SET value_ciphertext = CAST('planted' AS BLOB), key_id = '', value_nonce = x'' WHERE key = 'victim'",
        "UPDATE memory_entries SET fingerprint = CAST(x'ff' AS TEXT) WHERE key = 'victim'",
    ];
    for change in changes {
        let (_folder, path, store) = fresh().await;
        let victim = Put {
            tags: vec!["t".into()],
            ttl: Some(Duration::from_secs(3600)),
            ..put("victim", "v")
        };
        store.put(victim).await.unwrap();
        store.put(put("neighbour", "n")).await.unwrap();
        tamper(&path, change);
        let key = if change.contains("renamed") {
            "renamed"
        } else {
            "victim"
        };
        let read = get(&store, key).await;
        assert!(
            matches!(read, Err(StoreError::Unreadable { .. })),
            "{change}: {read:?}"
        );
        assert_eq!(
            get(&store, "neighbour").await.unwrap().unwrap().value,
            "n",
            "{change}"
        );
        let scan = store
            .scan(&alice(), Kind::Cache, "", Order::KeyAscending, 10)
            .await
            .unwrap();
        assert_eq!((scan.entries.len(), scan.unreadable), (1, 1), "{change}");
        let list = store
            .list(&alice(), Kind::Cache, "", Page::default())
            .await
            .unwrap();
        assert_eq!(list.entries.len(), 2, "{change}: a list decrypts nothing");
        store.put(put(key, "mended")).await.unwrap();
        assert_eq!(
            get(&store, key).await.unwrap().unwrap().value,
            "mended",
            "{change}"
        );
    }
}

#[tokio::test]
async fn rows_that_trade_places_do_not_open() {
    let (_folder, path, store) = fresh().await;
    for key in ["a", "b", "c"] {
        store.put(put(key, &format!("v{key}"))).await.unwrap();
    }
    // All of a row but its name.
    tamper(&path, "UPDATE memory_entries SET key = 'x' WHERE key = 'a'");
    tamper(&path, "UPDATE memory_entries SET key = 'a' WHERE key = 'b'");
    tamper(&path, "UPDATE memory_entries SET key = 'b' WHERE key = 'x'");
    for key in ["a", "b"] {
        assert!(
            matches!(get(&store, key).await, Err(StoreError::Unreadable { .. })),
            "{key}"
        );
    }
    assert_eq!(get(&store, "c").await.unwrap().unwrap().value, "vc");
}

#[tokio::test]
async fn moved_row_does_not_open() {
    let targets = [
        Put::new(Namespace::new("t", "bob", None), Kind::Cache, "own", "v"),
        Put::new(Namespace::new("u", "alice", None), Kind::Cache, "own", "v"),
        Put::new(
            Namespace::new("t", "alice", Some("s")),
            Kind::Cache,
            "own",
            "v",
        ),
        Put::new(alice(), Kind::Fact, "own", "v"),
    ];
    for target in targets {
        let (_folder, path, store) = fresh().await;
        store.put(put("k", "alice's")).await.unwrap();
        store.put(target.clone()).await.unwrap();
        tamper(
            &path,
            "UPDATE memory_entries SET space_id = (SELECT space_id FROM memory_entries WHERE key = 'own') WHERE key = 'k'",
        );
        let moved = store.get(&target.namespace, target.kind, "k").await;
        assert!(
            matches!(moved, Err(StoreError::Unreadable { .. })),
            "{target:?}: {moved:?}"
        );
        assert_eq!(get(&store, "k").await.unwrap(), None);
        assert_eq!(
            store
                .get(&target.namespace, target.kind, "own")
                .await
                .unwrap()
                .unwrap()
                .value,
            "v"
        );
    }
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "alice's")).await.unwrap();
    tamper(&path, "UPDATE memory_spaces SET subject = 'bob'");
    let moved = store
        .get(&Namespace::new("t", "bob", None), Kind::Cache, "k")
        .await;
    assert!(
        matches!(moved, Err(StoreError::Unreadable { .. })),
        "{moved:?}"
    );
}

#[tokio::test]
async fn forget_survives_planted_rows_and_counters() {
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "v")).await.unwrap();
    for key in ["p1", "p2"] {
        tamper(
            &path,
            &format!(
                "INSERT INTO memory_entries (space_id, key, version, created_at, updated_at, expires_at, key_id, fingerprint,
                     category, tags, attributes, value_nonce, value_ciphertext)
                 SELECT space_id, '{key}', 1, 1, 1, NULL, '', 'f', '', '[]', '{{}}', x'', CAST('planted' AS BLOB)
                   FROM memory_entries WHERE key = 'k'"
            ),
        );
    }
    assert!(matches!(
        get(&store, "p1").await,
        Err(StoreError::Unreadable { .. })
    ));
    let one = |key: &str| Delete::Key {
        namespace: alice(),
        kind: Kind::Cache,
        key: key.into(),
    };
    assert_eq!(store.delete(one("k")).await.unwrap(), 1);
    assert_eq!(
        store.delete(one("p1")).await.unwrap(),
        1,
        "the space outlives a counter of zero"
    );
    tamper(
        &path,
        "UPDATE memory_spaces SET rows = -5, bytes = 9223372036854775807",
    );
    let all = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: String::new(),
    };
    assert_eq!(store.delete(all).await.unwrap(), 1);
    store.put(put("k", "v")).await.unwrap();
    assert_eq!(store.stats().await.unwrap().rows, 1);
}

#[tokio::test]
async fn the_wrong_key_is_one_clear_error_that_names_both() {
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "v")).await.unwrap();
    store.close().await.unwrap();
    let error = open_with(&path, ring(KEY_B, None), Config::default())
        .await
        .err()
        .unwrap();
    let (a, b) = (id(KEY_A), id(KEY_B));
    assert_eq!(
        error.to_string(),
        format!("this store was written with key {a}; the key given is {b}")
    );
    assert!(matches!(error, StoreError::WrongKey { store, given } if store == a && given == b));
    assert_eq!(
        get(&open_at(&path).await.unwrap(), "k")
            .await
            .unwrap()
            .unwrap()
            .value,
        "v",
        "nothing was harmed"
    );
}

#[tokio::test]
async fn previous_key_opens_old_rows_only() {
    let (_folder, path, store) = fresh().await;
    store.put(put("old", "v")).await.unwrap();
    store.close().await.unwrap();
    let both = open_with(&path, ring(KEY_B, Some(KEY_A)), Config::default())
        .await
        .unwrap();
    assert_eq!(get(&both, "old").await.unwrap().unwrap().value, "v");
    both.put(put("new", "v")).await.unwrap();
    let stats = both.stats().await.unwrap();
    assert_eq!(
        (
            stats.rows_by_key_id[&id(KEY_A)],
            stats.rows_by_key_id[&id(KEY_B)]
        ),
        (1, 1)
    );
    both.put(put("old", "again")).await.unwrap();
    assert_eq!(
        both.stats().await.unwrap().rows_by_key_id,
        [(id(KEY_B), 2)].into()
    );
}

#[tokio::test]
async fn forgetting_works_with_rows_of_a_lost_key() {
    let (_folder, path, store) = fresh().await;
    store
        .put(Put {
            tags: vec!["t".into()],
            ..put("a", "v")
        })
        .await
        .unwrap();
    store.put(put("b", "v")).await.unwrap();
    tamper(
        &path,
        "UPDATE memory_entries SET key_id = 'feedfeedfeedfeed'",
    );
    let tagged = Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Cache,
        tag: "t".into(),
    };
    assert_eq!(store.delete(tagged).await.unwrap(), 1);
    let prefix = Delete::Prefix {
        namespace: Some(alice()),
        kind: None,
        prefix: "b".into(),
    };
    assert_eq!(store.delete(prefix).await.unwrap(), 1);
}

#[tokio::test]
async fn deleted_rows_leave_no_ciphertext() {
    let (_folder, path, store) = fresh().await;
    for index in 0..50 {
        store
            .put(put(&format!("FORGOTTEN-{index}"), &"x".repeat(3000)))
            .await
            .unwrap();
    }
    store.put(put("kept", "v")).await.unwrap();
    let column: Vec<u8> = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row(
            "SELECT value_ciphertext FROM memory_entries WHERE key = 'FORGOTTEN-7'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let forget = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: "FORGOTTEN".into(),
    };
    assert_eq!(store.delete(forget).await.unwrap(), 50);
    store.close().await.unwrap();
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        assert!(!holds(&bytes, "FORGOTTEN"), "{}", file.display());
        assert!(
            !bytes.windows(64).any(|part| part == &column[..64]),
            "{}",
            file.display()
        );
    }
}
