//! Archives that were altered, cut, shuffled or sealed with another key, and those that were not.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, ManualClock};

use super::{ArchiveError, ArchiveFilter, Imported, export, import};
use crate::restore::{Destination, Target};
use crate::{Config, KeyRing, Kind, Limits, Namespace, Put, Store, open};

fn ring(digit: &str) -> KeyRing {
    KeyRing::parse(("K", &digit.repeat(64)), None).unwrap()
}

async fn store(clock: &Arc<ManualClock>, config: Config) -> Arc<dyn Store> {
    open(
        "memory:",
        ring("a"),
        config,
        Arc::clone(clock) as Arc<dyn Clock>,
    )
    .await
    .unwrap()
}

fn put(subject: &str, session: Option<&str>, kind: Kind, key: &str, value: &[u8]) -> Put {
    Put::new(
        Namespace::new("t", subject, session),
        kind,
        key,
        value.to_vec(),
    )
}

/// A store with entries of every kind, one of them replaced and one large.
async fn filled(clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    let store = store(clock, Config::default()).await;
    for (index, kind) in Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Head)
        .enumerate()
    {
        let mut one = put(
            "alice",
            None,
            kind,
            "k\0😀",
            format!("value {index}").as_bytes(),
        );
        one.category = "category".to_owned();
        one.tags = vec!["b".to_owned(), "a".to_owned()];
        one.attributes.insert("name".to_owned(), "value".to_owned());
        one.ttl = Some(Duration::from_secs(3600));
        store.put(one).await.unwrap();
        clock.advance(Duration::from_secs(1));
    }
    store
        .put(put("alice", Some("s"), Kind::Note, "n", b""))
        .await
        .unwrap();
    clock.advance(Duration::from_secs(1));
    store
        .put(put("alice", Some("s"), Kind::Note, "n", b"second"))
        .await
        .unwrap();
    store
        .put(put("bob", None, Kind::Fact, "large", &vec![7; 100_000]))
        .await
        .unwrap();
    store
}

async fn archive(
    store: &Arc<dyn Store>,
    ring: KeyRing,
    filter: &ArchiveFilter,
    clock: &ManualClock,
) -> Vec<u8> {
    export(&**store, ring, filter, Vec::new(), clock, &mut |_| {})
        .await
        .unwrap()
        .1
}

async fn take(
    store: &Arc<dyn Store>,
    clock: &Arc<ManualClock>,
    ring: KeyRing,
    bytes: &[u8],
) -> (Imported, Result<(), ArchiveError>) {
    let target = Target {
        store: Destination::Store(Arc::clone(store)),
        dry_run: false,
        clock: Arc::clone(clock) as _,
    };
    import(
        target,
        ring,
        &ArchiveFilter::default(),
        std::io::Cursor::new(bytes.to_vec()),
        &mut |_| {},
    )
    .await
}

/// Everything in a store but its heads and the epochs of facts, in a fixed order.
async fn all(store: &Arc<dyn Store>) -> Vec<(String, Vec<u8>)> {
    let walk = store.walk(None, 1000).await.unwrap();
    assert!(walk.next.is_none());
    let rows = walk
        .rows
        .into_iter()
        .filter(|row| row.meta.kind != Kind::Head);
    let mut rows: Vec<_> = rows
        .map(|mut row| {
            row.meta.attributes.remove("epoch");
            (format!("{:?}", row.meta), row.value.unwrap().to_vec())
        })
        .collect();
    rows.sort();
    rows
}

#[tokio::test]
async fn import_is_exact_and_idempotent() {
    let clock = Arc::new(ManualClock::default());
    let from = filled(&clock).await;
    let bytes = archive(&from, ring("a"), &ArchiveFilter::default(), &clock).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    for clear in ["alice", "category", "value", "second"] {
        assert!(!text.contains(clear), "{clear}");
    }
    clock.advance(Duration::from_secs(60));
    let to = store(&clock, Config::default()).await;
    let (first, end) = take(&to, &clock, ring("a"), &bytes).await;
    end.unwrap();
    assert_eq!(
        (first.read, first.restored.imported, first.restored.kept),
        (7, 7, 0)
    );
    assert_eq!(all(&to).await, all(&from).await);
    let (second, end) = take(&to, &clock, ring("a"), &bytes).await;
    end.unwrap();
    assert_eq!((second.restored.imported, second.restored.kept), (0, 7));
    assert_eq!(all(&to).await, all(&from).await);
}

#[tokio::test]
async fn import_keeps_newer_entries_and_skips_expired() {
    let clock = Arc::new(ManualClock::default());
    let from = filled(&clock).await;
    let bytes = archive(&from, ring("a"), &ArchiveFilter::default(), &clock).await;
    clock.advance(Duration::from_secs(1800));
    let to = store(&clock, Config::default()).await;
    to.put(put("bob", None, Kind::Fact, "large", b"newer"))
        .await
        .unwrap();
    clock.advance(Duration::from_secs(1799));
    let (report, end) = take(&to, &clock, ring("a"), &bytes).await;
    end.unwrap();
    // Five entries had an hour to live, from 6 s to 2 s before the archive was made.
    assert_eq!(
        (
            report.restored.kept,
            report.restored.expired,
            report.restored.imported
        ),
        (1, 5, 1)
    );
    assert_eq!(
        to.get(&Namespace::new("t", "bob", None), Kind::Fact, "large")
            .await
            .unwrap()
            .unwrap()
            .value,
        "newer"
    );
}

#[tokio::test]
async fn filters_apply_to_export_and_import() {
    let clock = Arc::new(ManualClock::default());
    let from = filled(&clock).await;
    let alice = ArchiveFilter {
        namespace: Some(Namespace::new("t", "alice", None)),
        kind: Some(Kind::Note),
    };
    let bytes = archive(&from, ring("a"), &alice, &clock).await;
    let to = store(&clock, Config::default()).await;
    let session = ArchiveFilter {
        namespace: Some(Namespace::new("t", "alice", Some("s"))),
        kind: None,
    };
    let target = Target {
        store: Destination::Store(Arc::clone(&to)),
        dry_run: false,
        clock: Arc::clone(&clock) as _,
    };
    let (report, end) = import(
        target,
        ring("a"),
        &session,
        std::io::Cursor::new(bytes),
        &mut |_| {},
    )
    .await;
    end.unwrap();
    assert_eq!(
        (report.read, report.filtered, report.restored.imported),
        (2, 1, 1)
    );
}

#[tokio::test]
async fn a_dry_run_counts_and_writes_nothing() {
    let clock = Arc::new(ManualClock::default());
    let from = filled(&clock).await;
    let bytes = archive(&from, ring("a"), &ArchiveFilter::default(), &clock).await;
    let to = store(&clock, Config::default()).await;
    to.put(put("bob", None, Kind::Fact, "large", b"newer"))
        .await
        .unwrap();
    for (store, imported) in [
        (Destination::Store(Arc::clone(&to)), 6),
        (Destination::Nothing, 7),
    ] {
        let target = Target {
            store,
            dry_run: true,
            clock: Arc::clone(&clock) as _,
        };
        let input = std::io::Cursor::new(bytes.clone());
        let (report, end) = import(
            target,
            ring("a"),
            &ArchiveFilter::default(),
            input,
            &mut |_| {},
        )
        .await;
        end.unwrap();
        assert_eq!(
            (report.restored.imported, report.restored.kept),
            (imported, 7 - imported)
        );
    }
    assert_eq!(to.stats().await.unwrap().rows, 1);
}

#[tokio::test]
async fn only_entries_over_a_limit_are_refused() {
    let clock = Arc::new(ManualClock::default());
    let from = filled(&clock).await;
    let bytes = archive(&from, ring("a"), &ArchiveFilter::default(), &clock).await;
    let limits = Limits {
        value_bytes: 1000,
        ..Limits::default()
    };
    let to = store(
        &clock,
        Config {
            limits,
            ..Config::default()
        },
    )
    .await;
    let (report, end) = take(&to, &clock, ring("a"), &bytes).await;
    end.unwrap();
    assert_eq!((report.restored.imported, report.restored.refused), (6, 1));
    assert!(
        report.restored.named[0].starts_with("t/bob fact large: the value"),
        "{:?}",
        report.restored.named
    );
}

#[tokio::test]
async fn wrong_key_fails_before_any_write() {
    let clock = Arc::new(ManualClock::default());
    let bytes = archive(
        &filled(&clock).await,
        ring("a"),
        &ArchiveFilter::default(),
        &clock,
    )
    .await;
    let to = store(&clock, Config::default()).await;
    let (report, end) = take(&to, &clock, ring("b"), &bytes).await;
    let message = end.unwrap_err().to_string();
    assert!(
        message.contains(ring("a").current_id()) && message.contains(ring("b").current_id()),
        "{message}"
    );
    assert_eq!((report.read, to.stats().await.unwrap().rows), (0, 0));
    let previous = KeyRing::parse(("K", &"b".repeat(64)), Some(("P", &"a".repeat(64)))).unwrap();
    assert!(
        take(&to, &clock, previous, &bytes).await.1.is_ok(),
        "a previous key opens it"
    );
}

/// An archive of three small entries, and where its records begin.
async fn small(clock: &Arc<ManualClock>) -> (Vec<u8>, Vec<usize>) {
    let from = store(clock, Config::default()).await;
    for key in ["one", "two", "three"] {
        from.put(put("alice", None, Kind::Fact, key, key.as_bytes()))
            .await
            .unwrap();
    }
    let bytes = archive(&from, ring("a"), &ArchiveFilter::default(), clock).await;
    let (mut starts, mut at) = (Vec::new(), 44);
    while at < bytes.len() {
        starts.push(at);
        at += 4 + u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    assert_eq!((starts.len(), at), (4, bytes.len()));
    (bytes, starts)
}

/// Imports an incomplete archive into a new store.
///
/// The import must fail, and the store may hold only entries of the archive.
async fn refused(clock: &Arc<ManualClock>, bytes: &[u8], what: &str) -> (Imported, ArchiveError) {
    let to = store(clock, Config::default()).await;
    let (report, end) = take(&to, clock, ring("a"), bytes).await;
    for (meta, value) in all(&to).await {
        let value = String::from_utf8(value).unwrap();
        assert!(
            meta.contains(&format!("key: \"{value}\"")),
            "{what}: {meta}"
        );
    }
    let Err(error) = end else {
        panic!("{what}: it was taken for whole")
    };
    (report, error)
}

#[tokio::test]
async fn every_flipped_byte_is_noticed() {
    let clock = Arc::new(ManualClock::default());
    let (bytes, _) = small(&clock).await;
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        refused(&clock, &flipped, &format!("byte {at}")).await;
    }
}

#[tokio::test]
async fn every_truncation_is_detected_and_counted() {
    let clock = Arc::new(ManualClock::default());
    let (bytes, starts) = small(&clock).await;
    for length in 0..bytes.len() {
        let (report, error) = refused(&clock, &bytes[..length], &format!("{length} bytes")).await;
        let whole = starts
            .iter()
            .skip(1)
            .filter(|start| **start <= length)
            .count() as u64;
        match error {
            ArchiveError::NotAnArchive => assert!(length < 44, "{length}"),
            ArchiveError::Incomplete { read } => {
                assert_eq!((read, report.read), (whole, whole), "{length}")
            }
            other => panic!("{length}: {other}"),
        }
    }
}

#[tokio::test]
async fn every_change_of_records_is_detected() {
    let clock = Arc::new(ManualClock::default());
    let (bytes, starts) = small(&clock).await;
    let (other, _) = small(&clock).await;
    let head = &bytes[..44];
    let record = |of: &[u8], n: usize| {
        of[starts[n]..starts.get(n + 1).copied().unwrap_or(of.len())].to_vec()
    };
    let of = |n| record(&bytes, n);
    for (what, records) in [
        ("swapped", vec![of(1), of(0), of(2), of(3)]),
        ("doubled", vec![of(0), of(0), of(1), of(2), of(3)]),
        ("dropped", vec![of(0), of(2), of(3)]),
        ("last dropped", vec![of(0), of(1), of(3)]),
        ("only the end", vec![of(3)]),
        ("added", vec![of(0), of(1), of(2), of(3), of(0)]),
        ("mixed", vec![of(0), record(&other, 1), of(2), of(3)]),
    ] {
        let (_, error) = refused(&clock, &[head.to_vec(), records.concat()].concat(), what).await;
        let expected = matches!(
            error,
            ArchiveError::Damaged(_) | ArchiveError::Incomplete { .. }
        );
        assert!(expected, "{what}: {error}");
    }
    let (report, _) = refused(
        &clock,
        &[head.to_vec(), of(0), record(&other, 1), of(2), of(3)].concat(),
        "mixed",
    )
    .await;
    assert_eq!(
        (report.unreadable, report.restored.imported),
        (1, 2),
        "neighbours of a bad record are taken"
    );
}

#[tokio::test]
async fn empty_archive_is_complete() {
    let clock = Arc::new(ManualClock::default());
    let empty = store(&clock, Config::default()).await;
    let bytes = archive(&empty, ring("a"), &ArchiveFilter::default(), &clock).await;
    let (report, end) = take(&empty, &clock, ring("a"), &bytes).await;
    end.unwrap();
    assert_eq!(report.read, 0);
    assert!(!report.archive.is_empty());
    assert!(matches!(
        take(&empty, &clock, ring("a"), b"").await.1,
        Err(ArchiveError::NotAnArchive)
    ));
}
