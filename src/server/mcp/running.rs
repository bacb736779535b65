//! Running calls of a client by request id, so that the client can cancel them.
//!
//! A cancel may arrive before its call.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use helmdeck_core::{Call, Code, Error, Outcome, Result};
use helmdeck_engine::{Engine, JobState};
use rmcp::model::RequestId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a cancel waits for its call.
///
/// Requests may overtake each other, but not by much. A client that wrongly reuses an id must not
/// find its call cancelled.
const EARLY: Duration = Duration::from_secs(2);
/// Maximum number of cancels that wait for their calls.
const MAX_EARLY: usize = 32;

/// Running calls of a client.
#[derive(Debug, Default, Clone)]
pub(crate) struct Running(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    calls: HashMap<RequestId, CancellationToken>,
    early: VecDeque<(RequestId, Instant)>,
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unstarted {
    /// Its cancel arrived first.
    Cancelled,
    /// A running call has its id.
    Taken,
}

/// A running call. Dropping it removes it from the list.
#[derive(Debug)]
pub(crate) struct Started {
    running: Running,
    id: RequestId,
    /// Cancelled when the client asks for it.
    pub(crate) cancel: CancellationToken,
}

impl Running {
    /// Records a call, or says why it may not begin.
    ///
    /// Ids must be unique (JSON-RPC 2.0, section 4; MCP, "Requests"): a cancel could mean either of
    /// two calls.
    pub(crate) fn start(&self, id: &RequestId) -> std::result::Result<Started, Unstarted> {
        let mut state = self.state();
        let now = Instant::now();
        state
            .early
            .retain(|(_, at)| now.duration_since(*at) < EARLY);
        if let Some(at) = state.early.iter().position(|(early, _)| early == id) {
            state.early.remove(at);
            return Err(Unstarted::Cancelled);
        }
        if state.calls.contains_key(id) {
            return Err(Unstarted::Taken);
        }
        let cancel = CancellationToken::new();
        state.calls.insert(id.clone(), cancel.clone());
        drop(state);
        Ok(Started {
            running: self.clone(),
            id: id.clone(),
            cancel,
        })
    }

    /// Cancels a call, or remembers the cancel for a moment.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let mut state = self.state();
        match state.calls.get(id) {
            Some(call) => call.cancel(),
            None => {
                if state.early.len() == MAX_EARLY {
                    state.early.pop_front();
                }
                state.early.push_back((id.clone(), Instant::now()));
            }
        }
    }

    /// Cancels every call.
    pub(crate) fn cancel_all(&self) {
        for call in self.state().calls.values() {
            call.cancel();
        }
    }

    /// Says whether no call is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().calls.is_empty()
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Runs a call as a job and waits for its outcome.
///
/// Progress and cancel of the call are those of the job. When this future is dropped, the job is
/// cancelled: its client is gone and does not know the job.
///
/// # Errors
/// As `Engine::submit` and `Engine::job_outcome`.
pub(crate) async fn as_job(engine: &Engine, mut call: Call) -> Result<Outcome> {
    let (cancel, progress) = (call.cancel.take().unwrap_or_default(), call.progress.take());
    let (engine, identity) = (engine.clone(), Arc::clone(&call.identity));
    let gone = CancellationToken::new();
    let _waits = gone.clone().drop_guard();
    // Its own task, so that a client that goes away while the job is queued leaves no job behind.
    let work = tokio::spawn(async move {
        let id = engine.submit(call).await?.id;
        let mut events = Box::pin(engine.follow_job(Some(&identity), &id, None).await?);
        let mut wanted = true;
        loop {
            tokio::select! {
                biased;
                () = async { tokio::select! { () = gone.cancelled() => {} () = cancel.cancelled() => {} } }, if wanted => {
                    wanted = false;
                    engine.cancel_job(Some(&identity), &id).await?;
                }
                event = events.next() => {
                    let Some(event) = event else { break };
                    let report = event.job.progress.as_ref().filter(|_| event.job.state == JobState::Running);
                    if let (Some(sink), Some(report)) = (&progress, report) {
                        sink.report(report.percent, &report.message);
                    }
                }
            }
        }
        engine.job_outcome(Some(&identity), &id).await
    });
    work.await.map_err(|error| {
        Error::new(Code::Internal, "the job was not waited for").with_source(error)
    })?
}

impl Drop for Started {
    fn drop(&mut self) {
        self.running.state().calls.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cancel_reaches_its_call_in_either_order() {
        let running = Running::default();
        let (one, two) = (RequestId::Number(1), RequestId::String("1".into()));
        let call = running.start(&one).unwrap();
        running.cancel(&two);
        assert!(!call.cancel.is_cancelled() && !running.is_idle());
        running.cancel(&one);
        assert!(call.cancel.is_cancelled());
        drop(call);
        assert!(running.is_idle());
        // The cancel of "1" was there first, once.
        assert_eq!(running.start(&two).unwrap_err(), Unstarted::Cancelled);
        assert!(running.start(&two).is_ok());
        running.cancel(&one);
        tokio::time::advance(EARLY).await;
        assert!(running.start(&one).is_ok());
    }

    #[tokio::test]
    async fn used_id_is_refused_and_its_call_stays_cancellable() {
        let (running, id) = (Running::default(), RequestId::Number(1));
        let first = running.start(&id).unwrap();
        assert_eq!(running.start(&id).unwrap_err(), Unstarted::Taken);
        running.cancel(&id);
        assert!(first.cancel.is_cancelled());
        drop(first);
        assert!(running.start(&id).is_ok());
    }

    #[tokio::test]
    async fn cancels_without_calls_take_no_room() {
        let running = Running::default();
        for id in 0..1000 {
            running.cancel(&RequestId::Number(id));
        }
        assert_eq!(running.state().early.len(), MAX_EARLY);
    }
}
