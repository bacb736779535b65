//! Claims about keys, values and names that other systems choke on.

#![expect(clippy::unwrap_used, reason = "a claim that does not hold panics")]

use bytes::Bytes;

use super::Subject;
use super::lists::{alice, put};
use crate::entry::{Kind, Namespace};
use crate::store::{Delete, Put};

pub(super) async fn keys_and_values_of_any_shape_come_back(s: Subject) {
    let long = "k".repeat(1024);
    let keys = [
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
        "\u{10ffff}",
        &long,
    ];
    let values = [Bytes::new(), Bytes::from_static(b"\0\xff\0"), Bytes::from(vec![7; 1 << 20])];
    for (index, key) in keys.iter().enumerate() {
        let value = values[index % values.len()].clone();
        s.store.put(Put { value, category: (*key).chars().take(9).collect(), ..put(key, "") }).await.unwrap();
    }
    for (index, key) in keys.iter().enumerate() {
        let entry = s.store.get(&alice(), Kind::Note, key).await.unwrap().unwrap();
        assert!(entry.value == values[index % values.len()], "the value of key {key:?}");
        assert_eq!(entry.meta.key, *key);
    }
    assert_eq!(super::lists::keys(&s).await.len(), keys.len(), "no two keys are one");
    for key in keys {
        let delete = Delete::Key { namespace: alice(), kind: Kind::Note, key: key.to_owned() };
        assert_eq!(s.store.delete(delete).await.unwrap(), 1, "{key:?}");
    }
}

pub(super) async fn namespaces_with_separators_stay_apart(s: Subject) {
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
        s.store.put(Put::new(namespace.clone(), Kind::Fact, "k", index.to_string())).await.unwrap();
    }
    for (index, namespace) in names.iter().enumerate() {
        let entry = s.store.get(namespace, Kind::Fact, "k").await.unwrap().unwrap();
        assert_eq!(entry.value, index.to_string(), "{namespace:?}");
        assert_eq!(entry.meta.namespace, *namespace);
    }
    assert_eq!(s.store.namespaces().await.unwrap().len(), names.len());
    for (index, namespace) in names.iter().enumerate() {
        let all = Delete::Prefix { namespace: Some(namespace.clone()), kind: None, prefix: String::new() };
        assert_eq!(s.store.delete(all).await.unwrap(), 1, "{namespace:?}");
        assert_eq!(s.store.stats().await.unwrap().rows as usize, names.len() - index - 1);
    }
}

pub(super) async fn kinds_are_separate_key_spaces(s: Subject) {
    for kind in Kind::ALL {
        s.store.put(Put::new(alice(), kind, "k", kind.as_str())).await.unwrap();
    }
    for kind in Kind::ALL {
        let entry = s.store.get(&alice(), kind, "k").await.unwrap().unwrap();
        assert_eq!((entry.value, entry.meta.kind, entry.meta.version), (kind.as_str().into(), kind, 1));
    }
    s.store.delete(Delete::Key { namespace: alice(), kind: Kind::Fact, key: "k".into() }).await.unwrap();
    assert!(s.store.get(&alice(), Kind::Cache, "k").await.unwrap().is_some());
    assert!(s.store.get(&alice(), Kind::Fact, "k").await.unwrap().is_none());
}
