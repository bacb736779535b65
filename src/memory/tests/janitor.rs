//! The janitor: batches, limits and counters.

use std::time::Duration;

use super::{KEY_A, fresh, open_with, put, ring};
use crate::{Config, Janitor, JanitorConfig, Limits, Op, Put};

#[tokio::test]
async fn the_janitor_sweeps_in_batches_counts_and_stops() {
    let (_folder, _path, store) = fresh().await;
    let ended = (0..25).map(|index| {
        Op::Put(Put {
            ttl: Some(Duration::ZERO),
            ..put(&index.to_string(), "v")
        })
    });
    store.write(ended.collect()).await.unwrap();
    store.put(put("kept", "v")).await.unwrap();
    let config = JanitorConfig {
        interval: Duration::from_millis(1),
        batch: 10,
        most: 1000,
    };
    let janitor = Janitor::spawn(store.clone(), config);
    let work = janitor.work();
    while work.snapshot().runs < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let done = work.snapshot();
    assert_eq!(
        (done.swept, done.trimmed, done.failures, done.last_error),
        (25, 0, 0, None)
    );
    assert!(done.since_last.is_some() && done.last_duration > Duration::ZERO);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.rows, stats.expired), (1, 0));
    store.close().await.unwrap();
    while work.snapshot().failures == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        work.snapshot().last_error.as_deref(),
        Some("the store is closed")
    );
    janitor.stop().await;
    let runs = work.snapshot().runs;
    tokio::task::yield_now().await;
    assert_eq!(work.snapshot().runs, runs);
}

/// A file written under a larger limit, or none, shrinks to the current limit.
#[tokio::test]
async fn janitor_trims_the_cache_to_its_limit() {
    let (_folder, path, store) = fresh().await;
    let batch = (0..100)
        .map(|index| Op::Put(put(&format!("{index:03}"), "v")))
        .collect();
    store.write(batch).await.unwrap();
    let before = store.stats().await.unwrap();
    store.close().await.unwrap();
    let limits = Limits {
        cache_bytes: before.bytes / 2,
        ..Limits::default()
    };
    let store = open_with(
        &path,
        ring(KEY_A, None),
        Config {
            limits,
            ..Config::default()
        },
    )
    .await
    .unwrap();
    let work = crate::janitor::Work::default();
    let config = JanitorConfig {
        batch: 7,
        ..JanitorConfig::default()
    };
    work.run(&*store, config).await;
    let after = store.stats().await.unwrap();
    assert!(
        after.bytes <= before.bytes / 2 && after.rows > 40,
        "{after:?}"
    );
    assert_eq!(work.snapshot().trimmed, before.rows - after.rows);
    work.run(&*store, config).await;
    assert_eq!(
        store.stats().await.unwrap().rows,
        after.rows,
        "nothing more is over it"
    );
}
