//! Test cases about making room: quotas, the limit of the cache, and fair shares of namespaces.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use helmdeck_core::{Clock, Timestamp};

use super::Fixture;
use super::lists::alice;
use crate::config::{Config, KindLimits, Limits};
use crate::entry::{Kind, Namespace};
use crate::error::StoreError;
use crate::ops::{Delete, Op, Order, Put, Restore};

const SECOND: Duration = Duration::from_secs(1);
/// Cache limit in these test cases. The total is checked every 4 KiB, and two such steps are left
/// free.
const CAP: u64 = 256 << 10;
const STEP: u64 = CAP / 64;

/// Small quotas, one for each kind.
pub(super) fn small() -> Config {
    let limits = |rows, bytes| KindLimits {
        rows,
        bytes,
        retention: None,
    };
    let kinds = BTreeMap::from([
        (Kind::Cache, limits(Some(3), Some(10_000))),
        (Kind::Audit, limits(Some(2), None)),
        (Kind::Note, limits(Some(2), None)),
        (Kind::Conversation, limits(None, Some(1500))),
    ]);
    Config {
        limits: Limits {
            rows: 4,
            kinds,
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// Retentions.
pub(super) fn retained() -> Config {
    let limits = |retention| KindLimits {
        retention: Some(retention),
        ..KindLimits::default()
    };
    let kinds = BTreeMap::from([
        (Kind::Audit, limits(60 * SECOND)),
        (Kind::Fact, limits(3600 * SECOND)),
    ]);
    Config {
        limits: Limits {
            kinds,
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// A small limit of the cache.
pub(super) fn capped() -> Config {
    Config {
        limits: Limits {
            cache_bytes: CAP,
            ..Limits::default()
        },
        ..Config::default()
    }
}

async fn keys_of(s: &Fixture, namespace: &Namespace, kind: Kind) -> Vec<String> {
    let scan = s
        .store
        .scan(namespace, kind, "", Order::KeyAscending, 10_000)
        .await
        .unwrap();
    assert_eq!(scan.unreadable, 0);
    scan.entries
        .into_iter()
        .map(|entry| entry.meta.key)
        .collect()
}

fn of(kind: Kind, key: &str) -> Put {
    Put::new(alice(), kind, key, "v")
}

pub(super) async fn full_cache_evicts_and_full_notes_refuse(s: Fixture) {
    for key in ["c", "a", "b", "d"] {
        s.clock.advance(SECOND);
        for kind in [Kind::Cache, Kind::Audit] {
            s.store.put(of(kind, key)).await.unwrap();
        }
    }
    assert_eq!(
        keys_of(&s, &alice(), Kind::Cache).await,
        ["a", "b", "d"],
        "c was the oldest"
    );
    assert_eq!(keys_of(&s, &alice(), Kind::Audit).await, ["b", "d"]);
    for (kind, rows) in [(Kind::Note, 2), (Kind::Fact, 4)] {
        for index in 0..rows {
            s.store.put(of(kind, &index.to_string())).await.unwrap();
        }
        let full = s.store.put(of(kind, "one more")).await;
        assert!(
            matches!(full, Err(StoreError::QuotaExceeded { what: "rows", limit }) if limit == rows),
            "{full:?}"
        );
        s.store.put(of(kind, "0")).await.unwrap();
        assert_eq!(keys_of(&s, &alice(), kind).await.len() as u64, rows);
    }
    // A replacement needs no room, and makes what it replaced the newest.
    s.clock.advance(SECOND);
    s.store.put(of(Kind::Cache, "a")).await.unwrap();
    s.store.put(of(Kind::Cache, "e")).await.unwrap();
    assert_eq!(keys_of(&s, &alice(), Kind::Cache).await, ["a", "d", "e"]);
    let bob = Namespace::new("t", "bob", None);
    s.store
        .put(Put::new(bob.clone(), Kind::Cache, "k", "v"))
        .await
        .unwrap();
    assert_eq!(
        keys_of(&s, &alice(), Kind::Cache).await.len(),
        3,
        "another's rows are another's"
    );
}

pub(super) async fn a_quota_of_bytes_is_kept_by_dropping_too(s: Fixture) {
    for key in ["a", "b", "c"] {
        s.clock.advance(SECOND);
        s.store
            .put(Put {
                value: vec![1; 2000].into(),
                ..of(Kind::Cache, key)
            })
            .await
            .unwrap();
    }
    s.clock.advance(SECOND);
    // Larger than the oldest two together; it stays in its place itself.
    s.store
        .put(Put {
            value: vec![1; 7000].into(),
            ..of(Kind::Cache, "a")
        })
        .await
        .unwrap();
    assert_eq!(keys_of(&s, &alice(), Kind::Cache).await, ["a", "c"]);
    let written = s
        .store
        .put(Put {
            value: vec![1; 9000].into(),
            ..of(Kind::Cache, "c")
        })
        .await
        .unwrap();
    assert_eq!(keys_of(&s, &alice(), Kind::Cache).await, ["c"]);
    assert_eq!(s.store.stats().await.unwrap().bytes, written.cost());
    let refused = s
        .store
        .put(Put {
            value: vec![1; 1500].into(),
            ..of(Kind::Conversation, "k")
        })
        .await;
    assert!(
        matches!(
            refused,
            Err(StoreError::QuotaExceeded {
                what: "bytes",
                limit: 1500
            })
        ),
        "{refused:?}"
    );
}

pub(super) async fn refused_put_evicts_nothing(s: Fixture) {
    for key in ["a", "b", "c"] {
        s.store.put(of(Kind::Cache, key)).await.unwrap();
    }
    let too_large = s
        .store
        .put(Put {
            value: vec![1; 10_000].into(),
            ..of(Kind::Cache, "d")
        })
        .await;
    assert!(
        matches!(
            too_large,
            Err(StoreError::QuotaExceeded { what: "bytes", .. })
        ),
        "{too_large:?}"
    );
    let mismatch = s
        .store
        .put(Put {
            expect_version: Some(5),
            ..of(Kind::Cache, "d")
        })
        .await;
    assert!(
        matches!(mismatch, Err(StoreError::VersionMismatch { .. })),
        "{mismatch:?}"
    );
    let batch = vec![
        Op::Put(of(Kind::Cache, "d")),
        Op::Put(Put {
            expect_version: Some(5),
            ..of(Kind::Fact, "k")
        }),
    ];
    assert!(s.store.write(batch).await.is_err());
    assert_eq!(keys_of(&s, &alice(), Kind::Cache).await, ["a", "b", "c"]);
}

pub(super) async fn expired_entries_are_evicted_first(s: Fixture) {
    s.store.put(of(Kind::Cache, "old")).await.unwrap();
    s.clock.advance(SECOND);
    s.store
        .put(Put {
            ttl: Some(SECOND),
            ..of(Kind::Cache, "ended")
        })
        .await
        .unwrap();
    s.store.put(of(Kind::Cache, "other")).await.unwrap();
    s.clock.advance(SECOND);
    let generation = s.store.generation().await.unwrap();
    s.store.put(of(Kind::Cache, "new")).await.unwrap();
    assert_eq!(
        keys_of(&s, &alice(), Kind::Cache).await,
        ["new", "old", "other"]
    );
    s.store.put(of(Kind::Cache, "newer")).await.unwrap();
    assert_eq!(
        keys_of(&s, &alice(), Kind::Cache).await,
        ["new", "newer", "other"]
    );
    assert_eq!(
        s.store.generation().await.unwrap(),
        generation,
        "what went was true"
    );
}

pub(super) async fn a_kind_keeps_nothing_longer_than_its_retention(s: Fixture) {
    let now = s.clock.now();
    let after = |seconds: u32| Some(now.saturating_add(seconds * SECOND));
    for (kind, ttl, end) in [
        (Kind::Audit, None, after(60)),
        (Kind::Audit, Some(10 * SECOND), after(10)),
        (Kind::Audit, Some(61 * SECOND), after(60)),
        (Kind::Audit, Some(Duration::MAX), after(60)),
        (Kind::Fact, None, after(3600)),
        (Kind::Note, None, None),
    ] {
        let written = s
            .store
            .put(Put {
                ttl,
                ..of(kind, "k")
            })
            .await
            .unwrap();
        assert_eq!(written.expires_at, end, "{kind}, {ttl:?}");
    }
    let former = |expires_at| Restore {
        version: 3,
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
        expires_at,
    };
    for (key, end, expected) in [
        ("a", None, after(60)),
        ("b", after(99), after(60)),
        ("c", after(9), after(9)),
    ] {
        let put = Put {
            restore: Some(former(end)),
            ..of(Kind::Audit, key)
        };
        assert_eq!(
            s.store.put(put).await.unwrap().expires_at,
            expected,
            "{key}"
        );
    }
    s.clock.advance(60 * SECOND);
    assert!(keys_of(&s, &alice(), Kind::Audit).await.is_empty());
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 4);
}

fn row(namespace: &Namespace, key: String) -> Put {
    Put {
        value: vec![7; 300].into(),
        ..Put::new(namespace.clone(), Kind::Cache, key, "")
    }
}

/// Writes rows, each a microsecond newer than the last; returns the size of one.
async fn fill(s: &Fixture, namespace: &Namespace, prefix: &str, count: usize) -> u64 {
    let mut cost = 0;
    for index in 0..count {
        s.clock.advance(Duration::from_micros(1));
        cost = s
            .store
            .put(row(namespace, format!("{prefix}{index:05}")))
            .await
            .unwrap()
            .cost();
    }
    cost
}

/// Writes rows in batches.
async fn flood(s: &Fixture, namespace: &Namespace, prefix: &str, count: usize) {
    for from in (0..count).step_by(32) {
        s.clock.advance(Duration::from_micros(1));
        let batch =
            (from..from + 32).map(|index| Op::Put(row(namespace, format!("{prefix}{index:05}"))));
        s.store.write(batch.collect()).await.unwrap();
    }
}

/// Number of rows that fit.
async fn room(s: &Fixture) -> usize {
    let other = Namespace::new("measure", "", None);
    let cost = fill(s, &other, "", 1).await;
    s.store
        .delete(Delete::Prefix {
            namespace: Some(other),
            kind: None,
            prefix: String::new(),
        })
        .await
        .unwrap();
    usize::try_from(CAP / cost).unwrap()
}

pub(super) async fn the_cache_stays_under_its_cap_and_the_oldest_go(s: Fixture) {
    let note = s.store.put(of(Kind::Note, "note")).await.unwrap();
    let room = room(&s).await;
    let generation = s.store.generation().await.unwrap();
    let cost = fill(&s, &alice(), "", 2 * room).await;
    let stats = s.store.stats().await.unwrap();
    assert!(stats.bytes - note.cost() <= CAP, "{stats:?}");
    assert!(
        stats.bytes > CAP - 4 * STEP,
        "no more goes than has to: {stats:?}"
    );
    let kept = keys_of(&s, &alice(), Kind::Cache).await;
    assert_eq!(kept.len() as u64, (stats.bytes - note.cost()) / cost);
    let newest: Vec<String> = (2 * room - kept.len()..2 * room)
        .map(|index| format!("{index:05}"))
        .collect();
    assert_eq!(kept, newest);
    assert!(
        s.store
            .get(&alice(), Kind::Note, "note")
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        s.store.generation().await.unwrap(),
        generation,
        "what went was true"
    );
}

pub(super) async fn largest_namespace_is_evicted_first(s: Fixture) {
    let [most, middle, least] =
        ["most", "middle", "least"].map(|name| Namespace::new("t", name, None));
    let count = async |namespace: &Namespace| keys_of(&s, namespace, Kind::Cache).await.len();
    let room = room(&s).await;
    fill(&s, &least, "", room / 10).await;
    fill(&s, &middle, "", room / 4).await;
    fill(&s, &most, "", room).await;
    let counts = (count(&least).await, count(&middle).await);
    assert_eq!(
        counts,
        (room / 10, room / 4),
        "they are older, and within their shares"
    );
    let left = room - room / 10 - room / 4;
    let before = count(&most).await;
    assert!(
        (left * 9 / 10..=left).contains(&before),
        "{before} of {left}"
    );
    fill(&s, &middle, "more", room / 2).await;
    let (now, then) = (count(&middle).await, count(&most).await);
    assert!(
        now.abs_diff(then) <= 12,
        "the two that take most take the same: {now} and {then}"
    );
    assert_eq!(count(&least).await, room / 10);
    assert!(
        keys_of(&s, &middle, Kind::Cache).await[0].starts_with("more"),
        "its own oldest went"
    );
}

pub(super) async fn every_namespace_keeps_its_fair_share(s: Fixture) {
    let [loud, quiet, late] = ["loud", "quiet", "late"].map(|name| Namespace::new("t", name, None));
    let room = room(&s).await;
    fill(&s, &quiet, "", 40).await;
    flood(&s, &loud, "", 10 * room).await;
    let mine: BTreeSet<String> = (0..40).map(|index| format!("{index:05}")).collect();
    let kept = |keys: Vec<String>| keys.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(kept(keys_of(&s, &quiet, Kind::Cache).await), mine);
    fill(&s, &late, "", 40).await;
    flood(&s, &loud, "again", room).await;
    for namespace in [&quiet, &late] {
        assert_eq!(
            kept(keys_of(&s, namespace, Kind::Cache).await),
            mine,
            "{namespace:?}"
        );
    }
    let stats = s.store.stats().await.unwrap();
    assert!(stats.bytes <= CAP, "{stats:?}");
}

pub(super) async fn trimming_goes_in_steps_from_the_oldest_on(s: Fixture) {
    let room = room(&s).await;
    fill(&s, &alice(), "", room).await;
    while s.store.trim(1000).await.unwrap() > 0 {}
    let oldest = async || keys_of(&s, &alice(), Kind::Cache).await[0].clone();
    let count = async || s.store.stats().await.unwrap().rows;
    // A look at the total comes after some rows: until then it may be over the target.
    let mut least = count().await;
    for index in 0..50 {
        fill(&s, &alice(), &format!("x{index:02}"), 1).await;
        let now = count().await;
        if now >= least + 3 {
            break;
        }
        assert!(index < 49, "the total is looked at too often");
        least = least.min(now);
    }
    assert_eq!(s.store.trim(0).await.unwrap(), 0);
    let first = oldest().await;
    assert_eq!(s.store.trim(2).await.unwrap(), 2);
    assert_eq!(
        oldest().await,
        format!("{:05}", first.parse::<u64>().unwrap() + 2)
    );
    assert!(s.store.trim(1000).await.unwrap() < 5);
    assert_eq!(s.store.trim(1000).await.unwrap(), 0);
    assert!(count().await + 1 >= least, "no more goes than has to");
}
