//! Traces: the W3C trace context of a call, and spans of it.
//!
//! A trace context is passed on whether or not anything is recorded. Spans are recorded only if the
//! operator set a collector: a transport then starts them with a [`Tracer`]. Everything further in
//! makes children of what it was given, so without a collector no span is made.

mod context;
mod span;
mod tracer;

pub use context::{TraceContext, TraceId};
pub use span::{Recorder, Span, SpanKind, SpanRecord, Trace, Value};
pub use tracer::Tracer;
