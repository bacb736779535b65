//! Credentials: grants before the cache, secrets never past the handler.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{
    CacheStatus, Call, Code, Error, Identity, Json, Outcome, PackName, Reply, Result, Secret,
};
use helmdeck_engine::{Engine, Selector};
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};

use crate::support::{status, with_input};

pub(crate) const CANARY: &str = "canary-4f9b\"c1 7e";

#[derive(Default)]
pub(crate) struct Wallet {
    versions: Mutex<HashMap<String, u64>>,
    generation: AtomicU64,
}

impl Wallet {
    pub(crate) fn set(&self, name: &str, version: Option<u64>) {
        let mut versions = self.versions.lock().unwrap();
        match version {
            Some(version) => versions.insert(name.to_owned(), version),
            None => versions.remove(name),
        };
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

impl Secrets for Wallet {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
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

    fn reveal(&self, _: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        Ok(Secret::new(CANARY.to_owned()))
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }
}

struct Fixture {
    engine: Engine,
    wallet: Arc<Wallet>,
    _folder: tempfile::TempDir,
}

async fn fixture(
    run: impl Fn(
        helmdeck_core::Context,
        Json,
    ) -> futures_util::future::BoxFuture<'static, Result<Reply>>
    + Send
    + Sync
    + 'static,
) -> Fixture {
    rig_with(Arc::default(), run).await
}

async fn rig_with(
    wallet: Arc<Wallet>,
    run: impl Fn(
        helmdeck_core::Context,
        Json,
    ) -> futures_util::future::BoxFuture<'static, Result<Reply>>
    + Send
    + Sync
    + 'static,
) -> Fixture {
    let text = manifest(
        "t.secret",
        "read_only = true\ncredentials = [\"{input.credential|main}\"]",
        "[memory]\ncache = true\nttl = \"60s\"\ntags = [\"{repo}\"]",
    );
    let (pack, _) = function(&with_input(&text), run);
    let clock = Arc::new(ManualClock::default());
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder(patient())
        .builtins(vec![pack])
        .memory(memory(Arc::clone(&clock) as _).await)
        .secrets(Arc::clone(&wallet) as _)
        .artifacts(folder.path().join("artifacts"))
        .clock(clock)
        .build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    Fixture {
        engine,
        wallet,
        _folder: folder,
    }
}

fn secret_call(input: &str) -> Call {
    call("t.secret", input)
}

#[tokio::test]
async fn rotated_credential_or_revoked_grant_never_hits() {
    let fixture = fixture(|cx, _| {
        Box::pin(async move {
            let named = cx.credential()?.is_some();
            Ok(Reply::json(Json::parse(named.to_string()).unwrap()))
        })
    })
    .await;
    let run = |input: &'static str| fixture.engine.call(secret_call(input));
    assert_eq!(
        run("{}").await.unwrap().output.as_str(),
        "false",
        "no default credential: anonymous"
    );
    assert_eq!(
        run("{\"credential\":\"main\"}").await.unwrap_err().code(),
        Code::CredentialInvalid,
        "a name that was written never means anonymous"
    );
    fixture.wallet.set("main", Some(1));
    assert_eq!(
        status(&run("{}").await.unwrap()),
        CacheStatus::Miss,
        "anonymous answers are not this credential's"
    );
    assert_eq!(status(&run("{}").await.unwrap()), CacheStatus::Hit);
    fixture.wallet.set("main", Some(2));
    assert_eq!(status(&run("{}").await.unwrap()), CacheStatus::Miss);
    fixture.wallet.set("other", Some(1));
    assert_eq!(
        status(&run("{}").await.unwrap()),
        CacheStatus::Hit,
        "another credential's change is no concern"
    );
    fixture.wallet.set("main", None);
    assert_eq!(run("{}").await.unwrap().output.as_str(), "false");
}

#[tokio::test]
async fn answers_are_tagged_with_their_credential() {
    let fixture = fixture(|cx, _| {
        Box::pin(async move {
            let named = cx.credential()?.is_some();
            Ok(Reply::json(Json::parse(named.to_string()).unwrap()))
        })
    })
    .await;
    let run = |input: &'static str| fixture.engine.call(secret_call(input));
    fixture.wallet.set("main", Some(1));
    fixture.wallet.set("other", Some(1));
    let (main, other) = (
        "{\"repo\":\"credential:other\"}",
        "{\"credential\":\"other\"}",
    );
    for input in [main, other] {
        assert_eq!(status(&run(input).await.unwrap()), CacheStatus::Miss);
        assert_eq!(status(&run(input).await.unwrap()), CacheStatus::Hit);
    }
    let explained = fixture.engine.explain(secret_call(other)).await.unwrap();
    assert_eq!(explained.tags, ["credential:other"]);
    let explained = fixture.engine.explain(secret_call(main)).await.unwrap();
    assert_eq!(
        explained.tags,
        ["credential:main"],
        "an input cannot spell such a tag"
    );
    let purged = fixture
        .engine
        .memory()
        .unwrap()
        .purge(Selector::Tag("credential:other".to_owned()))
        .await;
    assert_eq!(purged.rows, 1);
    assert_eq!(status(&run(main).await.unwrap()), CacheStatus::Hit);
    assert_eq!(status(&run(other).await.unwrap()), CacheStatus::Miss);
}

#[tokio::test]
async fn credential_rotated_during_run_never_hits_old_answer() {
    let wallet = Arc::new(Wallet::default());
    wallet.set("main", Some(1));
    let fixture = rig_with(Arc::clone(&wallet), move |cx, _| {
        let version = cx.secrets.as_ref().unwrap().grants()[0].version;
        // The old token is replaced by another person's.
        wallet.set("main", Some(2));
        Box::pin(async move { Reply::value(&version) })
    })
    .await;
    let run = || async { fixture.engine.call(secret_call("{}")).await.unwrap() };
    assert_eq!(run().await.output.as_str(), "1");
    let second = run().await;
    assert_eq!(
        (second.output.as_str(), status(&second)),
        ("2", CacheStatus::Miss)
    );
    // The handler set it once more: the third call comes with the grant of the second, in a later
    // generation.
    assert_eq!(status(&run().await), CacheStatus::Hit);
    assert_eq!(fixture.wallet.versions.lock().unwrap()["main"], 2);
}

#[tokio::test]
async fn a_handler_gets_only_what_its_manifest_declares() {
    let fixture = fixture(|cx, _| {
        Box::pin(async move {
            let secrets = cx.secrets.clone().unwrap();
            assert_eq!(secrets.get("other").unwrap_err().code(), Code::Forbidden);
            Ok(Reply::json(Json::parse("1").unwrap()))
        })
    })
    .await;
    fixture.wallet.set("main", Some(1));
    fixture.wallet.set("other", Some(1));
    fixture.engine.call(secret_call("{}")).await.unwrap();
}

#[tokio::test]
async fn a_secret_never_leaves_the_handler() {
    let fixture = fixture(|cx, input| {
        Box::pin(async move {
            let secret = cx.credential()?.unwrap().expose().to_owned();
            cx.report(None, &format!("using {secret}"));
            let file = cx.put_artifact("log.txt", "text/plain", format!("token={secret}")).await?;
            match input.to_value()["repo"].as_str().unwrap() {
                "output" => Ok(Reply::value(
                    &serde_json::json!({"echo": secret, "url": format!("https://x/{}", "canary-4f9b%22c1%207e")}),
                )?
                .with_validator(secret)),
                "error" => Err(Error::new(Code::HandlerFailed, format!("bad token {secret}"))
                    .with_source(format!("cause {secret}"))),
                _ => panic!("{secret} {}", file.key),
            }
        })
    })
    .await;
    fixture.wallet.set("main", Some(1));
    let leaks = |text: &str| text.contains("canary") || text.contains("4f9b");
    for kind in ["output", "error", "panic"] {
        for _ in 0..2 {
            match fixture
                .engine
                .call(secret_call(&format!("{{\"repo\":\"{kind}\"}}")))
                .await
            {
                Ok(outcome) => check_outcome(&fixture, &outcome, leaks).await,
                Err(error) => assert!(
                    !leaks(&error.to_string())
                        && !leaks(&error.cause())
                        && !leaks(&error.problem().to_string()),
                    "{error:?}"
                ),
            }
        }
    }
    assert!(!leaks(&fixture.engine.metrics()));
    assert!(
        fixture
            .engine
            .metrics()
            .contains("helmdeck_cache_refused_total{reason=\"secret\"} 2")
    );
    let store = Arc::clone(fixture.engine.memory().unwrap().store());
    fixture.engine.memory().unwrap().flush().await;
    assert_eq!(
        store.stats().await.unwrap().rows_by_kind.get("cache"),
        None,
        "nothing with a secret in it is stored"
    );
}

async fn check_outcome(fixture: &Fixture, outcome: &Outcome, leaks: impl Fn(&str) -> bool) {
    assert_eq!(status(outcome), CacheStatus::Miss);
    let text = String::from_utf8(outcome.to_json()).unwrap();
    assert!(!leaks(&text) && text.contains("[secret]"), "{text}");
    let (_, bytes) = fixture
        .engine
        .artifact(&Identity::local(), &outcome.artifacts[0].key)
        .await
        .unwrap();
    assert_eq!(&bytes[..], b"token=[secret]");
}

#[tokio::test]
async fn shared_answer_uses_only_its_own_credentials() {
    let secret = "read_only = true\ncredentials = [\"main\"]";
    let (inner, runs) = function(&manifest("t.inner", secret, ""), |cx, _| async move {
        Reply::value(&cx.credential()?.is_some())
    });
    let through = |cx: helmdeck_core::Context, _| async move {
        Ok(Reply::json(
            cx.call("t.inner", Json::parse("{}").unwrap()).await?.output,
        ))
    };
    let memory_of =
        |scope: &str| format!("[memory]\ncache = true\nttl = \"60s\"\nscope = \"{scope}\"");
    let outer = |name: &str, top: &str, scope: &str| {
        function(&manifest(name, top, &memory_of(scope)), through).0
    };
    let packs = vec![
        inner,
        outer("t.own", "read_only = true", "caller"),
        outer("t.shared", "read_only = true", "shared"),
        outer("t.declared", secret, "shared"),
    ];
    let (clock, wallet) = (
        Arc::new(ManualClock::default()),
        Arc::new(Wallet::default()),
    );
    wallet.set("main", Some(1));
    let builder = Engine::builder(patient())
        .builtins(packs)
        .secrets(Arc::clone(&wallet) as _);
    let engine = builder
        .memory(memory(Arc::clone(&clock) as _).await)
        .clock(clock)
        .build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());

    let refused = engine.call(call("t.shared", "{}")).await.unwrap_err();
    assert_eq!(
        (refused.code(), runs.runs()),
        (Code::Forbidden, 0),
        "{refused}"
    );
    assert!(
        refused.message().contains("t.inner") && refused.message().contains("main"),
        "{refused}"
    );
    for name in ["t.own", "t.declared"] {
        assert_eq!(
            engine.call(call(name, "{}")).await.unwrap().output.as_str(),
            "true",
            "{name}"
        );
    }
    // A caller without such a credential calls anonymously, and may share the answer.
    wallet.set("main", None);
    assert_eq!(
        engine
            .call(call("t.shared", "{}"))
            .await
            .unwrap()
            .output
            .as_str(),
        "false"
    );
}
