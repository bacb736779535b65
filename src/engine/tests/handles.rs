//! Handles of a handler, taken out of it for a test; and which of them exist without memory.

use std::sync::{Arc, Mutex};

use helmdeck_core::memory::{Facts, NewFact, NewNote, Notes};
use helmdeck_core::{Builtin, Call, Code, Context, Identity, Json, PackName, Reply, Result};
use helmdeck_engine::Engine;
use helmdeck_memory::{Config as StoreConfig, Store};
use helmdeck_testkit::{
    Fault, FaultyStore, ManualClock, call, function, keyring, manifest, patient,
};

use crate::support::EngineFixture;

/// What handlers were given, the last one last.
pub(crate) type Given = Arc<Mutex<Vec<Context>>>;

/// A pack that hands its context out, and calls another pack if its input names one.
pub(crate) fn probe(name: &str, memory: &str) -> (Builtin, Given) {
    let given = Given::default();
    let taken = Arc::clone(&given);
    let (pack, _) = function(
        &manifest(name, "read_only = true", memory),
        move |context, input: Json| {
            taken.lock().unwrap().push(context.clone());
            async move {
                if let Some(other) = input.to_value()["call"].as_str() {
                    context.call(other, Json::parse("{}").unwrap()).await?;
                }
                Ok(Reply::json(Json::parse("{}").unwrap()))
            }
        },
    );
    (pack, given)
}

/// Makes a caller.
pub(crate) fn caller(tenant: &str, user: &str) -> Identity {
    Identity::new(tenant, user).unwrap()
}

/// An engine with a probe, over any store.
pub(crate) struct Probed {
    pub(crate) engine: Engine,
    given: Given,
}

impl Probed {
    /// Over a sealed store in memory.
    pub(crate) async fn new() -> (Self, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let store = helmdeck_testkit::sealed_memory(Arc::clone(&clock) as _).await;
        (Self::over(store, &clock), clock)
    }

    /// Over this store.
    pub(crate) fn over(store: Arc<dyn Store>, clock: &Arc<ManualClock>) -> Self {
        Self::with(store, clock, Vec::new())
    }

    /// Over this store, with more packs.
    pub(crate) fn with(
        store: Arc<dyn Store>,
        clock: &Arc<ManualClock>,
        packs: Vec<Builtin>,
    ) -> Self {
        let (probe, given) = probe("t.probe", "");
        let memory = helmdeck_engine::Memory {
            store,
            keyring: Arc::new(keyring()),
            system: None,
        };
        let packs = packs.into_iter().chain([probe]).collect();
        let engine = Engine::builder(patient())
            .builtins(packs)
            .memory(memory)
            .clock(Arc::clone(clock) as _)
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        Self { engine, given }
    }

    /// Returns the context that the handler gets for a caller.
    pub(crate) async fn context(&self, identity: Identity) -> Context {
        self.engine
            .call(Call::new(
                PackName::new("t.probe").unwrap(),
                "{}",
                Arc::new(identity),
            ))
            .await
            .unwrap();
        self.given.lock().unwrap().pop().unwrap()
    }

    pub(crate) async fn facts(&self, identity: Identity) -> Facts {
        self.context(identity).await.facts().unwrap()
    }

    pub(crate) async fn notes(&self, identity: Identity) -> Notes {
        self.context(identity).await.memory().unwrap()
    }
}

/// A fact with nothing but a key and a value.
pub(crate) fn fact(key: &str, value: &str) -> NewFact {
    NewFact {
        key: key.to_owned(),
        value: value.to_owned(),
        ..NewFact::default()
    }
}

fn reason(context: &Context) -> Result<(), Code> {
    assert_eq!(context.memory().is_some(), context.facts().is_ok());
    context.facts().map(|_| ()).map_err(|error| error.code())
}

#[tokio::test]
async fn shut_gate_gives_no_notes_and_explains_facts() {
    let (pack, given) = probe("t.probe", "");
    let engine = EngineFixture::shut(vec![pack]);
    engine.run("t.probe", "{}").await;
    let context = given.lock().unwrap().pop().unwrap();
    assert_eq!(reason(&context), Err(Code::NotFound));
    assert_eq!(
        context.facts().unwrap_err().message(),
        "memory is off: this engine has no memory key"
    );
}

#[tokio::test]
async fn an_anonymous_caller_has_no_memory() {
    let (probed, _) = Probed::new().await;
    assert_eq!(
        reason(&probed.context(Identity::anonymous()).await),
        Err(Code::Unauthenticated)
    );
    assert_eq!(reason(&probed.context(Identity::local()).await), Ok(()));
    let memory = probed.engine.memory().unwrap();
    assert_eq!(
        memory
            .facts(&Arc::new(Identity::anonymous()))
            .unwrap_err()
            .code(),
        Code::Unauthenticated
    );
}

#[tokio::test]
async fn shared_packs_and_their_callees_get_no_memory() {
    let scoped = |name: &str, scope: &str| {
        probe(
            name,
            &format!("[memory]\ncache = true\nttl = \"60s\"\nscope = \"{scope}\""),
        )
    };
    let (shared, in_shared) = scoped("t.shared", "shared");
    let (session, in_session) = scoped("t.session", "session");
    let (own, in_own) = scoped("t.caller", "caller");
    let (plain, in_plain) = probe("t.plain", "");
    let engine = EngineFixture::open(vec![shared, session, own, plain]).await;
    let last = |given: &Given| reason(&given.lock().unwrap().pop().unwrap());

    let mut in_conversation = call("t.session", "{}");
    in_conversation.identity = Arc::new(Identity::local().with_session("s").unwrap());
    engine.call(in_conversation).await.unwrap();
    engine.run("t.caller", r#"{"call":"t.plain"}"#).await;
    assert_eq!(
        (last(&in_session), last(&in_own), last(&in_plain)),
        (Ok(()), Ok(()), Ok(()))
    );

    engine.run("t.shared", r#"{"call":"t.plain"}"#).await;
    assert_eq!(
        (last(&in_shared), last(&in_plain)),
        (Err(Code::Forbidden), Err(Code::Forbidden))
    );
    let own = engine.call(call("t.caller", "{}")).await.unwrap();
    assert_eq!(
        (own.cache.unwrap().status, last(&in_own)),
        (helmdeck_core::CacheStatus::Miss, Ok(()))
    );
    engine.run("t.shared", r#"{"call":"t.caller"}"#).await;
    last(&in_shared).unwrap_err();
    assert_eq!(
        last(&in_own),
        Err(Code::Forbidden),
        "a caller's cached answer is not part of what all share"
    );
    // Also where nothing is cached, so that the answer does not depend on the directive.
    let mut bypass = call("t.shared", "{}");
    bypass.directive = helmdeck_core::Directive::Bypass;
    engine.call(bypass).await.unwrap();
    assert_eq!(last(&in_shared), Err(Code::Forbidden));
}

#[tokio::test]
async fn failing_store_errors_are_typed_without_cause() {
    let clock = Arc::new(ManualClock::default());
    let faulty = FaultyStore::new(helmdeck_testkit::sealed_memory(Arc::clone(&clock) as _).await);
    let probed = Probed::over(Arc::clone(&faulty) as _, &clock);
    let (facts, notes) = (
        probed.facts(Identity::local()).await,
        probed.notes(Identity::local()).await,
    );
    facts.store(fact("k", "v")).await.unwrap();
    faulty.set(Fault::All);
    let all = helmdeck_core::memory::Forget {
        all: true,
        ..Default::default()
    };
    let errors = [
        facts.store(fact("k", "w")).await.unwrap_err(),
        facts.recall(Default::default()).await.unwrap_err(),
        facts.list(Default::default()).await.unwrap_err(),
        facts.forget(all).await.unwrap_err(),
        notes.store(NewNote::new("k", "v")).await.unwrap_err(),
        notes.recall("k").await.unwrap_err(),
        notes.list("", 10, None).await.unwrap_err(),
        notes.delete("k").await.unwrap_err(),
        notes.context().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            (error.code(), error.message()),
            (Code::Overloaded, "the memory store is not available")
        );
        assert!(
            error.retry_after().is_some()
                && !error.problem().to_string().contains("injected failure")
        );
    }
    faulty.set(Fault::None);
    let kept = facts.recall(Default::default()).await.unwrap();
    assert_eq!(kept.facts[0].value, "v", "what failed changed nothing");
}

#[tokio::test]
async fn full_namespace_refuses_and_keeps_entries() {
    let clock = Arc::new(ManualClock::default());
    let mut config = StoreConfig::default();
    config.limits.rows = 2;
    let store = helmdeck_memory::open("memory:", keyring(), config, Arc::clone(&clock) as _)
        .await
        .unwrap();
    let probed = Probed::over(store, &clock);
    let (facts, notes) = (
        probed.facts(Identity::local()).await,
        probed.notes(Identity::local()).await,
    );
    for key in ["a", "b"] {
        facts.store(fact(key, "v")).await.unwrap();
        notes.store(NewNote::new(key, "v")).await.unwrap();
    }
    assert_eq!(
        facts.store(fact("c", "v")).await.unwrap_err().code(),
        Code::ResourceExhausted
    );
    assert_eq!(
        notes
            .store(NewNote::new("c", "v"))
            .await
            .unwrap_err()
            .code(),
        Code::ResourceExhausted
    );
    assert_eq!(
        facts.store(fact("b", "w")).await.unwrap().version,
        2,
        "a replacement needs no room"
    );
    assert_eq!(facts.list(Default::default()).await.unwrap().facts.len(), 2);
    probed
        .facts(caller("local", "bob"))
        .await
        .store(fact("c", "v"))
        .await
        .unwrap();
}
