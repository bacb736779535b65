//! Packs of scope `session`: how each transport names the session, and calls without one.

use super::stdio::Client;
use super::*;

const PACK: &str = "/api/v1/packs/test.session";

/// Returns the cache status, and the reason of a bypass.
fn decision(outcome: &Value) -> (String, Option<String>) {
    let cache = &outcome["cache"];
    (
        cache["status"].as_str().unwrap().to_owned(),
        cache["reason"].as_str().map(str::to_owned),
    )
}

fn is(status: &str) -> (String, Option<String>) {
    (
        status.to_owned(),
        (status == "miss").then(|| "cold".to_owned()),
    )
}

fn bypassed() -> (String, Option<String>) {
    ("bypass".to_owned(), Some("no_session".to_owned()))
}

/// Calls the pack over REST, in the sessions that the headers name.
async fn rest(fixture: &Fixture, sessions: &[&str]) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(
        sessions
            .iter()
            .map(|session| ("helmdeck-session", *session)),
    );
    fixture.send(Method::POST, PACK, &headers, "{}").await
}

fn params() -> Value {
    json!({"name": "test__session", "arguments": {}})
}

/// Returns the cache status of a tool call.
fn of_tool(answer: &Value) -> (String, Option<String>) {
    decision(&json!({"cache": answer["result"]["_meta"]["helmdeck/cache"]}))
}

#[tokio::test]
async fn rest_call_without_session_bypasses_session_scope() {
    let fixture = Fixture::with_session_pack(None).await;
    for run in 1..=2 {
        let answer = rest(&fixture, &[]).await;
        assert_eq!(
            (decision(&answer.json()), fixture.probe.runs()),
            (bypassed(), run)
        );
        assert!(
            answer
                .header("cache-status")
                .ends_with("; detail=no_session"),
            "{answer:?}"
        );
    }
    for (session, status) in [
        ("A", "miss"),
        ("A", "hit"),
        ("B", "miss"),
        ("A", "hit"),
        ("B", "hit"),
    ] {
        assert_eq!(
            decision(&rest(&fixture, &[session]).await.json()),
            is(status),
            "{session}"
        );
    }
    let long = "x".repeat(257);
    for bad in [&[""][..], &[&long], &["A", "A"], &["a b"]] {
        let answer = rest(&fixture, bad).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem()),
            (400, "invalid_input".to_owned()),
            "{bad:?}"
        );
    }
}

#[tokio::test]
async fn stateless_mcp_call_without_session_bypasses_session_scope() {
    let fixture = Fixture::with_session_pack(None).await;
    for _ in 0..2 {
        assert_eq!(
            of_tool(&ask_newest(&fixture, "tools/call", params()).await),
            bypassed()
        );
    }
    for (session, status) in [("A", "miss"), ("A", "hit"), ("B", "miss")] {
        let answer = post_newest_with(
            &fixture,
            &[("helmdeck-session", session)],
            "tools/call",
            params(),
        )
        .await;
        assert_eq!(of_tool(&message(&answer)), is(status), "{session}");
    }
}

#[tokio::test]
async fn each_mcp_session_has_its_own_answers() {
    let fixture = Fixture::with_session_pack(None).await;
    for _ in 0..2 {
        let session = begin(&fixture, "2025-11-25").await;
        for status in ["miss", "hit"] {
            assert_eq!(
                of_tool(&ask(&fixture, &session, "tools/call", params()).await),
                is(status)
            );
        }
        // The request decides: the session that it names is used, not that of the connection.
        let headers = [
            ("mcp-session-id", session.as_str()),
            (
                "helmdeck-session",
                &format!("of {session}").replace(' ', "-"),
            ),
        ];
        let named = post(&fixture, &headers, &request("tools/call", &params())).await;
        assert_eq!(of_tool(&message(&named)), is("miss"));
    }
}

#[tokio::test]
async fn each_stdio_server_is_a_session_of_its_own() {
    let fixture = Fixture::with_session_pack(None).await;
    for _ in 0..2 {
        let mut client = Client::start(&fixture, &ServerConfig::default());
        client.begin().await;
        for status in ["miss", "hit"] {
            assert_eq!(
                of_tool(&client.ask("tools/call", params()).await),
                is(status)
            );
        }
    }
}
