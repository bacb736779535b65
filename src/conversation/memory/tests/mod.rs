//! What callers see, on stores in memory; the conformance suite asks the same of real ones.

mod adds;
mod bounds;
mod deletes;
mod generations;
mod hot_tier;
mod lists;
mod rows;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::Clock;
use helmdeck_events::{Bus, EventKind};
use helmdeck_memory::{Kind, Namespace, Put, Store};
use helmdeck_testkit::{ManualClock, sealed_memory};

use super::{ConversationMemory, Dependencies};
use crate::config::{Config, Strategy};
use crate::identity::Identity;
use crate::patch::LlmContextPatch;
use crate::rows::{Checkpoint, StoredState};
use crate::summarizer::{Failure, SummarizeError, SummarizeRequest, SummarizeResponse, Summarizer};
use crate::turn::NewTurn;

/// A summarizer that never answers, so that only tests summarise.
struct Mute;

#[async_trait]
impl Summarizer for Mute {
    async fn summarize(
        &self,
        _: &Identity,
        _: SummarizeRequest,
    ) -> Result<SummarizeResponse, SummarizeError> {
        std::future::pending::<()>().await;
        Err(SummarizeError {
            reason: Failure::Unavailable,
            retry_after: None,
            detail: String::new(),
        })
    }
}

/// A store, a clock, and the published events.
struct Fixture {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    bus: Bus,
}

impl Fixture {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = sealed_memory(Arc::<ManualClock>::clone(&clock) as Arc<dyn Clock>).await;
        let bus = Bus::new(4096, Arc::<ManualClock>::clone(&clock));
        Self { clock, store, bus }
    }

    fn open_on(&self, store: Arc<dyn Store>, config: Config) -> ConversationMemory {
        let clock = Arc::<ManualClock>::clone(&self.clock);
        let dependencies = Dependencies {
            store,
            events: self.bus.clone(),
            clock,
            summarizer: Some(Arc::new(Mute)),
        };
        ConversationMemory::open(config, dependencies).unwrap()
    }

    fn open(&self, config: Config) -> ConversationMemory {
        self.open_on(Arc::clone(&self.store), config)
    }

    /// Returns the events so far.
    async fn events(&self) -> Vec<EventKind> {
        let last = self.bus.publish(EventKind::CachePurged {
            what: "mark".to_owned(),
            rows: 0,
        });
        let mut all = self.bus.subscribe_after(0).unwrap();
        let mut events = Vec::new();
        loop {
            let event = all.next().await.unwrap().unwrap();
            if event.sequence == last {
                return events;
            }
            if !matches!(event.kind, EventKind::CachePurged { .. }) {
                events.push(event.kind.clone());
            }
        }
    }

    /// Writes a row past the memory.
    async fn write(&self, key: &str, value: &[u8]) {
        let put = Put::new(namespace(), Kind::Conversation, key, value.to_vec());
        self.store.put(put).await.unwrap();
    }
}

fn alice() -> Identity {
    Identity::new("t", "alice", "s")
}

fn namespace() -> Namespace {
    alice().namespace().unwrap()
}

/// A sweep that does not come while a test runs.
fn config(strategy: Strategy) -> Config {
    Config {
        strategy,
        budget_tokens: 0,
        sweep_interval: Duration::from_secs(86_400),
        ..Config::default()
    }
}

fn turn(number: usize) -> NewTurn {
    NewTurn::new(format!("q{number}"), format!("a{number}"))
}

async fn add(memory: &ConversationMemory, numbers: std::ops::Range<usize>) {
    for number in numbers {
        memory.add_turn(&alice(), turn(number)).await.unwrap();
    }
}

/// Returns the numbers of the visible turns.
fn shown(patch: &LlmContextPatch) -> Vec<usize> {
    patch
        .recent_turns
        .iter()
        .map(|recent| recent.turn.user_message[1..].parse().unwrap())
        .collect()
}

async fn seen(memory: &ConversationMemory) -> Vec<usize> {
    shown(&memory.context(&alice()).await.unwrap())
}

async fn state(memory: &ConversationMemory) -> StoredState {
    memory.shared().rows.state(&namespace()).await.unwrap()
}

/// Summarises as the worker would, at a chosen moment.
async fn fold(memory: &ConversationMemory, through: u64, change: impl FnOnce(&mut Checkpoint)) {
    let shared = memory.shared();
    let state = state(memory).await;
    let mut checkpoint = state.checkpoint.clone();
    checkpoint.covers_through = through;
    checkpoint.summary = format!("summary of all through {through}");
    change(&mut checkpoint);
    let version = shared
        .rows
        .commit(&namespace(), &state, &checkpoint)
        .await
        .unwrap()
        .unwrap();
    shared.replaced(&namespace(), &checkpoint, version);
}
