//! Scopes: what an authenticated caller may do, and what belongs to other callers.

use helmdeck_core::Permission;

use super::*;

#[tokio::test]
async fn each_route_requires_its_scope() {
    let client = TestServer::plain().await;
    let every = [
        "packs:run",
        "metrics:read",
        "memory:read",
        "memory:write",
        "admin",
    ];
    let fact = r#"{"key":"a","value":"b"}"#;
    for (method, path, body, scope, missing) in [
        (Method::POST, RUN, "{}", "packs:run", "packs:run:test.plain"),
        (Method::GET, RUN, "", "packs:run", "packs:run:test.plain"),
        (Method::GET, "/metrics", "", "metrics:read", "metrics:read"),
        (
            Method::GET,
            "/api/v1/memory/namespaces",
            "",
            "memory:read",
            "memory:read",
        ),
        (
            Method::GET,
            "/api/v1/memory/entries",
            "",
            "memory:read",
            "memory:read",
        ),
        (
            Method::GET,
            "/api/v1/memory/facts",
            "",
            "memory:read",
            "memory:read",
        ),
        (
            Method::POST,
            "/api/v1/memory/recall",
            "{}",
            "memory:read",
            "memory:read",
        ),
        (
            Method::POST,
            "/api/v1/memory/store",
            fact,
            "memory:write",
            "memory:write",
        ),
        (
            Method::POST,
            "/api/v1/memory/forget",
            r#"{"key":"a"}"#,
            "memory:write",
            "memory:write",
        ),
        (
            Method::POST,
            "/api/v1/memory/purge",
            r#"{"all":true}"#,
            "admin",
            "memory:write",
        ),
    ] {
        for held in every {
            let answer = client
                .send(method.clone(), path, &shared("alice", held), body)
                .await;
            if held == scope || held == "admin" {
                assert_eq!(
                    answer.status, 200,
                    "{method} {path} with {held}: {answer:?}"
                );
                continue;
            }
            assert_eq!(
                (answer.status.as_u16(), answer.problem().as_str()),
                (403, "forbidden"),
                "{method} {path} {held}"
            );
            let missing = if held == "memory:write" && scope == "admin" {
                "admin"
            } else {
                missing
            };
            let header = format!(
                "Bearer realm=\"helmdeck\", error=\"insufficient_scope\", scope=\"{missing}\""
            );
            assert_eq!(
                answer.header("www-authenticate"),
                header,
                "{method} {path} {held}"
            );
        }
    }
}

#[tokio::test]
async fn a_glob_narrows_what_is_run_listed_and_shown() {
    let client = TestServer::plain().await;
    let narrow = shared("alice", "packs:run:test.c*");
    assert_eq!(client.post(CACHED, &narrow, "{}").await.status, 200);
    assert_eq!(client.post(RUN, &narrow, "{}").await.problem(), "forbidden");
    // Only callers that may know a pack can tell a missing pack from a hidden one.
    assert_eq!(
        client
            .post("/api/v1/packs/test.nothing", &narrow, "{}")
            .await
            .problem(),
        "forbidden"
    );
    assert_eq!(
        client
            .post("/api/v1/packs/test.cnothing", &narrow, "{}")
            .await
            .problem(),
        "not_found"
    );
    let listed = client.get("/api/v1/packs", &narrow).await.json();
    let names: Vec<_> = listed["packs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pack| pack["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["test.cached"]);
    let document = client.get("/api/v1/openapi.json", &narrow).await.json();
    assert!(document["paths"]["/api/v1/packs/test.cached"].is_object());
    assert!(document["paths"]["/api/v1/packs/test.plain"].is_null());
    let page = client.get("/docs", &narrow).await.body;
    assert!(page.contains("test.cached") && !page.contains("test.plain"));
    // A caller without any scope is still authenticated.
    assert_eq!(
        client
            .get("/api/v1/packs", &shared("alice", ""))
            .await
            .json(),
        json!({"packs": [], "refused": []})
    );
}

#[tokio::test]
async fn artifacts_are_private_to_their_owner() {
    let client = TestServer::plain().await;
    let token = async |tenant: &str, user: &str, scope: &str| {
        client.api_token(tenant, user, scope, None).await.1
    };
    let owner = token("b", "alice", "packs:run").await;
    let outcome = client
        .post(RUN, &owner, r#"{"file":"canary"}"#)
        .await
        .json();
    let path = format!(
        "/api/v1/artifacts/{}",
        outcome["artifacts"][0]["key"].as_str().unwrap()
    );
    assert_eq!(client.get(&path, &owner).await.body, "canary");
    for (tenant, user) in [("a", "alice"), ("b", "bob"), ("local", "local")] {
        let answer = client
            .get(
                &path,
                &token(
                    tenant,
                    user,
                    "packs:run memory:read memory:write metrics:read",
                )
                .await,
            )
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (404, "not_found"),
            "{tenant}/{user}"
        );
        let never = client
            .get("/api/v1/artifacts/test.plain/none/page.html", &owner)
            .await;
        assert_eq!(
            answer.content(),
            never.content(),
            "somebody else's file and none at all are the same answer"
        );
    }
    assert_eq!(
        client
            .get(&path, &token("ops", "root", "admin").await)
            .await
            .body,
        "canary"
    );
    assert_eq!(client.get(&path, "").await.status, 401);
}

#[tokio::test]
async fn memory_of_others_stays_hidden() {
    let client = TestServer::plain().await;
    let all = "packs:run memory:read memory:write";
    let token = async |tenant: &str, user: &str| client.api_token(tenant, user, all, None).await.1;
    let (alice, bob, other) = (
        token("acme", "alice").await,
        token("acme", "bob").await,
        token("b", "alice").await,
    );
    assert_eq!(
        client.post(CACHED, &alice, r#"{"text":"a"}"#).await.json()["cache"]["status"],
        "miss"
    );
    client.fixture.engine.memory().unwrap().flush().await;
    for stranger in [&bob, &other] {
        assert_eq!(
            client
                .post(CACHED, stranger, r#"{"text":"a"}"#)
                .await
                .json()["cache"]["status"],
            "miss"
        );
        client.fixture.engine.memory().unwrap().flush().await;
        let namespaces = client
            .get("/api/v1/memory/namespaces", stranger)
            .await
            .json();
        let mine = |found: &Value| found["subject"] != "alice" || found["tenant"] == "b";
        assert!(
            namespaces["namespaces"]
                .as_array()
                .unwrap()
                .iter()
                .all(mine),
            "{namespaces}"
        );
        let owner = r#""namespace":{"tenant":"acme","subject":"alice"}"#;
        for (path, body) in [
            ("/api/v1/memory/entries?tenant=acme&subject=alice", ""),
            ("/api/v1/memory/entries?tenant=acme&subject=", ""),
            ("/api/v1/memory/purge", &format!("{{{owner}}}")),
            (
                "/api/v1/memory/purge",
                &format!("{{{owner},\"key\":\"x\"}}"),
            ),
            ("/api/v1/memory/purge", r#"{"all":true}"#),
            ("/api/v1/memory/purge", r#"{"tag":"test:all"}"#),
            ("/api/v1/memory/purge", r#"{"pack":"test.cached"}"#),
        ] {
            let method = if body.is_empty() {
                Method::GET
            } else {
                Method::POST
            };
            let answer = client.send(method, path, stranger, body).await;
            assert_eq!(
                (answer.status.as_u16(), answer.problem().as_str()),
                (403, "forbidden"),
                "{path} {body}"
            );
        }
    }
    assert_eq!(
        client.post(CACHED, &alice, r#"{"text":"a"}"#).await.json()["cache"]["status"],
        "hit"
    );
    let own = r#"{"namespace":{"tenant":"acme","subject":"alice"}}"#;
    assert_eq!(
        client
            .post("/api/v1/memory/purge", &alice, own)
            .await
            .status,
        200
    );
    assert_eq!(
        client.post(CACHED, &alice, r#"{"text":"a"}"#).await.json()["cache"]["status"],
        "miss"
    );
    assert_eq!(
        client.post(CACHED, &bob, r#"{"text":"a"}"#).await.json()["cache"]["status"],
        "hit"
    );
}

#[tokio::test]
async fn anonymous_callers_run_packs_uncached() {
    let config = AuthConfig {
        anonymous_scope: "packs:run:test.*".to_owned(),
        ..AuthConfig::default()
    };
    let client = TestServer::open(config, &[]).await;
    for _ in 0..2 {
        let answer = client.post(CACHED, "", "{}").await;
        assert_eq!(answer.status, 200);
        assert!(!answer.header("cache-status").contains("hit"), "{answer:?}");
    }
    assert_eq!(client.fixture.probe.runs(), 2);
    let file = client.post(RUN, "", r#"{"file":"canary"}"#).await.json();
    let artifact = format!(
        "/api/v1/artifacts/{}",
        file["artifacts"][0]["key"].as_str().unwrap()
    );
    for path in [
        artifact.as_str(),
        "/api/v1/memory/facts",
        "/api/v1/memory/entries",
        "/metrics",
    ] {
        let answer = client.get(path, "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("www-authenticate")),
            (401, "Bearer realm=\"helmdeck\""),
            "{path}"
        );
    }
    // All anonymous clients are one caller: an answer stored under a key could be another client's.
    let headers = [
        ("idempotency-key", "k"),
        ("content-type", "application/json"),
    ];
    let answer = client
        .fixture
        .send(Method::POST, "/api/v1/packs/test.write", &headers, "{}")
        .await;
    assert_eq!(answer.problem(), "unauthenticated");
    assert_eq!(
        client.post(RUN, "nonsense", "{}").await.status,
        401,
        "a bad token is worse than none"
    );
}

#[tokio::test]
async fn callers_have_a_rate_each() {
    let server = ServerConfig {
        rate_per_second: 2,
        ..ServerConfig::default()
    };
    let client = TestServer::over(server, AuthConfig::default(), &[]).await;
    let (alice, bob) = (shared("alice", "packs:run"), shared("bob", "packs:run"));
    for _ in 0..2 {
        assert_eq!(client.post(RUN, &alice, "{}").await.status, 200);
    }
    // Another token of the same person does not help.
    assert_eq!(
        client
            .post(RUN, &shared("alice", "admin"), "{}")
            .await
            .problem(),
        "rate_limited"
    );
    assert_eq!(client.post(RUN, &bob, "{}").await.status, 200);
}

#[tokio::test]
async fn idempotency_keys_of_two_callers_do_not_meet() {
    let client = TestServer::plain().await;
    let mut runs = Vec::new();
    for user in ["alice", "bob", "alice"] {
        let bearer = format!("Bearer {}", shared(user, "packs:run"));
        let headers = [
            ("authorization", bearer.as_str()),
            ("idempotency-key", "k"),
            ("content-type", "application/json"),
        ];
        let answer = client
            .fixture
            .send(Method::POST, "/api/v1/packs/test.write", &headers, "{}")
            .await;
        runs.push(answer.json()["output"]["run"].as_u64().unwrap());
    }
    assert_eq!(runs, [1, 2, 1]);
}

#[test]
fn every_scope_is_known_to_the_server() {
    for word in [
        "metrics:read",
        "packs:run",
        "packs:run:a.*",
        "memory:read",
        "memory:write",
        "admin",
    ] {
        assert_eq!(word.parse::<Permission>().unwrap().to_string(), word);
    }
}
