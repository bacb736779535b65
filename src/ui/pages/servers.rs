//! MCP servers whose tools are packs: their states, and a restart.

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::Method;

use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::segment;
use crate::shown;

const ROUTE: &str = "/api/v1/mcp/servers";

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/servers", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/servers/{name}/restart",
            form_at(|post| Box::pin(restart(post))),
        )
}

answer! {
    /// State of a server.
    #[derive(Debug)]
    struct McpServer {
        name: String,
        kind: String,
        state: String,
        server: String,
        protocol: String,
        listed: Option<u64>,
        remembered: bool,
        tools: Vec<String>,
        starts: u64,
        crashes: u64,
        error: Option<String>,
    }

    #[derive(Debug)]
    struct McpServerList {
        servers: Vec<McpServer>,
    }
}

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    frame: Frame,
    done: String,
    servers: Vec<McpServer>,
}

crate::frame::framed!(ServersPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let answer = async {
        let list: McpServerList = ui.rest.get(&caller, ROUTE).await?;
        Ok(page(&ServersPage {
            frame: Frame::new("Servers", Place::Servers, &caller, &ui)
                .live("view=page&topics=stats,server"),
            done: super::State::of(&query).done(&ui, &caller),
            servers: list.servers,
        }))
    };
    answered(&ui, &caller, Place::Servers, answer.await)
}

async fn restart(Post { ui, path, sent }: Post) -> Response {
    let name = path_value(&path, "name");
    match ui
        .rest
        .send(
            &sent.caller,
            Method::POST,
            &format!("{ROUTE}/{}/restart", segment(name)),
            None,
        )
        .await
    {
        Ok(_) => done(
            &ui,
            &sent.caller,
            "/ui/servers",
            &format!("{name} was restarted, and is up."),
        ),
        Err(failure) => failed(&ui, &sent.caller, Place::Servers, &failure),
    }
}
