//! Habits of a caller, from the audit: its packs, its usual inputs, and frequent findings of packs.
//!
//! They are computed for each reader from the newest rows within a limit. The same rows give the same result in the
//! same order, however they were stored.

mod habits;

use helmdeck_core::{PackName, Timestamp, Version};
use helmdeck_memory::{Entry, Kind, Namespace, Order, Page, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::audit::AuditRow;
use habits::Habits;

/// Limit of audit entries that are read.
const MAX_PAGES: usize = 4096;
/// Limit of their bytes.
const MAX_BYTES: u64 = 32 << 20;
/// Limit of their rows.
const MAX_ROWS: usize = 100_000;
/// Limit of entries per list of the store.
const LISTED: usize = 1000;
/// Prefix of keys of calls.
const CALLS: &str = "pack/";

/// Habits of a caller, from the audit. Lists may be empty, but are always present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Defaults {
    /// The packs that were used most: at most 12. Only successful calls count.
    ///
    /// Order: most calls first, then the last used, then by name.
    pub packs: Vec<PackUse>,
    /// Findings of packs, whatever the outcome: at most 20, most frequent first, then by code.
    pub common_findings: Vec<CommonFinding>,
    /// The newest calls: at most 200, newest first, then by pack.
    pub recent: Vec<RecentCall>,
    /// Whether there are older rows that were not read.
    pub truncated: bool,
    /// Number of unreadable audit entries; each may contain several rows.
    pub unreadable: u64,
    /// Number of malformed rows.
    pub malformed: u64,
    /// Why the lists are empty, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// Use of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackUse {
    /// The pack.
    pub pack: PackName,
    /// Number of successful calls.
    pub calls: u64,
    /// When the last of them ended.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub last_used: Timestamp,
    /// Most frequent value of each learnable input; of equally frequent ones, the smaller text.
    pub common_inputs: std::collections::BTreeMap<String, String>,
}

/// Findings of packs, by code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommonFinding {
    /// Kind of finding.
    pub code: String,
    /// The pack that reported it last.
    pub pack: PackName,
    /// Its severity then; may be empty.
    pub severity: String,
    /// Number of occurrences.
    pub occurrence_count: u64,
    /// Time of the latest occurrence.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub last_seen: Timestamp,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecentCall {
    /// The pack.
    pub pack: PackName,
    /// Its version.
    pub version: Version,
    /// `ok` or an error code.
    pub outcome: String,
    /// When it ended.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// Cache status of the call, if both gates were open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Its learnable inputs.
    pub inputs: std::collections::BTreeMap<String, String>,
}

/// Audit entry whose rows are parsed one by one, so that a malformed row does not cost its neighbours.
#[derive(Deserialize)]
struct Rows<'a> {
    pack: PackName,
    version: Version,
    start: Timestamp,
    #[serde(borrow)]
    rows: Vec<&'a RawValue>,
}

/// Reads the newest rows of a caller's audit and summarises them.
///
/// Cost: linear in what is read, at most 4,096 entries, 32 MiB and 100,000 rows. The rows are read on a blocking
/// thread.
///
/// # Errors
/// `Unavailable`, `Closed`.
pub async fn defaults(store: &dyn Store, namespace: &Namespace) -> Result<Defaults, StoreError> {
    let (pages, more) = newest(store, namespace).await?;
    if pages == 0 {
        return Ok(Defaults { truncated: more, ..project(&[]) });
    }
    let scan = store.scan(namespace, Kind::Audit, CALLS, Order::NewestFirst, pages).await?;
    let (entries, unreadable) = (scan.entries, scan.unreadable);
    let projected = tokio::task::spawn_blocking(move || project(&entries)).await.map_err(StoreError::unavailable)?;
    Ok(Defaults {
        truncated: projected.truncated || more,
        unreadable: projected.unreadable.saturating_add(unreadable),
        ..projected
    })
}

/// Returns how many of the newest entries stay within the bounds, and whether there are more.
async fn newest(store: &dyn Store, namespace: &Namespace) -> Result<(usize, bool), StoreError> {
    let (mut pages, mut bytes, mut after) = (0, 0, None);
    loop {
        let page = store.list(namespace, Kind::Audit, CALLS, Page { limit: LISTED, after }).await?;
        for meta in &page.entries {
            bytes += meta.size;
            if pages == MAX_PAGES || bytes > MAX_BYTES {
                return Ok((pages, true));
            }
            pages += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok((pages, false)),
        }
    }
}

/// Summarises entries of the audit, given newest first.
fn project(entries: &[Entry]) -> Defaults {
    let mut habits = Habits::default();
    let (mut left, mut unreadable, mut malformed, mut truncated) = (MAX_ROWS, 0, 0, false);
    for entry in entries {
        let Ok(page) = serde_json::from_slice::<Rows<'_>>(&entry.value) else {
            unreadable += 1;
            continue;
        };
        // The newest rows of an entry come last.
        for row in page.rows.iter().rev() {
            if left == 0 {
                truncated = true;
                break;
            }
            left -= 1;
            match serde_json::from_str::<AuditRow>(row.get()) {
                Ok(row) => {
                    let at = Timestamp(page.start.micros().saturating_add(row.after_us));
                    habits.add(&page.pack, page.version, at, row);
                }
                Err(_) => malformed += 1,
            }
        }
    }
    let note = habits.is_empty().then_some("there is no history of calls yet");
    Defaults { truncated, unreadable, malformed, note, ..habits.finish() }
}

#[cfg(test)]
mod tests;
