//! Outbox: events that the server does not have yet, oldest first.
//!
//! An event is written here before it is sent, and removed after the server has it. A process that
//! dies in between loses none. If an event is sent twice, the server recognises its id.

use std::collections::HashSet;
use std::time::Duration;

use helmdeck_events::{Message, Sink, SinkError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::envelope::Envelope;
use super::journal;
use crate::environment::ProjectEnvironment;
use crate::error::Result;
use crate::files::Files;
use crate::layout::EVENTS_OUTBOX;

/// Maximum number of waiting events. Beyond it the oldest are dropped, and counted.
pub const MOST_WAITING: usize = 10_000;
/// Size of the file, in bytes, from which the oldest events are dropped.
const LARGE: usize = 8 << 20;

/// The waiting events: lines that are parsed when they are sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outbox {
    /// Number of events dropped since the file began, because it was full or a line was damaged.
    pub(super) dropped: u64,
    pub(super) waiting: Vec<String>,
}

/// First line of the file, once an event was dropped.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    dropped: u64,
}

impl Outbox {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .peekable();
        let head = lines.next_if(|line| serde_json::from_str::<Head>(line).is_ok());
        let dropped = head
            .and_then(|line| serde_json::from_str(line).ok())
            .map_or(0, |head: Head| head.dropped);
        Self {
            dropped,
            waiting: lines.map(ToOwned::to_owned).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.dropped > 0 {
            text.push_str(
                &serde_json::to_string(&Head {
                    dropped: self.dropped,
                })
                .unwrap_or_default(),
            );
            text.push('\n');
        }
        for line in &self.waiting {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Drops the oldest events until one more fits. Returns whether it dropped any.
    fn make_room(&mut self) -> bool {
        let mut bytes: usize = self.waiting.iter().map(|line| line.len() + 1).sum();
        let mut first = 0;
        while self.waiting.len() - first >= MOST_WAITING
            || (bytes >= LARGE && first < self.waiting.len())
        {
            bytes -= self.waiting[first].len() + 1;
            first += 1;
        }
        self.waiting.drain(..first);
        self.dropped += first as u64;
        first > 0
    }
}

pub(super) fn read(files: &Files) -> Result<Outbox> {
    Ok(Outbox::parse(
        &files.read(EVENTS_OUTBOX)?.unwrap_or_default(),
    ))
}

/// Adds an event. The caller holds the lock.
pub(super) fn add(files: &Files, line: &str) -> Result<()> {
    let mut outbox = read(files)?;
    if outbox.make_room() {
        write(files, &outbox)?;
    }
    files.append(EVENTS_OUTBOX, line)
}

/// Adds the last event to the journal if its writer died before it did so.
///
/// The caller holds the lock. Returns the last event of the journal. Every event that is sent is in
/// the journal first.
pub(super) fn catch_up(files: &Files) -> Result<Option<Envelope>> {
    let last = journal::last(files)?;
    let outbox = read(files)?;
    let Some(line) = outbox.waiting.last() else {
        return Ok(last);
    };
    match Envelope::parse(line.as_bytes()) {
        Some(newer) if last.as_ref().is_none_or(|last| last.seq < newer.seq) => {
            journal::add(files, line)?;
            Ok(Some(newer))
        }
        _ => Ok(last),
    }
}

/// Result of sending the waiting events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Drained {
    /// Number of events sent.
    pub sent: u64,
    /// Number of events that still wait.
    pub waiting: u64,
    /// Number of events dropped since the outbox began.
    pub dropped: u64,
    /// Why the first event that still waits was not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Sends the waiting events, oldest first, until the server fails or the time is up.
///
/// An event that the server refuses stays in the outbox and does not hold up the events behind it.
/// The lock is not held meanwhile: several processes may send at once, and the server keeps each
/// event once. The second value says whether the server did not answer within the time limit.
pub(super) fn drain(
    files: &Files,
    environment: &ProjectEnvironment,
    sink: &dyn Sink,
    within: Duration,
    refusals: usize,
) -> Result<(Drained, bool)> {
    let began = environment.clock.monotonic();
    let guard = files.lock()?;
    catch_up(files)?;
    let outbox = read(files)?;
    drop(guard);
    let (mut sent, mut damaged) = (HashSet::new(), HashSet::new());
    let (mut error, mut refused, mut waited) = (None, 0, false);
    for line in &outbox.waiting {
        let Some(event) = Envelope::parse(line.as_bytes()) else {
            damaged.insert(line.as_str());
            continue;
        };
        let message = Message {
            subject: event.subject,
            id: event.id.to_string(),
            body: line.clone().into_bytes(),
        };
        let left = within.saturating_sub(environment.clock.monotonic().saturating_sub(began));
        let published = if left.is_zero() {
            Err(SinkError::Elapsed(within))
        } else {
            sink.publish(&message, left)
        };
        match published {
            Ok(_) => {
                sent.insert(line.as_str());
            }
            Err(why) => {
                error.get_or_insert_with(|| why.to_string());
                refused += 1;
                if !matches!(why, SinkError::Refused(_)) || refused == refusals {
                    // The events behind it wait too, because events are sent in order.
                    waited = matches!(why, SinkError::Elapsed(_));
                    break;
                }
            }
        }
    }
    let left = remove(files, outbox.clone(), &sent, &damaged)?;
    let drained = Drained {
        sent: sent.len() as u64,
        waiting: left.waiting.len() as u64,
        dropped: left.dropped,
        error,
    };
    Ok((drained, waited))
}

/// Removes lines, even if the file changed meanwhile.
fn remove(
    files: &Files,
    read_before: Outbox,
    sent: &HashSet<&str>,
    damaged: &HashSet<&str>,
) -> Result<Outbox> {
    if sent.is_empty() && damaged.is_empty() {
        return Ok(read_before);
    }
    let _guard = files.lock()?;
    let bytes = files.read(EVENTS_OUTBOX)?.unwrap_or_default();
    let mut outbox = Outbox::parse(&bytes);
    if outbox
        .waiting
        .iter()
        .any(|line| damaged.contains(line.as_str()))
    {
        files.quarantine(EVENTS_OUTBOX, &bytes)?;
    }
    let before = outbox.waiting.len();
    let mut gone = 0;
    outbox.waiting.retain(|line| {
        let damaged = damaged.contains(line.as_str());
        gone += u64::from(damaged);
        !damaged && !sent.contains(line.as_str())
    });
    outbox.dropped += gone;
    if outbox == Outbox::default() {
        files.remove(EVENTS_OUTBOX)?;
    } else if outbox.waiting.len() < before {
        write(files, &outbox)?;
    }
    Ok(outbox)
}

/// Writes the outbox. Each line was scanned for secrets before it was added.
fn write(files: &Files, outbox: &Outbox) -> Result<()> {
    files.put(EVENTS_OUTBOX, outbox.text().as_bytes(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(from: u64, to: u64) -> Outbox {
        Outbox {
            dropped: 0,
            waiting: (from..=to)
                .map(|seq| format!("{{\"seq\":{seq}}}"))
                .collect(),
        }
    }

    #[test]
    fn what_waits_is_read_as_it_was_written() {
        let mut some = outbox(1, 3);
        assert_eq!(Outbox::parse(some.text().as_bytes()), some);
        some.dropped = 7;
        assert!(some.text().starts_with("{\"dropped\":7}\n"));
        assert_eq!(Outbox::parse(some.text().as_bytes()), some);
        assert_eq!(Outbox::parse(b""), Outbox::default());
    }

    #[test]
    fn the_oldest_go_when_ten_thousand_wait() {
        for (waiting, left) in [
            (9_998, 9_998),
            (9_999, 9_999),
            (10_000, 9_999),
            (10_001, 9_999),
        ] {
            let mut many = outbox(1, waiting);
            assert_eq!(many.make_room(), left < waiting);
            assert_eq!(
                many,
                Outbox {
                    dropped: waiting - left,
                    ..outbox(waiting - left + 1, waiting)
                }
            );
        }
    }

    #[test]
    fn the_oldest_go_when_they_take_too_much_room() {
        let line = "x".repeat((64 << 10) - 1);
        for (waiting, left) in [(127, 127), (128, 127), (130, 127)] {
            let mut few = Outbox {
                dropped: 1,
                waiting: vec![line.clone(); waiting],
            };
            few.make_room();
            assert_eq!(
                (few.waiting.len(), few.dropped),
                (left, 1 + (waiting - left) as u64)
            );
        }
    }
}
