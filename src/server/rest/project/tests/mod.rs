//! The project routes through the whole router.

mod changes;
pub(crate) mod fixture;

use helmdeck_core::{Schema, Secret};
use helmdeck_egress::Egress;
use helmdeck_forge::layout::{FEATURES, KNOWLEDGE, QUARANTINE};
use helmdeck_system::System;
use helmdeck_system::tokens::NewToken;
use http::Method;
use serde_json::{Value, json};

use self::fixture::{ProjectFixture, settings};
use super::ProjectSettings;
use crate::fixture::{Answer, Fixture, START};
use crate::{Auth, AuthConfig};

/// Every GET route with the name of its schema; `{artifact}` is the name of the fixture's artifact.
pub(crate) const ROUTES: [(&str, &str); 24] = [
    ("health", "ProjectHealth"),
    ("health/history", "ProjectColours"),
    ("tree", "ProjectTree"),
    ("features", "ProjectFeatures"),
    ("focus", "ProjectFocus"),
    ("knowledge?superseded=true", "ProjectKnowledge"),
    ("knowledge?as_of=HEAD", "ProjectKnowledge"),
    ("sessions", "ProjectSessions"),
    ("progress", "ProjectProgress"),
    ("events", "ProjectEvents"),
    ("commits", "ProjectCommits"),
    ("checkpoints", "ProjectCheckpoints"),
    ("checkpoints/LOCAL-1-v1", "ProjectCheckpoint"),
    ("checkpoints/LOCAL-1-v1/diff", "ProjectDiff"),
    ("recovery", "ProjectRecovery"),
    ("skills", "ProjectSkills"),
    ("skills/code-generation", "ProjectSkill"),
    (
        "skill-matches?task=implement%20it&files=src/a.rs",
        "ProjectSkillMatches",
    ),
    ("artifacts", "ProjectArtifacts"),
    ("artifacts/{artifact}", "ProjectArtifact"),
    ("issues?scope=all", "forge.issue_list.v1.output"),
    ("issues/LOCAL-1?changes=50", "forge.issue_show.v1.output"),
    ("tracker", "ProjectTracker"),
    ("tracker/outbox", "ProjectOutbox"),
];

pub(crate) fn path(fixture: &ProjectFixture, route: &str) -> String {
    format!(
        "/api/v1/project/{}",
        route.replace("{artifact}", &fixture.artifact_segment())
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_in_its_documented_shape() {
    let fixture = ProjectFixture::new().await;
    let document = fixture.server.get("/api/v1/openapi.json").await.json();
    for (route, name) in ROUTES {
        let answer = fixture.server.get(&path(&fixture, route)).await;
        assert_eq!(answer.status, 200, "{route}: {answer:?}");
        let mut root = document.clone();
        root["$ref"] = format!("#/components/schemas/{name}").into();
        let schema = Schema::compile(root).unwrap();
        let checked = schema.validate(&answer.json());
        assert!(checked.is_ok(), "{route}: {checked:?}\n{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_changes_no_file_and_no_time() {
    let fixture = ProjectFixture::new().await;
    let before = fixture.everything();
    for (route, _) in ROUTES {
        assert_eq!(
            fixture.server.get(&path(&fixture, route)).await.status,
            200,
            "{route}"
        );
    }
    for route in ["artifacts/{artifact}/bytes", "colours", "progress/none"] {
        fixture.server.get(&path(&fixture, route)).await;
    }
    let after = fixture.everything();
    for (path, (time, bytes)) in &after {
        let (old, old_bytes) = before
            .get(path)
            .unwrap_or_else(|| panic!("{} is new", path.display()));
        assert_eq!((old, old_bytes), (time, bytes), "{}", path.display());
    }
    assert_eq!(before.len(), after.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_file_is_reported_and_not_copied() {
    let fixture = ProjectFixture::new().await;
    std::fs::write(fixture.path().join(FEATURES), "{").unwrap();
    let answer = fixture.server.get("/api/v1/project/features").await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (500, "internal")
    );
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains(FEATURES) && detail.contains("helmdeck forge repair"),
        "{detail}"
    );
    assert!(
        !fixture.path().join(QUARANTINE).exists(),
        "no copy was made"
    );
    let health = fixture.server.get("/api/v1/project/health").await.json();
    assert_eq!(health["features"]["colour"], "red", "{health}");
    let tree = fixture
        .server
        .get("/api/v1/project/tree?limit=1000")
        .await
        .json();
    let file = tree["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["path"] == FEATURES)
        .unwrap()
        .clone();
    assert_eq!(file["damage"]["extent"], "whole", "{file}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_project_says_what_to_do() {
    let none = Fixture::with_project(ProjectSettings::default(), None).await;
    let answer = none.get("/api/v1/project/health").await;
    assert_eq!(answer.problem(), "not_found");
    assert!(answer.body.contains("[forge] root"), "{}", answer.body);
    let folder = tempfile::tempdir().unwrap();
    let empty = Fixture::with_project(settings(folder.path()), None).await;
    let answer = empty.get("/api/v1/project/issues").await;
    assert_eq!(answer.problem(), "not_found");
    assert!(
        answer.body.contains("helmdeck forge init"),
        "{}",
        answer.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_entries_come_in_pages() {
    let fixture = ProjectFixture::new().await;
    let entry = |number: u32| json!({ "context": format!("case {number:04}"), "approach": "do so", "learned_at": "2026-01-01T00:00:00Z" });
    let entries: Vec<Value> = (0..5_000).map(entry).collect();
    let file = json!({ "schema_version": "1.0", "patterns": { "successful": entries, "failed": [] }, "invariants": [] });
    std::fs::write(fixture.path().join(KNOWLEDGE), file.to_string()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = fixture
            .server
            .get(&format!("/api/v1/project/knowledge?limit=1000{after}"))
            .await
            .json();
        let total = page["total"].as_u64().unwrap();
        assert!((5_000..=5_002).contains(&total), "{total}");
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 1_000);
        seen.extend(
            items
                .iter()
                .map(|entry| entry["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break assert_eq!(seen.len() as u64, total),
        }
    }
    let gone = fixture
        .server
        .get("/api/v1/project/knowledge?after=gone")
        .await;
    assert_eq!(gone.problem(), "invalid_input");
}

async fn token(system: &System, scope: &str) -> Secret {
    let token = NewToken {
        name: String::new(),
        tenant: "acme".to_owned(),
        subject: "ann".to_owned(),
        scope: scope.to_owned(),
        created_at: START,
        expires_at: None,
        ancestors: Vec::new(),
    };
    system.create_token(token).await.unwrap().1
}

/// Makes a server with tokens, and returns what asks with a token of a scope.
pub(crate) async fn with_tokens(folder: &std::path::Path) -> (ProjectFixture, System) {
    let path = folder.join("helmdeck.db");
    let config = AuthConfig {
        api_tokens: true,
        ..AuthConfig::default()
    };
    let egress = Egress::new(helmdeck_egress::Config::default());
    let auth = Auth::new(&config, None, Some(System::at(&path)), &egress)
        .unwrap()
        .unwrap();
    (
        ProjectFixture::with_auth(Some(auth)).await,
        System::at(&path),
    )
}

async fn ask(
    fixture: &ProjectFixture,
    method: Method,
    path: &str,
    token: &Secret,
    body: &str,
) -> Answer {
    let bearer = format!("Bearer {}", token.expose());
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    fixture
        .server
        .send(method, &format!("/api/v1/project/{path}"), &headers, body)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_reads_what_its_packs_would_return() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_tokens(folder.path()).await;
    assert_eq!(
        fixture.server.get("/api/v1/project/health").await.problem(),
        "unauthenticated"
    );
    let one = token(&system, "packs:run:forge.health").await;
    assert_eq!(
        ask(&fixture, Method::GET, "health", &one, "").await.status,
        200
    );
    let refused = ask(&fixture, Method::GET, "features", &one, "").await;
    assert_eq!(refused.problem(), "forbidden");
    assert!(
        refused
            .header("www-authenticate")
            .contains("packs:run:forge.features_list"),
        "{refused:?}"
    );
    let all = token(&system, "packs:run:forge.*").await;
    for (route, _) in ROUTES {
        let route = path(&fixture, route).replace("/api/v1/project/", "");
        assert_eq!(
            ask(&fixture, Method::GET, &route, &all, "").await.status,
            200,
            "{route}"
        );
    }
    let other = token(&system, "packs:run:repo.* memory:read").await;
    for (route, _) in ROUTES {
        let route = path(&fixture, route).replace("/api/v1/project/", "");
        assert_eq!(
            ask(&fixture, Method::GET, &route, &other, "").await.status,
            403,
            "{route}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_is_a_download() {
    let fixture = ProjectFixture::new().await;
    let file = fixture
        .server
        .get(&path(&fixture, "artifacts/{artifact}/bytes"))
        .await;
    assert_eq!(
        (file.status.as_u16(), file.body.as_str()),
        (200, "<script>alert(1)</script>")
    );
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename=\"report.html\""
    );
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    assert_eq!(
        file.header("content-security-policy"),
        "default-src 'none'; sandbox"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn trigger_test_logs_no_match() {
    let fixture = ProjectFixture::new().await;
    let events = async || {
        fixture.server.get("/api/v1/project/events").await.json()["seq"]
            .as_u64()
            .unwrap()
    };
    let before = events().await;
    let found = fixture
        .server
        .get("/api/v1/project/skill-matches?task=implement%20it")
        .await
        .json();
    assert_eq!(found["matches"][0]["skill"], "code-generation", "{found}");
    assert_eq!(events().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_have_three_forms() {
    let fixture = Fixture::plain().await;
    let json = fixture.get("/api/v1/project/colours").await;
    assert_eq!(json.json()["long-term"], "#4CAF50");
    let css = fixture.get("/api/v1/project/colours?format=css").await;
    assert!(
        css.header("content-type").starts_with("text/css") && css.body.contains("--git: #607D8B;"),
        "{css:?}"
    );
    assert!(
        fixture
            .get("/api/v1/project/colours?format=ts")
            .await
            .body
            .contains("\"linear\": \"#FF9800\",")
    );
    assert_eq!(
        fixture
            .get("/api/v1/project/colours?format=svg")
            .await
            .problem(),
        "invalid_input"
    );
}
