//! Random operations in any order, checked against a model of two lists. Case 16 of the reference.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use serde_json::Value;

use super::fixture::{Fixture, STUCK, eventually, fold, items, kept, sight, turn};
use super::scripted_summarizer::{Action, marks};
use crate::config::Strategy;
use crate::health::Health;
use crate::identity::Identity;
use crate::memory::ConversationMemory;
use crate::snapshot::Snapshot;
use crate::summarizer::Failure;

/// The expected content of a conversation.
#[derive(Debug, Clone, Default)]
struct Model {
    /// Marks in the summary without stored turns.
    summarised: Vec<String>,
    /// Marks of the stored turns.
    turns: Vec<String>,
}

impl Model {
    fn all(&self) -> Vec<String> {
        [&self.summarised[..], &self.turns].concat()
    }
}

/// One operation, made of any number.
#[derive(Debug, Clone, Copy)]
enum Step {
    Add(usize),
    Backlog,
    Summarise,
    Wait,
    Summaries(usize),
    Flush,
    Forget,
    Delete(usize),
    Snapshot,
    Restore,
    Reopen,
    Change,
    Later,
}

impl Step {
    fn of(number: u64) -> (Self, usize) {
        let (kind, detail) = (number % 32, (number / 32) as usize);
        let step = match kind {
            0..=11 => Self::Add(detail / 3 % 3 + 1),
            12..=14 => Self::Backlog,
            15..=17 => Self::Summarise,
            18 => Self::Wait,
            19..=22 => Self::Summaries(detail / 3),
            23 => Self::Flush,
            24 => Self::Forget,
            25 | 26 => Self::Delete(detail / 3),
            27 => Self::Snapshot,
            28 => Self::Restore,
            29 => Self::Reopen,
            30 => Self::Change,
            _ => Self::Later,
        };
        (step, detail % 3)
    }
}

struct Walk {
    fixture: Fixture,
    processes: Vec<(Fixture, ConversationMemory)>,
    at: usize,
    models: [Model; 3],
    snapshot: Option<(Snapshot, Model)>,
    added: usize,
}

fn name(conversation: usize) -> Identity {
    Identity::new("t", "u", &format!("walk-{conversation}"))
}

fn open(fixture: &Fixture) -> ConversationMemory {
    fixture.open_with(|config| {
        config.hot_for = Duration::ZERO;
        config.recent_turns = 2;
        config.summarizer.batch_turns = 3;
        config.recovery_backlog_max = 1;
        config.sweep_interval = Duration::from_millis(10);
    })
}

/// Runs the operations. With several processes each may run the next one.
pub(crate) async fn walk(fixture: &Fixture, processes: usize, steps: &[u64]) {
    let processes: Vec<_> = (0..processes)
        .map(|_| fixture.another())
        .map(|own| (own.clone(), open(&own)))
        .collect();
    let mut walk = Walk {
        fixture: fixture.clone(),
        processes,
        at: 0,
        models: Default::default(),
        snapshot: None,
        added: 0,
    };
    for number in steps {
        let (step, conversation) = Step::of(*number);
        walk.step(step, conversation).await;
        walk.check(conversation, step).await;
    }
    walk.end().await;
}

impl Walk {
    fn memory(&self) -> &ConversationMemory {
        &self.processes[self.at].1
    }

    async fn step(&mut self, step: Step, conversation: usize) {
        let identity = name(conversation);
        let keeps = self.fixture.strategy != Strategy::None;
        match step {
            Step::Add(count) => {
                for _ in 0..count {
                    let mark = format!("w{}", self.added);
                    self.added += 1;
                    self.memory()
                        .add_turn(&identity, turn(&mark))
                        .await
                        .unwrap();
                    if keeps {
                        self.models[conversation].turns.push(mark);
                    }
                }
            }
            Step::Backlog => {}
            Step::Summarise => drop(
                self.memory()
                    .summarise(&identity, Duration::from_millis(5))
                    .await
                    .unwrap(),
            ),
            Step::Wait => tokio::time::sleep(Duration::from_millis(3)).await,
            Step::Summaries(which) => {
                let act = match which % 6 {
                    0 | 1 => Action::Answer,
                    2 => Action::Fail(Failure::Unavailable),
                    3 => Action::Fail(Failure::TooLong),
                    4 => Action::Slow(Duration::from_millis(2)),
                    _ => Action::Wait,
                };
                for (process, _) in &self.processes {
                    process.summarizer.let_go();
                    process.summarizer.always(act.clone());
                }
            }
            Step::Flush => {
                self.memory().flush(&identity).await.unwrap();
                self.models[conversation] = Model::default();
            }
            Step::Forget => {
                // What it says is how many turns went.
                let gone = self.memory().forget(&identity).await.unwrap();
                assert_eq!(
                    gone as usize,
                    self.models[conversation].turns.len(),
                    "forgotten turns"
                );
                self.models[conversation] = Model::default();
            }
            Step::Delete(which) => {
                let all = items(self.memory(), &identity).await;
                assert_eq!(all.len(), self.models[conversation].turns.len());
                if all.is_empty() {
                    return;
                }
                let which = which % all.len();
                let deleted = self
                    .memory()
                    .delete_turn(&identity, &all[which].key.to_string())
                    .await
                    .unwrap();
                assert_eq!(deleted.remaining_turns as usize, all.len() - 1);
                self.models[conversation].turns.remove(which);
            }
            Step::Snapshot => {
                let snapshot = self.memory().snapshot(&identity).await.unwrap();
                let record: Value = serde_json::from_slice(&snapshot.bytes).unwrap_or_default();
                let turns = record["turns"].as_array().cloned().unwrap_or_default();
                let turns = turns
                    .iter()
                    .flat_map(|turn| marks(turn["UserMessage"].as_str().unwrap()))
                    .collect();
                let summarised = marks(record["summary"].as_str().unwrap_or_default());
                let model = Model { summarised, turns };
                assert_eq!(
                    model.all(),
                    self.models[conversation].all(),
                    "a snapshot is all of it"
                );
                self.snapshot = Some((snapshot, model));
            }
            Step::Restore => {
                if let Some((snapshot, model)) = &self.snapshot {
                    self.processes[self.at]
                        .1
                        .restore(&identity, snapshot)
                        .await
                        .unwrap();
                    self.models[conversation] = model.clone();
                }
            }
            Step::Reopen => {
                let (process, memory) = &self.processes[self.at];
                memory.close(STUCK).await;
                let memory = open(process);
                self.processes[self.at].1 = memory;
            }
            Step::Change => self.at = (self.at + 1) % self.processes.len(),
            Step::Later => self.fixture.clock.advance(Duration::from_secs(1)),
        }
    }

    /// Checks that every turn is there, whatever the summarizer does meanwhile.
    async fn check(&self, conversation: usize, step: Step) {
        let (identity, model) = (name(conversation), &self.models[conversation]);
        let patch = self.memory().context(&identity).await.unwrap();
        assert_eq!(
            sight(&patch),
            model.all(),
            "after {step:?} in conversation {conversation}"
        );
        assert_eq!(
            (patch.omitted_turns, patch.unreadable, patch.over_budget),
            (0, 0, false)
        );
        let trace = self.memory().trace(&identity).await.unwrap();
        assert_eq!(
            trace.kept_turns as usize,
            model.turns.len(),
            "after {step:?}"
        );
        assert!(self.fixture.rolls() || trace.health == Health::Healthy);
    }

    async fn end(&mut self) {
        for (process, _) in &self.processes {
            process.summarizer.let_go();
            process.summarizer.always(Action::Answer);
        }
        for conversation in 0..3 {
            // A conversation that failed and has nothing more to summarise succeeds when there is
            // something again.
            self.step(Step::Add(4), conversation).await;
            let (identity, model) = (name(conversation), &self.models[conversation]);
            fold(self.memory(), &identity).await;
            eventually("all to be healthy", async || {
                let healthy = self.memory().health(&identity).await.unwrap() == Health::Healthy;
                healthy
                    || self
                        .memory()
                        .summarise(&identity, Duration::from_millis(5))
                        .await
                        .is_err()
            })
            .await;
            for (process, memory) in &self.processes {
                let patch = memory.context(&identity).await.unwrap();
                assert_eq!(sight(&patch), model.all());
                assert_eq!(kept(memory, &identity).await, model.turns);
                let open = if process.rolls() {
                    model.turns.len().min(2)
                } else {
                    model.turns.len()
                };
                assert!(
                    patch.recent_turns.len() >= open.min(1)
                        && patch.recent_turns.len() <= open.max(2)
                );
            }
            if let [(only, _)] = &self.processes[..] {
                // Whatever was done to it: each move begins where the one before it ended, and all
                // is well in the end.
                let last = || {
                    only.moves(&identity, Health::Healthy)
                        .last()
                        .map_or(Health::Healthy, |(last, _)| *last)
                };
                eventually("the last move to be told", async || {
                    last() == Health::Healthy
                })
                .await;
            }
        }
        for (process, memory) in &self.processes {
            assert_eq!(process.dropped(), [], "nothing was dropped");
            memory.close(STUCK).await;
            eventually("its requests to end", async || {
                process.summarizer.running() == 0
            })
            .await;
            assert_eq!(
                process.summarizer.overlaps(),
                0,
                "one attempt of a conversation at a time"
            );
        }
    }
}

/// Numbers that look random and are the same each time (`SplitMix64`).
pub(crate) fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::from_fn(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((z ^ (z >> 31)) >> 8)
    })
}

/// Removes the conversations of the walks, and waits until no worker is left on them.
async fn clear(s: &Fixture) {
    let memory = s.open();
    for conversation in 0..3 {
        memory.forget(&name(conversation)).await.unwrap();
    }
    memory.close(STUCK).await;
}

pub(super) async fn any_operations_in_any_order_lose_nothing(s: Fixture) {
    for seed in 0..2 {
        clear(&s).await;
        walk(&s, 1, &numbers(seed).take(60).collect::<Vec<_>>()).await;
    }
}

pub(super) async fn any_operations_of_two_processes_lose_nothing(s: Fixture) {
    for seed in 100..102 {
        clear(&s).await;
        walk(&s, 2, &numbers(seed).take(60).collect::<Vec<_>>()).await;
    }
}
