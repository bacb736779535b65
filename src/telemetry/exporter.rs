//! Queue of spans and log records, and the task that sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use helmdeck_core::Tracer;
use helmdeck_core::trace::{Recorder, SpanRecord};
use helmdeck_core::upstream::retry_after;
use helmdeck_egress::Egress;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use url::Url;

use crate::config::{Config, Protocol, signal_url};
use crate::log_layer::LogLayer;
use crate::logs::{self, LogRecord};
use crate::message::Message;
use crate::metrics::{self, Window};
use crate::spans::{self, text_attribute};

/// Limit of spans and log records that wait. More are dropped and counted.
const QUEUE: usize = 8192;
/// Limit of items per request.
const BATCH: usize = 512;
/// Longest wait of an item for a fuller batch.
const LINGER: Duration = Duration::from_secs(1);
/// Number of repetitions of a request that the collector could not take.
const MAX_REPEATS: u32 = 3;
/// Wait before the first repetition; it doubles.
const REPEAT_WAIT: Duration = Duration::from_secs(1);
/// Longest wait that a collector can ask for.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Attributes of the process: `service.name` and others.
pub type Resource = Vec<(String, String)>;

enum Item {
    Span(Box<SpanRecord>),
    Log(Box<LogRecord>),
    Flush(oneshot::Sender<()>),
}

/// Queue of the export. Cheap to clone; never blocks.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    items: mpsc::Sender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    pub(crate) fn log(&self, record: LogRecord) {
        self.push(Item::Log(Box::new(record)));
    }

    fn push(&self, item: Item) {
        if self.items.try_send(item).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Recorder for Queue {
    fn record(&self, span: SpanRecord) {
        self.push(Item::Span(Box::new(span)));
    }
}

/// The export of one process.
#[derive(Debug)]
pub struct Telemetry {
    queue: Queue,
    sample_ratio: f64,
}

impl Telemetry {
    /// Starts the export, on the current runtime. `metrics` returns what `/metrics` would answer.
    ///
    /// `headers` go with each request; their values are secrets.
    ///
    /// # Errors
    /// What [`Config::validate`] says; that a header is malformed, by its name only.
    pub fn start(
        config: &Config,
        resource: &Resource,
        headers: &[(String, String)],
        egress: &Egress,
        metrics: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, String> {
        config.validate()?;
        let base = config.base_url()?;
        let (items, inbox) = mpsc::channel(QUEUE);
        let queue = Queue {
            items,
            dropped: Arc::default(),
        };
        let attributes = resource
            .iter()
            .map(|(name, value)| text_attribute(name, value))
            .collect();
        let worker = Worker {
            egress: egress.reaching_only(&base, config.timeout),
            headers: header_map(headers, config.protocol)?,
            resource: Message::default().messages(1, "attributes", attributes),
            protocol: config.protocol,
            timeout: config.timeout,
            dropped: Arc::clone(&queue.dropped),
            started: SystemTime::now(),
            failing: false,
            base,
        };
        tokio::spawn(worker.run(inbox, config.interval, Box::new(metrics)));
        Ok(Self {
            queue,
            sample_ratio: config.sample_ratio,
        })
    }

    /// Returns what starts spans.
    #[must_use]
    pub fn tracer(&self) -> Tracer {
        Tracer::new(Arc::new(self.queue.clone()), self.sample_ratio)
    }

    /// Exports what is logged from now on.
    pub fn connect(&self, layer: &LogLayer) {
        layer.connect(self.queue.clone());
    }

    /// Sends everything that waits and the metrics, within a time limit.
    pub async fn flush(&self, limit: Duration) {
        let (done, wait) = oneshot::channel();
        let flushed = async {
            if self.queue.items.send(Item::Flush(done)).await.is_ok() {
                let _ = wait.await;
            }
        };
        // What is not sent by then is lost, as after a crash.
        let _ = tokio::time::timeout(limit, flushed).await;
    }
}

fn header_map(headers: &[(String, String)], protocol: Protocol) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let wrong = || format!("the header {name:?} for the collector cannot be sent as it is");
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        map.append(
            reqwest::header::HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?,
            value,
        );
    }
    map.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(protocol.media_type()),
    );
    Ok(map)
}

struct Worker {
    egress: Egress,
    base: Url,
    headers: HeaderMap,
    resource: Message,
    protocol: Protocol,
    timeout: Duration,
    dropped: Arc<AtomicU64>,
    started: SystemTime,
    /// Whether the last request failed, so that an outage is logged once.
    failing: bool,
}

impl Worker {
    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Item>,
        interval: Duration,
        metrics: Box<dyn Fn() -> String + Send>,
    ) {
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut items = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.send_metrics(metrics()).await,
                count = inbox.recv_many(&mut items, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.fill(&mut inbox, &mut items).await;
                    let flushed = self.send_items(std::mem::take(&mut items)).await;
                    if !flushed.is_empty() {
                        self.send_metrics(metrics()).await;
                    }
                    for done in flushed {
                        let _ = done.send(());
                    }
                }
            }
        }
    }

    /// Waits for a fuller batch, at most [`LINGER`], unless a flush waits.
    async fn fill(&self, inbox: &mut mpsc::Receiver<Item>, items: &mut Vec<Item>) {
        let end = Instant::now() + LINGER;
        while items.len() < BATCH && !matches!(items.last(), Some(Item::Flush(_))) {
            match tokio::time::timeout_at(end, inbox.recv()).await {
                Ok(Some(item)) => items.push(item),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Sends a batch, and returns who waits for it.
    async fn send_items(&mut self, items: Vec<Item>) -> Vec<oneshot::Sender<()>> {
        let (mut spans, mut records, mut flushed) = (Vec::new(), Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Span(span) => spans.push(*span),
                Item::Log(record) => records.push(*record),
                Item::Flush(done) => flushed.push(done),
            }
        }
        if !spans.is_empty() {
            self.send("traces", &spans::request(&self.resource, &spans))
                .await;
        }
        if !records.is_empty() {
            self.send("logs", &logs::request(&self.resource, &records))
                .await;
        }
        flushed
    }

    async fn send_metrics(&mut self, text: String) {
        let window = Window {
            start: self.started,
            now: SystemTime::now(),
        };
        self.send("metrics", &metrics::request(&self.resource, &text, window))
            .await;
    }

    /// Sends one request, with repetitions, and logs the first failure and the recovery.
    async fn send(&mut self, signal: &'static str, message: &Message) {
        let sent = self.attempts(signal, message).await;
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "spans and log records were lost: the queue of the export was full"
            );
        }
        match &sent {
            Ok(()) if self.failing => tracing::info!("the collector takes telemetry again"),
            Err(why) if !self.failing => {
                tracing::warn!(
                    signal,
                    why,
                    "the collector took no telemetry; until it does, telemetry is lost"
                );
            }
            _ => {}
        }
        self.failing = sent.is_err();
    }

    async fn attempts(&self, signal: &str, message: &Message) -> Result<(), String> {
        let body = match self.protocol {
            Protocol::Protobuf => message.to_protobuf(),
            Protocol::Json => message.to_json().to_string().into_bytes(),
        };
        let client = self
            .egress
            .single_step_client()
            .await
            .map_err(|error| error.to_string())?;
        let (url, mut wait) = (signal_url(&self.base, signal), REPEAT_WAIT);
        for attempt in 0.. {
            let (why, asked) = match self.once(&client, &url, body.clone()).await {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            };
            let Some(asked) = asked.filter(|_| attempt < MAX_REPEATS) else {
                return Err(why);
            };
            tokio::time::sleep(asked.unwrap_or(wait).min(MAX_WAIT)).await;
            wait *= 2;
        }
        Ok(())
    }

    /// Sends one request once.
    ///
    /// The error says why, and after which wait a repetition may help: `None` = it would not help,
    /// `Some(None)` = as we like (OTLP specification, "Retryable response codes").
    async fn once(
        &self,
        client: &Client,
        url: &Url,
        body: Vec<u8>,
    ) -> Result<(), (String, Option<Option<Duration>>)> {
        let request = client
            .post(url.clone())
            .headers(self.headers.clone())
            .timeout(self.timeout)
            .body(body);
        let response = request.send().await.map_err(|error| {
            let why = if error.is_timeout() {
                "no answer in time"
            } else {
                "it cannot be reached"
            };
            (why.to_owned(), Some(None))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let after = retry_after(|name| response.headers().get(name)?.to_str().ok());
        let passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err((format!("it answered {status}"), passing.then_some(after)))
    }
}
