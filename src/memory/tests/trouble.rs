//! A locked database, a full disk, and many callers at once.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{KEY_A, fresh, get, open_at, open_with, put, ring};
use crate::{Config, Kind, Op, Put, StoreError};

#[tokio::test]
async fn locked_database_delays_writes_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let config = Config {
        busy_timeout: Duration::from_millis(20),
        ..Config::default()
    };
    let store = open_with(&path, ring(KEY_A, None), config).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let written = store.put(put("k", "w")).await;
    assert!(
        written.as_ref().is_err_and(StoreError::is_temporary),
        "{written:?}"
    );
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "v");
    other.execute_batch("COMMIT").unwrap();
    store.put(put("k", "w")).await.unwrap();
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "w");
}

#[tokio::test]
async fn write_waits_for_a_busy_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    // A write waits for 0.3 s if no other process commits, and for 1 s if one does.
    let config = Config {
        busy_timeout: Duration::from_secs(10),
        ..Config::default()
    };
    let store = open_with(&path, ring(KEY_A, None), config).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    let (locked, is_locked) = std::sync::mpsc::channel();
    // Without a gap between two transactions, longer than a write waits for a lock that is never
    // released.
    let other = std::thread::spawn(move || {
        let other = rusqlite::Connection::open(&path).unwrap();
        other
            .execute_batch("PRAGMA synchronous = OFF; CREATE TABLE other (n); BEGIN IMMEDIATE")
            .unwrap();
        locked.send(()).unwrap();
        let held = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(500)));
        while !held.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
            other
                .execute_batch("INSERT INTO other VALUES (1); COMMIT; BEGIN IMMEDIATE")
                .unwrap();
        }
        other.execute_batch("COMMIT").unwrap();
    });
    is_locked.recv().unwrap();
    store.put(put("k", "w")).await.unwrap();
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "w");
    other.join().unwrap();
}

#[tokio::test]
async fn file_that_was_cut_is_damaged() {
    let (_folder, path, store) = fresh().await;
    store.put(put("k", "v")).await.unwrap();
    for suffix in ["", "-wal"] {
        std::fs::write(path.with_file_name(format!("memory.db{suffix}")), "garbage").unwrap();
    }
    for _ in 0..2 {
        let read = get(&store, "k").await;
        assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_fails_does_not_fail_its_neighbours() {
    let (_folder, _path, store) = fresh().await;
    store.put(put("taken", "v")).await.unwrap();
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mine = Op::Put(put(&index.to_string(), "v"));
                let taken = Op::Put(Put {
                    expect_version: Some(0),
                    ..put("taken", "w")
                });
                let batch = if index % 2 == 0 {
                    vec![mine]
                } else {
                    vec![mine, taken]
                };
                (index, store.write(batch).await.is_ok())
            })
        })
        .collect();
    for task in tasks {
        let (index, succeeded) = task.await.unwrap();
        assert_eq!(succeeded, index % 2 == 0, "{index}");
        assert_eq!(
            get(&store, &index.to_string()).await.unwrap().is_some(),
            succeeded,
            "{index}"
        );
    }
    assert_eq!(store.stats().await.unwrap().rows, 21);
}

/// A small separate file system, unmounted at the end.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Fills the disk with a file if a small disk could be mounted.
///
/// Otherwise uses SQLite's page limit, which fails in the same way (`SQLITE_FULL`) but does not
/// show that the disk is full for the log and the shared memory too.
#[tokio::test]
async fn full_disk_is_temporary() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "2m") else {
        println!(
            "NOT TRIED: no file system could be mounted (not root?), so a full disk was not tried here"
        );
        assert!(!is_root(), "root could not mount a tmpfs");
        return;
    };
    let store = open_at(&folder.path().join("memory.db")).await.unwrap();
    store.put(put("before", "v")).await.unwrap();
    let filler = folder.path().join("filler");
    let mut acknowledged = Vec::new();
    let mut refused = None;
    for index in 0..200 {
        if index == 3 {
            // What is left is less than one value.
            let _ = std::fs::write(&filler, vec![0; 4 << 20]);
        }
        match store
            .put(put(&index.to_string(), &"v".repeat(50_000)))
            .await
        {
            Ok(meta) => acknowledged.push(meta.key),
            Err(error) => {
                assert!(error.is_temporary(), "{error:?}");
                refused = Some(index);
                break;
            }
        }
    }
    assert!(refused.is_some(), "the disk never filled");
    assert_eq!(
        get(&store, "before").await.unwrap().unwrap().value,
        "v",
        "reads go on"
    );
    std::fs::remove_file(&filler).unwrap();
    store.put(put("after", "v")).await.unwrap();
    for key in &acknowledged {
        assert!(
            get(&store, key).await.unwrap().is_some(),
            "{key} was acknowledged"
        );
    }
    store.close().await.unwrap();
    let again = open_at(&folder.path().join("memory.db")).await.unwrap();
    assert!(get(&again, "after").await.unwrap().is_some());
    again.close().await.unwrap();
    drop(disk);
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[tokio::test]
async fn dropping_the_future_of_a_read_harms_nothing() {
    let (_folder, _path, store) = fresh().await;
    store.put(put("k", "v")).await.unwrap();
    for _ in 0..2000 {
        let namespace = super::alice();
        let mut read = store.get(&namespace, Kind::Cache, "k");
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(read.as_mut().poll(context)))
                .await;
        drop((polled, read));
    }
    assert!(get(&store, "k").await.unwrap().is_some());
}
