//! Tests of summarising, recovery, retention and the sweep.
//!
//! They use a store in memory and, where time counts, a paused clock.

mod broken;
mod concurrency;
mod outages;
mod retention;
mod summarizer;
mod sweeping;
mod timing;
mod unreadable;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_events::{Bus, EventKind};
use helmdeck_memory::{Kind, Namespace, Order, Put, Store};
use helmdeck_testkit::{FaultyStore, ManualClock};

use crate::config::{Config, Strategy, SummarizerConfig};
use crate::health::Health;
use crate::identity::Identity;
use crate::memory::{ConversationMemory, Dependencies};
use crate::rows::{Checkpoint, Head};
use crate::turn::NewTurn;

use summarizer::StubSummarizer;

/// Longer than anything takes here; most of it passes on a paused clock.
const LONG: Duration = Duration::from_secs(7200);

/// A store with its clock, its events and its summarizer, and as many memories on it as a test
/// wants.
struct Fixture {
    store: Arc<FaultyStore>,
    clock: Arc<ManualClock>,
    bus: Bus,
    summarizer: Arc<StubSummarizer>,
    config: Config,
}

fn rolling() -> Config {
    Config {
        strategy: Strategy::RollingSummary,
        budget_tokens: 0,
        recent_turns: 2,
        summarizer: SummarizerConfig {
            batch_turns: 4,
            ..SummarizerConfig::default()
        },
        ..Config::default()
    }
}

fn truncating() -> Config {
    Config {
        strategy: Strategy::Truncation,
        ..rolling()
    }
}

impl Fixture {
    async fn new(config: Config) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store =
            FaultyStore::new(helmdeck_testkit::sealed_memory(Arc::clone(&clock) as _).await);
        let bus = Bus::new(4096, Arc::clone(&clock) as _);
        Self {
            store,
            clock,
            bus,
            summarizer: StubSummarizer::new(),
            config,
        }
    }

    /// Opens a memory, as another process would.
    fn open(&self) -> ConversationMemory {
        self.open_with(self.config.clone())
    }

    fn open_with(&self, config: Config) -> ConversationMemory {
        let dependencies = Dependencies {
            store: Arc::clone(&self.store) as _,
            events: self.bus.clone(),
            clock: Arc::clone(&self.clock) as _,
            summarizer: Some(Arc::clone(&self.summarizer) as _),
        };
        ConversationMemory::open(config, dependencies).unwrap()
    }

    /// Returns all events so far.
    async fn events(&self) -> Vec<EventKind> {
        let mut stream = self.bus.subscribe_after(0).unwrap();
        let mut events = Vec::new();
        while let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_millis(1), stream.next()).await
        {
            events.push(event.unwrap().kind.clone());
        }
        events
    }

    /// Returns the published health changes of a session.
    ///
    /// After a backlog it checks that each one starts where the last one ended.
    async fn moves(&self, session: &str) -> Vec<(String, String)> {
        let mut moves: Vec<(String, String)> = Vec::new();
        for event in self.events().await {
            let EventKind::MemoryHealthChanged {
                who,
                prior,
                new,
                reason,
            } = event
            else {
                continue;
            };
            if who.session.as_deref() != Some(session) {
                continue;
            }
            let last = moves.last().map_or("healthy", |(state, _)| state.as_str());
            assert_eq!(
                last, prior,
                "the chain is broken before {prior} -> {new} ({reason})"
            );
            moves.push((new.to_owned(), reason.to_owned()));
        }
        moves
    }

    /// Returns how many turns the events report as dropped, by reason.
    async fn dropped(&self) -> BTreeMap<String, u64> {
        let mut dropped = BTreeMap::new();
        for event in self.events().await {
            if let EventKind::MemoryRecoveryDropped { reason, count, .. } = event {
                *dropped.entry(reason.to_owned()).or_default() += count;
            }
        }
        dropped
    }

    /// Returns head and checkpoint as they are stored.
    async fn rows(&self, identity: &Identity) -> (Head, Checkpoint) {
        let scan = self.scan(identity, "~").await;
        let of = |key: &str| {
            scan.iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.clone())
                .unwrap()
        };
        (
            serde_json::from_slice(&of("~head")).unwrap(),
            serde_json::from_slice(&of("~checkpoint")).unwrap(),
        )
    }

    /// Returns the rows whose key starts so.
    async fn scan(&self, identity: &Identity, prefix: &str) -> Vec<(String, Vec<u8>)> {
        use helmdeck_memory::ReadStore as _;
        let namespace = identity.namespace().unwrap();
        let scan = self
            .store
            .scan(
                &namespace,
                Kind::Conversation,
                prefix,
                Order::KeyAscending,
                100_000,
            )
            .await
            .unwrap();
        scan.entries
            .into_iter()
            .map(|entry| (entry.meta.key, entry.value.to_vec()))
            .collect()
    }

    /// Writes a row directly, past the memory.
    async fn put_row(&self, namespace: &Namespace, key: &str, value: &[u8]) {
        let put = Put::new(namespace.clone(), Kind::Conversation, key, value.to_vec());
        self.store.put(put).await.unwrap();
    }

    /// Waits until nothing waits for a summary, and all is well.
    async fn until_settled(&self, memory: &ConversationMemory, identity: &Identity) {
        until("settled", async || {
            let (head, checkpoint) = self.rows(identity).await;
            let unsummarised = head.seq - checkpoint.covers_through.max(head.first - 1);
            checkpoint.health == Health::Healthy
                && unsummarised <= self.config.recent_turns as u64
                && memory.metrics().backlog == 0
        })
        .await;
    }
}

fn id(session: &str) -> Identity {
    Identity::new("t", "u", session)
}

/// Adds turns that say who they are.
async fn add(
    memory: &ConversationMemory,
    identity: &Identity,
    names: impl IntoIterator<Item = usize>,
) {
    for name in names {
        memory.add_turn(identity, turn(name)).await.unwrap();
    }
}

fn turn(name: usize) -> NewTurn {
    NewTurn::new(format!("u{name}"), "ok")
}

fn names(names: impl IntoIterator<Item = usize>) -> Vec<String> {
    names.into_iter().map(|name| format!("u{name}")).collect()
}

/// Returns which turns a model is shown: those in the summary, then the others.
async fn shown(memory: &ConversationMemory, identity: &Identity) -> Vec<String> {
    let patch = memory.context(identity).await.unwrap();
    let summarised = patch.summary.split_whitespace().map(str::to_owned);
    summarised
        .chain(
            patch
                .recent_turns
                .iter()
                .map(|recent| recent.turn.user_message.clone()),
        )
        .collect()
}

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let wait = async {
        let mut pause = Duration::from_millis(5);
        while !is_so().await {
            tokio::time::sleep(pause).await;
            // Hours pass on a paused clock.
            pause = (pause + pause / 8).min(Duration::from_millis(250));
        }
    };
    assert!(
        tokio::time::timeout(LONG, wait).await.is_ok(),
        "never: {what}"
    );
}
