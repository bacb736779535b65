//! Prompts: those of the project, and those of the embedder.

use helmdeck_core::Error;
use rmcp::RoleServer;
use rmcp::model::{
    ClientRequest, ErrorData, GetPromptRequest, GetPromptRequestParams, GetPromptResponse,
    ListPromptsRequest, ListPromptsResult, PaginatedRequestParams, RequestOptionalParam,
    ServerResult,
};
use rmcp::service::RequestContext;

use super::{Agent, expect_kind, unexpected};
use crate::mcp::lists::{LIST_TTL_MS, OWN};
use crate::mcp::prompts;
use crate::mcp::state::{CallerContext, rpc_error};

impl Agent {
    /// Lists the prompts of a caller, then those of the embedder.
    pub(super) async fn listed_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        let is_first = request
            .as_ref()
            .is_none_or(|request| request.cursor.is_none());
        let mine = if is_first {
            prompts::list(&self.mcp, &visit.caller)
        } else {
            Vec::new()
        };
        let wanted = ListPromptsRequest {
            params: request,
            ..RequestOptionalParam::default()
        };
        let offers = self
            .mcp
            .extra
            .as_ref()
            .is_some_and(|extra| extra.info().capabilities.prompts.is_some());
        if !offers && prompts::are_offered(&self.mcp) {
            return Ok(ListPromptsResult::with_all_items(mine)
                .with_ttl_ms(LIST_TTL_MS)
                .with_cache_scope(OWN));
        }
        let mut all = expect_kind!(
            self.pass(ClientRequest::ListPromptsRequest(wanted), context)
                .await,
            ListPromptsResult
        )?;
        all.prompts.splice(0..0, mine);
        Ok(all)
    }

    /// Returns a prompt of a caller, or of the embedder.
    pub(super) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let visit = CallerContext::of(&context.extensions)?;
        let prompt = prompts::get(
            &self.mcp,
            &visit.caller,
            &request.name,
            request.arguments.as_ref(),
        );
        match tokio::time::timeout(self.mcp.deadline, prompt).await {
            Ok(Ok(Some(prompt))) => return Ok(prompt.into()),
            Ok(Ok(None)) if self.mcp.extra.is_none() && prompts::are_offered(&self.mcp) => {
                return Err(ErrorData::invalid_params(
                    format!("there is no prompt {:?}", request.name),
                    None,
                ));
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(rpc_error(&error)),
            Err(_) => {
                return Err(rpc_error(&Error::new(
                    helmdeck_core::Code::Timeout,
                    "the prompt took too long",
                )));
            }
        }
        match self
            .pass(
                ClientRequest::GetPromptRequest(GetPromptRequest::new(request)),
                context,
            )
            .await?
        {
            ServerResult::GetPromptResult(result) => Ok(result.into()),
            ServerResult::InputRequiredResult(result) => Ok(result.into()),
            _ => Err(unexpected()),
        }
    }
}
