//! Routes of the MCP servers whose tools are packs: their states, and a restart. For
//! administrators.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::Permission;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::{Problems, json};
use super::request::PathValues;
use super::state::EngineState;
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(restart))
}

/// Lists the configured MCP servers by name: state, tools, starts and crashes.
#[utoipa::path(get, path = "/api/v1/mcp/servers", tag = "operations", operation_id = "list_mcp_servers",
    responses((status = 200, description = "The servers", body = ref("#/components/schemas/McpServerList")), Problems))]
async fn list(State(state): State<EngineState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    json(&serde_json::json!({ "servers": state.engine.mcp_servers() }))
}

/// Ends the connection to an MCP server, opens a new one, and lists its tools again.
///
/// Calls in progress finish on the old connection. A wait after a failure is cut short.
#[utoipa::path(post, path = "/api/v1/mcp/servers/{name}/restart", tag = "operations", operation_id = "restart_mcp_server",
    params(("name" = String, Path, description = "The server's name in `[[mcp.servers]]`")),
    responses(
        (status = 200, description = "It is up", body = ref("#/components/schemas/McpServer")),
        (status = 404, description = "Server not found"),
        Problems,
    ))]
async fn restart(
    State(state): State<EngineState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let name = path.value("name");
    state
        .limits
        .in_time(state.engine.restart_mcp_server(name))
        .await??;
    json(
        &state
            .engine
            .mcp_servers()
            .into_iter()
            .find(|server| server.name == name),
    )
}
