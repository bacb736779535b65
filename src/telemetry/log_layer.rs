//! Layer of the log that exports what is logged.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use helmdeck_core::Correlation;
use helmdeck_core::trace::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::exporter::Queue;
use crate::logs::LogRecord;

/// Prefix of the targets that are not exported: what the export itself logs would be exported
/// forever.
const OWN: &str = "helmdeck_telemetry";

/// Layer that exports log records, once it is connected. Clones are one layer.
///
/// The log starts before the export, so until then records are only written to the log.
#[derive(Debug, Clone, Default)]
pub struct LogLayer(Arc<OnceLock<Queue>>);

impl LogLayer {
    pub(crate) fn connect(&self, queue: Queue) {
        // Fails only if it is connected already.
        let _ = self.0.set(queue);
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(queue) = self.0.get() else { return };
        let metadata = event.metadata();
        if metadata.target().starts_with(OWN) {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        queue.log(LogRecord {
            at: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            message: fields.message,
            fields: fields.others,
            correlation: Correlation::current(),
        });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.others.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value.to_owned().into());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
