//! Eviction policy of cached answers: SIEVE, weighted by the cost of each answer per byte.
//!
//! A hand goes over the rows of a key space in rounds, from the oldest to the newest. It spares a
//! row that was read since its last visit, and a row that costs more per byte than its neighbours.
//! It evicts every other row. No row moves, so the order of the rows never has to be written. The
//! policy without costs is from
//! [Zhang et al., NSDI 2024](https://www.usenix.org/conference/nsdi24/presentation/zhang-yazhuo).

use std::collections::{BTreeMap, HashMap, HashSet};

use parking_lot::Mutex;

use crate::entry::Namespace;

/// Attribute of a cached answer: its cost, the time in microseconds that its handler took.
///
/// It stands in the clear, because an eviction needs no key. An answer without it is taken for the
/// cheapest.
pub const COST: &str = "cost_us";

/// Number of neighbours that the hand looks at together.
pub(crate) const NEIGHBOURS: usize = 64;
/// How often the hand looks for one row to evict. After that it evicts the next one, so that no
/// transaction gets long.
pub(crate) const LOOKS: usize = 32;
/// The most rounds for which a cost spares a row.
const MOST_ROUNDS: i64 = 8;
/// Round until which a row is spared that was read since the hand's last visit.
pub(crate) const READ: i64 = i64::MAX;

/// Row at the hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Round until which it is spared; `None` = the hand never came by, and it was never read.
    pub(crate) spared_until: Option<i64>,
    /// What it takes.
    pub(crate) bytes: i64,
    /// Its cost in microseconds.
    pub(crate) cost_us: u64,
}

/// What the hand does with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Evicts it.
    Evict,
    /// Leaves it as it is.
    Spare,
    /// Notes until which round it is spared.
    SpareUntil(i64),
}

impl Candidate {
    /// Returns the binary logarithm of its cost per byte.
    fn density(&self) -> f64 {
        (self.cost_us.max(1) as f64 / self.bytes.max(1) as f64).log2()
    }
}

/// Decides on neighbours in a round.
///
/// A row that was read is spared for one round. A row that costs 2, 4, 8 times as much per byte as
/// its neighbours (their geometric mean) is spared for 1, 2, 3 rounds more.
pub(crate) fn judge(neighbours: &[Candidate], round: i64) -> Vec<Verdict> {
    let mean =
        neighbours.iter().map(Candidate::density).sum::<f64>() / neighbours.len().max(1) as f64;
    let verdict = |row: &Candidate| {
        if row.spared_until.is_some_and(|until| until != READ) {
            return if row.spared_until > Some(round) {
                Verdict::Spare
            } else {
                Verdict::Evict
            };
        }
        let dear = ((row.density() - mean).round() as i64).clamp(0, MOST_ROUNDS);
        match dear + i64::from(row.spared_until.is_some()) {
            0 => Verdict::Evict,
            rounds => Verdict::SpareUntil(round.saturating_add(rounds)),
        }
    };
    neighbours.iter().map(verdict).collect()
}

/// Reads the cost from attributes.
pub(crate) fn cost_of(attributes: &BTreeMap<String, String>) -> u64 {
    attributes
        .get(COST)
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0)
}

/// Reads the cost from attributes as drivers store them, without parsing all of the JSON.
///
/// No value holds this text: its quotes would be escaped.
pub(crate) fn cost_in(json: &str) -> u64 {
    let rest = json.split_once("\"cost_us\":\"").map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_once('"'))
        .and_then(|(cost, _)| cost.parse().ok())
        .unwrap_or(0)
}

/// Limit of keys in [`Reads`]. More are not noted: they count as unread.
const MOST_READS: usize = 16 << 10;

/// Cached answers that this process read since they were last written down.
///
/// It is a hint, so a full or lost one costs hits, and nothing else.
#[derive(Debug, Default)]
pub struct Reads(Mutex<(HashMap<Namespace, HashSet<String>>, usize)>);

impl Reads {
    /// Notes that an answer was read.
    pub(crate) fn note(&self, namespace: &Namespace, key: &str) {
        let (reads, count) = &mut *self.0.lock();
        if *count >= MOST_READS || reads.get(namespace).is_some_and(|keys| keys.contains(key)) {
            return;
        }
        *count += 1;
        reads
            .entry(namespace.clone())
            .or_default()
            .insert(key.to_owned());
    }

    /// Takes the keys of a namespace.
    pub(crate) fn take(&self, namespace: &Namespace) -> HashSet<String> {
        let (reads, count) = &mut *self.0.lock();
        let keys = reads.remove(namespace).unwrap_or_default();
        *count -= keys.len();
        keys
    }

    /// Takes everything.
    pub(crate) fn take_all(&self) -> HashMap<Namespace, HashSet<String>> {
        std::mem::take(&mut *self.0.lock()).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(spared_until: Option<i64>, bytes: i64, cost_us: u64) -> Candidate {
        Candidate {
            spared_until,
            bytes,
            cost_us,
        }
    }

    #[test]
    fn unread_row_of_usual_cost_is_evicted() {
        let rows = [
            row(None, 100, 50),
            row(Some(READ), 100, 50),
            row(Some(7), 100, 50),
            row(Some(8), 100, 50),
        ];
        assert_eq!(
            judge(&rows, 7),
            [
                Verdict::Evict,
                Verdict::SpareUntil(8),
                Verdict::Evict,
                Verdict::Spare
            ]
        );
        assert_eq!(judge(&[row(None, 0, 0)], 0), [Verdict::Evict]);
        assert!(judge(&[], 0).is_empty());
    }

    #[test]
    fn cost_per_byte_spares_by_its_logarithm() {
        // Their mean is 10 per byte.
        let rows = [
            row(None, 10, 1000),
            row(None, 10, 10),
            row(Some(READ), 10, 10),
            row(Some(READ), 10, 1000),
        ];
        let expected = [
            Verdict::SpareUntil(3),
            Verdict::Evict,
            Verdict::SpareUntil(1),
            Verdict::SpareUntil(4),
        ];
        assert_eq!(judge(&rows, 0), expected);
        // The same costs, spread over ten times as many bytes.
        assert_eq!(
            judge(&[row(None, 100, 100), row(None, 10, 100)], 5),
            [Verdict::Evict, Verdict::SpareUntil(7)]
        );
        let extremes = [row(None, 1, u64::MAX), row(None, i64::MAX, 0)];
        assert_eq!(
            judge(&extremes, 0),
            [Verdict::SpareUntil(MOST_ROUNDS), Verdict::Evict]
        );
    }

    #[test]
    fn cost_is_read_from_json_and_map_alike() {
        let attributes = |cost: &str| {
            BTreeMap::from([
                ("a".to_owned(), "\"cost_us\":\"7\"".to_owned()),
                (COST.to_owned(), cost.to_owned()),
            ])
        };
        for (cost, expected) in [("1500", 1500), ("", 0), ("-1", 0), ("x", 0)] {
            let attributes = attributes(cost);
            assert_eq!(cost_of(&attributes), expected);
            assert_eq!(
                cost_in(&serde_json::to_string(&attributes).unwrap()),
                expected
            );
        }
        assert_eq!((cost_of(&BTreeMap::new()), cost_in("{}")), (0, 0));
    }

    #[test]
    fn reads_are_bounded_and_taken_once() {
        let (reads, one, two) = (
            Reads::default(),
            Namespace::new("t", "a", None),
            Namespace::new("t", "b", None),
        );
        for key in ["x", "x", "y"] {
            reads.note(&one, key);
        }
        reads.note(&two, "x");
        assert_eq!((reads.take(&one).len(), reads.take(&one).len()), (2, 0));
        for index in 0..2 * MOST_READS {
            reads.note(&one, &index.to_string());
        }
        let all = reads.take_all();
        assert_eq!((all[&one].len(), all[&two].len()), (MOST_READS - 1, 1));
        reads.note(&one, "again");
        assert_eq!(reads.take(&one).len(), 1);
    }
}
