//! Past calls over a real store: which rows are read when there are more than the limit.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Clock;
use helmdeck_engine::{CallFilter, Engine, Memory};
use helmdeck_memory::{Kind, Namespace, Op, Put, Store};
use helmdeck_testkit::{ManualClock, keyring, patient, sealed_memory};
use serde_json::json;

fn me() -> Namespace {
    Namespace::new("t", "me", None)
}

/// An entry of the audit with one call, which ended at this time.
fn row(clock: &ManualClock, pack: &str, number: usize) -> Put {
    let start = clock.now().micros();
    let page = json!({"pack": pack, "version": "v1", "start": start, "rows": [{"t": 0, "us": 1}]});
    Put::new(
        me(),
        Kind::Audit,
        format!("pack/{pack}/{start:020}-{number:06}"),
        page.to_string(),
    )
}

async fn write(store: &dyn Store, clock: &ManualClock, pack: &str, count: usize) {
    for start in (0..count).step_by(500) {
        clock.advance(Duration::from_secs(1));
        let batch = (start..count.min(start + 500))
            .map(|number| Op::Put(row(clock, pack, number)))
            .collect();
        store.write(batch).await.unwrap();
    }
}

#[tokio::test]
async fn search_of_calls_goes_on_where_it_ended() {
    let clock = Arc::new(ManualClock::default());
    let store = sealed_memory(Arc::clone(&clock) as _).await;
    let start = clock.now().micros();
    let page = json!({"pack": "a.fails", "version": "v1", "start": start, "rows": [{"t": 0, "us": 1, "o": "timeout"}]});
    let failed = Put::new(
        me(),
        Kind::Audit,
        format!("pack/a.fails/{start:020}"),
        page.to_string(),
    );
    store.write(vec![Op::Put(failed)]).await.unwrap();
    write(&*store, &clock, "a.works", 3000).await;
    let memory = Memory {
        store,
        keyring: Arc::new(keyring()),
        system: None,
    };
    let engine = Engine::builder(patient())
        .memory(memory)
        .clock(Arc::clone(&clock) as _)
        .build();
    let mut filter = CallFilter {
        outcome: Some("failed".to_owned()),
        limit: 10,
        ..CallFilter::default()
    };
    let mut searches = 0;
    let found = loop {
        let page = engine
            .memory()
            .unwrap()
            .calls(&me(), filter.clone())
            .await
            .unwrap();
        searches += 1;
        assert_eq!(page.truncated, page.next.is_some(), "no page is full");
        match page.next {
            Some(next) => filter.before = Some(next),
            None => break page.calls,
        }
        assert_eq!(page.calls, []);
    };
    assert!(
        (2..=6).contains(&searches),
        "a search reads 1,024 entries, some of them again: {searches}"
    );
    assert_eq!(
        found
            .iter()
            .map(|call| call.outcome.as_str())
            .collect::<Vec<_>>(),
        ["timeout"]
    );
    engine.shutdown().await;
}
