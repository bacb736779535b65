//! Spans: timed steps of a trace, recorded when they end.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::context::{TraceContext, state};

/// Receiver of ended spans.
pub trait Recorder: Send + Sync {
    /// Takes a span. Must not block.
    fn record(&self, span: SpanRecord);
}

/// Role of a span in its trace (`SpanKind` of OpenTelemetry).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A step inside this process.
    Internal,
    /// The answer to a request.
    Server,
    /// A request to another process.
    Client,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// An integer.
    Integer(i64),
    /// A truth value.
    Boolean(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Integer(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRecord {
    /// Name, of low cardinality.
    pub name: Cow<'static, str>,
    /// Role.
    pub kind: SpanKind,
    /// Its own position.
    pub context: TraceContext,
    /// Span id of its parent; `None` = it is the first of its trace.
    pub parent: Option<u64>,
    /// The `tracestate` that came with the trace.
    pub state: Option<Arc<str>>,
    /// Another position that it belongs to.
    pub link: Option<TraceContext>,
    /// When it started.
    pub start: SystemTime,
    /// When it ended. Never before `start`, also if the clock was set back.
    pub end: SystemTime,
    /// Attributes, each name once.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, in words that may be shown.
    pub error: Option<Cow<'static, str>>,
}

/// Trace of a call: a position, and where its spans are recorded. Cheap to clone.
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    context: TraceContext,
    state: Option<Arc<str>>,
    recorder: Option<Arc<dyn Recorder>>,
}

redacted_debug!(Trace, this => context = this.0.context);

impl Trace {
    /// Returns the trace that a caller named by `traceparent` and `tracestate`, `None` if it named
    /// none.
    ///
    /// A malformed `tracestate` is dropped alone.
    #[must_use]
    pub fn received(parent: &str, trace_state: Option<&str>) -> Option<Self> {
        let context = TraceContext::parse(parent)?;
        let state = trace_state.and_then(state).map(Arc::from);
        Some(Self(Arc::new(Inner {
            context,
            state,
            recorder: None,
        })))
    }

    pub(super) fn new(
        context: TraceContext,
        state: Option<Arc<str>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Self {
        Self(Arc::new(Inner {
            context,
            state,
            recorder,
        }))
    }

    /// Returns the position.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.0.context
    }

    /// Returns the `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.0.state.as_deref()
    }

    pub(super) fn shared_state(&self) -> Option<Arc<str>> {
        self.0.state.clone()
    }

    /// Returns whether spans of it are recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.recorder.is_some()
    }

    /// Starts a child span, `None` if spans are not recorded.
    #[must_use]
    pub fn span(&self, name: impl FnOnce() -> Cow<'static, str>, kind: SpanKind) -> Option<Span> {
        let recorder = Arc::clone(self.0.recorder.as_ref()?);
        let parent = Some(self.0.context.span_id);
        Some(Span::start(
            name(),
            kind,
            self.0.context.child(),
            parent,
            self.0.state.clone(),
            recorder,
        ))
    }
}

/// A span in progress. Dropping it ends it.
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    trace: Trace,
    started: Instant,
    /// `None` once it was recorded.
    record: Option<Box<SpanRecord>>,
}

redacted_debug!(Span, this => trace = this.trace);

impl Span {
    pub(super) fn start(
        name: Cow<'static, str>,
        kind: SpanKind,
        context: TraceContext,
        parent: Option<u64>,
        state: Option<Arc<str>>,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        let start = SystemTime::now();
        let record = SpanRecord {
            name,
            kind,
            context,
            parent,
            state: state.clone(),
            link: None,
            start,
            end: start,
            attributes: Vec::with_capacity(8),
            error: None,
        };
        let trace = Trace::new(context, state, Some(recorder));
        Self {
            trace,
            started: Instant::now(),
            record: Some(Box::new(record)),
        }
    }

    /// Returns the trace for what is done within this span.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.trace.clone()
    }

    /// Changes the name, for one that is known only later.
    pub fn rename(&mut self, name: String) {
        if let Some(record) = &mut self.record {
            record.name = name.into();
        }
    }

    /// Sets an attribute. The last value of a name counts.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        let Some(record) = &mut self.record else {
            return;
        };
        let value = value.into();
        match record
            .attributes
            .iter_mut()
            .find(|(known, _)| *known == name)
        {
            Some((_, known)) => *known = value,
            None => record.attributes.push((name, value)),
        }
    }

    /// Links another position, such as that of the transport.
    pub fn link(&mut self, other: TraceContext) {
        if let Some(record) = &mut self.record {
            record.link = Some(other);
        }
    }

    /// Marks it as failed: `kind` becomes `error.type`, `message` the description of the status.
    pub fn fail(&mut self, kind: impl Into<Value>, message: impl Into<Cow<'static, str>>) {
        self.set("error.type", kind);
        if let Some(record) = &mut self.record {
            record.error = Some(message.into());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(mut record), Some(recorder)) = (self.record.take(), &self.trace.0.recorder)
        else {
            return;
        };
        record.end = record.start + self.started.elapsed();
        recorder.record(*record);
    }
}
