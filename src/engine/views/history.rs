//! Past calls of a caller, from the audit: newest first, filtered, page by page.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use helmdeck_core::numbers::micros;
use helmdeck_core::{PackName, Timestamp, Version};
use helmdeck_memory::requests::Position;
use helmdeck_memory::{Entry, EntryMeta, Kind, Namespace, Page, Store, StoreError};
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::audit::{AuditRow, Finding};
use crate::tail::CallRecord;

/// Number of audit entries in the first part that is read. Each may contain many calls.
const FIRST: usize = 16;
/// Number of entries in each later part.
const PART: usize = 128;
/// Limit of entries that one page reads. A search goes on from there.
const MOST: usize = 1_024;
/// Number of entries that are opened at the same time.
const AT_ONCE: usize = 8;
/// Longest time between the end of a call and the write of its entry: a write is given up after 5
/// s.
const LATE: Duration = Duration::from_secs(6);
/// Prefix of keys of calls.
const CALLS: &str = "pack/";

/// Selection of past calls.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    /// Only calls of this pack.
    pub pack: Option<PackName>,
    /// Only calls with this outcome: `ok`, an error code, or `failed` for every error.
    pub outcome: Option<String>,
    /// Only calls that ended at this time or later.
    pub since: Option<Timestamp>,
    /// Only calls before this position: the `next` of the previous page.
    pub before: Option<(Timestamp, u32)>,
    /// Size of a page.
    pub limit: usize,
}

impl CallFilter {
    /// Returns whether a call is selected, whatever its position.
    #[must_use]
    pub fn matches(&self, pack: &PackName, outcome: &str, at: Timestamp) -> bool {
        let outcome = match self.outcome.as_deref() {
            None => true,
            Some("failed") => outcome != "ok",
            Some(wanted) => wanted == outcome,
        };
        outcome
            && self.pack.as_ref().is_none_or(|wanted| wanted == pack)
            && self.since.is_none_or(|since| at >= since)
    }

    /// Returns the page of these calls that was asked for. Calls that do not match are left out.
    #[must_use]
    pub fn page(&self, mut calls: Vec<PastCall>) -> CallPage {
        calls.retain(|call| self.matches(&call.pack, &call.outcome, call.at));
        // The rest of the order makes pages the same each time.
        calls.sort_by(|one, other| {
            let names = || {
                (&one.tenant, &one.user, &one.pack).cmp(&(&other.tenant, &other.user, &other.pack))
            };
            other
                .at
                .cmp(&one.at)
                .then_with(names)
                .then(one.duration_us.cmp(&other.duration_us))
        });
        if let Some((at, skip)) = self.before {
            let first = calls.partition_point(|call| call.at > at);
            let same = calls[first..].partition_point(|call| call.at == at);
            calls.drain(..first + same.min(skip as usize));
        }
        let more = calls.len() > self.limit;
        calls.truncate(self.limit);
        let next = calls.last().filter(|_| more).map(|last| {
            let same = calls
                .iter()
                .rev()
                .take_while(|call| call.at == last.at)
                .count();
            let skipped = self
                .before
                .filter(|(at, _)| *at == last.at)
                .map_or(0, |(_, skip)| skip);
            (
                last.at,
                skipped.saturating_add(u32::try_from(same).unwrap_or(u32::MAX)),
            )
        });
        CallPage {
            calls,
            next,
            truncated: false,
            unreadable: 0,
        }
    }
}

impl From<CallRecord> for PastCall {
    fn from(call: CallRecord) -> Self {
        Self {
            at: call.at,
            tenant: call.identity.tenant().to_owned(),
            user: call.identity.user().to_owned(),
            pack: call.pack,
            version: call.version,
            outcome: call.outcome.to_owned(),
            cache: call.cache.map(str::to_owned),
            duration_us: micros(call.duration),
            request_id: call.request_id.map(|id| id.to_string()),
            findings: Vec::new(),
        }
    }
}

/// A call of the past.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PastCall {
    /// When it ended.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub at: Timestamp,
    /// The tenant of its caller.
    pub tenant: String,
    /// The user that is its caller.
    pub user: String,
    /// The pack.
    pub pack: PackName,
    /// Its version.
    pub version: Version,
    /// `ok` or an error code.
    pub outcome: String,
    /// Cache status of the call, if both gates were open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// Request id, if the caller sent one or the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Findings of the pack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// Page of past calls, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallPage {
    /// The calls.
    pub calls: Vec<PastCall>,
    /// Position of the next page; `None` = this is the last.
    pub next: Option<(Timestamp, u32)>,
    /// Whether the search ended before the page was full. It goes on at `next`.
    pub truncated: bool,
    /// Number of unreadable audit entries; each may contain several rows.
    pub unreadable: u64,
}

/// Audit entry whose rows are parsed one by one, so that a malformed row does not cost its
/// neighbours.
#[derive(Deserialize)]
struct Rows<'a> {
    pack: PackName,
    version: Version,
    start: Timestamp,
    #[serde(borrow)]
    rows: Vec<&'a RawValue>,
}

/// Reads past calls of a caller.
///
/// Cost: linear in what is read, at most 1,024 audit entries; it stops when no older entry can
/// change the page.
///
/// # Errors
/// `Unavailable`, `Closed`.
pub(super) async fn calls(
    store: &dyn Store,
    namespace: &Namespace,
    filter: CallFilter,
) -> Result<CallPage, StoreError> {
    let prefix = filter
        .pack
        .as_ref()
        .map_or_else(|| CALLS.to_owned(), |pack| format!("{CALLS}{pack}/"));
    let filter = Arc::new(filter);
    // A search goes on where it ended: nothing is skipped there. An entry may hold calls that ended
    // a while before it was written.
    let start = |at: Timestamp| {
        Position {
            updated_at: at.saturating_add(LATE),
            key: String::new(),
        }
        .to_cursor()
    };
    let mut after = filter
        .before
        .filter(|(_, skip)| *skip == 0)
        .map(|(at, _)| start(at));
    let (mut found, mut unreadable, mut entries) = (Vec::new(), 0, 0);
    loop {
        let limit = if entries == 0 { FIRST } else { PART };
        let part = store
            .list(namespace, Kind::Audit, &prefix, Page { limit, after })
            .await?;
        entries += part.entries.len();
        // A call ended before its entry was written, and the entries are sorted by that.
        let oldest = part.entries.last().map(|entry| entry.updated_at);
        let (opened, lost) = open(store, namespace, part.entries).await?;
        unreadable += lost;
        let (wanted, owner) = (Arc::clone(&filter), namespace.clone());
        let read = tokio::task::spawn_blocking(move || read(&opened, &owner, &wanted));
        found.extend(read.await.map_err(StoreError::unavailable)?);
        let (page, at) = (
            CallPage {
                unreadable,
                ..filter.page(found.clone())
            },
            oldest,
        );
        let full = page.next.is_some() && page.calls.last().map(|call| call.at) >= at;
        let late = filter
            .since
            .is_some_and(|since| at.is_some_and(|at| at < since));
        after = part.next;
        let Some(at) = at.filter(|_| after.is_some() && !full && !late) else {
            return Ok(page);
        };
        // Each search gets further than the one before.
        if entries >= MOST && filter.before.is_none_or(|(before, _)| at < before) {
            return Ok(cut(page, at));
        }
    }
}

/// Opens entries. Returns those that open, in their order, and the number of the others.
async fn open(
    store: &dyn Store,
    namespace: &Namespace,
    entries: Vec<EntryMeta>,
) -> Result<(Vec<Entry>, u64), StoreError> {
    let get = |entry: EntryMeta| async move { store.get(namespace, Kind::Audit, &entry.key).await };
    let mut opening = stream::iter(entries).map(get).buffered(AT_ONCE);
    let (mut opened, mut unreadable) = (Vec::new(), 0);
    while let Some(entry) = opening.next().await {
        match entry {
            // One that has expired since is no loss.
            Ok(entry) => opened.extend(entry),
            Err(StoreError::Unreadable { .. }) => unreadable += 1,
            Err(error) => return Err(error),
        }
    }
    Ok((opened, unreadable))
}

/// Ends a page at the oldest entry that was read: older calls come when the search goes on there.
fn cut(mut page: CallPage, oldest: Timestamp) -> CallPage {
    // The calls of a full page may be older than the oldest entry.
    page.calls.retain(|call| call.at > oldest);
    CallPage {
        next: Some((oldest, 0)),
        truncated: true,
        ..page
    }
}

/// Returns a text that entries with a wanted outcome contain; `None` if every entry may have one.
fn trace_of(outcome: Option<&str>) -> Option<String> {
    match outcome? {
        // Left out of rows.
        "ok" => None,
        "failed" => Some("\"o\":\"".to_owned()),
        code => Some(format!("\"o\":\"{code}\"")),
    }
}

fn read(entries: &[Entry], owner: &Namespace, filter: &CallFilter) -> Vec<PastCall> {
    let mut calls = Vec::new();
    let trace = trace_of(filter.outcome.as_deref());
    let trace = trace.as_ref().map(|trace| Finder::new(trace.as_str()));
    let has_trace = |bytes: &[u8]| {
        trace
            .as_ref()
            .is_none_or(|trace| trace.find(bytes).is_some())
    };
    for entry in entries.iter().filter(|entry| has_trace(&entry.value)) {
        let Ok(page) = serde_json::from_slice::<Rows<'_>>(&entry.value) else {
            continue;
        };
        for row in page
            .rows
            .into_iter()
            .filter(|row| has_trace(row.get().as_bytes()))
        {
            let Ok(row) = serde_json::from_str::<AuditRow>(row.get()) else {
                continue;
            };
            let at = Timestamp(page.start.micros().saturating_add(row.after_us));
            if !filter.matches(&page.pack, &row.outcome, at) {
                continue;
            }
            calls.push(PastCall {
                at,
                tenant: owner.tenant.to_string(),
                user: owner.subject.to_string(),
                pack: page.pack.clone(),
                version: page.version,
                outcome: row.outcome.into_owned(),
                cache: row.cache.map(std::borrow::Cow::into_owned),
                duration_us: row.duration_us,
                request_id: row.request_id,
                findings: row.findings,
            });
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    fn call(at: i64, pack: &str, outcome: &str) -> PastCall {
        PastCall {
            at: Timestamp(at),
            tenant: "t".into(),
            user: "u".into(),
            pack: PackName::new(pack).unwrap(),
            version: Version::new(1).unwrap(),
            outcome: outcome.into(),
            cache: None,
            duration_us: 1,
            request_id: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn pages_have_every_call_once() {
        let calls: Vec<PastCall> = (0..7)
            .map(|number| call(number / 3, &format!("a.p{number}"), "ok"))
            .collect();
        let mut filter = CallFilter {
            limit: 2,
            ..CallFilter::default()
        };
        let mut seen = Vec::new();
        loop {
            let page = filter.page(calls.clone());
            seen.extend(page.calls);
            match page.next {
                Some(next) => filter.before = Some(next),
                None => break,
            }
        }
        assert_eq!(seen.len(), 7);
        assert!(calls.iter().all(|call| seen.contains(call)));
        assert!(seen.is_sorted_by_key(|call| Reverse(call.at)));
    }

    #[test]
    fn filters_leave_others_out() {
        let calls = vec![
            call(1, "a.b", "ok"),
            call(2, "a.b", "timeout"),
            call(3, "a.c", "timeout"),
        ];
        let found = |filter: CallFilter| filter.page(calls.clone()).calls.len();
        let all = || CallFilter {
            limit: 9,
            ..CallFilter::default()
        };
        assert_eq!(
            found(CallFilter {
                outcome: Some("failed".into()),
                ..all()
            }),
            2
        );
        assert_eq!(
            found(CallFilter {
                pack: PackName::new("a.b").ok(),
                outcome: Some("timeout".into()),
                ..all()
            }),
            1
        );
        assert_eq!(
            found(CallFilter {
                since: Some(Timestamp(2)),
                ..all()
            }),
            2
        );
    }

    #[test]
    fn failures_leave_a_trace_in_their_rows() {
        let row = |outcome: &'static str| AuditRow {
            request_id: None,
            after_us: 1,
            duration_us: 1,
            outcome: outcome.into(),
            cache: None,
            findings: vec![Finding {
                code: "\"o\":\"".to_owned(),
                severity: String::new(),
                file: String::new(),
            }],
        };
        let has = |outcome, wanted| {
            let text = serde_json::to_string(&row(outcome)).unwrap();
            trace_of(Some(wanted)).is_none_or(|trace| text.contains(&trace))
        };
        assert!(has("timeout", "failed") && has("timeout", "timeout") && has("ok", "ok"));
        assert!(!has("ok", "failed") && !has("timeout", "not_found"));
    }
}
