//! What a call costs, and what is shown of it, whatever callers did before.

use helmdeck_memory::Delete;
use helmdeck_testkit::FaultyStore;

use super::*;
use crate::health::Health;
use crate::views::{ConversationFilter, TurnFilter};

#[tokio::test]
async fn a_cold_add_reads_no_turns() {
    let place = Fixture::new().await;
    add(&place.open(config(Strategy::Truncation)), 0..300).await;
    let store = FaultyStore::new(Arc::clone(&place.store));
    let memory = place.open_on(store.clone(), config(Strategy::Truncation));
    add(&memory, 300..301).await;
    assert_eq!(store.scans(), 1, "head and checkpoint");
    assert_eq!(memory.metrics().hot_bytes / 1024, 1, "no turns are held");
    assert_eq!(seen(&memory).await, (0..301).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_came_with_a_snapshot_is_weighed() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    let text = |text: &str| text.repeat(100_000);
    for (member, bytes) in [
        (format!(r#""later":["{}"]"#, text("x")), 100_000),
        (format!(r#""opening":"{}""#, text("o")), 100_000),
        // It is kept as the summary, and as what that is built upon.
        (format!(r#""summary":"{}""#, text("s")), 200_000),
    ] {
        let text = format!(r#"{{"strategy":"rolling_summary",{member}}}"#);
        let snapshot = crate::Snapshot {
            strategy: Some(Strategy::RollingSummary),
            bytes: text.into(),
        };
        memory.restore(&alice(), &snapshot).await.unwrap();
        memory.context(&alice()).await.unwrap();
        let held = memory.metrics().hot_bytes;
        assert!((bytes..bytes + 5000).contains(&held), "{held} of {bytes}");
    }
}

#[tokio::test]
async fn strategy_without_summaries_is_always_healthy() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    add(&memory, 0..6).await;
    fold(&memory, 2, |checkpoint| {
        checkpoint.health = Health::Degraded;
        checkpoint.failures = 3;
        checkpoint.last_failure = Some("timeout".to_owned());
    })
    .await;
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Degraded);
    let memory = place.open(config(Strategy::Truncation));
    let trace = memory.trace(&alice()).await.unwrap();
    assert_eq!(
        (trace.health, trace.failures, trace.last_failure),
        (Health::Healthy, 0, None)
    );
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
    let sessions = memory
        .list_conversations(&ConversationFilter::default())
        .await
        .unwrap()
        .sessions;
    assert_eq!(sessions[0].health, Health::Healthy);
}

#[tokio::test]
async fn page_reads_only_shown_conversations() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    for number in 0..520 {
        memory
            .add_turn(
                &Identity::new("t", "alice", &format!("s{number:03}")),
                turn(number),
            )
            .await
            .unwrap();
    }
    let store = FaultyStore::new(Arc::clone(&place.store));
    let memory = place.open_on(store.clone(), config(Strategy::Truncation));
    let mut filter = ConversationFilter {
        limit: Some(200),
        ..ConversationFilter::default()
    };
    let mut names = Vec::new();
    loop {
        let before = store.scans();
        let page = memory.list_conversations(&filter).await.unwrap();
        assert_eq!(page.total, 520);
        assert!(
            store.scans() - before <= page.sessions.len() + 32,
            "{}",
            store.scans() - before
        );
        names.extend(page.sessions.into_iter().map(|session| session.session));
        filter.after = page.next;
        if filter.after.is_none() {
            break;
        }
    }
    assert_eq!(
        names,
        (0..520)
            .map(|number| format!("s{number:03}"))
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn unreadable_turn_without_checkpoint_hides_no_other() {
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::Truncation));
    add(&memory, 0..5).await;
    place
        .write(&crate::rows::encoding::turn_key(2), b"nonsense")
        .await;
    let key = "~checkpoint".to_owned();
    place
        .store
        .delete(Delete::Key {
            namespace: namespace(),
            kind: Kind::Conversation,
            key,
        })
        .await
        .unwrap();
    let memory = place.open(config(Strategy::Truncation));
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!((shown(&patch), patch.unreadable), (vec![0, 2, 3, 4], 1));
}

#[tokio::test]
async fn flush_removes_rows_of_incomplete_restore() {
    let place = Fixture::new().await;
    place
        .write(&crate::rows::encoding::turn_key(1 << 40), b"left behind")
        .await;
    let memory = place.open(config(Strategy::Truncation));
    memory.flush(&alice()).await.unwrap();
    let turns = memory
        .shared()
        .rows
        .keys(&namespace(), "turn/", 0, u64::MAX)
        .await
        .unwrap();
    assert_eq!(turns, [0_u64; 0]);
    add(&memory, 0..1).await;
    assert_eq!(seen(&memory).await, [0]);
}

#[tokio::test]
async fn nothing_that_is_printed_holds_a_word() {
    const CANARY: &str = "sesame";
    let place = Fixture::new().await;
    let memory = place.open(config(Strategy::RollingSummary));
    for _ in 0..6 {
        memory
            .add_turn(&alice(), NewTurn::new(CANARY, CANARY))
            .await
            .unwrap();
    }
    fold(&memory, 2, |checkpoint| {
        checkpoint.summary = CANARY.to_owned();
        checkpoint.opening = Some(CANARY.to_owned());
        checkpoint.pinned = Some(CANARY.to_owned());
        checkpoint.base = Some(crate::rows::Base {
            summary: CANARY.to_owned(),
            through: 1,
            gone: 0,
        });
    })
    .await;
    let filter = TurnFilter {
        content_search: Some(CANARY.to_owned()),
        ..TurnFilter::default()
    };
    let page = memory.list_turns(&alice(), &filter).await.unwrap();
    let id = page.items[0].key;
    let item = memory.get_turn(&alice(), &id.to_string()).await.unwrap();
    let fresh = memory.fresh(NewTurn::new(CANARY, CANARY)).await.unwrap();
    let mut ops = crate::rows::Ops::new(namespace());
    ops.put_turn(9, fresh.value(id, crate::TokenCounter::Chars));
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (patch.summary.as_str(), patch.goal.as_deref()),
        (CANARY, Some(CANARY))
    );
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    let goal = memory.goal(&alice()).await.unwrap();
    let record = crate::wire::read_record(&snapshot.bytes, 1 << 20, 10).unwrap();
    let trace = memory.trace(&alice()).await.unwrap();
    let sessions = memory
        .list_conversations(&ConversationFilter::default())
        .await
        .unwrap();
    let request = crate::SummarizeRequest {
        previous_summary: CANARY.to_owned(),
        turns: vec![Arc::clone(&item.turn)],
        goal: Some(CANARY.to_owned()),
        max_tokens: 9,
    };
    let response = crate::SummarizeResponse {
        summary: CANARY.to_owned(),
    };
    let state = state(&memory).await;
    let printed = format!(
        "{patch:?}{goal:?}{trace:?}{filter:?}{page:?}{item:?}{snapshot:?}{record:?}{sessions:?}{fresh:?}{ops:?}{state:?}\
         {request:?}{response:?}{:?}{:?}",
        NewTurn::new(CANARY, CANARY),
        memory.shared().rows.load(&namespace(), 9).await.unwrap(),
    );
    assert!(!printed.contains(CANARY), "{printed}");
}
