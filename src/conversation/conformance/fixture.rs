//! The fixture of a test case: a store, and everything to open conversation memories on it.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helmdeck_core::ManualClock;
use helmdeck_events::{Bus, EventKind};
use helmdeck_memory::{Kind, Lock, Store};

use super::faulty_store::FaultyStore;
pub(crate) use super::scripted_summarizer::STUCK;
use super::scripted_summarizer::{ScriptedSummarizer, marks};
use crate::config::{Config, Strategy};
use crate::error::{ConversationError, Result};
use crate::health::{Health, Reason};
use crate::identity::Identity;
use crate::memory::{ConversationMemory, Dependencies};
use crate::patch::LlmContextPatch;
use crate::turn::NewTurn;
use crate::views::{Added, TurnFilter, TurnInfo};
use crate::worker::SWEEP;

/// One process on a store, with its own faults, bus and summarizer. Clones are the same process.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) strategy: Strategy,
    /// The store itself.
    pub(crate) bare: Arc<dyn Store>,
    /// The store as the process sees it.
    pub(crate) faults: FaultyStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) bus: Bus,
    pub(crate) summarizer: Arc<ScriptedSummarizer>,
}

impl Fixture {
    pub(crate) fn new(strategy: Strategy, bare: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        let (faults, bus) = (FaultyStore::new(&bare), Bus::new(100_000, clock.clone()));
        Self {
            strategy,
            bare,
            faults,
            clock,
            bus,
            summarizer: Arc::new(ScriptedSummarizer::default()),
        }
    }

    /// Returns another process on the same store.
    pub(crate) fn another(&self) -> Self {
        Self::new(
            self.strategy,
            Arc::clone(&self.bare),
            Arc::clone(&self.clock),
        )
    }

    /// Returns another process under another strategy on the same store.
    pub(crate) fn under(&self, strategy: Strategy) -> Self {
        Self {
            strategy,
            ..self.another()
        }
    }

    pub(crate) fn rolls(&self) -> bool {
        self.strategy == Strategy::RollingSummary
    }

    /// Settings of most cases: no budget, so that every turn is shown; summaries of any length;
    /// short folding.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config {
            strategy: self.strategy,
            budget_tokens: 0,
            ..Config::default()
        };
        config.summarizer.summary_tokens = 1_000_000;
        config.summarizer.batch_turns = 4;
        config.summarizer.batch_tokens = 1_000_000;
        config.summarizer.retry_wait = Duration::from_millis(1);
        config.summarizer.max_retry_wait = Duration::from_millis(5);
        config
    }

    pub(crate) fn open(&self) -> ConversationMemory {
        self.open_with(|_| ())
    }

    pub(crate) fn open_with(&self, change: impl FnOnce(&mut Config)) -> ConversationMemory {
        let mut config = self.config();
        change(&mut config);
        self.try_open(config).unwrap()
    }

    /// Opens a memory as a command does: nothing is summarised in the background.
    pub(crate) fn open_briefly(&self, change: impl FnOnce(&mut Config)) -> ConversationMemory {
        let mut config = self.config();
        change(&mut config);
        ConversationMemory::open_briefly(config, self.dependencies()).unwrap()
    }

    /// Opens a memory in another process that only reads: it neither summarises nor sweeps.
    pub(crate) fn open_to_look(&self, change: impl FnOnce(&mut Config)) -> ConversationMemory {
        self.another().open_briefly(change)
    }

    /// Prevents sweeps as long as the lock is held.
    pub(crate) async fn unswept(&self) -> Lock {
        self.bare
            .try_lock(SWEEP, STUCK * 60)
            .await
            .unwrap()
            .unwrap()
    }

    fn dependencies(&self) -> Dependencies {
        Dependencies {
            store: self.faults.store(),
            events: self.bus.clone(),
            clock: self.clock.clone(),
            summarizer: self.rolls().then(|| self.summarizer.clone() as _),
        }
    }

    pub(crate) fn try_open(&self, config: Config) -> Result<ConversationMemory> {
        ConversationMemory::open(config, self.dependencies())
    }

    /// Returns the events so far.
    pub(crate) fn events(&self) -> Vec<EventKind> {
        let mut kept = self.bus.subscribe_after(0).unwrap();
        let mut events = Vec::new();
        loop {
            let next = std::pin::pin!(kept.next()).poll(&mut Context::from_waker(Waker::noop()));
            match next {
                Poll::Ready(Some(Ok(event))) => events.push(event.kind.clone()),
                _ => return events,
            }
        }
    }

    /// Returns a conversation's health transitions, after checking them.
    ///
    /// Each is allowed, and starts where the last one ended.
    #[track_caller]
    pub(crate) fn moves(&self, identity: &Identity, from: Health) -> Vec<(Health, &'static str)> {
        let state = |name| {
            *Health::ALL
                .iter()
                .find(|health| health.as_str() == name)
                .unwrap()
        };
        let (mut at, mut moves) = (from, Vec::new());
        for event in self.events() {
            let EventKind::MemoryHealthChanged {
                who,
                prior,
                new,
                reason,
            } = event
            else {
                continue;
            };
            if who.session.as_deref() != Some(&identity.session)
                || who.user.as_deref() != Some(&identity.user)
            {
                continue;
            }
            assert!(
                state(prior) == at,
                "{prior} to {new} ({reason}) is not chained to {moves:?}"
            );
            let why = REASONS
                .iter()
                .find(|known| known.as_str() == reason)
                .unwrap();
            assert!(at.allows(state(new), *why), "{at} to {new} ({reason})");
            at = state(new);
            moves.push((at, reason));
        }
        moves
    }

    /// Returns the transitions once the last one leads to a state: events come after their write.
    pub(crate) async fn moves_to(
        &self,
        identity: &Identity,
        to: Health,
    ) -> Vec<(Health, &'static str)> {
        let moves = || self.moves(identity, Health::Healthy);
        eventually("the last move to be told", async || {
            moves().last().is_some_and(|(last, _)| *last == to)
        })
        .await;
        moves()
    }

    /// Returns the reported dropped turns, by reason.
    pub(crate) fn dropped(&self) -> Vec<(&'static str, u64)> {
        let dropped = |event| match event {
            EventKind::MemoryRecoveryDropped { reason, count, .. } => Some((reason, count)),
            _ => None,
        };
        self.events().into_iter().filter_map(dropped).collect()
    }

    /// Returns how many rows of the whole store contain a text.
    pub(crate) async fn rows_with(&self, text: &str) -> usize {
        let (mut found, mut after) = (0, None);
        loop {
            let part = self.bare.walk(after, 500).await.unwrap();
            let holds = |value: &[u8]| {
                value
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            };
            let live = part
                .rows
                .iter()
                .filter(|row| row.meta.kind == Kind::Conversation);
            found += live
                .filter(|row| row.value.as_deref().is_ok_and(holds) || row.meta.key.contains(text))
                .count();
            match part.next {
                Some(next) => after = Some(next),
                None => return found,
            }
        }
    }
}

/// Every reason.
pub(crate) const REASONS: [Reason; 9] = [
    Reason::SummarizerFailed,
    Reason::SummarizerSucceeded,
    Reason::RetriesExhausted,
    Reason::RecoveryLoopAttempt,
    Reason::RecoveryBatchFailed,
    Reason::RecoveryBatchDrained,
    Reason::RecoveryLoopDrained,
    Reason::Flushed,
    Reason::Restored,
];

/// The conversation of most cases.
pub(crate) fn alice() -> Identity {
    Identity::new("tenant-a", "user-1", "session-1")
}

/// Another one.
pub(crate) fn bob() -> Identity {
    Identity::new("tenant-b", "user-9", "session-9")
}

/// Returns a turn with a mark. Texts contain no other brackets.
pub(crate) fn turn(mark: impl std::fmt::Display) -> NewTurn {
    NewTurn::new(format!("[{mark}] is asked"), format!("{mark} is answered"))
}

/// Returns a turn with a mark whose texts have the given lengths in characters, all ASCII.
///
/// With multiples of 4 it takes `user / 4 + 1 + assistant / 4 + 1` tokens.
pub(crate) fn sized(mark: impl std::fmt::Display, user: usize, assistant: usize) -> NewTurn {
    NewTurn::new(
        format!("{:.<user$}", format!("[{mark}]")),
        ".".repeat(assistant),
    )
}

/// Returns marks by their numbers.
pub(crate) fn numbers(range: impl IntoIterator<Item = usize>) -> Vec<String> {
    range.into_iter().map(|number| number.to_string()).collect()
}

/// Adds turns with these numbers as marks.
pub(crate) async fn add(
    memory: &ConversationMemory,
    identity: &Identity,
    range: impl IntoIterator<Item = usize>,
) -> Vec<Added> {
    let mut added = Vec::new();
    for number in range {
        added.push(memory.add_turn(identity, turn(number)).await.unwrap());
    }
    added
}

/// Returns the marks of the turns in a context.
pub(crate) fn recent(patch: &LlmContextPatch) -> Vec<String> {
    patch
        .recent_turns
        .iter()
        .flat_map(|recent| marks(&recent.turn.user_message))
        .collect()
}

/// Returns the marks in a context: of the summary, then of the turns.
pub(crate) fn sight(patch: &LlmContextPatch) -> Vec<String> {
    let mut all = marks(&patch.summary);
    all.extend(recent(patch));
    all
}

/// Returns the marks in the context of a conversation.
pub(crate) async fn seen(memory: &ConversationMemory, identity: &Identity) -> Vec<String> {
    sight(&memory.context(identity).await.unwrap())
}

/// Summarises until nothing is due.
pub(crate) async fn fold(memory: &ConversationMemory, identity: &Identity) {
    // A call may end early, for example while another process summarises.
    eventually("nothing to be due", async || {
        memory.summarise(identity, STUCK).await.unwrap() == 0
    })
    .await;
}

/// Returns all stored turns, oldest first.
pub(crate) async fn items(memory: &ConversationMemory, identity: &Identity) -> Vec<TurnInfo> {
    let mut filter = TurnFilter {
        limit: Some(7),
        ..TurnFilter::default()
    };
    let mut all = Vec::new();
    loop {
        let page = memory.list_turns(identity, &filter).await.unwrap();
        assert_eq!(page.unreadable, 0);
        all.extend(page.items);
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    all.reverse();
    all
}

/// Returns the marks of all stored turns, oldest first.
///
/// If a turn is pruned between list and read, the list is read again, up to 100 times.
pub(crate) async fn kept(memory: &ConversationMemory, identity: &Identity) -> Vec<String> {
    'list: for _ in 0..100 {
        let mut all = Vec::new();
        for item in items(memory, identity).await {
            match memory.get_turn(identity, &item.key.to_string()).await {
                Ok(detail) => all.extend(marks(&detail.turn.user_message)),
                Err(ConversationError::NotFound) => continue 'list,
                Err(error) => panic!("a turn cannot be read: {error}"),
            }
        }
        return all;
    }
    panic!("a turn of the list is never found");
}

/// Every method that takes an identity, by the name that events give it.
pub(crate) const METHODS: [&str; 16] = [
    "add_turn",
    "context",
    "estimate_tokens",
    "flush",
    "health",
    "snapshot",
    "restore",
    "list_items",
    "get_item",
    "put_item",
    "delete_item",
    "trace",
    "forget",
    "fold",
    "goal",
    "pin",
];

/// Calls a method by its name.
pub(crate) async fn call(
    memory: &ConversationMemory,
    method: &str,
    identity: &Identity,
) -> Result<(), ConversationError> {
    let key = "mem_000000000000000100000001";
    match method {
        "add_turn" => memory.add_turn(identity, turn("called")).await.map(drop),
        "context" => memory.context(identity).await.map(drop),
        "estimate_tokens" => memory.estimate_tokens(identity).await.map(drop),
        "flush" => memory.flush(identity).await,
        "health" => memory.health(identity).await.map(drop),
        "snapshot" => memory.snapshot(identity).await.map(drop),
        "restore" => {
            memory
                .restore(identity, &crate::snapshot::Snapshot::default())
                .await
        }
        "list_items" => memory
            .list_turns(identity, &TurnFilter::default())
            .await
            .map(drop),
        "get_item" => memory.get_turn(identity, key).await.map(drop),
        "put_item" => memory.put_turn(identity, turn("called")).await.map(drop),
        "delete_item" => memory.delete_turn(identity, key).await.map(drop),
        "trace" => memory.trace(identity).await.map(drop),
        "forget" => memory.forget(identity).await.map(drop),
        "goal" => memory.goal(identity).await.map(drop),
        "pin" => memory.pin(identity, None).await.map(drop),
        "fold" => memory
            .summarise(identity, Duration::from_secs(1))
            .await
            .map(drop),
        other => panic!("there is no method {other}"),
    }
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    while !so().await {
        assert!(start.elapsed() < STUCK, "waited in vain for {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(16));
    }
}
