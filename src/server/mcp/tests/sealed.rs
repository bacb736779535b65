//! Sessions whose id contains them: any replica continues one that another began.

use std::time::Duration;

use helmdeck_memory::{KeyRing, MemoryKey};
use helmdeck_system::System;
use helmdeck_testkit::{ends, until};

use super::*;
use crate::mcp::{SealedSessions, SessionSeal};

/// Two replicas with the same memory key, system database and clock, and the folder of the
/// database.
fn replicas(fixture: &Fixture, config: &McpConfig) -> (tempfile::TempDir, [Mcp; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("system.db"));
    let ring = Arc::new(KeyRing::new(
        MemoryKey::parse("K", &"ab".repeat(32)).unwrap(),
        Vec::new(),
    ));
    let both = [(); 2].map(|()| {
        let clock: Arc<dyn helmdeck_core::Clock> = Arc::clone(&fixture.clock) as _;
        let seal = SessionSeal::new(
            Arc::clone(&ring),
            Arc::clone(&clock),
            config.session_lifetime,
        );
        Mcp::new(
            fixture.engine.clone(),
            &ServerConfig::default(),
            config.clone(),
            clock,
            None,
            Some(SealedSessions {
                seal,
                system: system.clone(),
            }),
            None,
        )
    });
    (folder, both)
}

#[tokio::test]
async fn any_replica_continues_a_session() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(&fixture, &McpConfig::default()).1;
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(
        send_as(&there, &owner, Method::POST, Some(&session), told)
            .await
            .status(),
        202
    );
    let call = json!({"name": "test__plain", "arguments": {"text": "a"}});
    for mcp in [&there, &here, &there] {
        let answer = message(&ask_as(mcp, &owner, &session, "tools/call", call.clone()).await);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        let answer = message(&ask_as(mcp, &owner, &session, "tools/list", json!({})).await);
        assert!(
            !answer["result"]["tools"].as_array().unwrap().is_empty(),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn first_request_at_another_replica_may_be_any() {
    let fixture = Fixture::plain().await;
    let [here, _] = replicas(&fixture, &McpConfig::default()).1;
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let unknown = json!({"name": "test__none", "arguments": {}});
    let progress = json!({"name": "test__plain", "arguments": {}, "_meta": {"progressToken": 1}});
    for (method, params) in [
        ("tools/call", unknown),
        ("tools/call", progress),
        ("ping", json!({})),
    ] {
        // A replica that has seen nothing of the session.
        let [_, there] = replicas(&fixture, &McpConfig::default()).1;
        let asked = ask_as(&there, &owner, &session, method, params);
        let answer = ends("the answer", Box::pin(asked)).await;
        assert_eq!(answer.status, 200, "{method}: {}", answer.body);
        assert_eq!(message(&answer)["id"], 7, "{}", answer.body);
    }
}

#[tokio::test]
async fn altered_expired_and_foreign_ids_are_not_found() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(&fixture, &McpConfig::default()).1;
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    let mut altered = session.clone();
    altered.replace_range(40..41, if &altered[40..41] == "A" { "B" } else { "A" });
    for id in [altered.as_str(), "", "no-such-session"] {
        assert_eq!(
            ask_as(&there, &owner, id, "ping", json!({})).await.status,
            404,
            "{id}"
        );
    }
    for thief in [
        caller("t", "v", "admin"),
        caller("s", "u", "admin"),
        Caller::local(),
    ] {
        for mcp in [&here, &there] {
            assert_eq!(
                ask_as(mcp, &thief, &session, "ping", json!({}))
                    .await
                    .status,
                404
            );
        }
    }
    assert_eq!(
        ask_as(&there, &owner, &session, "ping", json!({}))
            .await
            .status,
        200
    );
    fixture.clock.advance(McpConfig::default().session_lifetime);
    for mcp in [&here, &there] {
        assert_eq!(
            ask_as(mcp, &owner, &session, "ping", json!({}))
                .await
                .status,
            404
        );
    }
}

#[tokio::test]
async fn delete_ends_a_session_at_every_replica() {
    let fixture = Fixture::plain().await;
    let (_folder, [here, there]) = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    assert_eq!(
        send_as(
            &there,
            &owner,
            Method::DELETE,
            Some(&session),
            String::new()
        )
        .await
        .status(),
        202
    );
    assert_eq!(
        ask_as(&there, &owner, &session, "ping", json!({}))
            .await
            .status,
        404
    );
    let gone = async || {
        ask_as(&here, &owner, &session, "ping", json!({}))
            .await
            .status
            == 404
    };
    until("the other replica to look", gone).await;
    let (_, open, _) = here.counts().await;
    assert_eq!(open, 0);
    // What another session does is not touched, nor is a stream that is open.
    let others = begin_as(&here, &owner).await.unwrap();
    let stream = send_as(&there, &owner, Method::GET, Some(&others), String::new()).await;
    assert_eq!(stream.status(), 200);
    assert_eq!(
        ask_as(&there, &owner, &others, "ping", json!({}))
            .await
            .status,
        200
    );
    // It ends with its session, without a request that asks.
    assert_eq!(
        send_as(&here, &owner, Method::DELETE, Some(&others), String::new())
            .await
            .status(),
        202
    );
    ends("the stream", read(stream)).await;
    // A replica that was started since knows it, too.
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(
        ask_as(&there, &owner, &others, "ping", json!({}))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn delete_that_cannot_be_recorded_says_so() {
    let fixture = Fixture::plain().await;
    let (folder, [here, there]) = replicas(&fixture, &McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&here, &owner).await.unwrap();
    std::fs::create_dir_all(folder.path().join("system.db")).unwrap();
    let answer =
        read(send_as(&here, &owner, Method::DELETE, Some(&session), String::new()).await).await;
    assert!(
        answer.status == 503 && answer.body.contains("end it again"),
        "{}",
        answer.body
    );
    // What is open goes on; what began elsewhere has to be looked up.
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(
        ask_as(&here, &owner, &session, "ping", json!({}))
            .await
            .status,
        200
    );
    assert_eq!(
        ask_as(&there, &owner, &session, "ping", json!({}))
            .await
            .status,
        503
    );
    std::fs::remove_dir(folder.path().join("system.db")).unwrap();
    assert_eq!(
        ask_as(&there, &owner, &session, "ping", json!({}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn idle_copies_make_room_and_come_back() {
    let fixture = Fixture::plain().await;
    let config = McpConfig {
        sessions_max: 3,
        sessions_per_caller: 2,
        ..McpConfig::default()
    };
    let [here, _] = replicas(&fixture, &config).1;
    let callers = [
        caller("t", "1", "packs:run"),
        caller("t", "2", "packs:run"),
        caller("t", "3", "packs:run"),
    ];
    let mut sessions = Vec::new();
    for owner in callers.iter().cycle().take(9) {
        fixture.clock.advance(Duration::from_secs(1));
        sessions.push((owner, begin_as(&here, owner).await.unwrap()));
    }
    for (owner, session) in &sessions {
        assert_eq!(
            ask_as(&here, owner, session, "ping", json!({}))
                .await
                .status,
            200
        );
    }
    let (theirs, ours, beginning) = here.counts().await;
    assert!(
        theirs <= 3 && ours <= 3 && beginning == 0,
        "{theirs} {ours} {beginning}"
    );
}

#[tokio::test]
async fn session_with_an_open_stream_makes_no_room() {
    let fixture = Fixture::plain().await;
    let [here, there] = replicas(
        &fixture,
        &McpConfig {
            sessions_max: 1,
            ..McpConfig::default()
        },
    )
    .1;
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
    let [here, there] = replicas(&fixture, &McpConfig::default()).1;
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
