//! Test cases about refusals: a refused write changes nothing.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::Fixture;
use super::lists::{alice, keys, put};
use crate::entry::{Kind, Namespace};
use crate::error::StoreError;
use crate::ops::{Op, Put};

pub(super) async fn writes_over_a_limit_are_refused_whole(s: Fixture) {
    let long = |bytes: usize| "x".repeat(bytes);
    let map = |entries: usize, name: usize, value: usize| -> BTreeMap<String, String> {
        (0..entries)
            .map(|index| (format!("{index}{}", long(name)), long(value)))
            .collect()
    };
    let refused = [
        ("key", put(&long(1025), "v")),
        ("value", put("k", &long((1 << 20) + 1))),
        (
            "category",
            Put {
                category: long(257),
                ..put("k", "v")
            },
        ),
        (
            "list of tags",
            Put {
                tags: vec![String::new(); 33],
                ..put("k", "v")
            },
        ),
        (
            "tag",
            Put {
                tags: vec![long(257)],
                ..put("k", "v")
            },
        ),
        (
            "list of attributes",
            Put {
                attributes: map(17, 1, 1),
                ..put("k", "v")
            },
        ),
        (
            "name of an attribute",
            Put {
                attributes: map(1, 256, 1),
                ..put("k", "v")
            },
        ),
        (
            "attribute",
            Put {
                attributes: map(1, 1, 257),
                ..put("k", "v")
            },
        ),
    ];
    for (expected, put) in refused {
        let batch = vec![Op::Put(self::put("neighbour", "v")), Op::Put(put)];
        match s.store.write(batch).await {
            Err(StoreError::TooLarge { what, size, limit }) => {
                assert_eq!(what, expected);
                assert!(size > limit);
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert!(matches!(
        s.store.put(put("", "v")).await,
        Err(StoreError::Invalid(_))
    ));
    let batch = (0..1025)
        .map(|index| Op::Put(put(&index.to_string(), "v")))
        .collect();
    assert!(matches!(
        s.store.write(batch).await,
        Err(StoreError::TooLarge { what: "batch", .. })
    ));
    assert_eq!(s.store.stats().await.unwrap().rows, 0);
}

pub(super) async fn the_largest_that_is_allowed_is_accepted(s: Fixture) {
    let put = Put {
        value: vec![1; 1 << 20].into(),
        category: "c".repeat(256),
        tags: (0..32).map(|index| format!("{index:0256}")).collect(),
        attributes: (0..16)
            .map(|index| (format!("{index:0256}"), "v".repeat(256)))
            .collect(),
        ..put(&"k".repeat(1024), "")
    };
    // Of a cached answer its pack decides.
    let large = Put {
        kind: Kind::Cache,
        value: vec![1; 5 << 20].into(),
        ..put.clone()
    };
    s.store.put(large.clone()).await.unwrap();
    let entry = s
        .store
        .get(&alice(), Kind::Cache, &large.key)
        .await
        .unwrap()
        .unwrap();
    assert!(entry.value == large.value);
    let written = s.store.put(put.clone()).await.unwrap();
    let entry = s
        .store
        .get(&alice(), Kind::Note, &put.key)
        .await
        .unwrap()
        .unwrap();
    assert!(entry.meta == written && entry.value == put.value);
}

pub(super) async fn a_full_namespace_refuses_new_rows_only(s: Fixture) {
    for key in ["1", "2", "3"] {
        s.store.put(put(key, "v")).await.unwrap();
    }
    let full = s.store.put(put("4", "v")).await;
    assert!(
        matches!(
            full,
            Err(StoreError::QuotaExceeded {
                what: "rows",
                limit: 3
            })
        ),
        "{full:?}"
    );
    assert_eq!(keys(&s).await, ["1", "2", "3"]);
    s.store.put(put("3", "replaced")).await.unwrap();
    s.store
        .put(Put::new(
            Namespace::new("t", "bob", None),
            Kind::Note,
            "4",
            "v",
        ))
        .await
        .unwrap();
    s.store
        .put(Put::new(alice(), Kind::Fact, "4", "v"))
        .await
        .unwrap();
    let batch = vec![
        Op::Delete(crate::ops::Delete::Key {
            namespace: alice(),
            kind: Kind::Note,
            key: "1".into(),
        }),
        Op::Put(put("4", "v")),
    ];
    s.store.write(batch).await.unwrap();
    assert_eq!(keys(&s).await, ["2", "3", "4"]);
}

pub(super) async fn expired_entries_make_room(s: Fixture) {
    for key in ["1", "2", "3"] {
        s.store
            .put(Put {
                ttl: Some(Duration::from_secs(1)),
                ..put(key, "v")
            })
            .await
            .unwrap();
    }
    s.clock.advance(Duration::from_secs(1));
    for key in ["4", "5", "6"] {
        s.store.put(put(key, "v")).await.unwrap();
    }
    assert!(matches!(
        s.store.put(put("7", "v")).await,
        Err(StoreError::QuotaExceeded { .. })
    ));
    assert_eq!(keys(&s).await, ["4", "5", "6"]);
}

pub(super) async fn a_namespace_is_bounded_in_bytes(s: Fixture) {
    // 2000 bytes: what two of these take, with the 16 bytes that a seal adds to each, is less, and
    // the third is too much.
    let size =
        1000 - usize::try_from(s.store.put(put("a", "")).await.unwrap().cost()).unwrap() - 16;
    s.store.put(put("a", &"v".repeat(size))).await.unwrap();
    s.store.put(put("b", &"v".repeat(size))).await.unwrap();
    let full = s.store.put(put("c", "v")).await;
    assert!(
        matches!(
            full,
            Err(StoreError::QuotaExceeded {
                what: "bytes",
                limit: 2000
            })
        ),
        "{full:?}"
    );
    assert_eq!(keys(&s).await, ["a", "b"]);
    s.store.put(put("a", "")).await.unwrap();
    s.store
        .put(put("c", &"v".repeat(size - 400)))
        .await
        .unwrap();
    assert!(s.store.stats().await.unwrap().bytes <= 2000);
}
