//! Resources.

use super::*;

async fn uris(fixture: &Fixture, session: &str) -> Vec<String> {
    let list = ask(fixture, session, "resources/list", json!({})).await;
    let resources = list["result"]["resources"].as_array().unwrap().clone();
    resources
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn resources_are_listed_and_read() {
    let fixture = Fixture::with_memory().await;
    let session = begin(&fixture, "2025-11-25").await;
    let uris = uris(&fixture, &session).await;
    assert_eq!(
        uris,
        [
            "helmdeck://guide",
            "helmdeck://jobs",
            "helmdeck://memory",
            "helmdeck://packs"
        ]
    );
    for uri in uris
        .iter()
        .map(String::as_str)
        .chain(["helmdeck://packs/test.plain"])
    {
        let answer = ask_newest(&fixture, "resources/read", json!({"uri": uri})).await;
        let contents = &answer["result"]["contents"][0];
        assert_eq!(contents["uri"], uri, "{answer}");
        assert_eq!(answer["result"]["cacheScope"], "private");
        let text = contents["text"].as_str().unwrap();
        if contents["mimeType"] == "application/json" {
            serde_json::from_str::<Value>(text).unwrap();
        } else {
            assert!(text.contains("test__cached"), "{text}");
        }
    }
    let templates = ask_newest(&fixture, "resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["cacheScope"], "public", "{templates}");
    for missing in [
        "helmdeck://packs/test.nothing",
        "helmdeck://artifacts/a/b/c",
        "helmdeck://jobs/a",
        "helmdeck://x",
        "file:///etc/passwd",
    ] {
        let answer = ask(
            &fixture,
            &session,
            "resources/read",
            json!({"uri": missing}),
        )
        .await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        let newest = ask_newest(&fixture, "resources/read", json!({"uri": missing})).await;
        assert_eq!(newest["error"]["code"], -32602, "{newest}");
    }
}

#[tokio::test]
async fn without_a_key_there_is_no_trace_of_memory() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    assert_eq!(
        uris(&fixture, &session).await,
        ["helmdeck://guide", "helmdeck://jobs", "helmdeck://packs"]
    );
    let answer = ask(
        &fixture,
        &session,
        "resources/read",
        json!({"uri": "helmdeck://memory"}),
    )
    .await;
    assert_eq!(answer["error"]["data"]["code"], "not_found", "{answer}");
    let guide = ask(
        &fixture,
        &session,
        "resources/read",
        json!({"uri": "helmdeck://guide"}),
    )
    .await;
    assert!(!guide.to_string().contains("cached\\n"), "{guide}");
}

#[tokio::test]
async fn artifacts_are_linked_and_readable_by_owner_only() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&mcp, &owner).await.unwrap();
    let call = json!({"name": "test__plain", "arguments": {"file": "<h1>hi</h1>"}});
    let answer = message(&ask_as(&mcp, &owner, &session, "tools/call", call).await);
    let link = &answer["result"]["content"][1];
    assert_eq!(
        (&link["type"], &link["name"], &link["size"]),
        (&"resource_link".into(), &"page.html".into(), &11.into())
    );
    let uri = json!({"uri": link["uri"]});
    let read = message(&ask_as(&mcp, &owner, &session, "resources/read", uri.clone()).await);
    assert_eq!(
        read["result"]["contents"][0]["text"], "<h1>hi</h1>",
        "{read}"
    );
    for other in [caller("t", "v", "packs:run"), caller("s", "u", "packs:run")] {
        let session = begin_as(&mcp, &other).await.unwrap();
        let refused = message(&ask_as(&mcp, &other, &session, "resources/read", uri.clone()).await);
        assert_eq!(refused["error"]["data"]["code"], "not_found", "{refused}");
    }
}

#[tokio::test]
async fn forbidden_resources_are_neither_listed_nor_read() {
    let fixture = Fixture::with_memory().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let some = caller("t", "u", "packs:run:test.plain");
    let session = begin_as(&mcp, &some).await.unwrap();
    let list =
        message(&ask_as(&mcp, &some, &session, "resources/list", json!({})).await).to_string();
    assert!(
        list.contains("helmdeck://guide") && !list.contains("helmdeck://memory"),
        "{list}"
    );
    for (uri, code) in [
        ("helmdeck://memory", "forbidden"),
        ("helmdeck://packs/test.write", "forbidden"),
    ] {
        let refused =
            message(&ask_as(&mcp, &some, &session, "resources/read", json!({"uri": uri})).await);
        assert_eq!(refused["error"]["data"]["code"], code, "{refused}");
    }
    for uri in ["helmdeck://guide", "helmdeck://packs"] {
        let text =
            message(&ask_as(&mcp, &some, &session, "resources/read", json!({"uri": uri})).await)
                .to_string();
        assert!(
            text.contains("test__plain") && !text.contains("test__write"),
            "{text}"
        );
    }
}
