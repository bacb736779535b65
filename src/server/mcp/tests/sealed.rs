//! Sessions whose id contains them: any replica continues one that another began.

use std::time::Duration;

use helmdeck_memory::{KeyRing, MemoryKey};
use helmdeck_testkit::ends;

use super::*;
use crate::mcp::SessionSeal;

/// Two replicas with the same memory key, and the same clock.
fn replicas(fixture: &Fixture, config: &McpConfig) -> [Mcp; 2] {
    let ring = Arc::new(KeyRing::new(MemoryKey::parse("K", &"ab".repeat(32)).unwrap(), Vec::new()));
    [(); 2].map(|()| {
        let clock: Arc<dyn helmdeck_core::Clock> = Arc::clone(&fixture.clock) as _;
        let seal = SessionSeal::new(Arc::clone(&ring), Arc::clone(&clock), config.session_lifetime);
        Mcp::new(fixture.engine.clone(), &ServerConfig::default(), config.clone(), clock, None, Some(seal), None)
    })
}

#[tokio::test]
async fn any_replica_continues_a_session() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(send_as(&there, &owner, Method::POST, Some(&session), told).await.status(), 202);
    let call = json!({"name": "test__plain", "arguments": {"text": "a"}});
    for mcp in [&there, &here, &there] {
        let answer = message(&ask_as(mcp, &owner, &session, "tools/call", call.clone()).await);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        let answer = message(&ask_as(mcp, &owner, &session, "tools/list", json!({})).await);
        assert!(!answer["result"]["tools"].as_array().unwrap().is_empty(), "{answer}");
    }
}

#[tokio::test]
async fn first_request_at_another_replica_may_be_any() {
    let fixture = Fixture::plain().await;
    let [here, _] = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let unknown = json!({"name": "test__none", "arguments": {}});
    let progress = json!({"name": "test__plain", "arguments": {}, "_meta": {"progressToken": 1}});
    for (method, params) in [("tools/call", unknown), ("tools/call", progress), ("ping", json!({}))] {
        // A replica that has seen nothing of the session.
        let [_, there] = replicas(&fixture, &McpConfig::default());
        let asked = ask_as(&there, &owner, &session, method, params);
        let answer = ends("the answer", Box::pin(asked)).await;
        assert_eq!(answer.status, 200, "{method}: {}", answer.body);
        assert_eq!(message(&answer)["id"], 7, "{}", answer.body);
    }
}

#[tokio::test]
async fn altered_expired_and_foreign_ids_are_not_found() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let mut altered = session.clone();
    altered.replace_range(40..41, if &altered[40..41] == "A" { "B" } else { "A" });
    for id in [altered.as_str(), "", "no-such-session"] {
        assert_eq!(ask_as(&there, &owner, id, "ping", json!({})).await.status, 404, "{id}");
    }
    for thief in [caller("t", "v", "admin"), caller("s", "u", "admin"), Caller::local()] {
        for mcp in [&here, &there] {
            assert_eq!(ask_as(mcp, &thief, &session, "ping", json!({})).await.status, 404);
        }
    }
    assert_eq!(ask_as(&there, &owner, &session, "ping", json!({})).await.status, 200);
    fixture.clock.advance(McpConfig::default().session_lifetime);
    for mcp in [&here, &there] {
        assert_eq!(ask_as(mcp, &owner, &session, "ping", json!({})).await.status, 404);
    }
}

#[tokio::test]
async fn delete_ends_a_session_where_it_is_sent() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    assert_eq!(send_as(&there, &owner, Method::DELETE, Some(&session), String::new()).await.status(), 202);
    assert_eq!(ask_as(&there, &owner, &session, "ping", json!({})).await.status, 404);
    // The other replica did not learn of it: there the id is good until it expires.
    assert_eq!(ask_as(&here, &owner, &session, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn idle_copies_make_room_and_come_back() {
    let fixture = Fixture::plain().await;
    let config = McpConfig { sessions_max: 3, sessions_per_caller: 2, ..McpConfig::default() };
    let [here, _] = replicas(&fixture, &config);
    let callers = [caller("t", "1", "packs:run"), caller("t", "2", "packs:run"), caller("t", "3", "packs:run")];
    let mut sessions = Vec::new();
    for owner in callers.iter().cycle().take(9) {
        fixture.clock.advance(Duration::from_secs(1));
        sessions.push((owner, begin_as(&here, owner).await.unwrap()));
    }
    for (owner, session) in &sessions {
        assert_eq!(ask_as(&here, owner, session, "ping", json!({})).await.status, 200);
    }
    let (theirs, ours, beginning) = here.counts().await;
    assert!(theirs <= 3 && ours <= 3 && beginning == 0, "{theirs} {ours} {beginning}");
}

#[tokio::test]
async fn session_with_an_open_stream_makes_no_room() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(&fixture, &McpConfig { sessions_max: 1, ..McpConfig::default() });
    let (one, two) = (caller("t", "1", "packs:run"), caller("t", "2", "packs:run"));
    let session = begin_as(&here, &one).await.unwrap();
    let stream = send_as(&there, &one, Method::GET, Some(&session), String::new()).await;
    assert_eq!(stream.status(), 200);
    assert_eq!(begin_as(&there, &two).await.unwrap_err().status, 503);
    there.drain();
    let rest = ends("the stream", read(stream)).await;
    assert!(rest.body.ends_with("retry: 1000\n\n"), "{}", rest.body);
    begin_as(&there, &two).await.unwrap();
}

#[tokio::test]
async fn session_scope_is_the_same_on_all_replicas() {
    let fixture = Fixture::with_memory().await;
    let [here, there] = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let params = json!({"name": "test__cached", "arguments": {"text": "x"}});
    let mut seen = Vec::new();
    for mcp in [&here, &there] {
        let answer = message(&ask_as(mcp, &owner, &session, "tools/call", params.clone()).await);
        seen.push(answer["result"]["_meta"]["helmdeck/cache"]["status"].clone());
    }
    assert_eq!(seen, ["miss", "hit"]);
}
