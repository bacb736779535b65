//! Open streams: the server checks the token of a listener again.

use super::*;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

#[tokio::test]
async fn revoked_token_ends_stream_and_session() {
    let client = TestServer::plain().await;
    let (id, token) = client.api_token("acme", "alice", "packs:run", None).await;
    let (_, other) = client.api_token("acme", "alice", "packs:run", None).await;
    let send = async |method: Method, token: &str, session: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
        ];
        let shown = headers.len() - usize::from(session.is_empty());
        client
            .fixture
            .send(method, "/mcp", &headers[..shown], body)
            .await
    };
    let begin = async |token: &str| {
        let answer = send(Method::POST, token, "", HELLO).await;
        answer.headers["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (session, kept) = (begin(&token).await, begin(&token).await);
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    // The same caller continues in the second session with another token.
    assert_eq!(send(Method::POST, &other, &kept, ping).await.status, 200);
    let listening = send(Method::GET, &token, &session, "");
    let revoking = async {
        // The stream is asked for before: a revoked token opens none.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(
            client
                .system
                .revoke_token(&id, &TokenReach::all(), START)
                .await
                .unwrap()
        );
        client.fixture.clock.advance(Duration::from_secs(1));
        // A new session triggers a check of all listeners; otherwise a check runs every ten
        // seconds.
        begin(&other).await;
    };
    let both = async { tokio::join!(listening, revoking) };
    let (stream, ()) = helmdeck_testkit::ends("the stream", Box::pin(both)).await;
    assert_eq!(stream.status, 200);
    assert_eq!(send(Method::POST, &other, &session, ping).await.status, 404);
    assert_eq!(send(Method::POST, &other, &kept, ping).await.status, 200);
}

/// Method, path, headers and body of a request.
type Lasting<'a> = (Method, &'a str, &'a [(&'a str, &'a str)], &'a str);

/// Every answer that lasts: event streams of the server and of a job, an MCP stream, and a call.
/// The runtime's clock goes on only while nothing else does, so that the second is that of the
/// clock.
#[tokio::test(start_paused = true)]
async fn revoked_token_ends_every_answer_that_lasts() {
    let client = TestServer::plain().await;
    let job = {
        let (_, token) = client.api_token("acme", "alice", "packs:run", None).await;
        let headers = [
            ("authorization", &*format!("Bearer {token}")),
            ("prefer", "respond-async"),
        ];
        let headers = [headers[0], headers[1], ("content-type", "application/json")];
        let answer = client
            .fixture
            .send(
                Method::POST,
                "/api/v1/packs/test.plain",
                &headers,
                r#"{"wait":true}"#,
            )
            .await;
        client.fixture.probe.someone_waits().await;
        answer.json()["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", answer.body))
            .to_owned()
    };
    let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let newest = ("mcp-protocol-version", "2026-07-28");
    let accept = ("accept", "application/json, text/event-stream");
    let json = ("content-type", "application/json");
    let follow = format!("/api/v1/jobs/{job}/events");
    let lasting: &[Lasting<'_>] = &[
        (Method::GET, "/api/v1/events?topics=calls,jobs", &[], ""),
        (Method::GET, &follow, &[], ""),
        (
            Method::POST,
            "/mcp",
            &[accept, json, newest, ("mcp-method", "subscriptions/listen")],
            subscribe,
        ),
        (
            Method::POST,
            "/api/v1/packs/test.plain",
            &[json],
            r#"{"wait":true}"#,
        ),
    ];
    for (method, path, headers, body) in lasting {
        let (id, token) = client
            .api_token("acme", "alice", "packs:run memory:read", None)
            .await;
        let bearer = format!("Bearer {token}");
        let headers: Vec<(&str, &str)> = [("authorization", bearer.as_str())]
            .iter()
            .chain(*headers)
            .copied()
            .collect();
        let answering = client.fixture.send(method.clone(), path, &headers, body);
        let revoking = async {
            if body.contains("wait") {
                client.fixture.probe.someone_waits().await;
            } else {
                // The request is recorded as the token's use once it was let in.
                while client
                    .system
                    .tokens()
                    .await
                    .unwrap()
                    .iter()
                    .any(|token| token.id == id && token.used_at.is_none())
                {
                    tokio::task::yield_now().await;
                }
            }
            assert!(
                client
                    .system
                    .revoke_token(&id, &TokenReach::all(), START)
                    .await
                    .unwrap()
            );
            client.fixture.clock.advance(Duration::from_secs(1));
            if body.contains("wait") {
                // One is for the job.
                client.fixture.probe.gate.add_permits(2);
            }
            tokio::time::Instant::now()
        };
        let (answer, revoked) = Box::pin(async { tokio::join!(answering, revoking) }).await;
        let waited = revoked.elapsed();
        assert!(waited <= Duration::from_secs(1), "{path} {waited:?}");
        // A call that ran meanwhile does not answer either.
        assert_eq!(
            answer.status,
            if body.contains("wait") { 401 } else { 200 },
            "{path} {}",
            answer.body
        );
    }
}

#[tokio::test]
async fn session_survives_while_its_token_cannot_be_checked() {
    let client = TestServer::plain().await;
    let (id, alice) = client.api_token("acme", "alice", "packs:run", None).await;
    let send = async |token: &str, session: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
        ];
        let shown = headers.len() - usize::from(session.is_empty());
        client
            .fixture
            .send(Method::POST, "/mcp", &headers[..shown], body)
            .await
    };
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let bob = shared("bob", "packs:run");
    let session = send(&alice, "", HELLO)
        .await
        .header("mcp-session-id")
        .to_owned();
    // The database is unreadable; the new session triggers a check of all listeners.
    let away = client.take_database_away();
    client.fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(
        client.post(RUN, &alice, "{}").await.status,
        200,
        "its token stays good for a while"
    );
    assert_eq!(send(&bob, "", HELLO).await.status, 200);
    away.put_back();
    let again = send(&alice, &session, ping).await;
    assert_eq!(again.status, 200, "{}", again.body);
    // A refusal ends it.
    assert!(
        client
            .system
            .revoke_token(&id, &TokenReach::all(), START)
            .await
            .unwrap()
    );
    client.fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(send(&bob, "", HELLO).await.status, 200);
    assert_eq!(
        send(&shared("alice", "packs:run"), &session, ping)
            .await
            .status,
        404
    );
}
