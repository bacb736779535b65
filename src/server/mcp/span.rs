//! Trace of one MCP message: from its `_meta` (SEP-414), else from the transport.
//!
//! Names and attributes are those of OpenTelemetry's conventions for MCP
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/>). Session ids are left out: who has
//! one may use it.

use helmdeck_core::trace::SpanKind;
use helmdeck_core::{Correlation, Span, Trace, Tracer};

/// The methods that get a span. Others would let clients make names.
const METHODS: &[&str] = &[
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// Facts about a message that its span shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) id: String,
    /// The tool of a `tools/call`, which exists.
    pub(crate) tool: Option<String>,
    pub(crate) revision: Option<String>,
    /// Whether the transport is HTTP; otherwise it is a pipe.
    pub(crate) http: bool,
}

/// Puts the trace of a message into `correlation`, and starts its span if spans are made.
///
/// The trace of the message comes first; the transport's is then linked.
pub(crate) fn begin(
    tracer: Option<&Tracer>,
    correlation: &mut Correlation,
    named: Option<Trace>,
    method: &str,
    asked: impl FnOnce() -> Asked,
) -> Option<Span> {
    let transport = correlation.trace.take();
    let parent = named.clone().or_else(|| transport.clone());
    let known = METHODS.iter().find(|known| **known == method);
    let (Some(tracer), Some(method)) = (tracer, known) else {
        correlation.trace = parent;
        return None;
    };
    let (trace, span) = tracer.start(parent.as_ref(), || (*method).into(), SpanKind::Server);
    correlation.trace = Some(trace);
    let mut span = span?;
    let asked = asked();
    span.set("mcp.method.name", *method);
    if let Some(tool) = asked.tool {
        span.rename(format!("{method} {tool}"));
        span.set("gen_ai.tool.name", tool);
        span.set("gen_ai.operation.name", "execute_tool");
    }
    span.set("jsonrpc.request.id", asked.id);
    span.set("network.transport", if asked.http { "tcp" } else { "pipe" });
    if asked.http {
        span.set("network.protocol.name", "http");
    }
    if let Some(revision) = asked.revision {
        span.set("mcp.protocol.version", revision);
    }
    if let Some(id) = &correlation.request_id {
        span.set("helmdeck.request_id", id.to_string());
    }
    if let (Some(_), Some(transport)) = (named, transport) {
        span.link(transport.context());
    }
    Some(span)
}
