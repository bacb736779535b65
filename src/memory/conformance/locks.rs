//! Test cases about locks.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::waiting::Looks;

use super::Fixture;

/// Longer than any test case.
const HOLD: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(20);

/// Lets time pass, by the clock of the store and by that of a server.
async fn pass(s: &Fixture, time: Duration) {
    s.clock.advance(time);
    tokio::time::sleep(time + Duration::from_millis(1)).await;
}

async fn is_free(s: &Fixture, name: &str) -> bool {
    match s.store.try_lock(name, HOLD).await.unwrap() {
        Some(lock) => lock.release().await.is_ok(),
        None => false,
    }
}

pub(super) async fn one_of_two_has_a_lock_until_it_is_released(s: Fixture) {
    let mine = s.store.try_lock("l", HOLD).await.unwrap().unwrap();
    assert!(s.store.try_lock("l", HOLD).await.unwrap().is_none());
    for other in ["L", "l ", "", "l\0", "😀", "%"] {
        assert!(is_free(&s, other).await, "{other:?} is another lock");
    }
    mine.release().await.unwrap();
    let theirs = s.store.try_lock("l", HOLD).await.unwrap().unwrap();
    assert!(s.store.try_lock("l", HOLD).await.unwrap().is_none());
    theirs.release().await.unwrap();
    assert!(is_free(&s, "l").await);
}

pub(super) async fn a_lock_is_free_after_its_time(s: Fixture) {
    let mine = s.store.try_lock("l", HOLD).await.unwrap().unwrap();
    s.clock.advance(HOLD - Duration::from_micros(1));
    assert!(!is_free(&s, "l").await);
    assert!(mine.renew(SHORT).await.unwrap());
    pass(&s, SHORT).await;
    let theirs = s.store.try_lock("l", HOLD).await.unwrap().unwrap();
    assert!(!mine.renew(HOLD).await.unwrap(), "another owner has it");
    mine.release().await.unwrap();
    assert!(
        s.store.try_lock("l", HOLD).await.unwrap().is_none(),
        "a former owner cannot free it"
    );
    theirs.release().await.unwrap();
    assert!(is_free(&s, "l").await);
}

pub(super) async fn a_lock_can_be_held_on_to(s: Fixture) {
    let mine = s.store.try_lock("l", HOLD).await.unwrap().unwrap();
    for _ in 0..3 {
        s.clock.advance(HOLD - Duration::from_secs(1));
        assert!(mine.renew(HOLD).await.unwrap());
        assert!(!is_free(&s, "l").await);
    }
    assert!(mine.renew(SHORT).await.unwrap());
    pass(&s, SHORT).await;
    assert!(
        mine.renew(HOLD).await.unwrap(),
        "no other owner took it meanwhile"
    );
    assert!(!is_free(&s, "l").await);
    mine.release().await.unwrap();
}

pub(super) async fn a_dropped_lock_is_free_soon(s: Fixture) {
    drop(s.store.try_lock("l", HOLD).await.unwrap().unwrap());
    let mut looks = Looks::default();
    while !is_free(&s, "l").await {
        assert!(!looks.are_over(), "it is never freed");
        tokio::time::sleep(looks.pause()).await;
    }
}

pub(super) async fn of_many_at_once_one_gets_the_lock(s: Fixture) {
    let racers = (0..16).map(|_| {
        let store = Arc::clone(&s.store);
        tokio::spawn(async move { store.try_lock("l", HOLD).await.unwrap() })
    });
    let mut locks = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        locks.extend(racer.await.unwrap());
    }
    assert_eq!(locks.len(), 1);
    assert_eq!(s.store.stats().await.unwrap().rows, 0, "a lock is no entry");
}
