//! One flight per key: N identical concurrent misses run the handler once.
//!
//! A flight is a task of its own. Each waiter holds a ticket and keeps its own deadline; when the last ticket of an unfinished
//! flight is dropped, the flight is cancelled. Progress fans out to everybody who waits. A purge that covers a flight poisons
//! it: its waiters get their answer, but nothing of it is stored, and new callers start another.
//!
//! An answer that is not kept, for this or another reason, is of those who were on board when it landed, and of nobody else: it
//! is dead before the first of them is told, so that none of them can pass it on to who comes later.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helmdeck_core::context::ProgressSink;
use helmdeck_core::{Code, Error, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::answer::{Answer, Place};
use super::key::Key;

/// What a flight is for. Callers share a flight only if it serves them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Look into the store, else run the handler; with the caller's bounds on age.
    Answer { max_age: Option<Duration>, max_stale: Option<Duration> },
    /// Run the handler whatever the store has.
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

/// What a flight came to.
#[derive(Debug, Clone)]
pub(crate) struct Landed {
    pub(crate) answer: Arc<Answer>,
    pub(crate) how: How,
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The store had it, fresh.
    Stored,
    /// The handler ran.
    Ran,
    /// The handler confirmed it.
    Confirmed,
    /// It is past its freshness, and was allowed to be.
    Stale,
}

/// One flight.
pub(crate) struct Flight {
    key: FlightKey,
    place: Arc<Place>,
    poisoned: AtomicBool,
    result: watch::Sender<Option<Result<Landed>>>,
    crew: Mutex<Crew>,
}

#[derive(Default)]
struct Crew {
    waiters: usize,
    detached: bool,
    task: Option<AbortHandle>,
    sinks: Vec<Arc<dyn ProgressSink>>,
}

impl Flight {
    fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgressSink for Flight {
    fn report(&self, percent: Option<f32>, message: &str) {
        let sinks = self.crew().sinks.clone();
        for sink in sinks {
            sink.report(percent, message);
        }
    }
}

/// All flights of an engine.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<FlightKey, Arc<Flight>>>);

/// How a caller got on.
pub(crate) enum Boarding {
    /// The answer was there by now.
    Answered(Arc<Answer>),
    /// This caller started the flight.
    Started(Ticket),
    /// The flight was under way.
    Joined(Ticket),
}

impl Flights {
    fn map(&self) -> MutexGuard<'_, HashMap<FlightKey, Arc<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether a caller of this key would join a flight.
    pub(crate) fn is_under_way(&self, key: FlightKey) -> bool {
        under_way(&self.map(), key).is_some()
    }

    /// Joins the flight of this key, or starts it. `recheck` looks once more whether an answer landed in the meantime: it is
    /// asked under the same lock under which flights land, so between a miss and a start nothing slips through.
    pub(crate) fn board(
        self: &Arc<Self>,
        key: FlightKey,
        place: &Arc<Place>,
        sink: Option<Arc<dyn ProgressSink>>,
        recheck: impl FnOnce() -> Option<Arc<Answer>>,
        start: impl FnOnce(Arc<Flight>) -> Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> Boarding {
        let mut map = self.map();
        if let Some(flight) = under_way(&map, key) {
            let flight = Arc::clone(flight);
            let mut crew = flight.crew();
            crew.waiters += 1;
            crew.sinks.extend(sink);
            drop(crew);
            return Boarding::Joined(Ticket::new(self, flight));
        }
        if let Some(answer) = recheck() {
            return Boarding::Answered(answer);
        }
        let crew =
            Crew { waiters: 1, detached: key.purpose == Purpose::Renew, task: None, sinks: sink.into_iter().collect() };
        let flight = Arc::new(Flight {
            key,
            place: Arc::clone(place),
            poisoned: AtomicBool::new(false),
            result: watch::Sender::new(None),
            crew: Mutex::new(crew),
        });
        map.insert(key, Arc::clone(&flight));
        let task = tokio::spawn(start(Arc::clone(&flight)));
        flight.crew().task = Some(task.abort_handle());
        Boarding::Started(Ticket::new(self, flight))
    }

    /// Ends a flight, then tells everybody who waits. `keep` keeps the answer, and says whether it did; it is not asked if the
    /// flight was poisoned. An answer that is not kept is dead from here on.
    pub(crate) fn land(&self, flight: &Arc<Flight>, result: Result<Landed>, keep: impl FnOnce(&Landed) -> bool) {
        let mut map = self.map();
        if let Ok(landed) = &result
            && (flight.poisoned.load(Ordering::Acquire) || !keep(landed))
        {
            landed.answer.kill();
        }
        if map.get(&flight.key).is_some_and(|current| Arc::ptr_eq(current, flight)) {
            map.remove(&flight.key);
        }
        drop(map);
        flight.result.send_replace(Some(result));
    }

    /// Waits until every renewal in the background has ended. Each is bounded by the timeout of its pack.
    pub(crate) async fn renewed(&self) {
        loop {
            let under_way =
                self.map().iter().find(|(key, _)| key.purpose == Purpose::Renew).map(|(_, one)| one.result.subscribe());
            let Some(mut result) = under_way else { return };
            let _ = result.wait_for(Option::is_some).await;
        }
    }

    /// Poisons every flight whose place is covered.
    pub(crate) fn poison(&self, covers: impl Fn(&Place) -> bool) {
        self.map().retain(|_, flight| {
            let covered = covers(&flight.place);
            if covered {
                flight.poisoned.store(true, Ordering::Release);
            }
            !covered
        });
    }
}

fn under_way(map: &HashMap<FlightKey, Arc<Flight>>, key: FlightKey) -> Option<&Arc<Flight>> {
    map.get(&key).or_else(|| match key.purpose {
        // A renewal under way is as fresh as any answer can be.
        Purpose::Answer { .. } => map.get(&FlightKey { key: key.key, purpose: Purpose::Renew }),
        Purpose::Refresh | Purpose::Renew => None,
    })
}

/// A place on a flight. Dropping the last one of an unfinished flight cancels it.
pub(crate) struct Ticket {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
    result: watch::Receiver<Option<Result<Landed>>>,
}

impl Ticket {
    fn new(flights: &Arc<Flights>, flight: Arc<Flight>) -> Self {
        let result = flight.result.subscribe();
        Self { flights: Arc::clone(flights), flight, result }
    }

    /// Waits until the flight lands. Safe to cancel.
    pub(crate) async fn wait(&mut self) -> Result<Landed> {
        let landed = self.result.wait_for(Option::is_some).await;
        landed
            .ok()
            .and_then(|landed| landed.clone())
            .unwrap_or_else(|| Err(Error::new(Code::Internal, "the run of the pack was lost")))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut map = self.flights.map();
        let mut crew = self.flight.crew();
        crew.waiters -= 1;
        if crew.waiters > 0 || crew.detached || self.flight.result.borrow().is_some() {
            return;
        }
        if map.get(&self.flight.key).is_some_and(|current| Arc::ptr_eq(current, &self.flight)) {
            map.remove(&self.flight.key);
        }
        if let Some(task) = crew.task.take() {
            task.abort();
        }
    }
}
