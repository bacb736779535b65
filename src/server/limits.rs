//! Limits: requests at work, in all and of each caller and peer, and requests a second of one caller. It never blocks and never
//! waits.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_core::{Code, Error, Identity};

/// The most callers whose rate is remembered.
const MAX_CALLERS: usize = 10_000;

/// Counter with a limit. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    limit: usize,
    count: Arc<AtomicUsize>,
}

/// One place of an [`InFlight`]; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl InFlight {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, count: Arc::default() }
    }

    /// Takes a place, or says `overloaded` if there is none.
    pub(crate) fn enter(&self) -> Result<Permit, Error> {
        self.count_one().map(|()| Permit(Arc::clone(&self.count)))
    }

    fn count_one(&self) -> Result<(), Error> {
        if self.count.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Ok(());
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        Err(Error::new(Code::Overloaded, "too many requests at once").with_retry_after(Duration::from_secs(1)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Request slot: one of the requests at work. A request whose body is still on its way is not at work, so it gives its slot back
/// until the body is there. Clones are the same slot, freed with the last one.
#[derive(Debug, Clone)]
pub(crate) struct Slot(Arc<Held>);

#[derive(Debug)]
struct Held {
    pool: InFlight,
    taken: AtomicBool,
}

impl Slot {
    /// Takes a slot, or says `overloaded` if there is none.
    pub(crate) fn take(pool: &InFlight) -> Result<Self, Error> {
        let slot = Self(Arc::new(Held { pool: pool.clone(), taken: AtomicBool::new(false) }));
        slot.resume().map(|()| slot)
    }

    /// Gives the slot back for now.
    pub(crate) fn pause(&self) {
        self.0.free();
    }

    /// Takes it again, or says `overloaded` if others have all of them.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.0.pool.count_one()?;
        if self.0.taken.swap(true, Ordering::Relaxed) {
            // It had one.
            self.0.pool.count.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Held {
    fn free(&self) {
        if self.taken.swap(false, Ordering::Relaxed) {
            self.pool.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.free();
    }
}

/// What an admitted request holds until it is answered: its slot, and its part of what its caller and its peer may have.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) slot: Slot,
    /// Never looked at: what matters is when they are dropped.
    pub(crate) _caller: Option<Share>,
    pub(crate) _peer: Option<Permit>,
}

/// Counts what each key (a caller, a peer) has open, so that one cannot take it all.
#[derive(Debug)]
pub(crate) struct Each<K: Eq + Hash = Arc<Identity>> {
    limit: usize,
    counts: Counts<K>,
}

type Counts<K> = Arc<Mutex<HashMap<K, usize>>>;

/// One place of a key; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash = Arc<Identity>>(Counts<K>, K);

impl<K: Eq + Hash + Clone> Each<K> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, counts: Arc::default() }
    }

    /// Takes a place of this key, or says `overloaded` if it has no more.
    pub(crate) fn enter(&self, key: &K) -> Result<Share<K>, Error> {
        let mut counts = self.counts.lock();
        let held = counts.get(key).copied().unwrap_or(0);
        if held >= self.limit {
            let message = format!("you have {held} open, and one caller may have no more");
            return Err(Error::new(Code::Overloaded, message).with_retry_after(Duration::from_secs(1)));
        }
        counts.insert(key.clone(), held + 1);
        Ok(Share(Arc::clone(&self.counts), key.clone()))
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        if let Some(held) = counts.get_mut(&self.1) {
            *held -= 1;
            if *held == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// A token bucket per caller, kept as one number: the time at which the bucket is full again (the "theoretical arrival
/// time" of the generic cell rate algorithm, ITU-T I.371).
#[derive(Debug)]
pub(crate) struct Rate {
    /// The time in which one token comes back.
    interval: Duration,
    /// The time in which an empty bucket fills.
    capacity: Duration,
    full_at: Mutex<HashMap<Arc<Identity>, Duration>>,
}

impl Rate {
    /// Makes the limit, `None` if there is to be none. A burst of 0 stands for one second's worth.
    pub(crate) fn new(per_second: u32, burst: u32) -> Option<Self> {
        let interval = Duration::from_secs(1).checked_div(per_second)?;
        let capacity = interval * if burst == 0 { per_second } else { burst };
        Some(Self { interval, capacity, full_at: Mutex::default() })
    }

    /// Takes a token of this caller, or says `rate_limited` and when the next one is there. `now` only grows.
    pub(crate) fn take(&self, caller: &Arc<Identity>, now: Duration) -> Result<(), Error> {
        let mut full_at = self.full_at.lock();
        let full = full_at.get(caller).copied().unwrap_or(now);
        let next = full.max(now) + self.interval;
        let wait = next.saturating_sub(now + self.capacity);
        if !wait.is_zero() {
            return Err(Error::new(Code::RateLimited, "too many requests a second").with_retry_after(wait));
        }
        if let Some(full) = full_at.get_mut(caller) {
            *full = next;
        } else {
            if full_at.len() >= MAX_CALLERS {
                forget_some(&mut full_at, now);
            }
            full_at.insert(Arc::clone(caller), next);
        }
        Ok(())
    }
}

/// Makes room: whoever's bucket is full needs no memory; if nobody's is, the one nearest to it goes.
fn forget_some(full_at: &mut HashMap<Arc<Identity>, Duration>, now: Duration) {
    full_at.retain(|_, full| *full > now);
    if full_at.len() >= MAX_CALLERS
        && let Some(nearest) = full_at.iter().min_by_key(|(_, full)| **full).map(|(caller, _)| caller.clone())
    {
        full_at.remove(&nearest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_when_the_request_ends_or_was_refused() {
        let limit = InFlight::new(2);
        let first = limit.enter().unwrap();
        let second = limit.enter().unwrap();
        let refused = limit.enter().unwrap_err();
        assert_eq!((refused.code(), refused.retry_after()), (Code::Overloaded, Some(Duration::from_secs(1))));
        drop(first);
        let third = limit.enter().unwrap();
        assert!(limit.enter().is_err());
        drop((second, third));
        assert!(limit.enter().is_ok());
    }

    #[test]
    fn paused_slot_is_free_for_others() {
        let pool = InFlight::new(1);
        let slow = Slot::take(&pool).unwrap();
        assert_eq!(Slot::take(&pool).unwrap_err().code(), Code::Overloaded);
        slow.pause();
        slow.pause();
        let other = Slot::take(&pool).unwrap();
        assert_eq!(slow.resume().unwrap_err().code(), Code::Overloaded);
        drop(other);
        slow.resume().unwrap();
        let same = slow.clone();
        drop(slow);
        assert!(Slot::take(&pool).is_err(), "a clone still holds it");
        drop(same);
        drop(Slot::take(&pool).unwrap());
        assert_eq!(pool.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_caller_has_so_many_places_of_its_own_and_gets_them_back() {
        let each = Each::new(2);
        let (a, b) = (Arc::new(Identity::local()), Arc::new(Identity::new("t", "b").unwrap()));
        let held = [each.enter(&a).unwrap(), each.enter(&a).unwrap()];
        assert_eq!(each.enter(&a).unwrap_err().code(), Code::Overloaded);
        let other = each.enter(&b).unwrap();
        drop(held);
        assert!(each.enter(&a).is_ok());
        drop(other);
        assert!(each.counts.lock().is_empty());
    }

    #[test]
    fn a_bucket_empties_by_its_burst_and_fills_by_its_rate() {
        let rate = Rate::new(10, 3).unwrap();
        let (caller, start) = (Arc::new(Identity::local()), Duration::from_secs(100));
        for _ in 0..3 {
            rate.take(&caller, start).unwrap();
        }
        let refused = rate.take(&caller, start).unwrap_err();
        assert_eq!((refused.code(), refused.retry_after()), (Code::RateLimited, Some(Duration::from_millis(100))));
        rate.take(&caller, start + Duration::from_millis(100)).unwrap();
        assert!(rate.take(&caller, start + Duration::from_millis(199)).is_err());
        // A long pause fills the bucket, never more than that.
        for _ in 0..3 {
            rate.take(&caller, start + Duration::from_secs(60)).unwrap();
        }
        assert!(rate.take(&caller, start + Duration::from_secs(60)).is_err());
    }

    #[test]
    fn callers_have_a_bucket_each_and_the_memory_is_bounded() {
        let rate = Rate::new(1, 0).unwrap();
        let caller = |user: usize| Arc::new(Identity::new("t", &user.to_string()).unwrap());
        for user in 0..=MAX_CALLERS {
            rate.take(&caller(user), Duration::ZERO).unwrap();
        }
        assert!(rate.full_at.lock().len() <= MAX_CALLERS);
        assert!(rate.take(&caller(MAX_CALLERS), Duration::ZERO).is_err());
        assert!(Rate::new(0, 5).is_none());
    }
}
