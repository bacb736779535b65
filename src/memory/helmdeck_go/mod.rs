//! Imports a database of the Go original of helmdeck. The file is never changed.
//!
//! The original sealed values with the same memory key, but without associated data. Times are text, and caches, facts,
//! notes and audit rows share one key space (table `memory_entries`). What each row becomes:
//!
//! | row of the original | becomes |
//! |---|---|
//! | category `pack_history`, key `pack_history/...` | audit: a page of one row |
//! | category `pipeline_history` or `plan_history`, with such a key | nothing (counted): this audit does not exist here |
//! | category `cache`, key `<pack>/<64 hex digits>`; key `cg:claim:<64 hex digits>` | nothing (counted): the cache here has other keys, so it would never be found |
//! | of a session; category `solve` or none | note |
//! | of a caller, text of 1 byte or more, with a life of 1 hour to 365 days (as the facts API writes them) | fact |
//! | everything else | note |
//!
//! The original joins caller and session with a colon, and a caller's name may hold colons too: see [`Sessions`].

mod file;
mod map;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::sync::mpsc;

use crate::error::StoreError;
use crate::keyring::KeyRing;
use crate::ops::Put;
use crate::restore::{Restored, Restorer, Target};
use file::GoFile;
use map::{Mapped, Namespaces};

/// Parts that may wait for the store, each of at most [`PART_BYTES`] and a value.
const WAITING: usize = 4;
const PART_BYTES: usize = 1 << 20;
const PART: usize = 256;
/// How many bad rows are named; all are counted.
const NAMED: usize = 20;

/// How a namespace `a:b` is read, which may be caller `a` in session `b`, or caller `a:b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sessions {
    /// Splits names where the file proves the split.
    ///
    /// The part before a colon must be a namespace of the file that is proven to be a caller: it has no colon, or it
    /// has audit rows or facts, which the original always gives to the caller. The longest such part wins. A namespace
    /// that has audit rows or facts itself is a caller, and is never split. Unproven names stay whole.
    #[default]
    Proven,
    /// It is split at its last colon, unless it has audit rows or facts.
    Always,
    /// It is never split.
    Never,
}

/// Options of an import.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tenant of all imported entries.
    pub tenant: String,
    /// How to separate sessions from callers.
    pub sessions: Sessions,
}

/// Result of splitting a namespace with a colon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamespaceRead {
    /// The name in the original.
    pub from: String,
    /// The caller.
    pub subject: String,
    /// The session, if it was split.
    pub session: Option<String>,
    /// Why: `proven`, `assumed` (the option says to split) or `whole`.
    pub why: &'static str,
}

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Number of rows in the file.
    pub rows: u64,
    /// Number of rows that become nothing, by type.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Number of rows that do not open or are invalid.
    pub bad: u64,
    /// Some of these rows, by id, and why.
    pub bad_rows: Vec<String>,
    /// Result of splitting each namespace with a colon.
    pub namespaces: Vec<NamespaceRead>,
    /// Results of the other entries.
    #[serde(flatten)]
    pub restored: Restored,
}

/// Errors of an import.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GoError {
    /// The file is not a database of the original.
    #[error("{path}: {reason}")]
    NotOurs {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has rows, and none of them opens.
    #[error("none of the {rows} rows opens with key {given}: it is not the memory key that the file was written with")]
    WrongKey {
        /// The number of rows.
        rows: u64,
        /// The ids of the keys given, current first.
        given: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A part of what was read.
#[derive(Default)]
struct GoBatch {
    rows: u64,
    puts: Vec<Put>,
    bytes: usize,
    skipped: Vec<&'static str>,
    bad: Vec<String>,
}

/// Imports a file. Rows keep their times, and start at version 1.
///
/// A repeated import changes nothing; after new writes by the original it adds the new rows.
///
/// If the file has a log (`-wal`) that no process has open, both are copied into `scratch` and read there. Calls
/// `progress` with the rows read so far, and their total.
///
/// # Errors
/// `NotOurs` and `WrongKey` before anything is written. `Store` later: written rows stay, and the import can be
/// repeated.
pub async fn import(
    path: &Path,
    scratch: &Path,
    target: Target,
    ring: KeyRing,
    options: Options,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Report, GoError> {
    let (path, scratch): (PathBuf, PathBuf) = (path.to_owned(), scratch.to_owned());
    let opening = move || {
        let file = GoFile::open(&path, &scratch)?;
        let rows = file.check_key(&ring)?;
        let namespaces = Namespaces::decide(file.namespaces()?, &options);
        Ok::<_, GoError>((file, rows, namespaces, ring))
    };
    let opened = tokio::task::spawn_blocking(opening).await.map_err(StoreError::unavailable)?;
    let (file, total, namespaces, ring) = opened?;
    let mut report = Report { namespaces: namespaces.with_colon(), ..Report::default() };

    let (parts, mut waiting) = mpsc::channel(WAITING);
    let reading = tokio::task::spawn_blocking(move || read(&file, &ring, &namespaces, &parts));
    let mut restorer = Restorer::new(target);
    let mut end: Result<(), GoError> = Ok(());
    'parts: while let Some(GoBatch { rows, puts, skipped, bad, .. }) = waiting.recv().await {
        report.rows += rows;
        report.bad += bad.len() as u64;
        report.bad_rows.extend(bad.into_iter().take(NAMED - report.bad_rows.len().min(NAMED)));
        for what in skipped {
            *report.skipped.entry(what).or_default() += 1;
        }
        for put in puts {
            if let Err(error) = restorer.take(put).await {
                end = Err(error.into());
                break 'parts;
            }
        }
        progress(report.rows, total);
    }
    drop(waiting);
    let read = reading.await.map_err(StoreError::unavailable);
    let (restored, written) = restorer.finish().await;
    report.restored = restored;
    end.and(written.map_err(GoError::from)).and(read.map_err(GoError::from).flatten()).map(|()| report)
}

fn read(file: &GoFile, ring: &KeyRing, namespaces: &Namespaces, parts: &mpsc::Sender<GoBatch>) -> Result<(), GoError> {
    let mut part = GoBatch::default();
    file.each(|id, row| {
        part.rows += 1;
        match row.and_then(|row| map::row(row, ring, namespaces)) {
            Ok(Mapped::Put(put)) => {
                part.bytes += put.value.len();
                part.puts.push(*put);
            }
            Ok(Mapped::Nothing(what)) => part.skipped.push(what),
            Err(why) => part.bad.push(format!("{id}: {why}")),
        }
        if part.rows < PART as u64 && part.bytes < PART_BYTES {
            return true;
        }
        parts.blocking_send(std::mem::take(&mut part)).is_ok()
    })?;
    // The receiver is gone if the store failed, which is reported elsewhere.
    let _ = parts.blocking_send(part);
    Ok(())
}
