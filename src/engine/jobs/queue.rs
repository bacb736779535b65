//! Bounded, fair queue.
//!
//! Callers take turns, however many jobs each has waiting. Jobs of one caller run in order.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Waiting items by caller, and the numbers of running ones.
#[derive(Debug)]
pub(super) struct Queue<C, T> {
    /// Limit of waiting items.
    room: usize,
    /// Limit of running items.
    concurrency: usize,
    /// Limit of running items per caller.
    per_caller: usize,
    callers: HashMap<C, CallerQueue<T>>,
    /// Callers with waiting items, the next one first.
    turns: VecDeque<C>,
    /// Reserved places: of waiting items, and of items about to be pushed.
    taken: usize,
    running: usize,
    /// Places of running items that are about to be begun.
    held: usize,
}

#[derive(Debug)]
struct CallerQueue<T> {
    waiting: VecDeque<T>,
    running: usize,
}

impl<T> Default for CallerQueue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            running: 0,
        }
    }
}

impl<C: Clone + Eq + Hash, T> Queue<C, T> {
    /// Makes an empty queue. A limit of 0 counts as 1.
    pub(super) fn new(room: usize, concurrency: usize, per_caller: usize) -> Self {
        Self {
            room: room.max(1),
            concurrency: concurrency.max(1),
            per_caller: per_caller.max(1),
            callers: HashMap::new(),
            turns: VecDeque::new(),
            taken: 0,
            running: 0,
            held: 0,
        }
    }

    /// Reserves a place for an item; `false` if the queue is full.
    pub(super) fn reserve(&mut self) -> bool {
        let free = self.taken < self.room;
        self.taken += usize::from(free);
        free
    }

    /// Releases a reserved place.
    pub(super) fn release(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Adds an item to its caller's queue, in a reserved place.
    pub(super) fn push(&mut self, caller: C, item: T) {
        let line = self.callers.entry(caller.clone()).or_default();
        if line.waiting.is_empty() {
            self.turns.push_back(caller);
        }
        line.waiting.push_back(item);
    }

    /// Takes the next item that may run now, if any. Call [`Queue::ended`] at its end.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.running + self.held >= self.concurrency {
            return None;
        }
        let may_run = |caller: &C| {
            self.callers
                .get(caller)
                .is_some_and(|line| line.running < self.per_caller)
        };
        let at = self.turns.iter().position(may_run)?;
        let caller = self.turns.remove(at)?;
        let line = self.callers.get_mut(&caller)?;
        let item = line.waiting.pop_front()?;
        line.running += 1;
        if !line.waiting.is_empty() {
            self.turns.push_back(caller);
        }
        self.running += 1;
        self.taken -= 1;
        Some(item)
    }

    /// Holds all places of running items that are free, for items from elsewhere, and returns how
    /// many.
    pub(super) fn hold(&mut self) -> usize {
        let free = self.concurrency.saturating_sub(self.running + self.held);
        self.held += free;
        free
    }

    /// Frees places of [`Queue::hold`].
    pub(super) fn free(&mut self, places: usize) {
        self.held = self.held.saturating_sub(places);
    }

    /// Records that an item from elsewhere runs in a held place. Call [`Queue::ended`] at its end.
    pub(super) fn begin(&mut self, caller: C) {
        self.free(1);
        self.callers.entry(caller).or_default().running += 1;
        self.running += 1;
    }

    /// Records that an item of this caller has ended.
    pub(super) fn ended(&mut self, caller: &C) {
        if let Some(line) = self.callers.get_mut(caller) {
            line.running = line.running.saturating_sub(1);
            self.running = self.running.saturating_sub(1);
            if line.running == 0 && line.waiting.is_empty() {
                self.callers.remove(caller);
            }
        }
    }

    /// Removes a waiting item of a caller.
    pub(super) fn remove(&mut self, caller: &C, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let line = self.callers.get_mut(caller)?;
        let at = line.waiting.iter().position(wanted)?;
        let item = line.waiting.remove(at)?;
        self.taken -= 1;
        if line.waiting.is_empty() {
            let running = line.running;
            self.turns.retain(|other| other != caller);
            if running == 0 {
                self.callers.remove(caller);
            }
        }
        Some(item)
    }

    /// Takes all waiting items.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.turns.clear();
        let waiting: Vec<T> = self
            .callers
            .values_mut()
            .flat_map(|line| line.waiting.drain(..))
            .collect();
        self.callers.retain(|_, line| line.running > 0);
        self.taken -= waiting.len();
        waiting
    }

    /// Returns the number of running items.
    pub(super) const fn running(&self) -> usize {
        self.running
    }

    /// Returns the number of waiting items.
    pub(super) fn waiting(&self) -> usize {
        self.callers.values().map(|line| line.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(queue: &mut Queue<&'static str, String>, caller: &'static str, count: usize) {
        for n in 0..count {
            assert!(queue.reserve());
            queue.push(caller, format!("{caller}{n}"));
        }
    }

    /// Runs one after the other and returns the order.
    fn order(queue: &mut Queue<&'static str, String>) -> Vec<String> {
        let mut order = Vec::new();
        while let Some(item) = queue.next() {
            let caller = ["a", "b", "c"]
                .into_iter()
                .find(|caller| item.starts_with(caller))
                .unwrap();
            queue.ended(&caller);
            order.push(item);
        }
        order
    }

    #[test]
    fn callers_take_turns() {
        let mut queue = Queue::new(1000, 1, 1);
        filled(&mut queue, "a", 4);
        filled(&mut queue, "b", 2);
        filled(&mut queue, "c", 1);
        assert_eq!(
            order(&mut queue),
            ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
        );
        assert!(queue.callers.is_empty() && queue.taken == 0 && queue.running() == 0);
    }

    #[test]
    fn one_caller_never_takes_all_places() {
        let mut queue = Queue::new(1000, 4, 2);
        filled(&mut queue, "a", 100);
        assert_eq!(
            (queue.next(), queue.next(), queue.next()),
            (Some("a0".into()), Some("a1".into()), None)
        );
        filled(&mut queue, "b", 1);
        assert_eq!((queue.next(), queue.next()), (Some("b0".into()), None));
        filled(&mut queue, "c", 3);
        assert_eq!(
            (queue.next(), queue.next()),
            (Some("c0".into()), None),
            "four run"
        );
        queue.ended(&"a");
        assert_eq!(
            queue.next().as_deref(),
            Some("a2"),
            "it is the turn of who waited longer"
        );
        assert_eq!((queue.running(), queue.waiting()), (4, 99));
    }

    #[test]
    fn full_queue_refuses_until_a_place_is_free() {
        let mut queue = Queue::new(2, 1, 1);
        filled(&mut queue, "a", 2);
        assert!(!queue.reserve());
        assert_eq!(
            queue.remove(&"a", |item| item == "a1").as_deref(),
            Some("a1")
        );
        assert!(queue.reserve() && !queue.reserve());
        queue.release();
        assert_eq!(queue.next().as_deref(), Some("a0"));
        assert!(queue.reserve() && queue.reserve() && !queue.reserve());
    }

    #[test]
    fn held_places_are_taken_by_nobody_else() {
        let mut queue = Queue::new(9, 3, 2);
        filled(&mut queue, "a", 2);
        assert_eq!(
            (queue.next().as_deref(), queue.hold(), queue.hold()),
            (Some("a0"), 2, 0)
        );
        assert_eq!((queue.next(), queue.running()), (None, 1));
        queue.begin("b");
        queue.free(1);
        assert_eq!((queue.running(), queue.next().as_deref()), (2, Some("a1")));
        for caller in ["a", "a", "b"] {
            queue.ended(&caller);
        }
        assert_eq!(
            (queue.running(), queue.hold(), queue.callers.len()),
            (0, 3, 0)
        );
    }

    #[test]
    fn who_leaves_the_line_takes_no_turn() {
        let mut queue = Queue::new(9, 1, 1);
        filled(&mut queue, "a", 1);
        filled(&mut queue, "b", 2);
        assert!(queue.remove(&"a", |_| true).is_some() && queue.remove(&"a", |_| true).is_none());
        assert_eq!(order(&mut queue), ["b0", "b1"]);
        filled(&mut queue, "a", 2);
        assert_eq!(queue.next().as_deref(), Some("a0"));
        assert_eq!(queue.drain(), ["a1"]);
        queue.ended(&"a");
        assert!(queue.next().is_none() && queue.callers.is_empty() && queue.taken == 0);
    }
}
