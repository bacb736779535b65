//! Test cases about which cached answers are evicted: compared with a model of LRU on the same
//! calls.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::Fixture;
use super::lists::alice;
use crate::config::{Config, KindLimits, Limits};
use crate::entry::{Kind, Namespace};
use crate::ops::{Op, Order, Put};
use crate::sieve::COST;

/// Number of different calls, and of the answers that fit: a tenth.
const KEYS: usize = 200;
const ROWS: usize = 20;
const CALLS: usize = 1_000;

pub(super) fn few() -> Config {
    let kinds = BTreeMap::from([(
        Kind::Cache,
        KindLimits {
            rows: Some(ROWS as u64),
            ..KindLimits::default()
        },
    )]);
    Config {
        limits: Limits {
            kinds,
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// Calls whose popularity falls with a power of their rank (Zipf), from a seed.
pub(crate) struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    pub(crate) fn new(exponent: f64, keys: usize, seed: u64) -> Self {
        let add = |sum: &mut f64, rank: usize| {
            *sum += (rank as f64).powf(-exponent);
            Some(*sum)
        };
        Self {
            sums: (1..=keys).scan(0.0, add).collect(),
            state: seed,
        }
    }

    /// Returns a number between 0 and 1 (`SplitMix64`).
    fn fraction(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the next key, 0 for the most popular one.
    pub(crate) fn next_key(&mut self) -> usize {
        let at = self.fraction() * self.sums.last().copied().unwrap_or(0.0);
        self.sums
            .partition_point(|sum| *sum < at)
            .min(self.sums.len() - 1)
    }
}

/// What a cache got out of some calls.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Gain {
    pub(crate) hits: u64,
    pub(crate) saved_us: u64,
}

/// A cache with room for some answers that evicts the one that was not read for longest.
#[derive(Default)]
pub(crate) struct Lru {
    rows: usize,
    last: BTreeMap<usize, u64>,
    by_last: BTreeMap<u64, usize>,
    now: u64,
    pub(crate) gain: Gain,
}

impl Lru {
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }

    pub(crate) fn call(&mut self, key: usize, cost_us: u64) {
        self.now += 1;
        match self.last.insert(key, self.now) {
            Some(before) => {
                self.by_last.remove(&before);
                (self.gain.hits, self.gain.saved_us) =
                    (self.gain.hits + 1, self.gain.saved_us + cost_us);
            }
            None if self.last.len() > self.rows => {
                if let Some((_, oldest)) = self.by_last.pop_first() {
                    self.last.remove(&oldest);
                }
            }
            None => {}
        }
        self.by_last.insert(self.now, key);
    }
}

fn answer(key: usize, cost_us: u64) -> Put {
    let attributes = BTreeMap::from([(COST.to_owned(), cost_us.to_string())]);
    Put {
        attributes,
        ..Put::new(alice(), Kind::Cache, format!("{key:05}"), "an answer")
    }
}

/// Makes a call with a store: reads the answer, and writes it after a miss.
pub(crate) async fn call(s: &Fixture, gain: &mut Gain, key: usize, cost_us: u64) {
    s.clock.advance(Duration::from_micros(1));
    if s.store
        .get(&alice(), Kind::Cache, &format!("{key:05}"))
        .await
        .unwrap()
        .is_some()
    {
        (gain.hits, gain.saved_us) = (gain.hits + 1, gain.saved_us + cost_us);
    } else {
        s.store.put(answer(key, cost_us)).await.unwrap();
    }
}

pub(super) async fn zipf_calls_hit_as_often_as_with_lru(s: Fixture) {
    let (mut zipf, mut lru, mut gain) = (Zipf::new(0.9, KEYS, 7), Lru::new(ROWS), Gain::default());
    for _ in 0..CALLS {
        let key = zipf.next_key();
        lru.call(key, 1000);
        call(&s, &mut gain, key, 1000).await;
    }
    assert!(
        gain.hits + CALLS as u64 / 100 >= lru.gain.hits,
        "{gain:?}, LRU {:?}",
        lru.gain
    );
    assert_eq!(s.store.stats().await.unwrap().rows, ROWS as u64);
}

pub(super) async fn dear_answers_stay_longer_than_cheap_ones(s: Fixture) {
    let cost = |key: usize| {
        if key.is_multiple_of(2) {
            100_000
        } else {
            1_000
        }
    };
    let (mut zipf, mut lru, mut gain) = (Zipf::new(0.9, KEYS, 8), Lru::new(ROWS), Gain::default());
    for _ in 0..CALLS {
        let key = zipf.next_key();
        lru.call(key, cost(key));
        call(&s, &mut gain, key, cost(key)).await;
    }
    assert!(
        gain.saved_us > lru.gain.saved_us * 21 / 20,
        "{gain:?}, LRU {:?}",
        lru.gain
    );
}

async fn keys(s: &Fixture, kind: Kind) -> Vec<String> {
    let scan = s
        .store
        .scan(&alice(), kind, "", Order::KeyAscending, 1000)
        .await
        .unwrap();
    scan.entries
        .into_iter()
        .map(|entry| entry.meta.key)
        .collect()
}

pub(super) async fn unread_answers_go_before_read_ones(s: Fixture) {
    for key in 0..ROWS {
        s.clock.advance(Duration::from_micros(1));
        s.store.put(answer(key, 5)).await.unwrap();
    }
    // Both ways to read, and one that concerns another caller's answer of the same key.
    assert!(
        s.store
            .get(&alice(), Kind::Cache, "00000")
            .await
            .unwrap()
            .is_some()
    );
    s.store.note_read(&alice(), "00002");
    s.store
        .note_read(&Namespace::new("t", "bob", None), "00001");
    s.store.note_read(&alice(), "nothing");
    for key in [ROWS, ROWS + 1] {
        s.store.put(answer(key, 5)).await.unwrap();
    }
    let kept = keys(&s, Kind::Cache).await;
    assert_eq!(kept[..3], ["00000", "00002", "00004"]);
    // From now on reads are written down, for other processes.
    s.store.note_read(&alice(), "00005");
    s.store.flush_reads().await.unwrap();
    s.store.put(answer(ROWS + 2, 5)).await.unwrap();
    s.store.put(answer(ROWS + 3, 5)).await.unwrap();
    let kept = keys(&s, Kind::Cache).await;
    assert_eq!(kept[..4], ["00000", "00002", "00005", "00007"]);
    assert_eq!(kept.len(), ROWS);
}

pub(super) async fn answers_that_are_all_read_are_evicted(s: Fixture) {
    for key in 0..3 * ROWS {
        s.clock.advance(Duration::from_micros(1));
        s.store.put(answer(key, 5)).await.unwrap();
        for key in keys(&s, Kind::Cache).await {
            s.store.note_read(&alice(), &key);
        }
    }
    assert_eq!(keys(&s, Kind::Cache).await.len(), ROWS);
    // A batch larger than what fits: what was written first goes again.
    let batch = (100..100 + 2 * ROWS)
        .map(|key| Op::Put(answer(key, 5)))
        .collect();
    s.store.write(batch).await.unwrap();
    assert_eq!(keys(&s, Kind::Cache).await.len(), ROWS);
}
