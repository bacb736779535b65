//! Where the model's key goes, and what is shown while it works.

use std::sync::Arc;

use helmdeck_core::{Code, Secret};
use helmdeck_testkit::{ChatReply, ChatServer};
use serde_json::json;

use super::fixture::{Fixture, KEY, git};
use super::{fix, run, submit};

#[tokio::test]
async fn the_key_goes_to_the_operators_endpoint_in_its_header_and_nowhere_else() {
    let fixture = Fixture::new(vec![
        run("env; cat /proc/self/environ; ps auxe"),
        fix(),
        submit(),
    ])
    .await;
    let output = fixture
        .solve(json!({"test_command": "sh test.sh"}))
        .await
        .unwrap();
    for request in fixture.server.requests() {
        assert_eq!(
            request.header("authorization"),
            Some(&*format!("Bearer {KEY}"))
        );
        assert!(!request.body.to_string().contains(KEY));
    }
    let lines = format!("{:?}", fixture.lines.0.lock().unwrap());
    for text in [
        output.to_string(),
        fixture.artifacts.trajectory().to_string(),
        lines,
    ] {
        assert!(!text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn an_endpoint_of_the_input_gets_the_key_only_if_it_is_bound_to_its_host() {
    let host =
        |host: &str| Some(Secret::new(KEY.into()).for_hosts(Arc::new([host.parse().unwrap()])));
    for (key, sent) in [
        (Some(Secret::new(KEY.into())), false),
        (host("example.com"), false),
        (host("127.0.0.1"), true),
    ] {
        let other = ChatServer::playing(vec![fix(), submit()]).await;
        let mut fixture = Fixture::new(vec![ChatReply::error(500, "x")]).await;
        fixture.key = key;
        fixture.allow = vec!["127.0.0.1".parse().unwrap()];
        let output = fixture
            .solve(json!({"endpoint": other.url(), "model": "theirs"}))
            .await
            .unwrap();
        assert_eq!(
            (&output["success"], &output["model"]),
            (&json!(true), &json!("theirs"))
        );
        assert!(fixture.server.requests().is_empty());
        assert!(
            other
                .requests()
                .iter()
                .all(|request| request.header("authorization").is_some() == sent)
        );
        assert_eq!(other.requests()[0].body["model"], "theirs");
    }
}

#[tokio::test]
async fn an_endpoint_of_the_input_on_this_machine_is_refused_before_anything_is_fetched() {
    let other = ChatServer::playing(vec![submit()]).await;
    let fixture = Fixture::new(vec![submit()]).await;
    let error = fixture
        .solve(json!({"endpoint": other.url()}))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Forbidden);
    assert!(other.requests().is_empty() && fixture.lines.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn without_an_endpoint_or_a_model_the_call_says_what_to_set() {
    let mut fixture = Fixture::new(vec![submit()]).await;
    fixture.llm.model = String::new();
    let error = fixture.solve(json!({})).await.unwrap_err();
    assert!(
        error.code() == Code::InvalidInput && error.message().contains("[llm] model"),
        "{error}"
    );
    fixture.llm.endpoint = String::new();
    let error = fixture.solve(json!({"model": "m"})).await.unwrap_err();
    assert!(
        error.code() == Code::InvalidInput && error.message().contains("[llm] endpoint"),
        "{error}"
    );
}

#[tokio::test]
async fn each_step_is_a_line_and_the_percentage_never_falls() {
    let fixture = Fixture::new(vec![run("grep -n helo greet.sh"), fix(), submit()]).await;
    fixture
        .solve(json!({"test_command": "sh test.sh"}))
        .await
        .unwrap();
    let lines = fixture.lines.0.lock().unwrap().clone();
    assert!(
        lines.windows(2).all(|pair| pair[0].0 <= pair[1].0),
        "{lines:?}"
    );
    let first = &lines
        .iter()
        .find(|(_, line)| line.starts_with("1/30"))
        .unwrap()
        .1;
    assert!(
        first.starts_with("1/30 grep -n helo greet.sh -> 0, 0.") && first.ends_with(" s, 0.1 kt"),
        "{first}"
    );
    assert_eq!(lines.last().unwrap(), &(100.0, "done".to_owned()));
}

#[tokio::test]
#[cfg(feature = "repo-map")]
async fn the_map_is_orientation_and_a_repository_without_one_changes_nothing() {
    let fixture = Fixture::new(vec![submit()]).await;
    fixture.solve(json!({})).await.unwrap();
    assert!(!fixture.server.requests()[0].content(0).contains("<map-"));
    std::fs::write(
        fixture.upstream.path().join("greet.py"),
        "def greet(name):\n    return name\n",
    )
    .unwrap();
    git(fixture.upstream.path(), &["add", "-A"]);
    git(fixture.upstream.path(), &["commit", "-qm", "second"]);
    fixture.solve(json!({})).await.unwrap();
    let request = &fixture.server.requests()[1];
    assert!(
        request
            .content(0)
            .contains("greet.py\n     1: def greet(name)"),
        "{}",
        request.content(0)
    );
    assert_eq!(request.content(1), fixture.task());
    let lines = fixture.lines.0.lock().unwrap().clone();
    assert!(
        lines.iter().all(|(_, line)| !line.contains("source files")),
        "the map tells nothing of its own: {lines:?}"
    );
}
