//! The audit: one row per call while gate 1 is open, written after the response within a deadline.
//!
//! A call only puts a record into a bounded queue. The writer extracts findings, off the caller's
//! thread. A full queue or a failing store costs rows, which are counted, and never a call. The
//! pages of a caller are a chain ([`helmdeck_memory::audit`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use helmdeck_core::duration::text;
use helmdeck_core::numbers::micros;
use helmdeck_core::{
    CacheStatus, Identity, Json, Outcome, PackName, RequestId, Result, Timestamp, Version,
};
use helmdeck_memory::audit::{AuditEntry, ChainWriter};
use helmdeck_memory::{Kind, Namespace, Put, Store};
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, PackMetrics};
use crate::tail::{CallRecord, Tail};

/// Settings of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// How long a row is kept. Default 30 d.
    #[serde(with = "text")]
    pub retention: Duration,
    /// Limit of queued rows. More are dropped and counted. Default 4096.
    pub queue: usize,
    /// Longest wait of a row for a fuller batch. Default 100 ms.
    #[serde(with = "text")]
    pub linger: Duration,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(30 * 86_400),
            queue: 4096,
            linger: Duration::from_millis(100),
        }
    }
}

/// Number of the newest calls that are kept in memory.
const RECENT: usize = 2_000;
/// Limit of rows per write.
const BATCH: usize = 1024;
/// Number of callers whose pages are written at the same time: a store commits them together.
const AT_ONCE: usize = 64;
/// Longest time that a write may take.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// Size at which a page of rows is full. One row is far smaller.
const MAX_PAGE_BYTES: usize = 64 << 10;
/// Number of rows after which the writer yields to calls on its thread.
const YIELD_AFTER: usize = 32;
/// Interval at which a lingering writer checks whether a batch is full.
const SLICE: Duration = Duration::from_millis(10);
/// Limit of findings per row.
const MAX_FINDINGS: usize = 50;
/// Larger outputs are not examined.
const MAX_LOOK_BYTES: usize = 256 << 10;

/// Record of one call, as it is queued.
pub(crate) struct Record {
    pack: PackName,
    version: Version,
    outcome: &'static str,
    cache: Option<&'static str>,
    duration: Duration,
    at: Timestamp,
    identity: Arc<Identity>,
    output: Option<Json>,
    request_id: Option<RequestId>,
}

impl Record {
    /// Notes the request, if its caller named it or it failed: others would only make rows longer.
    pub(crate) fn requested_by(mut self, request_id: Option<RequestId>) -> Self {
        self.request_id = request_id.filter(|id| id.is_given() || !is_ok(self.outcome));
        self
    }

    pub(crate) fn of(
        metrics: &PackMetrics,
        result: &Result<Outcome>,
        identity: Arc<Identity>,
        duration: Duration,
        at: Timestamp,
    ) -> Self {
        let (outcome, cache, output) = match result {
            // The findings of a cached output were recorded when its handler ran.
            Ok(outcome) => {
                let status = outcome.cache.map(|cache| cache.status);
                let ran = matches!(status, None | Some(CacheStatus::Miss | CacheStatus::Bypass));
                (
                    "ok",
                    status.map(CacheStatus::as_str),
                    ran.then(|| outcome.output.clone()),
                )
            }
            Err(error) => (error.code().as_str(), None, None),
        };
        Self {
            pack: metrics.pack().clone(),
            version: metrics.version(),
            outcome,
            cache,
            duration,
            at,
            identity,
            output,
            request_id: None,
        }
    }

    /// A row about an entry that looks like it holds a credential, and that its writer allowed.
    pub(crate) fn of_allowed_secret(
        pack: PackName,
        version: Version,
        identity: Arc<Identity>,
        (kind, rule): (&'static str, &'static str),
        at: Timestamp,
    ) -> Self {
        let output = serde_json::json!({ "findings": [{ "code": "secret_allowed", "severity": rule, "file": kind }] });
        Self {
            pack,
            version,
            outcome: "ok",
            cache: None,
            duration: Duration::ZERO,
            at,
            identity,
            output: Some(Json::from(output)),
            request_id: None,
        }
    }

    fn recent(&self) -> CallRecord {
        CallRecord {
            at: self.at,
            identity: Arc::clone(&self.identity),
            pack: self.pack.clone(),
            version: self.version,
            outcome: self.outcome,
            cache: self.cache,
            duration: self.duration,
            request_id: self.request_id.clone(),
        }
    }
}

/// Page of the stored audit: rows of one caller and one version of one pack, as JSON.
///
/// A page of many rows costs hardly more to seal and to store than one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The pack.
    pub pack: PackName,
    /// Its version.
    pub version: Version,
    /// When the first of the calls ended.
    pub start: Timestamp,
    /// One row per call, oldest first.
    pub rows: Vec<AuditRow>,
}

/// One row of the audit: one call. The names are short because there are many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// End of the call relative to the start of the page, in microseconds.
    #[serde(rename = "t")]
    pub after_us: i64,
    /// How long the call took, in microseconds.
    #[serde(rename = "us")]
    pub duration_us: u64,
    /// `ok` (left out) or an error code.
    #[serde(rename = "o", default = "ok", skip_serializing_if = "is_ok")]
    pub outcome: Cow<'static, str>,
    /// Cache status of the call, if both gates were open.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cow<'static, str>>,
    /// Request id, if the caller sent one or the call failed.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Findings of the pack, at most 50.
    #[serde(rename = "f", default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

const fn ok() -> Cow<'static, str> {
    Cow::Borrowed("ok")
}

fn is_ok(outcome: &str) -> bool {
    outcome == "ok"
}

/// Finding of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind.
    pub code: String,
    /// Severity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// Location.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
}

enum Message {
    Row(Record),
    Flush(oneshot::Sender<()>),
}

/// Handle on the audit. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Audit {
    queue: mpsc::Sender<Message>,
    metrics: Arc<Metrics>,
    /// Notified when a reader waits for the rows.
    hurry: Arc<Notify>,
    /// The newest calls; the writer appends to it, so a call pays nothing for it.
    pub(crate) recent: Arc<Tail<CallRecord>>,
}

impl Audit {
    /// Starts the writer.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        config: AuditConfig,
        metrics: Arc<Metrics>,
        stop: &CancellationToken,
    ) -> Self {
        let (queue, inbox) = mpsc::channel(config.queue.max(1));
        let hurry = Arc::new(Notify::new());
        let recent = Arc::new(Tail::new(RECENT));
        let writer = Writer {
            store,
            config,
            metrics: Arc::clone(&metrics),
            hurry: Arc::clone(&hurry),
            recent: Arc::clone(&recent),
            counter: AtomicU64::new(0),
            chains: ChainWriter::default(),
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(writer.run(inbox)));
        Self {
            queue,
            metrics,
            hurry,
            recent,
        }
    }

    /// Queues a row; never waits.
    pub(crate) fn push(&self, record: Record) {
        if self.queue.try_send(Message::Row(record)).is_err() {
            self.metrics.totals.audit_dropped.inc();
        }
    }

    /// Waits until everything queued so far is written or lost.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        self.hurry.notify_one();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            self.hurry.notify_one();
            let _ = wait.await;
        }
    }
}

struct Writer {
    store: Arc<dyn Store>,
    config: AuditConfig,
    metrics: Arc<Metrics>,
    hurry: Arc<Notify>,
    recent: Arc<Tail<CallRecord>>,
    counter: AtomicU64,
    chains: ChainWriter,
}

impl Writer {
    async fn run(self, mut inbox: mpsc::Receiver<Message>) {
        while let Some(first) = inbox.recv().await {
            // While the writer lingers, a call only puts its row into the queue and wakes no task.
            // Waking the writer for each row would cost every call a task switch.
            if matches!(first, Message::Row(_)) {
                self.linger(&inbox).await;
            }
            let mut next = Some(first);
            while next.is_some() {
                let mut rows = Vec::new();
                let mut flushed = Vec::new();
                while let Some(message) = next.take() {
                    match message {
                        Message::Row(row) => rows.push(row),
                        Message::Flush(done) => flushed.push(done),
                    }
                    if rows.len() < BATCH {
                        next = inbox.try_recv().ok();
                    }
                }
                self.write(rows).await;
                for done in flushed {
                    let _ = done.send(());
                }
                // Rows that arrived during the write linger again: written at once, they would make
                // many small batches.
                next = if inbox.len() >= BATCH {
                    inbox.try_recv().ok()
                } else {
                    None
                };
            }
        }
    }

    /// Waits until a batch is full, the first row has waited long enough, or a flush is requested.
    async fn linger(&self, inbox: &mpsc::Receiver<Message>) {
        let end = tokio::time::Instant::now() + self.config.linger;
        while tokio::time::Instant::now() < end && inbox.len() < BATCH {
            tokio::select! {
                () = tokio::time::sleep(SLICE) => {}
                () = self.hurry.notified() => return,
            }
        }
    }

    async fn write(&self, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        self.recent.extend(records.iter().map(Record::recent));
        let mut callers: HashMap<Namespace, Vec<AuditEntry>> = HashMap::new();
        for page in self.pages(records).await {
            callers
                .entry(Namespace::of_caller(&page.identity))
                .or_default()
                .push(self.entry(page));
        }
        let append = |(caller, entries)| self.append(caller, entries);
        stream::iter(callers)
            .for_each_concurrent(AT_ONCE, append)
            .await;
    }

    /// Appends pages to the chain of their caller.
    async fn append(&self, caller: Namespace, entries: Vec<AuditEntry>) {
        let count = entries.iter().map(|entry| entry.calls as u64).sum();
        let written = tokio::time::timeout(
            WRITE_TIME,
            self.chains.append(&*self.store, &caller, &entries),
        )
        .await;
        let why = match written {
            Ok(Ok(())) => {
                self.metrics.totals.audit_written.inc_by(count);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the store took longer than {} s", WRITE_TIME.as_secs()),
        };
        self.metrics.totals.audit_dropped.inc_by(count);
        self.metrics.store_error("audit");
        tracing::warn!(rows = count, why, "audit rows were lost");
    }

    /// Puts the rows of each caller and pack onto pages, oldest first.
    async fn pages(&self, records: Vec<Record>) -> Vec<Page> {
        let mut open: Vec<Page> = Vec::new();
        let mut full = Vec::new();
        for (number, record) in records.into_iter().enumerate() {
            // Calls on this thread of the runtime come first.
            if number % YIELD_AFTER == YIELD_AFTER - 1 {
                tokio::task::yield_now().await;
            }
            let at = open.iter().position(|page| page.takes(&record));
            let index = at.unwrap_or_else(|| {
                open.push(Page::new(&record));
                open.len() - 1
            });
            open[index].add(record);
            if open[index].text.len() >= MAX_PAGE_BYTES {
                full.push(open.swap_remove(index));
            }
        }
        full.into_iter().chain(open).collect()
    }

    fn entry(&self, mut page: Page) -> AuditEntry {
        page.text.extend_from_slice(b"]}");
        // Zero-padded, so that keys sort by time. Counter and process id distinguish rows of the
        // same microsecond.
        let counter = self.counter.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let key = format!(
            "pack/{}/{:020}-{counter:06}-{:08x}",
            page.pack,
            page.start.micros(),
            std::process::id()
        );
        let mut put = Put::new(
            Namespace::of_caller(&page.identity),
            Kind::Audit,
            key,
            page.text,
        );
        put.category = "pack".to_owned();
        put.ttl = Some(self.config.retention);
        // It is written after its calls.
        AuditEntry {
            put,
            calls: page.rows,
            until: page.start.saturating_add(self.config.retention),
        }
    }
}

/// An [`AuditPage`] that is being written.
struct Page {
    identity: Arc<Identity>,
    pack: PackName,
    version: Version,
    start: Timestamp,
    rows: usize,
    text: Vec<u8>,
}

impl Page {
    fn new(record: &Record) -> Self {
        let (pack, version, start) = (record.pack.clone(), record.version, record.at);
        let text = format!(
            "{{\"pack\":\"{pack}\",\"version\":\"{version}\",\"start\":{},\"rows\":[",
            start.micros()
        );
        Self {
            identity: Arc::clone(&record.identity),
            pack,
            version,
            start,
            rows: 0,
            text: text.into_bytes(),
        }
    }

    fn takes(&self, record: &Record) -> bool {
        let same = |a: &Identity, b: &Identity| a.tenant() == b.tenant() && a.user() == b.user();
        self.pack == record.pack
            && self.version == record.version
            && (Arc::ptr_eq(&self.identity, &record.identity)
                || same(&self.identity, &record.identity))
    }

    fn add(&mut self, record: Record) {
        let row = AuditRow {
            after_us: record.at.micros().saturating_sub(self.start.micros()),
            duration_us: micros(record.duration),
            outcome: Cow::Borrowed(record.outcome),
            cache: record.cache.map(Cow::Borrowed),
            request_id: record.request_id.map(|id| id.to_string()),
            findings: record.output.as_ref().map(findings).unwrap_or_default(),
        };
        if self.rows > 0 {
            self.text.push(b',');
        }
        self.rows += 1;
        // Writing plain data to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.text, &row);
    }
}

fn findings(output: &Json) -> Vec<Finding> {
    /// Most outputs contain no findings; this check avoids parsing them.
    static PLACES: LazyLock<[Finder<'static>; 4]> = LazyLock::new(|| {
        ["\"findings\"", "\"lint\"", "\"inspect\"", "\"validate\""].map(Finder::new)
    });
    let bytes = output.bytes();
    if bytes.len() > MAX_LOOK_BYTES || !PLACES.iter().any(|place| place.find(bytes).is_some()) {
        return Vec::new();
    }
    let document = output.to_value();
    let mut lists = vec![document.get("findings")];
    for part in ["lint", "inspect", "validate"] {
        for list in ["findings", "issues", "errors", "warnings"] {
            lists.push(document.get(part).and_then(|part| part.get(list)));
        }
    }
    let text = |item: &Value, name: &str| {
        item.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    lists
        .into_iter()
        .flatten()
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(|item| {
            let severity = item
                .get("severity")
                .or_else(|| item.get("level"))
                .and_then(Value::as_str)
                .unwrap_or_default();
            let code = text(item, "code");
            (!code.is_empty()).then(|| Finding {
                code,
                severity: severity.to_owned(),
                file: text(item, "file"),
            })
        })
        .take(MAX_FINDINGS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_read_from_known_fields_and_capped() {
        let output = Json::from(serde_json::json!({
            "findings": [{"code": "a", "severity": "high", "file": "x.rs"}, {"message": "no code"}],
            "lint": {"issues": [{"code": "b", "level": "low"}]},
        }));
        let found = findings(&output);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].code.as_str(), found[1].severity.as_str()),
            ("b", "low")
        );
        let many: Vec<_> = (0..500)
            .map(|n| serde_json::json!({"code": n.to_string()}))
            .collect();
        assert_eq!(
            findings(&Json::from(serde_json::json!({"findings": many}))).len(),
            MAX_FINDINGS
        );
    }
}
