//! Repeated writes, through the whole router.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::kept::{MAX_BYTES, MAX_KEYS};
use super::*;
use crate::fixture::{Answer as Sent, Fixture};

const WRITE: &str = "/api/v1/packs/test.write";

async fn send(fixture: &Fixture, path: &str, key: &str, body: &str) -> Sent {
    fixture
        .send(Method::POST, path, &[("idempotency-key", key)], body)
        .await
}

#[tokio::test]
async fn repeat_gets_first_answer_and_header() {
    let fixture = Fixture::plain().await;
    let first = send(&fixture, WRITE, "\"k1\"", r#"{"text":"a"}"#).await;
    assert_eq!(
        (first.status.as_u16(), first.header("idempotency-replayed")),
        (200, "")
    );
    let again = send(&fixture, WRITE, "k1", r#"{"text":"a"}"#).await;
    assert_eq!(
        (again.body.as_str(), again.header("idempotency-replayed")),
        (first.body.as_str(), "true")
    );
    assert_eq!(fixture.probe.runs(), 1);
    send(&fixture, WRITE, "k2", r#"{"text":"a"}"#).await;
    fixture.post(WRITE, r#"{"text":"a"}"#).await;
    assert_eq!(fixture.probe.runs(), 3);
}

#[tokio::test]
async fn one_key_stands_for_one_request() {
    let fixture = Fixture::plain().await;
    send(&fixture, WRITE, "k", r#"{"text":"a"}"#).await;
    for (path, body) in [
        (WRITE, r#"{"text":"b"}"#),
        ("/api/v1/packs/test.write/v1", r#"{"text":"a"}"#),
    ] {
        let other = send(&fixture, path, "k", body).await;
        assert_eq!(
            (other.status.as_u16(), other.problem().as_str()),
            (422, "invalid_input"),
            "{path} {body}"
        );
    }
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn early_repeat_conflicts_and_lost_client_finds_answer() {
    let fixture = Arc::new(Fixture::plain().await);
    let other = Arc::clone(&fixture);
    let first = tokio::spawn(async move { send(&other, WRITE, "k", r#"{"wait":true}"#).await });
    fixture.probe.someone_waits().await;
    let second = send(&fixture, WRITE, "k", r#"{"wait":true}"#).await;
    assert_eq!(
        (second.status.as_u16(), second.problem().as_str()),
        (409, "conflict")
    );
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    fixture.probe.gate.add_permits(1);
    let found = loop {
        let answer = send(&fixture, WRITE, "k", r#"{"wait":true}"#).await;
        if answer.status != 409 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (found.status.as_u16(), found.header("idempotency-replayed")),
        (200, "true")
    );
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn uncertain_errors_keep_the_key() {
    let fixture = Fixture::plain().await;
    for (code, runs) in [
        ("handler_failed", 1),
        ("conflict", 1),
        ("rate_limited", 2),
        ("overloaded", 2),
    ] {
        let before = fixture.probe.runs();
        let body = format!(r#"{{"fail":"{code}"}}"#);
        for _ in 0..2 {
            assert_eq!(send(&fixture, WRITE, code, &body).await.problem(), code);
        }
        assert_eq!(fixture.probe.runs() - before, runs, "{code}");
    }
}

#[tokio::test]
async fn keys_expire_after_a_day_and_readers_ignore_them() {
    let fixture = Fixture::plain().await;
    send(&fixture, WRITE, "k", "{}").await;
    fixture.clock.advance(KEPT_FOR);
    assert_eq!(
        send(&fixture, WRITE, "k", "{}")
            .await
            .header("idempotency-replayed"),
        ""
    );
    assert_eq!(fixture.probe.runs(), 2);
    for _ in 0..2 {
        send(&fixture, "/api/v1/packs/test.plain", "k", "{}").await;
    }
    assert_eq!(fixture.probe.runs(), 4);
}

#[tokio::test]
async fn malformed_keys_are_refused() {
    let fixture = Fixture::plain().await;
    for key in ["", "\"\"", "a b", "é", &"x".repeat(256)] {
        assert_eq!(
            send(&fixture, WRITE, key, "{}").await.problem(),
            "invalid_input",
            "{key}"
        );
    }
    assert_eq!(fixture.probe.runs(), 0);
}

#[test]
fn memory_is_bounded_and_the_oldest_answer_goes_first() {
    let mut kept = RecentKeys::default();
    let id = |n: usize| digest(&[&n.to_be_bytes()]);
    for n in 0..MAX_KEYS {
        kept.make_room().unwrap();
        kept.slots.insert(
            id(n),
            KeyEntry {
                request: [0; 32],
                ends: Duration::from_secs(9),
                state: KeyState::Running,
            },
        );
        kept.order.push_back(id(n));
    }
    assert!(kept.make_room().is_err(), "running calls do not make room");
    for n in 0..3 {
        kept.done(&id(n), Ok(vec![0; MAX_BYTES / 2].into()));
    }
    assert!(matches!(kept.slots[&id(0)].state, KeyState::Done(None)));
    assert!(matches!(kept.slots[&id(2)].state, KeyState::Done(Some(_))));
    assert_eq!(kept.bytes, MAX_BYTES / 2 * 2);
    kept.make_room().unwrap();
    assert!(!kept.slots.contains_key(&id(0)) && kept.slots.len() == kept.order.len());
    kept.forget_ended(Duration::from_secs(10));
    assert_eq!((kept.slots.len(), kept.bytes), (MAX_KEYS - 3, 0));
}

/// Two processes, one after the other, on one system database.
async fn restarted(memory: bool) -> (Sent, Sent, u32) {
    let folder = tempfile::tempdir().unwrap();
    let mut answers = Vec::new();
    let mut runs = 0;
    for _ in 0..2 {
        let fixture = Fixture::with_ledger(&folder.path().join("helmdeck.db"), memory).await;
        answers.push(send(&fixture, WRITE, "k", r#"{"text":"canary"}"#).await);
        let other = send(&fixture, WRITE, "k", r#"{"text":"other"}"#).await;
        assert_eq!(other.status, 422);
        runs += fixture.probe.runs();
    }
    let files = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.is_file()) {
        let bytes = std::fs::read(file).unwrap();
        assert!(
            !bytes.windows(6).any(|part| part == b"canary"),
            "an answer in the clear"
        );
    }
    let second = answers.pop().unwrap();
    (answers.pop().unwrap(), second, runs)
}

#[tokio::test]
async fn sealed_answers_survive_restart() {
    let (first, second, runs) = restarted(true).await;
    assert_eq!(
        (
            second.body,
            second.headers.get("idempotency-replayed").is_some(),
            runs
        ),
        (first.body, true, 1)
    );
}

#[tokio::test]
async fn without_memory_key_only_used_keys_survive_restart() {
    let (first, second, runs) = restarted(false).await;
    assert_eq!(
        (first.status.as_u16(), second.status.as_u16(), runs),
        (200, 409, 1)
    );
    assert!(second.body.contains("no longer kept"), "{second:?}");
}

#[tokio::test]
async fn call_without_effect_frees_its_key_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    let body = r#"{"fail":"rate_limited"}"#;
    for _ in 0..2 {
        let fixture = Fixture::with_ledger(&path, false).await;
        assert_eq!(
            send(&fixture, WRITE, "k", body).await.problem(),
            "rate_limited"
        );
        assert_eq!(fixture.probe.runs(), 1);
    }
}

#[tokio::test]
async fn errors_are_replayed_after_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    let mut answers = Vec::new();
    for _ in 0..2 {
        let fixture = Fixture::with_ledger(&path, true).await;
        answers.push(send(&fixture, WRITE, "k", r#"{"fail":"handler_failed"}"#).await);
    }
    assert_eq!(
        (answers[0].status, answers[0].json()["detail"].clone()),
        (answers[1].status, answers[1].json()["detail"].clone())
    );
    assert_eq!(answers[1].problem(), "handler_failed");
}

#[tokio::test]
async fn unreadable_ledger_stops_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    std::fs::write(&path, "not a database, but a file of somebody's").unwrap();
    let fixture = Fixture::with_ledger(&path, false).await;
    let answer = send(&fixture, WRITE, "k", "{}").await;
    assert_eq!(
        (
            answer.status.as_u16(),
            answer.problem().as_str(),
            fixture.probe.runs()
        ),
        (503, "overloaded", 0)
    );
    assert_eq!(
        fixture.post(WRITE, "{}").await.status,
        200,
        "without a key the call needs no ledger"
    );
}
