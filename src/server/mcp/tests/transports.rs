//! Tools as a model sees them: annotations, titles, names in texts, and audience of errors.

use std::sync::Arc;

use helmdeck_core::Caller;
use helmdeck_engine::{Config, Engine};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

use super::{ask_newest, message, post};
use crate::ServerConfig;
use crate::fixture::Fixture;
use crate::mcp::{LocalClient, McpConfig, Stdio};

const WRITES: &str = r#"
name = "team.write"
version = "v1"
title = "Write a thing"
description = "Writes; team.read reads it, and team.reader does not exist"
destructive = false
idempotent = true
[metadata]
limitations = ["see team.read."]
[handler]
command = ["cat"]
[input]
type = "object"
[input.properties.path]
type = "string"
description = "as team.read gives it"
x-helmdeck-path = true
"#;
const READS: &str = r#"
name = "team.read"
version = "v1"
description = "Reads"
read_only = true
[handler]
http = { url = "https://example.com/" }
"#;

fn engine(folder: &std::path::Path) -> Engine {
    for (file, text) in [("write.toml", WRITES), ("read.toml", READS)] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let engine = Engine::builder(Config::default()).packs_dir(folder).build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    engine
}

/// Sends requests over stdin, one after the other, and returns the answers.
async fn over_stdio(
    engine: &Engine,
    place: Option<LocalClient>,
    requests: &[(&str, Value)],
) -> Vec<Value> {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (input, output) = tokio::io::split(far);
    let mut stdio = Stdio::new(
        engine.clone(),
        &ServerConfig::default(),
        McpConfig::default(),
        Caller::local(),
    );
    if let Some(place) = place {
        stdio = stdio.place(place);
    }
    let serving = tokio::spawn(stdio.serve_over(input, output, CancellationToken::new()));
    let (reader, mut writer) = tokio::io::split(near);
    let mut lines = BufReader::new(reader).lines();
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let mut answers = Vec::new();
    for (id, (method, params)) in std::iter::once(&("initialize", hello))
        .chain(requests)
        .enumerate()
    {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writer
            .write_all(format!("{request}\n").as_bytes())
            .await
            .unwrap();
        answers.push(serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap());
        if id == 0 {
            writer
                .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
                .await
                .unwrap();
        }
    }
    drop((writer, lines));
    serving.await.unwrap().unwrap();
    answers
}

fn tool<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let tools = answer["result"]["tools"].as_array().unwrap();
    tools
        .iter()
        .find(|tool| tool["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {answer}"))
}

#[tokio::test]
async fn tools_have_titles_annotations_and_tool_names() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let answers = over_stdio(&engine, None, &[("tools/list", json!({}))]).await;
    let (write, read) = (
        tool(&answers[1], "team__write"),
        tool(&answers[1], "team__read"),
    );
    assert_eq!(
        write["annotations"],
        json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true})
    );
    assert_eq!(
        read["annotations"],
        json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true})
    );
    assert_eq!(
        (&write["title"], &read["title"]),
        (&json!("Write a thing"), &json!("Read (team)"))
    );
    assert_eq!(
        write["description"],
        "Writes; team__read reads it, and team.reader does not exist\n\nLimits: see team__read."
    );
    assert_eq!(
        write["inputSchema"]["properties"]["path"]["description"],
        "as team__read gives it"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn dotted_names_are_accepted_and_near_ones_are_hinted_at() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let call = |name: &str| ("tools/call", json!({"name": name, "arguments": {"a": 1}}));
    let answers = over_stdio(
        &engine,
        None,
        &[
            call("team.write"),
            call("team.wrote"),
            call("nothing_like_it"),
        ],
    )
    .await;
    assert_eq!(
        answers[1]["result"]["structuredContent"],
        json!({"a": 1}),
        "{}",
        answers[1]
    );
    assert_eq!(
        answers[2]["error"]["message"],
        "Unknown tool: team.wrote; did you mean team__write?"
    );
    assert_eq!(
        answers[3]["error"]["message"],
        "Unknown tool: nothing_like_it"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn relative_paths_start_at_the_client_folder() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path());
    let absolute = |schema: &Value, text: &str| {
        assert!(schema["properties"]["path"].is_object());
        Some(text.replace("\".\"", "\"/here\""))
    };
    let place = LocalClient {
        folder: "/here".into(),
        absolute: Arc::new(absolute),
    };
    let call = (
        "tools/call",
        json!({"name": "team__write", "arguments": {"path": "."}}),
    );
    let answers = over_stdio(&engine, Some(place), &[call]).await;
    let instructions = answers[0]["result"]["instructions"].as_str().unwrap();
    assert!(
        instructions.contains("Relative paths are taken from /here."),
        "{instructions}"
    );
    assert_eq!(
        answers[1]["result"]["structuredContent"],
        json!({"path": "/here"}),
        "{}",
        answers[1]
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn operator_errors_are_not_blamed_on_callers() {
    use helmdeck_core::{Code, Error};
    let error = Error::new(Code::InvalidInput, "no model is known").for_operator();
    let text = crate::mcp::answer::advice(&error);
    assert!(
        text.contains("Only the operator") && !text.contains("Change the arguments"),
        "{text}"
    );
    assert_eq!(error.problem()["fault"], "host");
}

#[tokio::test]
async fn a_null_id_is_a_json_rpc_error() {
    let fixture = Fixture::plain().await;
    let answer = post(
        &fixture,
        &[],
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
    )
    .await;
    assert_eq!(
        (
            answer.status.as_u16(),
            answer.headers["content-type"].to_str().unwrap()
        ),
        (400, "application/json")
    );
    assert_eq!(message(&answer)["error"]["code"], -32600, "{}", answer.body);
    let listed = ask_newest(&fixture, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
}
