//! Replay of events, from the journal and from a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use helmdeck_events::Stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::envelope::Envelope;
use super::subjects::Subject;
use super::{Events, journal, outbox};
use crate::error::{Category, Error, Result};
use crate::time::Time;

/// Number of messages per request.
const PAGE: usize = 1_000;

/// Filter of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Replay {
    /// Only events after this sequence number; 0, the default, = from the oldest that is kept.
    pub after: u64,
    /// Only events at or after this time.
    pub since: Option<Time>,
    /// Only events with these subjects; none, the default, = all subjects.
    pub about: Vec<Subject>,
    /// Only events of this session.
    pub session: Option<String>,
    /// Maximum number of results, the newest; all by default.
    pub last: Option<usize>,
}

/// A gap in the sequence of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Gap {
    /// The work tree of the missing events.
    pub worktree: String,
    /// The sequence number of the first missing event.
    pub from: u64,
    /// The sequence number of the last missing event.
    pub to: u64,
}

/// Replayed events, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Replayed {
    /// The events.
    pub events: Vec<Envelope>,
    /// The gaps between them.
    pub gaps: Vec<Gap>,
    /// Number of lines or messages that are not events.
    pub damaged: u64,
}

impl Events<'_> {
    /// Replays the journal, which keeps some 4 to 8 MiB of events.
    ///
    /// # Errors
    /// `Corrupt` (`E_TOO_LARGE`) or `Failed` if it cannot be read. A line that is not an event is
    /// only counted.
    pub fn replay(&self, replay: &Replay) -> Result<Replayed> {
        let lines = journal::read(self.project.files())?;
        Ok(replay.of(lines.events, lines.damaged))
    }

    /// Replays the server's events of this repository, from all its work trees and clones.
    ///
    /// They include events that the journal here never had, or no longer has.
    ///
    /// # Errors
    /// `NotFound` (`E_NO_SERVER`) without a server; `Failed` (`E_NOT_BUILT`) if this program cannot
    /// reach servers; `Refused` (`E_UNTRUSTED`) if the clone is not trusted; `Failed` (`E_SERVER`)
    /// if it is unreachable, or cannot be read within the time.
    pub fn replay_stored(&self, replay: &Replay, within: Duration) -> Result<Replayed> {
        self.replay_pages(replay, within, PAGE)
    }

    pub(super) fn replay_pages(
        &self,
        replay: &Replay,
        within: Duration,
        page: usize,
    ) -> Result<Replayed> {
        let sink = self.sink()?;
        let repo = self
            .project
            .git()
            .ok()
            .and_then(|git| git.root_commit().ok().flatten());
        let mut all = Vec::new();
        let mut from = 1;
        loop {
            let stored = sink
                .stored(from, page, within)
                .map_err(|error| Error::new(Category::Failed, "E_SERVER", error.to_string()))?;
            let (count, last) = (stored.len(), stored.last().map(|stored| stored.sequence));
            all.extend(stored);
            match last {
                Some(last) if count == page => from = last + 1,
                _ => break,
            }
        }
        let is_own = |event: &Envelope| {
            repo.as_ref()
                .is_none_or(|repo| event.repo.as_deref() == Some(repo.as_str()))
        };
        Ok(replay.read(&all, is_own))
    }

    /// Returns the number of events that wait for the event server.
    ///
    /// # Errors
    /// `Failed` if the outbox cannot be read.
    pub fn waiting(&self) -> Result<u64> {
        Ok(outbox::read(self.project.files())?.waiting.len() as u64)
    }
}

impl Replay {
    /// Parses stored messages: events of any work tree and repository, without duplicates.
    #[must_use]
    pub fn stored(&self, stored: &[Stored]) -> Replayed {
        self.read(stored, |_| true)
    }

    fn read(&self, stored: &[Stored], wanted: impl Fn(&Envelope) -> bool) -> Replayed {
        let all: Vec<Envelope> = stored
            .iter()
            .filter_map(|stored| Envelope::parse(&stored.message.body))
            .collect();
        let damaged = (stored.len() - all.len()) as u64;
        self.of(all.into_iter().filter(wanted).collect(), damaged)
    }

    fn of(&self, all: Vec<Envelope>, damaged: u64) -> Replayed {
        let mut seen = BTreeSet::new();
        let mut events: Vec<_> = all
            .into_iter()
            .filter(|event| seen.insert(event.id))
            .collect();
        let gaps = gaps(&events)
            .into_iter()
            .filter(|gap| gap.to > self.after)
            .collect();
        events.retain(|event| self.takes(event));
        if let Some(last) = self.last {
            events.drain(..events.len().saturating_sub(last));
        }
        Replayed {
            events,
            gaps,
            damaged,
        }
    }

    fn takes(&self, event: &Envelope) -> bool {
        event.seq > self.after
            && self.since.is_none_or(|since| event.ts >= since)
            && (self.about.is_empty()
                || event
                    .about()
                    .is_some_and(|about| self.about.contains(&about)))
            && (self.session.is_none() || event.session == self.session)
    }
}

/// Finds the gaps between the first and the last event of each work tree.
fn gaps(events: &[Envelope]) -> Vec<Gap> {
    let mut places: BTreeMap<(&Option<String>, &str), BTreeSet<u64>> = BTreeMap::new();
    for event in events {
        places
            .entry((&event.repo, &event.worktree))
            .or_default()
            .insert(event.seq);
    }
    let mut gaps = Vec::new();
    for ((_, worktree), places) in places {
        for (before, after) in places.iter().zip(places.iter().skip(1)) {
            if before + 1 < *after {
                gaps.push(Gap {
                    worktree: worktree.to_owned(),
                    from: before + 1,
                    to: after - 1,
                });
            }
        }
    }
    gaps
}
