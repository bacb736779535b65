//! Databases of older versions, and databases that free pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{KEY_A, alice, fresh, get, open_at, put, ring, tamper};
use crate::{Delete, EntryMeta, Kind, Namespace, Op, Page, Put};

/// Converts a database to the first version of the schema.
fn downgrade(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(
        "ALTER TABLE memory_entries RENAME TO newer;
         DROP INDEX memory_entries_by_key; DROP INDEX memory_entries_by_end; DROP INDEX memory_entries_by_age;
         CREATE TEMP TABLE spaces AS SELECT * FROM memory_spaces;
         CREATE TEMP TABLE canary AS SELECT * FROM memory_canary;
         DROP TABLE memory_spaces; DROP TABLE memory_tags; DROP TABLE memory_keys; DROP TABLE memory_canary;
         DROP TABLE memory_generation; DROP TABLE memory_locks; DROP TABLE memory_hands; DROP TABLE memory_spared;
         DROP TABLE memory_migrations_additions;",
    )
    .unwrap();
    db.execute_batch(include_str!("../migrations/sqlite/0001_entries.sql"))
        .unwrap();
    db.execute_batch(
        "INSERT INTO memory_spaces SELECT * FROM spaces;
         INSERT INTO memory_canary SELECT * FROM canary;
         INSERT INTO memory_entries
         SELECT id, space_id, key, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags,
                attributes, value_nonce, value_ciphertext FROM newer;
         UPDATE memory_spaces SET bytes = (SELECT sum(length(value_ciphertext)) FROM memory_entries WHERE space_id = memory_spaces.id);
         DROP TABLE newer;
         DELETE FROM memory_migrations WHERE version > 1;",
    )
    .unwrap();
}

#[tokio::test]
async fn older_database_is_migrated_with_costs() {
    let (_folder, path, store) = fresh().await;
    let text = "é\0\"\\😀";
    let plain = put("plain", "v");
    let full = Put {
        category: text.into(),
        tags: vec![text.into(), String::new(), "t".into()],
        attributes: BTreeMap::from([(text.into(), text.into()), ("a".into(), String::new())]),
        ..put(text, &"v".repeat(9000))
    };
    store
        .write(vec![Op::Put(plain), Op::Put(full)])
        .await
        .unwrap();
    let bob = Namespace::new("t", "bob", Some("s"));
    store
        .put(Put::new(bob.clone(), Kind::Fact, "k", ""))
        .await
        .unwrap();
    store.close().await.unwrap();
    downgrade(&path);
    tamper(
        &path,
        "UPDATE memory_entries SET tags = 'no JSON', attributes = '7' WHERE key = 'k'",
    );

    let store = open_at(&path).await.unwrap();
    let list = store
        .list(&alice(), Kind::Cache, "", Page::default())
        .await
        .unwrap()
        .entries;
    let [one, two] = list.as_slice() else {
        panic!("{list:?}")
    };
    let found = store.namespaces().await.unwrap();
    let bytes: BTreeMap<_, _> = found
        .into_iter()
        .map(|stats| (stats.namespace, stats.bytes))
        .collect();
    assert_eq!(bytes[&alice()], one.cost() + two.cost());
    let damaged = store
        .list(&bob, Kind::Fact, "", Page::default())
        .await
        .unwrap()
        .entries;
    assert!(
        bytes[&bob] >= damaged.iter().map(EntryMeta::cost).sum(),
        "a damaged row does not stop the upgrade"
    );
    assert_eq!(
        get(&store, text).await.unwrap().unwrap().value.len(),
        9000,
        "it opens"
    );
    assert!(
        store
            .try_lock("l", Duration::from_secs(1))
            .await
            .unwrap()
            .is_some()
    );
    let all = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: String::new(),
    };
    assert_eq!(store.delete(all).await.unwrap(), 3);
    assert_eq!(store.stats().await.unwrap().bytes, 0);
}

/// Rows of 4 KiB, in batches.
async fn fill(store: &dyn crate::Store, prefix: &str, count: usize) {
    for from in (0..count).step_by(250) {
        let batch = (from..from + 250)
            .map(|index| Op::Put(put(&format!("{prefix}{index}"), &"x".repeat(4000))));
        store.write(batch.collect()).await.unwrap();
    }
}

#[tokio::test]
async fn the_file_shrinks_when_much_of_it_is_empty() {
    let (_folder, path, store) = fresh().await;
    fill(&*store, "gone", 1000).await;
    fill(&*store, "kept", 250).await;
    let gone = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: "gone".into(),
    };
    assert_eq!(store.delete(gone).await.unwrap(), 1000);
    let full = std::fs::metadata(&path).unwrap().len();
    // About 1 MiB stays, and 1 MiB to spare.
    let is_small = async || std::fs::metadata(&path).unwrap().len() <= full.max(5 << 20) / 2;
    helmdeck_testkit::until("a smaller file", is_small).await;
    for index in 0..250 {
        assert!(
            get(&store, &format!("kept{index}"))
                .await
                .unwrap()
                .is_some()
        );
    }
    fill(&*store, "new", 250).await;
    store.close().await.unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let verdict: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// Two processes on one file that both remember free row ids.
#[tokio::test]
async fn two_stores_reuse_row_ids_without_loss() {
    let (_folder, path, one) = fresh().await;
    let two = super::open_with(&path, ring(KEY_A, None), crate::Config::default())
        .await
        .unwrap();
    let mut expected = Vec::new();
    for round in 0..6 {
        let (writer, other) = if round % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        for index in 0..20 {
            let key = format!("{round}/{index}");
            writer.put(put(&key, "v")).await.unwrap();
            if index % 2 == 0 {
                let delete = Delete::Key {
                    namespace: alice(),
                    kind: Kind::Cache,
                    key,
                };
                let deleter = if index % 4 == 0 { writer } else { other };
                assert_eq!(deleter.delete(delete).await.unwrap(), 1);
            } else {
                expected.push(key);
            }
        }
    }
    expected.sort();
    let scan = one
        .scan(&alice(), Kind::Cache, "", crate::Order::KeyAscending, 1000)
        .await
        .unwrap();
    let keys: Vec<_> = scan
        .entries
        .into_iter()
        .map(|entry| entry.meta.key)
        .collect();
    assert_eq!((keys, scan.unreadable), (expected, 0));
    assert_eq!(two.stats().await.unwrap().rows, 60);
}
