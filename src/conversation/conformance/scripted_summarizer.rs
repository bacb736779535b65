//! Scripted summarizer; its summaries name every turn in them.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::identity::Identity;
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer};

pub(crate) use helmdeck_core::waiting::STUCK;

/// What a [`ScriptedSummarizer`] does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answers with the marks of the previous summary, then those of the turns.
    Answer,
    /// Answers so after this time.
    Slow(Duration),
    /// Waits until [`ScriptedSummarizer::let_go`], then answers so.
    Wait,
    /// Answers with this text.
    Say(String),
    /// Fails.
    Fail(Failure),
    /// Waits until [`ScriptedSummarizer::let_go`], then fails.
    FailLater(Failure),
    /// Never answers.
    Hang,
}

/// A request that a [`ScriptedSummarizer`] got.
#[derive(Debug, Clone)]
pub struct Call {
    /// The conversation.
    pub session: Arc<str>,
    /// The marks in the previous summary.
    pub previous: Vec<String>,
    /// The marks of the turns.
    pub turns: Vec<String>,
    /// The goal.
    pub goal: Option<String>,
    /// Maximum tokens of the summary.
    pub max_tokens: u64,
    /// Whether it was answered with a summary.
    pub answered: bool,
}

/// Returns the marks of a text in order: the words in square brackets.
#[must_use]
pub fn marks(text: &str) -> Vec<String> {
    text.split('[')
        .skip(1)
        .filter_map(|part| Some(part.split_once(']')?.0.to_owned()))
        .collect()
}

/// A scripted summarizer.
///
/// Its summary is the marks of all turns in it, so a test sees which turns it contains, how often
/// and in which order. A turn's mark is the first one of its user message.
#[derive(Debug)]
pub struct ScriptedSummarizer {
    script: Mutex<Script>,
    started: watch::Sender<usize>,
    /// How often waiting requests were released, and whether new ones still are.
    free: watch::Sender<(u64, bool)>,
}

#[derive(Debug)]
struct Script {
    next: VecDeque<Action>,
    then: Action,
    calls: Vec<Call>,
    /// The requests in flight by index, and whether a later one for the conversation came.
    running: HashMap<Identity, HashMap<usize, bool>>,
    overlaps: usize,
    most: usize,
    cancelled: usize,
}

impl Default for ScriptedSummarizer {
    fn default() -> Self {
        let script = Script {
            next: VecDeque::new(),
            then: Action::Answer,
            calls: Vec::new(),
            running: HashMap::new(),
            overlaps: 0,
            most: 0,
            cancelled: 0,
        };
        Self {
            script: Mutex::new(script),
            started: watch::Sender::new(0),
            free: watch::Sender::new((0, false)),
        }
    }
}

impl ScriptedSummarizer {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock()
    }

    /// Sets what it does from now on, and clears [`ScriptedSummarizer::next`].
    pub fn always(&self, action: Action) {
        let mut script = self.script();
        self.free.send_modify(|(_, free)| *free = false);
        script.next.clear();
        script.then = action;
    }

    /// Sets what it does with the next requests.
    pub fn next(&self, acts: impl IntoIterator<Item = Action>) {
        self.script().next.extend(acts);
    }

    /// Releases waiting requests, and later ones.
    pub fn let_go(&self) {
        // One lock for the action of a request and its release.
        let _script = self.script();
        self.free
            .send_modify(|(times, free)| (*times, *free) = (*times + 1, true));
    }

    /// Waits until `count` requests have come since the start.
    ///
    /// # Panics
    /// If they have not after a minute.
    pub async fn reached(&self, count: usize) {
        let mut started = self.started.subscribe();
        let came = tokio::time::timeout(STUCK, started.wait_for(|started| *started >= count))
            .await
            .is_ok();
        assert!(
            came,
            "waited in vain for {count} requests, {} came",
            *self.started.borrow()
        );
    }

    /// Returns all requests in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.script().calls.clone()
    }

    /// Returns how many requests finished although a later one for their conversation had started.
    ///
    /// A dropped request doesn't count: it has no waiter.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.script().overlaps
    }

    /// Returns the maximum number of concurrent requests.
    #[must_use]
    pub fn most(&self) -> usize {
        self.script().most
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn running(&self) -> usize {
        self.script().running.values().map(HashMap::len).sum()
    }

    /// Returns how many requests were dropped before their answer.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        self.script().cancelled
    }
}

/// A request in flight.
struct Running<'a> {
    summarizer: &'a ScriptedSummarizer,
    identity: Identity,
    index: usize,
    done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut script = self.summarizer.script();
        let overtaken = script
            .running
            .get_mut(&self.identity)
            .and_then(|all| all.remove(&self.index));
        script.running.retain(|_, all| !all.is_empty());
        script.overlaps += usize::from(self.done && overtaken == Some(true));
        script.cancelled += usize::from(!self.done);
    }
}

#[async_trait]
impl Summarizer for ScriptedSummarizer {
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError> {
        let previous = marks(&request.previous_summary);
        let turns: Vec<String> = request
            .turns
            .iter()
            .filter_map(|turn| marks(&turn.user_message).into_iter().next())
            .collect();
        let mut free = self.free.subscribe();
        let (action, index, released) = {
            let mut script = self.script();
            let released = *free.borrow_and_update();
            let action = script
                .next
                .pop_front()
                .unwrap_or_else(|| script.then.clone());
            let index = script.calls.len();
            let running = script.running.entry(identity.clone()).or_default();
            running.values_mut().for_each(|overtaken| *overtaken = true);
            running.insert(index, false);
            script.most = script
                .most
                .max(script.running.values().map(HashMap::len).sum());
            script.calls.push(Call {
                session: Arc::clone(&identity.session),
                previous: previous.clone(),
                turns: turns.clone(),
                goal: request.goal.clone(),
                max_tokens: request.max_tokens,
                answered: false,
            });
            (action, index, released)
        };
        let mut running = Running {
            summarizer: self,
            identity: identity.clone(),
            index,
            done: false,
        };
        self.started.send_modify(|started| *started += 1);
        let fail = |reason| SummarizeError {
            reason,
            retry_after: None,
            detail: "told to fail".to_owned(),
        };
        let let_go = async {
            let (before, goes) = released;
            let _ = free
                .wait_for(|(times, free)| goes || *free || *times > before)
                .await;
        };
        let mut summary: String = previous
            .iter()
            .chain(&turns)
            .map(|mark| format!("[{mark}]"))
            .collect();
        match action {
            Action::Answer => tokio::task::yield_now().await,
            Action::Slow(time) => tokio::time::sleep(time).await,
            Action::Wait => let_go.await,
            Action::Say(text) => summary = text,
            Action::Fail(reason) => {
                running.done = true;
                return Err(fail(reason));
            }
            Action::FailLater(reason) => {
                let_go.await;
                running.done = true;
                return Err(fail(reason));
            }
            Action::Hang => std::future::pending().await,
        }
        running.done = true;
        if let Some(call) = self.script().calls.get_mut(index) {
            call.answered = true;
        }
        Ok(SummarizeResponse { summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn earlier_of_two_requests_counts_unless_dropped() {
        let summarizer = Arc::new(ScriptedSummarizer::default());
        summarizer.always(Action::Wait);
        let ask = || {
            let asked = Arc::clone(&summarizer);
            let request = SummarizeRequest {
                previous_summary: String::new(),
                turns: Vec::new(),
                goal: None,
                max_tokens: 1,
            };
            tokio::spawn(async move {
                asked
                    .summarize(&Identity::new("t", "u", "s"), request)
                    .await
            })
        };
        let calls = [ask(), ask()];
        summarizer.reached(2).await;
        summarizer.let_go();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!((summarizer.overlaps(), summarizer.cancelled()), (1, 0));
        summarizer.always(Action::Wait);
        let dropped = ask();
        summarizer.reached(3).await;
        let other = ask();
        summarizer.reached(4).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        summarizer.let_go();
        other.await.unwrap().unwrap();
        let last = ask();
        summarizer.reached(5).await;
        summarizer.let_go();
        last.await.unwrap().unwrap();
        assert_eq!(
            (
                summarizer.overlaps(),
                summarizer.cancelled(),
                summarizer.running()
            ),
            (1, 1, 0)
        );
    }
}
