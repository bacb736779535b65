//! A summarizer that does what it is told, and whose summaries name every turn that they hold.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::subject::STUCK;
use crate::identity::Identity;
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer};

/// What a [`Scribe`] does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Answers with the marks of the previous summary, then those of the turns.
    Answer,
    /// Answers so after this time.
    Slow(Duration),
    /// Waits until [`Scribe::let_go`], then answers so.
    Wait,
    /// Answers with this text.
    Say(String),
    /// Fails.
    Fail(Failure),
    /// Waits until [`Scribe::let_go`], then fails.
    FailLater(Failure),
    /// Never answers.
    Hang,
}

/// A request that a [`Scribe`] got.
#[derive(Debug, Clone)]
pub struct Call {
    /// The conversation.
    pub session: Arc<str>,
    /// The marks in the previous summary.
    pub previous: Vec<String>,
    /// The marks of the turns.
    pub turns: Vec<String>,
    /// What the user asked for at first.
    pub opening: Option<String>,
    /// Whether it was answered with a summary.
    pub answered: bool,
}

/// Returns the marks of a text, in their order: what stands in square brackets.
#[must_use]
pub fn marks(text: &str) -> Vec<String> {
    text.split('[').skip(1).filter_map(|part| Some(part.split_once(']')?.0.to_owned())).collect()
}

/// A summarizer that does what it is told.
///
/// Its summary is the marks of all turns that are in it, so that whoever reads one sees which
/// turns it holds, how often, and in which order. A turn's mark is the first one of its user message.
#[derive(Debug)]
pub struct Scribe {
    script: Mutex<Script>,
    begun: watch::Sender<usize>,
    /// How often requests were let go, and whether they still are.
    free: watch::Sender<(u64, bool)>,
}

#[derive(Debug)]
struct Script {
    next: VecDeque<Act>,
    then: Act,
    calls: Vec<Call>,
    /// The requests under way, by their place among the calls; and whether another one for the conversation has come since.
    running: HashMap<Identity, HashMap<usize, bool>>,
    overlaps: usize,
    most: usize,
    cancelled: usize,
}

impl Default for Scribe {
    fn default() -> Self {
        let script = Script {
            next: VecDeque::new(),
            then: Act::Answer,
            calls: Vec::new(),
            running: HashMap::new(),
            overlaps: 0,
            most: 0,
            cancelled: 0,
        };
        Self { script: Mutex::new(script), begun: watch::Sender::new(0), free: watch::Sender::new((0, false)) }
    }
}

impl Scribe {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock()
    }

    /// Says what it does from now on; what was said by [`Scribe::next`] is no longer meant.
    pub fn always(&self, act: Act) {
        let mut script = self.script();
        self.free.send_modify(|(_, free)| *free = false);
        script.next.clear();
        script.then = act;
    }

    /// Says what it does with the next requests, before it goes on as usual.
    pub fn next(&self, acts: impl IntoIterator<Item = Act>) {
        self.script().next.extend(acts);
    }

    /// Lets requests go that wait, and those that would.
    pub fn let_go(&self) {
        // What a request is told and whether it may go is one thing.
        let _script = self.script();
        self.free.send_modify(|(times, free)| (*times, *free) = (*times + 1, true));
    }

    /// Waits until so many requests have come in since the beginning.
    ///
    /// # Panics
    /// If they have not after a minute.
    pub async fn reached(&self, count: usize) {
        let mut begun = self.begun.subscribe();
        let came = tokio::time::timeout(STUCK, begun.wait_for(|begun| *begun >= count)).await.is_ok();
        assert!(came, "waited a minute for {count} requests, {} came", *self.begun.borrow());
    }

    /// Returns all requests, in the order in which they came.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.script().calls.clone()
    }

    /// Returns how many requests went on to their end although another one for their conversation had come meanwhile.
    ///
    /// One that was dropped does not count: whoever drops a request need not wait until it has heard of that.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.script().overlaps
    }

    /// Returns the most requests that were under way at once.
    #[must_use]
    pub fn most(&self) -> usize {
        self.script().most
    }

    /// Returns how many requests are under way.
    #[must_use]
    pub fn running(&self) -> usize {
        self.script().running.values().map(HashMap::len).sum()
    }

    /// Returns how many requests were dropped before they were answered.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        self.script().cancelled
    }
}

/// A request under way.
struct Running<'a> {
    scribe: &'a Scribe,
    identity: Identity,
    index: usize,
    done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut script = self.scribe.script();
        let overtaken = script.running.get_mut(&self.identity).and_then(|all| all.remove(&self.index));
        script.running.retain(|_, all| !all.is_empty());
        script.overlaps += usize::from(self.done && overtaken == Some(true));
        script.cancelled += usize::from(!self.done);
    }
}

#[async_trait]
impl Summarizer for Scribe {
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError> {
        let previous = marks(&request.previous_summary);
        let turns: Vec<String> =
            request.turns.iter().filter_map(|turn| marks(&turn.user_message).into_iter().next()).collect();
        let mut free = self.free.subscribe();
        let (act, index, told) = {
            let mut script = self.script();
            let told = *free.borrow_and_update();
            let act = script.next.pop_front().unwrap_or_else(|| script.then.clone());
            let index = script.calls.len();
            let running = script.running.entry(identity.clone()).or_default();
            running.values_mut().for_each(|overtaken| *overtaken = true);
            running.insert(index, false);
            script.most = script.most.max(script.running.values().map(HashMap::len).sum());
            script.calls.push(Call {
                session: Arc::clone(&identity.session),
                previous: previous.clone(),
                turns: turns.clone(),
                opening: request.opening.clone(),
                answered: false,
            });
            (act, index, told)
        };
        let mut running = Running { scribe: self, identity: identity.clone(), index, done: false };
        self.begun.send_modify(|begun| *begun += 1);
        let fail = |reason| SummarizeError { reason, retry_after: None, detail: "told to fail".to_owned() };
        let let_go = async {
            let (before, goes) = told;
            let _ = free.wait_for(|(times, free)| goes || *free || *times > before).await;
        };
        let mut summary: String = previous.iter().chain(&turns).map(|mark| format!("[{mark}]")).collect();
        match act {
            Act::Answer => tokio::task::yield_now().await,
            Act::Slow(time) => tokio::time::sleep(time).await,
            Act::Wait => let_go.await,
            Act::Say(text) => summary = text,
            Act::Fail(reason) => {
                running.done = true;
                return Err(fail(reason));
            }
            Act::FailLater(reason) => {
                let_go.await;
                running.done = true;
                return Err(fail(reason));
            }
            Act::Hang => std::future::pending().await,
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
    async fn of_two_requests_at_once_the_earlier_one_counts_if_it_goes_on_and_not_if_it_is_dropped() {
        let scribe = Arc::new(Scribe::default());
        scribe.always(Act::Wait);
        let ask = || {
            let asked = Arc::clone(&scribe);
            let request =
                SummarizeRequest { previous_summary: String::new(), turns: Vec::new(), opening: None, max_tokens: 1 };
            tokio::spawn(async move { asked.summarize(&Identity::new("t", "u", "s"), request).await })
        };
        let calls = [ask(), ask()];
        scribe.reached(2).await;
        scribe.let_go();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!((scribe.overlaps(), scribe.cancelled()), (1, 0));
        scribe.always(Act::Wait);
        let dropped = ask();
        scribe.reached(3).await;
        let other = ask();
        scribe.reached(4).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        scribe.let_go();
        other.await.unwrap().unwrap();
        let last = ask();
        scribe.reached(5).await;
        scribe.let_go();
        last.await.unwrap().unwrap();
        assert_eq!((scribe.overlaps(), scribe.cancelled(), scribe.running()), (1, 1, 0));
    }
}
