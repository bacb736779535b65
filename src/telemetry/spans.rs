//! Spans as `ExportTraceServiceRequest`.

use std::time::{SystemTime, UNIX_EPOCH};

use helmdeck_core::trace::{SpanKind, SpanRecord, TraceContext, Value};

use crate::message::Message;

/// `STATUS_CODE_ERROR`.
const ERROR: u32 = 2;
/// Flags: bit 0 = sampled.
const SAMPLED: u32 = 1;

/// Returns the request that exports these spans.
pub(crate) fn request(resource: &Message, spans: &[SpanRecord]) -> Message {
    let scope = Message::default().message(1, "scope", scope()).messages(
        2,
        "spans",
        spans.iter().map(span).collect(),
    );
    let resource = Message::default()
        .message(1, "resource", resource.clone())
        .messages(2, "scopeSpans", vec![scope]);
    Message::default().messages(1, "resourceSpans", vec![resource])
}

fn span(record: &SpanRecord) -> Message {
    let mut span = ids(Message::default(), record.context)
        .text(3, "traceState", record.state.as_deref().unwrap_or_default())
        .text(5, "name", record.name.as_ref())
        .small(6, "kind", kind(record.kind))
        .fixed64(7, "startTimeUnixNano", nanos(record.start))
        .fixed64(8, "endTimeUnixNano", nanos(record.end))
        .messages(
            9,
            "attributes",
            record
                .attributes
                .iter()
                .map(|(name, value)| attribute(name, value))
                .collect(),
        )
        .fixed32(16, "flags", SAMPLED);
    if let Some(parent) = record.parent {
        span = span.id(4, "parentSpanId", &parent.to_be_bytes());
    }
    if let Some(link) = record.link {
        span = span.messages(13, "links", vec![ids(Message::default(), link)]);
    }
    if let Some(error) = &record.error {
        let status = Message::default()
            .text(2, "message", error.as_ref())
            .small(3, "code", ERROR);
        span = span.message(15, "status", status);
    }
    span
}

fn ids(message: Message, context: TraceContext) -> Message {
    message
        .id(1, "traceId", &context.trace_id.to_be_bytes())
        .id(2, "spanId", &context.span_id.to_be_bytes())
}

const fn kind(kind: SpanKind) -> u32 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    }
}

/// Returns the `InstrumentationScope`.
pub(crate) fn scope() -> Message {
    Message::default()
        .text(1, "name", "helmdeck")
        .text(2, "version", env!("CARGO_PKG_VERSION"))
}

/// Returns a `KeyValue`.
pub(crate) fn attribute(name: &str, value: &Value) -> Message {
    let value = match value {
        Value::Text(text) => return text_attribute(name, text),
        Value::Integer(number) => Message::default().integer(3, "intValue", *number),
        Value::Boolean(value) => Message::default().boolean(2, "boolValue", *value),
    };
    Message::default()
        .text(1, "key", name)
        .message(2, "value", value)
}

/// Returns a `KeyValue` of text.
pub(crate) fn text_attribute(name: &str, text: &str) -> Message {
    let value = Message::default().text(1, "stringValue", text);
    Message::default()
        .text(1, "key", name)
        .message(2, "value", value)
}

/// Returns nanoseconds since 1970; 0 before.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
