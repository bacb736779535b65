//! Tests of the routes for operators: tokens, credentials, servers, settings, store, explanations,
//! previews.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Secret, Timestamp};
use helmdeck_egress::Egress;
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_system::tokens::NewToken;
use helmdeck_vault::{About, Book, Kind, Material};
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Answer, Fixture, START};
use crate::operator::Operator;
use crate::{Auth, AuthConfig};

/// A server with authentication, tokens and a vault.
pub(crate) struct Operated {
    pub(crate) fixture: Fixture,
    pub(crate) system: System,
    pub(crate) book: Book,
    _folder: tempfile::TempDir,
}

impl Operated {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helmdeck.db");
        let config = AuthConfig {
            api_tokens: true,
            ..AuthConfig::default()
        };
        let egress = Egress::new(helmdeck_egress::Config::default());
        let auth = Auth::new(&config, None, Some(System::at(&path)), &egress).unwrap();
        let fixture = Fixture::with_memory().await;
        let (ring, system) = (
            KeyRing::parse(("key", &"5a".repeat(32)), None).unwrap(),
            System::at(&path),
        );
        let book = Book::new(
            system.clone(),
            ring.clone(),
            Arc::clone(&fixture.clock) as _,
        );
        let operator = Operator {
            system: Some(system.clone()),
            vault: Some(book.clone()),
            keyring: Some(Arc::new(ring)),
            settings: Some(Arc::new(
                || json!({ "server.listen": { "value": "127.0.0.1:7700", "origin": "default" } }),
            )),
            version: "1.2.3",
            api_tokens: true,
            tokens_by_jwt: false,
        };
        Self {
            fixture: fixture.operated(operator, auth),
            system,
            book,
            _folder: folder,
        }
    }

    pub(crate) async fn token(&self, user: &str, scope: &str) -> Secret {
        self.token_until(user, scope, None).await
    }

    async fn token_until(&self, user: &str, scope: &str, expires_at: Option<Timestamp>) -> Secret {
        let token = NewToken {
            name: String::new(),
            tenant: "acme".to_owned(),
            subject: user.to_owned(),
            scope: scope.to_owned(),
            created_at: START,
            expires_at,
            ancestors: Vec::new(),
        };
        self.system.create_token(token).await.unwrap().1
    }

    /// Sets a credential that is granted to `acme/ann` with the packs `test.*`.
    pub(crate) async fn credential(&self, name: &str) {
        let about = About {
            hosts: vec!["api.example".parse().unwrap()],
            subjects: vec!["acme/ann".parse().unwrap()],
            packs: vec!["test.*".parse().unwrap()],
            ..About::of(Kind::ApiKey)
        };
        let material = Material::new(
            Kind::ApiKey,
            zeroize::Zeroizing::new("canary-canary".to_owned()),
            None,
        )
        .unwrap();
        self.book.set(name, about, material).await.unwrap();
    }

    async fn ask(&self, token: &Secret, method: Method, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", token.expose());
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.fixture.send(method, path, &headers, &body).await
    }

    async fn get(&self, token: &Secret, path: &str) -> Answer {
        self.ask(token, Method::GET, path, &Value::Null).await
    }
}

#[tokio::test]
async fn created_token_works_until_revoked() {
    let server = Operated::new().await;
    let ann = server
        .token("ann", "packs:run memory:read tokens:write")
        .await;
    let made = server
        .ask(
            &ann,
            Method::POST,
            "/api/v1/tokens",
            &json!({ "name": "ci", "scope": "packs:run:test.*" }),
        )
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.header("cache-control"), "no-store");
    let made = made.json();
    assert_eq!(
        (&made["tenant"], &made["user"], &made["scope"]),
        (&json!("acme"), &json!("ann"), &json!("packs:run:test.*"))
    );
    let new = Secret::new(made["token"].as_str().unwrap().to_owned());
    assert_eq!(
        server
            .ask(&new, Method::POST, "/api/v1/packs/test.plain", &json!({}))
            .await
            .status,
        200
    );
    let list = server.get(&ann, "/api/v1/tokens").await;
    assert!(!list.body.contains(new.expose()), "no list has the text");
    assert_eq!(list.json()["tokens"].as_array().unwrap().len(), 2);
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        server
            .ask(
                &ann,
                Method::DELETE,
                &format!("/api/v1/tokens/{id}"),
                &Value::Null
            )
            .await
            .status,
        204
    );
    server.fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(server.get(&new, "/api/v1/packs").await.status, 401);
    assert_eq!(
        server.get(&ann, "/api/v1/tokens?live=true").await.json()["tokens"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn nobody_mints_rights_beyond_its_own() {
    let server = Operated::new().await;
    let (ann, boss) = (
        server
            .token("ann", "packs:run:test.* memory:read tokens:write")
            .await,
        server.token("boss", "admin").await,
    );
    for (wanted, status) in [
        (json!({ "scope": "admin" }), 403),
        (json!({ "scope": "packs:run" }), 403),
        (json!({ "scope": "memory:read memory:write" }), 403),
        (json!({ "user": "bob" }), 403),
        (json!({ "tenant": "other" }), 403),
        (json!({ "never_expires": true }), 403),
        (json!({ "ttl_seconds": 91 * 24 * 3600 }), 403),
        (json!({ "ttl_seconds": 59 }), 400),
        (json!({ "ttl_seconds": 60, "never_expires": true }), 400),
        (json!({ "scope": " " }), 400),
        (json!({ "scope": "ui" }), 400),
        (json!({ "name": "a\nb" }), 400),
        (json!({ "scopes": "memory:read" }), 400),
        (json!({ "scope": "memory:read" }), 201),
        (json!({}), 201),
    ] {
        let answer = server
            .ask(&ann, Method::POST, "/api/v1/tokens", &wanted)
            .await;
        assert_eq!(answer.status, status, "{wanted} {answer:?}");
        if status == 201 {
            continue;
        }
        assert_eq!(answer.json().get("token"), None);
    }
    let other =
        json!({ "tenant": "other", "user": "bob", "scope": "admin", "never_expires": true });
    let made = server
        .ask(&boss, Method::POST, "/api/v1/tokens", &other)
        .await
        .json();
    assert_eq!(
        (&made["user"], &made["expires_at"]),
        (&json!("bob"), &Value::Null)
    );
}

#[tokio::test]
async fn token_ends_with_the_one_that_made_it() {
    let server = Operated::new().await;
    let life = |seconds| Some(START.saturating_add(Duration::from_secs(seconds)));
    let parent = server
        .token_until("ann", "packs:run:test.* tokens:write", life(90))
        .await;
    let make = async |by: &Secret, wanted: Value| {
        let made = server
            .ask(by, Method::POST, "/api/v1/tokens", &wanted)
            .await;
        assert_eq!(made.status, 201, "{made:?}");
        made.json()
    };
    let text = |made: &Value| Secret::new(made["token"].as_str().unwrap().to_owned());
    for wanted in [
        json!({}),
        json!({ "ttl_seconds": 60 }),
        json!({ "ttl_seconds": 90 * 24 * 3600 }),
    ] {
        let child = make(&parent, wanted.clone()).await;
        let grandchild = make(&text(&child), wanted.clone()).await;
        assert!(
            grandchild["expires_at"].as_str().unwrap() <= child["expires_at"].as_str().unwrap(),
            "{wanted}"
        );
        assert!(
            child["expires_at"].as_str().unwrap() <= life(90).unwrap().to_rfc3339().as_str(),
            "{wanted}"
        );
        assert_eq!(grandchild["parent"], child["id"]);
    }
    let child = make(&parent, json!({})).await;
    let grandchild = make(&text(&child), json!({})).await;
    let works = async |token: &Secret| server.get(token, "/api/v1/packs").await.status == 200;
    assert!(works(&text(&grandchild)).await);
    let boss = server.token("boss", "admin").await;
    let path = format!("/api/v1/tokens/{}", child["id"].as_str().unwrap());
    assert_eq!(
        server
            .ask(&boss, Method::DELETE, &path, &Value::Null)
            .await
            .status,
        204
    );
    server.fixture.clock.advance(Duration::from_secs(1));
    assert!(
        works(&parent).await && !works(&text(&child)).await && !works(&text(&grandchild)).await
    );
}

#[tokio::test]
async fn making_a_token_needs_its_own_scope() {
    let server = Operated::new().await;
    for scope in [
        "packs:run",
        "memory:read memory:write packs:run metrics:read",
    ] {
        let token = server.token("ann", scope).await;
        let refused = server
            .ask(
                &token,
                Method::POST,
                "/api/v1/tokens",
                &json!({ "scope": "packs:run:x" }),
            )
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.problem().as_str()),
            (403, "forbidden"),
            "{scope}"
        );
    }
}

#[tokio::test]
async fn token_sees_and_revokes_itself_and_its_descendants_only() {
    let server = Operated::new().await;
    let (broad, narrow) = (
        server.token("ann", "packs:run tokens:write").await,
        server.token("ann", "packs:run:x").await,
    );
    let ids = async |token: &Secret| {
        let list = server.get(token, "/api/v1/tokens").await.json();
        list["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|token| token["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (of_broad, of_narrow) = (ids(&broad).await, ids(&narrow).await);
    assert_eq!((of_broad.len(), of_narrow.len()), (1, 1));
    let revoke = async |by: &Secret, id: &str| {
        server
            .ask(
                by,
                Method::DELETE,
                &format!("/api/v1/tokens/{id}"),
                &Value::Null,
            )
            .await
            .status
            .as_u16()
    };
    assert_eq!(revoke(&narrow, &of_broad[0]).await, 404);
    let child = server
        .ask(&broad, Method::POST, "/api/v1/tokens", &json!({}))
        .await
        .json();
    assert_eq!(ids(&broad).await.len(), 2);
    assert_eq!(revoke(&narrow, child["id"].as_str().unwrap()).await, 404);
    assert_eq!(revoke(&broad, child["id"].as_str().unwrap()).await, 204);
    assert_eq!(revoke(&narrow, &of_narrow[0]).await, 204);
}

#[tokio::test]
async fn tokens_of_others_are_hidden() {
    let server = Operated::new().await;
    let (ann, boss) = (
        server.token("ann", "packs:run").await,
        server.token("boss", "admin").await,
    );
    let of_boss =
        server.get(&boss, "/api/v1/tokens?user=boss").await.json()["tokens"][0]["id"].clone();
    let path = format!("/api/v1/tokens/{}", of_boss.as_str().unwrap());
    assert_eq!(
        server
            .ask(&ann, Method::DELETE, &path, &Value::Null)
            .await
            .problem(),
        "not_found"
    );
    assert_eq!(
        server.get(&ann, "/api/v1/tokens?user=boss").await.status,
        403
    );
    assert_eq!(
        server.get(&ann, "/api/v1/tokens").await.json()["tokens"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // Page by page, an administrator finds each once.
    let first = server.get(&boss, "/api/v1/tokens?limit=1").await.json();
    let second = server
        .get(
            &boss,
            &format!(
                "/api/v1/tokens?limit=1&after={}",
                first["next"].as_str().unwrap()
            ),
        )
        .await
        .json();
    assert!(
        first["tokens"][0]["id"] != second["tokens"][0]["id"] && second["next"].is_null(),
        "{second}"
    );
    assert_eq!(
        server.get(&boss, "/api/v1/tokens?after=x").await.problem(),
        "invalid_input"
    );
}

#[tokio::test]
async fn credentials_are_listed_without_values() {
    let server = Operated::new().await;
    let (ann, bob) = (
        server.token("ann", "packs:run").await,
        server.token("bob", "packs:run").await,
    );
    let boss = server.token("boss", "admin").await;
    server.credential("github").await;
    let all = server.get(&boss, "/api/v1/credentials").await;
    assert!(!all.body.contains("canary"), "{all:?}");
    assert_eq!(
        all.json()["credentials"][0]["subjects"],
        json!(["acme/ann"])
    );
    let own = server.get(&ann, "/api/v1/credentials").await.json();
    assert_eq!(
        (
            &own["credentials"][0]["name"],
            own["credentials"][0].get("subjects")
        ),
        (&json!("github"), None)
    );
    assert_eq!(
        server.get(&bob, "/api/v1/credentials").await.json()["credentials"],
        json!([])
    );
    assert_eq!(
        server
            .get(&boss, "/api/v1/credentials/github/uses")
            .await
            .json(),
        json!({ "uses": [] })
    );
}

#[tokio::test]
async fn grants_change_for_administrators_only() {
    let server = Operated::new().await;
    let (ann, boss) = (
        server.token("ann", "packs:run").await,
        server.token("boss", "admin").await,
    );
    server.credential("github").await;
    let path = "/api/v1/credentials/github";
    let bob = json!({ "subjects": ["acme/bob"] });
    assert_eq!(
        server
            .ask(&ann, Method::POST, &format!("{path}/grant"), &bob)
            .await
            .status,
        403
    );
    let granted = server
        .ask(&boss, Method::POST, &format!("{path}/grant"), &bob)
        .await
        .json();
    assert_eq!(
        granted,
        json!({ "subjects": ["acme/ann", "acme/bob"], "packs": ["test.*"] })
    );
    let revoked = server
        .ask(
            &boss,
            Method::POST,
            &format!("{path}/revoke"),
            &json!({ "packs": ["test.*"] }),
        )
        .await
        .json();
    assert_eq!(revoked["packs"], json!([]));
    for (path, body, code) in [
        ("/api/v1/credentials/none/grant", bob.clone(), "not_found"),
        (
            "/api/v1/credentials/github/grant",
            json!({}),
            "invalid_input",
        ),
        (
            "/api/v1/credentials/github/grant",
            json!({ "subjects": ["bob"] }),
            "invalid_input",
        ),
        (
            "/api/v1/credentials/github/revoke",
            json!({ "subjects": ["acme/eve"] }),
            "invalid_input",
        ),
    ] {
        assert_eq!(
            server.ask(&boss, Method::POST, path, &body).await.problem(),
            code,
            "{path} {body}"
        );
    }
}

#[tokio::test]
async fn operator_routes_need_an_administrator() {
    let server = Operated::new().await;
    let (ann, boss) = (
        server
            .token("ann", "packs:run memory:read memory:write metrics:read")
            .await,
        server.token("boss", "admin").await,
    );
    for (method, path, status) in [
        (Method::GET, "/api/v1/config", 200),
        (Method::GET, "/api/v1/status", 200),
        (Method::GET, "/api/v1/store", 200),
        (Method::POST, "/api/v1/store/sweep", 200),
        (Method::POST, "/api/v1/store/rotate", 202),
        (Method::GET, "/api/v1/mcp/servers", 200),
        (Method::POST, "/api/v1/mcp/servers/none/restart", 404),
        (Method::POST, "/api/v1/drain", 202),
    ] {
        let refused = server.ask(&ann, method.clone(), path, &Value::Null).await;
        assert_eq!(
            (refused.status.as_u16(), refused.problem().as_str()),
            (403, "forbidden"),
            "{path}"
        );
        assert_eq!(
            server.ask(&boss, method, path, &Value::Null).await.status,
            status,
            "{path}"
        );
    }
    let config = server.get(&boss, "/api/v1/config").await.json();
    assert_eq!(
        config["settings"][0],
        json!({ "name": "server.listen", "value": "127.0.0.1:7700", "origin": "default" })
    );
    assert_eq!(
        server.get(&boss, "/api/v1/status").await.json()["version"],
        "1.2.3"
    );
}

#[tokio::test]
async fn rotation_ends_and_is_shown() {
    let server = Operated::new().await;
    let boss = server.token("boss", "admin").await;
    server
        .ask(&boss, Method::POST, "/api/v1/store/rotate", &Value::Null)
        .await;
    let ended = async {
        loop {
            let rotation = server.get(&boss, "/api/v1/store").await.json()["rotation"].clone();
            if rotation["state"] != "running" {
                return rotation;
            }
            tokio::task::yield_now().await;
        }
    };
    let rotation = helmdeck_testkit::ends("the rotation", ended).await;
    assert_eq!(
        (&rotation["state"], &rotation["end"]),
        (&json!("ended"), &json!("done")),
        "{rotation}"
    );
}

#[tokio::test]
async fn explanation_names_key_and_reason() {
    let fixture = Fixture::with_memory().await;
    let path = "/api/v1/packs/test.cached/explain";
    let before = fixture.post(path, r#"{"text":"a"}"#).await.json();
    assert_eq!(
        (&before["entry"], fixture.probe.runs()),
        (&json!("none"), 0),
        "{before}"
    );
    let ran = fixture
        .post("/api/v1/packs/test.cached", r#"{"text":"a"}"#)
        .await
        .json();
    let after = fixture.post(path, r#"{ "text": "a" }"#).await.json();
    assert_eq!(
        (&after["entry"], &after["key"]),
        (&json!("fresh"), &ran["cache"]["key"])
    );
    assert_eq!(after["tags"], json!(["test:all"]));
    let plain = fixture.post("/api/v1/packs/test.plain/explain", "{}").await;
    assert_eq!(
        (plain.status.as_u16(), plain.problem().as_str()),
        (409, "conflict")
    );
    assert_eq!(
        fixture
            .post("/api/v1/packs/test.none/explain", "{}")
            .await
            .problem(),
        "not_found"
    );
}

#[tokio::test]
async fn preview_counts_what_purge_deletes() {
    let fixture = Fixture::with_memory().await;
    for text in ["a", "b", "c"] {
        fixture
            .post(
                "/api/v1/packs/test.cached",
                &json!({ "text": text }).to_string(),
            )
            .await;
    }
    fixture.engine.memory().unwrap().flush().await;
    for selection in [
        r#"{"pack":"test.cached"}"#,
        r#"{"tag":"TEST:all"}"#,
        r#"{"all":true}"#,
    ] {
        let preview = fixture
            .post("/api/v1/memory/purge/preview", selection)
            .await
            .json();
        assert_eq!(
            (&preview["rows"], &preview["complete"]),
            (&json!(3), &json!(true)),
            "{selection}"
        );
    }
    let entry =
        fixture.get("/api/v1/memory/entries?limit=1").await.json()["entries"][0]["key"].clone();
    let one =
        json!({ "namespace": { "tenant": "local", "subject": "local" }, "key": entry }).to_string();
    assert_eq!(
        fixture
            .post("/api/v1/memory/purge/preview", &one)
            .await
            .json()["rows"],
        1
    );
    assert_eq!(
        fixture
            .post("/api/v1/memory/purge/preview", r#"{"pack":"test.plain"}"#)
            .await
            .json()["rows"],
        0
    );
    assert_eq!(
        fixture
            .post("/api/v1/memory/purge", r#"{"tag":"test:all"}"#)
            .await
            .json()["rows"],
        3,
        "nothing was deleted"
    );
}

#[tokio::test]
async fn namespaces_come_in_pages() {
    let fixture = Fixture::with_memory().await;
    fixture
        .post("/api/v1/packs/test.cached", r#"{"text":"a"}"#)
        .await;
    fixture
        .post("/api/v1/memory/store", r#"{"key":"k","value":"v"}"#)
        .await;
    fixture.engine.memory().unwrap().flush().await;
    let first = fixture
        .get("/api/v1/memory/namespaces?limit=1")
        .await
        .json();
    assert_eq!(
        (
            first["namespaces"].as_array().unwrap().len(),
            &first["next"]
        ),
        (1, &json!("1")),
        "{first}"
    );
    let facts = fixture
        .get("/api/v1/memory/namespaces?kind=fact")
        .await
        .json();
    assert_eq!(
        (&facts["namespaces"][0]["kind"], &facts["next"]),
        (&json!("fact"), &Value::Null)
    );
    for wrong in ["limit=0", "after=x", "kind=none", "page=1"] {
        assert_eq!(
            fixture
                .get(&format!("/api/v1/memory/namespaces?{wrong}"))
                .await
                .problem(),
            "invalid_input",
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn entries_are_filtered_by_tag() {
    let fixture = Fixture::with_memory().await;
    fixture
        .post("/api/v1/packs/test.cached", r#"{"text":"a"}"#)
        .await;
    fixture.engine.memory().unwrap().flush().await;
    let count = async |query: &str| {
        fixture
            .get(&format!("/api/v1/memory/entries?{query}"))
            .await
            .json()["entries"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        (count("tag=test:all").await, count("tag=test:none").await),
        (1, 0)
    );
}

#[tokio::test]
async fn server_without_parts_says_so() {
    let fixture = Fixture::plain().await;
    for (path, word) in [
        ("/api/v1/tokens", "data folder"),
        ("/api/v1/credentials", "vault key"),
        ("/api/v1/store", "memory"),
    ] {
        let answer = fixture.get(path).await;
        assert_eq!(answer.problem(), "not_found", "{path}");
        assert!(answer.body.contains(word), "{answer:?}");
    }
}
