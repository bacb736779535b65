//! Repeats, through the whole router.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::*;
use crate::fixture::{Answer as Sent, Fixture};

const WRITE: &str = "/api/v1/packs/test.write";

async fn send(fixture: &Fixture, path: &str, key: &str, body: &str) -> Sent {
    fixture.send(Method::POST, path, &[("idempotency-key", key)], body).await
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_says_so() {
    let fixture = Fixture::plain().await;
    let first = send(&fixture, WRITE, "\"k1\"", r#"{"text":"a"}"#).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (200, ""));
    let again = send(&fixture, WRITE, "k1", r#"{"text":"a"}"#).await;
    assert_eq!((again.body.as_str(), again.header("idempotency-replayed")), (first.body.as_str(), "true"));
    assert_eq!(fixture.probe.runs(), 1);
    send(&fixture, WRITE, "k2", r#"{"text":"a"}"#).await;
    fixture.post(WRITE, r#"{"text":"a"}"#).await;
    assert_eq!(fixture.probe.runs(), 3);
}

#[tokio::test]
async fn one_key_stands_for_one_request() {
    let fixture = Fixture::plain().await;
    send(&fixture, WRITE, "k", r#"{"text":"a"}"#).await;
    for (path, body) in [(WRITE, r#"{"text":"b"}"#), ("/api/v1/packs/test.write/v1", r#"{"text":"a"}"#)] {
        let other = send(&fixture, path, "k", body).await;
        assert_eq!((other.status.as_u16(), other.problem().as_str()), (422, "invalid_input"), "{path} {body}");
    }
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn a_repeat_while_the_first_runs_is_a_conflict_and_a_lost_client_finds_its_answer() {
    let fixture = Arc::new(Fixture::plain().await);
    let other = Arc::clone(&fixture);
    let first = tokio::spawn(async move { send(&other, WRITE, "k", r#"{"wait":true}"#).await });
    fixture.probe.someone_waits().await;
    let second = send(&fixture, WRITE, "k", r#"{"wait":true}"#).await;
    assert_eq!((second.status.as_u16(), second.problem().as_str()), (409, "conflict"));
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
    assert_eq!((found.status.as_u16(), found.header("idempotency-replayed")), (200, "true"));
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn an_error_after_which_nobody_knows_what_was_done_is_kept_and_others_are_not() {
    let fixture = Fixture::plain().await;
    for (code, runs) in [("handler_failed", 1), ("conflict", 1), ("rate_limited", 2), ("overloaded", 2)] {
        let before = fixture.probe.runs();
        let body = format!(r#"{{"fail":"{code}"}}"#);
        for _ in 0..2 {
            assert_eq!(send(&fixture, WRITE, code, &body).await.problem(), code);
        }
        assert_eq!(fixture.probe.runs() - before, runs, "{code}");
    }
}

#[tokio::test]
async fn keys_end_after_a_day_and_packs_that_only_read_ignore_them() {
    let fixture = Fixture::plain().await;
    send(&fixture, WRITE, "k", "{}").await;
    fixture.clock.advance(KEPT_FOR);
    assert_eq!(send(&fixture, WRITE, "k", "{}").await.header("idempotency-replayed"), "");
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
        assert_eq!(send(&fixture, WRITE, key, "{}").await.problem(), "invalid_input", "{key}");
    }
    assert_eq!(fixture.probe.runs(), 0);
}

#[test]
fn memory_is_bounded_and_the_oldest_answer_goes_first() {
    let mut kept = Kept::default();
    let id = |n: usize| digest(&[&n.to_be_bytes()]);
    for n in 0..MAX_KEYS {
        kept.make_room().unwrap();
        kept.slots.insert(id(n), Slot { request: [0; 32], ends: Duration::from_secs(9), state: State::Running });
        kept.order.push_back(id(n));
    }
    assert!(kept.make_room().is_err(), "running calls do not make room");
    for n in 0..3 {
        kept.done(&id(n), Ok(vec![0; MAX_BYTES / 2].into()));
    }
    assert!(matches!(kept.slots[&id(0)].state, State::Done(None)));
    assert!(matches!(kept.slots[&id(2)].state, State::Done(Some(_))));
    assert_eq!(kept.bytes, MAX_BYTES / 2 * 2);
    kept.make_room().unwrap();
    assert!(!kept.slots.contains_key(&id(0)) && kept.slots.len() == kept.order.len());
    kept.forget_ended(Duration::from_secs(10));
    assert_eq!((kept.slots.len(), kept.bytes), (MAX_KEYS - 3, 0));
}
