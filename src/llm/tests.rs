//! The client against a scripted endpoint, over real HTTP and through the guard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::{Code, Error, Result, Secret};
use helmdeck_egress::Egress;
use helmdeck_testkit::{ChatReply, ChatServer};
use serde_json::json;

use super::*;

const KEY: &str = "sk-canary-0123456789";

fn config(endpoint: &str) -> Config {
    Config {
        endpoint: endpoint.to_owned(),
        model: "small".to_owned(),
        retry_wait: Duration::from_millis(1),
        prices: [(
            "small".to_owned(),
            Price {
                input: 2.0,
                output: 10.0,
                cached: Some(0.5),
            },
        )]
        .into(),
        ..Config::default()
    }
}

fn egress(allow: &[&str]) -> Egress {
    let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
    Egress::new(helmdeck_egress::Config {
        allow,
        ..helmdeck_egress::Config::default()
    })
}

fn client(server: &ChatServer) -> Client {
    Client::new(&egress(&[]), config(&server.url())).unwrap()
}

fn key() -> Option<Secret> {
    Some(Secret::new(KEY.to_owned()))
}

fn bound(host: &str) -> Option<Secret> {
    key().map(|key| key.for_hosts(Arc::new([host.parse().unwrap()])))
}

async fn ask(client: &Client, deadline: Option<Duration>) -> Result<Answer> {
    let endpoint = client.endpoint(None, None, key())?;
    ask_at(client, &endpoint, deadline).await
}

async fn ask_at(
    client: &Client,
    endpoint: &Endpoint,
    deadline: Option<Duration>,
) -> Result<Answer> {
    let messages = [Message::system("rules"), Message::user("question")];
    let request = Request {
        messages: &messages,
        ..Request::default()
    };
    Ok(client
        .chat(
            endpoint,
            &request,
            deadline.map(|wait| Instant::now() + wait),
        )
        .await?)
}

async fn failing(reply: ChatReply) -> (Error, usize) {
    let server = ChatServer::playing(vec![reply]).await;
    let error = ask(&client(&server), None).await.unwrap_err();
    for text in [error.to_string(), error.cause(), format!("{error:?}")] {
        assert!(!text.contains(KEY), "{text}");
    }
    (error, server.requests().len())
}

#[tokio::test]
async fn an_answer_has_its_text_its_tokens_and_its_cost() {
    let body = json!({
        "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}},
    });
    let server = ChatServer::playing(vec![ChatReply::json(&body)]).await;
    let answer = ask(&client(&server), None).await.unwrap();
    assert_eq!(
        (answer.text.as_deref(), answer.finish, answer.attempts),
        (Some("hello"), Finish::Stop, 1)
    );
    assert_eq!(
        answer.usage,
        Some(Usage {
            prompt_tokens: 1000,
            completion_tokens: 100,
            cached_tokens: 400
        })
    );
    // 600 fresh at 2, 400 cached at 0.5, 100 out at 10, per million.
    assert!((answer.cost.unwrap() - 0.0024).abs() < 1e-12);

    let request = &server.requests()[0];
    assert!(
        request
            .head
            .starts_with("POST /v1/chat/completions HTTP/1.1"),
        "{}",
        request.head
    );
    assert_eq!(
        request.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
    let expected = json!({"model": "small", "messages": [
        {"role": "system", "content": "rules"}, {"role": "user", "content": "question"},
    ]});
    assert_eq!(request.body, expected);
}

#[tokio::test]
async fn the_endpoints_own_cost_counts_and_none_is_unknown() {
    let with = |usage| json!({"choices": [{"message": {"content": "x"}}], "usage": usage});
    let usage = with(json!({"prompt_tokens": 10, "completion_tokens": 1, "cost": 0.25}));
    let silent = json!({"choices": [{"message": {"content": "x"}}]});
    let server = ChatServer::playing(vec![ChatReply::json(&usage), ChatReply::json(&silent)]).await;
    let client = client(&server);
    assert_eq!(ask(&client, None).await.unwrap().cost, Some(0.25));
    let answer = ask(&client, None).await.unwrap();
    assert_eq!((answer.cost, answer.usage), (None, None));
    // A price is known for another model only.
    let endpoint = client.endpoint(None, Some("other"), None).unwrap();
    let answer = ask_at(&client, &endpoint, None).await.unwrap();
    assert_eq!(answer.cost, None);
}

#[tokio::test]
async fn tool_calls_are_read_in_every_form_and_written_back() {
    let message = json!({"content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
        {"function": {"name": "bash", "arguments": {"command": "pwd"}}},
    ]});
    let server = ChatServer::playing(vec![ChatReply::message(&message, "tool_calls")]).await;
    let client = client(&server);
    let answer = ask(&client, None).await.unwrap();
    assert_eq!(answer.finish, Finish::ToolCalls);
    let calls: Vec<_> = answer
        .tool_calls
        .iter()
        .map(|call| (&*call.id, &*call.arguments))
        .collect();
    assert_eq!(
        calls,
        [
            ("a", r#"{"command":"ls"}"#),
            ("call_1", r#"{"command":"pwd"}"#)
        ]
    );

    let tool = Tool {
        name: "bash".into(),
        description: "runs".into(),
        parameters: json!({"type": "object"}),
    };
    let messages = [
        answer.message(),
        Message::Tool {
            tool_call_id: "a".into(),
            content: "out".into(),
        },
    ];
    let request = Request {
        messages: &messages,
        tools: &[tool],
        temperature: Some(0.5),
        max_tokens: Some(7),
    };
    client
        .chat(&client.endpoint(None, None, None).unwrap(), &request, None)
        .await
        .unwrap();
    let sent = &server.requests()[1].body;
    assert_eq!(sent["messages"][0]["content"], serde_json::Value::Null);
    let first = json!({"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}});
    assert_eq!(sent["messages"][0]["tool_calls"][0], first);
    assert_eq!(
        sent["messages"][1],
        json!({"role": "tool", "tool_call_id": "a", "content": "out"})
    );
    assert_eq!(sent["tools"][0]["function"]["name"], "bash");
    assert_eq!(
        (&sent["temperature"], &sent["max_tokens"]),
        (&json!(0.5), &json!(7))
    );
}

#[tokio::test]
async fn text_in_parts_is_one_text() {
    let message =
        json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    let server = ChatServer::playing(vec![ChatReply::message(&message, "something_new")]).await;
    let answer = ask(&client(&server), None).await.unwrap();
    assert_eq!(
        (answer.text.as_deref(), answer.finish),
        (Some("ab"), Finish::Other)
    );
}

#[tokio::test]
async fn a_limit_and_a_failure_pass_by_themselves() {
    let limited = ChatReply::error(429, "rate_limit_exceeded").with_header("retry-after-ms: 20");
    let replies = vec![
        limited,
        ChatReply::error(503, "busy"),
        ChatReply::Broken,
        ChatReply::text("at last"),
    ];
    let server = ChatServer::playing(replies).await;
    let answer = ask(&client(&server), None).await.unwrap();
    assert_eq!(
        (answer.text.as_deref(), answer.attempts),
        (Some("at last"), 4)
    );
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_or_the_longest_wait_ends_at_once() {
    let limited = || ChatReply::error(429, "rate_limit_exceeded").with_header("Retry-After: 30");
    let server = ChatServer::playing(vec![limited()]).await;
    let error = ask(&client(&server), Some(Duration::from_secs(20)))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    assert_eq!(server.requests().len(), 1);

    let patient = config(&server.url());
    let client = Client::new(
        &egress(&[]),
        Config {
            max_retry_wait: Duration::from_secs(29),
            ..patient
        },
    )
    .unwrap();
    assert_eq!(
        ask(&client, None).await.unwrap_err().code(),
        Code::RateLimited
    );
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn what_keeps_failing_is_given_up() {
    let (error, requests) = failing(ChatReply::error(500, "x")).await;
    assert_eq!((error.code(), requests), (Code::HandlerFailed, 5));
}

#[tokio::test]
async fn an_answer_that_gets_lost_is_asked_for_once_more_only_because_it_costs() {
    for reply in [
        ChatReply::Http(200, vec![], b"<html>".to_vec()),
        ChatReply::json(&json!({"choices": []})),
        ChatReply::json(&json!({"choices": [{"message": null}]})),
        ChatReply::Broken,
    ] {
        let server = ChatServer::playing(vec![reply]).await;
        let client = client(&server);
        let messages = [Message::user("question")];
        let request = Request {
            messages: &messages,
            ..Request::default()
        };
        let endpoint = client.endpoint(None, None, key()).unwrap();
        let unanswered = client.chat(&endpoint, &request, None).await.unwrap_err();
        assert_eq!(
            (unanswered.error.code(), unanswered.lost),
            (Code::HandlerFailed, true)
        );
        assert_eq!(server.requests().len(), 2);
    }
    let server = ChatServer::playing(vec![ChatReply::error(503, "busy")]).await;
    let client = client(&server);
    let endpoint = client.endpoint(None, None, key()).unwrap();
    assert!(
        !client
            .chat(&endpoint, &Request::default(), None)
            .await
            .unwrap_err()
            .lost
    );
}

#[tokio::test]
async fn what_a_lost_answer_took_is_part_of_the_next_one_and_unknown_if_nobody_tells() {
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 100});
    let lost = ChatReply::json(&json!({"choices": [], "usage": usage}));
    let good =
        ChatReply::json(&json!({"choices": [{"message": {"content": "x"}}], "usage": usage}));
    let server = ChatServer::playing(vec![lost, good.clone()]).await;
    let answer = ask(&client(&server), None).await.unwrap();
    assert_eq!(
        answer.usage,
        Some(Usage {
            prompt_tokens: 2000,
            completion_tokens: 200,
            cached_tokens: 0
        })
    );
    // Twice 1000 in at 2 and 100 out at 10, per million.
    assert!((answer.cost.unwrap() - 0.006).abs() < 1e-12);

    let server = ChatServer::playing(vec![ChatReply::Broken, good]).await;
    let answer = ask(&client(&server), None).await.unwrap();
    assert_eq!((answer.cost, answer.attempts), (None, 2));
}

#[tokio::test]
async fn an_odd_field_beside_a_good_answer_costs_nothing_but_itself() {
    let with = |usage| json!({"choices": [{"message": {"content": "x"}, "finish_reason": 5}], "usage": usage});
    for (usage, expected, cost) in [
        (
            json!({"prompt_tokens": null, "completion_tokens": 1}),
            None,
            None,
        ),
        (
            json!({"prompt_tokens": 10.0, "completion_tokens": 1.0}),
            Some((10, 1)),
            Some(0.00003),
        ),
        (
            json!({"prompt_tokens": -1, "completion_tokens": "many", "cost": 0.5}),
            None,
            Some(0.5),
        ),
        (
            json!({"prompt_tokens": 10, "completion_tokens": 1, "cost": "free"}),
            Some((10, 1)),
            Some(0.00003),
        ),
        (
            json!({"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": 7}),
            Some((10, 1)),
            Some(0.00003),
        ),
        (json!("none"), None, None),
    ] {
        let server = ChatServer::playing(vec![ChatReply::json(&with(usage.clone()))]).await;
        let answer = ask(&client(&server), None).await.unwrap();
        assert_eq!(
            (answer.text.as_deref(), answer.attempts, answer.finish),
            (Some("x"), 1, Finish::Other),
            "{usage}"
        );
        let tokens = answer
            .usage
            .map(|usage| (usage.prompt_tokens, usage.completion_tokens));
        assert_eq!(tokens, expected, "{usage}");
        assert_eq!(
            answer.cost.map(|usd| (usd * 1e9).round()),
            cost.map(|usd: f64| (usd * 1e9).round()),
            "{usage}"
        );
    }
    let message = json!({"content": {"odd": 1}, "tool_calls": [{"id": 5, "function": {"name": null, "arguments": "{}"}}]});
    let server = ChatServer::playing(vec![ChatReply::message(&message, "tool_calls")]).await;
    let answer = ask(&client(&server), None).await.unwrap();
    assert_eq!(
        (
            answer.text,
            &*answer.tool_calls[0].id,
            &*answer.tool_calls[0].name
        ),
        (None, "call_0", "")
    );
}

#[test]
fn only_the_models_that_the_operator_allows_are_asked() {
    let some = |models: &[&str]| Config {
        models: models.iter().map(|&model| model.to_owned()).collect(),
        ..config("http://127.0.0.1:9/v1")
    };
    let client = Client::new(&egress(&["model.example"]), some(&["small", "large"])).unwrap();
    for (given, model, allowed) in [
        (None, None, true),
        (None, Some("large"), true),
        (None, Some("Large"), false),
        (Some("https://model.example/v1"), Some("dear"), false),
    ] {
        let found = client
            .endpoint(given, model, None)
            .map(|endpoint| endpoint.model);
        assert_eq!(found.is_ok(), allowed, "{model:?}");
        if let Err(error) = found {
            assert_eq!(error.code(), Code::Forbidden);
            assert!(error.message().contains("[llm] models"), "{error}");
        }
    }
    assert!(
        some(&["large"])
            .validate()
            .unwrap_err()
            .contains("llm.models")
    );
}

#[tokio::test]
async fn each_refusal_has_its_code_and_is_not_repeated() {
    for (status, code, expected) in [
        (401, "invalid_api_key", Code::CredentialInvalid),
        (403, "", Code::CredentialInvalid),
        (402, "", Code::CredentialInvalid),
        (429, "insufficient_quota", Code::CredentialInvalid),
        (404, "model_not_found", Code::NotFound),
        (400, "context_length_exceeded", Code::TooLarge),
        (413, "", Code::TooLarge),
        (400, "bad", Code::InvalidInput),
        (307, "", Code::InvalidInput),
    ] {
        let (error, requests) = failing(ChatReply::error(status, code)).await;
        assert_eq!((error.code(), requests), (expected, 1), "{status} {code}");
    }
    let llama =
        json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "x"}});
    let (error, _) = failing(ChatReply::Http(400, vec![], llama.to_string().into_bytes())).await;
    assert_eq!(error.code(), Code::TooLarge);
}

#[tokio::test]
async fn the_endpoints_words_are_repeated_without_the_key() {
    let body = json!({"error": {"message": format!("no\ttools for {KEY}"), "code": null}});
    let (error, _) = failing(ChatReply::Http(400, vec![], body.to_string().into_bytes())).await;
    assert!(
        error.message().ends_with(": no tools for [secret]"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_without_end_and_one_that_never_comes_are_cut_off() {
    let (error, requests) = failing(ChatReply::Endless).await;
    assert_eq!((error.code(), requests), (Code::HandlerFailed, 1));
    assert!(error.message().contains("over 1048576 bytes"), "{error}");

    let server = ChatServer::playing(vec![ChatReply::Silent]).await;
    let error = ask(&client(&server), Some(Duration::from_millis(200)))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Timeout);
    for hasty in [
        Config {
            idle_timeout: Duration::from_millis(50),
            max_repeats: 1,
            ..config(&server.url())
        },
        Config {
            timeout: Duration::from_millis(50),
            max_repeats: 1,
            ..config(&server.url())
        },
    ] {
        let client = Client::new(&egress(&[]), hasty).unwrap();
        assert_eq!(
            ask(&client, None).await.unwrap_err().code(),
            Code::HandlerFailed
        );
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = ChatServer::playing(vec![ChatReply::text("caught")]).await;
    let location = format!("location: {}/chat/completions", other.url());
    let (error, requests) = failing(ChatReply::error(308, "").with_header(&location)).await;
    assert_eq!(
        (error.code(), requests, other.requests().len()),
        (Code::InvalidInput, 1, 0)
    );
}

#[tokio::test]
async fn a_given_endpoint_is_reached_only_where_it_may_be() {
    let server = ChatServer::playing(vec![ChatReply::text("hi")]).await;
    let client = Client::new(&egress(&[]), config("http://127.0.0.1:9/v1")).unwrap();
    let error = client
        .endpoint(Some(&server.url()), None, key())
        .unwrap_err();
    assert_eq!(error.code(), Code::Forbidden);
    for url in [
        "ftp://example.com",
        "nonsense",
        "https://user:pw-canary@example.com/v1",
    ] {
        let error = client.endpoint(Some(url), None, None).unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput);
        assert!(!error.to_string().contains("pw-canary"), "{error}");
    }
}

#[tokio::test]
async fn a_given_endpoint_gets_the_key_only_if_it_is_bound_to_that_host() {
    let server = ChatServer::playing(vec![ChatReply::text("hi")]).await;
    let client = Client::new(
        &egress(&["127.0.0.1", "model.example"]),
        config("http://127.0.0.1:9/v1"),
    )
    .unwrap();
    for (key, sent) in [
        (key(), false),
        (bound("model.example"), false),
        (bound("127.0.0.1"), true),
        (None, false),
    ] {
        let endpoint = client.endpoint(Some(&server.url()), None, key).unwrap();
        assert!(!format!("{endpoint:?} {client:?}").contains(KEY));
        let answer = ask_at(&client, &endpoint, None).await.unwrap();
        assert_eq!(answer.cost, None, "another endpoint has other prices");
        let requests = server.requests();
        assert_eq!(
            requests.last().unwrap().header("authorization").is_some(),
            sent
        );
    }
    // Over a network without encryption, no host from an input gets it.
    assert!(
        client
            .endpoint(
                Some("http://model.example/v1"),
                None,
                bound("model.example")
            )
            .unwrap()
            .withheld
    );
    assert!(
        !client
            .endpoint(
                Some("https://model.example/v1"),
                None,
                bound("model.example")
            )
            .unwrap()
            .withheld
    );
}

#[tokio::test]
async fn a_withheld_key_is_named_when_the_endpoint_wants_one() {
    let server = ChatServer::playing(vec![ChatReply::error(401, "x")]).await;
    let client = Client::new(&egress(&["127.0.0.1"]), Config::default()).unwrap();
    let endpoint = client
        .endpoint(Some(&server.url()), Some("m"), key())
        .unwrap();
    let error = ask_at(&client, &endpoint, None).await.unwrap_err();
    assert_eq!(error.code(), Code::CredentialInvalid);
    assert!(error.message().contains("bound to this host"), "{error}");
}

#[test]
fn the_operators_endpoint_named_again_stays_the_operators() {
    let client = Client::new(&egress(&[]), config("http://127.0.0.1:9/v1/")).unwrap();
    let endpoint = client
        .endpoint(Some("http://127.0.0.1:9/v1"), None, key())
        .unwrap();
    assert!(endpoint.key.is_some());
    assert_eq!(
        client
            .endpoint(None, None, bound("other.example"))
            .unwrap_err()
            .code(),
        Code::Forbidden
    );
}

#[test]
fn what_is_missing_is_said() {
    let client = Client::new(&egress(&[]), Config::default()).unwrap();
    for (given, model) in [(None, Some("m")), (Some("https://example.com/v1"), None)] {
        let error = client.endpoint(given, model, None).unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput);
        assert!(error.message().contains("[llm]"), "{error}");
    }
}

#[test]
fn a_base_url_keeps_its_query() {
    for (base, expected) in [
        (
            "https://a.example/v1",
            "https://a.example/v1/chat/completions",
        ),
        ("https://a.example", "https://a.example/chat/completions"),
        (
            "https://a.example/x/?api-version=1#y",
            "https://a.example/x/chat/completions?api-version=1",
        ),
    ] {
        assert_eq!(completions(&base.parse().unwrap()).as_str(), expected);
    }
}

#[test]
fn settings_that_cannot_be_are_named() {
    for (config, named) in [
        (
            Config {
                endpoint: "example.com".into(),
                ..Config::default()
            },
            "llm.endpoint",
        ),
        (
            Config {
                endpoint: "https://u:p@example.com".into(),
                ..Config::default()
            },
            "llm.endpoint",
        ),
        (
            Config {
                timeout: Duration::ZERO,
                ..Config::default()
            },
            "llm.timeout",
        ),
        (
            Config {
                max_response_bytes: 0,
                ..Config::default()
            },
            "llm.max_response_bytes",
        ),
        (
            Config {
                prices: [(
                    "m".into(),
                    Price {
                        input: -1.0,
                        output: 0.0,
                        cached: None,
                    },
                )]
                .into(),
                ..Config::default()
            },
            "llm.prices",
        ),
    ] {
        assert!(config.validate().unwrap_err().contains(named));
    }
}
