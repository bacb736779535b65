//! Sessions: owners, limits and expiry.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::validity::Validity;

#[tokio::test]
async fn a_session_of_another_caller_does_not_exist() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let owner = caller("t", "u", "packs:run");
    let session = begin_as(&mcp, &owner).await.unwrap();
    let call = json!({"name": "test__plain", "arguments": {}});
    for thief in [
        caller("t", "v", "admin"),
        caller("s", "u", "admin"),
        Caller::local(),
    ] {
        for (method, params) in [
            ("tools/call", call.clone()),
            ("tools/list", json!({})),
            ("ping", json!({})),
        ] {
            let answer = ask_as(&mcp, &thief, &session, method, params).await;
            assert_eq!(answer.status, 404, "{method}: {}", answer.body);
        }
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(
                send_as(&mcp, &thief, method, Some(&session), String::new())
                    .await
                    .status(),
                404
            );
        }
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        assert_eq!(
            send_as(
                &mcp,
                &thief,
                Method::POST,
                Some(&session),
                cancel.to_string()
            )
            .await
            .status(),
            404
        );
    }
    // A new token of the same caller continues the session.
    let again = caller("t", "u", "packs:run:test.*");
    assert_eq!(
        ask_as(&mcp, &again, &session, "tools/call", call.clone())
            .await
            .status,
        200
    );
    assert_eq!(
        send_as(&mcp, &owner, Method::DELETE, Some(&session), String::new())
            .await
            .status(),
        202
    );
    assert_eq!(
        ask_as(&mcp, &owner, &session, "tools/call", call)
            .await
            .status,
        404
    );
    assert_eq!(
        ask_as(&mcp, &owner, "no-such-session", "ping", json!({}))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn sessions_are_bounded_for_each_and_for_all() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(
        &fixture,
        McpConfig {
            sessions_max: 3,
            sessions_per_caller: 2,
            ..McpConfig::default()
        },
    );
    let (one, two, three) = (
        caller("t", "1", ""),
        caller("t", "2", ""),
        caller("t", "3", ""),
    );
    let oldest = begin_as(&mcp, &one).await.unwrap();
    fixture.clock.advance(Duration::from_secs(1));
    let other = begin_as(&mcp, &one).await.unwrap();
    fixture.clock.advance(Duration::from_secs(1));
    let newest = begin_as(&mcp, &one).await.unwrap();
    let mut alive = Vec::new();
    for session in [&oldest, &other, &newest] {
        alive.push(
            ask_as(&mcp, &one, session, "ping", json!({}))
                .await
                .status
                .as_u16(),
        );
    }
    assert_eq!(alive, [404, 200, 200]);
    begin_as(&mcp, &two).await.unwrap();
    let refused = begin_as(&mcp, &three).await.unwrap_err();
    assert_eq!(
        (refused.status.as_u16(), refused.json()["code"].as_str()),
        (503, Some("overloaded"))
    );
    // Idle ones make room.
    fixture.clock.advance(Duration::from_secs(31 * 60));
    begin_as(&mcp, &three).await.unwrap();
    assert_eq!(
        ask_as(&mcp, &one, &newest, "ping", json!({})).await.status,
        404
    );
}

#[tokio::test]
async fn an_open_stream_keeps_a_session_and_ends_with_the_server() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    let session = begin_as(&mcp, &local).await.unwrap();
    let stream = send_as(&mcp, &local, Method::GET, Some(&session), String::new()).await;
    assert_eq!(
        (stream.status().as_u16(), &stream.headers()["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );
    fixture.clock.advance(Duration::from_secs(31 * 60));
    begin_as(&mcp, &local).await.unwrap();
    assert_eq!(
        ask_as(&mcp, &local, &session, "ping", json!({}))
            .await
            .status,
        200
    );
    mcp.drain();
    let rest = helmdeck_testkit::ends("the stream", read(stream)).await;
    assert!(!rest.body.contains("result"), "{}", rest.body);
    // A calling client is still answered while the server drains.
    let call = json!({"name": "test__plain", "arguments": {}});
    assert_eq!(
        message(&ask_as(&mcp, &local, &session, "tools/call", call).await)["result"]["isError"],
        false
    );
}

#[tokio::test]
async fn a_session_is_a_conversation_of_its_own() {
    let fixture = Fixture::with_memory().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    let status = async |session: &str| {
        let params = json!({"name": "test__cached", "arguments": {"text": "x"}});
        let answer = message(&ask_as(&mcp, &local, session, "tools/call", params).await);
        answer["result"]["_meta"]["helmdeck/cache"]["status"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (one, two) = (
        begin_as(&mcp, &local).await.unwrap(),
        begin_as(&mcp, &local).await.unwrap(),
    );
    // The conversations of a caller share the caller's data.
    assert_eq!(
        (status(&one).await.as_str(), status(&two).await.as_str()),
        ("miss", "hit")
    );
}

#[tokio::test]
async fn a_session_whose_token_ended_is_closed_unless_its_caller_showed_another() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    let with_token = async |session: Option<&str>, method: &str, valid: Arc<AtomicBool>| {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/mcp")
            .header("host", "localhost");
        for (name, value) in HEADERS
            .iter()
            .copied()
            .chain(session.map(|session| ("mcp-session-id", session)))
        {
            request = request.header(name, value);
        }
        let mut request = request
            .body(Body::from(super::request(method, &params)))
            .unwrap();
        request.extensions_mut().insert(Validity::new(move || {
            std::future::ready(standing(valid.load(std::sync::atomic::Ordering::SeqCst)))
        }));
        read(mcp.handle(local.clone(), None, request).await).await
    };
    let token = |valid| Arc::new(AtomicBool::new(valid));
    let mut sessions = Vec::new();
    for first in [token(true), token(true)] {
        let begun = with_token(None, "initialize", Arc::clone(&first)).await;
        sessions.push((
            begun.headers["mcp-session-id"].to_str().unwrap().to_owned(),
            first,
        ));
    }
    // Both tokens expire; the caller of the second session used a new one before.
    with_token(Some(&sessions[1].0), "ping", token(true)).await;
    for (_, first) in &sessions {
        first.store(false, std::sync::atomic::Ordering::SeqCst);
    }
    with_token(None, "initialize", token(true)).await;
    assert_eq!(
        ask_as(&mcp, &local, &sessions[0].0, "ping", json!({}))
            .await
            .status,
        404
    );
    assert_eq!(
        ask_as(&mcp, &local, &sessions[1].0, "ping", json!({}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn who_comes_without_a_token_closes_nobody_elses_session() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(
        &fixture,
        McpConfig {
            sessions_per_caller: 2,
            ..McpConfig::default()
        },
    );
    let anonymous = Caller::new(Identity::anonymous(), Permissions::of_scope("packs:run"));
    let sessions = [
        begin_as(&mcp, &anonymous).await.unwrap(),
        begin_as(&mcp, &anonymous).await.unwrap(),
    ];
    fixture.clock.advance(Duration::from_secs(1));
    let refused = begin_as(&mcp, &anonymous).await.unwrap_err();
    assert_eq!(
        (refused.status.as_u16(), refused.json()["code"].as_str()),
        (503, Some("overloaded"))
    );
    for session in &sessions {
        assert_eq!(
            ask_as(&mcp, &anonymous, session, "ping", json!({}))
                .await
                .status,
            200
        );
    }
    begin_as(&mcp, &caller("t", "u", "packs:run"))
        .await
        .unwrap();
    assert_eq!(
        send_as(
            &mcp,
            &anonymous,
            Method::DELETE,
            Some(&sessions[0]),
            String::new()
        )
        .await
        .status(),
        202
    );
    begin_as(&mcp, &anonymous).await.unwrap();
}

#[tokio::test]
async fn hanging_up_while_a_session_begins_leaves_none_that_nothing_ends() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    let mut begun = 0;
    for polls in 1..=40 {
        let mut beginning = Box::pin(begin_as(&mcp, &local));
        for _ in 0..polls {
            if futures_util::FutureExt::now_or_never(beginning.as_mut()).is_some() {
                begun += 1;
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert!(
        begun > 0 && begun < 40,
        "{begun}: some came through and some hung up before"
    );
    let settled = async || {
        let (theirs, ours, beginning) = mcp.counts().await;
        theirs == ours && ours >= begun && beginning == 0
    };
    helmdeck_testkit::until("as many sessions of rmcp as of ours", settled).await;
}
