//! The pack with a scripted model over real HTTP, and commands and git that really run.

mod endpoint;
mod ends;
mod fixture;
mod memory;
mod publishing;
mod trajectories;

use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::{Code, Manifest};
use helmdeck_testkit::ChatReply;
use serde_json::json;

use super::prompt::MARKER;
use fixture::Fixture;

/// Answers with a command, as models with tools do.
fn run(command: &str) -> ChatReply {
    ChatReply::bash("I think.", command)
}

/// Answers with the command that ends the work.
fn submit() -> ChatReply {
    run(&format!(
        "printf '%s\\n' {MARKER} 'The greeting said helo.'"
    ))
}

/// Answers with the change that solves the task of the tests.
fn fix() -> ChatReply {
    run("sed -i 's/helo/hello/' greet.sh")
}

#[test]
fn the_manifest_is_understood_and_marks_the_patch() {
    let manifest = Manifest::parse("solve.toml", include_str!("solve.toml"), &|_| {
        Err("none".into())
    })
    .unwrap();
    assert_eq!(manifest.handler, HandlerSpec::Builtin("swe.solve".into()));
    assert!(manifest.asynchronous && !manifest.read_only && manifest.memory.is_none());
    assert!(!manifest.session.unwrap().network);
    assert_eq!(
        manifest.output.source()["properties"]["patch"]["contentMediaType"],
        "text/x-diff"
    );
    for property in ["network", "runtime", "allow"] {
        assert!(
            manifest.input.source()["properties"]
                .get(property)
                .is_none()
        );
    }
}

#[tokio::test]
async fn a_bug_is_fixed_tested_and_answered_as_a_patch_that_applies() {
    let fixture = Fixture::new(vec![run("cat greet.sh"), fix(), submit()]).await;
    let output = fixture
        .solve(json!({"test_command": "sh test.sh"}))
        .await
        .unwrap();
    assert_eq!(output["success"], true, "{output}");
    assert_eq!(
        (&output["ended"], &output["summary"]),
        (&json!("submitted"), &json!("The greeting said helo."))
    );
    assert_eq!(
        output["tests"],
        json!({"command": "sh test.sh", "ended": "exited", "exit": 0, "tail": "passed\n"})
    );
    assert_eq!(
        (&output["steps_executed"], &output["usage"]["prompt_tokens"]),
        (&json!(3), &json!(300))
    );
    assert_eq!(output["base_commit"], fixture.upstream_commit());
    fixture.apply(output["patch"].as_str().unwrap());

    let requests = fixture.server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0].content(1), fixture.task());
    assert_eq!(requests[0].body["tools"][0]["function"]["name"], "bash");
    assert!(
        requests[1].content(-1).starts_with("[exit 0 after ")
            && requests[1].content(-1).contains("echo helo")
    );
    assert_eq!(requests[1].body["messages"][3]["tool_call_id"], "call_x");
}

#[tokio::test]
async fn a_model_without_tools_works_with_fenced_blocks() {
    let block = |command: &str| ChatReply::text(&format!("I think.\n\n```bash\n{command}\n```\n"));
    let done = format!("echo {MARKER}");
    // What Ollama answers to tools for a model that knows none.
    let fixture = Fixture::new(vec![
        ChatReply::error(400, "x"),
        block("sed -i 's/helo/hello/' greet.sh"),
        block(&done),
    ])
    .await;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(output["success"], true, "{output}");
    assert_eq!(output["steps_executed"], 2);
    let requests = fixture.server.requests();
    assert!(requests[0].body.get("tools").is_some() && requests[1].body.get("tools").is_none());
    assert!(requests[1].content(0).contains("```bash"));
    assert_eq!(requests[2].body["messages"][3]["role"], "user");
}

#[tokio::test]
async fn a_model_that_commits_by_itself_still_has_a_patch() {
    let commit = "git -c user.name=m -c user.email=m@m commit -qam done && git status --short";
    let fixture = Fixture::new(vec![fix(), run(commit), submit()]).await;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(output["success"], true, "{output}");
    fixture.apply(output["patch"].as_str().unwrap());
}

#[tokio::test]
async fn each_command_has_a_shell_of_its_own_in_the_root() {
    let fixture = Fixture::new(vec![
        run("cd /; export X=1; set -e"),
        run("pwd; echo \"x=$X\""),
        submit(),
    ])
    .await;
    fixture.solve(json!({})).await.unwrap();
    let shown = fixture.server.requests()[2].content(-1).to_owned();
    assert!(shown.contains("/repo\nx=\n"), "{shown}");
}

#[tokio::test]
async fn a_submission_without_a_change_or_with_failing_tests_is_no_success() {
    let fixture = Fixture::new(vec![submit()]).await;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(
        (&output["success"], &output["ended"], &output["patch"]),
        (&json!(false), &json!("submitted"), &json!(""))
    );
    assert!(
        output["summary"]
            .as_str()
            .unwrap()
            .contains("Nothing was changed")
    );

    let fixture = Fixture::new(vec![run("echo '# x' >> greet.sh"), submit()]).await;
    let output = fixture
        .solve(json!({"test_command": "sh test.sh"}))
        .await
        .unwrap();
    assert_eq!(
        (&output["success"], &output["tests"]["exit"]),
        (&json!(false), &json!(1))
    );
    assert!(output["patch"].as_str().unwrap().contains("+# x"));
}

#[tokio::test]
async fn what_the_tests_write_is_no_part_of_the_patch() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    let output = fixture
        .solve(json!({"test_command": "sh test.sh && touch written-by-tests"}))
        .await
        .unwrap();
    assert_eq!(output["success"], true);
    assert!(
        !output["patch"]
            .as_str()
            .unwrap()
            .contains("written-by-tests")
    );
}

#[tokio::test]
async fn several_calls_of_one_answer_run_in_order_and_each_has_its_answer() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "bash", "arguments": arguments}});
    let several = json!({"content": null, "tool_calls": [
        call("a", r#"{"command":"echo one > order"}"#), call("b", "nonsense"), call("c", r#"{"command":"echo two >> order; cat order"}"#),
    ]});
    let fixture = Fixture::new(vec![ChatReply::message(&several, "tool_calls"), submit()]).await;
    fixture.solve(json!({})).await.unwrap();
    let messages = fixture.server.requests()[1].body["messages"].clone();
    let ids: Vec<_> = messages.as_array().unwrap()[3..]
        .iter()
        .map(|message| message["tool_call_id"].clone())
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(
        messages[4]["content"]
            .as_str()
            .unwrap()
            .contains("JSON object")
    );
    assert!(
        messages[5]["content"]
            .as_str()
            .unwrap()
            .ends_with("one\ntwo\n")
    );
}

#[tokio::test]
async fn output_that_is_no_text_and_output_without_measure_are_shown_in_bounds() {
    let fixture = Fixture::new(vec![
        run("printf 'a\\377\\376b'"),
        run("head -c 3000000 /dev/zero | tr '\\0' x"),
        submit(),
    ])
    .await;
    fixture.solve(json!({})).await.unwrap();
    let requests = fixture.server.requests();
    assert!(requests[1].content(-1).ends_with("a\u{fffd}\u{fffd}b"));
    let shown = requests[2].content(-1);
    assert!(
        shown.len() < 20_000 && shown.contains("bytes left out here"),
        "{}",
        shown.len()
    );
}

#[tokio::test]
async fn blank_texts_and_a_call_without_a_session_are_refused() {
    let fixture = Fixture::new(vec![submit()]).await;
    for input in [
        json!({"task": " \n"}),
        json!({"test_command": " "}),
        json!({"test_command": "a\u{0}b"}),
    ] {
        assert_eq!(
            fixture.solve(input).await.unwrap_err().code(),
            Code::InvalidInput
        );
    }
    let mut context = fixture.context();
    context.session = None;
    assert_eq!(
        fixture
            .solve_in(context, json!({}))
            .await
            .unwrap_err()
            .code(),
        Code::SessionUnavailable
    );
    assert!(fixture.server.requests().is_empty());
}
