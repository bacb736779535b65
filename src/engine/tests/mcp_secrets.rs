//! MCP servers that echo their secrets, in every field where they can.

use std::sync::Arc;

use helmdeck_core::Code;
use helmdeck_engine::{Engine, McpReach, McpServer, McpValue};
use helmdeck_testkit::{STUCK, call};
use serde_json::{Value, json};

use crate::http::{Request, Upstream, answer};
use crate::mcp::{Fixture, Reports, TOKEN, run, tool};

/// What no answer may hold: the beginning of the secret is too much already.
const PART: &str = "canary-";

/// Asserts that errors of a server that cannot be started do not contain its secret.
///
/// Checks what the caller gets, the cause in the log, the list of servers, and the refused packs.
/// Returns message and cause.
#[track_caller]
fn told(engine: &Engine, error: &helmdeck_core::Error) -> String {
    let refused: Vec<String> = engine.refused().iter().map(ToString::to_string).collect();
    let status = &engine.mcp_servers()[0];
    assert_eq!((status.state, refused.len()), ("failed", 1), "{refused:?}");
    let status = status.error.clone().unwrap();
    let said = format!(
        "{error}\n{}\n{error:?}\n{status}\n{}",
        error.cause(),
        refused[0]
    );
    assert!(!said.contains(PART), "{said}");
    said
}

#[tokio::test]
async fn failed_start_never_leaks_server_secret() {
    for (file, words) in [
        (
            "say_handshake",
            "refuses the handshake: no discovery for [secret]",
        ),
        (
            "say_list",
            "refused listing its tools: no tools for [secret]",
        ),
    ] {
        let fixture = Fixture::new();
        fixture.write(file, "");
        let engine = fixture.engine();
        let error = run(&engine, "mcp.x.count").await.unwrap_err();
        assert_eq!(error.code(), Code::HandlerFailed);
        engine.import_all(STUCK).await;
        let said = told(&engine, &error);
        assert!(said.contains(words), "{said}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn an_upstream_that_echoes_its_authorization_tells_nobody() {
    let echo = |status: &'static str, kind: &'static str, before: usize| {
        move |request: &Request| {
            let given = request
                .headers
                .get("authorization")
                .cloned()
                .unwrap_or_default();
            let header =
                format!("content-type: {kind}\r\nwww-authenticate: Bearer scope=\"{given}\"\r\n");
            answer(
                status,
                &header,
                &format!("{}not for {given}", "x".repeat(before)),
            )
        }
    };
    for (status, kind, before) in [
        ("500 Internal Server Error", "application/json", 0),
        ("400 Bad Request", "application/json", 0),
        ("400 Bad Request", "application/json", 2000),
        ("404 Not Found", "text/plain", 0),
        ("401 Unauthorized", "text/plain", 0),
        ("403 Forbidden", "text/plain", 0),
        // What cannot be read is cut after 256 bytes by the library: in the middle of the secret.
        ("200 OK", "application/json", 0),
        ("200 OK", "application/json", 230),
        ("200 OK", "text/plain", 0),
    ] {
        let upstream = Upstream::start("127.0.0.1", echo(status, kind, before)).await;
        let value = McpValue::parse("Bearer {env:TOKEN}", |_| Some(TOKEN.to_owned())).unwrap();
        let reach = McpReach::Http {
            url: format!("http://{}/mcp", upstream.address).parse().unwrap(),
            headers: [("Authorization".to_owned(), value)].into(),
        };
        let fixture = Fixture::new();
        let engine = fixture.builder(McpServer::new("x", reach)).build();
        let error = run(&engine, "mcp.x.count").await.unwrap_err();
        engine.import_all(STUCK).await;
        let said = told(&engine, &error);
        assert!(error.cause().len() < 1200, "{said}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn failed_call_never_leaks_server_secret() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    let tell = |how: &str| {
        let (engine, input) = (engine.clone(), json!({ "how": how }).to_string());
        async move {
            let reports = Arc::new(Reports::default());
            let mut call = call("mcp.x.tell", &input);
            call.progress = Some(Arc::clone(&reports) as _);
            let result = engine
                .call(call)
                .await
                .map(|outcome| outcome.output.to_value());
            let reports = reports.0.lock().unwrap().clone();
            (result, reports)
        }
    };
    for (how, words) in [
        ("is_error", "tool \"tell\" failed: [secret] is wrong"),
        (
            "rpc_error",
            "the MCP server \"x\" refused tool \"tell\" ran: [secret] is wrong",
        ),
    ] {
        let error = tell(how).await.0.unwrap_err();
        assert_eq!(error.message(), words);
        // And where only the beginning of the secret would fit.
        let error = tell(&format!("{how} cut")).await.0.unwrap_err();
        assert!(error.message().contains("xxx[secret]"), "{error}");
        assert!(
            !error.message().contains("canary") && error.message().len() < 1200,
            "{error}"
        );
    }
    assert_eq!(
        tell("progress").await.1,
        [(None, "[secret] with".to_owned())]
    );
    let cut = tell("progress cut").await.1.remove(0).1;
    assert!(cut.ends_with("xxx[secret] ") && cut.len() == 1024, "{cut}");
    engine.shutdown().await;
}

#[tokio::test]
async fn tool_list_never_leaks_server_secret() {
    let fixture = Fixture::new();
    let mut listed = tool(
        "count",
        json!({"type": "object", "description": format!("with {TOKEN}")}),
    );
    listed["description"] = format!("counts for {TOKEN}").into();
    fixture.write("tools.json", &Value::from(vec![listed]).to_string());
    let engine = fixture.engine();
    run(&engine, "mcp.x.count").await.unwrap();
    let pack = engine.pack("mcp.x.count", None).unwrap();
    assert_eq!(
        (pack.description.as_str(), &pack.input["description"]),
        ("counts for [secret]", &json!("with [secret]"))
    );
    engine.shutdown().await;
}
