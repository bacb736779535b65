//! Files that are deleted, replaced or overwritten while open, and two stores on one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{KEY_B, fresh, get, open_at, open_with, put, ring};
use crate::{Config, Delete, Store, StoreError};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

/// Reads until the answer arrives: a read notices a replaced file within 200 ms.
async fn until(store: &Arc<dyn Store>, key: &str, expected: Option<&str>) {
    let has_come = async || {
        let found = get(store, key).await.unwrap().map(|entry| entry.value);
        found.as_deref() == expected.map(str::as_bytes)
    };
    helmdeck_testkit::until(format!("{key} to be {expected:?}"), has_come).await;
}

#[tokio::test]
async fn deleted_file_is_recreated() {
    for gone in [
        &["", "-wal", "-shm"][..],
        &[""],
        &["", "-wal"],
        &["", "-shm"],
    ] {
        let (_folder, path, store) = fresh().await;
        store.put(put("old", "v")).await.unwrap();
        let generation = store.generation().await.unwrap();
        for suffix in gone {
            fs::remove_file(beside(&path, suffix)).unwrap();
        }
        // The writer looks before each group: nothing is written into a file that is gone.
        store.put(put("new", "v")).await.unwrap();
        until(&store, "old", None).await;
        assert!(get(&store, "new").await.unwrap().is_some(), "{gone:?}");
        assert!(
            store.generation().await.unwrap() > generation,
            "{gone:?}: others must forget what they hold"
        );
        let other = open_at(&path).await.unwrap();
        assert!(
            get(&other, "new").await.unwrap().is_some(),
            "{gone:?}: it is in the file at the path"
        );
    }
}

#[tokio::test]
async fn replaced_file_is_read() {
    let (_folder, path, store) = fresh().await;
    let (_other_folder, other_path, other) = fresh().await;
    store.put(put("k", "mine")).await.unwrap();
    other.put(put("k", "theirs")).await.unwrap();
    other.close().await.unwrap();
    fs::rename(&other_path, &path).unwrap();
    until(&store, "k", Some("theirs")).await;
    store.put(put("k2", "v")).await.unwrap();
    assert!(
        get(&open_at(&path).await.unwrap(), "k2")
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn replacement_with_another_key_is_refused_unchanged() {
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "mine")).await.unwrap();
    let other = beside(&path, ".other");
    let theirs = open_with(&other, ring(KEY_B, None), Config::default())
        .await
        .unwrap();
    theirs.put(put("k", "theirs")).await.unwrap();
    theirs.close().await.unwrap();
    fs::rename(&other, &path).unwrap();
    for _ in 0..2 {
        let written = store.put(put("k", "v")).await;
        assert!(
            matches!(written, Err(StoreError::WrongKey { .. })),
            "{written:?}"
        );
    }
    let theirs = open_with(&path, ring(KEY_B, None), Config::default())
        .await
        .unwrap();
    assert_eq!(get(&theirs, "k").await.unwrap().unwrap().value, "theirs");
}

#[tokio::test]
async fn replacement_with_garbage_fails_until_removed() {
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "v")).await.unwrap();
    let garbage = beside(&path, ".garbage");
    fs::write(&garbage, vec![0x5a; 10_000]).unwrap();
    fs::rename(&garbage, &path).unwrap();
    for _ in 0..2 {
        let written = store.put(put("k", "v")).await;
        assert!(
            matches!(written, Err(StoreError::Corrupt(_))),
            "{written:?}"
        );
        let read = get(&store, "k").await;
        assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    }
    fs::remove_file(&path).unwrap();
    store.put(put("k", "again")).await.unwrap();
    until(&store, "k", Some("again")).await;
}

#[tokio::test]
async fn garbage_in_the_open_file_never_reads_wrong() {
    let (_folder, path, store) = fresh().await;
    for index in 0..20 {
        store
            .put(put(&index.to_string(), &"v".repeat(2000)))
            .await
            .unwrap();
    }
    store
        .delete(Delete::Key {
            namespace: super::alice(),
            kind: crate::Kind::Cache,
            key: "0".into(),
        })
        .await
        .unwrap();
    let length = fs::metadata(&path).unwrap().len();
    use std::os::unix::fs::FileExt;
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&vec![0x5a; length as usize], 0)
        .unwrap();
    for index in 0..20 {
        match get(&store, &index.to_string()).await {
            Ok(Some(entry)) => assert_eq!(entry.value, "v".repeat(2000)),
            Ok(None)
            | Err(
                StoreError::Corrupt(_)
                | StoreError::Unavailable { .. }
                | StoreError::Unreadable { .. },
            ) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn two_stores_on_a_file_see_each_other() {
    let (_folder, path, one) = fresh().await;
    let two = open_at(&path).await.unwrap();
    one.put(put("k", "v")).await.unwrap();
    assert!(get(&two, "k").await.unwrap().is_some());
    let before = two.generation().await.unwrap();
    let all = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: String::new(),
    };
    assert_eq!(one.delete(all).await.unwrap(), 1);
    assert!(two.generation().await.unwrap() > before);
    assert_eq!(get(&two, "k").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_replaced_during_open_is_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        fs::create_dir(at(name)).unwrap();
        open_at(&at(name).join("memory.db"))
            .await
            .unwrap()
            .close()
            .await
            .unwrap();
    }
    let lead_to = |name: &str| {
        let (link, next) = (at("link"), at("next"));
        std::os::unix::fs::symlink(at(name), &next).unwrap();
        fs::rename(next, link).unwrap();
    };
    for n in 0..60_u64 {
        lead_to("a");
        let store = std::thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(n * 50) {
                    std::hint::spin_loop();
                }
                lead_to("b");
            });
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(open_at(&at("link").join("memory.db")))
            })
        });
        // Refused, or one of the two: never writing to one and reading from the other.
        let Ok(store) = store else { continue };
        let key = format!("k{n}");
        store.put(put(&key, "v")).await.unwrap();
        until(&store, &key, Some("v")).await;
        store.close().await.unwrap();
    }
}
