//! Idempotency keys: one run over all handles, and what is left of a run whose process is gone.

use helmdeck_core::Timestamp;

use super::jobs::until_gone;
use super::{Fixture, MINUTE, NOW};
use crate::idempotency::{Begun, Fence, KeyRequest};
use crate::replica::Replica;
use crate::system::System;

fn request<'a>(scope: &'a str, key: &'a str) -> KeyRequest<'a> {
    KeyRequest {
        scope,
        key,
        digest: b"digest",
        keep: MINUTE,
        repeatable: false,
    }
}

async fn begin(system: &System, replica: &Replica, key: &str, now: Timestamp) -> Begun {
    system
        .begin(request("alice/p", key), replica, now)
        .await
        .unwrap()
}

fn fence(begun: Begun) -> Fence {
    match begun {
        Begun::New(fence) => fence,
        other => panic!("{other:?}"),
    }
}

fn in_flight() -> Begun {
    Begun::InFlight {
        digest: b"digest".into(),
    }
}

pub(super) async fn a_key_is_new_then_in_flight_then_done_then_expired(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let (here, there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let run = fence(begin(&one, &here, "k", NOW).await);
    assert_eq!(begin(&one, &here, "k", NOW).await, in_flight());
    assert_eq!(begin(&two, &there, "k", NOW).await, in_flight());
    fence(begin(&two, &there, "other", NOW).await);
    fence(two.begin(request("bob/p", "k"), &there, NOW).await.unwrap());
    let end = NOW.saturating_add(2 * MINUTE);
    assert!(
        one.finish("alice/p", "k", run, Some(b"sealed".to_vec()), end)
            .await
            .unwrap()
    );
    let done = Begun::Done {
        digest: b"digest".into(),
        answer: Some(b"sealed".into()),
    };
    assert_eq!(
        begin(&two, &there, "k", NOW.saturating_add(MINUTE)).await,
        done
    );
    one.abandon("alice/p", "k", run).await.unwrap();
    assert_eq!(
        begin(&two, &there, "k", NOW).await,
        done,
        "what is done cannot be abandoned"
    );
    fence(begin(&two, &there, "k", end).await);
}

pub(super) async fn abandoned_and_expired_keys_are_free(fixture: Fixture) {
    let system = fixture.one;
    let replica = system.replica().await.unwrap();
    let run = fence(begin(&system, &replica, "k", NOW).await);
    system.abandon("alice/p", "k", run).await.unwrap();
    let second = fence(begin(&system, &replica, "k", NOW).await);
    assert_ne!(run, second);
    system.abandon("alice/p", "k", run).await.unwrap();
    assert_eq!(
        begin(&system, &replica, "k", NOW).await,
        in_flight(),
        "an earlier run frees nothing"
    );
    fence(begin(&system, &replica, "k", NOW.saturating_add(MINUTE)).await);
    assert_eq!(system.sweep(NOW.saturating_add(MINUTE)).await.unwrap(), 0);
    assert_eq!(
        system.sweep(NOW.saturating_add(2 * MINUTE)).await.unwrap(),
        1
    );
}

pub(super) async fn one_concurrent_call_gets_the_key(fixture: Fixture) {
    let racers: Vec<_> = (0..16)
        .map(|number| {
            let system = if number % 2 == 0 {
                fixture.one.clone()
            } else {
                fixture.two.clone()
            };
            tokio::spawn(async move {
                let replica = system.replica().await.unwrap();
                let begun = begin(&system, &replica, "k", NOW).await;
                // The process lives until all have asked.
                (
                    matches!(begun, Begun::New(_)),
                    begun == in_flight(),
                    replica,
                )
            })
        })
        .collect();
    let (mut new, mut running, mut replicas) = (0, 0, Vec::new());
    for racer in racers {
        let (is_new, is_running, replica) = racer.await.unwrap();
        (new, running) = (new + u32::from(is_new), running + u32::from(is_running));
        replicas.push(replica);
    }
    assert_eq!((new, running), (1, 15));
}

pub(super) async fn a_key_of_a_lost_run_says_so(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let here = one.replica().await.unwrap();
    let run = fence(begin(&one, &here, "k", NOW).await);
    let there = two.replica().await.unwrap();
    drop(here);
    until_gone(async || begin(&two, &there, "k", NOW).await != in_flight()).await;
    let lost = Begun::Lost {
        digest: b"digest".into(),
    };
    assert_eq!(begin(&two, &there, "k", NOW).await, lost);
    // The only run was not dead after all: its answer is the answer.
    assert!(
        one.finish("alice/p", "k", run, None, NOW.saturating_add(MINUTE))
            .await
            .unwrap()
    );
    assert_eq!(
        begin(&two, &there, "k", NOW).await,
        Begun::Done {
            digest: b"digest".into(),
            answer: None
        }
    );
}

pub(super) async fn a_repeatable_run_is_taken_over_and_fenced(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let here = one.replica().await.unwrap();
    let first = fence(begin(&one, &here, "k", NOW).await);
    let there = two.replica().await.unwrap();
    let again = KeyRequest {
        repeatable: true,
        ..request("alice/p", "k")
    };
    assert_eq!(
        two.begin(again, &there, NOW).await.unwrap(),
        in_flight(),
        "its process lives"
    );
    drop(here);
    until_gone(async || begin(&two, &there, "k", NOW).await != in_flight()).await;
    let other = KeyRequest {
        digest: b"other",
        ..again
    };
    assert_eq!(
        two.begin(other, &there, NOW).await.unwrap(),
        Begun::Lost {
            digest: b"digest".into()
        }
    );
    let second = fence(two.begin(again, &there, NOW).await.unwrap());
    let end = NOW.saturating_add(MINUTE);
    assert!(
        !one.finish("alice/p", "k", first, Some(b"late".to_vec()), end)
            .await
            .unwrap()
    );
    one.abandon("alice/p", "k", first).await.unwrap();
    assert_eq!(begin(&two, &there, "k", NOW).await, in_flight());
    assert!(
        two.finish("alice/p", "k", second, Some(b"right".to_vec()), end)
            .await
            .unwrap()
    );
    let done = Begun::Done {
        digest: b"digest".into(),
        answer: Some(b"right".into()),
    };
    assert_eq!(begin(&one, &there, "k", NOW).await, done);
}

pub(super) async fn forget_deletes_all_keys_of_one_caller(fixture: Fixture) {
    let system = fixture.one;
    assert_eq!(system.forget("t", "alice").await.unwrap(), 0);
    assert!(!system.exists().await.unwrap());
    let replica = system.replica().await.unwrap();
    for (subject, key) in [("alice", "one"), ("alice", "two"), ("bob", "one")] {
        let scope = System::scope("t", subject, "rest");
        assert!(!scope.contains(subject));
        let run = fence(
            system
                .begin(request(&scope, key), &replica, NOW)
                .await
                .unwrap(),
        );
        let answer = format!("the answer to {subject}").into_bytes();
        system
            .finish(&scope, key, run, Some(answer), NOW.saturating_add(MINUTE))
            .await
            .unwrap();
    }
    assert_eq!(system.forget("t", "alice").await.unwrap(), 2);
    assert_eq!(system.forget("t", "alice").await.unwrap(), 0);
    assert_eq!(system.forget("t", "bob").await.unwrap(), 1);
}

pub(super) async fn ended_sessions_are_known_until_no_clock_takes_them(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    let ids = |ids: &[&str]| {
        ids.iter()
            .map(|id| (*id).to_owned())
            .collect::<Vec<String>>()
    };
    assert!(
        one.ended_sessions(ids(&["a"]), NOW)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!one.exists().await.unwrap());
    one.end_session("a", NOW.saturating_add(MINUTE))
        .await
        .unwrap();
    one.end_session("a", NOW.saturating_add(MINUTE))
        .await
        .unwrap();
    two.end_session("b", NOW).await.unwrap();
    for system in [&one, &two] {
        let mut ended = system
            .ended_sessions(ids(&["a", "b", "c"]), NOW.saturating_add(MINUTE))
            .await
            .unwrap();
        ended.sort();
        assert_eq!(ended, ["a", "b"]);
    }
    // A key of a call with the same name is another one.
    let replica = one.replica().await.unwrap();
    fence(begin(&one, &replica, "c", NOW).await);
    assert!(
        two.ended_sessions(ids(&["c"]), NOW)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(one.sweep(NOW.saturating_add(2 * MINUTE)).await.unwrap(), 1);
    let day = NOW.saturating_add(25 * 60 * MINUTE);
    assert!(
        two.ended_sessions(ids(&["a", "b"]), day)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(one.sweep(day).await.unwrap(), 2);
}

pub(super) async fn backoffs_are_seen_until_they_end(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert!(one.backoffs(NOW).await.unwrap().is_empty());
    assert!(!one.exists().await.unwrap());
    let later = |minutes| NOW.saturating_add(minutes * MINUTE);
    one.back_off("a", later(1)).await.unwrap();
    one.back_off("b", later(1)).await.unwrap();
    two.back_off("a", later(2)).await.unwrap();
    let seen = |found: Vec<(String, Timestamp)>| std::collections::BTreeMap::from_iter(found);
    let both = [("a".to_owned(), later(2)), ("b".to_owned(), later(1))];
    assert_eq!(seen(one.backoffs(NOW).await.unwrap()), both.into());
    one.back_off("a", NOW).await.unwrap();
    assert_eq!(
        two.backoffs(NOW).await.unwrap(),
        [("b".to_owned(), later(1))]
    );
    assert!(two.backoffs(later(1)).await.unwrap().is_empty());
    assert_eq!(one.sweep(later(1)).await.unwrap(), 2);
}

pub(super) async fn last_refusal_of_an_answer_is_known(fixture: Fixture) {
    let Fixture { one, two } = fixture;
    assert_eq!(one.last_refusal("a", NOW).await.unwrap(), None);
    let later = |minutes| NOW.saturating_add(minutes * MINUTE);
    one.refuse("a", "too_large", later(2)).await.unwrap();
    one.refuse("a", "secret:github-pat", later(3))
        .await
        .unwrap();
    one.refuse("b", "no_store", later(4)).await.unwrap();
    assert_eq!(
        two.last_refusal("a", NOW).await.unwrap().unwrap(),
        "secret:github-pat"
    );
    two.refuse("a", "too_large", later(5)).await.unwrap();
    assert_eq!(
        one.last_refusal("a", later(3)).await.unwrap().unwrap(),
        "too_large"
    );
    assert_eq!(one.last_refusal("a", later(5)).await.unwrap(), None);
    assert!(one.backoffs(NOW).await.unwrap().is_empty());
}
