//! Test cases about time: a clock that goes backwards, daylight saving, and the ends of the
//! calendar.
//!
//! Times are instants, counted in microseconds. No calendar affects them.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use helmdeck_core::{Clock, Timestamp};

use super::Fixture;
use super::lists::{alice, keys, listed, put};
use crate::entry::Kind;
use crate::ops::{Delete, Order, Put};

const HOUR: Duration = Duration::from_secs(3600);

async fn is_there(s: &Fixture, key: &str) -> bool {
    s.store
        .get(&alice(), Kind::Note, key)
        .await
        .unwrap()
        .is_some()
}

pub(super) async fn a_clock_that_goes_back_loses_nothing(s: Fixture) {
    let first = s
        .store
        .put(Put {
            ttl: Some(Duration::from_secs(60)),
            ..put("k", "one")
        })
        .await
        .unwrap();
    s.clock.go_back(HOUR);
    let second = s.store.put(put("k", "two")).await.unwrap();
    assert_eq!(
        (second.version, second.created_at, second.updated_at),
        (2, first.created_at, s.clock.now())
    );
    assert!(
        second.updated_at < second.created_at,
        "it is said as it was"
    );
    assert_eq!(
        &s.store
            .get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .unwrap()
            .value[..],
        b"two"
    );
    let fresh = s.store.put(put("new", "v")).await.unwrap();
    assert_eq!(
        (fresh.version, fresh.created_at, fresh.updated_at),
        (1, s.clock.now(), s.clock.now())
    );
}

pub(super) async fn expiry_is_an_instant_despite_clock_changes(s: Fixture) {
    let end = s.clock.now().saturating_add(HOUR);
    s.store
        .put(Put {
            ttl: Some(HOUR),
            ..put("k", "v")
        })
        .await
        .unwrap();
    s.clock.go_back(10 * HOUR);
    assert!(is_there(&s, "k").await);
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 0);
    s.clock.set(Timestamp(end.micros() - 1));
    assert!(is_there(&s, "k").await);
    s.clock.set(end);
    assert!(!is_there(&s, "k").await);
    // What has ended and was not swept is there again for a clock that goes back: it has not ended
    // then.
    s.clock.go_back(Duration::from_micros(1));
    assert!(is_there(&s, "k").await);
    s.clock.set(end);
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 1);
    s.clock.go_back(HOUR);
    assert!(!is_there(&s, "k").await, "what was swept is gone");
}

pub(super) async fn lists_follow_restored_times(s: Fixture) {
    s.store.put(put("first", "v")).await.unwrap();
    s.clock.go_back(HOUR);
    s.store.put(put("second", "v")).await.unwrap();
    s.clock.go_back(HOUR);
    s.store.put(put("third", "v")).await.unwrap();
    assert_eq!(listed(&s, "").await, ["first", "second", "third"]);
    s.store.put(put("first", "again")).await.unwrap();
    assert_eq!(listed(&s, "").await, ["second", "first", "third"]);
    let scan = s
        .store
        .scan(&alice(), Kind::Note, "", Order::NewestFirst, 10)
        .await
        .unwrap();
    let scanned: Vec<_> = scan
        .entries
        .into_iter()
        .map(|entry| entry.meta.key)
        .collect();
    assert_eq!(scanned, ["second", "first", "third"]);
}

pub(super) async fn durations_ignore_summer_time(s: Fixture) {
    // 2026-03-29T00:59:59Z: in Berlin it is 01:59:59, and 03:00:00 a second later.
    // 2026-10-25T00:59:59Z: in Berlin it is 02:59:59, and 02:00:00 a second later.
    for seconds in [1_774_745_999_i64, 1_792_889_999] {
        s.clock.set(Timestamp(seconds * 1_000_000));
        let written = s
            .store
            .put(Put {
                ttl: Some(2 * HOUR),
                ..put("k", "v")
            })
            .await
            .unwrap();
        assert_eq!(
            written.expires_at,
            Some(Timestamp((seconds + 7200) * 1_000_000))
        );
        s.clock.set(Timestamp((seconds + 7200) * 1_000_000 - 1));
        assert!(is_there(&s, "k").await);
        s.clock.advance(Duration::from_micros(1));
        assert!(!is_there(&s, "k").await);
    }
}

pub(super) async fn no_number_of_seconds_is_too_large_for_a_time(s: Fixture) {
    // Beyond 31 bits (2038-01-19), 32 bits (2106-02-07) and 33 bits.
    for bits in [31, 32, 33] {
        let second = 1_i64 << bits;
        s.clock.set(Timestamp((second - 1) * 1_000_000));
        let key = format!("{bits}");
        let written = s
            .store
            .put(Put {
                ttl: Some(Duration::from_secs(2)),
                ..put(&key, "v")
            })
            .await
            .unwrap();
        assert_eq!(
            written.expires_at,
            Some(Timestamp((second + 1) * 1_000_000))
        );
        s.clock.advance(Duration::from_secs(1));
        let entry = s
            .store
            .get(&alice(), Kind::Note, &key)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(entry.meta, written, "{bits} bits");
        let second = s
            .store
            .put(put(&format!("{key} for ever"), "v"))
            .await
            .unwrap();
        assert_eq!(second.updated_at, s.clock.now());
        s.clock.advance(Duration::from_secs(1));
        assert!(!is_there(&s, &key).await, "{bits} bits");
    }
    assert_eq!(
        listed(&s, "").await,
        ["33 for ever", "32 for ever", "31 for ever"]
    );
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 3);
}

pub(super) async fn times_before_1970_are_times_too(s: Fixture) {
    s.clock.set(Timestamp(-5_000_000));
    s.store.put(put("for ever", "v")).await.unwrap();
    let written = s
        .store
        .put(Put {
            ttl: Some(Duration::from_secs(4)),
            ..put("k", "v")
        })
        .await
        .unwrap();
    assert_eq!(written.expires_at, Some(Timestamp(-1_000_000)));
    assert_eq!(
        s.store
            .get(&alice(), Kind::Note, "k")
            .await
            .unwrap()
            .unwrap()
            .meta,
        written
    );
    s.clock.set(Timestamp(-1_000_000));
    assert_eq!(keys(&s).await, ["for ever"]);
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 1);
}

pub(super) async fn a_life_too_long_for_the_calendar_is_for_ever(s: Fixture) {
    // 9999-12-31T23:59:59.999999Z, and a start that is exactly that far away.
    let last = Timestamp(253_402_300_799_999_999);
    let left = last.since(s.clock.now());
    for (key, ttl, end) in [
        ("last", left, Some(last)),
        ("beyond", left + Duration::from_micros(1), None),
        ("seconds", Duration::from_secs(u64::MAX), None),
        ("micros", Duration::from_micros(u64::MAX), None),
        ("signed", Duration::from_micros(i64::MAX as u64), None),
        ("largest", Duration::MAX, None),
    ] {
        let written = s
            .store
            .put(Put {
                ttl: Some(ttl),
                ..put(key, "v")
            })
            .await
            .unwrap();
        assert_eq!(written.expires_at, end, "{key}");
        assert!(is_there(&s, key).await, "{key}");
    }
    s.clock.set(last);
    assert_eq!(s.store.sweep_expired(10).await.unwrap(), 1);
    assert!(!is_there(&s, "last").await && is_there(&s, "beyond").await);
}

pub(super) async fn no_life_at_all_is_no_life(s: Fixture) {
    s.store.put(put("k", "v")).await.unwrap();
    let written = s
        .store
        .put(Put {
            ttl: Some(Duration::ZERO),
            ..put("k", "v")
        })
        .await
        .unwrap();
    assert_eq!(
        (written.version, written.expires_at),
        (2, Some(s.clock.now()))
    );
    assert!(
        !is_there(&s, "k").await,
        "it replaced what was there, and has ended"
    );
    assert_eq!(s.store.put(put("k", "v")).await.unwrap().version, 1);
    s.store
        .put(Put {
            ttl: Some(Duration::from_nanos(1)),
            ..put("short", "v")
        })
        .await
        .unwrap();
    assert!(
        !is_there(&s, "short").await,
        "there is nothing shorter than a microsecond"
    );
    let gone = s
        .store
        .delete(Delete::Prefix {
            namespace: None,
            kind: None,
            prefix: String::new(),
        })
        .await
        .unwrap();
    assert_eq!(gone, 2, "what has ended counts until it is swept");
}
