//! Test cases about single entries and batches.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Clock;

use super::Fixture;
use super::lists::{alice, keys, put};
use crate::entry::{Kind, Namespace, Reach};
use crate::error::StoreError;
use crate::ops::{Delete, Op, Order, Page, Put, Written};

pub(super) async fn put_and_get_return_the_same_entry(s: Fixture) {
    let put = Put {
        category: "c".into(),
        tags: vec!["z".into(), "a".into(), "z".into()],
        attributes: BTreeMap::from([("pack".into(), "github.list_issues".into())]),
        ttl: Some(Duration::from_secs(60)),
        ..put("k", "abc")
    };
    let written = s.store.put(put).await.unwrap();
    let entry = s
        .store
        .get(&alice(), Kind::Note, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(entry.meta, written);
    assert_eq!(&entry.value[..], b"abc");
    assert_eq!(written.tags, ["z", "a", "z"], "tags keep their order");
    assert_eq!(written.attributes["pack"], "github.list_issues");
    assert_eq!(written.fingerprint.len(), 16);
    assert_eq!(
        (written.version, written.created_at, written.updated_at),
        (1, s.clock.now(), s.clock.now())
    );
    assert_eq!(
        written.expires_at,
        Some(s.clock.now().saturating_add(Duration::from_secs(60)))
    );
    assert!(
        written.size == 3 || written.size == 3 + 16,
        "the size is that of the stored value: {}",
        written.size
    );
}

pub(super) async fn an_absent_entry_is_none(s: Fixture) {
    assert_eq!(s.store.get(&alice(), Kind::Note, "k").await.unwrap(), None);
    s.store.put(put("k", "v")).await.unwrap();
    assert_eq!(s.store.get(&alice(), Kind::Note, "K").await.unwrap(), None);
    assert_eq!(
        s.store
            .get(&Namespace::new("t", "bob", None), Kind::Note, "k")
            .await
            .unwrap(),
        None
    );
}

pub(super) async fn a_replacement_keeps_created_at_and_counts_up(s: Fixture) {
    let first = s
        .store
        .put(Put {
            tags: vec!["old".into()],
            ..put("k", "one")
        })
        .await
        .unwrap();
    s.clock.advance(Duration::from_secs(5));
    let second = s
        .store
        .put(Put {
            category: "new".into(),
            ..put("k", "two")
        })
        .await
        .unwrap();
    assert_eq!(
        (second.version, second.created_at, second.updated_at),
        (2, first.created_at, s.clock.now())
    );
    assert_eq!((second.category.as_str(), second.tags.len()), ("new", 0));
    let entry = s
        .store
        .get(&alice(), Kind::Note, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&entry.value[..], entry.meta), (&b"two"[..], second));
    assert_eq!(keys(&s).await, ["k"], "one row, not two");
}

pub(super) async fn an_entry_ends_at_its_time_everywhere_at_once(s: Fixture) {
    s.store
        .put(Put {
            ttl: Some(Duration::from_micros(10)),
            ..put("k", "v")
        })
        .await
        .unwrap();
    s.clock.advance(Duration::from_micros(9));
    assert!(
        s.store
            .get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .is_some()
    );
    s.clock.advance(Duration::from_micros(1));
    assert_eq!(s.store.get(&alice(), Kind::Note, "k").await.unwrap(), None);
    assert!(
        s.store
            .list(&alice(), Kind::Note, "", Page::default())
            .await
            .unwrap()
            .entries
            .is_empty()
    );
    assert!(
        s.store
            .scan(&alice(), Kind::Note, "", Order::KeyAscending, 9)
            .await
            .unwrap()
            .entries
            .is_empty()
    );
    assert!(s.store.namespaces().await.unwrap().is_empty());
    let stats = s.store.stats().await.unwrap();
    assert_eq!((stats.rows, stats.expired), (0, 1));
}

pub(super) async fn a_put_over_an_ended_entry_is_a_new_one(s: Fixture) {
    let short = Put {
        ttl: Some(Duration::from_secs(1)),
        ..put("k", "old")
    };
    s.store.put(short.clone()).await.unwrap();
    s.store.put(short).await.unwrap();
    s.clock.advance(Duration::from_secs(1));
    let fresh = s
        .store
        .put(Put {
            expect_version: Some(0),
            ..put("k", "new")
        })
        .await
        .unwrap();
    assert_eq!((fresh.version, fresh.created_at), (1, s.clock.now()));
    let stats = s.store.stats().await.unwrap();
    assert_eq!((stats.rows, stats.expired), (1, 0));
}

pub(super) async fn a_replacement_sets_the_end_anew(s: Fixture) {
    s.store
        .put(Put {
            ttl: Some(Duration::from_secs(1)),
            ..put("k", "v")
        })
        .await
        .unwrap();
    let forever = s.store.put(put("k", "v")).await.unwrap();
    assert_eq!(forever.expires_at, None);
    s.clock.advance(Duration::from_secs(2));
    assert!(
        s.store
            .get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 0);
}

pub(super) async fn compare_and_set_has_one_winner(s: Fixture) {
    let absent = Put {
        expect_version: Some(0),
        ..put("k", "first")
    };
    s.store.put(absent.clone()).await.unwrap();
    let again = s.store.put(absent).await;
    assert!(
        matches!(
            again,
            Err(StoreError::VersionMismatch {
                expected: 0,
                found: 1
            })
        ),
        "{again:?}"
    );
    let racers = (0..8).map(|racer| {
        let store = Arc::clone(&s.store);
        tokio::spawn(async move {
            store
                .put(Put {
                    expect_version: Some(1),
                    ..put("k", &racer.to_string())
                })
                .await
                .is_ok()
        })
    });
    let mut won = 0;
    for racer in racers.collect::<Vec<_>>() {
        won += u32::from(racer.await.unwrap());
    }
    assert_eq!(won, 1);
    let unknown = s
        .store
        .put(Put {
            expect_version: Some(7),
            ..put("other", "v")
        })
        .await;
    assert!(
        matches!(
            unknown,
            Err(StoreError::VersionMismatch {
                expected: 7,
                found: 0
            })
        ),
        "{unknown:?}"
    );
}

pub(super) async fn a_batch_is_all_or_nothing(s: Fixture) {
    s.store
        .put(Put {
            tags: vec!["t".into()],
            ..put("there", "v")
        })
        .await
        .unwrap();
    let before = (
        s.store.stats().await.unwrap(),
        s.store.generation().await.unwrap(),
    );
    let failed = s
        .store
        .write(vec![
            Op::Put(put("new", "v")),
            Op::Put(put("there", "changed")),
            Op::Delete(Delete::Tagged {
                whose: Reach::Everybody,
                kind: Kind::Note,
                tag: "t".into(),
            }),
            Op::Put(Put {
                expect_version: Some(9),
                ..put("x", "v")
            }),
        ])
        .await;
    assert!(
        matches!(failed, Err(StoreError::VersionMismatch { .. })),
        "{failed:?}"
    );
    let after = (
        s.store.stats().await.unwrap(),
        s.store.generation().await.unwrap(),
    );
    assert_eq!(
        (before.0.rows, before.0.bytes, before.1),
        (after.0.rows, after.0.bytes, after.1)
    );
    assert_eq!(keys(&s).await, ["there"]);
    let entry = s
        .store
        .get(&alice(), Kind::Note, "there")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&entry.value[..], entry.meta.version), (&b"v"[..], 1));
    let tagged = Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Note,
        tag: "t".into(),
    };
    assert_eq!(
        s.store.delete(tagged).await.unwrap(),
        1,
        "its tag is still there"
    );
}

pub(super) async fn operations_of_a_batch_see_each_other_in_order(s: Fixture) {
    let prefix = Delete::Prefix {
        namespace: Some(alice()),
        kind: Some(Kind::Note),
        prefix: "a".into(),
    };
    let done = s
        .store
        .write(vec![
            Op::Put(put("a1", "v")),
            Op::Put(put("a1", "w")),
            Op::Delete(prefix),
            Op::Put(Put {
                expect_version: Some(0),
                ..put("a1", "x")
            }),
        ])
        .await
        .unwrap();
    assert!(
        matches!(&done[1], Written::Put(meta) if meta.version == 2),
        "{done:?}"
    );
    assert_eq!(done[2], Written::Deleted(1));
    assert!(
        matches!(&done[3], Written::Put(meta) if meta.version == 1),
        "{done:?}"
    );
    assert_eq!(
        &s.store
            .get(&alice(), Kind::Note, "a1")
            .await
            .unwrap()
            .unwrap()
            .value[..],
        b"x"
    );
    assert!(
        s.store.write(Vec::new()).await.unwrap().is_empty(),
        "an empty batch is no error"
    );
}

pub(super) async fn concurrent_puts_are_all_there(s: Fixture) {
    let writers = (0..8).map(|writer| {
        let store = Arc::clone(&s.store);
        tokio::spawn(async move {
            for index in 0..25 {
                store
                    .put(put(&format!("{writer}/{index:02}"), "v"))
                    .await
                    .unwrap();
                store.put(put("shared", "v")).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(s.store.stats().await.unwrap().rows, 201);
    let shared = s
        .store
        .get(&alice(), Kind::Note, "shared")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(shared.meta.version, 200, "no replacement was lost");
}

pub(super) async fn after_close_everything_answers_closed(s: Fixture) {
    s.store.put(put("k", "v")).await.unwrap();
    s.store.close().await.unwrap();
    s.store.close().await.unwrap();
    assert!(matches!(
        s.store.get(&alice(), Kind::Note, "k").await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(
        s.store.put(put("k", "v")).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(s.store.stats().await, Err(StoreError::Closed)));
    assert!(matches!(
        s.store.generation().await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(
        s.store.sweep_expired(1).await,
        Err(StoreError::Closed)
    ));
}
