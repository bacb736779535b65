//! The real summarizer, watched at each attempt.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::watch;

use super::known::{Case, Went};
use crate::conformance::fixture::sized;
use crate::summarizer::ChatSummarizer;
use crate::{
    ConversationMemory, Identity, SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer,
};

pub(super) type Cases = Arc<Mutex<HashMap<Arc<str>, Case>>>;

pub(super) fn lock(cases: &Cases) -> MutexGuard<'_, HashMap<Arc<str>, Case>> {
    cases.lock()
}

/// The real summarizer, watched.
pub(super) struct Watched {
    pub(super) cases: Cases,
    pub(super) real: ChatSummarizer,
    /// The same against an endpoint where nothing listens.
    pub(super) alone: ChatSummarizer,
    /// The memory that summarises, and one that reads what is stored.
    pub(super) memories: OnceLock<(ConversationMemory, ConversationMemory)>,
    /// Whether the first spoilt attempts may go on.
    pub(super) free: watch::Sender<bool>,
    pub(super) waiting: watch::Sender<usize>,
    pub(super) broken: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Summarizer for Watched {
    async fn summarize(
        &self,
        identity: &Identity,
        request: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError> {
        let (folding, reading) = self.memories.get().unwrap();
        let trace = reading.trace(identity).await.unwrap();
        let patches = (
            folding.context(identity).await.unwrap(),
            reading.context(identity).await.unwrap(),
        );
        let (number, spoilt, gone, talks) = {
            let mut cases = lock(&self.cases);
            let case = cases.get_mut(&identity.session).unwrap();
            let number = case.started.len();
            let looked = catch_unwind(AssertUnwindSafe(|| {
                case.learn(&trace);
                case.known.begins();
                case.agrees(&trace, &patches.0);
                assert_eq!(patches.0, patches.1, "what is in memory is what is stored");
                case.fits(&request);
            }));
            self.note(identity, number, looked);
            case.started.push(Instant::now());
            case.last = Some((request.turns.len(), Went::Dropped));
            let spoilt = case.spoilt.contains(&number);
            // What is cut off may add a turn, or not.
            let talks = case.talks && !case.hasty;
            (
                number,
                spoilt.then_some(case.spoilt.start),
                case.fault.act.is_none(),
                talks,
            )
        };
        if spoilt.is_some() && talks {
            let mark = lock(&self.cases)[&identity.session].turns;
            folding
                .add_turn(identity, sized(mark, 100, 100))
                .await
                .unwrap();
            lock(&self.cases).get_mut(&identity.session).unwrap().turns += 1;
        }
        if spoilt == Some(number) {
            self.waiting.send_modify(|waiting| *waiting += 1);
            self.free.subscribe().wait_for(|free| *free).await.unwrap();
        }
        let asked = if spoilt.is_some() && gone {
            &self.alone
        } else {
            &self.real
        };
        let answer = asked.summarize(identity, request).await;
        let mut cases = lock(&self.cases);
        let case = cases.get_mut(&identity.session).unwrap();
        if let Some((_, went)) = case
            .last
            .as_mut()
            .filter(|_| case.started.len() == number + 1)
        {
            let word = answer.as_ref().err().map(|error| error.reason.as_str());
            let late = case.hasty && word == Some("timeout");
            let expected = spoilt.and(case.fault.word);
            let looked = catch_unwind(|| {
                assert!(
                    late || word == expected,
                    "{:?}, not {expected:?}",
                    answer.as_ref().err()
                )
            });
            self.note(identity, number, looked);
            *went = word.map_or(Went::Well, Went::Badly);
        }
        answer
    }
}

impl Watched {
    pub(super) fn note(&self, identity: &Identity, number: usize, looked: std::thread::Result<()>) {
        if let Err(panic) = looked {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(panic.downcast_ref::<&str>().copied());
            let text = format!(
                "{}, attempt {number}: {}",
                identity.session,
                text.unwrap_or_default()
            );
            self.broken.lock().push(text);
        }
    }

    pub(super) fn is_sound(&self) {
        let broken = self.broken.lock();
        assert!(
            broken.is_empty(),
            "{} do not hold, first: {}",
            broken.len(),
            broken[0]
        );
    }
}
