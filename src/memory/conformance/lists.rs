//! Test cases about lists, scans and counts.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::Fixture;
use crate::entry::{Kind, Namespace};
use crate::error::StoreError;
use crate::ops::{Cursor, NamespaceStats, Order, Page, Put};

/// The caller of most test cases.
pub(super) fn alice() -> Namespace {
    Namespace::new("t", "alice", None)
}

/// A note of alice's.
pub(super) fn put(key: &str, value: &str) -> Put {
    Put::new(alice(), Kind::Note, key, value.to_owned())
}

/// Returns the keys of alice's notes in key order.
pub(super) async fn keys(s: &Fixture) -> Vec<String> {
    let scan = s
        .store
        .scan(&alice(), Kind::Note, "", Order::KeyAscending, 1000)
        .await
        .unwrap();
    assert_eq!(scan.unreadable, 0);
    scan.entries
        .into_iter()
        .map(|entry| entry.meta.key)
        .collect()
}

/// Returns the keys of alice's notes in list order.
pub(super) async fn listed(s: &Fixture, prefix: &str) -> Vec<String> {
    let page = s
        .store
        .list(&alice(), Kind::Note, prefix, Page::default())
        .await
        .unwrap();
    page.entries.into_iter().map(|meta| meta.key).collect()
}

pub(super) async fn newest_first_ties_by_key(s: Fixture) {
    for key in ["c", "a", "b"] {
        s.store.put(put(key, "v")).await.unwrap();
    }
    s.clock.advance(Duration::from_micros(1));
    s.store.put(put("z", "v")).await.unwrap();
    assert_eq!(listed(&s, "").await, ["z", "a", "b", "c"]);
    s.clock.advance(Duration::from_micros(1));
    let written = s.store.put(put("b", "v")).await.unwrap();
    assert_eq!(listed(&s, "").await, ["b", "z", "a", "c"]);
    let page = s
        .store
        .list(&alice(), Kind::Note, "b", Page::default())
        .await
        .unwrap();
    assert_eq!(
        page.entries,
        [written],
        "a list returns what the put returned"
    );
}

pub(super) async fn namespaces_neither_get_nor_list_each_other(s: Fixture) {
    let names = [
        alice(),
        Namespace::new("t", "alice", Some("s")),
        Namespace::new("t", "bob", None),
        Namespace::new("u", "alice", None),
    ];
    for (index, namespace) in names.iter().enumerate() {
        for key in ["shared", &format!("only/{index}")] {
            s.store
                .put(Put::new(
                    namespace.clone(),
                    Kind::Note,
                    key,
                    index.to_string(),
                ))
                .await
                .unwrap();
        }
    }
    for (index, namespace) in names.iter().enumerate() {
        let list = s
            .store
            .list(namespace, Kind::Note, "", Page::default())
            .await
            .unwrap();
        let listed: Vec<_> = list.entries.iter().map(|meta| meta.key.clone()).collect();
        assert_eq!(
            listed,
            [format!("only/{index}"), "shared".to_owned()],
            "{namespace:?}"
        );
        assert!(list.entries.iter().all(|meta| meta.namespace == *namespace));
        let scan = s
            .store
            .scan(namespace, Kind::Note, "", Order::KeyAscending, 10)
            .await
            .unwrap();
        assert!(
            scan.entries.len() == 2
                && scan
                    .entries
                    .iter()
                    .all(|entry| entry.value == index.to_string())
        );
        for other in 0..names.len() {
            let found = s
                .store
                .get(namespace, Kind::Note, &format!("only/{other}"))
                .await
                .unwrap();
            assert_eq!(
                found.is_some(),
                index == other,
                "{namespace:?} and the row of {other}"
            );
        }
    }
}

async fn pages(s: &Fixture, limit: usize) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = s
            .store
            .list(&alice(), Kind::Note, "", Page { limit, after })
            .await
            .unwrap();
        pages.push(page.entries.into_iter().map(|meta| meta.key).collect());
        after = page.next;
        if after.is_none() {
            return pages;
        }
    }
}

pub(super) async fn pages_join_without_gap_or_repeat(s: Fixture) {
    assert_eq!(pages(&s, 3).await, [Vec::<String>::new()]);
    let expected: Vec<String> = (0..10).map(|index| format!("k{index}")).collect();
    for (index, key) in expected.iter().enumerate() {
        // Every three share a time, so that pages are cut inside a tie.
        if index % 3 == 0 {
            s.clock.go_back(Duration::from_secs(1));
        }
        s.store.put(put(key, "v")).await.unwrap();
    }
    for limit in [1, 2, 3, 5, 10, 11] {
        let pages = pages(&s, limit).await;
        assert_eq!(pages.concat(), expected, "pages of {limit}");
        assert_eq!(
            pages.len(),
            10usize.div_ceil(limit),
            "pages of {limit}: no empty page at the end"
        );
    }
}

pub(super) async fn a_page_stays_stable_while_entries_are_added(s: Fixture) {
    for key in ["a", "b", "c", "d"] {
        s.store.put(put(key, "v")).await.unwrap();
    }
    let first = s
        .store
        .list(
            &alice(),
            Kind::Note,
            "",
            Page {
                limit: 2,
                after: None,
            },
        )
        .await
        .unwrap();
    s.clock.advance(Duration::from_secs(1));
    s.store.put(put("newer", "v")).await.unwrap();
    let second = s
        .store
        .list(
            &alice(),
            Kind::Note,
            "",
            Page {
                limit: 2,
                after: first.next,
            },
        )
        .await
        .unwrap();
    assert_eq!(
        second
            .entries
            .iter()
            .map(|meta| meta.key.as_str())
            .collect::<Vec<_>>(),
        ["c", "d"]
    );
    assert_eq!(second.next, None);
}

pub(super) async fn a_prefix_is_literal_and_case_sensitive(s: Fixture) {
    for key in [
        "pack_history/1",
        "packXhistory/1",
        "PACK_HISTORY/1",
        "100%",
        "100",
        "\u{10ffff}x",
        "émigré",
    ] {
        s.store.put(put(key, "v")).await.unwrap();
    }
    for (prefix, expected) in [
        ("pack_history/", vec!["pack_history/1"]),
        ("PACK", vec!["PACK_HISTORY/1"]),
        ("100%", vec!["100%"]),
        ("%", vec![]),
        ("_", vec![]),
        ("é", vec!["émigré"]),
        ("\u{10ffff}", vec!["\u{10ffff}x"]),
        ("packX", vec!["packXhistory/1"]),
    ] {
        assert_eq!(listed(&s, prefix).await, expected, "{prefix}");
        let scan = s
            .store
            .scan(&alice(), Kind::Note, prefix, Order::KeyAscending, 10)
            .await
            .unwrap();
        assert_eq!(scan.entries.len(), expected.len(), "{prefix}");
    }
    assert_eq!(listed(&s, "").await.len(), 7);
}

pub(super) async fn a_scan_goes_by_key_in_both_directions(s: Fixture) {
    // By bytes: upper case before lower case, U+E000 before U+1F600.
    let sorted = ["B", "a", "a\0", "b", "\u{e000}", "\u{1f600}"];
    for key in sorted.iter().rev() {
        s.store.put(put(key, key)).await.unwrap();
    }
    assert_eq!(keys(&s).await, sorted);
    let back = s
        .store
        .scan(&alice(), Kind::Note, "", Order::KeyDescending, 2)
        .await
        .unwrap();
    assert_eq!(
        back.entries
            .iter()
            .map(|entry| entry.meta.key.as_str())
            .collect::<Vec<_>>(),
        ["\u{1f600}", "\u{e000}"]
    );
    assert_eq!(&back.entries[0].value[..], "\u{1f600}".as_bytes());
    assert!(
        s.store
            .scan(&alice(), Kind::Note, "", Order::KeyAscending, 0)
            .await
            .unwrap()
            .entries
            .is_empty()
    );
}

pub(super) async fn namespaces_are_counted_live_and_busiest_first(s: Fixture) {
    let bob = Namespace::new("t", "bob", None);
    let session = Namespace::new("t", "alice", Some("s"));
    let mut cost = 0;
    for (namespace, kind, count) in [
        (&alice(), Kind::Note, 1),
        (&alice(), Kind::Cache, 2),
        (&bob, Kind::Note, 3),
        (&session, Kind::Note, 1),
    ] {
        for index in 0..count {
            let put = Put::new(namespace.clone(), kind, index.to_string(), "v");
            cost = s.store.put(put).await.unwrap().cost();
        }
    }
    s.store
        .put(Put {
            ttl: Some(Duration::ZERO),
            ..Put::new(Namespace::new("t", "gone", None), Kind::Note, "k", "v")
        })
        .await
        .unwrap();
    let found = s.store.namespaces().await.unwrap();
    let told: Vec<_> = found
        .iter()
        .map(|n: &NamespaceStats| (n.namespace.clone(), n.kind, n.rows))
        .collect();
    assert_eq!(
        told,
        [
            (bob, Kind::Note, 3),
            (alice(), Kind::Cache, 2),
            (alice(), Kind::Note, 1),
            (session, Kind::Note, 1)
        ]
    );
    assert!(found.iter().all(|n| n.bytes == n.rows * cost), "{found:?}");
}

pub(super) async fn namespaces_of_a_caller_are_its_own(s: Fixture) {
    let put = |namespace, key: &str| Put::new(namespace, Kind::Note, key, "v");
    for namespace in [
        alice(),
        Namespace::new("t", "alice", Some("s")),
        Namespace::new("t", "alice", Some("")),
        Namespace::new("t", "alic", None),
        Namespace::new("t", "alice2", None),
        Namespace::new("T", "alice", None),
        Namespace::new("ta", "lice", None),
        Namespace::new("t", "", Some("alice")),
    ] {
        s.store.put(put(namespace.clone(), "k")).await.unwrap();
        s.store
            .put(Put {
                ttl: Some(Duration::ZERO),
                ..put(namespace, "gone")
            })
            .await
            .unwrap();
    }
    let all = s.store.namespaces().await.unwrap();
    assert_eq!(all.len(), 8);
    for (tenant, subject, count) in [
        ("t", "alice", 3),
        ("t", "", 1),
        ("", "", 0),
        ("t", "nobody", 0),
        ("t", "%", 0),
    ] {
        let of = s.store.namespaces_of(tenant, subject).await.unwrap();
        let expected: Vec<_> = all
            .iter()
            .filter(|held| *held.namespace.tenant == *tenant && *held.namespace.subject == *subject)
            .cloned()
            .collect();
        assert_eq!(
            (of.len(), &of),
            (count, &expected),
            "{tenant:?} {subject:?}"
        );
        assert!(of.iter().all(|held| held.rows == 1), "{of:?}");
    }
}

pub(super) async fn totals_add_up(s: Fixture) {
    s.store.put(put("a", "v")).await.unwrap();
    let puts = [
        put("a", "longer"),
        Put::new(alice(), Kind::Cache, "a", "v"),
        Put {
            ttl: Some(Duration::ZERO),
            tags: vec!["t".into()],
            ..Put::new(alice(), Kind::Audit, "x", "v")
        },
    ];
    let (mut bytes, mut of_kind) = (0, BTreeMap::new());
    for put in puts {
        let meta = s.store.put(put).await.unwrap();
        bytes += meta.cost();
        of_kind.insert(meta.kind.as_str().to_owned(), meta.cost());
    }
    of_kind.remove("audit");
    let stats = s.store.stats().await.unwrap();
    assert_eq!(stats.bytes_by_kind, of_kind);
    assert_eq!((stats.rows, stats.expired), (2, 1));
    assert_eq!(
        stats.rows_by_kind,
        BTreeMap::from([("cache".to_owned(), 1), ("note".to_owned(), 1)])
    );
    assert_eq!(stats.rows_by_key_id.values().sum::<u64>(), 2);
    assert_eq!(stats.rows_by_key_id.len(), 1);
    assert_eq!(
        stats.bytes, bytes,
        "what has ended takes its place until it is swept"
    );
    assert!(!stats.driver.is_empty());
}

pub(super) async fn foreign_cursor_is_refused(s: Fixture) {
    let page = Page {
        limit: 1,
        after: Some(Cursor("nonsense".into())),
    };
    let refused = s.store.list(&alice(), Kind::Note, "", page).await;
    assert!(
        matches!(refused, Err(StoreError::Invalid(_))),
        "{refused:?}"
    );
}
