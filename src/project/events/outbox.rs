//! Events that no server has yet, oldest first. Each is written here before it is sent and removed after the server has it, so a process
//! that dies between the two loses none; the server knows it by its id should it come twice.

use std::collections::BTreeSet;
use std::time::Duration;

use helmdeck_events::{Message, Sink, SinkError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::envelope::Envelope;
use super::journal;
use crate::error::Result;
use crate::files::Files;
use crate::layout::EVENTS_OUTBOX;
use crate::world::World;

/// How many events wait at most; then the oldest are dropped, and counted.
pub const MOST_WAITING: usize = 10_000;
/// How long the file gets, in bytes, before the oldest are dropped.
const LARGE: usize = 8 << 20;

/// The events that wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outbox {
    /// How many were dropped since the file began, for want of room or because a line was damaged.
    pub(super) dropped: u64,
    pub(super) waiting: Vec<Envelope>,
}

/// The first line of the file, once an event was dropped.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    dropped: u64,
}

impl Outbox {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let head = bytes.split(|byte| *byte == b'\n').next().and_then(|line| serde_json::from_slice::<Head>(line).ok());
        let lines = journal::parse(bytes);
        // The head is no event, and no damage.
        let damaged = lines.damaged - u64::from(head.is_some());
        Self { dropped: head.map_or(0, |head| head.dropped) + damaged, waiting: lines.events }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if self.dropped > 0 {
            text.push_str(&serde_json::to_string(&Head { dropped: self.dropped }).unwrap_or_default());
            text.push('\n');
        }
        for event in &self.waiting {
            text.push_str(&serde_json::to_string(event).unwrap_or_default());
            text.push('\n');
        }
        text
    }

    /// Drops the oldest events until there is room for one more.
    fn make_room(&mut self, bytes: usize) -> bool {
        let mut bytes = bytes;
        let mut from = 0;
        while self.waiting.len() - from >= MOST_WAITING || (bytes >= LARGE && from < self.waiting.len()) {
            bytes = bytes.saturating_sub(serde_json::to_string(&self.waiting[from]).unwrap_or_default().len() + 1);
            from += 1;
        }
        self.waiting.drain(..from);
        self.dropped += from as u64;
        from > 0
    }
}

pub(super) fn read(files: &Files) -> Result<Outbox> {
    Ok(Outbox::parse(&files.read(EVENTS_OUTBOX)?.unwrap_or_default()))
}

/// Adds an event, under the lock that the caller holds.
pub(super) fn add(files: &Files, line: &str) -> Result<()> {
    let bytes = files.read(EVENTS_OUTBOX)?.unwrap_or_default();
    // Only one that may be full is read in earnest.
    if bytes.len() >= LARGE || bytes.iter().filter(|byte| **byte == b'\n').count() >= MOST_WAITING {
        let mut outbox = Outbox::parse(&bytes);
        if outbox.make_room(bytes.len()) {
            files.write(EVENTS_OUTBOX, outbox.text().as_bytes())?;
        }
    }
    files.append(EVENTS_OUTBOX, line)
}

/// What became of the events that waited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Drained {
    /// How many the server has now.
    pub sent: u64,
    /// How many still wait.
    pub waiting: u64,
    /// How many were dropped since they began to wait.
    pub dropped: u64,
    /// Why the first of those that wait was not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Sends what waits, oldest first, until one fails or the time is up. The lock is not held meanwhile: several may do so at once, and the
/// server has each event once.
pub(super) fn drain(files: &Files, world: &World, sink: &dyn Sink, within: Duration) -> Result<Drained> {
    let began = world.clock.monotonic();
    let guard = files.lock()?;
    let waiting = read(files)?.waiting;
    drop(guard);
    let mut sent = BTreeSet::new();
    let mut error = None;
    for event in &waiting {
        let left = within.saturating_sub(world.clock.monotonic().saturating_sub(began));
        let published = if left.is_zero() { Err(SinkError::Elapsed(within)) } else { sink.publish(&message(event), left) };
        if let Err(why) = published {
            // Those behind it wait for it: they go in order.
            error = Some(why.to_string());
            break;
        }
        sent.insert(event.id);
    }
    let left = remove(files, &sent)?;
    Ok(Drained { sent: sent.len() as u64, waiting: left.waiting.len() as u64, dropped: left.dropped, error })
}

fn message(event: &Envelope) -> Message {
    Message {
        subject: event.subject.clone(),
        id: event.id.to_string(),
        body: serde_json::to_vec(event).unwrap_or_default(),
    }
}

fn remove(files: &Files, sent: &BTreeSet<Uuid>) -> Result<Outbox> {
    let _guard = files.lock()?;
    let mut outbox = read(files)?;
    let before = outbox.waiting.len();
    outbox.waiting.retain(|event| !sent.contains(&event.id));
    if outbox.waiting.len() == before {
        return Ok(outbox);
    }
    if outbox == Outbox::default() {
        files.remove(EVENTS_OUTBOX)?;
    } else {
        files.write(EVENTS_OUTBOX, outbox.text().as_bytes())?;
    }
    Ok(outbox)
}

#[cfg(test)]
mod tests {
    use super::super::envelope::tests::event;
    use super::*;
    use crate::json::Json;

    fn outbox(from: u64, count: u64) -> Outbox {
        Outbox { dropped: 0, waiting: (from..from + count).map(|seq| event(seq, Json::Null)).collect() }
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
    fn a_torn_line_is_counted_and_the_others_are_kept() {
        let text = outbox(1, 3).text();
        let torn = &text[..text.len() - 20];
        assert_eq!(Outbox::parse(torn.as_bytes()), Outbox { dropped: 1, ..outbox(1, 2) });
    }

    #[test]
    fn the_oldest_go_when_ten_thousand_wait() {
        for (waiting, left) in [(9_998, 9_998), (9_999, 9_999), (10_000, 9_999), (10_001, 9_999)] {
            let mut many = outbox(1, waiting);
            assert_eq!(many.make_room(0), left < waiting);
            assert_eq!((many.waiting.len() as u64, many.dropped), (left, waiting - left));
            assert_eq!(many.waiting[0].seq, waiting - left + 1);
        }
    }

    #[test]
    fn the_oldest_go_when_they_take_too_much_room() {
        let mut few = outbox(1, 3);
        let each = few.text().len() / 3;
        assert!(!few.make_room(LARGE - 1));
        assert!(few.make_room(LARGE + each - 1));
        assert_eq!((few.waiting.len(), few.dropped), (2, 1));
    }
}
