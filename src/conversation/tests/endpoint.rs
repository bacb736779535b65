//! The real summarizer against an endpoint that fails in every way, at every request.
//!
//! No turn is lost, and the health is correct. The endpoint's summaries name every turn that they
//! hold, so each one proves what it holds, how often and in which order. Its wrong answers name
//! them too, so that one which is taken for a summary shows. Before each attempt, and at the end,
//! all that can be seen of a conversation is compared with a model. The model knows only how the
//! attempts before went.

mod faults;
mod known;
mod process;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::ManualClock;
use helmdeck_memory::{Config as StoreConfig, open};
use helmdeck_testkit::{keyring, sealed_memory};

use crate::conformance::fixture::{STUCK, sized};
use crate::{ConversationError, Health};

use faults::{FAULTS, Fault};
use known::{Case, case};
use process::Trial;
use watched::lock;

const TURNS: usize = 24;
const RECENT: usize = 4;
const BATCH: usize = 4;
/// Number of requests that summarise a conversation if none fails.
const POINTS: usize = (TURNS - RECENT) / BATCH;
/// Room for the summary, the goal, the recent turns with what a format writes around them, but not
/// for all turns.
const BUDGET: u64 = 1000;
const MAX_ATTEMPTS: u32 = 3;
/// Longer than any answer that comes at all.
const PATIENT: Duration = Duration::from_secs(3600);
/// What is too slow where an answer would never come.
const HASTY: Duration = Duration::from_millis(300);

/// Returns a conversation for each of some faults at each request, which happens so often.
fn all(faults: impl Fn(&Fault) -> bool, times: usize) -> Vec<Case> {
    let faults = FAULTS.iter().filter(|fault| faults(fault));
    faults
        .flat_map(|fault| (0..POINTS).map(move |at| case(fault, at..at.saturating_add(times))))
        .collect()
}

/// Puts conversations into a store in memory.
async fn trial(cases: Vec<Case>) -> Trial {
    let clock = Arc::new(ManualClock::default());
    Trial::of(clock.clone(), sealed_memory(clock).await, cases).await
}

/// Some faults at every request, so often in a row.
async fn spoil(faults: impl Fn(&Fault) -> bool, times: usize, timeout: Duration) {
    goes_on(trial(all(faults, times)).await, timeout).await;
}

/// Takes the conversations of a trial to their end.
async fn goes_on(trial: Trial, timeout: Duration) {
    let process = trial.open(timeout, true, |_| ()).await;
    process.go_on(&trial).await;
    process.settles(&trial).await;
}

/// Long enough to be retried, degraded, and to fail twice more.
const OUTAGE: usize = MAX_ATTEMPTS as usize + 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failure_at_any_request_loses_nothing() {
    spoil(|fault| !fault.hangs, 1, PATIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_at_any_request_loses_nothing() {
    // Each fault at some requests, each request with some faults.
    let cases = all(|fault| !fault.hangs, OUTAGE)
        .into_iter()
        .step_by(2)
        .collect();
    goes_on(trial(cases).await, PATIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hang_at_any_request_loses_nothing() {
    spoil(|fault| fault.hangs, 1, HASTY).await;
    spoil(|fault| fault.hangs, OUTAGE, HASTY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_an_endpoint_that_hangs() {
    let trial = trial(all(|fault| fault.hangs, usize::MAX)).await;
    let process = trial.open(PATIENT, true, |_| ()).await;
    process.go_on(&trial).await;
    for identity in trial.identities() {
        process
            .until("it to hang", &trial, &identity, |case, _| case.hung)
            .await;
        // Only this trial would ever end what hangs, so whatever returns has not waited for it.
        for memory in [&process.reading, &process.folding] {
            let mark = lock(&trial.cases)[&identity.session].turns;
            memory
                .add_turn(&identity, sized(mark, 100, 100))
                .await
                .unwrap();
            lock(&trial.cases).get_mut(&identity.session).unwrap().turns += 1;
            let (patch, trace) = (
                memory.context(&identity).await.unwrap(),
                memory.trace(&identity).await.unwrap(),
            );
            lock(&trial.cases)[&identity.session].agrees(&trace, &patch);
            assert_eq!(
                memory.estimate_tokens(&identity).await.unwrap(),
                patch.tokens
            );
            assert_eq!(memory.health(&identity).await.unwrap(), Health::Healthy);
        }
        assert_eq!(
            trial.s.moves(&identity, Health::Healthy),
            [],
            "nothing has failed yet"
        );
    }
    process.close().await;
    process.watched.is_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_closed_during_failure_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("memory.db").display());
    let clock = Arc::new(ManualClock::default());
    let file = async || {
        open(&url, keyring(), StoreConfig::default(), clock.clone())
            .await
            .unwrap()
    };
    let cases = all(|_| true, MAX_ATTEMPTS as usize);
    // Each fault at some requests, each request with some faults.
    let mut cases: Vec<Case> = cases.into_iter().step_by(2).collect();
    // A turn that is added while the memory is closed may be stored or not.
    cases.iter_mut().for_each(|case| case.talks = false);
    let mut trial = Trial::of(clock.clone(), file().await, cases).await;
    let process = trial.open(PATIENT, false, |_| ()).await;
    process.go_on(&trial).await;
    let count = trial.identities().len();
    let mut waiting = process.watched.waiting.subscribe();
    tokio::time::timeout(STUCK, waiting.wait_for(|waiting| *waiting == count))
        .await
        .unwrap()
        .unwrap();
    process.watched.free.send_replace(true);
    process.close().await;
    process.watched.is_sound();
    assert!(matches!(
        process.folding.context(&trial.identities()[0]).await,
        Err(ConversationError::Closed)
    ));
    lock(&trial.cases)
        .values_mut()
        .for_each(|case| case.closed = case.last.is_some());
    trial.s.bare.close().await.unwrap();
    trial.s.bare = file().await;
    let process = trial.open(Duration::from_secs(1), true, |_| ()).await;
    process.go_on(&trial).await;
    process.settles(&trial).await;
    trial.s.bare.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_delays_next_request() {
    let says_when = |fault: &Fault| matches!(fault.name, "429" | "503");
    let trial = trial(all(says_when, 1)).await;
    let process = trial
        .open(PATIENT, true, |settings| settings.max_retry_wait = STUCK)
        .await;
    process.go_on(&trial).await;
    process.settles(&trial).await;
    for case in lock(&trial.cases).values() {
        let waited = case.started[case.spoilt.end].duration_since(case.started[case.spoilt.start]);
        assert!(
            waited >= Duration::from_secs(1),
            "{}: {waited:?}",
            case.identity.session
        );
    }
}
