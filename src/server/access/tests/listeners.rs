//! Who only listens is asked for its token again.

use super::*;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

#[tokio::test]
async fn a_stream_ends_and_its_session_is_gone_when_the_token_was_revoked() {
    let door = Door::plain().await;
    let (id, token) = door.api_token("acme", "alice", "packs:run", None).await;
    let (_, other) = door.api_token("acme", "alice", "packs:run", None).await;
    let send = async |method: Method, token: &str, session: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
        ];
        let shown = headers.len() - usize::from(session.is_empty());
        door.fixture.send(method, "/mcp", &headers[..shown], body).await
    };
    let begin = async |token: &str| {
        let answer = send(Method::POST, token, "", HELLO).await;
        answer.headers["mcp-session-id"].to_str().unwrap().to_owned()
    };
    let (session, kept) = (begin(&token).await, begin(&token).await);
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    // The same caller goes on in the second session with another token.
    assert_eq!(send(Method::POST, &other, &kept, ping).await.status, 200);
    let listening = send(Method::GET, &token, &session, "");
    let revoking = async {
        assert!(door.system.revoke_token(&id, START).await.unwrap());
        door.fixture.clock.advance(Duration::from_secs(1));
        // Whoever begins a session makes all be looked at; else it happens every ten seconds.
        begin(&other).await;
    };
    let both = async { tokio::join!(listening, revoking) };
    let (stream, ()) = tokio::time::timeout(Duration::from_secs(20), Box::pin(both)).await.unwrap();
    assert_eq!(stream.status, 200);
    assert_eq!(send(Method::POST, &other, &session, ping).await.status, 404);
    assert_eq!(send(Method::POST, &other, &kept, ping).await.status, 200);
}
