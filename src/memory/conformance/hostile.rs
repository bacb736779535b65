//! Test cases about hostile keys, values and names.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Fixture;
use super::lists::{alice, put};
use crate::entry::{Kind, Namespace, Reach};
use crate::ops::{Cursor, Delete, Page, Put};

/// Hostile texts: each must be returned unchanged in every role.
const TEXTS: [&str; 22] = [
    "a",
    "\0",
    "a\0b",
    "a\0",
    "%",
    "_",
    "\\",
    "'",
    "\"; DROP TABLE memory_entries; --",
    "😀👩‍👩‍👧",
    "שלום",
    "\u{202e}abc",
    " ",
    "\n",
    "\u{feff}",
    "é",
    "e\u{301}",
    "../../etc/passwd",
    "{\"json\":[1]}",
    "\\u0000",
    "\u{fffd}",
    "\u{10ffff}",
];

pub(super) async fn keys_and_values_of_any_shape_come_back(s: Fixture) {
    // As long as a key may be, of one-byte and of four-byte characters.
    let (long, wide) = ("k".repeat(1024), "😀".repeat(256));
    let keys: Vec<&str> = TEXTS
        .into_iter()
        .chain([long.as_str(), wide.as_str()])
        .collect();
    let values = [
        Bytes::new(),
        Bytes::from_static(b"\0\xff\0"),
        Bytes::from(vec![7; 1 << 20]),
    ];
    for (index, key) in keys.iter().enumerate() {
        let value = values[index % values.len()].clone();
        s.store
            .put(Put {
                value,
                category: (*key).chars().take(9).collect(),
                ..put(key, "")
            })
            .await
            .unwrap();
    }
    for (index, key) in keys.iter().enumerate() {
        let entry = s
            .store
            .get(&alice(), Kind::Note, key)
            .await
            .unwrap()
            .unwrap();
        assert!(
            entry.value == values[index % values.len()],
            "the value of key {key:?}"
        );
        assert_eq!(entry.meta.key, *key);
    }
    assert_eq!(
        super::lists::keys(&s).await.len(),
        keys.len(),
        "no two keys are one"
    );
    for key in keys {
        let delete = Delete::Key {
            namespace: alice(),
            kind: Kind::Note,
            key: key.to_owned(),
        };
        assert_eq!(s.store.delete(delete).await.unwrap(), 1, "{key:?}");
    }
}

pub(super) async fn texts_of_any_shape_are_any_part_of_an_entry(s: Fixture) {
    let of = |text: &str| {
        let namespace = Namespace::new(text, text, Some(text));
        Put {
            category: text.to_owned(),
            tags: vec![text.to_owned(), "other".to_owned(), text.to_owned()],
            attributes: BTreeMap::from([
                (text.to_owned(), text.to_owned()),
                ("other".to_owned(), String::new()),
            ]),
            ..Put::new(namespace, Kind::Fact, text, text.to_owned())
        }
    };
    for text in TEXTS {
        s.store.put(of(text)).await.unwrap();
    }
    assert_eq!(
        s.store.namespaces().await.unwrap().len(),
        TEXTS.len(),
        "no two are one"
    );
    for text in TEXTS {
        let put = of(text);
        let entry = s
            .store
            .get(&put.namespace, Kind::Fact, text)
            .await
            .unwrap()
            .unwrap();
        let meta = &entry.meta;
        assert_eq!(
            (&meta.category, &meta.tags, &meta.attributes),
            (&put.category, &put.tags, &put.attributes)
        );
        assert_eq!(
            (&meta.namespace, &entry.value),
            (&put.namespace, &put.value)
        );
        let list = s
            .store
            .list(&put.namespace, Kind::Fact, text, Page::default())
            .await
            .unwrap();
        assert_eq!(list.entries, [entry.meta], "{text:?}");
        let page = Page {
            limit: 1,
            after: Some(Cursor(format!("{}:{text}", i64::MAX))),
        };
        assert_eq!(
            s.store
                .list(&put.namespace, Kind::Fact, text, page)
                .await
                .unwrap()
                .entries
                .len(),
            1,
            "{text:?}"
        );
    }
    for (index, text) in TEXTS.into_iter().enumerate() {
        let tagged = Delete::Tagged {
            whose: Reach::Everybody,
            kind: Kind::Fact,
            tag: text.to_owned(),
        };
        assert_eq!(s.store.delete(tagged).await.unwrap(), 1, "{text:?}");
        assert_eq!(
            s.store.stats().await.unwrap().rows as usize,
            TEXTS.len() - index - 1
        );
    }
}

/// Composed and decomposed, upper and lower, wide and narrow, with and without invisible
/// characters.
pub(super) async fn lookalike_keys_are_distinct(s: Fixture) {
    let groups = [
        vec!["é", "e\u{301}", "É", "E\u{301}"],
        vec!["ﬁ", "fi", "ＦＩ", "FI"],
        vec!["a", "\u{430}", "a\u{200b}", "a ", "a\0", "\u{202e}a"],
        vec!["Å", "\u{212b}", "A\u{30a}"],
        vec!["ß", "ss", "ẞ", "SS"],
        vec!["i", "ı", "İ", "I", "i\u{307}"],
    ];
    let all: BTreeSet<&str> = groups.iter().flatten().copied().collect();
    for text in &all {
        s.store.put(put(text, text)).await.unwrap();
    }
    let expected: Vec<&str> = all.iter().copied().collect();
    assert_eq!(super::lists::keys(&s).await, expected, "by bytes");
    for text in &all {
        assert_eq!(
            s.store
                .get(&alice(), Kind::Note, text)
                .await
                .unwrap()
                .unwrap()
                .value,
            *text
        );
        let list = s
            .store
            .list(&alice(), Kind::Note, text, Page::default())
            .await
            .unwrap();
        let of_bytes = all.iter().filter(|other| other.starts_with(*text)).count();
        assert_eq!(list.entries.len(), of_bytes, "{text:?}");
    }
}

pub(super) async fn namespaces_with_separators_stay_apart(s: Fixture) {
    let names = [
        Namespace::new("t", "alice", None),
        Namespace::new("t", "alice", Some("")),
        Namespace::new("t", "alice", Some("s")),
        Namespace::new("t", "alice:s", None),
        Namespace::new("t:alice", "s", None),
        Namespace::new("t|alice", "s", None),
        Namespace::new("t", "alice|s", None),
        Namespace::new("t\0alice", "s", None),
        Namespace::new("t", "Alice", None),
        Namespace::new("t", "%", None),
        Namespace::new("t", "", None),
        Namespace::new("", "", None),
        Namespace::new("", "t", Some("alice")),
    ];
    for (index, namespace) in names.iter().enumerate() {
        s.store
            .put(Put::new(
                namespace.clone(),
                Kind::Fact,
                "k",
                index.to_string(),
            ))
            .await
            .unwrap();
    }
    for (index, namespace) in names.iter().enumerate() {
        let entry = s
            .store
            .get(namespace, Kind::Fact, "k")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(entry.value, index.to_string(), "{namespace:?}");
        assert_eq!(entry.meta.namespace, *namespace);
    }
    assert_eq!(s.store.namespaces().await.unwrap().len(), names.len());
    for (index, namespace) in names.iter().enumerate() {
        let all = Delete::Prefix {
            namespace: Some(namespace.clone()),
            kind: None,
            prefix: String::new(),
        };
        assert_eq!(s.store.delete(all).await.unwrap(), 1, "{namespace:?}");
        assert_eq!(
            s.store.stats().await.unwrap().rows as usize,
            names.len() - index - 1
        );
    }
}

pub(super) async fn kinds_are_separate_key_spaces(s: Fixture) {
    for kind in Kind::ALL {
        s.store
            .put(Put::new(alice(), kind, "k", kind.as_str()))
            .await
            .unwrap();
    }
    for kind in Kind::ALL {
        let entry = s.store.get(&alice(), kind, "k").await.unwrap().unwrap();
        assert_eq!(
            (entry.value, entry.meta.kind, entry.meta.version),
            (kind.as_str().into(), kind, 1)
        );
    }
    s.store
        .delete(Delete::Key {
            namespace: alice(),
            kind: Kind::Fact,
            key: "k".into(),
        })
        .await
        .unwrap();
    assert!(
        s.store
            .get(&alice(), Kind::Cache, "k")
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        s.store
            .get(&alice(), Kind::Fact, "k")
            .await
            .unwrap()
            .is_none()
    );
}
