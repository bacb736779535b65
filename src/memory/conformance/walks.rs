//! Test cases about walks over all rows, and about scans from the newest on.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::Fixture;
use super::lists::{alice, put};
use crate::entry::{Kind, Namespace};
use crate::error::StoreError;
use crate::ops::{Mark, Order, Put, Walked};

/// Walks to the end in parts and returns all rows, with the number of parts.
pub(super) async fn walk(store: &dyn crate::Store, limit: usize) -> (Vec<Walked>, usize) {
    let (mut rows, mut parts, mut after) = (Vec::new(), 0, None);
    loop {
        let part = store.walk(after, limit).await.unwrap();
        assert!(part.rows.len() <= limit);
        rows.extend(part.rows);
        parts += 1;
        after = part.next;
        if after.is_none() {
            return (rows, parts);
        }
    }
}

pub(super) async fn a_walk_comes_by_every_row_of_everybody_once(s: Fixture) {
    assert!(walk(&*s.store, 10).await.0.is_empty());
    let mut expected = BTreeMap::new();
    for (tenant, subject, session) in [
        ("t", "alice", None),
        ("t", "alice", Some("s")),
        ("t", "alice", Some("")),
        ("u", "\0|:\"", None),
        ("", "", None),
    ] {
        for kind in Kind::ALL {
            for key in ["a", "b\0%", "\u{10ffff}"] {
                let namespace = Namespace::new(tenant, subject, session);
                let ttl = (key == "a").then_some(Duration::from_secs(1));
                let value = format!("{tenant}/{subject}/{session:?}/{kind}/{key}");
                let put = Put {
                    ttl,
                    tags: vec!["t".into()],
                    ..Put::new(namespace.clone(), kind, key, value.clone())
                };
                let written = s.store.put(put).await.unwrap();
                expected.insert((namespace, kind, key.to_owned()), (written, value));
            }
        }
    }
    s.clock.advance(Duration::from_secs(2));
    for limit in [1, 7, 90, 1000] {
        let (rows, parts) = walk(&*s.store, limit).await;
        assert!(parts <= 90 / limit + 1, "{parts} parts of {limit}");
        assert_eq!(rows.len(), expected.len(), "parts of {limit}");
        for row in rows {
            let (meta, value) = &expected[&(
                row.meta.namespace.clone(),
                row.meta.kind,
                row.meta.key.clone(),
            )];
            assert_eq!(
                (&row.meta, row.value.unwrap()),
                (meta, value.clone().into())
            );
            assert!(
                row.key_id.is_empty() || row.key_id.len() == 32,
                "{}",
                row.key_id
            );
        }
    }
}

pub(super) async fn a_part_of_a_walk_is_bounded_in_bytes(s: Fixture) {
    for index in 0..10 {
        s.store
            .put(Put {
                value: vec![1; 1 << 20].into(),
                ..put(&index.to_string(), "")
            })
            .await
            .unwrap();
    }
    let part = s.store.walk(None, 1000).await.unwrap();
    assert!(
        (8..=9).contains(&part.rows.len()),
        "{} MiB at once",
        part.rows.len()
    );
    let rest = s.store.walk(part.next, 1000).await.unwrap();
    assert_eq!(part.rows.len() + rest.rows.len(), 10);
}

pub(super) async fn foreign_mark_is_refused(s: Fixture) {
    s.store.put(put("k", "v")).await.unwrap();
    for text in ["nonsense", "", "1; DROP TABLE memory_entries", "[]", "\0"] {
        let refused = s.store.walk(Some(Mark(text.into())), 1).await;
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "{text:?}: {refused:?}"
        );
    }
}

pub(super) async fn a_scan_from_the_newest_on_goes_as_a_list_goes(s: Fixture) {
    for (index, key) in ["p/c", "p/a", "q/x", "p/b", "p/d", "P/e"]
        .iter()
        .enumerate()
    {
        if index == 3 {
            s.clock.advance(Duration::from_secs(1));
        }
        s.store.put(put(key, key)).await.unwrap();
    }
    s.store
        .put(Put {
            ttl: Some(Duration::ZERO),
            ..put("p/ended", "v")
        })
        .await
        .unwrap();
    for (prefix, expected) in [
        ("", vec!["P/e", "p/b", "p/d", "p/a", "p/c", "q/x"]),
        ("p/", vec!["p/b", "p/d", "p/a", "p/c"]),
        ("p/a", vec!["p/a"]),
        ("r", vec![]),
    ] {
        for limit in [0, 1, 2, 3, 10] {
            let scan = s
                .store
                .scan(&alice(), Kind::Note, prefix, Order::NewestFirst, limit)
                .await
                .unwrap();
            let found: Vec<_> = scan
                .entries
                .iter()
                .map(|entry| entry.meta.key.as_str())
                .collect();
            assert_eq!(
                found,
                expected[..limit.min(expected.len())],
                "{prefix:?}, {limit}"
            );
            assert!(
                scan.entries
                    .iter()
                    .all(|entry| entry.value == entry.meta.key)
            );
        }
    }
}

/// Enough rows for a driver to choose different plans for a broad and a narrow prefix.
pub(super) async fn a_broad_prefix_is_answered_as_a_narrow_one(s: Fixture) {
    let all: Vec<String> = (0..1500)
        .map(|index| format!("{}/{index:04}", index % 3 % 2))
        .collect();
    for (index, chunk) in all.chunks(100).enumerate() {
        // Every second hundred is older than the one before it.
        if index % 2 == 0 {
            s.clock.advance(Duration::from_secs(3));
        } else {
            s.clock.go_back(Duration::from_secs(1));
        }
        let batch = chunk
            .iter()
            .map(|key| crate::Op::Put(put(key, "v")))
            .collect();
        s.store.write(batch).await.unwrap();
    }
    for prefix in ["", "0/", "1/", "1/01"] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = crate::Page { limit: 170, after };
            let page = s
                .store
                .list(&alice(), Kind::Note, prefix, page)
                .await
                .unwrap();
            found.extend(page.entries);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(
            found.len(),
            all.iter().filter(|key| key.starts_with(prefix)).count(),
            "{prefix}"
        );
        let is_sorted = found.is_sorted_by(|a, b| (b.updated_at, &a.key) < (a.updated_at, &b.key));
        assert!(is_sorted, "{prefix}");
        let scan = s
            .store
            .scan(&alice(), Kind::Note, prefix, Order::NewestFirst, 2000)
            .await
            .unwrap();
        let scanned: Vec<_> = scan.entries.into_iter().map(|entry| entry.meta).collect();
        assert!(scanned == found, "{prefix}: a scan finds what a list finds");
    }
}
