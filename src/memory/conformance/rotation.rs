//! Test cases about rotation in a used store: for sealed stores that can be opened twice.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::ManualClock;

use super::lists::alice;
use super::walks::walk;
use crate::entry::{Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::keyring::KeyRing;
use crate::ops::{Mark, Op, Put, Resealed};
use crate::store::Store;

/// A future that opens a store.
pub type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// Keys a, b and c, current first.
fn ring(letters: &str) -> KeyRing {
    let mut keys = letters.chars().map(|letter| letter.to_string().repeat(64));
    let current = keys.next().unwrap();
    let previous = keys.collect::<Vec<_>>().join(",");
    KeyRing::parse(
        ("K", &current),
        (!previous.is_empty()).then_some(("P", &previous)),
    )
    .unwrap()
}

fn id(letter: &str) -> String {
    ring(letter).current_id().to_owned()
}

/// Runs the test cases about rotation.
///
/// `open` is given the number of a database, which is new at its first use and keeps what is in it,
/// the keys, and the clock. A database is opened several times at once, as by several processes.
pub async fn run(open: impl Fn(u32, KeyRing, Arc<ManualClock>) -> Opening) {
    let clock = Arc::new(ManualClock::default());
    every_row_is_sealed_anew_and_stays_as_it_was(
        &|keys| open(0, ring(keys), Arc::clone(&clock)),
        &clock,
    )
    .await;
    the_store_proves_the_new_key_once_it_is_adopted(&|keys| {
        open(1, ring(keys), Arc::clone(&clock))
    })
    .await;
    rows_of_an_unknown_key_stay_and_are_counted(&|keys| open(2, ring(keys), Arc::clone(&clock)))
        .await;
    a_rotation_can_be_ended_anywhere_and_begun_again(&|keys| {
        open(3, ring(keys), Arc::clone(&clock))
    })
    .await;
}

async fn rotate(store: &dyn Store, limit: usize) -> (Resealed, usize) {
    let (mut all, mut steps) = (Resealed::default(), 0);
    loop {
        let step = store.reseal(all.next.take(), limit).await.unwrap();
        all = Resealed {
            rows: all.rows + step.rows,
            unreadable: all.unreadable + step.unreadable,
            next: step.next,
        };
        steps += 1;
        if all.next.is_none() {
            return (all, steps);
        }
    }
}

fn note(key: &str) -> Put {
    Put::new(alice(), Kind::Note, key, key.to_owned())
}

async fn fill(store: &dyn Store) -> usize {
    let mut count = 0;
    for namespace in [
        alice(),
        Namespace::new("t", "bob", Some("s")),
        Namespace::new("", "", None),
    ] {
        for kind in Kind::ALL {
            for key in ["a", "b", "ended"] {
                let ttl = (key == "ended").then_some(Duration::from_secs(1));
                let tags = vec!["t".to_owned()];
                store
                    .put(Put {
                        ttl,
                        tags,
                        ..Put::new(namespace.clone(), kind, key, format!("{kind}/{key}"))
                    })
                    .await
                    .unwrap();
                count += 1;
            }
        }
    }
    store
        .put(Put {
            value: vec![7; 1 << 20].into(),
            ..note("large")
        })
        .await
        .unwrap();
    store.put(note("empty")).await.unwrap();
    store
        .put(Put {
            value: Vec::new().into(),
            ..note("empty")
        })
        .await
        .unwrap();
    count + 2
}

async fn every_row_is_sealed_anew_and_stays_as_it_was(
    open: &impl Fn(&'static str) -> Opening,
    clock: &ManualClock,
) {
    let old = open("a").await.unwrap();
    let count = fill(&*old).await;
    clock.advance(Duration::from_secs(2));
    let (before, _) = walk(&*old, 1000).await;
    let both = open("ba").await.unwrap();
    let generation = both.generation().await.unwrap();
    let (stats, bytes) = (
        both.stats().await.unwrap(),
        old.stats().await.unwrap().bytes,
    );
    assert_eq!(
        stats.rows_by_key_id.keys().cloned().collect::<Vec<_>>(),
        [id("a")]
    );

    let (done, steps) = rotate(&*both, 4).await;
    assert_eq!((done.rows, done.unreadable), (count as u64, 0));
    assert!(steps >= count / 4, "{steps} steps for {count} rows");
    let (after, _) = walk(&*both, 1000).await;
    let sorted = |mut rows: Vec<crate::Walked>| {
        rows.sort_by_key(|row| {
            (
                row.meta.namespace.clone(),
                row.meta.kind,
                row.meta.key.clone(),
            )
        });
        rows
    };
    for (before, after) in sorted(before).into_iter().zip(sorted(after)) {
        assert_eq!(before.meta, after.meta);
        assert_eq!(
            before.value.unwrap(),
            after.value.unwrap(),
            "{}",
            after.meta.key
        );
        assert_eq!((before.key_id, after.key_id), (id("a"), id("b")));
    }
    let stats = both.stats().await.unwrap();
    assert_eq!(
        stats.rows_by_key_id,
        [(id("b"), stats.rows)].into(),
        "nothing names the old key"
    );
    assert_eq!(
        (stats.bytes, both.generation().await.unwrap()),
        (bytes, generation)
    );
    assert!(matches!(
        old.get(&alice(), Kind::Note, "a").await,
        Err(StoreError::Unreadable { .. })
    ));
    let tagged = crate::Delete::Tagged {
        whose: crate::Reach::Everybody,
        kind: Kind::Note,
        tag: "t".into(),
    };
    assert_eq!(
        both.delete(tagged).await.unwrap(),
        9,
        "tags are where they were"
    );
}

async fn the_store_proves_the_new_key_once_it_is_adopted(open: &impl Fn(&'static str) -> Opening) {
    let old = open("a").await.unwrap();
    old.put(note("k")).await.unwrap();
    let both = open("ba").await.unwrap();
    rotate(&*both, 10).await;
    let refused = open("b").await.err();
    assert!(
        matches!(refused, Some(StoreError::WrongKey { ref store, .. }) if *store == id("a")),
        "{refused:?}"
    );
    both.adopt_key().await.unwrap();
    let refused = open("a").await.err();
    assert!(
        matches!(refused, Some(StoreError::WrongKey { ref store, .. }) if *store == id("b")),
        "{refused:?}"
    );
    let new = open("b").await.unwrap();
    assert_eq!(
        new.get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .unwrap()
            .value,
        "k"
    );
    both.adopt_key().await.unwrap();
    assert!(open("cb").await.is_ok(), "and again");
}

async fn rows_of_an_unknown_key_stay_and_are_counted(open: &impl Fn(&'static str) -> Opening) {
    open("a").await.unwrap().put(note("a")).await.unwrap();
    open("ca").await.unwrap().put(note("c")).await.unwrap();
    let both = open("ba").await.unwrap();
    both.put(note("b")).await.unwrap();
    let (done, _) = rotate(&*both, 1).await;
    assert_eq!((done.rows, done.unreadable), (1, 1));
    let (rows, _) = walk(&*both, 1).await;
    let mut told: Vec<_> = rows
        .iter()
        .map(|row| (row.meta.key.as_str(), &row.key_id, row.value.is_ok()))
        .collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            ("a", &id("b"), true),
            ("b", &id("b"), true),
            ("c", &id("c"), false)
        ]
    );
    let all = open("bca").await.unwrap();
    let (done, _) = rotate(&*all, 1000).await;
    assert_eq!(
        (done.rows, done.unreadable),
        (1, 0),
        "with its key it can still be saved"
    );
}

async fn a_rotation_can_be_ended_anywhere_and_begun_again(open: &impl Fn(&'static str) -> Opening) {
    let old = open("a").await.unwrap();
    let batch = (0..50)
        .map(|index| Op::Put(note(&format!("{index:02}"))))
        .collect();
    old.write(batch).await.unwrap();
    let both = open("ba").await.unwrap();
    let first = both.reseal(None, 20).await.unwrap();
    assert_eq!((first.rows, first.unreadable), (20, 0));
    let refused = both.reseal(Some(Mark("nonsense".into())), 20).await;
    assert!(
        matches!(refused, Err(StoreError::Invalid(_))),
        "{refused:?}"
    );
    // Other writers write meanwhile, with both keys, on both sides of the mark.
    both.put(note("00")).await.unwrap();
    both.put(note("49")).await.unwrap();
    old.put(note("new, with the old key")).await.unwrap();
    let again = open("ba").await.unwrap();
    let (rest, _) = rotate(&*again, 20).await;
    assert_eq!(
        (rest.rows, rest.unreadable),
        (30, 0),
        "29 of before, and the new one"
    );
    let (nothing, _) = rotate(&*again, 1000).await;
    assert_eq!((nothing.rows, nothing.unreadable), (0, 0));
    assert_eq!(
        again.stats().await.unwrap().rows_by_key_id,
        [(id("b"), 51)].into()
    );
}
