//! Export of a store into an archive. Writers continue meanwhile: each entry is as the walk found
//! it.

use std::io::{BufWriter, Write};

use helmdeck_core::Clock;
use serde::Serialize;
use tokio::sync::mpsc;

use super::format::Writer;
use super::{ArchiveError, ArchiveFilter};
use crate::entry::Entry;
use crate::error::StoreError;
use crate::keyring::KeyRing;
use crate::store::ReadStore;

/// Limit of rows per part of the walk.
const PART: usize = 500;
/// Parts that may wait for the file; the walk bounds each at about 8 MiB.
const WAITING: usize = 2;

/// Result of an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Number of entries written.
    pub exported: u64,
    /// Number of expired rows, which are left out.
    pub expired: u64,
    /// Number of rows that do not open, which are left out.
    pub unreadable: u64,
}

/// Writes the selected live entries to `out` on a separate thread, and returns `out`, flushed.
///
/// Calls `progress` with the number written so far.
///
/// # Errors
/// See [`ArchiveError`]; the content of `out` is then incomplete.
pub async fn export<W: Write + Send + 'static>(
    store: &dyn ReadStore,
    ring: KeyRing,
    filter: &ArchiveFilter,
    out: W,
    clock: &dyn Clock,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(Exported, W), ArchiveError> {
    let (parts, mut waiting) = mpsc::channel::<Vec<Entry>>(WAITING);
    let writing = tokio::task::spawn_blocking(move || {
        let mut writer = Writer::new(BufWriter::with_capacity(1 << 16, out), ring)?;
        while let Some(part) = waiting.blocking_recv() {
            for entry in &part {
                writer.entry(entry)?;
            }
        }
        Ok::<_, ArchiveError>(writer)
    });
    let walked = walk(store, filter, clock, &parts, progress).await;
    drop(parts);
    let writer = writing.await.map_err(StoreError::unavailable)??;
    let exported = walked?;
    // Only a walk that came to its end gets an end.
    let finish = move || {
        writer
            .finish()?
            .into_inner()
            .map_err(|error| ArchiveError::Io(error.to_string()))
    };
    let out = tokio::task::spawn_blocking(finish)
        .await
        .map_err(StoreError::unavailable)??;
    Ok((exported, out))
}

async fn walk(
    store: &dyn ReadStore,
    filter: &ArchiveFilter,
    clock: &dyn Clock,
    parts: &mpsc::Sender<Vec<Entry>>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Exported, ArchiveError> {
    let mut done = Exported::default();
    let mut after = None;
    loop {
        let part = store.walk(after, PART).await?;
        let now = clock.now();
        let mut entries: Vec<Entry> = Vec::with_capacity(part.rows.len());
        for row in part
            .rows
            .into_iter()
            .filter(|row| filter.takes(&row.meta.namespace, row.meta.kind))
        {
            match row.value {
                _ if row.meta.is_expired(now) => done.expired += 1,
                Ok(value) => entries.push(Entry {
                    meta: row.meta,
                    value,
                }),
                Err(_) => done.unreadable += 1,
            }
        }
        done.exported += entries.len() as u64;
        if parts.send(entries).await.is_err() {
            // The file failed; its thread tells how.
            return Ok(done);
        }
        progress(done.exported);
        match part.next {
            Some(next) => after = Some(next),
            None => return Ok(done),
        }
    }
}
