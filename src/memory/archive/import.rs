//! Import of an archive into a store.
//!
//! Verified entries are written while the rest is read. A repeated import changes nothing.

use std::io::{BufReader, Read};

use serde::Serialize;
use tokio::sync::mpsc;

use super::format::{ArchiveRecord, Reader};
use super::{ArchiveError, ArchiveFilter};
use crate::error::StoreError;
use crate::keyring::KeyRing;
use crate::ops::Put;
use crate::restore::{Restored, Restorer, Target};

/// Entries that may wait for the store, in parts of [`PART_BYTES`].
const WAITING: usize = 4;
/// A part is handed over from this size on.
const PART_BYTES: usize = 1 << 20;
/// A part is handed over from this many entries on.
const PART: usize = 256;

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The archive's id.
    pub archive: String,
    /// Number of records read.
    pub read: u64,
    /// Number of entries outside the selection.
    pub filtered: u64,
    /// Number of records that do not open.
    pub unreadable: u64,
    /// Results of the other entries.
    #[serde(flatten)]
    pub restored: Restored,
}

/// A part of what was read.
#[derive(Default)]
struct ArchiveBatch {
    archive: String,
    puts: Vec<Put>,
    bytes: usize,
    unreadable: u64,
}

impl ArchiveBatch {
    const fn is_full(&self) -> bool {
        self.puts.len() >= PART || self.bytes >= PART_BYTES
    }
}

/// Reads an archive on a separate thread, and writes the selected entries.
///
/// They keep their times and versions. Calls `progress` with the number of records so far.
///
/// The report is correct even if the archive is damaged or incomplete, or if the store fails
/// meanwhile.
pub async fn import<R: Read + Send + 'static>(
    target: Target,
    ring: KeyRing,
    filter: &ArchiveFilter,
    input: R,
    progress: &mut (dyn FnMut(u64) + Send),
) -> (Imported, Result<(), ArchiveError>) {
    let (parts, mut waiting) = mpsc::channel(WAITING);
    let reading = tokio::task::spawn_blocking(move || read(input, ring, &parts));
    let mut restorer = Restorer::new(target);
    let mut done = Imported::default();
    let mut end = Ok(());
    'parts: while let Some(part) = waiting.recv().await {
        let ArchiveBatch {
            archive,
            puts,
            unreadable,
            ..
        } = part;
        done.archive = archive;
        done.unreadable += unreadable;
        done.read += unreadable + puts.len() as u64;
        for put in puts {
            if !filter.takes(&put.namespace, put.kind) {
                done.filtered += 1;
            } else if let Err(error) = restorer.take(put).await {
                end = Err(error.into());
                break 'parts;
            }
        }
        progress(done.read);
    }
    // The reader stops when its receiver is dropped.
    drop(waiting);
    let read = reading.await.map_err(StoreError::unavailable);
    let (restored, written) = restorer.finish().await;
    done.restored = restored;
    let end = end
        .and(written.map_err(ArchiveError::from))
        .and(read.map_err(ArchiveError::from).flatten());
    let damaged =
        || ArchiveError::Damaged(format!("{} of its records do not open", done.unreadable));
    let end = if end.is_ok() && done.unreadable > 0 {
        Err(damaged())
    } else {
        end
    };
    (done, end)
}

fn read<R: Read>(
    input: R,
    ring: KeyRing,
    parts: &mpsc::Sender<ArchiveBatch>,
) -> Result<(), ArchiveError> {
    let mut reader = Reader::new(BufReader::with_capacity(1 << 16, input), ring)?;
    let archive = reader.id();
    let mut part = ArchiveBatch {
        archive: archive.clone(),
        ..ArchiveBatch::default()
    };
    loop {
        let found = reader.next();
        let ended = !matches!(
            found,
            Ok(ArchiveRecord::Entry(_) | ArchiveRecord::Unreadable)
        );
        let end = match found {
            Ok(ArchiveRecord::Entry(put)) => {
                part.bytes += put.value.len() + put.key.len();
                part.puts.push(*put);
                Ok(())
            }
            Ok(ArchiveRecord::Unreadable) => {
                part.unreadable += 1;
                Ok(())
            }
            Ok(ArchiveRecord::End) => Ok(()),
            Err(error) => Err(error),
        };
        if ended || part.is_full() {
            let full = std::mem::replace(
                &mut part,
                ArchiveBatch {
                    archive: archive.clone(),
                    ..ArchiveBatch::default()
                },
            );
            if parts.blocking_send(full).is_err() {
                return Ok(());
            }
        }
        if ended {
            return end;
        }
    }
}
