//! Extension of the transport by an embedder.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, JsonObject, ListPromptsResult,
    ListToolsResult, PaginatedRequestParams, Prompt, PromptMessage, PromptsCapability, Role,
    ServerCapabilities, ServerConfig, Tool, ToolsCapability,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};

use super::*;

struct Own;

impl ServerHandler for Own {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools_with(ToolsCapability::default())
            .enable_prompts_with(PromptsCapability::default())
            .build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![Tool::new(
            "own",
            "Its own",
            JsonObject::new(),
        )]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != "own" {
            return Err(ErrorData::invalid_params("not mine", None));
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("own")]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new(
            "ask",
            Some("Asks"),
            None,
        )]))
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, "well?")]).into())
    }
}

#[tokio::test]
async fn an_embedder_answers_what_packs_do_not() {
    let fixture = Fixture::plain().await;
    let (config, clock) = (
        crate::ServerConfig::default(),
        Arc::clone(&fixture.clock) as _,
    );
    let mcp = Mcp::new(
        fixture.engine.clone(),
        &config,
        McpConfig::default(),
        clock,
        Some(Arc::new(Own)),
        None,
        None,
    );
    let local = Caller::local();
    let session = begin_as(&mcp, &local).await.unwrap();
    let ask = async |method: &str, params: Value| {
        message(&ask_as(&mcp, &local, &session, method, params).await)
    };
    let list = ask("tools/list", json!({})).await;
    let names: Vec<&Value> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["test__cached", "test__plain", "test__write", "own"]);
    assert_eq!(
        ask("tools/call", json!({"name": "own"})).await["result"]["content"][0]["text"],
        "own"
    );
    assert_eq!(
        ask("tools/call", json!({"name": "test__plain"})).await["result"]["isError"],
        false
    );
    assert_eq!(
        ask("tools/call", json!({"name": "none"})).await["error"]["message"],
        "not mine"
    );
    assert_eq!(
        ask("prompts/list", json!({})).await["result"]["prompts"][0]["name"],
        "ask"
    );
    let prompt = ask("prompts/get", json!({"name": "ask"})).await;
    assert_eq!(
        prompt["result"]["messages"][0]["content"]["text"], "well?",
        "{prompt}"
    );
}

#[tokio::test]
async fn without_an_embedder_there_are_no_prompts() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    for method in [
        "prompts/list",
        "logging/setLevel",
        "completion/complete",
        "tasks/list",
        "x/y",
    ] {
        let params = json!({"level": "info", "ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": ""}});
        let answer = ask(&fixture, &session, method, params).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}
