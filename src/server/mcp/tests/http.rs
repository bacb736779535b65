//! Over streamable HTTP.

use serde_json::json;

use super::*;

#[tokio::test]
async fn every_revision_lists_and_calls_the_packs() {
    let fixture = Fixture::with_memory().await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = begin(&fixture, revision).await;
        let list = ask(&fixture, &session, "tools/list", json!({})).await;
        let names: Vec<&str> =
            list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["test__cached", "test__plain", "test__write"], "{revision}");
        let call = json!({"name": "test__plain", "arguments": {"text": "hi"}});
        let answer = ask(&fixture, &session, "tools/call", call).await;
        assert_eq!(answer["result"]["structuredContent"]["text"], "hi", "{answer}");
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
    }
    let list = ask_newest(&fixture, "tools/list", json!({})).await;
    assert_eq!(list["result"]["cacheScope"], "private", "{list}");
    assert!(list["result"]["ttlMs"].as_u64().unwrap() > 0);
    let tool = &list["result"]["tools"][0];
    assert_eq!((&tool["name"], &tool["title"]), (&"test__cached".into(), &"test: cached".into()));
    assert_eq!((&tool["annotations"]["readOnlyHint"], &tool["inputSchema"]["type"]), (&true.into(), &"object".into()));
    assert_eq!(tool["outputSchema"]["type"], "object");
    let answer = ask_newest(&fixture, "tools/call", json!({"name": "test__plain", "arguments": {"text": "hi"}})).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(answer["result"]["content"][0]["text"], answer["result"]["structuredContent"].to_string());
    let discovered = ask_newest(&fixture, "server/discover", json!({})).await;
    let who = &discovered["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(who["name"], "helmdeck", "{discovered}");
}
