//! Limits on concurrent calls, including streamed answers.

use tower::ServiceExt;

use super::*;

async fn open(
    fixture: &Fixture,
    method: Method,
    headers: &[(&str, &str)],
    body: String,
) -> Response {
    let mut request = Request::builder()
        .method(method)
        .uri("/mcp")
        .header("host", "localhost");
    for (name, value) in HEADERS.iter().chain(headers) {
        request = request.header(*name, *value);
    }
    fixture
        .router
        .clone()
        .oneshot(request.body(Body::from(body)).unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn progress_streams_count_as_requests_and_listeners_do_not() {
    let fixture = Fixture::build(
        ServerConfig {
            max_requests: 1,
            ..ServerConfig::default()
        },
        false,
    )
    .await;
    let session = begin(&fixture, "2025-11-25").await;
    let in_session = [("mcp-session-id", session.as_str())];
    let stream = open(&fixture, Method::GET, &in_session, String::new()).await;
    assert_eq!(stream.status(), 200);
    let listen = json!({"notifications": {"toolsListChanged": true}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {}}});
    let newest = [
        ("mcp-protocol-version", NEWEST),
        ("mcp-method", "subscriptions/listen"),
    ];
    let subscription = open(
        &fixture,
        Method::POST,
        &newest,
        request("subscriptions/listen", &listen),
    )
    .await;
    assert_eq!(subscription.status(), 200);

    for finishes in [true, false] {
        let call = json!({"name": "test__plain", "arguments": {"wait": true}, "_meta": {"progressToken": 1}});
        let running = open(
            &fixture,
            Method::POST,
            &in_session,
            request("tools/call", &call),
        )
        .await;
        assert_eq!(running.status(), 200);
        fixture.probe.someone_waits().await;
        let refused = fixture.get("/api/v1/packs").await;
        assert_eq!(
            (refused.status.as_u16(), refused.problem().as_str()),
            (503, "overloaded")
        );
        if finishes {
            fixture.probe.gate.add_permits(1);
            assert_eq!(message(&read(running).await)["result"]["isError"], false);
        } else {
            drop(running);
        }
        assert_eq!(fixture.get("/api/v1/packs").await.status, 200);
    }
    drop((stream, subscription));
}
