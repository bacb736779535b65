//! The routes, through the whole router.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use helmdeck_core::{Caller, Identity, Permissions};
use http::{Method, Request};
use serde_json::json;
use tower::ServiceExt;

use crate::ServerConfig;
use crate::app::App;
use crate::fixture::Fixture;

#[tokio::test]
async fn pack_runs_on_body_and_empty_body_is_empty_object() {
    let fixture = Fixture::plain().await;
    let answer = fixture
        .post("/api/v1/packs/test.plain", r#"{"text":"a"}"#)
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("content-type")),
        (200, "application/json")
    );
    let body = answer.json();
    assert_eq!(
        (&body["pack"], &body["version"]),
        (&json!("test.plain"), &json!("v2"))
    );
    assert_eq!(body["output"], json!({"run": 1, "text": "a"}));
    let answer = fixture
        .send(Method::POST, "/api/v1/packs/test.plain/v1", &[], "")
        .await;
    assert_eq!(
        (&answer.json()["version"], &answer.json()["output"]["text"]),
        (&json!("v1"), &json!(null))
    );
    assert_eq!(
        fixture
            .post("/api/v1/packs/test.plain/latest", "{}")
            .await
            .json()["version"],
        "v2"
    );
}

#[tokio::test]
async fn errors_are_problem_details() {
    let fixture = Fixture::plain().await;
    for (path, body, status, code) in [
        ("/api/v1/packs/test.plan", "{}", 404, "not_found"),
        ("/api/v1/packs/Not%20A%20Name", "{}", 404, "not_found"),
        ("/api/v1/packs/test.plain/v3", "{}", 404, "not_found"),
        ("/api/v1/packs/test.plain/2", "{}", 400, "invalid_input"),
        ("/api/v1/packs/test.plain", "{", 400, "invalid_input"),
        (
            "/api/v1/packs/test.plain",
            r#"{"text":1}"#,
            400,
            "invalid_input",
        ),
        (
            "/api/v1/packs/test.plain",
            r#"{"fail":"rate_limited"}"#,
            429,
            "rate_limited",
        ),
        ("/api/v1/packs/test.plain/v1/x", "{}", 404, "not_found"),
        ("/api/v1/nothing/1", "{}", 404, "not_found"),
        ("/nowhere", "{}", 404, "not_found"),
        ("/api/v1/packs", "{}", 405, "invalid_input"),
    ] {
        let answer = fixture.post(path, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (status, code),
            "{path} {body}"
        );
    }
    let limited = fixture
        .post("/api/v1/packs/test.plain", r#"{"fail":"rate_limited"}"#)
        .await;
    assert_eq!(
        (
            limited.header("retry-after"),
            &limited.json()["retry_after_ms"]
        ),
        ("2", &json!(1500))
    );
    let unknown = fixture.post("/api/v1/packs/test.plan", "{}").await;
    assert!(
        unknown.json()["detail"]
            .as_str()
            .unwrap()
            .contains("test.plain"),
        "{unknown:?}"
    );
    assert!(
        fixture
            .send(Method::PUT, "/api/v1/packs", &[], "")
            .await
            .header("allow")
            .contains("GET")
    );
}

#[tokio::test]
async fn only_plain_json_bodies_of_a_bounded_size_are_read() {
    let config = ServerConfig {
        max_body_bytes: 64,
        ..ServerConfig::default()
    };
    let fixture = Fixture::build(config, false).await;
    let send = async |headers: &[(&str, &str)], body: &str| {
        fixture
            .send(Method::POST, "/api/v1/packs/test.plain", headers, body)
            .await
    };
    let answer = send(
        &[("content-type", "application/x-www-form-urlencoded")],
        "{}",
    )
    .await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (415, "invalid_input")
    );
    let answer = send(&[("content-encoding", "gzip")], "{}").await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("accept-encoding")),
        (415, "identity")
    );
    answer.problem();
    let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(64));
    let answer = send(&[], &large).await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (413, "too_large")
    );
    assert_eq!(fixture.probe.runs(), 0);
    assert_eq!(
        send(&[("content-type", "application/json; charset=utf-8")], "{}")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_route() {
    let fixture = Fixture::plain().await;
    for path in ["/api/v1/packs", "/docs", "/healthz", "/metrics", "/nowhere"] {
        let foreign = [("origin", "https://evil.example")];
        let answer = fixture.send(Method::GET, path, &foreign, "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (403, "forbidden"),
            "{path}"
        );
        let answer = fixture
            .send(Method::GET, path, &[("host", "evil.example")], "")
            .await;
        assert_eq!(answer.status, 400, "two Host headers: {path}");
    }
    assert_eq!(
        fixture
            .send(
                Method::GET,
                "/healthz",
                &[("origin", "http://localhost:1")],
                ""
            )
            .await
            .status,
        403
    );
    assert_eq!(
        fixture
            .send(
                Method::GET,
                "/healthz",
                &[("origin", "http://localhost")],
                ""
            )
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn listed_origin_may_ask_and_read() {
    let config = ServerConfig {
        allowed_origins: vec!["https://app.example".to_owned()],
        ..ServerConfig::default()
    };
    let fixture = Fixture::build(config, false).await;
    let path = "/api/v1/packs/test.plain";
    let (origin, json) = (
        ("origin", "https://app.example"),
        ("content-type", "application/json"),
    );
    let wants = [
        origin,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type"),
    ];
    let asked = fixture.send(Method::OPTIONS, path, &wants, "").await;
    assert_eq!(
        (
            asked.status.as_u16(),
            asked.header("access-control-allow-origin")
        ),
        (204, "https://app.example")
    );
    assert!(
        asked
            .header("access-control-allow-headers")
            .contains("Authorization"),
        "{asked:?}"
    );
    let called = fixture
        .send(Method::POST, path, &[origin, json], "{}")
        .await;
    assert_eq!(
        (
            called.status.as_u16(),
            called.header("access-control-allow-origin")
        ),
        (200, "https://app.example")
    );
    // A page of another origin learns nothing from asking, and the server's own has nothing to ask.
    let wants = [
        ("origin", "http://localhost:1"),
        ("access-control-request-method", "POST"),
    ];
    let asked = fixture.send(Method::OPTIONS, path, &wants, "").await;
    assert_eq!(
        (
            asked.status.as_u16(),
            asked.header("access-control-allow-origin")
        ),
        (403, "")
    );
    let own = fixture
        .send(
            Method::POST,
            path,
            &[("origin", "http://localhost"), json],
            "{}",
        )
        .await;
    assert_eq!(
        (
            own.status.as_u16(),
            own.header("access-control-allow-origin")
        ),
        (200, "")
    );
}

#[tokio::test]
async fn second_call_is_a_hit_in_both_headers() {
    let fixture = Fixture::with_memory().await;
    let path = "/api/v1/packs/test.cached";
    let first = fixture.post(path, r#"{"text":"a"}"#).await;
    let key = first.json()["cache"]["key"].as_str().unwrap().to_owned();
    assert!(
        first
            .header("cache-status")
            .starts_with("helmdeck; fwd=miss"),
        "{first:?}"
    );
    assert_eq!(first.header("age"), "0");
    fixture.clock.advance(Duration::from_secs(7));
    let second = fixture.post(path, r#"{"text":"a"}"#).await;
    assert_eq!(
        second.header("cache-status"),
        format!("helmdeck; hit; ttl=293; key=\"{key}\"")
    );
    assert_eq!(
        (second.header("age"), &second.json()["cache"]["status"]),
        ("7", &json!("hit"))
    );
    assert_eq!(second.json()["output"], first.json()["output"]);
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn cache_control_is_obeyed() {
    let fixture = Fixture::with_memory().await;
    let send = async |directive: &str| {
        let headers = [("cache-control", directive)];
        fixture
            .send(
                Method::POST,
                "/api/v1/packs/test.cached",
                &headers,
                r#"{"text":"a"}"#,
            )
            .await
    };
    let missing = send("only-if-cached").await;
    assert_eq!(
        (
            missing.status.as_u16(),
            missing.problem().as_str(),
            fixture.probe.runs()
        ),
        (504, "cache_miss", 0)
    );
    let bypassed = send("no-store").await;
    assert!(
        bypassed
            .header("cache-status")
            .starts_with("helmdeck; fwd=bypass;"),
        "{bypassed:?}"
    );
    assert_eq!(
        send("only-if-cached").await.status,
        504,
        "a bypass stores nothing"
    );
    let refreshed = send("no-cache").await;
    assert!(
        refreshed
            .header("cache-status")
            .starts_with("helmdeck; fwd=request"),
        "{refreshed:?}"
    );
    assert!(
        send("only-if-cached")
            .await
            .header("cache-status")
            .starts_with("helmdeck; hit;")
    );
    fixture.clock.advance(Duration::from_secs(60));
    assert!(
        send("max-age=59")
            .await
            .header("cache-status")
            .starts_with("helmdeck; fwd=")
    );
    assert_eq!(fixture.probe.runs(), 3);
}

#[tokio::test]
async fn shut_gate_leaves_no_trace_in_headers() {
    let (with, without) = (Fixture::with_memory().await, Fixture::plain().await);
    let ask = [("cache-control", "no-cache, max-age=5")];
    for (fixture, pack) in [
        (&with, "test.plain"),
        (&without, "test.cached"),
        (&without, "test.plain"),
    ] {
        let path = format!("/api/v1/packs/{pack}");
        for headers in [&ask[..], &[]] {
            let answer = fixture.send(Method::POST, &path, headers, "{}").await;
            let names: Vec<_> = answer
                .headers
                .keys()
                .map(http::HeaderName::as_str)
                .collect();
            assert_eq!(
                names,
                ["content-type", "content-length", "x-request-id"],
                "{pack}"
            );
            assert!(answer.json().get("cache").is_none(), "{pack}");
        }
    }
}

#[tokio::test]
async fn packs_are_listed_and_shown_by_version() {
    let fixture = Fixture::with_memory().await;
    let list = fixture.get("/api/v1/packs").await.json();
    let names: Vec<_> = list["packs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pack| pack["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["test.cached", "test.plain", "test.write"]);
    assert_eq!(
        (&list["packs"][1]["versions"], &list["packs"][1]["version"]),
        (&json!(["v1", "v2"]), &json!("v2"))
    );
    assert_eq!(
        (&list["packs"][0]["cached"], &list["packs"][2]["read_only"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(list["refused"], json!([]));

    let shown = fixture.get("/api/v1/packs/test.plain/v1").await.json();
    assert_eq!(
        (
            &shown["version"],
            &shown["input"]["properties"]["wait"]["type"]
        ),
        (&json!("v1"), &json!("boolean"))
    );
    assert_eq!(
        fixture.get("/api/v1/packs/test.plain").await.json()["version"],
        "v2"
    );
    assert_eq!(
        fixture.get("/api/v1/packs/test.nothing").await.problem(),
        "not_found"
    );
    let head = fixture.send(Method::HEAD, "/api/v1/packs", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn waiting_packs_are_listed_on_request() {
    let fixture = Fixture::with_waiting_pack().await;
    let named = |list: &serde_json::Value| {
        list["packs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|pack| pack["name"] == "test.waits")
    };
    assert!(!named(&fixture.get("/api/v1/packs").await.json()));
    let all = fixture.get("/api/v1/packs?all=true").await.json();
    let waits: Vec<_> = all["packs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pack| pack.get("waits_for").is_some())
        .collect();
    assert_eq!((waits.len(), &waits[0]["name"]), (1, &json!("test.waits")));
    assert!(
        waits[0]["waits_for"]
            .as_str()
            .unwrap()
            .starts_with("a memory key: ")
    );
    assert!(
        named(&all)
            && fixture.get("/api/v1/packs/test.waits").await.json()["waits_for"].is_string()
    );
    assert_eq!(
        fixture.post("/api/v1/packs/test.waits", "{}").await.status,
        200
    );
    assert_eq!(
        fixture.get("/api/v1/packs?al=true").await.problem(),
        "invalid_input"
    );
}

#[tokio::test]
async fn artifacts_are_downloaded_but_never_rendered() {
    let fixture = Fixture::plain().await;
    let outcome = fixture
        .post("/api/v1/packs/test.plain", r#"{"file":"<b>hi</b>"}"#)
        .await
        .json();
    let path = format!(
        "/api/v1/artifacts/{}",
        outcome["artifacts"][0]["key"].as_str().unwrap()
    );
    let file = fixture.get(&path).await;
    assert_eq!(
        (file.body.as_str(), file.header("content-type")),
        ("<b>hi</b>", "text/html")
    );
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename=\"page.html\""
    );
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    assert!(file.header("content-security-policy").contains("sandbox"));
    let known = fixture
        .send(
            Method::GET,
            &path,
            &[("if-none-match", file.header("etag"))],
            "",
        )
        .await;
    assert_eq!((known.status.as_u16(), known.body.as_str()), (304, ""));
    for other in [
        "x",
        "test.plain/x/page.html",
        "../../etc/passwd",
        "..%2F..%2Fetc%2Fpasswd",
    ] {
        assert_eq!(
            fixture
                .get(&format!("/api/v1/artifacts/{other}"))
                .await
                .problem(),
            "not_found",
            "{other}"
        );
    }
}

#[tokio::test]
async fn stored_answers_are_listed_and_purged() {
    let fixture = Fixture::with_memory().await;
    let call = async || {
        fixture
            .post("/api/v1/packs/test.cached", r#"{"text":"canary"}"#)
            .await
            .json()
    };
    call().await;
    // The write happens after the answer.
    fixture.engine.memory().unwrap().flush().await;
    let entries = fixture.get("/api/v1/memory/entries").await.json();
    assert_eq!(
        (
            &entries["entries"][0]["kind"],
            &entries["entries"][0]["tenant"]
        ),
        (&json!("cache"), &json!("local"))
    );
    assert!(!entries.to_string().contains("canary"));
    let of_pack = fixture
        .get("/api/v1/memory/entries?pack=test.cached&limit=1")
        .await
        .json();
    assert_eq!(of_pack["entries"], entries["entries"]);
    assert_eq!(
        fixture
            .get("/api/v1/memory/entries?pack=test.plain")
            .await
            .json()["entries"],
        json!([])
    );
    let namespaces = fixture.get("/api/v1/memory/namespaces").await.json();
    assert!(
        namespaces["namespaces"]
            .as_array()
            .unwrap()
            .iter()
            .any(|n| n["kind"] == "cache" && n["rows"] == 1)
    );

    for what in [
        r#"{"tag":"test:all"}"#,
        r#"{"pack":"test.cached"}"#,
        r#"{"all":true}"#,
    ] {
        assert_eq!(call().await["cache"]["status"], "hit", "{what}");
        let purged = fixture.post("/api/v1/memory/purge", what).await;
        assert_eq!(
            (purged.status.as_u16(), &purged.json()["pending"]),
            (200, &json!(false)),
            "{purged:?}"
        );
        assert_eq!(call().await["cache"]["status"], "miss", "{what}");
    }
}

#[tokio::test]
async fn memory_routes_refuse_invalid_input_and_report_memory_off() {
    let fixture = Fixture::with_memory().await;
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "kind=sauce",
        "colour=red",
        "pack=a.b&kind=cache",
        "pack=a.b&prefix=x",
    ] {
        let answer = fixture
            .get(&format!("/api/v1/memory/entries?{query}"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (400, "invalid_input"),
            "{query}"
        );
    }
    let (by_place, twice) = (
        r#"[false,null,"t",null,null]"#,
        r#"{"tag":"a","\u0074ag":"b"}"#,
    );
    for body in [
        "",
        "{}",
        "[]",
        by_place,
        twice,
        r#"{"all":true} x"#,
        r#"{"all":true,"pack":"a.b"}"#,
    ] {
        assert_eq!(
            fixture.post("/api/v1/memory/purge", body).await.problem(),
            "invalid_input",
            "{body}"
        );
    }
    let off = Fixture::plain().await;
    assert_eq!(
        off.get("/api/v1/memory/namespaces").await.problem(),
        "not_found"
    );
    assert_eq!(
        off.get("/api/v1/memory/entries").await.problem(),
        "not_found"
    );
    assert_eq!(
        off.post("/api/v1/memory/purge", r#"{"all":true}"#)
            .await
            .problem(),
        "not_found"
    );
}

#[tokio::test]
async fn operations_routes_answer_tools() {
    let fixture = Fixture::with_memory().await;
    fixture.post("/api/v1/packs/test.cached", "{}").await;
    assert_eq!(
        fixture.get("/healthz").await.json(),
        json!({"status": "ok"})
    );
    let ready = fixture.get("/readyz").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["status"]),
        (200, &json!("ready"))
    );
    let metrics = fixture.get("/metrics").await;
    assert!(
        metrics
            .header("content-type")
            .starts_with("application/openmetrics-text; version=1.0.0")
    );
    assert!(
        metrics.body.contains("test.cached") && metrics.body.ends_with("# EOF\n"),
        "{}",
        metrics.body
    );
}

#[tokio::test]
async fn request_limit_does_not_block_health() {
    let config = ServerConfig {
        max_requests: 1,
        ..ServerConfig::default()
    };
    let fixture = std::sync::Arc::new(Fixture::build(config, false).await);
    let other = std::sync::Arc::clone(&fixture);
    let first = tokio::spawn(async move {
        other
            .post("/api/v1/packs/test.plain", r#"{"wait":true}"#)
            .await
    });
    fixture.probe.someone_waits().await;
    let refused = fixture.post("/api/v1/packs/test.plain", "{}").await;
    assert_eq!(
        (refused.status.as_u16(), refused.problem().as_str()),
        (503, "overloaded")
    );
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(fixture.get("/healthz").await.status, 200);
    fixture.probe.gate.add_permits(1);
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(
        fixture.post("/api/v1/packs/test.plain", "{}").await.status,
        200
    );
}

#[tokio::test]
async fn rate_limited_callers_get_retry_after() {
    let config = ServerConfig {
        rate_per_second: 2,
        ..ServerConfig::default()
    };
    let fixture = Fixture::build(config, false).await;
    for _ in 0..2 {
        assert_eq!(fixture.get("/api/v1/packs").await.status, 200);
    }
    let refused = fixture.get("/api/v1/packs").await;
    assert_eq!(
        (refused.status.as_u16(), refused.problem().as_str()),
        (429, "rate_limited")
    );
    assert_eq!(
        (
            refused.header("retry-after"),
            &refused.json()["retry_after_ms"]
        ),
        ("1", &json!(500))
    );
    fixture.clock.advance(Duration::from_millis(500));
    assert_eq!(fixture.get("/api/v1/packs").await.status, 200);
}

#[tokio::test]
async fn a_call_past_the_deadline_is_a_timeout() {
    let config = ServerConfig {
        request_deadline: Duration::from_millis(20),
        ..ServerConfig::default()
    };
    let fixture = Fixture::build(config, false).await;
    let answer = fixture
        .post("/api/v1/packs/test.plain", r#"{"wait":true}"#)
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (504, "timeout")
    );
}

#[tokio::test]
async fn refusals_do_not_reveal_forbidden_packs() {
    let fixture = Fixture::plain().await;
    let app = App::new(
        fixture.engine.clone(),
        Default::default(),
        &ServerConfig::default(),
        Arc::clone(&fixture.clock) as _,
        crate::app::AppParts::default(),
    );
    let router = super::router(app, None);
    let ask = async |scope: &str, method: Method, path: &str| {
        let caller = Caller::new(
            Identity::new("t", "u").unwrap(),
            Permissions::of_scope(scope),
        );
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("idempotency-key", "k")
            .extension(caller);
        let answer = router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
            .await
            .unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    // One letter from `test.plain`, which only the second caller may run; and no name at all.
    for (path, status) in [
        ("test.wlain", 404),
        ("TEST.plain", 404),
        ("test.plain", 403),
        ("test.nothing", 403),
    ] {
        for method in [Method::GET, Method::POST] {
            let told = ask(
                "packs:run:test.w*",
                method.clone(),
                &format!("/api/v1/packs/{path}"),
            )
            .await;
            assert_eq!(told.0, status, "{method} {path}: {}", told.1);
            assert!(
                path == "test.plain" || !told.1.contains("test.plain"),
                "{method} {path}: {}",
                told.1
            );
            let suggested = ask("packs:run", method, "/api/v1/packs/test.wlain").await;
            assert!(
                suggested.0 == 404 && suggested.1.contains("test.plain"),
                "{suggested:?}"
            );
        }
    }
    // A refusal does not reveal whether a pack exists either.
    let refused = async |name: &str| {
        let (status, body) = ask(
            "packs:run:test.w*",
            Method::POST,
            &format!("/api/v1/packs/{name}"),
        )
        .await;
        (status, body.replace(name, "<name>"))
    };
    assert_eq!(refused("test.plain").await, refused("test.nothing").await);
    assert_eq!(
        ask(
            "packs:run:test.w*",
            Method::POST,
            "/api/v1/packs/test.write"
        )
        .await
        .0,
        200
    );
}
