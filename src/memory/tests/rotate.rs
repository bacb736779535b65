//! Rotation over real files: no row lost, no row left, and its errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::{KEY_A, KEY_B, alice, id, open_with, put, ring, tamper};
use crate::doctor::examine;
use crate::rotate::{End, RotateError, Rotated, rotate};
use crate::{Config, KeyRing, Store, StoreError};

async fn turn(store: &Arc<dyn Store>, ring: &KeyRing) -> Result<Rotated, RotateError> {
    rotate(&**store, ring, &CancellationToken::new(), &mut |_| {}).await
}

/// A closed file with this many rows of key A.
async fn written(rows: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let store = open_with(&path, ring(KEY_A, None), Config::default())
        .await
        .unwrap();
    for start in (0..rows).step_by(500) {
        let batch = (start..rows.min(start + 500))
            .map(|n| crate::Op::Put(put(&format!("k{n}"), &format!("v{n}"))));
        store.write(batch.collect()).await.unwrap();
    }
    store.close().await.unwrap();
    (folder, path)
}

async fn all_there(store: &Arc<dyn Store>, rows: usize) {
    for n in 0..rows {
        let found = store
            .get(&alice(), crate::Kind::Cache, &format!("k{n}"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (found.value, found.meta.version),
            (format!("v{n}").into(), 1)
        );
    }
}

#[tokio::test]
async fn after_a_rotation_the_old_key_can_go() {
    let (_folder, path) = written(1500).await;
    let both = ring(KEY_B, Some(KEY_A));
    let store = open_with(&path, both.clone(), Config::default())
        .await
        .unwrap();
    let done = turn(&store, &both).await.unwrap();
    let expected = Rotated {
        key_id: id(KEY_B),
        resealed: 1500,
        unreadable: 0,
        remaining: 0,
        end: End::Done,
    };
    assert_eq!(done, expected);
    assert_eq!(
        turn(&store, &both).await.unwrap(),
        Rotated {
            resealed: 0,
            ..expected
        },
        "nothing to do"
    );
    store.close().await.unwrap();
    let old = open_with(&path, ring(KEY_A, None), Config::default()).await;
    assert!(matches!(old, Err(StoreError::WrongKey { .. })));
    let store = open_with(&path, ring(KEY_B, None), Config::default())
        .await
        .unwrap();
    all_there(&store, 1500).await;
    assert_eq!(
        store.stats().await.unwrap().rows_by_key_id,
        [(id(KEY_B), 1500)].into()
    );
    assert_eq!(examine(&*store, 20, &mut |_| {}).await.unwrap().read, 1500);
}

#[tokio::test]
async fn stopped_rotation_resumes_and_rows_stay_readable() {
    let (_folder, path) = written(2000).await;
    let both = ring(KEY_B, Some(KEY_A));
    let store = open_with(&path, both.clone(), Config::default())
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let stopped = rotate(&*store, &both, &stop, &mut |_| stop.cancel())
        .await
        .unwrap();
    assert_eq!(stopped.end, End::Stopped);
    assert!(
        stopped.resealed > 0 && stopped.remaining == 2000 - stopped.resealed,
        "{stopped:?}"
    );
    for order in [ring(KEY_A, Some(KEY_B)), both.clone()] {
        all_there(
            &open_with(&path, order, Config::default()).await.unwrap(),
            2000,
        )
        .await;
    }
    let done = turn(&store, &both).await.unwrap();
    assert_eq!(
        (done.resealed, done.remaining, done.end),
        (stopped.remaining, 0, End::Done)
    );
}

#[tokio::test]
async fn missing_old_key_is_refused_by_name() {
    let (_folder, path) = written(3).await;
    let both = ring(KEY_B, Some(KEY_A));
    let store = open_with(&path, both.clone(), Config::default())
        .await
        .unwrap();
    turn(&store, &both).await.unwrap();
    // A process that was forgotten writes with the old key.
    let late = open_with(&path, ring(KEY_A, Some(KEY_B)), Config::default())
        .await
        .unwrap();
    late.put(put("late", "v")).await.unwrap();
    let only = ring(KEY_B, None);
    let store = open_with(&path, only.clone(), Config::default())
        .await
        .unwrap();
    let message = turn(&store, &only).await.unwrap_err().to_string();
    assert!(
        message.contains(&id(KEY_A)) && message.contains(&id(KEY_B)),
        "{message}"
    );
}

#[tokio::test]
async fn unreadable_rows_stay_and_are_reported() {
    let (_folder, path) = written(10).await;
    tamper(
        &path,
        "UPDATE memory_entries SET fingerprint = 'x' WHERE key IN ('k3', 'k7')",
    );
    let both = ring(KEY_B, Some(KEY_A));
    let store = open_with(&path, both.clone(), Config::default())
        .await
        .unwrap();
    let done = turn(&store, &both).await.unwrap();
    assert_eq!(
        (done.resealed, done.unreadable, done.remaining, done.end),
        (8, 2, 0, End::Done)
    );
    let found = examine(&*store, 1, &mut |_| {}).await.unwrap();
    assert_eq!((found.read, found.unreadable, found.named.len()), (8, 2, 1));
    assert_eq!(found.unreadable_by_key, [(id(KEY_A), 2)].into());
}

#[tokio::test]
async fn next_pass_reseals_concurrent_old_key_rows() {
    let (_folder, path) = written(600).await;
    let both = ring(KEY_B, Some(KEY_A));
    let store = open_with(&path, both.clone(), Config::default())
        .await
        .unwrap();
    let late = open_with(&path, ring(KEY_A, Some(KEY_B)), Config::default())
        .await
        .unwrap();
    let wrote = AtomicBool::new(false);
    // Overwritten behind the first step: the row keeps its place, which the walk has passed.
    let mut overwrite = |_| {
        if !wrote.swap(true, Ordering::SeqCst) {
            let late = Arc::clone(&late);
            let writing = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(late.put(put("k0", "newer"))).unwrap();
            });
            writing.join().unwrap();
        }
    };
    let done = rotate(&*store, &both, &CancellationToken::new(), &mut overwrite)
        .await
        .unwrap();
    assert_eq!(
        (done.resealed, done.remaining, done.end),
        (601, 0, End::Done)
    );
    assert_eq!(
        store.stats().await.unwrap().rows_by_key_id,
        [(id(KEY_B), 600)].into()
    );
    let found = store
        .get(&alice(), crate::Kind::Cache, "k0")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.value, found.meta.version), ("newer".into(), 2));
}

#[tokio::test]
async fn second_rotation_reports_the_first() {
    let (_folder, path) = written(1).await;
    let both = ring(KEY_B, Some(KEY_A));
    let store = open_with(&path, both.clone(), Config::default())
        .await
        .unwrap();
    let lock = store
        .try_lock("rotate", std::time::Duration::from_secs(3600))
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(turn(&store, &both).await, Err(RotateError::Busy)));
    lock.release().await.unwrap();
    assert_eq!(turn(&store, &both).await.unwrap().end, End::Done);
}
