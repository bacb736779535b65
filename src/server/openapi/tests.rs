//! Tests that the document matches the routes.

use helmdeck_core::Schema;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::Fixture;

async fn document(fixture: &Fixture) -> Value {
    fixture.get("/api/v1/openapi.json").await.json()
}

/// Compiles a schema of the document, with the components that it refers to.
fn schema(document: &Value, reference: &str) -> Schema {
    let mut root = document.clone();
    root["$ref"] = reference.into();
    Schema::compile(root).unwrap()
}

fn each_ref<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| each_ref(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| each_ref(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_reference_of_the_document_leads_somewhere() {
    let document = document(&Fixture::with_memory().await).await;
    assert!(
        document["openapi"].as_str().unwrap().starts_with("3.1."),
        "{}",
        document["openapi"]
    );
    let mut references = Vec::new();
    each_ref(&document, &mut references);
    assert!(
        references.contains(&"#/components/schemas/test.plain.v1.input.text"),
        "{references:?}"
    );
    for reference in references {
        assert!(
            document
                .pointer(reference.strip_prefix('#').unwrap())
                .is_some(),
            "{reference}"
        );
    }
}

#[tokio::test]
async fn every_pack_and_version_is_a_path_with_its_own_schemas() {
    let fixture = Fixture::plain().await;
    let document = document(&fixture).await;
    for path in ["test.plain", "test.plain/v1", "test.cached", "test.write"] {
        let run = &document["paths"][format!("/api/v1/packs/{path}")]["post"];
        assert!(run["responses"]["200"].is_object(), "{path}: {run}");
    }
    for path in ["test.plain/v2", "test.cached/v1"] {
        assert!(
            document["paths"]
                .get(format!("/api/v1/packs/{path}"))
                .is_none(),
            "each version once: {path}"
        );
    }
    let run = &document["paths"]["/api/v1/packs/test.cached"]["post"];
    assert_eq!(
        run["requestBody"]["content"]["application/json"]["examples"]["example1"]["value"],
        json!({"text": "it's"})
    );
    let input = schema(&document, "#/components/schemas/test.plain.v2.input");
    assert!(input.validate(&json!({"text": "a"})).is_ok());
    assert!(
        input.validate(&json!({"text": 1})).is_err(),
        "the moved reference is followed"
    );
}

#[tokio::test]
async fn operation_ids_are_unique_and_path_parameters_are_declared() {
    let document = document(&Fixture::plain().await).await;
    let mut ids = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            ids.push(operation["operationId"].as_str().unwrap());
            for name in path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            {
                let declared = operation["parameters"].as_array().into_iter().flatten();
                let mut declared = declared.filter(|p| p["in"] == "path" && p["required"] == true);
                assert!(
                    declared.any(|parameter| parameter["name"] == name),
                    "{path}: {name}"
                );
            }
        }
    }
    for id in &ids {
        assert!(
            id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
            "{id}"
        );
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
}

#[tokio::test]
async fn no_parameter_is_said_to_be_null() {
    let document = document(&Fixture::plain().await).await;
    let prefix = document["paths"]["/api/v1/memory/entries"]["get"]["parameters"]
        .as_array()
        .unwrap();
    let prefix = prefix
        .iter()
        .find(|parameter| parameter["name"] == "prefix")
        .unwrap();
    assert_eq!(
        (&prefix["schema"], &prefix["required"]),
        (&json!({"type": "string"}), &json!(false))
    );
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            assert!(
                operation.get("parameters").is_none_or(Value::is_array),
                "{operation}"
            );
        }
    }
}

#[tokio::test]
async fn parameters_are_described_as_enforced() {
    let fixture = Fixture::with_memory().await;
    let document = document(&fixture).await;
    let schema = |path: &str, name: &str| {
        let operations = document["paths"][path].as_object().unwrap().values();
        let mut parameters = operations
            .flat_map(|operation| operation["parameters"].as_array().into_iter().flatten());
        parameters
            .find(|parameter| parameter["name"] == name)
            .unwrap()["schema"]
            .clone()
    };
    for path in [
        "/api/v1/memory/entries",
        "/api/v1/artifacts",
        "/api/v1/memory/facts",
        "/api/v1/conversations",
    ] {
        let limit = schema(path, "limit");
        let (least, most) = (
            limit["minimum"].as_i64().unwrap(),
            limit["maximum"].as_i64().unwrap(),
        );
        for (value, status) in [(least, 200), (most, 200), (least - 1, 400), (most + 1, 400)] {
            let answer = fixture.get(&format!("{path}?limit={value}")).await;
            assert_eq!(answer.status, status, "{path} {value}: {answer:?}");
        }
    }
    let key = schema("/api/v1/packs/test.write", "Idempotency-Key");
    let most = usize::try_from(key["maxLength"].as_u64().unwrap()).unwrap();
    for (length, status) in [(most, 200), (most + 1, 400)] {
        let key = "k".repeat(length);
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", &*key),
        ];
        assert_eq!(
            fixture
                .send(Method::POST, "/api/v1/packs/test.write", &headers, "{}")
                .await
                .status,
            status
        );
    }
}

#[tokio::test]
async fn security_is_described_when_there_is_any() {
    let open = document(&Fixture::plain().await).await;
    assert_eq!(
        (&open["security"], &open["components"]["securitySchemes"]),
        (&json!([]), &Value::Null)
    );
    let secret = helmdeck_core::Secret::new("s".repeat(32));
    let egress = helmdeck_egress::Egress::new(helmdeck_egress::Config::default());
    let auth = crate::access::Auth::new(&crate::AuthConfig::default(), Some(secret), None, &egress)
        .unwrap();
    let fixture = Fixture::with_auth(crate::ServerConfig::default(), auth.unwrap()).await;
    let document = document(&fixture).await;
    assert_eq!(document["security"], json!([{"bearer": []}]));
    assert_eq!(
        document["components"]["securitySchemes"]["bearer"]["scheme"],
        "bearer"
    );
    assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([]));
    assert!(document["paths"]["/api/v1/packs"]["get"]["responses"]["401"].is_object());
}

#[tokio::test]
async fn wrong_method_is_answered_with_those_allowed() {
    let fixture = Fixture::plain().await;
    let answer = fixture
        .send(Method::DELETE, "/api/v1/packs/test.plain", &[], "")
        .await;
    assert_eq!(answer.status, 405);
    let mut allowed: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[tokio::test]
async fn every_documented_route_is_answered() {
    let fixture = Fixture::with_memory().await;
    let document = document(&fixture).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let path = path
                .replace("{name}", "test.plain")
                .replace("{version}", "v1")
                .replace("{key}", "a/b/c");
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = fixture.send(method.clone(), &path, &[], "").await;
            assert_ne!(answer.status, 405, "{method} {path}");
            // The answer for an unknown route points to the docs; the answer for an unknown
            // resource does not.
            assert!(
                !answer.body.contains("see /docs"),
                "{method} {path}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn answers_have_the_documented_shapes() {
    let fixture = Fixture::with_memory().await;
    let cached = fixture
        .post("/api/v1/packs/test.cached", r#"{"text":"a","file":"x"}"#)
        .await;
    fixture.engine.memory().unwrap().flush().await;
    let document = document(&fixture).await;
    let check = |name: &str, answer: &Value| {
        let schema = schema(&document, &format!("#/components/schemas/{name}"));
        assert!(
            schema.validate(answer).is_ok(),
            "{name}: {:?}\n{answer}",
            schema.validate(answer)
        );
    };
    check("Outcome", &cached.json());
    let job = fixture
        .post(
            "/api/v1/packs/test.plain/jobs",
            r#"{"fail":"rate_limited","steps":1}"#,
        )
        .await;
    check("Job", &job.json());
    let has_ended =
        async || !fixture.get(job.header("location")).await.json()["ended_at"].is_null();
    helmdeck_testkit::until("the end of the job", has_ended).await;
    check("JobList", &fixture.get("/api/v1/jobs").await.json());
    check("PackList", &fixture.get("/api/v1/packs").await.json());
    check(
        "Pack",
        &fixture.get("/api/v1/packs/test.cached").await.json(),
    );
    check(
        "NamespaceList",
        &fixture.get("/api/v1/memory/namespaces").await.json(),
    );
    let entries = fixture.get("/api/v1/memory/entries").await.json();
    assert_eq!(entries["entries"].as_array().unwrap().len(), 1);
    check("EntryList", &entries);
    check(
        "PurgePreview",
        &fixture
            .post("/api/v1/memory/purge/preview", r#"{"all":true}"#)
            .await
            .json(),
    );
    check(
        "Explanation",
        &fixture
            .post("/api/v1/packs/test.cached/explain", r#"{"text":"b"}"#)
            .await
            .json(),
    );
    check("Status", &fixture.get("/api/v1/status").await.json());
    check("Store", &fixture.get("/api/v1/store").await.json());
    check(
        "Swept",
        &fixture.post("/api/v1/store/sweep", "").await.json(),
    );
    check(
        "McpServerList",
        &fixture.get("/api/v1/mcp/servers").await.json(),
    );
    check(
        "FactAbout",
        &fixture
            .post("/api/v1/memory/store", r#"{"key":"k","value":"v"}"#)
            .await
            .json(),
    );
    check(
        "FactList",
        &fixture.get("/api/v1/memory/facts").await.json(),
    );
    check(
        "Recalled",
        &fixture.post("/api/v1/memory/recall", "").await.json(),
    );
    check(
        "Fact",
        &fixture
            .post("/api/v1/memory/recall", r#"{"key":"k"}"#)
            .await
            .json()["facts"][0],
    );
    check(
        "Forgotten",
        &fixture
            .post(
                "/api/v1/memory/forget",
                r#"{"all":true,"what":["facts","audit"]}"#,
            )
            .await
            .json(),
    );
    let conversation = "/api/v1/conversations/s";
    let turn = r#"{"user_message":"a","timestamp":"2026-11-22T16:00:00Z","trajectory_digest":{"tools_invoked":["t"]},
        "artifacts_shown":{"n":1},"artifacts_hidden_refs":["x"]}"#;
    let added = fixture.post(&format!("{conversation}/turns"), turn).await;
    check("NewTurn", &serde_json::from_str(turn).unwrap());
    check("AddedTurn", &added.json());
    check("Turn", &fixture.get(added.header("location")).await.json());
    check(
        "Goal",
        &fixture
            .post(&format!("{conversation}/goal"), r#"{"goal":"ship it"}"#)
            .await
            .json(),
    );
    for (name, path) in [
        ("Goal", "goal"),
        ("TurnList", "turns?texts=true&limit=1"),
        ("ContextPatch", "context"),
        ("ContextPatch", "context?format=messages"),
        ("DialogueHealth", "health"),
        ("DialogueTrace", "trace"),
        ("Snapshot", "snapshot"),
    ] {
        check(
            name,
            &fixture.get(&format!("{conversation}/{path}")).await.json(),
        );
    }
    let listed = fixture.get("/api/v1/conversations").await.json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    check("DialogueList", &listed);
    check(
        "DialogueHealth",
        &fixture
            .post(&format!("{conversation}/fold"), "")
            .await
            .json(),
    );
    check(
        "Goal",
        &fixture
            .send(Method::DELETE, &format!("{conversation}/goal"), &[], "")
            .await
            .json(),
    );
    check(
        "DeletedTurn",
        &fixture
            .send(Method::DELETE, added.header("location"), &[], "")
            .await
            .json(),
    );
    check(
        "ForgottenDialogue",
        &fixture
            .send(Method::DELETE, conversation, &[], "")
            .await
            .json(),
    );
    check(
        "Purged",
        &fixture
            .post("/api/v1/memory/purge", r#"{"all":true}"#)
            .await
            .json(),
    );
    check("Health", &fixture.get("/healthz").await.json());
    check("Readiness", &fixture.get("/readyz").await.json());
    check("Drain", &fixture.post("/api/v1/drain", "").await.json());
    let draining = fixture.get("/readyz").await;
    assert_eq!(draining.status, 503);
    check("Readiness", &draining.json());
    for (path, body) in [
        ("/nowhere", ""),
        ("/api/v1/packs", ""),
        ("/api/v1/packs/test.plain", r#"{"text":1}"#),
    ] {
        check("Problem", &fixture.post(path, body).await.json());
    }
}

#[tokio::test]
async fn operator_answers_have_the_documented_shapes() {
    let server = crate::rest::operator_tests::Operated::new().await;
    server.credential("github").await;
    let bearer = format!("Bearer {}", server.token("boss", "admin").await.expose());
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let send = async |method: Method, path: &str, body: &str| {
        server
            .fixture
            .send(method, path, &headers, body)
            .await
            .json()
    };
    let document = send(Method::GET, "/api/v1/openapi.json", "").await;
    let grant = r#"{"subjects":["a/b"]}"#;
    for (name, method, path, body) in [
        ("CreatedToken", Method::POST, "/api/v1/tokens", "{}"),
        ("TokenList", Method::GET, "/api/v1/tokens", ""),
        ("CredentialList", Method::GET, "/api/v1/credentials", ""),
        (
            "CredentialUses",
            Method::GET,
            "/api/v1/credentials/github/uses",
            "",
        ),
        (
            "Grant",
            Method::POST,
            "/api/v1/credentials/github/grant",
            grant,
        ),
        ("Config", Method::GET, "/api/v1/config", ""),
        ("Rotation", Method::POST, "/api/v1/store/rotate", ""),
    ] {
        let schema = schema(&document, &format!("#/components/schemas/{name}"));
        let answer = send(method, path, body).await;
        assert!(
            schema.validate(&answer).is_ok(),
            "{name}: {:?}\n{answer}",
            schema.validate(&answer)
        );
    }
}

#[tokio::test]
async fn docs_page_is_self_contained_and_escaped() {
    let fixture = Fixture::plain().await;
    let page = fixture.get("/docs").await;
    let policy = page.header("content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.body.contains("Says &lt;it&gt; again") && !page.body.contains("<it>"));
    // The example's quote is escaped for the shell, then for HTML.
    assert!(page.body.contains("it&#39;\\&#39;&#39;s"), "{}", page.body);
    assert!(
        page.body
            .contains("http://localhost/api/v1/packs/test.plain")
    );
    for outside in ["<script", "https://", "src=", "style="] {
        assert!(!page.body.contains(outside), "{outside}");
    }
    assert_eq!(
        fixture.get("/docs.css").await.header("content-type"),
        "text/css; charset=utf-8"
    );
}
