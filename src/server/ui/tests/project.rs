//! The pages of the project: what they show, what their forms change, and that looking changes
//! nothing.

use std::time::Duration;

use helmdeck_forge::health::MEMORY_COLOURS;
use helmdeck_forge::layout::{FEATURES, KNOWLEDGE, SYNC};
use helmdeck_forge::recovery::Recovery;
use http::Method;
use serde_json::json;

use super::live::Stream;
use super::{FORM, ORIGIN, form_token};
use crate::fixture::{Answer, Fixture};
use crate::rest::project::ProjectSettings;
use crate::rest::project::tests::fixture::ProjectFixture;

/// Every page of the project.
const PAGES: [&str; 19] = [
    "",
    "/issues",
    "/issues?scope=all",
    "/issues/LOCAL-1",
    "/features",
    "/knowledge",
    "/knowledge?superseded=true&q=one",
    "/knowledge?as_of=HEAD",
    "/knowledge/{entry}",
    "/timeline",
    "/checkpoints",
    "/checkpoints/LOCAL-1-v1",
    "/skills",
    "/skills?task=implement%20it&files=src/a.rs",
    "/skills/code-generation",
    "/artifacts",
    "/files",
    "/tracker",
    "/events",
];

fn path(fixture: &ProjectFixture, page: &str) -> String {
    format!(
        "/ui/project{}",
        page.replace("{entry}", &fixture.learned[1])
    )
}

async fn submit(fixture: &ProjectFixture, page: &str, fields: &[(&str, &str)]) -> Answer {
    let token = form_token(&fixture.server.get("/ui/packs/test.plain").await);
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("form_token", &token).extend_pairs(fields);
    fixture
        .server
        .send(
            Method::POST,
            &format!("/ui/project{page}"),
            &[FORM, ORIGIN],
            &form.finish(),
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_whole_and_shows_texts_as_text() {
    let fixture = ProjectFixture::new().await;
    for name in PAGES {
        let page = fixture.server.get(&path(&fixture, name)).await;
        assert_eq!(
            (page.status.as_u16(), page.header("content-type")),
            (200, "text/html; charset=utf-8"),
            "{name}: {page:?}"
        );
        assert!(
            page.body.starts_with("<!doctype html>") && page.body.trim_end().ends_with("</html>"),
            "{name}"
        );
        let hostile = [
            "<script>alert",
            " style=",
            "<i>",
            "<u>",
            "<b>it",
            "\u{202e}",
            "onload=\"x",
            "javascript:",
        ];
        for forbidden in hostile {
            assert!(
                !page.body.contains(forbidden),
                "{name}: {forbidden}: {}",
                page.body
            );
        }
        assert_eq!(
            page.body.matches("aria-current=\"page\"").count(),
            1,
            "{name}"
        );
    }
    let issue = fixture.server.get("/ui/project/issues/LOCAL-1").await;
    assert!(
        issue
            .body
            .contains("&lt;script&gt;alert(1)&lt;/script&gt;\u{27e8}U+202E\u{27e9}"),
        "{}",
        issue.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_everything_changes_nothing() {
    let fixture = ProjectFixture::new().await;
    let artifact = format!("/artifacts/{}/download", fixture.artifact_segment());
    let before = fixture.everything();
    for name in PAGES
        .into_iter()
        .chain(["/style.css", "/sessions/none", artifact.as_str()])
    {
        fixture.server.get(&path(&fixture, name)).await;
    }
    let after = fixture.everything();
    let changed: Vec<_> = after
        .iter()
        .filter(|(path, found)| before.get(*path) != Some(found))
        .map(|(path, _)| path)
        .collect();
    assert!(
        changed.is_empty() && before.len() == after.len(),
        "{changed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_has_five_parts_with_shape_and_word() {
    let fixture = ProjectFixture::new().await;
    let page = fixture.server.get("/ui/project").await.body;
    for (folder, _) in MEMORY_COLOURS {
        assert!(
            page.contains(&format!("<span class=\"folder {folder}\"")),
            "{folder}: {page}"
        );
    }
    // The overall colour has one too.
    assert!(
        page.matches("<svg").count() == 6 && page.contains("<code>helmdeck forge"),
        "{page}"
    );
    let style = fixture.server.get("/ui/project/style.css").await;
    assert_eq!(style.header("content-type"), "text/css; charset=utf-8");
    for (folder, colour) in MEMORY_COLOURS {
        assert!(
            style.body.contains(&format!("--{folder}: {colour};")),
            "{folder}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_change_issue_feature_and_knowledge() {
    let fixture = ProjectFixture::new().await;
    let said = submit(
        &fixture,
        "/issues/LOCAL-1/comment",
        &[("text", "one\r\ntwo")],
    )
    .await;
    assert!(
        said.header("location")
            .starts_with("/ui/project/issues/LOCAL-1?done="),
        "{said:?}"
    );
    let comments = fixture
        .project
        .issues()
        .show("LOCAL-1")
        .unwrap()
        .item
        .issue
        .comments;
    assert!(
        comments.iter().any(|comment| comment.text == "one\ntwo"),
        "{comments:?}"
    );
    let etag = fixture.etag();
    let marked = submit(
        &fixture,
        "/issues/LOCAL-1/check",
        &[("etag", &etag), ("criterion", "1"), ("done", "true")],
    )
    .await;
    assert_eq!(marked.status, 303, "{marked:?}");
    let fields = [
        ("etag", etag.as_str()),
        ("input.title", "Other"),
        ("input.state", "Open"),
        ("input.priority", "2"),
        ("input.labels", "a\nb"),
        ("input.criteria", "It works <i>well</i>"),
    ];
    let stale = submit(&fixture, "/issues/LOCAL-1/set", &fields).await;
    assert!(
        stale.status == 409 && stale.body.contains("E_STALE"),
        "{stale:?}"
    );
    let etag = fixture.etag();
    let fields = [
        ("etag", etag.as_str()),
        ("input.title", "Other"),
        ("input.state", "Open"),
        ("input.priority", "2"),
        ("input.labels", "a\nb"),
        ("input.criteria", "It works <i>well</i>"),
    ];
    assert_eq!(
        submit(&fixture, "/issues/LOCAL-1/set", &fields)
            .await
            .status,
        303
    );
    let issue = fixture.project.issues().show("LOCAL-1").unwrap().item.issue;
    assert_eq!(
        (issue.title.as_str(), issue.priority, issue.labels),
        ("Other", Some(2), vec!["a".into(), "b".into()])
    );
    let etag = fixture.etag();
    assert_eq!(
        submit(
            &fixture,
            "/issues/LOCAL-1/done",
            &[("etag", &etag), ("why", "finished")]
        )
        .await
        .status,
        303
    );
    assert!(fixture.project.issues().show("LOCAL-1").unwrap().item.over);

    let features = fixture.server.get("/api/v1/project/features").await.json();
    let (etag, id) = (
        features["etag"].as_str().unwrap(),
        features["items"][0]["feature"]["id"].as_str().unwrap(),
    );
    let begun = submit(
        &fixture,
        &format!("/features/{id}/status"),
        &[("etag", etag), ("status", "in_progress")],
    )
    .await;
    assert_eq!(begun.status, 303, "{begun:?}");
    let entry = format!("/knowledge/{}", fixture.learned[0]);
    assert_eq!(
        submit(&fixture, &format!("{entry}/confirm"), &[])
            .await
            .status,
        303
    );
    let by = [
        ("kind", "successful"),
        ("context", "better"),
        ("approach", "so"),
    ];
    assert_eq!(
        submit(&fixture, &format!("{entry}/supersede"), &by)
            .await
            .status,
        303
    );
    assert!(
        fixture
            .server
            .get(&format!("/ui/project{entry}"))
            .await
            .body
            .contains("Superseded by")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_need_their_token_and_origin() {
    let fixture = ProjectFixture::new().await;
    let before = fixture.everything();
    for (page, body) in [
        (
            "issues/LOCAL-1/comment",
            "form_token=0123456789abcdef0123456789abcdef&text=x",
        ),
        ("issues/LOCAL-1/done", "anyway=x"),
        ("pause/token", "form_token=x"),
        (
            "tracker/resolve",
            "form_token=x&key=LOCAL-1&field=title&choice=ours",
        ),
    ] {
        let path = format!("/ui/project/{page}");
        assert_eq!(
            fixture
                .server
                .send(Method::POST, &path, &[FORM, ORIGIN], body)
                .await
                .status,
            403,
            "{page}"
        );
        let foreign = [FORM, ("origin", "https://evil.example")];
        assert_eq!(
            fixture
                .server
                .send(Method::POST, &path, &foreign, body)
                .await
                .status,
            403,
            "{page}"
        );
    }
    assert_eq!(before, fixture.everything());
}

#[tokio::test(flavor = "multi_thread")]
async fn person_ends_a_pause_on_the_page() {
    let fixture = ProjectFixture::new().await;
    Recovery::new(&fixture.project)
        .pause("look <b>here</b>", None)
        .unwrap();
    let page = fixture.server.get("/ui/project").await;
    assert!(
        page.body.contains("Work is paused") && page.body.contains("look &lt;b&gt;here"),
        "{}",
        page.body
    );
    let refused = submit(&fixture, "/issues/LOCAL-1/comment", &[("text", "x")]).await;
    assert!(
        refused.status == 403 && refused.body.contains("work is paused"),
        "{refused:?}"
    );
    let asked = submit(&fixture, "/pause/token", &[]).await;
    let (_, rest) = asked
        .body
        .split_once("name=\"token\" value=\"")
        .unwrap_or_else(|| panic!("{asked:?}"));
    let token = rest.split('"').next().unwrap();
    let ended = submit(
        &fixture,
        "/pause/end",
        &[("token", token), ("reason", "I looked")],
    )
    .await;
    assert_eq!(ended.status, 303, "{ended:?}");
    assert!(
        !fixture
            .server
            .get("/ui/project")
            .await
            .body
            .contains("Work is paused")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn person_settles_a_conflict_on_the_page() {
    let fixture = ProjectFixture::new().await;
    let conflict = json!({
        "key": "LOCAL-1", "field": "title", "base": "Old", "ours": "Fix <b>it</b>", "theirs": "Fix <i>them</i>",
        "since": "2026-01-01T00:00:00Z",
    });
    let path = fixture.path().join(SYNC);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(
        path,
        json!({ "schema_version": "1.0", "conflicts": [conflict] }).to_string(),
    )
    .unwrap();
    let page = fixture.server.get("/ui/project/tracker").await.body;
    assert!(
        page.contains("Changed on both sides") && page.contains("Fix &lt;i&gt;them"),
        "{page}"
    );
    let settle = async |since: &str| {
        let fields = [
            ("key", "LOCAL-1"),
            ("field", "title"),
            ("choice", "theirs"),
            ("since", since),
        ];
        submit(&fixture, "/tracker/resolve", &fields)
            .await
            .status
            .as_u16()
    };
    assert_eq!(
        settle("2026-02-02T00:00:00Z").await,
        409,
        "another conflict was shown"
    );
    let (_, rest) = page.split_once("name=\"since\" value=\"").unwrap();
    assert_eq!(settle(rest.split('"').next().unwrap()).await, 303);
    assert_eq!(
        fixture
            .project
            .issues()
            .show("LOCAL-1")
            .unwrap()
            .item
            .issue
            .title,
        "Fix <i>them</i>"
    );
    assert_eq!(settle("").await, 404, "it is settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn states_of_a_project_are_pages() {
    let none = Fixture::with_project(ProjectSettings::default(), None).await;
    let page = none.get("/ui/project").await;
    assert!(
        page.status == 200 && page.body.contains("helmdeck forge init"),
        "{page:?}"
    );
    assert_eq!(none.get("/ui/project/issues").await.status, 404);

    let fixture = ProjectFixture::new().await;
    assert!(
        fixture
            .server
            .get("/ui/project/tracker")
            .await
            .body
            .contains("Offline")
    );
    assert!(
        fixture
            .server
            .get("/ui/project/issues?scope=done")
            .await
            .body
            .contains("No issue here")
    );
    assert_eq!(
        fixture
            .server
            .get("/ui/project/issues/LOCAL-9")
            .await
            .status,
        404
    );
    std::fs::write(fixture.path().join(FEATURES), "{").unwrap();
    let damaged = fixture.server.get("/ui/project/features").await;
    assert!(
        damaged.status == 500 && damaged.body.contains("A file is damaged"),
        "{damaged:?}"
    );
    assert!(
        fixture
            .server
            .get("/ui/project")
            .await
            .body
            .contains("health red")
    );
    assert!(
        fixture
            .server
            .get("/ui/project/files")
            .await
            .body
            .contains("damaged")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_entries_are_paged() {
    let fixture = ProjectFixture::new().await;
    let entry = |number: u32| json!({ "context": format!("case {number:04}"), "approach": "so", "learned_at": "2026-01-01T00:00:00Z" });
    let entries: Vec<_> = (0..5_000).map(entry).collect();
    let file = json!({ "schema_version": "1.0", "patterns": { "successful": entries, "failed": [] }, "invariants": [] });
    std::fs::write(fixture.path().join(KNOWLEDGE), file.to_string()).unwrap();
    let page = fixture.server.get("/ui/project/knowledge").await;
    assert!(
        page.body.contains("More entries") && page.body.len() < 200_000,
        "{}",
        page.body.len()
    );
    let (_, rest) = page.body.split_once("<p><a href=\"?after=").unwrap();
    let next = fixture
        .server
        .get(&format!(
            "/ui/project/knowledge?after={}",
            rest.split('"').next().unwrap()
        ))
        .await;
    assert!(
        next.status == 200 && next.body.contains("More entries"),
        "{next:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn change_of_the_project_reloads_its_pages() {
    let fixture = ProjectFixture::new().await;
    let page = fixture.server.get("/ui/project/issues").await;
    assert!(
        page.body
            .contains("data-live=\"/ui/stream?view=page&amp;topics=project\""),
        "{}",
        page.body
    );
    let mut stream = Stream::open(
        &fixture.server.router,
        "/ui/stream?view=page&topics=project",
        &[],
    )
    .await;
    let change = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let comment = "x";
        fixture
            .project
            .issues()
            .comment("LOCAL-1", comment)
            .unwrap();
    };
    let (message, ()) = tokio::join!(stream.next(), change);
    assert!(message.contains("\"op\":\"reload\""), "{message}");
}
