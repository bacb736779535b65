//! A call of a pack by `tools/call`: run and written here, for every transport.
//!
//! The output of a pack is copied into the response, and never parsed.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use helmdeck_core::{Call, Correlation, Result, Span, Trace};
use helmdeck_engine::MemoryControl;
use helmdeck_memory::DeletePosition;
use parking_lot::Mutex;
use rmcp::model::{CreateTaskResult, ProgressNotificationParam, ProgressToken};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::message::{CallMeta, ToolCall};
use super::progress::{Report, Reports, reporting};
use super::span::Asked;
use super::state::{CallerContext, McpState};
use super::{answer, running, span, tasks};
use crate::position;

/// A call that was checked: the tool exists, the caller may run it, and the message is valid.
pub(crate) struct ToolRun {
    /// The call, or why its tool is not available.
    pub(crate) call: Result<Call>,
    /// Whether the pack is a long one.
    pub(crate) is_long: bool,
    pub(crate) becomes_task: bool,
    /// Whether results name their type (since revision 2026-07-28).
    pub(crate) typed: bool,
    pub(crate) progress: Option<ProgressToken>,
    /// Whether the pack writes.
    pub(crate) writes: bool,
    /// The position that the call must see.
    pub(crate) after: Option<DeletePosition>,
    /// The trace that its `_meta` names.
    pub(crate) trace: Option<Trace>,
    /// Request id and trace of the call.
    pub(super) correlation: Correlation,
    pub(super) span: Option<Span>,
    pub(super) is_traced: bool,
}

/// Returns the call of a pack from a plain message, `None` if rmcp has to check it. `bytes` is the
/// whole message.
///
/// Plain: the tool is a pack which the caller may run, the arguments are an object, nothing in
/// `_meta` is unknown, and no task is asked for. So a cache hit does not pay for a parse of the
/// whole message.
pub(crate) fn plain(
    mcp: &McpState,
    visit: &CallerContext,
    tool_call: &ToolCall<'_>,
    meta: CallMeta<'_>,
    bytes: &Bytes,
) -> Option<ToolRun> {
    let table = mcp.tables.current();
    let entry = table.get(&tool_call.name)?;
    // A long call may become a task; in a session only rmcp knows whether the client supports
    // tasks.
    let may_be_task = entry.is_long && !meta.declares_no_tasks();
    if entry.has_headers || may_be_task || visit.caller.need_run(&entry.pack).is_err() {
        return None;
    }
    let call = mcp.call(
        &visit.caller,
        entry,
        raw_arguments(tool_call, bytes)?,
        meta.cache,
    );
    let (is_long, typed) = (entry.is_long, meta.is_self_contained());
    let trace = meta.trace();
    let run = ToolRun::new(Ok(call), is_long, typed);
    Some(ToolRun {
        progress: meta.progress,
        writes: entry.writes(),
        after: meta.after,
        trace,
        ..run
    })
}

/// Returns the arguments as a slice of the message's bytes.
pub(crate) fn raw_arguments(tool_call: &ToolCall<'_>, bytes: &Bytes) -> Option<Bytes> {
    let text = tool_call.arguments()?;
    let inside = bytes.as_ptr_range().contains(&text.as_ptr());
    Some(if inside {
        bytes.slice_ref(text.as_bytes())
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    })
}

impl ToolRun {
    /// Makes a run that reports no progress and becomes no task.
    pub(crate) fn new(call: Result<Call>, is_long: bool, typed: bool) -> Self {
        let correlation = call
            .as_ref()
            .map_or_else(|_| Correlation::current(), |call| call.correlation.clone());
        Self {
            call,
            is_long,
            becomes_task: false,
            typed,
            progress: None,
            writes: false,
            after: None,
            trace: None,
            correlation,
            span: None,
            is_traced: false,
        }
    }

    /// Puts the run into the trace that the message names, and starts its span.
    pub(crate) fn begin(mut self, mcp: &McpState, asked: impl FnOnce() -> Asked) -> Self {
        if self.trace.is_none() && mcp.tracer.is_none() {
            return self;
        }
        self.is_traced = true;
        let named = self.trace.take();
        self.span = span::begin(
            mcp.tracer.as_ref(),
            &mut self.correlation,
            named,
            "tools/call",
            asked,
        );
        if let Ok(call) = &mut self.call {
            call.correlation = self.correlation.clone();
        }
        self
    }

    /// Returns whether the run has a trace that is not the current one.
    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Runs the call as [`Self::answer`] does, with its own request id and trace as the current
    /// ones.
    ///
    /// For tasks and for messages that name a trace.
    pub(crate) async fn answer_correlated(
        self,
        mcp: &McpState,
        id: &str,
        cancel: &CancellationToken,
        notify: Option<mpsc::Sender<Vec<u8>>>,
    ) -> Option<Vec<u8>> {
        let correlation = self.correlation.clone();
        correlation
            .scope(self.answer(mcp, id, cancel, notify))
            .await
    }

    /// Runs the call and returns the JSON-RPC response, `None` if it was cancelled.
    ///
    /// `id` is the id of the request as it was written. Progress goes to `notify`, always before
    /// the response.
    pub(crate) async fn answer(
        mut self,
        mcp: &McpState,
        id: &str,
        cancel: &CancellationToken,
        notify: Option<mpsc::Sender<Vec<u8>>>,
    ) -> Option<Vec<u8>> {
        let (typed, mut span) = (self.typed, self.span.take());
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(b",\"result\":");
        let done = tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            done = self.run(mcp, cancel, notify, &mut out) => done,
        };
        if let Err(error) = done {
            if let Some(span) = &mut span {
                span.fail("tool_error", error.code().as_str());
            }
            answer::write_failure(&error, typed, mcp.tables.current().names(), &mut out);
        }
        out.push(b'}');
        Some(out)
    }

    /// Runs the call and writes its result, unless it fails.
    ///
    /// A long pack runs as a job: it takes its turn in the queue and has only its own time limit.
    /// Most clients do not support tasks, and wait for it. Anonymous callers own no jobs, so theirs
    /// runs as an ordinary call.
    async fn run(
        self,
        mcp: &McpState,
        cancel: &CancellationToken,
        notify: Option<mpsc::Sender<Vec<u8>>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut call = self.call?;
        if let Some(after) = &self.after {
            call.behind = position::is_behind(&mcp.engine, after).await;
        }
        if self.becomes_task {
            let job = mcp.engine.submit(call).await?;
            answer::write(&CreateTaskResult::new(tasks::task(&job)), out);
            return Ok(());
        }
        call.cancel = Some(cancel.clone());
        let progress = self
            .progress
            .zip(notify)
            .map(|(token, notify)| (token, notify, Arc::new(Reports::default())));
        call.progress = progress
            .as_ref()
            .map(|(_, _, reports)| Arc::clone(reports) as _);
        let is_job = self.is_long && !call.identity.is_anonymous();
        let running = async {
            if is_job {
                running::as_job(&mcp.engine, call).await
            } else {
                mcp.engine.call(call).await
            }
        };
        let outcome = match progress {
            None => running.await?,
            Some((token, notify, reports)) => {
                // Sending fails if the client disconnected, which cancels the call.
                let send = |report| notify.send(notification(&token, report)).map(drop);
                reporting(&reports, send, running).await?
            }
        };
        let position = mcp
            .engine
            .memory()
            .filter(|_| self.writes)
            .and_then(MemoryControl::position);
        answer::write_outcome(&outcome, self.typed, position.as_ref(), out);
        Ok(())
    }
}

fn notification(token: &ProgressToken, report: Report) -> Vec<u8> {
    let mut params = ProgressNotificationParam::new(token.clone(), report.progress);
    params.total = report.total;
    params.message = Some(report.message).filter(|message| !message.is_empty());
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        .to_string()
        .into_bytes()
}

/// Takes a call that rmcp checked back to its transport, which runs it: rmcp cannot carry an output
/// without parsing it.
///
/// Its receiver fails if rmcp answers itself.
pub(crate) type Handback = Arc<Mutex<Option<oneshot::Sender<ToolRun>>>>;
