//! Notes, through the handle of a handler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::memory::{NewNote, Notes};
use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Code, Identity, Json, PackName, Reply, Result, Secret};
use helmdeck_engine::Engine;
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};

use crate::handles::{Probed, caller, fact};

async fn value(notes: &Notes, key: &str) -> Option<String> {
    let note = notes.recall(key).await.unwrap()?;
    Some(String::from_utf8(note.value.to_vec()).unwrap())
}

async fn keys(notes: &Notes, prefix: &str) -> Vec<String> {
    notes
        .list(prefix, 1000, None)
        .await
        .unwrap()
        .notes
        .into_iter()
        .map(|note| note.key)
        .collect()
}

#[tokio::test]
async fn note_lives_until_expiry_or_delete_with_writer() {
    let (probed, clock) = Probed::new().await;
    let notes = probed.notes(Identity::local()).await;
    let hour = Duration::from_secs(3600);
    let about = notes
        .store(
            NewNote::new("t.probe/seen", "1")
                .with_category("seen")
                .with_ttl(hour),
        )
        .await
        .unwrap();
    assert_eq!(
        (about.version, about.category.as_str(), about.called_by),
        (1, "seen", None)
    );
    assert_eq!(about.pack.unwrap().as_str(), "t.probe");
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        notes
            .store(NewNote::new("t.probe/seen", "2").with_ttl(hour))
            .await
            .unwrap()
            .version,
        2
    );
    notes
        .store(NewNote::new("t.probe/ever", vec![0, 255]))
        .await
        .unwrap();
    assert_eq!(value(&notes, "t.probe/seen").await.as_deref(), Some("2"));
    assert_eq!(
        keys(&notes, "t.probe/").await,
        ["t.probe/ever", "t.probe/seen"]
    );
    assert_eq!(keys(&notes, "t.probe/s").await, ["t.probe/seen"]);
    assert!(!notes.delete("t.probe/").await.unwrap(), "a key is exact");
    assert_eq!(
        notes.list("", 0, None).await.unwrap_err().code(),
        Code::InvalidInput
    );

    clock.advance(hour);
    assert_eq!(value(&notes, "t.probe/seen").await, None);
    assert_eq!(
        &notes.recall("t.probe/ever").await.unwrap().unwrap().value[..],
        [0, 255]
    );
    assert!(notes.delete("t.probe/ever").await.unwrap());
    assert!(!notes.delete("t.probe/ever").await.unwrap());
    assert!(keys(&notes, "").await.is_empty());
    assert_eq!(
        notes.store(NewNote::new("", "v")).await.unwrap_err().code(),
        Code::InvalidInput
    );
    assert_eq!(
        notes
            .store(NewNote::new("k".repeat(1025), "v"))
            .await
            .unwrap_err()
            .code(),
        Code::TooLarge
    );
}

#[tokio::test]
async fn notes_are_isolated_per_caller_and_tenant() {
    let (probed, _) = Probed::new().await;
    let mut all = Vec::new();
    for (tenant, user) in [
        ("t", "alice"),
        ("t", "bob"),
        ("u", "alice"),
        ("t", "alice:x"),
        ("t:alice", "x"),
    ] {
        let notes = probed.notes(caller(tenant, user)).await;
        notes
            .store(NewNote::new("k", format!("{tenant}|{user}")))
            .await
            .unwrap();
        all.push((format!("{tenant}|{user}"), notes));
    }
    for (own, notes) in &all {
        assert_eq!(value(notes, "k").await.as_ref(), Some(own));
        assert_eq!(keys(notes, "").await, ["k"]);
        assert_eq!(
            notes.context().await.unwrap().categories["uncategorized"].len(),
            1
        );
    }
    assert!(all[0].1.delete("k").await.unwrap());
    for (own, notes) in &all[1..] {
        assert_eq!(value(notes, "k").await.as_ref(), Some(own));
    }
}

#[tokio::test]
async fn conversation_notes_need_a_conversation() {
    let (probed, _) = Probed::new().await;
    let of = |session: &str| probed.notes(Identity::local().with_session(session).unwrap());
    assert!(probed.notes(Identity::local()).await.session().is_none());
    let (one, two) = (of("one").await, of("two").await);
    let (in_one, in_two) = (one.session().unwrap(), two.session().unwrap());
    one.store(NewNote::new("k", "caller")).await.unwrap();
    in_one.store(NewNote::new("k", "one")).await.unwrap();
    assert_eq!(
        value(&two, "k").await.as_deref(),
        Some("caller"),
        "notes are the caller's unless narrowed"
    );
    assert_eq!(value(&in_one, "k").await.as_deref(), Some("one"));
    assert_eq!(value(&in_two, "k").await, None);
    assert!(in_one.delete("k").await.unwrap());
    assert_eq!(value(&one, "k").await.as_deref(), Some("caller"));
    let other = probed
        .notes(caller("local", "bob").with_session("one").unwrap())
        .await
        .session()
        .unwrap();
    in_one.store(NewNote::new("k", "one")).await.unwrap();
    assert_eq!(
        value(&other, "k").await,
        None,
        "the same name of a conversation is another caller's"
    );
}

#[tokio::test]
async fn context_has_newest_notes_of_each_category() {
    let (probed, clock) = Probed::new().await;
    let notes = probed.notes(Identity::local()).await;
    notes
        .store(NewNote::new("rare", "v").with_category("rare"))
        .await
        .unwrap();
    notes.store(NewNote::new("plain", "v")).await.unwrap();
    for n in 0..1100 {
        clock.advance(Duration::from_millis(1));
        notes
            .store(NewNote::new(format!("busy{n:04}"), "v").with_category("busy"))
            .await
            .unwrap();
    }
    let facts = probed.facts(Identity::local()).await;
    facts.store(fact("fact", "v")).await.unwrap();
    let context = notes.context().await.unwrap();
    let shown: BTreeMap<&str, usize> = context
        .categories
        .iter()
        .map(|(name, all)| (name.as_str(), all.len()))
        .collect();
    assert_eq!(
        shown,
        BTreeMap::from([("busy", 50), ("rare", 1), ("uncategorized", 1)])
    );
    assert!(!context.truncated);
    let newest: Vec<&str> = context.categories["busy"]
        .iter()
        .map(|note| note.key.as_str())
        .collect();
    assert_eq!((newest[0], newest[49]), ("busy1099", "busy1050"));
}

#[derive(Debug)]
struct OneSecret;

impl Secrets for OneSecret {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Ok(Some(Grant {
            name: name.to_owned(),
            version: 1,
        }))
    }

    fn reveal(&self, _: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        Ok(Secret::new("s3cr3t-token".to_owned()))
    }

    fn generation(&self) -> u64 {
        0
    }
}

#[tokio::test]
async fn secrets_are_redacted_in_values_refused_in_names() {
    let clock = Arc::new(ManualClock::default());
    let text = manifest("t.keeper", "credentials = [\"token\"]", "");
    let (pack, _) = function(&text, |context, _| async move {
        let token = context.credential()?.unwrap();
        let notes = context.memory().unwrap();
        let value = format!("Bearer {}", token.expose());
        notes.store(NewNote::new("k", value.clone())).await?;
        context.facts()?.store(fact("k", &value)).await?;
        let kept = notes.recall("k").await?.unwrap();
        assert_eq!(&kept.value[..], b"Bearer [secret]");
        assert_eq!(
            context.facts()?.recall(Default::default()).await?.facts[0].value,
            "Bearer [secret]"
        );
        let refused = [
            notes
                .store(NewNote::new(token.expose(), "v"))
                .await
                .unwrap_err(),
            notes
                .store(NewNote::new("k", "v").with_category(token.expose()))
                .await
                .unwrap_err(),
            context
                .facts()?
                .store(fact(token.expose(), "v"))
                .await
                .unwrap_err(),
        ];
        assert!(
            refused
                .iter()
                .all(|error| error.code() == Code::InvalidInput)
        );
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let builder = Engine::builder(patient())
        .builtins(vec![pack])
        .secrets(Arc::new(OneSecret));
    let engine = builder
        .memory(memory(Arc::clone(&clock) as _).await)
        .clock(clock)
        .build();
    engine.call(call("t.keeper", "{}")).await.unwrap();
}
