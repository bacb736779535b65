//! Writing packs: sent once, or not at all.

use helmdeck_core::Code;
use serde_json::{Value, json};

use super::server::{Answer, Server};
use super::{Packs, With, output};

fn created() -> Value {
    json!({
        "id": 5, "number": 7, "title": "t", "state": "open", "body": null, "user": {"login": "u"}, "labels": [],
        "html_url": "https://h/7", "created_at": "c", "updated_at": "u", "tag_name": "v1", "draft": false,
        "prerelease": false, "published_at": null,
        "head": {"ref": "x", "sha": "0", "repo": {"full_name": "a/b"}}, "base": {"ref": "main", "sha": "0", "repo": null},
    })
}

#[tokio::test]
async fn each_pack_sends_what_github_asks_for() {
    let server = Server::start(|_, _| Answer::new(201, &created())).await;
    let deck = Packs::at(&server.url);
    for (pack, input, path, body) in [
        (
            "github.create_issue",
            json!({"repo": "a/b", "title": "t", "labels": ["x"], "credential": "github-token"}),
            "/repos/a/b/issues",
            json!({"title": "t", "labels": ["x"]}),
        ),
        (
            "github.comment",
            json!({"repo": "a/b", "number": 7, "body": "hi"}),
            "/repos/a/b/issues/7/comments",
            json!({"body": "hi"}),
        ),
        (
            "github.create_pr",
            json!({"repo": "a/b", "title": "t", "head": "x", "base": "main", "draft": true}),
            "/repos/a/b/pulls",
            json!({"title": "t", "head": "x", "base": "main", "draft": true, "maintainer_can_modify": true}),
        ),
        (
            "github.create_release",
            json!({"repo": "a/b", "tag_name": "v1", "name": "One"}),
            "/repos/a/b/releases",
            json!({"tag_name": "v1", "name": "One", "draft": false, "prerelease": false, "generate_release_notes": false}),
        ),
    ] {
        let reply = deck.run(pack, input, With::token("t")).await.unwrap();
        assert_eq!(
            (reply.upstream_calls, output(&reply)["html_url"].as_str()),
            (1, Some("https://h/7")),
            "{pack}"
        );
        let asked = server.take().remove(0);
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", path));
        assert_eq!(asked.header("content-type"), Some("application/json"));
        assert_eq!(
            serde_json::from_str::<Value>(&asked.body).unwrap(),
            body,
            "{pack}"
        );
    }
}

#[tokio::test]
async fn what_may_have_been_done_is_never_sent_again() {
    for (answer, expected) in [
        (
            Answer::silence as fn() -> Answer,
            "GitHub's answer got lost; what was asked may have been done",
        ),
        (
            || Answer::new(502, &json!({})),
            "GitHub answered 502 for /repos/a/b/issues",
        ),
        (
            || Answer::new(200, &json!([])),
            "GitHub answered 200 for /repos/a/b/issues",
        ),
    ] {
        let server = Server::start(move |_, _| answer()).await;
        let input = json!({"repo": "a/b", "title": "t"});
        let error = Packs::at(&server.url)
            .run("github.create_issue", input, With::token("t"))
            .await
            .unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::HandlerFailed, expected)
        );
        assert_eq!(server.take().len(), 1, "{expected}");
    }
}

#[tokio::test]
async fn a_renamed_repository_is_written_to_once_with_the_same_body() {
    let server = Server::start(|asked, base| match asked.path.as_str() {
        "/repositories/1/issues" => Answer::new(201, &created()),
        _ => Answer::new(307, &json!({}))
            .header("location", &format!("{base}/repositories/1/issues")),
    })
    .await;
    let input = json!({"repo": "a/old", "title": "t"});
    Packs::at(&server.url)
        .run("github.create_issue", input, With::token("t"))
        .await
        .unwrap();
    let asked = server.take();
    assert_eq!(asked.len(), 2);
    assert_eq!(
        (asked[1].body.as_str(), asked[1].method.as_str()),
        (asked[0].body.as_str(), "POST")
    );
    assert_eq!(asked[1].header("authorization"), Some("Bearer t"));
}

#[tokio::test]
async fn a_write_is_not_redirected_to_another_host() {
    let server = Server::start(|_, _| {
        Answer::new(307, &json!({})).header("location", "https://evil.example/x")
    })
    .await;
    let input = json!({"repo": "a/old", "title": "t"});
    let error = Packs::at(&server.url)
        .run("github.create_issue", input, With::token("t"))
        .await
        .unwrap_err();
    assert_eq!(error.message(), "GitHub's answer links to another host");
}
