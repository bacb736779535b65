//! Resources and their templates.

use helmdeck_core::Error;
use rmcp::RoleServer;
use rmcp::model::{
    ClientRequest, ErrorData, ListResourceTemplatesRequest, ListResourceTemplatesResult,
    ListResourcesRequest, ListResourcesResult, PaginatedRequestParams, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResponse, ServerResult,
};
use rmcp::service::RequestContext;

use super::{Agent, expect_kind, unexpected};
use crate::mcp::lists::{FOR_ALL, LIST_TTL_MS, OWN, page};
use crate::mcp::resources;
use crate::mcp::state::{CallerContext, rpc_error};

impl Agent {
    /// Lists the resources of a caller, then those of the embedder.
    pub(super) async fn listed_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        let mine = resources::list(&self.mcp, &visit.caller).await;
        let (page, next) = page(
            mine.iter(),
            |resource| resource.uri.as_str(),
            request.as_ref(),
            self.mcp.config.page_size,
        )?;
        let mut all: Vec<_> = page.into_iter().cloned().collect();
        let offers = self
            .mcp
            .extra
            .as_ref()
            .is_some_and(|extra| extra.info().capabilities.resources.is_some());
        if next.is_none() && offers {
            let more = ClientRequest::ListResourcesRequest(ListResourcesRequest::default());
            all.extend(
                expect_kind!(self.pass(more, context).await, ListResourcesResult)?.resources,
            );
        }
        let mut result = ListResourcesResult::with_all_items(all)
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(OWN);
        result.next_cursor = next;
        Ok(result)
    }

    /// Lists the templates of resources.
    pub(super) async fn listed_templates(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut all = resources::templates(&self.mcp);
        let offers = self
            .mcp
            .extra
            .as_ref()
            .is_some_and(|extra| extra.info().capabilities.resources.is_some());
        let scope = if offers { OWN } else { FOR_ALL };
        if offers {
            let more = ClientRequest::ListResourceTemplatesRequest(
                ListResourceTemplatesRequest::default(),
            );
            all.extend(
                expect_kind!(self.pass(more, context).await, ListResourceTemplatesResult)?
                    .resource_templates,
            );
        }
        Ok(ListResourceTemplatesResult::with_all_items(all)
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(scope))
    }

    /// Reads a resource of a caller, or of the embedder.
    pub(super) async fn resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        let reading = resources::read(&self.mcp, &visit.caller, &request.uri);
        match tokio::time::timeout(self.mcp.deadline, reading).await {
            Ok(Ok(Some(result))) => return Ok(result.into()),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(rpc_error(&error)),
            Err(_) => {
                return Err(rpc_error(&Error::new(
                    helmdeck_core::Code::Timeout,
                    "the resource took too long",
                )));
            }
        }
        let unknown = || {
            ErrorData::resource_not_found(
                "there is no such resource",
                Some(serde_json::json!({"uri": request.uri})),
            )
        };
        let passed = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(request.clone()));
        match self.ask(passed, context).await {
            None => Err(unknown()),
            Some(Ok(ServerResult::ReadResourceResult(result))) => Ok(result.into()),
            Some(Ok(ServerResult::InputRequiredResult(result))) => Ok(result.into()),
            Some(Ok(_)) => Err(unexpected()),
            Some(Err(error)) => Err(error),
        }
    }
}
