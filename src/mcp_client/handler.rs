//! Handlers of kind `mcp`: call one tool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::trace::SpanKind;
use helmdeck_core::{
    Caching, Code, Context, Correlation, Error, Handler, Json, Reply, Result, Secret, Upstream,
};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientRequest, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions};
use serde_json::{Map, Value};

use super::client::redacted;
use super::connection::{Connection, InUse};
use super::failure;
use super::server::Server;

/// Handler of a pack that calls a tool.
pub(crate) struct McpHandler {
    pub(crate) server: Arc<Server>,
    pub(crate) tool: String,
    /// Digest of the tool from which the pack was made.
    pub(crate) digest: Vec<u8>,
}

#[async_trait]
impl Handler for McpHandler {
    fn upstream(&self) -> Option<Upstream> {
        Some(Upstream {
            name: format!("mcp.{}", self.server.name()),
            keep_quota: 0,
        })
    }

    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let arguments = match input.to_value() {
            Value::Object(arguments) => arguments,
            _ => {
                return Err(Error::new(
                    Code::InvalidInput,
                    "the arguments of a tool are a JSON object",
                ));
            }
        };
        // Requested for the caller, so that the answer is redacted and the use is recorded.
        if let Some(secrets) = &context.secrets {
            for name in self.server.config.credentials() {
                secrets.get(&name)?;
            }
        }
        let result = self.call(&context, arguments).await;
        self.server.metrics.called(&result);
        result
    }
}

impl McpHandler {
    async fn call(&self, context: &Context, arguments: Map<String, Value>) -> Result<Reply> {
        let (connection, _in_use) = self.connect().await?;
        // Connecting listed the tools again. Input that was checked against the old contract must
        // not reach the new tool.
        if self
            .server
            .digest(&self.tool)
            .is_none_or(|now| now != self.digest)
        {
            let name = self.server.name();
            let message = format!(
                "tool \"{}\" of MCP server \"{name}\" has changed; call it again",
                self.tool
            );
            return Err(Error::new(Code::Conflict, message));
        }
        let result = self.ask(&connection, context, arguments).await?;
        // Variables of the server's environment are not credentials of the call, so they are
        // redacted here.
        let output = self.output(&result, &connection.secrets)?;
        let reply = match helmdeck_redact::bytes(&output, &connection.secrets) {
            std::borrow::Cow::Borrowed(_) => Reply::json(Json::from_trusted(output.into())),
            std::borrow::Cow::Owned(clean) => {
                let holds =
                    |_| Error::new(Code::InvalidOutput, "the answer of the tool holds a secret");
                Reply::json(Json::parse(clean).map_err(holds)?).no_store()
            }
        };
        Ok(reply.with_caching(caching(&result)))
    }

    async fn connect(&self) -> Result<(Arc<Connection>, InUse)> {
        // On a slow machine a new connection would be idle for too long before this call got it.
        let _waiting = self.server.wait();
        loop {
            let connection = self.server.connection().await?;
            let in_use = connection.in_use();
            // It may have been stopped as idle a moment ago. Then a new one is made.
            if connection.is_open() {
                return Ok((connection, in_use));
            }
            drop(in_use);
            if let Some(ended) = connection.why_ended().await
                && self.server.left_alone().is_zero()
            {
                tracing::debug!(
                    mcp.server = self.server.name(),
                    why = ended.why,
                    "connecting again"
                );
            }
        }
    }

    async fn ask(
        &self,
        connection: &Arc<Connection>,
        context: &Context,
        arguments: Map<String, Value>,
    ) -> Result<CallToolResult> {
        let name = self.server.name();
        let params = CallToolRequestParams::new(self.tool.clone()).with_arguments(arguments);
        let request = CallToolRequest::new(params).into();
        let mut correlation = context.correlation.clone();
        let mut span = correlation.begin_span(
            || format!("tools/call {}", self.tool).into(),
            SpanKind::Client,
        );
        if let Some(span) = &mut span {
            span.set("mcp.method.name", "tools/call");
            span.set("gen_ai.operation.name", "execute_tool");
            span.set("gen_ai.tool.name", self.tool.clone());
            span.set("helmdeck.mcp.server", name.to_owned());
        }
        let result = self
            .send(connection, context, request, traced(&correlation))
            .await;
        if let (Some(span), Err(error)) = (&mut span, &result) {
            // The message may hold text of the server, which is not redacted of the caller's
            // secrets yet.
            span.fail(error.code().as_str(), "");
        }
        result
    }

    /// Sends the request of a call and waits for its result.
    async fn send(
        &self,
        connection: &Arc<Connection>,
        context: &Context,
        request: ClientRequest,
        options: PeerRequestOptions,
    ) -> Result<CallToolResult> {
        let name = self.server.name();
        let doing = format!("tool \"{}\" ran", self.tool);
        let sent = connection
            .peer
            .send_cancellable_request(request, options)
            .await;
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(failure::of_request(name, &doing, error, connection).await),
        };
        let _listening = context.progress.clone().map(|sink| {
            connection
                .client
                .listeners
                .add(handle.progress_token.clone(), sink)
        });
        let mut guard = CancelOnDrop {
            request: Some((connection.peer.clone(), handle.id.clone())),
        };
        let answer = handle.await_response().await;
        guard.request = None;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(result),
            Ok(ServerResult::InputRequiredResult(_)) => Err(Error::new(
                Code::HandlerFailed,
                format!(
                    "tool \"{}\" of MCP server \"{name}\" asks for more input, which is not supported",
                    self.tool
                ),
            )),
            Ok(_) => Err(Error::new(
                Code::HandlerFailed,
                format!(
                    "tool \"{}\" of MCP server \"{name}\" answered with something that is no result",
                    self.tool
                ),
            )),
            Err(error) => Err(failure::of_request(name, &doing, error, connection).await),
        }
    }

    /// Returns the output of a result.
    ///
    /// It is the structured content if that is an object, else `{"content": [...]}`, with
    /// structured content of another type beside it.
    fn output(&self, result: &CallToolResult, secrets: &[Secret]) -> Result<Vec<u8>> {
        if result.is_error == Some(true) {
            let text: Vec<&str> = result
                .content
                .iter()
                .filter_map(|block| Some(block.as_text()?.text.as_str()))
                .collect();
            let text = text.join("\n");
            let message = format!(
                "tool \"{}\" failed: {}",
                self.tool,
                redacted(text.trim(), secrets)
            );
            return Err(Error::new(Code::HandlerFailed, message));
        }
        let written = match &result.structured_content {
            Some(object @ Value::Object(_)) => serde_json::to_vec(object),
            Some(other) => serde_json::to_vec(
                &serde_json::json!({"content": result.content, "structuredContent": other}),
            ),
            None => serde_json::to_vec(&serde_json::json!({"content": result.content})),
        };
        let output = written.map_err(|error| {
            Error::new(Code::Internal, "the answer of the tool cannot be written")
                .with_source(error)
        })?;
        let limit = self.server.config.max_output_bytes;
        if output.len() as u64 > limit {
            let message = format!(
                "tool \"{}\" answered with {} bytes, the limit is {limit}",
                self.tool,
                output.len()
            );
            return Err(Error::new(Code::InvalidOutput, message));
        }
        Ok(output)
    }
}

/// Returns what the server says about storing a result, in its `_meta`.
///
/// `ttlMs` and `cacheScope` have the meaning that they have for lists (SEP-2549); `cache_hint` is
/// that of SEP-2419.
fn caching(result: &CallToolResult) -> Caching {
    let said = |name: &str| result.meta.as_ref()?.get(name);
    let fresh_for = said("ttlMs")
        .and_then(Value::as_u64)
        .map(Duration::from_millis);
    Caching {
        no_store: said("cache_hint").is_some_and(|hint| hint == "no-cache"),
        private: said("cacheScope").is_some_and(|scope| scope == "private"),
        fresh_for,
        fresh_for_all: fresh_for,
        at_most: fresh_for,
    }
}

/// Returns the options of a request whose `_meta` names the trace (SEP-414).
fn traced(correlation: &Correlation) -> PeerRequestOptions {
    let options = PeerRequestOptions::no_options();
    let Some(trace) = &correlation.trace else {
        return options;
    };
    let mut meta = RequestMetaObject::new();
    meta.set_traceparent(trace.context().to_string());
    if let Some(state) = trace.state() {
        meta.set_tracestate(state);
    }
    options.with_meta(meta)
}

/// Guard that cancels the request at the server if it is dropped: the call was cancelled, or timed
/// out.
struct CancelOnDrop {
    request: Option<(Peer<RoleClient>, RequestId)>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some((peer, id)), Ok(runtime)) =
            (self.request.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            let cancelled = CancelledNotificationParam::new(
                Some(id),
                Some("nobody waits for the answer".to_owned()),
            );
            // Fails only if the connection is gone, and the request with it.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}
