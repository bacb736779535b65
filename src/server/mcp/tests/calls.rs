//! Calls of tools: results, errors, progress, and what each caller may use.

use super::*;

fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

#[tokio::test]
async fn with_a_gate_shut_an_answer_is_byte_for_byte_without_the_cache() {
    let (open, shut) = (Fixture::with_memory().await, Fixture::plain().await);
    let wish = json!({"helmdeck/cache": {"directive": "refresh", "max_age": 1}});
    let bodies = |fixture: &'static Fixture, name: &'static str, meta: Option<Value>| async move {
        let session = begin(fixture, "2025-11-25").await;
        let mut params = call(name, json!({"text": "x"}));
        if let Some(meta) = meta {
            params["_meta"] = meta;
        }
        post(
            fixture,
            &[("mcp-session-id", &session)],
            &request("tools/call", &params),
        )
        .await
        .body
    };
    let (open, shut): (&'static Fixture, &'static Fixture) =
        (Box::leak(Box::new(open)), Box::leak(Box::new(shut)));
    let expected = |run: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{{\"run\":{run},\"text\":\"x\"}}"}}],"structuredContent":{{"run":{run},"text":"x"}},"isError":false}}}}"#
        )
    };
    // Gate 1 shut, then gate 2 shut; with and without a directive that only a cache could follow.
    assert_eq!(bodies(shut, "test__cached", None).await, expected(1));
    assert_eq!(
        bodies(shut, "test__cached", Some(wish.clone())).await,
        expected(2)
    );
    assert_eq!(bodies(open, "test__plain", None).await, expected(1));
    assert_eq!(
        bodies(open, "test__plain", Some(wish.clone())).await,
        expected(2)
    );
    // Both open.
    let cached: Value = serde_json::from_str(&bodies(open, "test__cached", None).await).unwrap();
    assert_eq!(
        cached["result"]["_meta"]["helmdeck/cache"]["status"], "miss",
        "{cached}"
    );
    let hit: Value = serde_json::from_str(&bodies(open, "test__cached", None).await).unwrap();
    assert_eq!(
        hit["result"]["_meta"]["helmdeck/cache"]["status"], "hit",
        "{hit}"
    );
    assert_eq!(
        hit["result"]["structuredContent"],
        cached["result"]["structuredContent"]
    );
    let refreshed: Value =
        serde_json::from_str(&bodies(open, "test__cached", Some(wish)).await).unwrap();
    assert_eq!(
        refreshed["result"]["structuredContent"]["run"], 4,
        "{refreshed}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_said_where_the_protocol_says() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    let ask = |params: Value| ask(&fixture, &session, "tools/call", params);
    // The pack's own failure is a result that an agent can read.
    let failed = ask(call("test__plain", json!({"fail": "rate_limited"}))).await;
    let text = failed["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        failed["result"]["isError"] == true
            && text.contains("as asked")
            && text.contains("1500 ms"),
        "{failed}"
    );
    let problem = &failed["result"]["_meta"]["helmdeck/problem"];
    assert_eq!(
        (&problem["code"], &problem["retry_after_ms"]),
        (&"rate_limited".into(), &1500.into())
    );
    assert!(failed["result"].get("structuredContent").is_none());
    // An input that does not fit is such a result too, with the invalid locations.
    let unfit = ask(call("test__plain", json!({"text": 7, "more": 1}))).await;
    let text = unfit["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        unfit["result"]["isError"] == true && text.contains("/text"),
        "{unfit}"
    );
    // An invalid request is a JSON-RPC error.
    for wrong in [
        call("test__nothing", json!({})),
        call("test.nothing", json!({})),
        json!({"name": "test__plain", "arguments": [1]}),
        json!({"name": 7}),
        json!({"arguments": {}}),
        json!({"name": "test__plain", "_meta": {"helmdeck/cache": {"directive": "never"}}}),
        json!({"name": "test__plain", "_meta": {"helmdeck/cache": {"max_age": -1}}}),
    ] {
        assert_eq!(ask(wrong.clone()).await["error"]["code"], -32602, "{wrong}");
    }
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn numbers_reach_a_pack_as_they_were_written() {
    let fixture = Fixture::with_memory().await;
    let session = begin(&fixture, "2025-11-25").await;
    let runs = async |number: &str, meta: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"test__cached","arguments":{{"text":"a","steps":{number}}}{meta}}}}}"#
        );
        let answer = post(&fixture, &[("mcp-session-id", &session)], &text).await;
        message(&answer)["result"]["_meta"]["helmdeck/cache"]["key"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // rmcp would read both as the same float.
    let progress = r#","_meta":{"progressToken":1}"#;
    let short = runs("-36893488147419103233", "").await;
    assert_eq!(short, runs("-36893488147419103233", progress).await);
    assert_ne!(short, runs("-36893488147419103232", progress).await);
}

/// A media type with a weight is valid and not plain, so rmcp checks the call.
#[tokio::test]
async fn checked_calls_are_handed_back_and_run_once() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    let weighted = ("accept", "application/json;q=0.9, text/event-stream");
    let headers = [HEADERS[0], weighted, ("mcp-session-id", session.as_str())];
    for (run, meta) in [(1, json!({})), (2, json!({"progressToken": "p"}))] {
        let params = json!({"name": "test__plain", "arguments": {"text": "x"}, "_meta": meta});
        let answer = fixture
            .send(
                Method::POST,
                "/mcp",
                &headers,
                &request("tools/call", &params),
            )
            .await;
        assert_eq!(
            message(&answer)["result"]["structuredContent"],
            json!({"run": run, "text": "x"}),
            "{}",
            answer.body
        );
    }
    let unknown = request("tools/call", &call("test__nothing", json!({})));
    let answer = fixture.send(Method::POST, "/mcp", &headers, &unknown).await;
    assert_eq!(message(&answer)["error"]["code"], -32602, "{}", answer.body);
}

#[tokio::test]
async fn progress_grows_and_comes_before_the_answer() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    let mut params = call("test__plain", json!({"steps": 50}));
    params["_meta"] = json!({"progressToken": "p"});
    for newest in [false, true] {
        let answer = if newest {
            post_newest(&fixture, "tools/call", params.clone()).await
        } else {
            post(
                &fixture,
                &[("mcp-session-id", &session)],
                &request("tools/call", &params),
            )
            .await
        };
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        let messages: Vec<Value> = answer
            .body
            .lines()
            .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
            .collect();
        let (last, progress) = messages.split_last().unwrap();
        assert_eq!(
            (&last["id"], &last["result"]["isError"]),
            (&7.into(), &false.into()),
            "{}",
            answer.body
        );
        assert!(
            !progress.is_empty()
                && progress
                    .iter()
                    .all(|told| told["method"] == "notifications/progress")
        );
        assert!(
            progress
                .iter()
                .all(|told| told["params"]["progressToken"] == "p")
        );
        let values: Vec<f64> = progress
            .iter()
            .map(|told| told["params"]["progress"].as_f64().unwrap())
            .collect();
        assert!(
            values.windows(2).all(|pair| pair[0] < pair[1]),
            "{values:?}"
        );
        assert_eq!(progress.last().unwrap()["params"]["message"], "step 50");
    }
}

#[tokio::test]
async fn a_caller_sees_and_runs_what_its_token_allows() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let some = caller("t", "u", "packs:run:test.p*");
    let session = begin_as(&mcp, &some).await.unwrap();
    let list = message(&ask_as(&mcp, &some, &session, "tools/list", json!({})).await);
    let tools = list["result"]["tools"].as_array().unwrap();
    assert_eq!(
        tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(),
        ["test__plain"]
    );
    for meta in [json!({}), json!({"progressToken": 1})] {
        let params = json!({"name": "test__write", "arguments": {}, "_meta": meta});
        let refused = message(&ask_as(&mcp, &some, &session, "tools/call", params).await);
        assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
    }
    let nobody = Caller::new(Identity::anonymous(), Permissions::none());
    let session = begin_as(&mcp, &nobody).await.unwrap();
    let refused = message(
        &ask_as(
            &mcp,
            &nobody,
            &session,
            "tools/call",
            call("test__plain", json!({})),
        )
        .await,
    );
    assert_eq!(
        refused["error"]["data"]["code"], "unauthenticated",
        "{refused}"
    );
    assert_eq!(fixture.probe.runs(), 0);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(
        &fixture,
        McpConfig {
            page_size: 2,
            ..McpConfig::default()
        },
    );
    let local = Caller::local();
    let session = begin_as(&mcp, &local).await.unwrap();
    let first = message(&ask_as(&mcp, &local, &session, "tools/list", json!({})).await);
    let cursor = first["result"]["nextCursor"].as_str().unwrap();
    let second = message(
        &ask_as(
            &mcp,
            &local,
            &session,
            "tools/list",
            json!({"cursor": cursor}),
        )
        .await,
    );
    assert_eq!(
        second["result"]["tools"][0]["name"], "test__write",
        "{second}"
    );
    assert!(second["result"].get("nextCursor").is_none());
    let wrong =
        message(&ask_as(&mcp, &local, &session, "tools/list", json!({"cursor": "x"})).await);
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
}
