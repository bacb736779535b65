//! Statistics of calls by pack, for the last hour, day and week.
//!
//! A timer reads counters that calls keep anyway and adds what is new to three rings of slots: a
//! call pays nothing. The rings are bounded, and stored in the system database if it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheStatus, Clock, Identity, PackName, Result, Timestamp};
use helmdeck_system::System;
use helmdeck_system::statistics::Statistic;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::durations::{BUCKETS, quantile};
use crate::engine::{Engine, Inner};
use crate::jobs::{Job, JobId, JobProgress};
use crate::tail::Tail;

/// How often the counters are read.
const READ_EVERY: Duration = Duration::from_secs(10);
/// How many readings are written at once.
const WRITE_EVERY: u32 = 6;
/// Limit of packs in a slot; the others are counted together.
const PACKS: usize = 64;
/// Name of the packs above the limit. No pack can have it.
const OTHERS: &str = "(others)";

/// Time that statistics are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// The last hour, by minutes.
    Hour,
    /// The last day, by quarters of an hour.
    Day,
    /// The last week, by hours.
    Week,
}

impl Window {
    /// Every window.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// Length of a slot, in seconds.
    #[must_use]
    pub const fn slot_seconds(self) -> u32 {
        match self {
            Self::Hour => 60,
            Self::Day => 900,
            Self::Week => 3_600,
        }
    }

    /// Number of slots.
    #[must_use]
    pub const fn slots(self) -> i64 {
        match self {
            Self::Hour => 60,
            Self::Day => 96,
            Self::Week => 168,
        }
    }

    /// Returns the number of the slot of a time.
    const fn slot(self, at: Timestamp) -> i64 {
        at.micros()
            .div_euclid(self.slot_seconds() as i64 * 1_000_000)
    }
}

/// What was counted of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    /// Calls that ended.
    pub calls: u64,
    /// Those that failed.
    pub errors: u64,
    /// Answers of cached packs, in the order of [`CacheStatus::ALL`].
    pub answers: [u64; CacheStatus::ALL.len()],
    /// Runs of handlers that the cache saved.
    pub saved_calls: u64,
    /// Time that it saved, in microseconds.
    pub saved_us: u64,
    /// Calls of other services that it saved.
    pub saved_upstream_calls: u64,
    /// Calls by how long they took.
    pub(crate) durations: [u64; BUCKETS],
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            calls: 0,
            errors: 0,
            answers: [0; CacheStatus::ALL.len()],
            saved_calls: 0,
            saved_us: 0,
            saved_upstream_calls: 0,
            durations: [0; BUCKETS],
        }
    }
}

impl Numbers {
    /// Returns the answers of one cache status.
    #[must_use]
    pub const fn answered(&self, status: CacheStatus) -> u64 {
        self.answers[status as usize]
    }

    /// Returns the time within which a share (0 to 1) of the calls ended; `None` without calls.
    ///
    /// In microseconds, and estimated from a histogram, whose bounds are 44 % apart.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        quantile(&self.durations, share)
    }

    /// Adds other numbers to these.
    pub fn add(&mut self, other: &Self) {
        self.each(other, |number, other| *number += other);
    }

    /// Returns what was counted since `earlier`.
    fn since(&self, earlier: &Self) -> Self {
        let mut numbers = self.clone();
        numbers.each(earlier, |number, earlier| {
            *number = number.saturating_sub(earlier)
        });
        numbers
    }

    /// Changes each number by the same one of `other`.
    fn each(&mut self, other: &Self, change: impl Fn(&mut u64, u64)) {
        change(&mut self.calls, other.calls);
        change(&mut self.errors, other.errors);
        change(&mut self.saved_calls, other.saved_calls);
        change(&mut self.saved_us, other.saved_us);
        change(&mut self.saved_upstream_calls, other.saved_upstream_calls);
        let lists = self.answers.iter_mut().chain(&mut self.durations);
        for (number, other) in lists.zip(other.answers.iter().chain(&other.durations)) {
            change(number, *other);
        }
    }

    fn is_empty(&self) -> bool {
        self.named().next().is_none()
    }

    /// Returns the numbers by name, without zeros.
    fn named(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let plain = [
            ("calls", self.calls),
            ("errors", self.errors),
            ("saved_calls", self.saved_calls),
            ("saved_us", self.saved_us),
            ("saved_upstream_calls", self.saved_upstream_calls),
        ];
        let answers = CacheStatus::ALL
            .into_iter()
            .map(|status| (status.as_str().to_owned(), self.answered(status)));
        let durations = self
            .durations
            .iter()
            .enumerate()
            .map(|(index, count)| (format!("le_{index}"), *count));
        let plain = plain
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        plain
            .chain(answers)
            .chain(durations)
            .filter(|(_, value)| *value > 0)
    }

    /// Returns the number with a name; `None` for a name of another version.
    fn number(&mut self, name: &str) -> Option<&mut u64> {
        match name {
            "calls" => Some(&mut self.calls),
            "errors" => Some(&mut self.errors),
            "saved_calls" => Some(&mut self.saved_calls),
            "saved_us" => Some(&mut self.saved_us),
            "saved_upstream_calls" => Some(&mut self.saved_upstream_calls),
            _ => match name.strip_prefix("le_") {
                Some(index) => self.durations.get_mut(index.parse::<usize>().ok()?),
                None => {
                    let status = CacheStatus::ALL
                        .into_iter()
                        .find(|status| status.as_str() == name)?;
                    self.answers.get_mut(status as usize)
                }
            },
        }
    }
}

/// Numbers of a slot.
#[derive(Debug, Clone)]
pub struct StatisticsSlot {
    /// Its start.
    pub start: Timestamp,
    /// The numbers of all packs that were asked for.
    pub numbers: Numbers,
}

/// Statistics of a window.
#[derive(Debug, Clone)]
pub struct Report {
    /// Every slot, oldest first, also those without calls.
    pub slots: Vec<StatisticsSlot>,
    /// The numbers of each pack in the whole window, most calls first.
    pub packs: Vec<(String, Numbers)>,
    /// The numbers of all packs that were asked for.
    pub total: Numbers,
}

/// Key of a row: length of a slot in seconds, its number, the pack.
type Key = (u32, i64, String);

/// Statistics of one process, with what earlier ones stored.
pub struct Statistics {
    system: Option<System>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Number of readings.
    read: watch::Sender<u64>,
}

helmdeck_core::redacted_debug!(Statistics);

#[derive(Default)]
struct State {
    /// The counters when they were last read.
    last: BTreeMap<String, Numbers>,
    rows: BTreeMap<Key, Numbers>,
    /// What is not stored yet.
    unsaved: BTreeMap<Key, Numbers>,
    loaded: bool,
}

impl Statistics {
    pub(crate) fn new(system: Option<System>, clock: Arc<dyn Clock>) -> Self {
        Self {
            system,
            clock,
            state: Mutex::default(),
            read: watch::Sender::new(0),
        }
    }

    /// Returns a receiver that is notified when numbers were read.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.read.subscribe()
    }

    /// Returns the statistics of a window, of the packs that match.
    #[must_use]
    pub fn report(&self, window: Window, matches: impl Fn(&str) -> bool) -> Report {
        let now = window.slot(self.clock.now());
        let first = now - window.slots() + 1;
        let seconds = window.slot_seconds();
        let start = |slot: i64| Timestamp(slot.saturating_mul(i64::from(seconds) * 1_000_000));
        let mut slots: Vec<StatisticsSlot> = (first..=now)
            .map(|slot| StatisticsSlot {
                start: start(slot),
                numbers: Numbers::default(),
            })
            .collect();
        let (mut packs, mut total) = (BTreeMap::<String, Numbers>::new(), Numbers::default());
        let state = self.state.lock();
        let rows = state
            .rows
            .range((seconds, first, String::new())..(seconds, now + 1, String::new()));
        for ((_, slot, pack), numbers) in rows.filter(|((.., pack), _)| matches(pack)) {
            if let Some(found) = usize::try_from(slot - first)
                .ok()
                .and_then(|index| slots.get_mut(index))
            {
                found.numbers.add(numbers);
            }
            packs.entry(pack.clone()).or_default().add(numbers);
            total.add(numbers);
        }
        drop(state);
        let mut packs: Vec<_> = packs.into_iter().collect();
        packs.sort_by_key(|(_, pack)| std::cmp::Reverse(pack.calls));
        Report {
            slots,
            packs,
            total,
        }
    }

    /// Adds what was counted since the last reading.
    ///
    /// `counted` has the numbers of each pack since the start.
    pub(crate) fn add(&self, counted: Vec<(String, Numbers)>) {
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        let mut new: Vec<(String, Numbers)> = Vec::new();
        for (pack, numbers) in counted {
            let fresh = state
                .last
                .get(&pack)
                .map_or_else(|| numbers.clone(), |last| numbers.since(last));
            if !fresh.is_empty() {
                state.last.insert(pack.clone(), numbers);
                new.push((pack, fresh));
            }
        }
        for window in Window::ALL {
            let (seconds, slot) = (window.slot_seconds(), window.slot(now));
            let known: BTreeSet<&String> = state
                .rows
                .range((seconds, slot, String::new())..(seconds, slot + 1, String::new()))
                .map(|((.., pack), _)| pack)
                .collect();
            let mut places = PACKS.saturating_sub(known.len());
            let mut targets = Vec::with_capacity(new.len());
            for (pack, _) in &new {
                let named = known.contains(pack) || places > 0;
                places -= usize::from(named && !known.contains(pack));
                targets.push(if named {
                    pack.clone()
                } else {
                    OTHERS.to_owned()
                });
            }
            for (target, (_, numbers)) in targets.into_iter().zip(&new) {
                let key = (seconds, slot, target);
                state.rows.entry(key.clone()).or_default().add(numbers);
                state.unsaved.entry(key).or_default().add(numbers);
            }
        }
        state
            .rows
            .retain(|(seconds, slot, _), _| is_kept(*seconds, *slot, now));
        self.read.send_modify(|count| *count += 1);
    }

    /// Reads what earlier processes stored. A failure costs their numbers.
    async fn load(&self) {
        let Some(system) = &self.system else { return };
        let stored = match system.statistics().await {
            Ok(stored) => stored,
            Err(error) => return tracing::debug!(%error, "the stored statistics cannot be read"),
        };
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        if std::mem::replace(&mut state.loaded, true) {
            return;
        }
        for Statistic {
            seconds,
            slot,
            pack,
            name,
            value,
        } in stored
        {
            if is_kept(seconds, slot, now)
                && let Some(number) = state
                    .rows
                    .entry((seconds, slot, pack))
                    .or_default()
                    .number(&name)
            {
                *number += value;
            }
        }
    }

    /// Stores what is new. A failure is repaired by the next time.
    pub(crate) async fn save(&self) {
        let Some(system) = &self.system else { return };
        let unsaved = std::mem::take(&mut self.state.lock().unsaved);
        if unsaved.is_empty() {
            return;
        }
        let rows = unsaved.iter().flat_map(|((seconds, slot, pack), numbers)| {
            let row = |(name, value)| Statistic {
                seconds: *seconds,
                slot: *slot,
                pack: pack.clone(),
                name,
                value,
            };
            numbers.named().map(row)
        });
        let (rows, now) = (rows.collect(), self.clock.now());
        let oldest = Window::ALL
            .map(|window| (window.slot_seconds(), window.slot(now) - window.slots() + 1));
        if let Err(error) = system.add_statistics(rows, oldest.to_vec()).await {
            tracing::debug!(%error, "statistics could not be stored; they are stored later");
            let state = &mut *self.state.lock();
            for (key, numbers) in unsaved
                .into_iter()
                .filter(|((seconds, slot, _), _)| is_kept(*seconds, *slot, now))
            {
                state.unsaved.entry(key).or_default().add(&numbers);
            }
        }
    }

    fn is_started(&self) -> bool {
        self.state.lock().loaded
    }
}

impl Inner {
    /// Returns what each pack counted since the start.
    fn counted(&self) -> Vec<(String, Numbers)> {
        let saved = self
            .memory
            .as_ref()
            .map(|memory| memory.hub.counters.savings())
            .unwrap_or_default();
        let mut saved: BTreeMap<_, _> = saved.into_iter().collect();
        let with_savings = |(pack, mut numbers): (PackName, Numbers)| {
            let pack = pack.to_string();
            if let Some([calls, micros, upstream]) = saved.remove(&pack) {
                (
                    numbers.saved_calls,
                    numbers.saved_us,
                    numbers.saved_upstream_calls,
                ) = (calls, micros, upstream);
            }
            (pack, numbers)
        };
        self.metrics
            .counted()
            .into_iter()
            .map(with_savings)
            .collect()
    }

    /// Stores the statistics of a server that ends.
    pub(crate) async fn end_statistics(&self) {
        if self.statistics.is_started() {
            self.statistics.add(self.counted());
            let _ =
                tokio::time::timeout(self.config.cache.write_budget, self.statistics.save()).await;
        }
    }
}

impl Engine {
    /// Returns the statistics of calls.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.0.statistics
    }

    /// Adds what was counted since the last reading to the statistics. A started engine does it by
    /// itself.
    pub fn read_statistics(&self) {
        self.0.statistics.add(self.0.counted());
    }

    /// Reads the counters every ten seconds, and stores the statistics every minute.
    ///
    /// Call it once. It continues what earlier processes stored, and ends with
    /// [`Engine::shutdown`].
    pub fn start_statistics(&self) {
        let (inner, statistics) = (Arc::downgrade(&self.0), Arc::clone(&self.0.statistics));
        tokio::spawn(self.0.stop.clone().run_until_cancelled_owned(async move {
            statistics.load().await;
            loop {
                for _ in 0..WRITE_EVERY {
                    tokio::time::sleep(READ_EVERY).await;
                    let Some(inner) = inner.upgrade() else { return };
                    statistics.add(inner.counted());
                }
                statistics.save().await;
            }
        }));
    }

    /// Returns the progress reports of a job that are kept, oldest first.
    ///
    /// Of a job that runs in this process these are the last 256.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn job_reports(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
    ) -> Result<Vec<JobProgress>> {
        self.0.jobs.reports(owner, id).await
    }

    /// Returns the newest changes of jobs of this process, of every caller.
    #[must_use]
    pub fn job_changes(&self) -> &Arc<Tail<Arc<Job>>> {
        &self.0.jobs.changes
    }
}

fn is_kept(seconds: u32, slot: i64, now: Timestamp) -> bool {
    let window = Window::ALL
        .into_iter()
        .find(|window| window.slot_seconds() == seconds);
    window.is_some_and(|window| slot > window.slot(now) - window.slots())
}

#[cfg(test)]
mod tests;
