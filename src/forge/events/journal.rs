//! Event journal of this work tree: one line per event, with its exact time.
//!
//! A large journal is rotated: it becomes the older one, and a new one begins.

use super::envelope::Envelope;
use crate::error::Result;
use crate::files::Files;
use crate::layout::JOURNAL;

/// The previous journal.
pub(super) const OLDER: &str = ".forge/.local/journal.1.jsonl";
/// Size from which a journal is rotated, in bytes.
const LARGE: u64 = 4 << 20;

/// Lines read from a journal.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) events: Vec<Envelope>,
    /// Number of lines that are not events: torn by a crash, or edited.
    pub(super) damaged: u64,
}

/// Reads the previous journal and the current one, oldest first.
pub(super) fn read(files: &Files) -> Result<Lines> {
    let mut all = parse(&files.read(OLDER)?.unwrap_or_default());
    let newer = parse(&files.read(JOURNAL)?.unwrap_or_default());
    all.events.extend(newer.events);
    all.damaged += newer.damaged;
    Ok(all)
}

/// Returns the last event.
pub(super) fn last(files: &Files) -> Result<Option<Envelope>> {
    for path in [JOURNAL, OLDER] {
        let bytes = files.read(path)?.unwrap_or_default();
        let found = bytes
            .rsplit(|byte| *byte == b'\n')
            .find_map(Envelope::parse);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Adds an event. The caller holds the lock.
pub(super) fn add(files: &Files, line: &str) -> Result<()> {
    if files
        .entry(JOURNAL)?
        .is_some_and(|entry| entry.bytes >= LARGE)
    {
        files.remove(OLDER)?;
        files.rename(JOURNAL, OLDER)?;
    }
    files.append(JOURNAL, line)
}

/// Reads lines of events.
pub(super) fn parse(bytes: &[u8]) -> Lines {
    let mut lines = Lines::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match Envelope::parse(line) {
            Some(event) => lines.events.push(event),
            None if line.trim_ascii().is_empty() => {}
            None => lines.damaged += 1,
        }
    }
    lines
}
