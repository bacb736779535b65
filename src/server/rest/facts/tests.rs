//! The routes of facts, through the whole router.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::fixture::Fixture;

const PATHS: [(&str, &str); 4] = [
    ("POST", "store"),
    ("POST", "recall"),
    ("POST", "forget"),
    ("GET", "facts"),
];

#[tokio::test]
async fn a_fact_is_kept_recalled_listed_and_forgotten() {
    let fixture = Fixture::with_memory().await;
    let kept = fixture
        .post(
            "/api/v1/memory/store",
            r#"{"key":" lang ","value":" German ","tags":["style"]}"#,
        )
        .await;
    assert_eq!(
        (kept.status.as_u16(), kept.header("cache-control")),
        (200, "no-store"),
        "{kept:?}"
    );
    let about = kept.json();
    assert_eq!(
        (&about["key"], &about["category"]),
        (&json!("lang"), &json!("user_facts"))
    );
    // 2027-01-15T08:00:00Z, the time of the fixture, and 90 days.
    assert_eq!(about["expires_at"], "2027-04-15T08:00:00.000000Z");
    assert!(
        about.get("pack").is_none() && about.get("value").is_none(),
        "{about}"
    );

    fixture.clock.advance(Duration::from_secs(1));
    fixture
        .post(
            "/api/v1/memory/store",
            r#"{"key":"g","value":"1","category":"work","ttl_seconds":3600.0}"#,
        )
        .await;
    let recalled = fixture
        .post("/api/v1/memory/recall", r#"{"key":"lang"}"#)
        .await
        .json();
    assert_eq!(
        (
            &recalled["facts"][0]["value"],
            recalled["facts"].as_array().unwrap().len()
        ),
        (&json!("German"), 1)
    );
    let keys = |answer: Value| -> Vec<String> {
        answer["facts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fact| fact["key"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        keys(fixture.post("/api/v1/memory/recall", "").await.json()),
        ["g", "lang"],
        "newest first"
    );
    assert_eq!(
        keys(fixture.get("/api/v1/memory/facts?tag=style").await.json()),
        ["lang"]
    );
    let page = fixture.get("/api/v1/memory/facts?limit=1").await.json();
    let next = page["next"].as_str().unwrap().to_owned();
    assert_eq!(keys(page), ["g"]);
    let last = fixture
        .get(&format!("/api/v1/memory/facts?limit=1&after={next}"))
        .await
        .json();
    assert!(last["next"].is_null() && keys(last) == ["lang"]);

    let gone = fixture
        .post("/api/v1/memory/forget", r#"{"key":"la"}"#)
        .await
        .json();
    assert_eq!(
        gone,
        json!({"removed": {"facts": 0}, "pending": false}),
        "a key is exact"
    );
    let gone = fixture
        .post("/api/v1/memory/forget", r#"{"all":true}"#)
        .await
        .json();
    assert_eq!(gone, json!({"removed": {"facts": 2}, "pending": false}));
    assert!(keys(fixture.get("/api/v1/memory/facts").await.json()).is_empty());
}

#[tokio::test]
async fn unknown_members_are_refused_and_not_echoed() {
    let fixture = Fixture::with_memory().await;
    for (path, body) in [
        ("store", ""),
        ("store", r#"{"key":"canary"}"#),
        ("store", r#"{"key":"canary","value":" "}"#),
        ("store", r#"{"key":"\t","value":"canary"}"#),
        (
            "store",
            r#"{"key":"canary","value":"v","ttl_seconds":3599}"#,
        ),
        (
            "store",
            r#"{"key":"canary","value":"v","ttl_seconds":31536001}"#,
        ),
        (
            "store",
            r#"{"key":"canary","value":"v","ttl_seconds":18446747674}"#,
        ),
        (
            "store",
            r#"{"key":"canary","value":"v","ttl_seconds":1e30}"#,
        ),
        ("store", r#"{"key":"canary","value":"v","ttl_seconds":-1}"#),
        ("store", r#"{"key":"canary","value":"v","canary":1}"#),
        ("store", r#"{"key":"canary","value":"v","value":"w"}"#),
        ("store", r#"{"key":"canary","value":7}"#),
        ("store", r#"{"key":"canary","value":"v","tags":[" "]}"#),
        ("store", r#"["canary","v",null,[],null]"#),
        ("store", r#"{"key":"canary""#),
        ("recall", r#"{"key":"canary","limit":1}"#),
        ("recall", r#"{"limit":101}"#),
        ("recall", r#"{"after":"canary"}"#),
        ("forget", ""),
        ("forget", r#"{"prefix":"canary"}"#),
        ("forget", r#"{"key":"canary","all":true}"#),
        ("forget", r#"{"key":"canary","what":["cache"]}"#),
    ] {
        let answer = fixture.post(&format!("/api/v1/memory/{path}"), body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (400, "invalid_input"),
            "{path} {body}"
        );
        assert!(!answer.body.contains("canary"), "{path} {body}: {answer:?}");
    }
    for query in [
        "facts?limit=0",
        "facts?limit=1001",
        "facts?nonsense=1",
        "facts?after=x",
    ] {
        assert_eq!(
            fixture
                .get(&format!("/api/v1/memory/{query}"))
                .await
                .problem(),
            "invalid_input",
            "{query}"
        );
    }
    let long = json!({"key": "k".repeat(1025), "value": "v"}).to_string();
    let answer = fixture.post("/api/v1/memory/store", &long).await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (413, "too_large")
    );
    assert_eq!(
        fixture.post("/api/v1/memory/recall", "{}").await.json()["facts"],
        json!([]),
        "nothing was kept"
    );
}

#[tokio::test]
async fn without_memory_key_fact_routes_say_the_same() {
    let fixture = Fixture::plain().await;
    for (method, path) in PATHS {
        let method: Method = method.parse().unwrap();
        let answer = fixture
            .send(method, &format!("/api/v1/memory/{path}"), &[], "")
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (404, "not_found"),
            "{path}"
        );
        assert_eq!(
            answer.json()["detail"],
            "memory is off: this engine has no memory key",
            "{path}"
        );
    }
}
