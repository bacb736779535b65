//! One flight per key through two transports of one engine: REST and in process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use helmdeck_core::{CacheStatus, Json, Reply};
use helmdeck_engine::Engine;
use helmdeck_server::ServerConfig;
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};
use http::Request;
use tokio::sync::Semaphore;
use tower::ServiceExt;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_callers_over_two_transports_run_once() {
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let text = manifest(
        "t.slow",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"60s\"",
    );
    let (opened, seen) = (Arc::clone(&gate), Arc::clone(&entered));
    let (pack, counted) = function(&text, move |_, _| {
        let (gate, entered) = (Arc::clone(&opened), Arc::clone(&seen));
        async move {
            entered.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            Ok(Reply::json(Json::parse(r#"{"answer":42}"#).unwrap()))
        }
    });
    let clock = Arc::new(ManualClock::default());
    let opened = memory(Arc::clone(&clock) as _).await;
    let engine = Engine::builder(patient())
        .builtins(vec![pack])
        .memory(opened)
        .clock(Arc::clone(&clock) as _)
        .build();
    let router = helmdeck_server::router(engine.clone(), ServerConfig::default());

    for round in 1..=2 {
        let in_process: Vec<_> = (0..25)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move { engine.call(call("t.slow", "{}")).await.unwrap() })
            })
            .collect();
        let over_rest: Vec<_> = (0..25)
            .map(|_| {
                let request = Request::post("/api/v1/packs/t.slow").header("host", "localhost");
                let answer = router
                    .clone()
                    .oneshot(request.body(Body::from("{ }")).unwrap());
                tokio::spawn(async move { answer.await.unwrap() })
            })
            .collect();
        while entered.load(Ordering::SeqCst) < round {
            tokio::task::yield_now().await;
        }
        gate.add_permits(1);

        let mut misses = 0;
        for answer in in_process {
            let outcome = answer.await.unwrap();
            assert_eq!(outcome.output.as_str(), r#"{"answer":42}"#);
            misses += usize::from(outcome.cache.unwrap().status == CacheStatus::Miss);
        }
        for answer in over_rest {
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), 200);
            let status = answer.headers()["cache-status"]
                .to_str()
                .unwrap()
                .to_owned();
            misses += usize::from(status.contains("fwd=miss") && !status.contains("collapsed"));
        }
        assert_eq!(
            (counted.runs(), misses),
            (round, 1),
            "cold and on expiry, one run and one miss"
        );
        clock.advance(std::time::Duration::from_secs(61));
    }
}
