//! What failing answers mean, and what is repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_core::{Code, Error};
use serde_json::{Value, json};

use super::server::{Answer, Server};
use super::{NOW_SECONDS, Packs, With, output};

const LIST: &str = "github.list_issues";

/// Lists issues of a server that always answers this, with a token.
async fn refused(status: u16, headers: &[(&str, &str)], body: Value) -> Error {
    let headers: Vec<(String, String)> = headers
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect();
    let server = Server::start(move |_, _| {
        headers
            .iter()
            .fold(Answer::new(status, &body), |answer, (name, value)| {
                answer.header(name, value)
            })
    })
    .await;
    let error = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::token("canary-token"))
        .await
        .unwrap_err();
    assert_eq!(server.take().len(), 1, "{status} is not repeated");
    assert!(
        !format!("{error} {error:?} {} {}", error.problem(), error.cause()).contains("canary"),
        "{error:?}"
    );
    error
}

#[tokio::test]
async fn a_used_up_limit_says_when_to_come_back() {
    let reset = (NOW_SECONDS + 90).to_string();
    let past = (NOW_SECONDS - 5).to_string();
    for (status, headers, seconds) in [
        (
            403,
            vec![
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", reset.as_str()),
            ],
            90,
        ),
        (
            429,
            vec![
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", &reset),
            ],
            90,
        ),
        (
            403,
            vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &past)],
            1,
        ),
        (
            403,
            vec![
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "9999999999999999999"),
            ],
            60,
        ),
        (
            403,
            vec![("retry-after", "7"), ("x-ratelimit-remaining", "4000")],
            7,
        ),
        (429, vec![("retry-after", "7")], 7),
        (429, vec![], 60),
        (429, vec![("retry-after", "99999999999")], 86_400),
    ] {
        let error = refused(status, &headers, json!({"message": "no"})).await;
        assert_eq!(error.code(), Code::RateLimited, "{status} {headers:?}");
        assert_eq!(
            error.retry_after(),
            Some(Duration::from_secs(seconds)),
            "{status} {headers:?}"
        );
    }
    let page = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits";
    let error = refused(403, &[], json!({"message": "x", "documentation_url": page})).await;
    assert_eq!(
        (error.code(), error.retry_after()),
        (Code::RateLimited, Some(Duration::from_secs(60)))
    );
    assert!(
        error.message().contains("secondary rate limit"),
        "{}",
        error.message()
    );
    let used_up = [("x-ratelimit-remaining", "0"), ("retry-after", "7")];
    assert!(
        refused(403, &used_up, json!({}))
            .await
            .message()
            .contains("rate limit is used up")
    );
    let burst = [("x-ratelimit-remaining", "4000"), ("retry-after", "7")];
    assert!(
        refused(403, &burst, json!({}))
            .await
            .message()
            .contains("secondary rate limit")
    );
}

#[tokio::test]
async fn refusals_are_told_apart_by_status_and_documented_signs() {
    let message =
        |text: &str| json!({"message": text, "documentation_url": "https://docs.github.com/rest"});
    for (status, headers, body, code) in [
        (
            401,
            vec![],
            message("Bad credentials"),
            Code::CredentialInvalid,
        ),
        (
            403,
            vec![],
            message("Bad credentials"),
            Code::CredentialInvalid,
        ),
        (
            403,
            vec![("x-github-sso", "required; url=https://x")],
            message("x"),
            Code::CredentialInvalid,
        ),
        (
            403,
            vec![("x-ratelimit-remaining", "10")],
            message("Resource not accessible by integration"),
            Code::Forbidden,
        ),
        // Words of a limit in a message that no header confirms.
        (
            403,
            vec![("x-ratelimit-remaining", "10")],
            message("rate limit exceeded"),
            Code::Forbidden,
        ),
        (404, vec![], message("Not Found"), Code::NotFound),
        (410, vec![], message("Issues are disabled"), Code::NotFound),
        (409, vec![], message("Conflict"), Code::Conflict),
        (
            422,
            vec![],
            message("Validation Failed"),
            Code::InvalidInput,
        ),
        (451, vec![], message("DMCA"), Code::Forbidden),
        (418, vec![], json!("not an object"), Code::HandlerFailed),
        (204, vec![], Value::Null, Code::HandlerFailed),
    ] {
        let error = refused(status, &headers, body).await;
        assert_eq!(error.code(), code, "{status} {headers:?}: {error}");
    }
}

#[tokio::test]
async fn an_invalid_input_names_githubs_errors_in_one_safe_line() {
    let body = json!({"message": "Validation Failed", "errors": [
        {"resource": "Issue", "field": "title", "code": "missing_field"},
        {"resource": "PullRequest", "code": "custom", "message": "canary-token is\r\n\u{1b}[31mopen"},
        "plain words", 7,
    ]});
    let error = refused(422, &[], body).await;
    assert_eq!(
        error.message(),
        "GitHub does not accept the input: Validation Failed; Issue.title missing_field; PullRequest [redacted] is   [31mopen; plain words"
    );
}

#[tokio::test]
async fn a_missing_thing_without_a_credential_hints_at_one() {
    let server = Server::start(|_, _| Answer::new(404, &json!({}))).await;
    let error = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::default())
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "GitHub has no /repos/a/b/issues, or it is not public and needs a credential"
    );
}

#[tokio::test]
async fn failures_of_the_server_are_repeated_until_it_answers() {
    let turns = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&turns);
    let server = Server::start(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::new(502, &json!({})),
        1 => Answer::silence(),
        2 => Answer::new(500, &json!({})),
        _ => Answer::new(200, &json!([])),
    })
    .await;
    let reply = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::default())
        .await
        .unwrap();
    assert_eq!(output(&reply)["count"], 0);
    assert_eq!(turns.load(Ordering::SeqCst), 4);
    assert_eq!(
        reply.upstream_calls, 3,
        "the connection that broke has no answer to count"
    );
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_given_up() {
    let server = Server::start(|_, _| Answer::new(503, &json!({"message": "x"}))).await;
    let error = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::HandlerFailed,
            "GitHub answered 503 for /repos/a/b/issues"
        )
    );
    assert_eq!(server.take().len(), 4);
}

#[tokio::test]
async fn no_repetition_is_waited_for_past_the_deadline() {
    let server =
        Server::start(|_, _| Answer::new(503, &json!({})).header("retry-after", "30")).await;
    let with = With {
        time: Some(Duration::from_secs(20)),
        ..With::default()
    };
    let error = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), with)
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.retry_after()),
        (Code::HandlerFailed, Some(Duration::from_secs(30)))
    );
    assert_eq!(server.take().len(), 1);
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_said_so() {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let deck = Packs::at(&format!("http://127.0.0.1:{port}"));
    let error = deck
        .run(LIST, json!({"repo": "a/b"}), With::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::HandlerFailed, "GitHub cannot be reached")
    );
}

#[tokio::test]
async fn a_redirect_to_an_inner_host_is_forbidden() {
    let inner = Server::start(|_, _| Answer::new(200, &json!([]))).await;
    let target = inner.url.clone();
    let server =
        Server::start(move |_, _| Answer::new(301, &json!({})).header("location", &target)).await;
    let error = Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/b"}), With::token("t"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Forbidden);
    assert!(inner.take().is_empty());
}

#[tokio::test]
async fn a_renamed_repository_is_followed_with_its_credential() {
    let server = Server::start(|asked, base| match asked.path.as_str() {
        "/repositories/1/issues" => Answer::new(200, &json!([])),
        _ => Answer::new(301, &json!({}))
            .header("location", &format!("{base}/repositories/1/issues")),
    })
    .await;
    Packs::at(&server.url)
        .run(LIST, json!({"repo": "a/old"}), With::token("t"))
        .await
        .unwrap();
    assert_eq!(server.take()[1].header("authorization"), Some("Bearer t"));
}

#[tokio::test]
async fn a_token_that_fits_no_header_is_an_invalid_credential() {
    let server = Server::start(|_, _| Answer::new(200, &json!([]))).await;
    let deck = Packs::at(&server.url);
    let error = deck
        .run(LIST, json!({"repo": "a/b"}), With::token("can\nary"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::CredentialInvalid);
    assert!(!format!("{error:?} {}", error.cause()).contains("ary"));
    let error = deck
        .run(LIST, json!({"repo": "a/b"}), With::token(" \n"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::CredentialInvalid);
    assert!(server.take().is_empty());
    deck.run(
        LIST,
        json!({"repo": "a/b"}),
        With::token("token-from-a-file\n"),
    )
    .await
    .unwrap();
}
