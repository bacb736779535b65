//! Test cases about deletes, sweeps, and the generation that reports them.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use super::Fixture;
use super::lists::{alice, keys, put};
use crate::entry::{Kind, Namespace, Reach};
use crate::ops::{Delete, Put};

fn one(key: &str) -> Delete {
    Delete::Key {
        namespace: alice(),
        kind: Kind::Note,
        key: key.into(),
    }
}

fn prefix(prefix: &str) -> Delete {
    Delete::Prefix {
        namespace: Some(alice()),
        kind: Some(Kind::Note),
        prefix: prefix.into(),
    }
}

fn tagged(namespace: Option<Namespace>, tag: &str) -> Delete {
    let whose = namespace.map_or(Reach::Everybody, Reach::One);
    Delete::Tagged {
        whose,
        kind: Kind::Note,
        tag: tag.into(),
    }
}

pub(super) async fn delete_removes_one_and_absent_is_no_error(s: Fixture) {
    s.store.put(put("a", "v")).await.unwrap();
    s.store.put(put("b", "v")).await.unwrap();
    assert_eq!(s.store.delete(one("a")).await.unwrap(), 1);
    assert_eq!(s.store.get(&alice(), Kind::Note, "a").await.unwrap(), None);
    assert_eq!(s.store.delete(one("a")).await.unwrap(), 0);
    assert_eq!(s.store.delete(one("never")).await.unwrap(), 0);
    assert_eq!(keys(&s).await, ["b"]);
    assert_eq!(
        s.store.put(put("a", "v")).await.unwrap().version,
        1,
        "it starts anew"
    );
    assert_eq!(s.store.delete(prefix("")).await.unwrap(), 2);
    assert!(s.store.namespaces().await.unwrap().is_empty());
}

pub(super) async fn prefix_delete_is_literal_within_its_namespace(s: Fixture) {
    let bob = Namespace::new("t", "bob", None);
    let session = Namespace::new("t", "alice", Some("s"));
    for key in ["a_b", "aXb", "A_B", "a%b", "a_b/c"] {
        s.store.put(put(key, "v")).await.unwrap();
        s.store
            .put(Put::new(bob.clone(), Kind::Note, key, "v"))
            .await
            .unwrap();
        s.store
            .put(Put::new(session.clone(), Kind::Note, key, "v"))
            .await
            .unwrap();
        s.store
            .put(Put::new(alice(), Kind::Cache, key, "v"))
            .await
            .unwrap();
    }
    assert_eq!(s.store.delete(prefix("a_")).await.unwrap(), 2);
    assert_eq!(keys(&s).await, ["A_B", "a%b", "aXb"]);
    assert_eq!(s.store.delete(prefix("a%")).await.unwrap(), 1);
    assert_eq!(s.store.delete(prefix("")).await.unwrap(), 2);
    assert_eq!(s.store.delete(prefix("")).await.unwrap(), 0);
    assert_eq!(
        s.store.stats().await.unwrap().rows,
        15,
        "no other namespace lost a row"
    );
}

pub(super) async fn delete_by_prefix_can_mean_everybody_and_every_kind(s: Fixture) {
    for (subject, session) in [("alice", None), ("bob", None), ("alice", Some("s"))] {
        for kind in Kind::ALL {
            for key in ["x/1", "y/1"] {
                s.store
                    .put(Put::new(
                        Namespace::new("t", subject, session),
                        kind,
                        key,
                        "v",
                    ))
                    .await
                    .unwrap();
            }
        }
    }
    let delete = |namespace, kind, prefix: &str| Delete::Prefix {
        namespace,
        kind,
        prefix: prefix.into(),
    };
    assert_eq!(
        s.store
            .delete(delete(None, Some(Kind::Cache), "x/"))
            .await
            .unwrap(),
        3
    );
    assert_eq!(
        s.store
            .delete(delete(Some(alice()), None, "y/"))
            .await
            .unwrap(),
        6
    );
    assert_eq!(s.store.delete(delete(None, None, "")).await.unwrap(), 27);
    assert_eq!(s.store.stats().await.unwrap().bytes, 0);
}

pub(super) async fn delete_by_tag_finds_exactly_that_tag(s: Fixture) {
    let tags = |tags: &[&str]| tags.iter().map(ToString::to_string).collect();
    s.store
        .put(Put {
            tags: tags(&["repo:a/b", "x"]),
            ..put("1", "v")
        })
        .await
        .unwrap();
    s.store
        .put(Put {
            tags: tags(&["repo:a/bc"]),
            ..put("2", "v")
        })
        .await
        .unwrap();
    s.store
        .put(Put {
            tags: tags(&["Repo:a/b", "", "\"q\\"]),
            ..put("3", "v")
        })
        .await
        .unwrap();
    let bob = Namespace::new("t", "bob", None);
    s.store
        .put(Put {
            tags: tags(&["repo:a/b", "repo:a/b"]),
            ..Put::new(bob, Kind::Note, "4", "v")
        })
        .await
        .unwrap();
    s.store
        .put(Put {
            tags: tags(&["repo:a/b"]),
            ..Put::new(alice(), Kind::Cache, "5", "v")
        })
        .await
        .unwrap();
    assert_eq!(
        s.store
            .delete(tagged(Some(alice()), "repo:a/b"))
            .await
            .unwrap(),
        1
    );
    assert_eq!(keys(&s).await, ["2", "3"]);
    assert_eq!(
        s.store.delete(tagged(None, "repo:a/b")).await.unwrap(),
        1,
        "bob's, and not the other kind"
    );
    assert_eq!(s.store.delete(tagged(None, "repo:a")).await.unwrap(), 0);
    assert_eq!(s.store.delete(tagged(None, "\"q\\")).await.unwrap(), 1);
    assert_eq!(s.store.stats().await.unwrap().rows, 2);
}

/// Two tenants with two users each, their conversations, and what each tenant shares.
pub(super) async fn delete_by_tag_reaches_caller_and_shared_entries(s: Fixture) {
    let tenants = ["t", "u"];
    let owners = [
        ("", None),
        ("alice", None),
        ("alice", Some("s")),
        ("alice", Some("")),
        ("bob", None),
        ("bob", Some("s")),
    ];
    for tenant in tenants {
        for (subject, session) in owners {
            for (kind, key, tag) in [
                (Kind::Cache, "k", "repo:a"),
                (Kind::Cache, "other", "repo:b"),
                (Kind::Note, "k", "repo:a"),
            ] {
                let of = Namespace::new(tenant, subject, session);
                s.store
                    .put(Put {
                        tags: vec![tag.into()],
                        ..Put::new(of, kind, key, "v")
                    })
                    .await
                    .unwrap();
            }
        }
    }
    let delete = |tenant: &str, subject: &str| Delete::Tagged {
        whose: Reach::Caller {
            tenant: tenant.into(),
            subject: subject.into(),
        },
        kind: Kind::Cache,
        tag: "repo:a".into(),
    };
    assert_eq!(
        s.store.delete(delete("t", "nobody")).await.unwrap(),
        1,
        "what the tenant shares"
    );
    assert_eq!(s.store.delete(delete("t", "alice")).await.unwrap(), 3);
    for tenant in tenants {
        for (subject, session) in owners {
            let of = Namespace::new(tenant, subject, session);
            let gone = tenant == "t" && subject != "bob";
            let found = s.store.get(&of, Kind::Cache, "k").await.unwrap();
            assert_eq!(found.is_none(), gone, "{of:?}");
            for (kind, key) in [(Kind::Cache, "other"), (Kind::Note, "k")] {
                assert!(
                    s.store.get(&of, kind, key).await.unwrap().is_some(),
                    "{of:?} {kind} {key}"
                );
            }
        }
    }
    assert_eq!(s.store.delete(delete("t", "alice")).await.unwrap(), 0);
    assert_eq!(s.store.delete(delete("v", "alice")).await.unwrap(), 0);
    assert_eq!(s.store.delete(delete("u", "bob")).await.unwrap(), 3);
    assert_eq!(s.store.delete(delete("u", "alice")).await.unwrap(), 3);
}

pub(super) async fn tags_follow_replacements(s: Fixture) {
    s.store
        .put(Put {
            tags: vec!["old".into(), "kept".into()],
            ..put("k", "v")
        })
        .await
        .unwrap();
    s.store
        .put(Put {
            tags: vec!["kept".into(), "new".into()],
            ..put("k", "v")
        })
        .await
        .unwrap();
    assert_eq!(s.store.delete(tagged(None, "old")).await.unwrap(), 0);
    assert_eq!(s.store.delete(tagged(None, "new")).await.unwrap(), 1);
    s.store.put(put("other", "v")).await.unwrap();
    assert_eq!(
        s.store.delete(tagged(None, "kept")).await.unwrap(),
        0,
        "the tag went with its entry"
    );
    assert_eq!(keys(&s).await, ["other"]);
}

pub(super) async fn sweep_deletes_only_expired_entries(s: Fixture) {
    for index in 0..5u64 {
        s.store
            .put(Put {
                ttl: Some(Duration::from_secs(index)),
                ..put(&index.to_string(), "v")
            })
            .await
            .unwrap();
    }
    s.store
        .put(Put {
            tags: vec!["t".into()],
            ..put("for ever", "v")
        })
        .await
        .unwrap();
    s.clock.advance(Duration::from_secs(3));
    assert_eq!(s.store.sweep_expired(0).await.unwrap(), 0);
    assert_eq!(s.store.sweep_expired(3).await.unwrap(), 3, "in batches");
    assert_eq!(s.store.sweep_expired(3).await.unwrap(), 1);
    assert_eq!(s.store.sweep_expired(3).await.unwrap(), 0);
    assert_eq!(keys(&s).await, ["4", "for ever"]);
    let stats = s.store.stats().await.unwrap();
    assert_eq!((stats.rows, stats.expired), (2, 0));
}

pub(super) async fn deletes_raise_the_generation_and_nothing_else_does(s: Fixture) {
    let mut last = s.store.generation().await.unwrap();
    s.store
        .put(Put {
            tags: vec!["t".into()],
            ttl: Some(Duration::from_secs(1)),
            ..put("a", "v")
        })
        .await
        .unwrap();
    s.store.put(put("b", "v")).await.unwrap();
    s.store.put(put("b", "w")).await.unwrap();
    assert_eq!(s.store.generation().await.unwrap(), last);
    for delete in [one("b"), prefix("zz"), tagged(None, "t")] {
        s.store.delete(delete.clone()).await.unwrap();
        let now = s.store.generation().await.unwrap();
        assert!(now > last, "{delete:?}");
        last = now;
    }
    s.store
        .put(Put {
            ttl: Some(Duration::ZERO),
            ..put("c", "v")
        })
        .await
        .unwrap();
    assert_eq!(s.store.sweep_expired(9).await.unwrap(), 1);
    assert_eq!(
        s.store.generation().await.unwrap(),
        last,
        "what was swept was invisible before"
    );
}
