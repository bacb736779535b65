//! Tools: packs by their names, and those of the embedder.

use helmdeck_core::Error;
use helmdeck_memory::DeletePosition;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest,
    ErrorData, ListToolsRequest, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerJsonRpcMessage, ServerResult, Tool,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::{Agent, expect_kind, unexpected};
use crate::mcp::answer::{AFTER, CACHE};
use crate::mcp::call::ToolRun;
use crate::mcp::lists::{LIST_TTL_MS, OWN, page};
use crate::mcp::state::{CallerContext, rpc_error};
use crate::mcp::wish::CacheWish;
use crate::position;

impl Agent {
    /// Lists the tools that a caller may see, then those of the embedder.
    pub(super) async fn listed_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        // Wait a few seconds for servers that were not asked for their tools yet: most clients list
        // once.
        let whole = Box::pin(self.mcp.engine.packs_settled()).await;
        let table = self.mcp.tables.current();
        let visible = table.visible(&visit.caller);
        let (entries, next) = page(
            visible,
            |entry| entry.tool.name.as_ref(),
            request.as_ref(),
            self.mcp.config.page_size,
        )?;
        let mut tools: Vec<Tool> = entries
            .into_iter()
            .map(|entry| entry.tool.clone())
            .collect();
        let offers_tools = self
            .mcp
            .extra
            .as_ref()
            .is_some_and(|extra| extra.info().capabilities.tools.is_some());
        if next.is_none() && offers_tools {
            let more = ClientRequest::ListToolsRequest(ListToolsRequest::default());
            tools.extend(expect_kind!(self.pass(more, context).await, ListToolsResult)?.tools);
        }
        let ttl = if whole { LIST_TTL_MS } else { 0 };
        let mut result = ListToolsResult::with_all_items(tools)
            .with_ttl_ms(ttl)
            .with_cache_scope(OWN);
        result.next_cursor = next;
        Ok(result)
    }

    /// Hands a call of a pack back to the transport; the embedder answers the others.
    pub(super) async fn called_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        let back = visit.back.as_ref().and_then(|back| back.lock().take());
        let missing = Box::pin(self.mcp.await_tool(&visit.caller, &request.name))
            .await
            .err();
        let is_ours = missing.is_some() || self.mcp.tool(&visit.caller, &request.name).is_ok();
        if is_ours || self.mcp.extra.is_none() {
            let run = self.check(&request, missing, &context)?;
            if let Some(back) = back {
                // Fails if the client disconnected.
                let _ = back.send(run);
            }
            return Ok(handed_back());
        }
        // The embedder answers.
        drop(back);
        match self
            .pass(
                ClientRequest::CallToolRequest(CallToolRequest::new(request)),
                context,
            )
            .await?
        {
            ServerResult::CallToolResult(result) => Ok(result.into()),
            ServerResult::InputRequiredResult(result) => Ok(result.into()),
            _ => Err(unexpected()),
        }
    }

    /// Checks a call of a pack and returns it, for the transport to run. `missing` is why its
    /// server has no tools.
    fn check(
        &self,
        request: &CallToolRequestParams,
        missing: Option<Error>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolRun, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        let after = context.meta.get(AFTER).map(read_position).transpose()?;
        let (call, is_long, writes) = match missing {
            Some(error) => (Err(error), false, false),
            None => {
                let entry = self.mcp.tool(&visit.caller, &request.name)?;
                let wish = context
                    .meta
                    .get(CACHE)
                    .map_or_else(|| Ok(CacheWish::default()), read_wish)?;
                let arguments = visit.arguments.clone().unwrap_or_default();
                (
                    Ok(self.mcp.call(&visit.caller, &entry, arguments, wish)),
                    entry.is_long,
                    entry.writes(),
                )
            }
        };
        // Anonymous callers cannot be distinguished when they ask for their task.
        let becomes_task = is_long
            && !visit.caller.identity.is_anonymous()
            && context
                .client_capabilities()
                .is_some_and(|able| able.supports_tasks());
        let typed = ProtocolVersion::V_2026_07_28;
        let typed = context
            .protocol_version()
            .is_some_and(|revision| revision.as_str() >= typed.as_str());
        let progress = context.meta.get_progress_token().filter(|_| !becomes_task);
        Ok(ToolRun {
            becomes_task,
            progress,
            writes,
            after,
            ..ToolRun::new(call, is_long, typed)
        })
    }
}

fn read_position(value: &Value) -> Result<DeletePosition, ErrorData> {
    let name = format!("_meta[\"{AFTER}\"]");
    position::parse(&name, value.as_str().unwrap_or_default()).map_err(|error| rpc_error(&error))
}

fn read_wish(wish: &Value) -> Result<CacheWish, ErrorData> {
    serde_json::from_value(wish.clone()).map_err(|_| {
        ErrorData::invalid_params(
            "_meta[\"helmdeck/cache\"] must be {directive?: default | bypass | refresh | only_if_cached, \
             max_age?: seconds, max_stale?: seconds}",
            None,
        )
    })
}

/// Key in `_meta` of a result that the transport drops.
const HANDED_BACK: &str = "helmdeck/handed_back";

fn handed_back() -> CallToolResponse {
    let mut result = CallToolResult::success(Vec::new());
    result
        .meta
        .get_or_insert_default()
        .0
        .insert(HANDED_BACK.to_owned(), true.into());
    result.into()
}

/// Says whether a message is the result of a call that was handed back to the transport.
pub(crate) fn is_handed_back(message: &ServerJsonRpcMessage) -> bool {
    let ServerJsonRpcMessage::Response(response) = message else {
        return false;
    };
    let ServerResult::CallToolResult(result) = &response.result else {
        return false;
    };
    result
        .meta
        .as_ref()
        .is_some_and(|meta| meta.0.contains_key(HANDED_BACK))
}
