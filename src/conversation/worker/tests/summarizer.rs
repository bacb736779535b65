//! A scripted summarizer.
//!
//! Its summary is the names of all its turns, so that a lost or repeated turn shows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::identity::Identity;
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer};

/// What it does when it is asked.
#[derive(Clone)]
pub(super) enum Action {
    Answer,
    /// Answers after a while.
    Slow(Duration),
    /// Answers when it may: see [`StubSummarizer::release`].
    Held,
    Fail(Failure),
    /// Wants to be asked again not before.
    Later(Duration),
    Say(String),
    /// Never answers.
    Hang,
    Panic,
    /// Fails as long as some turn says "poison".
    Choke(Failure),
    /// Keeps its thread for as long as this, whatever is cancelled.
    Block(Duration),
}

/// A request, and when it came.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) at: Instant,
    pub(super) session: String,
    pub(super) turns: Vec<String>,
    pub(super) request: SummarizeRequest,
}

pub(super) struct StubSummarizer {
    next: Mutex<VecDeque<Action>>,
    /// What it does once it has done all of that.
    always: Mutex<Action>,
    /// Sessions for which it does something else.
    of_session: Mutex<Vec<(String, Action)>>,
    calls: Mutex<Vec<Call>>,
    /// What it answered with a summary.
    summarised: Mutex<Vec<Call>>,
    held: Semaphore,
    pub(super) under_way: AtomicUsize,
    /// Maximum number in flight at once.
    pub(super) most: AtomicUsize,
}

/// Counts down also if the request is dropped.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StubSummarizer {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            next: Mutex::default(),
            always: Mutex::new(Action::Answer),
            of_session: Mutex::default(),
            calls: Mutex::default(),
            summarised: Mutex::default(),
            held: Semaphore::new(0),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        })
    }

    pub(super) fn always(&self, act: Action) {
        *self.always.lock().unwrap() = act;
    }

    pub(super) fn next(&self, acts: impl IntoIterator<Item = Action>) {
        self.next.lock().unwrap().extend(acts);
    }

    pub(super) fn of_session(&self, session: &str, act: Action) {
        self.of_session
            .lock()
            .unwrap()
            .push((session.to_owned(), act));
    }

    /// Releases `count` of those that are held.
    pub(super) fn release(&self, count: usize) {
        self.held.add_permits(count);
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Returns which turns were summarised, batch by batch.
    pub(super) fn summarised(&self) -> Vec<Vec<String>> {
        self.summarised
            .lock()
            .unwrap()
            .iter()
            .map(|call| call.turns.clone())
            .collect()
    }

    pub(super) fn is_asked(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) > 0
    }

    fn act(&self, session: &str) -> Action {
        if let Some((_, act)) = self
            .of_session
            .lock()
            .unwrap()
            .iter()
            .find(|(of, _)| of == session)
        {
            return act.clone();
        }
        self.next
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or_else(|| self.always.lock().unwrap().clone())
    }
}

#[async_trait]
impl Summarizer for StubSummarizer {
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError> {
        let turns: Vec<_> = request
            .turns
            .iter()
            .map(|turn| turn.user_message.clone())
            .collect();
        let session = identity.session.to_string();
        let call = Call {
            at: Instant::now(),
            session: session.clone(),
            turns,
            request,
        };
        self.calls.lock().unwrap().push(call.clone());
        let most = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(most, Ordering::SeqCst);
        let _under_way = UnderWay(&self.under_way);
        let failed = |reason, retry_after| {
            Err(SummarizeError {
                reason,
                retry_after,
                detail: "told to".to_owned(),
            })
        };
        match self.act(&session) {
            Action::Answer => {}
            Action::Slow(wait) => tokio::time::sleep(wait).await,
            Action::Held => self.held.acquire().await.unwrap().forget(),
            Action::Fail(reason) => return failed(reason, None),
            Action::Later(wait) => return failed(Failure::RateLimited, Some(wait)),
            Action::Say(summary) => return Ok(SummarizeResponse { summary }),
            Action::Hang => std::future::pending().await,
            Action::Panic => panic!("told to"),
            Action::Choke(reason) => {
                if call
                    .request
                    .turns
                    .iter()
                    .any(|turn| turn.assistant_response.contains("poison"))
                {
                    return failed(reason, None);
                }
            }
            Action::Block(wait) => std::thread::sleep(wait),
        }
        let summary = format!("{} {}", call.request.previous_summary, call.turns.join(" "));
        self.summarised.lock().unwrap().push(call);
        Ok(SummarizeResponse { summary })
    }
}
