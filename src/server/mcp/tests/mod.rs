//! Protocol tests of the MCP door: what each revision says, byte for byte where it matters.

mod hidden;
mod http;
mod rates;
mod stdio;

use ::http::Method;
use serde_json::{Value, json};

use crate::fixture::{Answer, Fixture};

/// What every client sends.
const HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

/// The newest revision, which has no sessions.
const NEWEST: &str = "2026-07-28";

/// Returns the message of an answer, whether it came as JSON or as the last event of a stream.
fn message(answer: &Answer) -> Value {
    let text = if answer.headers["content-type"] == "text/event-stream" {
        answer.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or("null")
    } else {
        &answer.body
    };
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{} {:?}", answer.status, answer.body))
}

/// Sends a message to the door.
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
    assert_eq!(message(&answer)["result"]["protocolVersion"], revision, "{}", answer.body);
    let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(fixture, &[("mcp-session-id", &session)], told).await.status, 202);
    session
}

fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

/// Asks within a session.
async fn ask(fixture: &Fixture, session: &str, method: &str, params: Value) -> Value {
    message(&post(fixture, &[("mcp-session-id", session)], &request(method, &params)).await)
}

/// Asks as the newest revision does: everything in the request.
async fn ask_newest(fixture: &Fixture, method: &str, params: Value) -> Value {
    message(&post_newest(fixture, method, params).await)
}

async fn post_newest(fixture: &Fixture, method: &str, mut params: Value) -> Answer {
    let name = params.get("name").or(params.get("uri")).and_then(Value::as_str).unwrap_or_default().to_owned();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = NEWEST.into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
    let mut headers = vec![("mcp-protocol-version", NEWEST), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    post(fixture, &headers, &request(method, &params)).await
}
