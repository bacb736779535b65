//! MCP over streamable HTTP.

use serde_json::json;

use super::*;

#[tokio::test]
async fn every_revision_lists_and_calls_the_packs() {
    let fixture = Fixture::with_memory().await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = begin(&fixture, revision).await;
        let list = ask(&fixture, &session, "tools/list", json!({})).await;
        let names: Vec<&str> = list["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["test__cached", "test__plain", "test__write"],
            "{revision}"
        );
        let call = json!({"name": "test__plain", "arguments": {"text": "hi"}});
        let answer = ask(&fixture, &session, "tools/call", call).await;
        assert_eq!(
            answer["result"]["structuredContent"]["text"], "hi",
            "{answer}"
        );
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
    }
    let list = ask_newest(&fixture, "tools/list", json!({})).await;
    assert_eq!(list["result"]["cacheScope"], "private", "{list}");
    assert!(list["result"]["ttlMs"].as_u64().unwrap() > 0);
    let tool = &list["result"]["tools"][0];
    assert_eq!(
        (&tool["name"], &tool["title"]),
        (&"test__cached".into(), &"Cached (test)".into())
    );
    assert_eq!(
        (
            &tool["annotations"]["readOnlyHint"],
            &tool["inputSchema"]["type"]
        ),
        (&true.into(), &"object".into())
    );
    assert_eq!(tool["outputSchema"]["type"], "object");
    let answer = ask_newest(
        &fixture,
        "tools/call",
        json!({"name": "test__plain", "arguments": {"text": "hi"}}),
    )
    .await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(
        answer["result"]["content"][0]["text"],
        answer["result"]["structuredContent"].to_string()
    );
    let discovered = ask_newest(&fixture, "server/discover", json!({})).await;
    let who = &discovered["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(who["name"], "helmdeck", "{discovered}");
}

#[tokio::test]
async fn a_message_that_is_none_is_refused_before_anybody_reads_it() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"a":{}}}}}"#,
        "[".repeat(9000) + &"]".repeat(9000)
    );
    let cases = [
        ("{", 400, -32700),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"} {}"#,
            400,
            -32700,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}"#,
            400,
            -32700,
        ),
        (deep.as_str(), 400, -32700),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600),
        (r#"{"id":1,"method":"ping"}"#, 400, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, 400, -32600),
    ];
    for (text, status, code) in cases {
        let answer = post(&fixture, &[("mcp-session-id", &session)], text).await;
        assert_eq!(
            (
                answer.status.as_u16(),
                message(&answer)["error"]["code"].as_i64()
            ),
            (status, Some(code)),
            "{text:.80}"
        );
    }
    // The arguments of a call are read by the pack's pipeline, which is as strict.
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"test__plain","arguments":{"text":"a","text":"b"}}}"#;
    let answer = message(&post(&fixture, &[("mcp-session-id", &session)], twice).await);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(fixture.probe.runs(), 0);
    let large = request(
        "tools/call",
        &json!({"name": "test__plain", "arguments": {"text": "x".repeat(2 << 20)}}),
    );
    assert_eq!(
        post(&fixture, &[("mcp-session-id", &session)], &large)
            .await
            .status,
        413
    );
    let form = [
        ("content-type", "text/plain"),
        ("accept", "application/json, text/event-stream"),
    ];
    assert_eq!(
        fixture.send(Method::POST, "/mcp", &form, "{}").await.status,
        415
    );
}

#[tokio::test]
async fn headers_that_contradict_the_message_are_refused() {
    let fixture = Fixture::plain().await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {}});
    let text = request(
        "tools/call",
        &json!({"name": "test__plain", "arguments": {}, "_meta": meta}),
    );
    let good = [
        ("mcp-protocol-version", NEWEST),
        ("mcp-method", "tools/call"),
        ("mcp-name", "test__plain"),
    ];
    assert_eq!(post(&fixture, &good, &text).await.status, 200);
    for (name, value) in [
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", "tools/list"),
        ("mcp-name", "test__write"),
    ] {
        let wrong: Vec<_> = good
            .iter()
            .map(|pair| if pair.0 == name { (name, value) } else { *pair })
            .collect();
        let answer = post(&fixture, &wrong, &text).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.body);
        let missing: Vec<_> = good.iter().filter(|pair| pair.0 != name).copied().collect();
        assert_eq!(post(&fixture, &missing, &text).await.status, 400, "{name}");
    }
    let unknown = text.replace(NEWEST, "2030-01-01");
    let newer: Vec<_> = good
        .iter()
        .map(|pair| {
            if pair.1 == NEWEST {
                (pair.0, "2030-01-01")
            } else {
                *pair
            }
        })
        .collect();
    let answer = post(&fixture, &newer, &unknown).await;
    assert_eq!(
        (
            answer.status.as_u16(),
            message(&answer)["error"]["code"].as_i64()
        ),
        (400, Some(-32022)),
        "{}",
        answer.body
    );
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn a_foreign_host_or_origin_does_not_reach_the_door() {
    let fixture = Fixture::plain().await;
    let text = request("server/discover", &json!({}));
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        let answer = post(&fixture, &[(name, value)], &text).await;
        assert!(
            [400, 403].contains(&answer.status.as_u16()),
            "{name}: {}",
            answer.status
        );
    }
}
