//! Conversations as a whole: snapshot, restore, flush, summarise, forget.

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use tower::ServiceExt;

use super::*;

/// A snapshot written by another program: all members, escapes, a big number, and unknown members.
const FOREIGN: &str = concat!(
    r#"{"strategy":"truncation","turns":[{"UserMessage":"a \u003cb\u003e \u0026 é","AssistantResponse":"\u2028","#,
    r#""TrajectoryDigest":{"ToolsInvoked":null,"ObservationsSummary":"o","ReasoningSummary":"","ArtifactsRefs":["r"],"New":1.50},"#,
    r#""ArtifactsShown":{"n":12345678901234567890.10,"z":{"b":1,"a":[ ]}},"ArtifactsHiddenRefs":[],"#,
    r#""Timestamp":"2026-06-02T10:00:00.123456789+02:00","Later":{"x":[1,2]}},"#,
    r#"{"UserMessage":"second","AssistantResponse":"","TrajectoryDigest":null,"ArtifactsShown":null,"ArtifactsHiddenRefs":null,"#,
    r#""Timestamp":"0001-01-01T00:00:00Z"}],"later":"kept"}"#,
);

#[tokio::test]
async fn a_snapshot_comes_out_as_it_went_in() {
    let client = RestClient::plain().await;
    client.say(ALICE, "s", "before").await;
    let restored = client.post(ALICE, "/s/restore", FOREIGN).await;
    assert_eq!(
        (restored.status.as_u16(), restored.body.as_str()),
        (204, ""),
        "{restored:?}"
    );
    let taken = client.get(ALICE, "/s/snapshot").await;
    assert_eq!(
        (
            taken.header("content-type"),
            taken.header("helmdeck-strategy")
        ),
        ("application/json", "truncation")
    );
    assert_eq!(taken.body, FOREIGN);
    assert_eq!(client.said(ALICE, "s").await, ["a <b> & é", "second"]);
    // Into another conversation of another caller, and out of it again.
    assert_eq!(
        client.post(BOB, "/t/restore", &taken.body).await.status,
        204
    );
    assert_eq!(client.get(BOB, "/t/snapshot").await.body, FOREIGN);
}

#[tokio::test]
async fn a_snapshot_that_is_none_changes_nothing() {
    let client = RestClient::plain().await;
    client.say(ALICE, "s", "kept").await;
    let before = client.get(ALICE, "/s/snapshot").await.body;
    for body in [
        "",
        " ",
        "null",
        "[]",
        "{",
        r#"{"turns":7}"#,
        r#"{"strategy":"rolling_summary","summary":"canary"}"#,
        r#"{"strategy":"canary"}"#,
        r#"{"strategy":"truncation","turns":[{"user_message":"canary"}]}"#,
        r#"{"strategy":"truncation","strategy":"truncation"}"#,
    ] {
        let answer = client.post(ALICE, "/s/restore", body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (400, "invalid_input"),
            "{body}"
        );
        assert!(!answer.body.contains("canary"), "{answer:?}");
    }
    let form = [("content-type", "text/plain")];
    let answer = client
        .0
        .send(POST, &format!("{ROOT}/s/restore"), &form, FOREIGN)
        .await;
    assert_eq!(answer.status, 401, "nobody restores");
    assert_eq!(client.get(ALICE, "/s/snapshot").await.body, before);
}

#[tokio::test]
async fn snapshots_may_be_as_large_as_a_conversation() {
    let config = Config {
        max_bytes: 100_000,
        max_turn_bytes: 100_000,
        budget_tokens: 0,
        ..Config::default()
    };
    let server = ServerConfig {
        max_body_bytes: 2000,
        ..ServerConfig::default()
    };
    let client = RestClient::over(
        server,
        ConversationSetup {
            config,
            summarizer: None,
        },
    )
    .await;
    let turn = |text: &str| {
        format!(
            r#"{{"UserMessage":"{text}","AssistantResponse":"","TrajectoryDigest":null,"ArtifactsShown":null,"ArtifactsHiddenRefs":null,"Timestamp":"2026-06-02T10:00:00Z"}}"#
        )
    };
    let record = |count: usize| {
        let turns: Vec<String> = (0..count).map(|_| turn(&"x".repeat(900))).collect();
        format!(
            r#"{{"strategy":"truncation","turns":[{}]}}"#,
            turns.join(",")
        )
    };
    assert_eq!(
        client.post(ALICE, "/s/restore", &record(50)).await.status,
        204
    );
    assert_eq!(client.said(ALICE, "s").await.len(), 50);
    let refused = client.post(ALICE, "/s/restore", &record(100)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.problem().as_str()),
        (413, "too_large")
    );
    assert_eq!(client.said(ALICE, "s").await.len(), 50, "all or nothing");
}

/// Sends a large snapshot that never ends.
fn endless(client: &RestClient, user: &str) -> Sending {
    let now = START.micros() / 1_000_000;
    let claims = json!({"sub": user, "tenant": "acme", "scope": "memory:write", "exp": now + 600, "iat": now});
    let request = Request::builder()
        .method(POST)
        .uri(format!("{ROOT}/s/restore"))
        .header("host", "localhost")
        .header(
            "authorization",
            format!(
                "Bearer {}",
                Issuer::shared(SECRET.as_bytes()).token(&claims)
            ),
        )
        .body(Body::from_stream(futures_util::stream::pending::<
            Result<Bytes, std::io::Error>,
        >()));
    Box::pin(client.0.router.clone().oneshot(request.unwrap()))
}

type Sending = std::pin::Pin<
    Box<dyn Future<Output = Result<axum::response::Response, std::convert::Infallible>>>,
>;

/// Takes all slots for large snapshots, until the answer is dropped.
fn all_places(client: &RestClient) -> Vec<Sending> {
    let mut slow: Vec<_> = ["bob", "carol"]
        .into_iter()
        .flat_map(|user| [endless(client, user), endless(client, user)])
        .collect();
    for sending in &mut slow {
        assert!(sending.now_or_never().is_none());
    }
    slow
}

#[tokio::test]
async fn few_large_snapshots_are_read_at_once() {
    let client = RestClient::plain().await;
    let slow = all_places(&client);
    assert_eq!(endless(&client, "alice").await.unwrap().status(), 503);
    let small = client.post(ALICE, "/s/restore", FOREIGN);
    // A test request has no declared length.
    assert_eq!(small.await.status, 503);
    let length = FOREIGN.len().to_string();
    let path = format!("{ROOT}/s/restore");
    let small = client
        .ask_with(ALICE, POST, &path, &[("content-length", &length)], FOREIGN)
        .await;
    assert_eq!(small.status, 204, "an ordinary body has no need of a place");
    drop(slow);
    assert_eq!(client.post(ALICE, "/s/restore", FOREIGN).await.status, 204);
}

#[tokio::test]
async fn large_snapshots_are_limited_per_caller() {
    let client = RestClient::plain().await;
    let mut slow = [endless(&client, "bob"), endless(&client, "bob")];
    assert!(
        slow.iter_mut()
            .all(|sending| sending.now_or_never().is_none())
    );
    assert_eq!(endless(&client, "bob").await.unwrap().status(), 503);
    assert_eq!(client.post(ALICE, "/s/restore", FOREIGN).await.status, 204);
}

#[tokio::test]
async fn few_large_snapshots_are_made_at_once() {
    let server = ServerConfig {
        max_body_bytes: 2000,
        ..ServerConfig::default()
    };
    let client = RestClient::over(
        server,
        ConversationSetup {
            config: Config::default(),
            summarizer: None,
        },
    )
    .await;
    client.say(ALICE, "small", "a").await;
    for _ in 0..2 {
        client.say(ALICE, "large", &"x".repeat(1500)).await;
    }
    let places = all_places(&client);
    assert_eq!(
        client.get(ALICE, "/large/snapshot").await.problem(),
        "overloaded"
    );
    assert_eq!(
        client.get(ALICE, "/small/snapshot").await.status,
        200,
        "an ordinary one has no need of a place"
    );
    drop(places);
    for _ in 0..5 {
        assert_eq!(
            client.get(ALICE, "/large/snapshot").await.status,
            200,
            "places are given back"
        );
    }
}

#[tokio::test]
async fn a_conversation_is_emptied_and_forgotten() {
    let client = RestClient::plain().await;
    let first = client.say(ALICE, "s", "a").await;
    assert_eq!(client.post(ALICE, "/s/flush", "").await.status, 204);
    assert!(client.said(ALICE, "s").await.is_empty());
    assert_eq!(
        client.ask(ALICE, GET, &first, "").await.problem(),
        "not_found"
    );
    let changed = client.events("memory.health_changed");
    assert_eq!(changed.len(), 1, "a flush is told");
    client.say(ALICE, "s", "b").await;
    assert_eq!(
        client.delete(ALICE, "/s").await.json(),
        json!({"removed_turns": 1})
    );
    assert_eq!(
        client.delete(ALICE, "/s").await.json(),
        json!({"removed_turns": 0})
    );
    assert_eq!(client.get(ALICE, "").await.json()["total"], 0);
}

#[tokio::test]
async fn fold_summarises_and_shows_in_health_and_trace() {
    let client = RestClient::open(rolling()).await;
    for text in ["one", "two", "three"] {
        client.say(ALICE, "s", text).await;
    }
    let done =
        json!({"health": "healthy", "backlog_turns": 0, "failures": 0, "last_failure": null});
    assert_eq!(client.post(ALICE, "/s/fold", "").await.json(), done);
    let patch = client.get(ALICE, "/s/context").await.json();
    assert_eq!(
        (
            patch["summary"]
                .as_str()
                .unwrap()
                .contains("\n\"one; two\"\n"),
            &patch["goal"]
        ),
        (true, &json!("one")),
        "{patch}"
    );
    assert_eq!(client.said(ALICE, "s").await, ["three"]);
    assert_eq!(client.get(ALICE, "/s/health").await.json(), done);
    let trace = client.get(ALICE, "/s/trace").await.json();
    assert_eq!(
        (
            &trace["summary"],
            &trace["kept_turns"],
            &trace["covers_through"]
        ),
        (&json!("one; two"), &json!(3), &json!(2))
    );
    assert_eq!(
        client.get(ALICE, "/s/turns?folded=true").await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        client
            .get(ALICE, "/s/context?format=prompt")
            .await
            .body
            .contains("one; two")
    );
    let snapshot = client.get(ALICE, "/s/snapshot").await;
    assert_eq!(snapshot.header("helmdeck-strategy"), "rolling_summary");
    assert_eq!(
        (
            &snapshot.json()["summary"],
            snapshot.json()["turns"].as_array().unwrap().len()
        ),
        (&json!("one; two"), 1)
    );
}

#[tokio::test]
async fn a_closed_memory_says_so_on_every_route() {
    let client = RestClient::plain().await;
    client.say(ALICE, "s", "a").await;
    client.0.conversations.close(Duration::from_secs(5)).await;
    for (method, route, body) in ROUTES {
        let answer = client
            .ask(ALICE, method.clone(), &format!("{ROOT}/s{route}"), body)
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (503, "overloaded"),
            "{method} {route}"
        );
    }
}
