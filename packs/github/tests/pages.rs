//! Paging and conditional reading against a scripted server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helmdeck_core::Code;
use serde_json::{Value, json};

use super::server::{Answer, Asked, Server};
use super::{Packs, With, output};

fn issue(number: u64) -> Value {
    json!({
        "number": number, "title": format!("issue {number}"), "state": "open", "body": null, "user": null, "labels": [],
        "html_url": "https://h", "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
    })
}

fn pull(number: u64) -> Value {
    let mut pull = issue(number);
    pull["pull_request"] = json!({"url": "https://h"});
    pull
}

fn page_of(asked: &Asked) -> u64 {
    asked
        .path
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("page="))
        .map_or(1, |page| page.parse().unwrap())
}

fn next(answer: Answer, base: &str, page: u64) -> Answer {
    answer.header(
        "link",
        &format!("<{base}/repositories/1/issues?per_page=2&page={page}>; rel=\"next\""),
    )
}

/// Three pages of two, two and one issue; the version of each page is part of its `ETag`.
async fn three_pages(versions: [Arc<AtomicU64>; 3]) -> Server {
    Server::start(move |asked, base| {
        let page = page_of(asked);
        let version = versions[usize::try_from(page).unwrap() - 1].load(Ordering::SeqCst);
        let issues = if page < 3 {
            json!([issue(page * 10), issue(page * 10 + 1)])
        } else {
            json!([issue(version)])
        };
        let answer = Answer::new(200, &issues);
        let answer = if page < 3 {
            next(answer, base, page + 1)
        } else {
            answer
        };
        answer.etag(asked, &format!("W/\"{page}-{version}\""))
    })
    .await
}

fn versions() -> [Arc<AtomicU64>; 3] {
    std::array::from_fn(|_| Arc::new(AtomicU64::new(1)))
}

const LIST: &str = "github.list_issues";

fn numbers(output: &Value) -> Vec<u64> {
    output["issues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|issue| issue["number"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn pages_are_followed_to_the_end() {
    let server = three_pages(versions()).await;
    let reply = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b", "per_page": 2}), With::default())
        .await
        .unwrap();
    let found = output(&reply);
    assert_eq!(numbers(&found), [10, 11, 20, 21, 1]);
    assert_eq!(
        (&found["count"], &found["truncated"]),
        (&json!(5), &json!(false))
    );
    assert_eq!(reply.upstream_calls, 3);
    assert_eq!(
        server.paths(),
        [
            "/repos/a/b/issues?state=open&sort=created&direction=desc&per_page=2",
            "/repositories/1/issues?per_page=2&page=2",
            "/repositories/1/issues?per_page=2&page=3",
        ]
    );
}

#[tokio::test]
async fn max_items_ends_the_paging_and_says_truncated() {
    let server = three_pages(versions()).await;
    let deck = Packs::at(&server.url);
    for (max, truncated, requests) in [
        (1, true, 1),
        (2, true, 1),
        (3, true, 2),
        (4, true, 2),
        (5, false, 3),
        (9, false, 3),
    ] {
        let input = json!({"repo": "a/b", "per_page": 2, "max_items": max});
        let found = output(&deck.run(LIST, input, With::default()).await.unwrap());
        assert_eq!(found["count"], json!(max.min(5)), "{max}");
        assert_eq!(
            (&found["truncated"], server.take().len()),
            (&json!(truncated), requests),
            "{max}"
        );
    }
}

#[tokio::test]
async fn an_unchanged_list_is_confirmed_page_by_page_at_no_cost() {
    let server = three_pages(versions()).await;
    let deck = Packs::at(&server.url);
    let input = json!({"repo": "a/b", "per_page": 2});
    let first = deck
        .run(LIST, input.clone(), With::token("t"))
        .await
        .unwrap();
    server.take();

    let second = deck
        .run(LIST, input.clone(), With::token("t").stale(&first))
        .await
        .unwrap();
    assert!(second.output.is_none());
    assert_eq!(second.upstream_calls, 0);
    assert_eq!(second.validator, first.validator);
    let asked = server.take();
    let etags: Vec<_> = asked
        .iter()
        .map(|asked| asked.header("if-none-match").unwrap())
        .collect();
    assert_eq!(etags, ["W/\"1-1\"", "W/\"2-1\"", "W/\"3-1\""]);

    // GitHub's documentation: only an authorised 304 is free.
    let anonymous = deck
        .run(LIST, input, With::default().stale(&first))
        .await
        .unwrap();
    assert_eq!(
        (anonymous.output.is_none(), anonymous.upstream_calls),
        (true, 3)
    );
}

#[tokio::test]
async fn one_changed_page_makes_a_whole_new_answer() {
    for changed in 0..3 {
        let pages = versions();
        let server = three_pages(pages.clone()).await;
        let deck = Packs::at(&server.url);
        let input = json!({"repo": "a/b", "per_page": 2});
        let first = deck
            .run(LIST, input.clone(), With::token("t"))
            .await
            .unwrap();
        pages[changed].store(2, Ordering::SeqCst);
        server.take();

        let second = deck
            .run(LIST, input.clone(), With::token("t").stale(&first))
            .await
            .unwrap();
        assert_eq!(
            numbers(&output(&second)),
            [10, 11, 20, 21, if changed == 2 { 2 } else { 1 }]
        );
        // The changed page is not requested twice; those that answered 304 before it are fetched in
        // full.
        assert_eq!(second.upstream_calls, 3, "page {changed}");
        assert_eq!(server.take().len(), 3 + changed);
        assert_ne!(second.validator, first.validator);

        let third = deck
            .run(LIST, input, With::token("t").stale(&second))
            .await
            .unwrap();
        assert!(third.output.is_none());
    }
}

#[tokio::test]
async fn a_full_last_page_is_not_confirmed_since_a_new_page_may_follow_unseen() {
    let server = Server::start(|asked, _| {
        Answer::new(200, &json!([issue(1), issue(2)])).etag(asked, "\"x\"")
    })
    .await;
    let deck = Packs::at(&server.url);
    let full = deck
        .run(LIST, json!({"repo": "a/b", "per_page": 2}), With::default())
        .await
        .unwrap();
    assert!(full.validator.is_none());
    let room = deck
        .run(LIST, json!({"repo": "a/b", "per_page": 3}), With::default())
        .await
        .unwrap();
    assert!(room.validator.is_some());
    let cut = deck
        .run(
            LIST,
            json!({"repo": "a/b", "per_page": 2, "max_items": 1}),
            With::default(),
        )
        .await
        .unwrap();
    assert!(cut.validator.is_some());
}

#[tokio::test]
async fn pull_requests_are_left_out_unless_asked_for() {
    let server = Server::start(|asked, base| match page_of(asked) {
        1 => next(
            Answer::new(200, &json!([pull(1), issue(2), pull(3)])),
            base,
            2,
        ),
        _ => Answer::new(200, &json!([issue(4)])),
    })
    .await;
    let deck = Packs::at(&server.url);
    let found = deck
        .run(
            LIST,
            json!({"repo": "a/b", "max_items": 2}),
            With::default(),
        )
        .await
        .unwrap();
    assert_eq!(numbers(&output(&found)), [2, 4]);
    let input = json!({"repo": "a/b", "max_items": 2, "include_pulls": true});
    let found = output(&deck.run(LIST, input, With::default()).await.unwrap());
    assert_eq!(
        (numbers(&found), &found["truncated"]),
        (vec![1, 2], &json!(true))
    );
    assert_eq!(found["issues"][0]["is_pull_request"], true);
}

#[tokio::test]
async fn a_next_link_to_another_host_is_not_followed() {
    for link in [
        "http://127.0.0.1:1/x",
        "https://evil.example/x",
        "//evil.example/x",
        "ftp://x/",
    ] {
        let header = format!("<{link}>; rel=\"next\"");
        let server =
            Server::start(move |_, _| Answer::new(200, &json!([issue(1)])).header("link", &header))
                .await;
        let error = Packs::at(&server.url)
            .run(LIST, json!({"repo": "a/b"}), With::token("t"))
            .await
            .unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::HandlerFailed, "GitHub's answer links to another host")
        );
        assert_eq!(server.take().len(), 1);
    }
}

#[tokio::test]
async fn an_endless_chain_of_pages_ends() {
    let server = Server::start(|asked, base| {
        next(
            Answer::new(200, &json!([pull(1)])),
            base,
            page_of(asked) + 1,
        )
    })
    .await;
    let found = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::default())
        .await
        .unwrap();
    assert_eq!(
        output(&found),
        json!({"count": 0, "truncated": true, "issues": []})
    );
    assert_eq!(found.upstream_calls, 100);
}

#[tokio::test]
async fn values_are_encoded_in_the_query() {
    let server = Server::start(|_, _| Answer::new(200, &json!([]))).await;
    let input = json!({"repo": "a/b", "labels": ["good first issue", "a&b=c#d"], "assignee": "*", "since": "2020-01-01T00:00:00+02:00"});
    Packs::at(&format!("{}/api/v3/", server.url))
        .run(LIST, input, With::default())
        .await
        .unwrap();
    assert_eq!(
        server.paths(),
        [
            "/api/v3/repos/a/b/issues?state=open&labels=good+first+issue%2Ca%26b%3Dc%23d&assignee=*&since=2020-01-01T00%3A00%3A00%2B02%3A00&sort=created&direction=desc&per_page=100"
        ]
    );
}

#[tokio::test]
async fn requests_say_what_github_asks_for() {
    let server = Server::start(|_, _| Answer::new(200, &json!([]))).await;
    Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::token("canary"))
        .await
        .unwrap();
    let asked = &server.take()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer canary"));
    assert_eq!(asked.header("accept"), Some("application/vnd.github+json"));
    assert_eq!(asked.header("x-github-api-version"), Some("2022-11-28"));
    assert_eq!(asked.head.matches("user-agent").count(), 1);
    assert!(asked.header("user-agent").unwrap().starts_with("helmdeck/"));
}

#[tokio::test]
async fn an_issue_with_its_thread_is_confirmed_or_renewed_as_one() {
    let version = Arc::new(AtomicU64::new(1));
    let seen = Arc::clone(&version);
    let server = Server::start(move |asked, _| {
        if asked.path.ends_with("/issues/7") {
            return Answer::new(200, &issue(7)).etag(asked, "\"issue\"");
        }
        let version = seen.load(Ordering::SeqCst);
        let comment = json!({"id": version, "user": {"login": "u"}, "body": "b", "html_url": "h", "created_at": "c", "updated_at": "u"});
        Answer::new(200, &json!([comment])).etag(asked, &format!("\"{version}\""))
    })
    .await;
    let deck = Packs::at(&server.url);
    let input = json!({"repo": "a/b", "number": 7, "with_comments": true});
    let first = deck
        .run("github.get_issue", input.clone(), With::token("t"))
        .await
        .unwrap();
    assert_eq!(output(&first)["thread"][0]["id"], 1);
    assert!(
        deck.run(
            "github.get_issue",
            input.clone(),
            With::token("t").stale(&first)
        )
        .await
        .unwrap()
        .output
        .is_none()
    );
    version.store(2, Ordering::SeqCst);
    let second = deck
        .run("github.get_issue", input, With::token("t").stale(&first))
        .await
        .unwrap();
    assert_eq!(
        (
            output(&second)["number"].clone(),
            output(&second)["thread"][0]["id"].clone()
        ),
        (json!(7), json!(2))
    );

    let alone = deck
        .run(
            "github.get_issue",
            json!({"repo": "a/b", "number": 7}),
            With::default(),
        )
        .await
        .unwrap();
    assert!(output(&alone).get("thread").is_none());
}

#[tokio::test]
async fn a_diff_is_asked_for_in_its_own_form_and_null_if_too_large() {
    let server = Server::start(|asked, _| {
        let end = json!({"ref": "x", "sha": "0", "repo": null});
        let mut pull = issue(1);
        (pull["head"], pull["base"]) = (end.clone(), end);
        match (asked.header("accept"), asked.path.as_str()) {
            (Some("application/vnd.github.diff"), "/repos/a/b/pulls/1") => {
                Answer::new(200, &json!("diff --git"))
            }
            (Some("application/vnd.github.diff"), _) => {
                Answer::new(406, &json!({"errors": [{"code": "too_large"}]}))
            }
            _ => Answer::new(200, &pull),
        }
    })
    .await;
    let deck = Packs::at(&server.url);
    let get = async |number: u64, with_diff: bool| {
        let input = json!({"repo": "a/b", "number": number, "with_diff": with_diff});
        output(
            &deck
                .run("github.get_pr", input, With::default())
                .await
                .unwrap(),
        )
    };
    assert_eq!(get(1, true).await["diff"], "\"diff --git\"");
    assert_eq!(get(2, true).await["diff"], Value::Null);
    assert!(get(1, false).await.get("diff").is_none());
}

#[tokio::test]
async fn an_answer_over_the_limit_or_of_another_form_is_an_error() {
    let server = Server::start(|asked, _| {
        if asked.path.contains("big") {
            Answer::new(200, &json!(["x".repeat(9 << 20)]))
        } else {
            Answer::new(200, &json!({"message": "x"}))
        }
    })
    .await;
    let deck = Packs::at(&server.url);
    let error = deck
        .run(LIST, json!({"repo": "a/big"}), With::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::TooLarge);
    let error = deck
        .run(LIST, json!({"repo": "a/other"}), With::default())
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "GitHub's answer does not have the documented form"
    );
}

#[tokio::test]
async fn a_bare_head_means_a_branch_of_the_repositorys_owner() {
    let server = Server::start(|_, _| Answer::new(200, &json!([]))).await;
    let deck = Packs::at(&server.url);
    for head in ["topic", "other:topic"] {
        deck.run(
            "github.list_prs",
            json!({"repo": "a/b", "head": head, "base": "main"}),
            With::default(),
        )
        .await
        .unwrap();
    }
    assert_eq!(
        server.paths(),
        [
            "/repos/a/b/pulls?state=open&head=a%3Atopic&base=main&sort=created&per_page=100",
            "/repos/a/b/pulls?state=open&head=other%3Atopic&base=main&sort=created&per_page=100",
        ]
    );
}
