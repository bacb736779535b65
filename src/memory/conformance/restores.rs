//! Test cases about restored entries.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use helmdeck_core::{Clock, Timestamp};

use super::Fixture;
use super::lists::{alice, keys, listed, put};
use crate::entry::{Kind, Reach};
use crate::error::StoreError;
use crate::ops::{Delete, Op, Put, Restore};

const MINUTE: Duration = Duration::from_secs(60);

/// An entry that was made at `made` and replaced at `replaced`, and never expires.
///
/// Both are seconds of November 2023, as all times here.
fn former(version: u64, made: i64, replaced: i64) -> Restore {
    let at = |second: i64| Timestamp((1_699_000_000 + second) * 1_000_000);
    Restore {
        version,
        created_at: at(made),
        updated_at: at(replaced),
        expires_at: None,
    }
}

fn restore(key: &str, value: &str, restore: Restore) -> Put {
    Put {
        restore: Some(restore),
        ..put(key, value)
    }
}

pub(super) async fn a_restored_entry_keeps_its_version_and_times(s: Fixture) {
    let life = Restore {
        expires_at: Some(s.clock.now().saturating_add(MINUTE)),
        ..former(7, 10, 20)
    };
    let tagged = Put {
        tags: vec!["t".into()],
        ttl: Some(Duration::ZERO),
        ..restore("k", "v", life)
    };
    let written = s.store.put(tagged).await.unwrap();
    assert_eq!(
        (written.version, written.created_at, written.updated_at),
        (7, life.created_at, life.updated_at)
    );
    assert_eq!(
        written.expires_at, life.expires_at,
        "the time to live is of no effect"
    );
    let entry = s
        .store
        .get(&alice(), Kind::Note, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (entry.meta, &entry.value[..]),
        (written, &b"v"[..]),
        "it opens"
    );
    let next = s.store.put(put("k", "w")).await.unwrap();
    assert_eq!(
        (next.version, next.created_at, next.updated_at),
        (8, life.created_at, s.clock.now())
    );
    s.store
        .put(Put {
            tags: vec!["t".into()],
            ..restore("other", "v", former(2, 1, 2))
        })
        .await
        .unwrap();
    let tagged = Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Note,
        tag: "t".into(),
    };
    assert_eq!(s.store.delete(tagged).await.unwrap(), 1);
}

pub(super) async fn restore_replaces_only_older_entries(s: Fixture) {
    s.store
        .put(restore("k", "first", former(3, 10, 20)))
        .await
        .unwrap();
    for (life, what) in [(former(9, 0, 20), "as old"), (former(9, 0, 19), "older")] {
        let refused = s.store.put(restore("k", "no", life)).await;
        assert!(
            matches!(refused, Err(StoreError::NotNewer)),
            "{what}: {refused:?}"
        );
        let batch = vec![
            Op::Put(put("neighbour", "v")),
            Op::Put(restore("k", "no", life)),
        ];
        let refused = s.store.write(batch).await;
        assert!(
            matches!(refused, Err(StoreError::NotNewer)),
            "{what}: {refused:?}"
        );
    }
    assert_eq!(keys(&s).await, ["k"]);
    let entry = s
        .store
        .get(&alice(), Kind::Note, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&entry.value[..], entry.meta.version), (&b"first"[..], 3));
    let newer = s
        .store
        .put(restore("k", "second", former(2, 5, 21)))
        .await
        .unwrap();
    assert_eq!(
        (newer.version, newer.created_at),
        (2, former(2, 5, 21).created_at),
        "as it was elsewhere"
    );
    let entry = s
        .store
        .get(&alice(), Kind::Note, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((entry.meta, &entry.value[..]), (newer, &b"second"[..]));
}

pub(super) async fn restore_ignores_expired_entries(s: Fixture) {
    s.store
        .put(Put {
            ttl: Some(MINUTE),
            ..put("k", "old")
        })
        .await
        .unwrap();
    s.clock.advance(MINUTE);
    s.store
        .put(restore("k", "restored", former(4, 1, 2)))
        .await
        .unwrap();
    let entry = s
        .store
        .get(&alice(), Kind::Note, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&entry.value[..], entry.meta.version),
        (&b"restored"[..], 4)
    );
    assert_eq!(s.store.stats().await.unwrap().expired, 0);
    // What ended elsewhere has ended here.
    let ended = Restore {
        expires_at: Some(s.clock.now()),
        ..former(5, 1, 3)
    };
    s.store.put(restore("ended", "v", ended)).await.unwrap();
    assert_eq!(keys(&s).await, ["k"]);
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 1);
}

pub(super) async fn restored_entries_stand_in_lists_where_they_stood(s: Fixture) {
    s.store.put(put("now", "v")).await.unwrap();
    s.store
        .put(restore("old", "v", former(1, 1, 1)))
        .await
        .unwrap();
    s.store
        .put(restore("older", "v", former(1, 0, 0)))
        .await
        .unwrap();
    s.clock.advance(MINUTE);
    s.store.put(put("newest", "v")).await.unwrap();
    assert_eq!(listed(&s, "").await, ["newest", "now", "old", "older"]);
}

pub(super) async fn restored_version_is_clamped(s: Fixture) {
    assert_eq!(
        s.store
            .put(restore("none", "v", former(0, 1, 1)))
            .await
            .unwrap()
            .version,
        1
    );
    let most = s
        .store
        .put(restore("most", "v", former(u64::MAX, 1, 1)))
        .await
        .unwrap();
    assert_eq!(most.version, i64::MAX.unsigned_abs());
    assert_eq!(
        s.store
            .get(&alice(), Kind::Note, "most")
            .await
            .unwrap()
            .unwrap()
            .meta,
        most
    );
    let next = s.store.put(put("most", "w")).await.unwrap();
    assert_eq!(next.version, most.version, "there is none after it");
    assert_eq!(
        s.store
            .get(&alice(), Kind::Note, "most")
            .await
            .unwrap()
            .unwrap()
            .meta,
        next
    );
}

pub(super) async fn a_restored_entry_can_be_conditional(s: Fixture) {
    let absent = Put {
        expect_version: Some(0),
        ..restore("k", "v", former(3, 1, 1))
    };
    s.store.put(absent.clone()).await.unwrap();
    let again = s.store.put(absent).await;
    assert!(
        matches!(
            again,
            Err(StoreError::VersionMismatch {
                expected: 0,
                found: 3
            })
        ),
        "{again:?}"
    );
    let matching = Put {
        expect_version: Some(3),
        ..restore("k", "w", former(9, 1, 2))
    };
    assert_eq!(s.store.put(matching).await.unwrap().version, 9);
}

pub(super) async fn an_entry_is_ended_and_none_that_took_its_place(s: Fixture) {
    let key = || Delete::Key {
        namespace: alice(),
        kind: Kind::Note,
        key: "k".into(),
    };
    let written = s.store.put(put("k", "outdated")).await.unwrap();
    let ending = Put::ending(
        alice(),
        Kind::Note,
        "k",
        written.version,
        written.updated_at,
    );
    s.store.delete(key()).await.unwrap();
    let ended = s.store.put(ending.clone()).await;
    assert!(
        matches!(
            ended,
            Err(StoreError::VersionMismatch {
                expected: 1,
                found: 0
            })
        ),
        "gone: {ended:?}"
    );

    s.clock.advance(Duration::from_micros(1));
    let newer = s.store.put(put("k", "newer")).await.unwrap();
    assert_eq!(
        newer.version, written.version,
        "the version alone does not tell them apart"
    );
    let ended = s
        .store
        .write(vec![Op::Put(ending), Op::Delete(key())])
        .await;
    assert!(matches!(ended, Err(StoreError::NotNewer)), "{ended:?}");
    assert_eq!(
        s.store
            .get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .unwrap()
            .meta,
        newer,
        "as it was"
    );

    let ending = Put::ending(alice(), Kind::Note, "k", newer.version, newer.updated_at);
    s.store.put(ending).await.unwrap();
    assert!(
        s.store
            .get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 1);
}
