//! Tests of the handlers against recorded exchanges with the real GitHub.
//!
//! Their bodies are compared with GitHub's own description.

use serde_json::json;

use super::stand_in::GitHub;
use super::{Packs, With, output};
use helmdeck_core::Code;

#[tokio::test]
async fn a_recorded_list_is_followed_over_its_five_pages() {
    let github = GitHub::start();
    let deck = Packs::at(&github.url());
    let input = json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3});
    let reply = deck
        .run("github.list_issues", input.clone(), With::token("t"))
        .await
        .unwrap();
    let found = output(&reply);
    assert_eq!(
        (&found["count"], &found["truncated"]),
        (&json!(13), &json!(false))
    );
    assert_eq!(reply.upstream_calls, 5);

    let cut = json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3, "max_items": 7});
    let reply = deck
        .run("github.list_issues", cut, With::token("t"))
        .await
        .unwrap();
    assert_eq!(
        (&output(&reply)["count"], &output(&reply)["truncated"]),
        (&json!(7), &json!(true))
    );
    assert_eq!(reply.upstream_calls, 3);
}

#[tokio::test]
async fn recorded_etags_confirm_and_new_ones_bring_new_data() {
    let github = GitHub::start();
    let deck = Packs::at(&github.url());
    let input = json!({"repo": "sigmavirus24/github3.py", "number": 187, "with_comments": true});
    let first = deck
        .run("github.get_issue", input.clone(), With::token("t"))
        .await
        .unwrap();
    assert_eq!(
        (
            &output(&first)["number"],
            output(&first)["thread"].as_array().unwrap().len()
        ),
        (&json!(187), 3)
    );

    let again = deck
        .run(
            "github.get_issue",
            input.clone(),
            With::token("t").stale(&first),
        )
        .await
        .unwrap();
    assert_eq!((again.output.is_none(), again.upstream_calls), (true, 0));
    assert!(
        github
            .log()
            .iter()
            .rev()
            .take(2)
            .all(|entry| entry["if_none_match"].is_string())
    );

    github.control(&json!({"touch": "/repos/sigmavirus24/github3.py/issues/187"}));
    let renewed = deck
        .run("github.get_issue", input, With::token("t").stale(&first))
        .await
        .unwrap();
    assert!(
        output(&renewed)["title"]
            .as_str()
            .unwrap()
            .starts_with("touched: ")
    );
    assert_eq!(output(&renewed)["thread"], output(&first)["thread"]);
}

#[tokio::test]
async fn recorded_pulls_and_searches_fit_the_schemas() {
    let github = GitHub::start();
    let deck = Packs::at(&github.url());
    let pull = deck
        .run(
            "github.get_pr",
            json!({"repo": "PyGithub/PyGithub", "number": 31}),
            With::default(),
        )
        .await
        .unwrap();
    assert_eq!(
        (&output(&pull)["number"], &output(&pull)["merged"]),
        (&json!(31), &json!(true))
    );
    let pulls = deck
        .run(
            "github.list_prs",
            json!({"repo": "PyGithub/PyGithub"}),
            With::default(),
        )
        .await
        .unwrap();
    assert!(output(&pulls)["count"].as_u64().unwrap() > 0);
    // The very searches that were recorded.
    for (kind, query, max, count, truncated) in [
        ("issues", "github3 label:Bug", 100, 57, false),
        (
            "code",
            "HTTPAdapter in:file language:python repo:kennethreitz/requests",
            100,
            3,
            false,
        ),
        (
            "code",
            "\"profile = black\" in:file language:toml",
            5,
            5,
            true,
        ),
        ("repositories", "github3 language:python", 100, 8, false),
        ("commits", "css repo:octocat/Spoon-Knife", 100, 1, false),
    ] {
        let input = json!({"query": query, "type": kind, "max_items": max});
        let reply = deck.run("github.search", input, With::token("t")).await;
        let found = output(&reply.unwrap_or_else(|error| panic!("{kind}: {}", error.cause())));
        assert_eq!(
            (
                found["items"].as_array().unwrap().len(),
                &found["truncated"]
            ),
            (count, &json!(truncated)),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn limits_and_faults_of_the_stand_in_are_understood() {
    let github = GitHub::start();
    let deck = Packs::at(&github.url());
    let input = json!({"repo": "PyGithub/PyGithub", "number": 28});
    let get = async || {
        deck.run("github.get_issue", input.clone(), With::token("t"))
            .await
    };

    github.control(&json!({"status": 500, "times": 2}));
    github.control(&json!({"drop": true}));
    assert_eq!(output(&get().await.unwrap())["number"], 28);
    assert_eq!(github.log().len(), 4);

    github.control(&json!({"status": 403, "headers": {"retry-after": "12"}}));
    let error = get().await.unwrap_err();
    assert_eq!(
        (error.code(), error.retry_after().unwrap().as_secs()),
        (Code::RateLimited, 12)
    );

    github.control(&json!({"rate": 0}));
    let error = get().await.unwrap_err();
    assert_eq!(error.code(), Code::RateLimited);
    assert!(error.retry_after().is_some());
    github.control(&json!({"rate": 10}));

    for (status, code) in [(401, Code::CredentialInvalid), (403, Code::Forbidden)] {
        github.control(&json!({"status": status, "body": {"message": "x"}}));
        assert_eq!(get().await.unwrap_err().code(), code);
    }
    let missing = deck
        .run(
            "github.get_issue",
            json!({"repo": "no/such", "number": 1}),
            With::token("t"),
        )
        .await;
    assert_eq!(missing.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn the_bodies_that_are_sent_fit_githubs_own_description() {
    let github = GitHub::start();
    let deck = Packs::at(&github.url());
    let repo = "PyGithub/PyGithub";
    for (pack, input) in [
        ("github.create_issue", json!({"repo": repo, "title": "t"})),
        (
            "github.create_issue",
            json!({"repo": repo, "title": "t", "body": "b", "labels": ["x"], "assignees": ["u"], "milestone": 1}),
        ),
        (
            "github.comment",
            json!({"repo": "sigmavirus24/github3.py", "number": 423, "body": "hello"}),
        ),
        (
            "github.create_pr",
            json!({"repo": repo, "title": "t", "head": "u:x", "base": "main"}),
        ),
        (
            "github.create_pr",
            json!({"repo": repo, "title": "t", "head": "x", "base": "main", "body": "b", "draft": true}),
        ),
        (
            "github.create_release",
            json!({"repo": repo, "tag_name": "v1", "target_commitish": "main", "name": "n", "body": "b", "prerelease": true}),
        ),
    ] {
        let reply = deck
            .run(pack, input, With::token("t"))
            .await
            .unwrap_or_else(|error| panic!("{pack}: {error}"));
        assert!(output(&reply)["html_url"].is_string(), "{pack}");
    }
    let said = github.check_bodies().unwrap();
    assert_eq!(said.trim(), "6 passed, 0 failed");
}
