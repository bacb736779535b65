//! Packs that call packs: an answer expires with the credentials that were used for it, at any
//! depth.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{
    CacheStatus, Call, Code, Context, Error, Identity, Json, Outcome, PackName, Reply, Result,
    Secret,
};
use helmdeck_engine::{CacheConfig, Config, Engine, Selector};
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};

use crate::support::{status, with_input};

/// Credentials that can be rotated, removed, and refused to a user.
#[derive(Default)]
struct Safe {
    versions: Mutex<HashMap<String, u64>>,
    refused: Mutex<HashSet<String>>,
    generation: AtomicU64,
}

impl Safe {
    fn set(&self, name: &str, version: Option<u64>) {
        let mut versions = self.versions.lock().unwrap();
        match version {
            Some(version) => versions.insert(name.to_owned(), version),
            None => versions.remove(name),
        };
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn refuse(&self, user: &str, refused: bool) {
        let mut users = self.refused.lock().unwrap();
        let _ = if refused {
            users.insert(user.to_owned())
        } else {
            users.remove(user)
        };
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

impl Secrets for Safe {
    fn grant(&self, name: &str, identity: &Identity, pack: &PackName) -> Result<Option<Grant>> {
        assert_eq!(
            pack.as_str(),
            "t.inner",
            "no other pack has to do with credentials"
        );
        if self.refused.lock().unwrap().contains(identity.user()) {
            return Err(Error::new(Code::Forbidden, "not for this caller"));
        }
        Ok(self
            .versions
            .lock()
            .unwrap()
            .get(name)
            .map(|version| Grant {
                name: name.to_owned(),
                version: *version,
            }))
    }

    fn reveal(&self, grant: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        Ok(Secret::new(format!(
            "secret of {} in version {}",
            grant.name, grant.version
        )))
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }
}

const CACHED: &str = "[memory]\ncache = true\nttl = \"60s\"\nstale_if_error = \"1h\"";

/// Makes the chain `t.outer` (cached), `t.middle`, `t.inner`.
///
/// Each calls the next; `t.inner` returns the version of its credential.
async fn engine(safe: &Arc<Safe>, inner: &str, hot_bytes: u64) -> Engine {
    let top = "read_only = true\ncredentials = [\"main\"]";
    let (inner, _) = function(
        &with_input(&manifest("t.inner", top, inner)),
        |cx: Context, _| async move {
            let version = cx
                .secrets
                .as_ref()
                .unwrap()
                .grants()
                .first()
                .map(|grant| grant.version);
            let _ = cx.credential()?;
            Reply::value(&version)
        },
    );
    let through = |to: &'static str| {
        move |cx: Context, input: Json| async move { Ok(Reply::json(cx.call(to, input).await?.output)) }
    };
    let read_only = "read_only = true";
    let (middle, _) = function(
        &with_input(&manifest("t.middle", read_only, "")),
        through("t.inner"),
    );
    let (outer, _) = function(
        &with_input(&manifest("t.outer", read_only, CACHED)),
        through("t.middle"),
    );
    let clock = Arc::new(ManualClock::default());
    let cache = CacheConfig {
        hot_bytes,
        ..patient().cache
    };
    let builder = Engine::builder(Config {
        cache,
        ..Config::default()
    })
    .builtins(vec![inner, middle, outer]);
    let memory = memory(Arc::clone(&clock) as _).await;
    let engine = builder
        .secrets(Arc::clone(safe) as _)
        .memory(memory)
        .clock(clock)
        .build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    engine
}

fn by(pack: &str, user: &str) -> Call {
    let mut call = call(pack, "{\"repo\":\"a/b\"}");
    call.identity = Arc::new(Identity::new("t", user).unwrap());
    call
}

fn said(outcome: &Outcome) -> (CacheStatus, &str) {
    (status(outcome), outcome.output.as_str())
}

#[tokio::test]
async fn answer_expires_with_credentials_of_called_packs() {
    // The called pack runs, or its own answer is found; and each answer comes from the hot tier, or
    // from the store.
    for (inner, hot_bytes) in [("", 64 << 20), (CACHED, 64 << 20), (CACHED, 0)] {
        let safe = Arc::new(Safe::default());
        safe.set("main", Some(1));
        let engine = engine(&safe, inner, hot_bytes).await;
        let run = async |user: &str| {
            let outcome = engine.call(by("t.outer", user)).await;
            engine.memory().unwrap().flush().await;
            outcome
        };
        if !inner.is_empty() {
            // Asked twice, so that its very bytes are remembered too.
            for _ in 0..2 {
                engine.call(by("t.inner", "alice")).await.unwrap();
                engine.memory().unwrap().flush().await;
            }
        }
        for user in ["alice", "bob"] {
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Miss, "1"));
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Hit, "1"));
        }
        // Rotated.
        safe.set("main", Some(2));
        for user in ["alice", "bob"] {
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Miss, "2"));
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Hit, "2"));
        }
        // Purged by the credential's name: also out of the store.
        let rows = async || {
            engine
                .memory()
                .unwrap()
                .store()
                .stats()
                .await
                .unwrap()
                .rows_by_kind
                .get("cache")
                .copied()
        };
        let there = rows().await.unwrap();
        let purged = engine
            .memory()
            .unwrap()
            .purge(Selector::Tag("credential:main".to_owned()))
            .await;
        assert_eq!((purged.rows, rows().await), (there, None));
        for user in ["alice", "bob"] {
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Miss, "2"));
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Hit, "2"));
        }
        // Revoked for one of them: also `stale_if_error` covers nothing up.
        safe.refuse("alice", true);
        assert_eq!(run("alice").await.unwrap_err().code(), Code::Forbidden);
        assert_eq!(said(&run("bob").await.unwrap()), (CacheStatus::Hit, "2"));
        assert_eq!(
            engine.explain(by("t.outer", "alice")).await.unwrap().entry,
            "none"
        );
        safe.refuse("alice", false);
        // Removed.
        safe.set("main", None);
        for user in ["alice", "bob"] {
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Miss, "null"));
            assert_eq!(said(&run(user).await.unwrap()), (CacheStatus::Hit, "null"));
        }
    }
}
