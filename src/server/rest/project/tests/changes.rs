//! What the routes change, and what they refuse.

use helmdeck_forge::features::{Features, Status};
use helmdeck_forge::recovery::Recovery;
use http::Method;
use serde_json::json;

use super::fixture::ProjectFixture;
use super::{ask, token, with_tokens};
use crate::fixture::Answer;

async fn post(fixture: &ProjectFixture, route: &str, body: serde_json::Value) -> Answer {
    fixture
        .server
        .post(&format!("/api/v1/project/{route}"), &body.to_string())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_changes_with_its_version_tag_only() {
    let fixture = ProjectFixture::new().await;
    let old = fixture.etag();
    let changed = post(
        &fixture,
        "issues/LOCAL-1",
        json!({ "if_match": old, "priority": 1 }),
    )
    .await;
    assert_eq!(
        (
            changed.status.as_u16(),
            &changed.json()["issue"]["priority"]
        ),
        (200, &json!(1)),
        "{changed:?}"
    );
    let stale = post(
        &fixture,
        "issues/LOCAL-1",
        json!({ "if_match": old, "priority": 2 }),
    )
    .await;
    assert_eq!(
        (stale.status.as_u16(), stale.problem().as_str()),
        (409, "conflict")
    );
    let commented = post(&fixture, "issues/LOCAL-1", json!({ "comment": "seen" }))
        .await
        .json();
    let comments = commented["issue"]["comments"].as_array().unwrap();
    assert!(
        comments.iter().any(|comment| comment["text"] == "seen"),
        "{commented}"
    );
    assert_eq!(
        post(&fixture, "issues/LOCAL-9", json!({ "priority": 1 }))
            .await
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_with_open_criteria_closes_with_a_reason_only() {
    let fixture = ProjectFixture::new().await;
    let refused = post(
        &fixture,
        "issues/LOCAL-1",
        json!({ "state": "Done", "if_match": fixture.etag() }),
    )
    .await;
    assert!(
        refused.status == 403 && refused.body.contains("criteria"),
        "{refused:?}"
    );
    let stale = post(
        &fixture,
        "issues/LOCAL-1",
        json!({ "state": "Done", "if_match": "0", "anyway": "enough" }),
    )
    .await;
    assert_eq!(stale.status, 409);
    let closed = post(
        &fixture,
        "issues/LOCAL-1",
        json!({ "state": "Done", "if_match": fixture.etag(), "anyway": "enough" }),
    )
    .await;
    assert_eq!(closed.status, 200, "{closed:?}");
    let shown = fixture
        .server
        .get("/api/v1/project/issues/LOCAL-1")
        .await
        .json();
    assert!(
        shown["over"] == true && shown["summary"].as_str().unwrap().contains("enough"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_feature_passes_by_a_request() {
    let fixture = ProjectFixture::new().await;
    let list = fixture.server.get("/api/v1/project/features").await.json();
    let (etag, id) = (
        list["etag"].clone(),
        list["items"][0]["feature"]["id"]
            .as_str()
            .unwrap()
            .to_owned(),
    );
    let refused = post(
        &fixture,
        &format!("features/{id}"),
        json!({ "status": "passing" }),
    )
    .await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let tests = post(
        &fixture,
        &format!("features/{id}"),
        json!({ "status": "failing", "tests": ["x"] }),
    )
    .await;
    assert_eq!(tests.problem(), "invalid_input", "a test is a program");
    let begun = post(
        &fixture,
        &format!("features/{id}"),
        json!({ "if_match": etag, "status": "in_progress" }),
    )
    .await;
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_eq!(
        Features::new(&fixture.project).read().unwrap().features[0].status,
        Status::InProgress
    );
    let stale = post(
        &fixture,
        &format!("features/{id}"),
        json!({ "if_match": etag, "status": "failing" }),
    )
    .await;
    assert_eq!(stale.status, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn knowledge_is_confirmed_and_superseded() {
    let fixture = ProjectFixture::new().await;
    let id = &fixture.learned[0];
    let confirmed = post(&fixture, &format!("knowledge/{id}/confirm"), json!({})).await;
    assert_eq!(confirmed.status, 200, "{confirmed:?}");
    let check = json!({ "kind": "invariant", "text": "It holds", "check": "touch ran" });
    let refused = post(&fixture, &format!("knowledge/{id}/supersede"), check).await;
    assert!(
        refused.status == 403 && refused.body.contains("check"),
        "{refused:?}"
    );
    let by = json!({ "kind": "successful", "context": "two", "approach": "better" });
    let done = post(&fixture, &format!("knowledge/{id}/supersede"), by).await;
    assert_eq!(done.status, 200, "{done:?}");
    let shown = fixture
        .server
        .get(&format!("/api/v1/project/knowledge?superseded=true&q={id}"))
        .await
        .json();
    assert!(shown["items"][0]["superseded_by"].is_string(), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_ends_with_the_shown_token_only() {
    let fixture = ProjectFixture::new().await;
    assert_eq!(
        post(&fixture, "recovery/token", json!({})).await.status,
        404,
        "nothing is paused"
    );
    Recovery::new(&fixture.project)
        .pause("look at this", None)
        .unwrap();
    let refused = post(&fixture, "issues/LOCAL-1", json!({ "priority": 1 })).await;
    assert!(
        refused.status == 403 && refused.body.contains("look at this"),
        "{refused:?}"
    );
    let token = post(&fixture, "recovery/token", json!({})).await.json()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = fixture.server.get("/api/v1/project/recovery").await.json();
    assert!(
        shown["paused"]["reason"] == "look at this" && shown["paused"].get("token").is_none(),
        "{shown}"
    );
    let wrong = json!({ "reason": "fine", "token": "0".repeat(32) });
    assert_eq!(
        post(&fixture, "recovery/acknowledge", wrong).await.status,
        403
    );
    let right = json!({ "reason": "fine", "token": token });
    assert_eq!(
        post(&fixture, "recovery/acknowledge", right.clone())
            .await
            .status,
        200
    );
    assert_eq!(
        post(&fixture, "recovery/acknowledge", right).await.status,
        404,
        "it works once"
    );
    assert_eq!(
        fixture.server.get("/api/v1/project/recovery").await.json()["paused"],
        json!(null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_need_the_scope_of_their_pack() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_tokens(folder.path()).await;
    let reader = token(&system, "packs:run:forge.*_list packs:run:forge.*_show").await;
    let id = fixture.learned[0].clone();
    for route in [
        "issues/LOCAL-1".to_owned(),
        format!("knowledge/{id}/confirm"),
        "recovery/token".to_owned(),
    ] {
        assert_eq!(
            ask(&fixture, Method::POST, &route, &reader, "{}")
                .await
                .status,
            403,
            "{route}"
        );
    }
    let writer = token(&system, "packs:run:forge.*").await;
    let comment = ask(
        &fixture,
        Method::POST,
        "issues/LOCAL-1",
        &writer,
        r#"{"comment":"mine"}"#,
    )
    .await;
    let comments = comment.json()["issue"]["comments"].clone();
    let mine = comments
        .as_array()
        .unwrap()
        .iter()
        .find(|comment| comment["text"] == "mine")
        .unwrap()
        .clone();
    assert_eq!(mine["by"], "ann", "a caller acts under its own name");
    let token = ask(&fixture, Method::POST, "recovery/token", &writer, "{}").await;
    assert_eq!(token.status, 403, "an agent may not end a pause");
}
