//! Fast path for a `tools/call` of a pack: from request bytes to response bytes.
//!
//! It takes only plain calls: a tool that is a pack which the caller may run, arguments that are an object, nothing
//! unknown in `_meta`. rmcp handles and refuses everything else.

use std::sync::Arc;

use bytes::Bytes;
use helmdeck_core::Call;

use super::message::{CallMeta, Id, ToolCall};
use super::state::{CallerContext, McpState};

/// A valid call.
pub(crate) struct Direct {
    pub(crate) call: Call,
    /// Whether the pack is a long one.
    is_long: bool,
    /// The id of the request, as it was written.
    id: Box<str>,
    /// Whether results name their type (since revision 2026-07-28).
    typed: bool,
}

/// Returns the call of a pack, `None` if rmcp has to handle it. `bytes` is the whole message.
pub(crate) fn plain(
    mcp: &McpState,
    visit: &CallerContext,
    id: &Id<'_>,
    tool_call: &ToolCall<'_>,
    meta: &CallMeta<'_>,
    bytes: &Bytes,
) -> Option<Direct> {
    if meta.wants_progress() {
        return None;
    }
    let table = mcp.tables.current();
    let entry = table.get(&tool_call.name)?;
    // A long call may become a task; in a session only rmcp knows whether the client supports tasks.
    let may_be_task = entry.is_long && !meta.declares_no_tasks();
    if entry.has_headers || may_be_task || visit.caller.need_run(&entry.pack).is_err() {
        return None;
    }
    let arguments = raw_arguments(tool_call, bytes)?;
    let call = mcp.call(&visit.caller, entry, arguments, meta.cache);
    Some(Direct { call, is_long: entry.is_long, id: id.text.into(), typed: meta.is_self_contained() })
}

/// Returns the arguments as a slice of the message's bytes.
pub(crate) fn raw_arguments(tool_call: &ToolCall<'_>, bytes: &Bytes) -> Option<Bytes> {
    let text = tool_call.arguments()?;
    let inside = bytes.as_ptr_range().contains(&text.as_ptr());
    Some(if inside { bytes.slice_ref(text.as_bytes()) } else { Bytes::copy_from_slice(text.as_bytes()) })
}

impl Direct {
    /// Runs the call and returns the JSON-RPC response.
    pub(crate) async fn answer(self, mcp: &Arc<McpState>) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(b",\"result\":");
        mcp.run(self.call, self.is_long, self.typed, &mut out).await;
        out.push(b'}');
        out
    }
}
