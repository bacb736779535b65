//! Limits on concurrent requests (in total, per caller, per peer) and on each caller's rate.
//!
//! Nothing here blocks or waits.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_core::{Code, Error, Identity};

/// Maximum number of callers whose rate is tracked.
const MAX_CALLERS: usize = 10_000;

/// Number of servers that share the traffic of all callers. Clones are the same number.
///
/// A limit for all servers is enforced in parts: each server allows `1/N` of it, rounded up. With
/// an even balancer all of them together allow the limit, plus at most one request per server and
/// caller for the rounding.
#[derive(Debug, Clone)]
pub struct Replicas(Arc<AtomicUsize>);

impl Default for Replicas {
    /// One server.
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(1)))
    }
}

impl Replicas {
    /// Sets how many servers there are; 0 counts as 1.
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns how many servers there are, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed).max(1)
    }

    /// Returns this server's part of a limit, at least 1.
    fn part(&self, limit: usize) -> usize {
        limit.div_ceil(self.count())
    }
}

/// Counter with a limit. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    limit: usize,
    count: Arc<AtomicUsize>,
}

/// Permit of an [`InFlight`]. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl InFlight {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            count: Arc::default(),
        }
    }

    /// Takes a permit, or fails with `overloaded`.
    pub(crate) fn enter(&self) -> Result<Permit, Error> {
        self.count_one().map(|()| Permit(Arc::clone(&self.count)))
    }

    fn count_one(&self) -> Result<(), Error> {
        if self.count.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Ok(());
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        Err(Error::new(Code::Overloaded, "too many requests at once")
            .with_retry_after(Duration::from_secs(1)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Slot of a running request. Clones are the same slot, freed with the last one.
///
/// A request whose body is still arriving does not count as running: it gives its slot back until
/// the body is there.
#[derive(Debug, Clone)]
pub(crate) struct RequestSlot(Arc<Held>);

#[derive(Debug)]
struct Held {
    pool: InFlight,
    taken: AtomicBool,
}

impl RequestSlot {
    /// Takes a slot, or fails with `overloaded`.
    pub(crate) fn take(pool: &InFlight) -> Result<Self, Error> {
        let slot = Self(Arc::new(Held {
            pool: pool.clone(),
            taken: AtomicBool::new(false),
        }));
        slot.resume().map(|()| slot)
    }

    /// Gives the slot back for now.
    pub(crate) fn pause(&self) {
        self.0.free();
    }

    /// Takes it again, or fails with `overloaded` if all are in use.
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

/// Permits that an admitted request holds until it is answered: of the server, its caller and its
/// peer.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) slot: RequestSlot,
    /// Held until dropped.
    pub(crate) _caller: Option<Share>,
    pub(crate) _peer: Option<Permit>,
}

/// Counter with a limit per key (a caller, a peer), so that one cannot take everything.
#[derive(Debug)]
pub(crate) struct Each<K: Eq + Hash = Arc<Identity>> {
    limit: usize,
    replicas: Replicas,
    counts: Counts<K>,
}

type Counts<K> = Arc<Mutex<HashMap<K, usize>>>;

/// Permit of a key of an [`Each`]. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash = Arc<Identity>>(Counts<K>, K);

impl<K: Eq + Hash + Clone> Each<K> {
    pub(crate) fn new(limit: usize) -> Self {
        Self::over(limit, Replicas::default())
    }

    /// Makes a limit that all replicas share.
    pub(crate) fn over(limit: usize, replicas: Replicas) -> Self {
        Self {
            limit,
            replicas,
            counts: Arc::default(),
        }
    }

    /// Takes a permit of this key, or fails with `overloaded`.
    pub(crate) fn enter(&self, key: &K) -> Result<Share<K>, Error> {
        let mut counts = self.counts.lock();
        let held = counts.get(key).copied().unwrap_or(0);
        if held >= self.replicas.part(self.limit) {
            let message = format!("you have {held} open, and one caller may have no more");
            return Err(
                Error::new(Code::Overloaded, message).with_retry_after(Duration::from_secs(1))
            );
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

/// Token bucket per caller (generic cell rate algorithm, ITU-T I.371).
///
/// Each bucket is one number: the time at which it is full again, which ITU-T calls the theoretical
/// arrival time.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Time in which one token of all replicas is refilled.
    interval: Duration,
    /// Tokens of a full bucket of all replicas.
    burst: u32,
    replicas: Replicas,
    full_at: Mutex<HashMap<Arc<Identity>, Duration>>,
}

impl Rate {
    /// Makes the limit; `None` = no limit. A burst of 0 stands for the requests of one second.
    pub(crate) fn new(per_second: u32, burst: u32, replicas: Replicas) -> Option<Self> {
        let interval = Duration::from_secs(1).checked_div(per_second)?;
        let burst = if burst == 0 { per_second } else { burst };
        Some(Self {
            interval,
            burst,
            replicas,
            full_at: Mutex::default(),
        })
    }

    /// Takes a token of this caller, or fails with `rate_limited` and when to retry. `now` is
    /// monotonic.
    pub(crate) fn take(&self, caller: &Arc<Identity>, now: Duration) -> Result<(), Error> {
        let replicas = u32::try_from(self.replicas.count()).unwrap_or(u32::MAX);
        let interval = self.interval.saturating_mul(replicas);
        let capacity = interval.saturating_mul(self.burst.div_ceil(replicas));
        let mut full_at = self.full_at.lock();
        let full = full_at.get(caller).copied().unwrap_or(now);
        let next = full.max(now) + interval;
        let wait = next.saturating_sub(now + capacity);
        if !wait.is_zero() {
            return Err(
                Error::new(Code::RateLimited, "too many requests a second").with_retry_after(wait)
            );
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

/// Removes full buckets, or the fullest one if none is full.
fn forget_some(full_at: &mut HashMap<Arc<Identity>, Duration>, now: Duration) {
    full_at.retain(|_, full| *full > now);
    if full_at.len() >= MAX_CALLERS
        && let Some(nearest) = full_at
            .iter()
            .min_by_key(|(_, full)| **full)
            .map(|(caller, _)| caller.clone())
    {
        full_at.remove(&nearest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_released_after_end_or_refusal() {
        let limit = InFlight::new(2);
        let first = limit.enter().unwrap();
        let second = limit.enter().unwrap();
        let refused = limit.enter().unwrap_err();
        assert_eq!(
            (refused.code(), refused.retry_after()),
            (Code::Overloaded, Some(Duration::from_secs(1)))
        );
        drop(first);
        let third = limit.enter().unwrap();
        assert!(limit.enter().is_err());
        drop((second, third));
        assert!(limit.enter().is_ok());
    }

    #[test]
    fn paused_slot_is_free_for_others() {
        let pool = InFlight::new(1);
        let slow = RequestSlot::take(&pool).unwrap();
        assert_eq!(
            RequestSlot::take(&pool).unwrap_err().code(),
            Code::Overloaded
        );
        slow.pause();
        slow.pause();
        let other = RequestSlot::take(&pool).unwrap();
        assert_eq!(slow.resume().unwrap_err().code(), Code::Overloaded);
        drop(other);
        slow.resume().unwrap();
        let same = slow.clone();
        drop(slow);
        assert!(RequestSlot::take(&pool).is_err(), "a clone still holds it");
        drop(same);
        drop(RequestSlot::take(&pool).unwrap());
        assert_eq!(pool.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn permits_are_counted_per_caller() {
        let each = Each::new(2);
        let (a, b) = (
            Arc::new(Identity::local()),
            Arc::new(Identity::new("t", "b").unwrap()),
        );
        let held = [each.enter(&a).unwrap(), each.enter(&a).unwrap()];
        assert_eq!(each.enter(&a).unwrap_err().code(), Code::Overloaded);
        let other = each.enter(&b).unwrap();
        drop(held);
        assert!(each.enter(&a).is_ok());
        drop(other);
        assert!(each.counts.lock().is_empty());
    }

    #[test]
    fn bucket_empties_by_burst_and_refills_by_rate() {
        let rate = Rate::new(10, 3, Replicas::default()).unwrap();
        let (caller, start) = (Arc::new(Identity::local()), Duration::from_secs(100));
        for _ in 0..3 {
            rate.take(&caller, start).unwrap();
        }
        let refused = rate.take(&caller, start).unwrap_err();
        assert_eq!(
            (refused.code(), refused.retry_after()),
            (Code::RateLimited, Some(Duration::from_millis(100)))
        );
        rate.take(&caller, start + Duration::from_millis(100))
            .unwrap();
        assert!(
            rate.take(&caller, start + Duration::from_millis(199))
                .is_err()
        );
        // A long pause fills the bucket, never more than that.
        for _ in 0..3 {
            rate.take(&caller, start + Duration::from_secs(60)).unwrap();
        }
        assert!(rate.take(&caller, start + Duration::from_secs(60)).is_err());
    }

    #[test]
    fn replicas_together_allow_the_limit() {
        let caller = Arc::new(Identity::local());
        for count in 1..=7 {
            let replicas = Replicas::default();
            replicas.set(count);
            let rates: Vec<Rate> = (0..count)
                .filter_map(|_| Rate::new(10, 5, replicas.clone()))
                .collect();
            // Ten seconds of far more requests than allowed, round robin.
            let requests = 0..10_000_u64;
            let allowed = requests.filter(|n| {
                let rate = &rates[usize::try_from(*n).unwrap() % count];
                rate.take(
                    &caller,
                    Duration::from_secs(100) + Duration::from_millis(*n),
                )
                .is_ok()
            });
            let (allowed, limit) = (allowed.count(), 10 * 10 + 5);
            assert!(
                (limit - count..=limit + count).contains(&allowed),
                "{count} replicas allowed {allowed}"
            );
        }
    }

    #[test]
    fn share_of_a_caller_is_divided_and_follows_the_count() {
        let replicas = Replicas::default();
        let each = Each::over(4, replicas.clone());
        replicas.set(3);
        let held = [each.enter(&1).unwrap(), each.enter(&1).unwrap()];
        assert_eq!(each.enter(&1).unwrap_err().code(), Code::Overloaded);
        replicas.set(0);
        assert!(each.enter(&1).is_ok(), "one server has the whole limit");
        drop(held);
    }

    #[test]
    fn buckets_are_per_caller_and_bounded() {
        let rate = Rate::new(1, 0, Replicas::default()).unwrap();
        let caller = |user: usize| Arc::new(Identity::new("t", &user.to_string()).unwrap());
        for user in 0..=MAX_CALLERS {
            rate.take(&caller(user), Duration::ZERO).unwrap();
        }
        assert!(rate.full_at.lock().len() <= MAX_CALLERS);
        assert!(rate.take(&caller(MAX_CALLERS), Duration::ZERO).is_err());
        assert!(Rate::new(0, 5, Replicas::default()).is_none());
    }
}
