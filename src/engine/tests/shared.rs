//! Callers share answers, and never artifacts.

use std::sync::Arc;

use futures_util::FutureExt;
use helmdeck_core::{Builtin, CacheStatus, Call, Code, Identity, Json, Outcome, Reply};
use helmdeck_engine::Engine;
use helmdeck_testkit::{Counted, ManualClock, call, function, manifest, memory, patient};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::support::status;

/// A pack of scope `shared` that writes a file and then waits for a permit.
fn writer(gate: &Arc<Semaphore>, started: &Arc<Semaphore>) -> (Builtin, Counted) {
    let (gate, started) = (Arc::clone(gate), Arc::clone(started));
    let text = manifest(
        "t.file",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"60s\"\nscope = \"shared\"",
    );
    function(&text, move |cx, _| {
        let (gate, started) = (Arc::clone(&gate), Arc::clone(&started));
        async move {
            cx.put_artifact("a.txt", "text/plain", "x").await?;
            started.add_permits(1);
            gate.acquire().await.unwrap().forget();
            Ok(Reply::json(Json::parse("{}").unwrap()))
        }
    })
}

async fn engine(pack: Builtin) -> (Engine, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as _).await;
    let builder = Engine::builder(patient())
        .builtins(vec![pack])
        .memory(memory);
    (
        builder.artifacts(folder.path()).clock(clock).build(),
        folder,
    )
}

fn by(user: &Identity) -> Call {
    let mut call = call("t.file", "{}");
    call.identity = Arc::new(user.clone());
    call
}

/// Asserts that only the caller can open the files of its answer.
async fn assert_own(engine: &Engine, outcome: &Outcome, owner: &Identity, other: &Identity) {
    assert_eq!(outcome.artifacts.len(), 1);
    for artifact in outcome.artifacts.iter() {
        assert_eq!(engine.artifact(owner, &artifact.key).await.unwrap().1, "x");
        assert_eq!(
            engine
                .artifact(other, &artifact.key)
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
    }
}

#[tokio::test]
async fn shared_answer_with_artifacts_is_not_stored() {
    let gate = Arc::new(Semaphore::new(4));
    let (pack, counted) = writer(&gate, &Arc::new(Semaphore::new(0)));
    let (engine, _folder) = engine(pack).await;
    let [alice, bob] = ["alice", "bob"].map(|user| Identity::new("t", user).unwrap());
    for (me, other) in [(&alice, &bob), (&bob, &alice), (&alice, &bob)] {
        let outcome = engine.call(by(me)).await.unwrap();
        assert_eq!(status(&outcome), CacheStatus::Miss);
        assert_own(&engine, &outcome, me, other).await;
        engine.memory().unwrap().flush().await;
    }
    assert_eq!(counted.runs(), 3);
    let metrics = engine.metrics();
    assert!(
        metrics.contains("helmdeck_cache_refused_total{reason=\"shared_artifact\"} 3"),
        "{metrics}"
    );
    assert_eq!(
        engine
            .memory()
            .unwrap()
            .store()
            .stats()
            .await
            .unwrap()
            .rows_by_kind
            .get("cache"),
        None
    );
}

#[tokio::test]
async fn waiters_of_shared_answer_get_own_artifacts() {
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (pack, counted) = writer(&gate, &started);
    let (engine, _folder) = engine(pack).await;
    let [alice, bob] = ["alice", "bob"].map(|user| Identity::new("t", user).unwrap());
    let [mut first, mut second] = [&alice, &bob].map(|user| Box::pin(engine.call(by(user))));
    tokio::select! {
        biased;
        () = async { started.acquire().await.unwrap().forget() } => {}
        _ = &mut first => unreachable!("its run waits for a permit"),
    }
    assert!((&mut second).now_or_never().is_none(), "it is on board");
    assert_eq!(counted.runs(), 1);
    gate.add_permits(2);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_own(&engine, &first, &alice, &bob).await;
    assert_own(&engine, &second, &bob, &alice).await;
    assert_eq!(
        (status(&first), status(&second), counted.runs()),
        (CacheStatus::Miss, CacheStatus::Miss, 2)
    );
}
