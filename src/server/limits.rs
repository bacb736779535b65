//! How much may go on at once: requests at work, and requests a second of one caller. It never blocks and never waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use helmdeck_core::{Code, Error, Identity};

/// The most callers whose rate is remembered.
const MAX_CALLERS: usize = 10_000;

/// Counts requests at work.
#[derive(Debug)]
pub(crate) struct InFlight {
    limit: usize,
    count: Arc<AtomicUsize>,
}

/// One request at work; dropping it makes room.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl InFlight {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, count: Arc::default() }
    }

    /// Takes a place, or says `overloaded` if there is none.
    pub(crate) fn enter(&self) -> Result<Permit, Error> {
        // The permit exists before the count is looked at, so a refusal gives its place back by being dropped.
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(&self.count));
        if before < self.limit {
            return Ok(permit);
        }
        Err(Error::new(Code::Overloaded, "too many requests at once").with_retry_after(Duration::from_secs(1)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts what each caller has open, so that one cannot take it all.
#[derive(Debug)]
pub(crate) struct Each {
    limit: usize,
    counts: Counts,
}

type Counts = Arc<Mutex<HashMap<Arc<Identity>, usize>>>;

/// One of a caller's; dropping it makes room.
#[derive(Debug)]
pub(crate) struct Share(Counts, Arc<Identity>);

impl Each {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, counts: Counts::default() }
    }

    /// Takes a place of this caller, or says `overloaded` if it has no more.
    pub(crate) fn enter(&self, caller: &Arc<Identity>) -> Result<Share, Error> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let held = counts.get(caller).copied().unwrap_or(0);
        if held >= self.limit {
            let message = format!("you have {held} open, and one caller may have no more");
            return Err(Error::new(Code::Overloaded, message).with_retry_after(Duration::from_secs(1)));
        }
        counts.insert(Arc::clone(caller), held + 1);
        Ok(Share(Arc::clone(&self.counts), Arc::clone(caller)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn each_caller_has_so_many_places_of_its_own_and_gets_them_back() {
        let each = Each::new(2);
        let (a, b) = (Arc::new(Identity::local()), Arc::new(Identity::new("t", "b").unwrap()));
        let held = [each.enter(&a).unwrap(), each.enter(&a).unwrap()];
        assert_eq!(each.enter(&a).unwrap_err().code(), Code::Overloaded);
        let other = each.enter(&b).unwrap();
        drop(held);
        assert!(each.enter(&a).is_ok());
        drop(other);
        assert!(each.counts.lock().unwrap().is_empty());
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
        assert!(rate.full_at.lock().unwrap().len() <= MAX_CALLERS);
        assert!(rate.take(&caller(MAX_CALLERS), Duration::ZERO).is_err());
        assert!(Rate::new(0, 5).is_none());
    }
}
