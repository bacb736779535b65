//! Forgetting, and what facts cannot reach: cached answers and the audit.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use helmdeck_core::memory::{Forget, Forgotten, ListFacts, MemoryPart, NewFact, NewNote};
use helmdeck_core::{CacheStatus, Call, Code, Identity, PackName};
use helmdeck_engine::{AuditPage, CallFilter, MemoryControl, PastCall};
use helmdeck_memory::audit::{AuditFinding, verify};
use helmdeck_memory::{Delete, Kind, Limits, Namespace, Order, Page, Put, Restore};
use helmdeck_testkit::{ManualClock, sealed_memory};
use serde_json::json;

use crate::handles::{Probed, caller, fact};
use crate::support::{echo, status};

fn request(text: serde_json::Value) -> Forget {
    serde_json::from_value(text).unwrap()
}

fn removed(forgotten: &Forgotten) -> Vec<(MemoryPart, u64)> {
    assert!(!forgotten.pending);
    forgotten.removed.clone().into_iter().collect()
}

async fn echoing() -> Probed {
    let clock = Arc::new(ManualClock::default());
    Probed::with(
        sealed_memory(Arc::clone(&clock) as _).await,
        &clock,
        vec![echo("").0],
    )
}

async fn ask(probed: &Probed, identity: &Identity) -> CacheStatus {
    let call = Call::new(
        PackName::new("t.echo").unwrap(),
        "{}",
        Arc::new(identity.clone()),
    );
    let outcome = probed.engine.call(call).await.unwrap();
    probed.engine.memory().unwrap().flush().await;
    status(&outcome)
}

/// Returns past calls of a caller.
async fn calls(memory: &MemoryControl, caller: &Namespace) -> Vec<PastCall> {
    memory
        .calls(
            caller,
            CallFilter {
                limit: 100,
                ..CallFilter::default()
            },
        )
        .await
        .unwrap()
        .calls
}

#[tokio::test]
async fn forget_by_key_category_or_all_of_a_caller() {
    let (probed, _) = Probed::new().await;
    let (facts, others) = (
        probed.facts(Identity::local()).await,
        probed.facts(caller("local", "bob")).await,
    );
    for key in ["g", "gh", "g/h", "G", "g%"] {
        facts
            .store(NewFact {
                category: Some(format!("c{}", key.len())),
                ..fact(key, "v")
            })
            .await
            .unwrap();
        others.store(fact(key, "v")).await.unwrap();
    }
    let keys = || async {
        let mut keys: Vec<String> = facts
            .list(ListFacts::default())
            .await
            .unwrap()
            .facts
            .into_iter()
            .map(|fact| fact.key)
            .collect();
        keys.sort();
        keys
    };
    let forget = |text| facts.forget(request(text));
    assert_eq!(
        removed(&forget(json!({"key": "g"})).await.unwrap()),
        [(MemoryPart::Facts, 1)]
    );
    assert_eq!(keys().await, ["G", "g%", "g/h", "gh"]);
    for nothing in [
        json!({"key": "g"}),
        json!({"key": "g%h"}),
        json!({"category": "c"}),
        json!({"category": "C2"}),
    ] {
        assert_eq!(
            removed(&forget(nothing.clone()).await.unwrap()),
            [(MemoryPart::Facts, 0)],
            "{nothing}"
        );
    }
    assert_eq!(
        removed(&forget(json!({"category": "c2"})).await.unwrap()),
        [(MemoryPart::Facts, 2)]
    );
    assert_eq!(keys().await, ["G", "g/h"]);
    assert_eq!(
        removed(&forget(json!({"all": true})).await.unwrap()),
        [(MemoryPart::Facts, 2)]
    );
    assert!(keys().await.is_empty());
    assert_eq!(
        others.list(ListFacts::default()).await.unwrap().facts.len(),
        5,
        "somebody else's stay"
    );
    for vague in [
        json!({}),
        json!({"key": "a", "all": true}),
        json!({"key": " "}),
        json!({"all": true, "what": []}),
    ] {
        assert_eq!(
            forget(vague.clone()).await.unwrap_err().code(),
            Code::InvalidInput,
            "{vague}"
        );
    }
}

#[tokio::test]
async fn a_category_of_thousands_goes_whole() {
    let (probed, _) = Probed::new().await;
    let notes = probed.notes(Identity::local()).await;
    for n in 0..1300 {
        let category = if n % 13 == 0 { "stays" } else { "goes" };
        notes
            .store(NewNote::new(format!("k{n}"), "v").with_category(category))
            .await
            .unwrap();
    }
    let facts = probed.facts(Identity::local()).await;
    let forgotten = facts
        .forget(request(json!({"category": "goes", "what": ["notes"]})))
        .await
        .unwrap();
    assert_eq!(removed(&forgotten), [(MemoryPart::Notes, 1200)]);
    assert_eq!(notes.list("", 1000, None).await.unwrap().notes.len(), 100);
}

#[tokio::test]
async fn each_part_is_deleted_only_when_named() {
    let probed = echoing().await;
    let (me, bob) = (Identity::local(), caller("local", "bob"));
    for identity in [&me, &bob] {
        let in_conversation = identity.clone().with_session("s").unwrap();
        let notes = probed.notes(in_conversation).await;
        notes.store(NewNote::new("n", "v")).await.unwrap();
        notes
            .session()
            .unwrap()
            .store(NewNote::new("n", "v"))
            .await
            .unwrap();
        probed
            .facts(identity.clone())
            .await
            .store(fact("f", "v"))
            .await
            .unwrap();
        assert_eq!(
            (ask(&probed, identity).await, ask(&probed, identity).await),
            (CacheStatus::Miss, CacheStatus::Hit)
        );
    }
    let memory = probed.engine.memory().unwrap().clone();
    let facts = memory.facts(&Arc::new(me.clone())).unwrap();
    let forgotten = facts.forget(request(json!({"all": true}))).await.unwrap();
    assert_eq!(removed(&forgotten), [(MemoryPart::Facts, 1)]);
    assert_eq!(
        ask(&probed, &me).await,
        CacheStatus::Hit,
        "facts alone were asked for"
    );

    let forgotten = facts
        .forget(request(json!({"all": true, "what": ["notes", "cache"]})))
        .await
        .unwrap();
    assert_eq!(
        removed(&forgotten),
        [(MemoryPart::Notes, 2), (MemoryPart::Cache, 1)]
    );
    let own = Namespace::of_caller(&me);
    assert!(!calls(&memory, &own).await.is_empty());
    assert_eq!(ask(&probed, &me).await, CacheStatus::Miss);
    assert_eq!(
        ask(&probed, &bob).await,
        CacheStatus::Hit,
        "somebody else's stay"
    );

    let rows = |answer: Forgotten| removed(&answer)[0].1;
    for audit in [
        json!({"all": true, "what": ["facts", "audit"]}),
        json!({"pack": "t.probe", "what": ["audit"]}),
    ] {
        probed
            .facts(me.clone())
            .await
            .store(fact("f", "v"))
            .await
            .unwrap();
        let refused = facts.forget(request(audit)).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Code::Forbidden,
            "the audit is the operator's: {refused}"
        );
        assert_eq!(
            facts.list(ListFacts::default()).await.unwrap().facts.len(),
            1,
            "nothing was done"
        );
    }
    let facts = memory
        .facts_of_administrator(&Arc::new(me.clone()))
        .unwrap();
    assert!(
        rows(
            facts
                .forget(request(json!({"pack": "t.probe", "what": ["audit"]})))
                .await
                .unwrap()
        ) > 0
    );
    let left = calls(&memory, &own).await;
    assert!(left.iter().all(|call| call.pack.as_str() == "t.echo") && !left.is_empty());
    assert!(
        rows(
            facts
                .forget(request(json!({"all": true, "what": ["audit"]})))
                .await
                .unwrap()
        ) > 0
    );
    assert_eq!(calls(&memory, &own).await, []);
    assert!(!calls(&memory, &Namespace::of_caller(&bob)).await.is_empty());
}

#[tokio::test]
async fn forgetting_conversations_clears_caches_before_and_after() {
    let (probed, _) = Probed::new().await;
    let me = Identity::local();
    let memory = probed.engine.memory().unwrap().clone();
    let whose = [
        ("local", "local"),
        ("local", "bob"),
        ("else", "local"),
        ("local", "local|a"),
    ];
    for (tenant, user) in whose {
        for session in [None, Some("a"), Some("b|c")] {
            for kind in [Kind::Conversation, Kind::Note] {
                for key in ["~head", "turn/1"] {
                    let namespace = Namespace::new(tenant, user, session);
                    memory
                        .store()
                        .put(Put::new(namespace, kind, key, "value"))
                        .await
                        .unwrap();
                }
            }
        }
    }
    let rows = |namespace: Namespace, kind| {
        let store = Arc::clone(memory.store());
        async move {
            store
                .list(&namespace, kind, "", Page::default())
                .await
                .unwrap()
                .entries
                .len()
        }
    };
    let (told, store) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(memory.store()));
    let seen = Arc::clone(&told);
    memory.on_forgotten_conversations(move |identity| {
        // A holder must not block, so it looks at the rows without waiting: a store in memory
        // answers at once.
        let namespace = Namespace::new(identity.tenant(), identity.user(), Some("a"));
        let entry = store
            .get(&namespace, Kind::Conversation, "~head")
            .now_or_never();
        seen.lock().unwrap().push((
            identity.user().to_owned(),
            entry.unwrap().unwrap().is_some(),
        ));
    });

    let facts = memory.facts(&Arc::new(me)).unwrap();
    let forgotten = facts
        .forget(request(json!({"all": true, "what": ["conversations"]})))
        .await
        .unwrap();
    assert_eq!(removed(&forgotten), [(MemoryPart::Conversations, 6)]);
    assert_eq!(
        *told.lock().unwrap(),
        [("local".to_owned(), true), ("local".to_owned(), false)]
    );
    for (tenant, user) in whose {
        for session in [None, Some("a"), Some("b|c")] {
            let namespace = Namespace::new(tenant, user, session);
            let gone = (tenant, user) == ("local", "local");
            assert_eq!(
                rows(namespace.clone(), Kind::Conversation).await,
                if gone { 0 } else { 2 },
                "{namespace:?}"
            );
            assert_eq!(
                rows(namespace, Kind::Note).await,
                2,
                "notes were not asked for"
            );
        }
    }
    let again = facts
        .forget(request(json!({"all": true, "what": ["conversations"]})))
        .await
        .unwrap();
    assert_eq!(removed(&again), [(MemoryPart::Conversations, 0)]);
}

#[tokio::test]
async fn facts_and_notes_cannot_plant_other_kinds() {
    let probed = echoing().await;
    let me = Identity::local();
    let own = Namespace::of_caller(&me);
    let memory = probed.engine.memory().unwrap().clone();
    assert_eq!(ask(&probed, &me).await, CacheStatus::Miss);
    let stored = memory
        .store()
        .list(&own, Kind::Cache, "", Page::default())
        .await
        .unwrap()
        .entries
        .pop()
        .unwrap();
    let answer = memory
        .store()
        .get(&own, Kind::Cache, &stored.key)
        .await
        .unwrap()
        .unwrap();
    calls(&memory, &own).await;
    let row = memory
        .store()
        .scan(&own, Kind::Audit, "", Order::KeyDescending, 1)
        .await
        .unwrap()
        .entries
        .pop()
        .unwrap();
    let mut page: AuditPage = serde_json::from_slice(&row.value).unwrap();
    page.pack = PackName::new("evil.pack").unwrap();

    let facts = memory
        .facts_of_administrator(&Arc::new(me.clone()))
        .unwrap();
    facts
        .forget(request(json!({"all": true, "what": ["cache", "audit"]})))
        .await
        .unwrap();
    let (facts, notes) = (
        probed.facts(me.clone()).await,
        probed.notes(me.clone()).await,
    );
    let administrator = memory
        .facts_of_administrator(&Arc::new(me.clone()))
        .unwrap();
    administrator
        .forget(request(json!({"all": true, "what": ["audit"]})))
        .await
        .unwrap();
    let planted = serde_json::to_string(&page).unwrap();
    for key in [
        "pack/evil.pack/00000001767225600000000-000000-00000000",
        "pack/x/1",
    ] {
        facts
            .store(NewFact {
                category: Some("pack".into()),
                ..fact(key, &planted)
            })
            .await
            .unwrap();
        notes
            .store(NewNote::new(key, planted.clone()).with_category("pack"))
            .await
            .unwrap();
    }
    facts
        .store(fact(&stored.key, &String::from_utf8_lossy(&answer.value)))
        .await
        .unwrap();
    notes
        .store(NewNote::new(stored.key.clone(), answer.value.clone()).with_category("cache"))
        .await
        .unwrap();

    assert_eq!(calls(&memory, &own).await, []);
    assert_eq!(ask(&probed, &me).await, CacheStatus::Miss);
}

#[tokio::test]
async fn past_calls_are_those_of_their_caller() {
    let probed = echoing().await;
    let (me, bob) = (caller("t", "me"), caller("u", "me"));
    ask(&probed, &me).await;
    let memory = probed.engine.memory().unwrap();
    let mine = calls(memory, &Namespace::of_caller(&me)).await;
    assert_eq!(
        (mine.len(), mine[0].pack.as_str(), mine[0].cache.as_deref()),
        (1, "t.echo", Some("miss"))
    );
    assert_eq!(calls(memory, &Namespace::of_caller(&bob)).await, []);
    ask(&probed, &bob).await;
    assert_eq!(calls(memory, &Namespace::of_caller(&me)).await, mine);
}

#[tokio::test]
async fn forgotten_fact_that_is_put_back_is_left_out() {
    let (probed, _) = Probed::new().await;
    let (facts, own) = (
        probed.facts(Identity::local()).await,
        Namespace::of_caller(&Identity::local()),
    );
    for key in ["g", "h"] {
        facts.store(fact(key, "v")).await.unwrap();
    }
    let store = Arc::clone(probed.engine.memory().unwrap().store());
    let (other, shared) = (
        caller("local", "bob"),
        store.get(&own, Kind::Fact, "g").await.unwrap().unwrap(),
    );
    probed
        .facts(other.clone())
        .await
        .store(fact("g", "bob's"))
        .await
        .unwrap();
    for forget in [
        json!({"key": "g"}),
        json!({"category": shared.meta.category}),
        json!({"all": true}),
    ] {
        facts.store(fact("g", "v")).await.unwrap();
        let old = store.get(&own, Kind::Fact, "g").await.unwrap().unwrap();
        facts.forget(request(forget.clone())).await.unwrap();
        facts.store(fact("h", "v")).await.unwrap();
        // As it was, with all that its seal binds.
        let meta = old.meta;
        let mut put = Put::new(own.clone(), Kind::Fact, "g", old.value);
        (put.category, put.tags, put.attributes) = (meta.category, meta.tags, meta.attributes);
        put.restore = Some(Restore {
            version: meta.version,
            created_at: meta.created_at,
            updated_at: meta.updated_at,
            expires_at: meta.expires_at,
        });
        store.put(put).await.unwrap();
        let of_key = facts
            .recall(serde_json::from_value(json!({"key": "g"})).unwrap())
            .await
            .unwrap();
        assert_eq!((of_key.facts.len(), of_key.unreadable), (0, 1), "{forget}");
        let all = facts
            .recall(serde_json::from_value(json!({})).unwrap())
            .await
            .unwrap();
        assert_eq!(
            (
                all.facts[0].about.key.as_str(),
                all.facts.len(),
                all.unreadable
            ),
            ("h", 1, 1),
            "{forget}"
        );
        let listed = facts.list(ListFacts::default()).await.unwrap().facts;
        assert_eq!(
            listed
                .iter()
                .map(|about| about.key.as_str())
                .collect::<Vec<_>>(),
            ["h"],
            "{forget}"
        );
    }
    facts.store(fact("g", "new")).await.unwrap();
    let again = facts
        .recall(serde_json::from_value(json!({"key": "g"})).unwrap())
        .await
        .unwrap();
    assert_eq!(again.facts[0].value, "new");
    let others = probed
        .facts(other)
        .await
        .list(ListFacts::default())
        .await
        .unwrap();
    assert_eq!(others.facts.len(), 1, "somebody else's stay");
}

#[tokio::test]
async fn calls_are_chained_and_an_administrators_removal_is_no_cut() {
    let probed = echoing().await;
    let (me, bob) = (Identity::local(), caller("local", "bob"));
    let memory = probed.engine.memory().unwrap().clone();
    for _ in 0..3 {
        for identity in [&me, &bob] {
            ask(&probed, identity).await;
            calls(&memory, &Namespace::of_caller(identity)).await;
        }
    }
    let (store, clock) = (Arc::clone(memory.store()), ManualClock::default());
    let limit = Limits::default().quota(Kind::Audit);
    let look = || async { verify(&*store, limit, &clock).await.unwrap() };
    let whole = look().await;
    assert!(
        whole.is_whole() && whole.callers.iter().all(|caller| caller.entries == 3),
        "{whole:?}"
    );

    let administrator = memory
        .facts_of_administrator(&Arc::new(me.clone()))
        .unwrap();
    let gone = administrator
        .forget(request(json!({"all": true, "what": ["audit"]})))
        .await
        .unwrap();
    assert_eq!(removed(&gone), [(MemoryPart::Audit, 3)]);
    ask(&probed, &me).await;
    calls(&memory, &Namespace::of_caller(&me)).await;
    let after = look().await;
    assert!(after.is_whole(), "{after:?}");
    assert_eq!(
        (after.removed[0].by.as_str(), after.removed[0].calls),
        ("local/local", 3)
    );

    let rows = store
        .list(
            &Namespace::of_caller(&bob),
            Kind::Audit,
            "",
            Page::default(),
        )
        .await
        .unwrap()
        .entries;
    let key = rows
        .into_iter()
        .min_by(|one, other| one.key.cmp(&other.key))
        .unwrap()
        .key;
    store
        .delete(Delete::Key {
            namespace: Namespace::of_caller(&bob),
            kind: Kind::Audit,
            key,
        })
        .await
        .unwrap();
    let cut = look().await;
    let findings: Vec<_> = cut
        .callers
        .iter()
        .flat_map(|caller| &caller.findings)
        .collect();
    assert_eq!(findings, [&AuditFinding::Missing { from: 1, to: 1 }]);
}
