//! Singleflight: equal concurrent misses run the handler once.
//!
//! Each call in flight runs as its own task. Every waiter keeps its own deadline; when the last
//! waiter of an unfinished call leaves, the call is cancelled. Progress goes to all waiters. A
//! purge that covers a call in flight invalidates it: its waiters get their answer, but the answer
//! is not stored, and new callers start another run.
//!
//! An answer that is not stored, for this or another reason, goes to the current waiters only,
//! never to later callers: it is invalidated before the first waiter gets it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helmdeck_core::context::ProgressSink;
use helmdeck_core::{Call, Code, Error, NotKept, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::answer::{Answer, Location};
use super::backoff::HeldBack;
use super::key::Key;

/// Purpose of a flight. Callers share a flight only if it serves them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Read the store, else run the handler.
    Answer,
    /// Run the handler, whatever is stored.
    Refresh,
    /// Run the handler in the background, after a stale answer was served.
    Renew,
}

/// A key and a purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlightKey {
    pub(crate) key: Key,
    pub(crate) purpose: Purpose,
}

/// Result of a flight.
#[derive(Debug, Clone)]
pub(crate) struct Completed {
    pub(crate) answer: Arc<Answer>,
    pub(crate) how: How,
    pub(crate) detail: Detail,
}

/// What is said of an answer besides its status: members of [`helmdeck_core::CacheInfo`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detail {
    pub(crate) reason: Option<&'static str>,
    pub(crate) not_kept: Option<NotKept>,
    pub(crate) retry_after: Option<Duration>,
}

impl Detail {
    /// Returns what is said of a stale answer that covers a failure.
    pub(crate) fn of_failure(error: &Error) -> Self {
        let failed = if error.code() == Code::Timeout {
            UPSTREAM_SLOW
        } else {
            "upstream_error"
        };
        let reason = Some(HeldBack::reason(error).unwrap_or(failed));
        Self {
            reason,
            not_kept: None,
            retry_after: error.retry_after(),
        }
    }

    /// Returns what is said of a stale answer beside a run that goes on.
    pub(crate) fn of_slow_run() -> Self {
        Self {
            reason: Some(UPSTREAM_SLOW),
            ..Self::default()
        }
    }
}

/// The handler is slow.
const UPSTREAM_SLOW: &str = "upstream_slow";

/// Source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It was fresh in the store.
    Stored,
    /// The handler ran.
    Ran,
    /// The handler confirmed it.
    Confirmed,
    /// It is stale, and the caller or the manifest allows that.
    Stale,
    /// It is stale, and covers a failure of the handler.
    Covered,
}

/// One call in flight.
pub(crate) struct Flight {
    key: FlightKey,
    location: Arc<Location>,
    invalidated: AtomicBool,
    started: Instant,
    result: watch::Sender<Option<Result<Completed>>>,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    count: usize,
    detached: bool,
    task: Option<AbortHandle>,
    sinks: Vec<Arc<dyn ProgressSink>>,
}

impl Flight {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock()
    }
}

impl ProgressSink for Flight {
    fn report(&self, percent: Option<f32>, message: &str) {
        let sinks = self.waiters().sinks.clone();
        for sink in sinks {
            sink.report(percent, message);
        }
    }
}

/// All calls in flight of an engine.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<FlightKey, Arc<Flight>>>);

/// Result of [`Flights::join`].
pub(crate) enum Join {
    /// The answer arrived in the meantime.
    Answered(Arc<Answer>),
    /// This caller started the flight.
    Started(Waiter),
    /// The flight was running already.
    Joined(Waiter),
}

impl Flights {
    fn map(&self) -> MutexGuard<'_, HashMap<FlightKey, Arc<Flight>>> {
        self.0.lock()
    }

    /// Returns whether a flight of this key is in progress, so that a caller would join it.
    pub(crate) fn is_in_flight(&self, key: FlightKey) -> bool {
        in_flight(&self.map(), key).is_some()
    }

    /// Joins the flight of this key, or starts it.
    ///
    /// `recheck` checks again whether an answer completed in the meantime. It runs under the lock
    /// under which flights complete, so no answer is missed between a miss and a start.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: FlightKey,
        location: &Arc<Location>,
        sink: Option<Arc<dyn ProgressSink>>,
        recheck: impl FnOnce() -> Option<Arc<Answer>>,
        start: impl FnOnce(Arc<Flight>) -> Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> Join {
        let mut map = self.map();
        if let Some(flight) = in_flight(&map, key) {
            let flight = Arc::clone(flight);
            let mut waiters = flight.waiters();
            waiters.count += 1;
            waiters.sinks.extend(sink);
            drop(waiters);
            return Join::Joined(Waiter::new(self, flight));
        }
        if let Some(answer) = recheck() {
            return Join::Answered(answer);
        }
        let waiters = Waiters {
            count: 1,
            detached: key.purpose == Purpose::Renew,
            task: None,
            sinks: sink.into_iter().collect(),
        };
        let flight = Arc::new(Flight {
            key,
            location: Arc::clone(location),
            invalidated: AtomicBool::new(false),
            started: Instant::now(),
            result: watch::Sender::new(None),
            waiters: Mutex::new(waiters),
        });
        map.insert(key, Arc::clone(&flight));
        let task = tokio::spawn(start(Arc::clone(&flight)));
        flight.waiters().task = Some(task.abort_handle());
        Join::Started(Waiter::new(self, flight))
    }

    /// Completes a flight, then notifies its waiters.
    ///
    /// `keep` stores the answer, or says why not; it is not called if the flight was invalidated,
    /// or the answer is not to be kept. An answer that is not kept is invalid from here on, unless
    /// only the store does not get it.
    pub(crate) fn complete(
        &self,
        flight: &Arc<Flight>,
        mut result: Result<Completed>,
        keep: impl FnOnce(&Completed) -> Result<(), NotKept>,
    ) {
        let mut map = self.map();
        if let Ok(completed) = &mut result {
            completed.detail.not_kept = completed.detail.not_kept.or_else(|| {
                let invalidated = flight.invalidated.load(Ordering::Acquire);
                if invalidated {
                    Some(NotKept::Because("purged"))
                } else {
                    keep(completed).err()
                }
            });
            if completed
                .detail
                .not_kept
                .is_some_and(|why| why != NotKept::Because("writes_behind"))
            {
                completed.answer.invalidate();
            }
        }
        if map
            .get(&flight.key)
            .is_some_and(|current| Arc::ptr_eq(current, flight))
        {
            map.remove(&flight.key);
        }
        drop(map);
        flight.result.send_replace(Some(result));
    }

    /// Waits until every background revalidation has ended. Each is bounded by the timeout of its
    /// pack.
    pub(crate) async fn renewed(&self) {
        loop {
            let in_flight = self
                .map()
                .iter()
                .find(|(key, _)| key.purpose == Purpose::Renew)
                .map(|(_, one)| one.result.subscribe());
            let Some(mut result) = in_flight else { return };
            let _ = result.wait_for(Option::is_some).await;
        }
    }

    /// Invalidates every flight that `covers` selects.
    pub(crate) fn invalidate(&self, covers: impl Fn(&Location) -> bool) {
        self.map().retain(|_, flight| {
            let covered = covers(&flight.location);
            if covered {
                flight.invalidated.store(true, Ordering::Release);
            }
            !covered
        });
    }
}

fn in_flight(map: &HashMap<FlightKey, Arc<Flight>>, key: FlightKey) -> Option<&Arc<Flight>> {
    map.get(&key).or_else(|| match key.purpose {
        // The answer of a revalidation in flight is as fresh as any.
        Purpose::Answer => map.get(&FlightKey {
            key: key.key,
            purpose: Purpose::Renew,
        }),
        Purpose::Refresh | Purpose::Renew => None,
    })
}

/// A caller that waits for a flight. Dropping the last waiter of an unfinished flight cancels it.
pub(crate) struct Waiter {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
    result: watch::Receiver<Option<Result<Completed>>>,
}

impl Waiter {
    fn new(flights: &Arc<Flights>, flight: Arc<Flight>) -> Self {
        let result = flight.result.subscribe();
        Self {
            flights: Arc::clone(flights),
            flight,
            result,
        }
    }

    /// Waits until the flight completes. Cancel safe.
    ///
    /// Ends at the caller's deadline, and when the call is cancelled.
    pub(crate) async fn wait_for(&mut self, call: &Call) -> Result<Completed> {
        let late = || {
            Error::new(
                Code::Timeout,
                format!(
                    "the caller's deadline passed before pack \"{}\" answered",
                    call.pack
                ),
            )
        };
        let completion = async {
            match call.deadline {
                Some(deadline) => tokio::time::timeout_at(deadline.into(), self.wait())
                    .await
                    .unwrap_or_else(|_| Err(late())),
                None => self.wait().await,
            }
        };
        match &call.cancel {
            Some(cancel) => tokio::select! {
                biased;
                completed = completion => completed,
                () = cancel.cancelled() => Err(Error::new(Code::Cancelled, "the call was cancelled")),
            },
            None => completion.await,
        }
    }

    /// Waits as [`Self::wait_for`] does, but only until the flight has lasted for `patience`.
    /// Cancel safe.
    ///
    /// After that it returns `None`. Then, and after the caller's deadline, the flight goes on,
    /// whether somebody waits for it or not.
    pub(crate) async fn wait_patiently(
        &mut self,
        call: &Call,
        patience: Duration,
    ) -> Option<Result<Completed>> {
        let end = self.flight.started + patience;
        let completed = tokio::time::timeout_at(end, self.wait_for(call)).await.ok();
        let is_late = |completed: &Result<Completed>| {
            completed
                .as_ref()
                .is_err_and(|error| error.code() == Code::Timeout)
        };
        if completed.as_ref().is_none_or(is_late) {
            self.flight.waiters().detached = true;
        }
        completed
    }

    async fn wait(&mut self) -> Result<Completed> {
        let completed = self.result.wait_for(Option::is_some).await;
        completed
            .ok()
            .and_then(|completed| completed.clone())
            .unwrap_or_else(|| Err(Error::new(Code::Internal, "the run of the pack was lost")))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut map = self.flights.map();
        let mut waiters = self.flight.waiters();
        waiters.count -= 1;
        if waiters.count > 0 || waiters.detached || self.flight.result.borrow().is_some() {
            return;
        }
        if map
            .get(&self.flight.key)
            .is_some_and(|current| Arc::ptr_eq(current, &self.flight))
        {
            map.remove(&self.flight.key);
        }
        if let Some(task) = waiters.task.take() {
            task.abort();
        }
    }
}
