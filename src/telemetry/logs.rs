//! Log records as `ExportLogsServiceRequest`.

use std::time::SystemTime;

use helmdeck_core::Correlation;
use helmdeck_core::trace::Value;
use tracing::Level;

use crate::message::Message;
use crate::spans::{attribute, nanos, scope, text_attribute};

/// One line of the log.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) at: SystemTime,
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) message: String,
    pub(crate) fields: Vec<(&'static str, Value)>,
    pub(crate) correlation: Correlation,
}

/// Returns the request that exports these records.
pub(crate) fn request(resource: &Message, records: &[LogRecord]) -> Message {
    let scope = Message::default().message(1, "scope", scope()).messages(
        2,
        "logRecords",
        records.iter().map(record).collect(),
    );
    let resource = Message::default()
        .message(1, "resource", resource.clone())
        .messages(2, "scopeLogs", vec![scope]);
    Message::default().messages(1, "resourceLogs", vec![resource])
}

fn record(log: &LogRecord) -> Message {
    let mut attributes: Vec<Message> = log
        .fields
        .iter()
        .map(|(name, value)| attribute(name, value))
        .collect();
    attributes.push(text_attribute("log.target", &log.target));
    if let Some(id) = &log.correlation.request_id {
        attributes.push(text_attribute("helmdeck.request_id", &id.to_string()));
    }
    let at = nanos(log.at);
    let mut record = Message::default()
        .fixed64(1, "timeUnixNano", at)
        .small(2, "severityNumber", severity(log.level))
        .text(3, "severityText", log.level.as_str())
        .message(
            5,
            "body",
            Message::default().text(1, "stringValue", log.message.as_str()),
        )
        .messages(6, "attributes", attributes)
        .fixed64(11, "observedTimeUnixNano", at);
    if let Some(trace) = &log.correlation.trace {
        let context = trace.context();
        record = record
            .fixed32(8, "flags", u32::from(context.sampled))
            .id(9, "traceId", &context.trace_id.to_be_bytes())
            .id(10, "spanId", &context.span_id.to_be_bytes());
    }
    record
}

/// Returns the `SeverityNumber`.
const fn severity(level: Level) -> u32 {
    match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    }
}
