//! Protocol tests of the MCP transport, per revision; byte for byte where it matters.

mod bounds;
mod calls;
mod cancels;
mod changes;
mod extras;
mod hidden;
mod http;
mod rates;
mod readings;
mod scopes;
mod sealed;
mod sessions;
mod stdio;
mod tasks;
mod transports;

use std::sync::Arc;

use ::http::{Method, Request};
use axum::body::Body;
use axum::response::Response;
use helmdeck_core::{Caller, Identity, Permissions};
use serde_json::{Value, json};

use super::{Mcp, McpConfig};
use crate::ServerConfig;
use crate::fixture::{Answer, Fixture};
use crate::validity::Standing;

/// Headers of every client.
const HEADERS: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

/// The newest revision, which has no sessions.
const NEWEST: &str = "2026-07-28";

/// Returns the message of an answer: the JSON body, or the last event of a stream.
fn message(answer: &Answer) -> Value {
    let text = if answer.headers["content-type"] == "text/event-stream" {
        answer
            .body
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("data: "))
            .unwrap_or("null")
    } else {
        &answer.body
    };
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{} {:?}", answer.status, answer.body))
}

/// Sends a message to the transport.
async fn post(fixture: &Fixture, headers: &[(&str, &str)], body: &str) -> Answer {
    let headers: Vec<(&str, &str)> = HEADERS.iter().chain(headers).copied().collect();
    fixture.send(Method::POST, "/mcp", &headers, body).await
}

/// Begins a session and returns its id.
async fn begin(fixture: &Fixture, revision: &str) -> String {
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let answer = post(fixture, &[], &request.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        message(&answer)["result"]["protocolVersion"],
        revision,
        "{}",
        answer.body
    );
    let session = answer.headers["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(
        post(fixture, &[("mcp-session-id", &session)], told)
            .await
            .status,
        202
    );
    session
}

fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

/// Sends a request within a session.
async fn ask(fixture: &Fixture, session: &str, method: &str, params: Value) -> Value {
    message(
        &post(
            fixture,
            &[("mcp-session-id", session)],
            &request(method, &params),
        )
        .await,
    )
}

/// Sends a request of the newest revision, which is self-contained.
async fn ask_newest(fixture: &Fixture, method: &str, params: Value) -> Value {
    message(&post_newest(fixture, method, params).await)
}

async fn post_newest(fixture: &Fixture, method: &str, params: Value) -> Answer {
    post_newest_with(fixture, &[], method, params).await
}

/// As [`post_newest`], with more headers.
async fn post_newest_with(
    fixture: &Fixture,
    more: &[(&str, &str)],
    method: &str,
    mut params: Value,
) -> Answer {
    let name = params
        .get("name")
        .or(params.get("uri"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = NEWEST.into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
    let mut headers = vec![("mcp-protocol-version", NEWEST), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    headers.extend(more);
    post(fixture, &headers, &request(method, &params)).await
}

/// Returns a caller with a token of this scope.
fn caller(tenant: &str, user: &str, scope: &str) -> Caller {
    Caller::new(
        Identity::new(tenant, user).unwrap(),
        Permissions::of_scope(scope),
    )
}

/// Returns the standing of a credential that is valid or revoked.
fn standing(valid: bool) -> Standing {
    if valid {
        Standing::Good
    } else {
        Standing::Revoked
    }
}

/// Transport of a fixture's engine alone, for callers that the server does not know yet.
fn mcp_of(fixture: &Fixture, config: McpConfig) -> Mcp {
    Mcp::new(
        fixture.engine.clone(),
        &ServerConfig::default(),
        config,
        Arc::clone(&fixture.clock) as _,
        None,
        None,
        None,
    )
}

/// Sends a message to a transport as this caller, without reading the body of the answer.
async fn send_as(
    mcp: &Mcp,
    caller: &Caller,
    method: Method,
    session: Option<&str>,
    body: String,
) -> Response {
    let mut request = Request::builder()
        .method(method)
        .uri("/mcp")
        .header("host", "localhost");
    for (name, value) in HEADERS
        .iter()
        .copied()
        .chain(session.map(|session| ("mcp-session-id", session)))
    {
        request = request.header(name, value);
    }
    mcp.handle(
        caller.clone(),
        None,
        request.body(Body::from(body)).unwrap(),
    )
    .await
}

async fn read(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

async fn ask_as(mcp: &Mcp, caller: &Caller, session: &str, method: &str, params: Value) -> Answer {
    read(
        send_as(
            mcp,
            caller,
            Method::POST,
            Some(session),
            request(method, &params),
        )
        .await,
    )
    .await
}

/// Begins a session as this caller, or returns the refusal.
async fn begin_as(mcp: &Mcp, caller: &Caller) -> Result<String, Answer> {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = read(
        send_as(
            mcp,
            caller,
            Method::POST,
            None,
            request("initialize", &params),
        )
        .await,
    )
    .await;
    match answer.headers.get("mcp-session-id") {
        Some(session) => Ok(session.to_str().unwrap().to_owned()),
        None => Err(answer),
    }
}
