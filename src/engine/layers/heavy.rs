//! Runs long schema checks on threads of their own, outside the runtime.
//!
//! The author of a schema decides how much work one document is. A check whose work is more than
//! that of the usual document ([`Effort::light`]) goes on here. It looks at the clock itself
//! ([`Effort::full`]), so it ends with the caller's deadline, the pack's timeout, or [`MAX_CHECK`],
//! and also when nobody waits for it any more. There are few threads, and one caller cannot take
//! all of them.

use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_core::error::Violation;
use helmdeck_core::schema::{Effort, STACK_BYTES, Unfinished};
use helmdeck_core::{Call, Code, Error, Identity, Manifest, Result, json};
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Time limit of one check, together with the wait for a thread.
const MAX_CHECK: Duration = Duration::from_secs(10);
/// Limit of checks of one caller that wait for a thread.
const MAX_WAITING_OF_ONE: usize = 16;
/// Limit of all checks that wait for a thread.
const MAX_WAITING: usize = 128;
/// Time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(5);

/// Which document is checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Input,
    Output,
}

/// Who waits for a check, and how long.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    caller: Arc<Identity>,
    deadline: Option<Instant>,
    cancel: Option<CancellationToken>,
}

impl Patience {
    pub(super) fn of(call: &Call) -> Self {
        Self {
            caller: Arc::clone(&call.identity),
            deadline: call.deadline,
            cancel: call.cancel.clone(),
        }
    }
}

/// What a check found.
type Verdict = std::result::Result<(), Vec<Violation>>;

/// Checks a document on one of the threads and returns it.
///
/// `text` is read there: what waits holds the text, not a value of many times the size.
///
/// # Errors
/// `timeout` or `cancelled` if the caller waits no longer, `overloaded` if too many checks wait.
pub(super) async fn check(
    manifest: Arc<Manifest>,
    side: Side,
    text: Bytes,
    patience: Patience,
) -> Result<(Value, Verdict)> {
    static POOL: LazyLock<Arc<Pool>> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Pool::new(cores.div_ceil(2).max(2))
    });
    let limit = Instant::now() + manifest.timeout.min(MAX_CHECK);
    let deadline = patience
        .deadline
        .map_or(limit, |deadline| deadline.min(limit));
    let given_up = GivenUp::default();
    let stopped = Arc::clone(&given_up.0);
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        let schema = match side {
            Side::Input => &manifest.input,
            Side::Output => &manifest.output,
        };
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        // It was read before, so it is JSON.
        let Ok(value) = json::read_exact(&text) else {
            return;
        };
        let stop = || stopped.load(Ordering::Relaxed) || Instant::now() >= deadline;
        let verdict = schema.check(&value, &mut Effort::full(&stop));
        // Nobody may wait for it any more.
        let _ = sender.send((value, verdict));
    };
    POOL.submit(
        patience.caller.without_session(),
        Work {
            run: Box::new(work),
            given_up: Arc::clone(&given_up.0),
        },
    )?;
    let cancelled = async {
        match &patience.cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let late = || {
        Error::new(
            Code::Timeout,
            "the check by the pack's schema did not end in time; send less at once",
        )
    };
    tokio::select! {
        biased;
        done = receiver => match done {
            Ok((value, Ok(verdict))) => Ok((value, verdict)),
            Ok((_, Err(Unfinished::Stopped | Unfinished::TooMuch))) => Err(late()),
            Err(_) => Err(Error::new(Code::Internal, "a check by a schema failed")),
        },
        () = cancelled => Err(Error::new(Code::Cancelled, "the call was cancelled")),
        () = tokio::time::sleep_until(deadline.into()) => Err(late()),
    }
}

/// Tells a check that nobody waits for it any more, when it is dropped.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A check that waits for a thread.
struct Work {
    run: Box<dyn FnOnce() + Send>,
    given_up: Arc<AtomicBool>,
}

/// Threads for checks. They start when they are needed, and end when they have had no work for a
/// while.
struct Pool {
    /// Limit of threads.
    threads: usize,
    state: Mutex<State>,
    /// Something waits, or a place of a caller is free.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Arc<Identity>, Work)>,
    /// Running checks by caller.
    running: HashMap<Arc<Identity>, usize>,
    /// When callers with something to do had their last turn, counted in turns.
    served: HashMap<Arc<Identity>, u64>,
    turn: u64,
    started: usize,
    idle: usize,
}

impl Pool {
    fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            threads,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Queues work of a caller.
    ///
    /// # Errors
    /// `overloaded` if too much waits.
    fn submit(self: &Arc<Self>, caller: Arc<Identity>, work: Work) -> Result<()> {
        let mut state = self.state.lock();
        // What nobody waits for any more makes room.
        state
            .waiting
            .retain(|(_, work)| !work.given_up.load(Ordering::Relaxed));
        state.forget_turns();
        let of_one = state
            .waiting
            .iter()
            .filter(|(other, _)| *other == caller)
            .count();
        if of_one >= MAX_WAITING_OF_ONE || state.waiting.len() >= MAX_WAITING {
            let message = "too many checks of large documents by schemas wait for their turn; try again later";
            return Err(Error::new(Code::Overloaded, message));
        }
        state.waiting.push_back((caller, work));
        if state.waiting.len() > state.idle && state.started < self.threads {
            state.started += 1;
            drop(state);
            let pool = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name("schema-check".to_owned())
                .stack_size(STACK_BYTES);
            if let Err(error) = thread.spawn(move || pool.work()) {
                self.state.lock().started -= 1;
                tracing::warn!(%error, "a thread for checks by schemas could not be started");
            }
        } else {
            drop(state);
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Runs what waits, until nothing has waited for a while.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((caller, work)) = state.take(self.threads) {
                *state.running.entry(Arc::clone(&caller)).or_default() += 1;
                drop(state);
                // A defect in a check is told to its caller, by the sender that is dropped.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(work.run));
                state = self.state.lock();
                state.ended(&caller);
                self.changed.notify_one();
                continue;
            }
            state.idle += 1;
            let waited = self.changed.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                state.started -= 1;
                return;
            }
        }
    }
}

impl State {
    /// Takes the next work: that of the caller with the fewest running checks, of those the one
    /// whose last turn is longest ago, and of its work what waits longest.
    ///
    /// One thread stays free of each caller, so that the next one need not wait for it.
    fn take(&mut self, threads: usize) -> Option<(Arc<Identity>, Work)> {
        let share = threads.saturating_sub(1).max(1);
        let running = |caller: &Arc<Identity>| self.running.get(caller).copied().unwrap_or(0);
        let served = |caller: &Arc<Identity>| self.served.get(caller).copied().unwrap_or(0);
        let of_each = self
            .waiting
            .iter()
            .enumerate()
            .map(|(at, (caller, _))| (running(caller), served(caller), at));
        let (.., next) = of_each.filter(|(running, ..)| *running < share).min()?;
        let (caller, work) = self.waiting.remove(next)?;
        self.turn += 1;
        self.served.insert(Arc::clone(&caller), self.turn);
        Some((caller, work))
    }

    /// Forgets the turns of callers with nothing to do.
    fn forget_turns(&mut self) {
        let Self {
            waiting,
            running,
            served,
            ..
        } = self;
        served.retain(|caller, _| {
            running.contains_key(caller) || waiting.iter().any(|(other, _)| other == caller)
        });
    }

    fn ended(&mut self, caller: &Arc<Identity>) {
        if let Some(running) = self.running.get_mut(caller) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    impl Work {
        fn of(work: impl FnOnce() + Send + 'static) -> Self {
            Self {
                run: Box::new(work),
                given_up: Arc::default(),
            }
        }
    }

    fn caller(user: &str) -> Arc<Identity> {
        Arc::new(Identity::new("acme", user).unwrap())
    }

    /// Work that says its name when it begins, and ends when it is told to.
    fn held(begun: &mpsc::Sender<&'static str>, name: &'static str) -> (Work, mpsc::Sender<()>) {
        let (end, ended) = mpsc::channel();
        let begun = begun.clone();
        let work = move || {
            begun.send(name).unwrap();
            let _ = ended.recv_timeout(LIMIT);
        };
        (Work::of(work), end)
    }

    #[test]
    fn one_caller_cannot_take_all_threads_or_the_queue() {
        let pool = Pool::new(2);
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..=MAX_WAITING_OF_ONE {
            let (work, end) = held(&begun, "greedy");
            pool.submit(caller("greedy"), work).unwrap();
            if ends.is_empty() {
                assert_eq!(begins.recv_timeout(LIMIT), Ok("greedy"));
            }
            ends.push(end);
        }
        let (work, _end) = held(&begun, "greedy");
        assert_eq!(
            pool.submit(caller("greedy"), work).unwrap_err().code(),
            Code::Overloaded
        );
        let (work, end) = held(&begun, "modest");
        pool.submit(caller("modest"), work).unwrap();
        assert_eq!(
            begins.recv_timeout(LIMIT),
            Ok("modest"),
            "one thread was left"
        );
        drop(end);
        // When the first ends, the next of the same caller begins; all end.
        for _ in 0..MAX_WAITING_OF_ONE {
            ends.remove(0).send(()).unwrap();
            assert_eq!(begins.recv_timeout(LIMIT), Ok("greedy"));
        }
    }

    #[test]
    fn callers_take_turns() {
        let mut state = State::default();
        let wait =
            |state: &mut State, user| state.waiting.push_back((caller(user), Work::of(|| {})));
        for user in ["a", "a", "b", "a", "b"] {
            wait(&mut state, user);
        }
        let mut order = Vec::new();
        while let Some((next, _)) = state.take(2) {
            order.push(next.user().to_owned());
            if order.len() == 2 {
                wait(&mut state, "c");
            }
            state.ended(&next);
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
        state.forget_turns();
        assert!(state.served.is_empty());
    }

    #[test]
    fn work_that_was_given_up_makes_room() {
        let pool = Pool::new(1);
        let (begun, begins) = mpsc::channel();
        let (work, end) = held(&begun, "first");
        pool.submit(caller("a"), work).unwrap();
        assert_eq!(begins.recv_timeout(LIMIT), Ok("first"));
        for _ in 0..3 * MAX_WAITING_OF_ONE {
            let work = Work::of(|| panic!("nobody waits for it"));
            work.given_up.store(true, Ordering::Relaxed);
            pool.submit(caller("a"), work).unwrap();
        }
        let (work, _end) = held(&begun, "last");
        pool.submit(caller("a"), work).unwrap();
        drop(end);
        assert_eq!(begins.recv_timeout(LIMIT), Ok("last"));
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let pool = Pool::new(1);
        let (begun, begins) = mpsc::channel();
        for _ in 0..3 {
            pool.submit(
                caller("a"),
                Work::of(|| std::panic::resume_unwind(Box::new("a defect"))),
            )
            .unwrap();
        }
        let (work, _end) = held(&begun, "next");
        pool.submit(caller("b"), work).unwrap();
        assert_eq!(begins.recv_timeout(LIMIT), Ok("next"));
        assert!(pool.state.lock().started == 1);
    }
}
