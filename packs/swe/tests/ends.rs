//! Every way in which the work of a model ends: the patch and the trajectory are kept.

use std::time::Duration;

use helmdeck_core::{Code, Error};
use helmdeck_llm::Price;
use helmdeck_testkit::{ChatReply, ChatServer};
use serde_json::{Value, json};

use super::fixture::{Fixture, KEY};
use super::{fix, run, submit};

/// Checks that a run ended so, and that what was done till then is kept.
fn ended(fixture: &Fixture, output: &Value, how: &str) {
    assert_eq!(
        (&output["success"], &output["ended"]),
        (&json!(false), &json!(how)),
        "{output}"
    );
    fixture.apply(output["patch"].as_str().unwrap());
    assert_eq!(fixture.artifacts.trajectory()["ended"], how);
    assert!(
        output["summary"].as_str().unwrap().starts_with("Stopped"),
        "{output}"
    );
}

#[tokio::test]
async fn the_limit_of_steps_keeps_the_patch_and_is_announced() {
    let fixture = Fixture::new(vec![fix(), run("true")]).await;
    let output = fixture
        .solve(json!({"max_steps": 3, "test_command": "sh test.sh"}))
        .await
        .unwrap();
    ended(&fixture, &output, "step_limit");
    assert_eq!(
        (&output["steps_executed"], &output["tests"]["exit"]),
        (&json!(3), &json!(0))
    );
    assert!(
        fixture.server.requests()[2]
            .content(-1)
            .contains("[1 of your answers left")
    );
    assert_eq!(fixture.server.requests().len(), 3);
}

#[tokio::test]
async fn the_limit_of_time_ends_a_step_that_runs_for_ever() {
    let fixture = Fixture::new(vec![fix(), run("sleep 1000")]).await;
    let output = fixture.solve(json!({"max_seconds": 4})).await.unwrap();
    ended(&fixture, &output, "time_limit");
    let last = fixture.artifacts.trajectory()["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(
        (&last["command"], &last["ended"]),
        (&json!("sleep 1000"), &json!("timed_out"))
    );
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_the_work_goes_on() {
    let fixture = Fixture::new(vec![run("sleep 1000"), fix(), submit()]).await;
    let output = fixture.solve(json!({"command_seconds": 1})).await.unwrap();
    assert_eq!(output["success"], true);
    assert!(
        fixture.server.requests()[1]
            .content(-1)
            .contains("no command may take longer")
    );
}

#[tokio::test]
async fn a_model_that_never_answers_ends_with_the_deadline_of_the_call() {
    let script = |index, _: &_| if index == 0 { fix() } else { ChatReply::Silent };
    let mut fixture = Fixture::around(ChatServer::start(script).await);
    fixture.deadline = Some(Duration::from_secs(8));
    let output = fixture.solve(json!({})).await.unwrap();
    ended(&fixture, &output, "time_limit");
}

#[tokio::test]
async fn the_limit_of_cost_is_kept_with_a_price_and_with_the_endpoints_own_figures() {
    let mut fixture = Fixture::new(vec![fix(), run("true")]).await;
    // 100 in and 10 out: $0.0002 an answer.
    fixture.llm.prices = [(
        "small".to_owned(),
        Price {
            input: 1.0,
            output: 10.0,
            cached: None,
        },
    )]
    .into();
    let output = fixture.solve(json!({"max_cost": 0.0005})).await.unwrap();
    ended(&fixture, &output, "cost_limit");
    assert_eq!(output["steps_executed"], 3);
    assert!((output["usage"]["cost"].as_f64().unwrap() - 0.0006).abs() < 1e-9);

    let mut told = serde_json::to_value(json!({"usage": {"cost": 0.3}})).unwrap();
    told["choices"] =
        json!([{"message": {"content": "```bash\nsed -i 's/helo/hello/' greet.sh\n```"}}]);
    let fixture = Fixture::new(vec![ChatReply::json(&told)]).await;
    let output = fixture.solve(json!({"max_cost": 0.5})).await.unwrap();
    ended(&fixture, &output, "cost_limit");
    assert_eq!(output["usage"]["cost"], 0.6);
}

#[tokio::test]
async fn a_limit_of_cost_that_cannot_be_kept_stops_before_the_next_question() {
    let fixture = Fixture::new(vec![fix()]).await;
    let output = fixture.solve(json!({"max_cost": 10})).await.unwrap();
    ended(&fixture, &output, "cost_unknown");
    assert_eq!(
        (fixture.server.requests().len(), output["usage"].get("cost")),
        (1, None)
    );
    assert!(output["summary"].as_str().unwrap().contains("[llm.prices]"));

    let all = format!(
        "sed -i 's/helo/hello/' greet.sh; printf '%s\\n' {} done",
        super::MARKER
    );
    let fixture = Fixture::new(vec![run(&all)]).await;
    let output = fixture.solve(json!({"max_cost": 10})).await.unwrap();
    assert_eq!(
        (&output["ended"], &output["success"]),
        (&json!("submitted"), &json!(true)),
        "{output}"
    );
}

#[tokio::test]
async fn an_answer_that_got_lost_counts_against_the_limit_of_cost() {
    let mut fixture = Fixture::new(vec![
        ChatReply::Http(200, vec![], b"garbage".to_vec()),
        fix(),
        fix(),
    ])
    .await;
    fixture.llm.prices = [(
        "small".to_owned(),
        Price {
            input: 1.0,
            output: 10.0,
            cached: None,
        },
    )]
    .into();
    let output = fixture.solve(json!({"max_cost": 10})).await.unwrap();
    ended(&fixture, &output, "cost_unknown");
    assert_eq!(
        (fixture.server.requests().len(), output["usage"].get("cost")),
        (2, None)
    );
}

#[tokio::test]
async fn the_operators_limits_hold_whatever_a_call_asks_for() {
    let mut fixture = Fixture::new(vec![fix(), run("true")]).await;
    fixture.llm.prices = [(
        "small".to_owned(),
        Price {
            input: 1.0,
            output: 10.0,
            cached: None,
        },
    )]
    .into();
    fixture.config.max_steps = 4;
    let output = fixture.solve(json!({"max_steps": 100})).await.unwrap();
    ended(&fixture, &output, "step_limit");
    assert_eq!(
        (
            &output["steps_executed"],
            &fixture.artifacts.trajectory()["about"]["max_steps"]
        ),
        (&json!(4), &json!(4))
    );
    fixture.config.max_cost = 0.0003;
    for input in [json!({}), json!({"max_cost": 5})] {
        let output = fixture.solve(input).await.unwrap();
        assert_eq!(
            (&output["ended"], &output["steps_executed"]),
            (&json!("cost_limit"), &json!(2)),
            "{output}"
        );
    }
    fixture.llm.models = vec!["small".into()];
    let error = fixture.solve(json!({"model": "dear"})).await.unwrap_err();
    assert_eq!(error.code(), Code::Forbidden);
}

#[tokio::test]
async fn a_patch_that_cannot_be_taken_costs_nothing_else() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    *fixture.repository.hides_patch.lock().unwrap() =
        Some(Error::new(Code::TooLarge, "the changes are enormous"));
    let output = fixture
        .solve(json!({"test_command": "sh test.sh", "mode": "branch"}))
        .await
        .unwrap();
    assert_eq!(
        (&output["success"], &output["ended"]),
        (&json!(false), &json!("submitted"))
    );
    assert_eq!(
        (&output["patch"], &output["tests"]["exit"]),
        (&json!(""), &json!(0))
    );
    let summary = output["summary"].as_str().unwrap();
    assert!(
        summary.contains("the changes are enormous") && !summary.contains("Nothing was changed"),
        "{summary}"
    );
    assert!(
        fixture
            .artifacts
            .trajectory()
            .to_string()
            .contains("the changes are enormous")
    );
    assert!(fixture.repository.pushed.lock().unwrap().is_empty());

    // Over 8 MiB, in a real work tree.
    let mut fixture = Fixture::new(vec![
        run("head -c 7000000 /dev/urandom | base64 > big.txt"),
        submit(),
    ])
    .await;
    fixture.real_git = true;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(
        (&output["success"], output.get("patch_artifact_key")),
        (&json!(false), None)
    );
    assert!(
        output["summary"]
            .as_str()
            .unwrap()
            .contains("over 8388608 bytes"),
        "{}",
        output["summary"]
    );
}

#[tokio::test]
async fn answers_without_commands_are_counted_and_reminded() {
    let fixture = Fixture::new(vec![
        fix(),
        ChatReply::text("I am done!"),
        ChatReply::text("Really."),
        fix(),
        ChatReply::text("x"),
    ])
    .await;
    let output = fixture.solve(json!({})).await.unwrap();
    ended(&fixture, &output, "no_commands");
    // Two, a good one that sets the count back, and three.
    assert_eq!(output["steps_executed"], 7);
    let reminder = fixture.server.requests()[2].content(-1).to_owned();
    assert!(
        reminder.contains("no command") && reminder.contains("`bash`"),
        "{reminder}"
    );
}

#[tokio::test]
async fn a_model_that_fails_in_the_middle_loses_nothing() {
    for (reply, word) in [
        (ChatReply::error(500, "sparrow"), "500"),
        (
            ChatReply::error(429, "rate_limit_exceeded").with_header("retry-after: 3600"),
            "rate limit",
        ),
        (
            ChatReply::Http(200, vec![], b"garbage".to_vec()),
            "chat completion",
        ),
        (ChatReply::Endless, "over"),
        (ChatReply::error(401, "x"), "credential"),
    ] {
        let fixture = Fixture::new(vec![fix(), reply]).await;
        let output = fixture
            .solve(json!({"test_command": "sh test.sh"}))
            .await
            .unwrap();
        ended(&fixture, &output, "model_failed");
        assert_eq!(output["tests"]["exit"], 0);
        assert!(
            output["summary"].as_str().unwrap().contains(word),
            "{output}"
        );
        assert!(
            !output.to_string().contains("sparrow"),
            "what the endpoint says stays out: {output}"
        );
    }
}

#[tokio::test]
async fn a_model_that_cannot_be_asked_at_all_is_an_error_that_names_the_trajectory() {
    for (reply, code) in [
        (ChatReply::error(401, "x"), Code::CredentialInvalid),
        (ChatReply::error(404, "model_not_found"), Code::NotFound),
        (
            ChatReply::error(429, "rate_limit_exceeded").with_header("retry-after: 3600"),
            Code::RateLimited,
        ),
        (ChatReply::error(503, "x"), Code::HandlerFailed),
    ] {
        let fixture = Fixture::new(vec![reply]).await;
        let error = fixture.solve(json!({})).await.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(
            error
                .message()
                .ends_with("is in the artifact swe.solve/run/trajectory.json"),
            "{error}"
        );
        assert!(!format!("{error} {error:?} {}", error.cause()).contains(KEY));
        assert_eq!(error.retry_after().is_some(), code == Code::RateLimited);
        assert_eq!(fixture.artifacts.trajectory()["ended"], "model_failed");
    }
}

#[tokio::test]
async fn a_conversation_that_is_too_long_for_the_model_is_shortened_or_ends() {
    let long = "seq 1 3000";
    let script = move |index: usize, request: &helmdeck_testkit::ChatRequest| match index {
        0 => fix(),
        1..=4 => run(long),
        5 => ChatReply::error(400, "context_length_exceeded"),
        _ if !request
            .body
            .to_string()
            .contains("bytes of output left out to save room") =>
        {
            ChatReply::error(500, "x")
        }
        // It goes on for some steps.
        6..=8 => run(long),
        _ => submit(),
    };
    let fixture = Fixture::around(ChatServer::start(script).await);
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(output["success"], true, "{output}");

    let script = |index, _: &_| {
        if index == 0 {
            fix()
        } else {
            ChatReply::error(400, "context_length_exceeded")
        }
    };
    let fixture = Fixture::around(ChatServer::start(script).await);
    let output = fixture.solve(json!({})).await.unwrap();
    ended(&fixture, &output, "too_long");
}

#[tokio::test]
async fn old_outputs_are_left_out_before_the_conversation_gets_too_long() {
    let mut replies = vec![fix()];
    replies.extend((0..12).map(|_| run("seq 1 800")));
    replies.push(submit());
    let mut fixture = Fixture::new(replies).await;
    fixture.config.context_bytes = 20 << 10;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(output["success"], true);
    let largest = fixture
        .server
        .requests()
        .iter()
        .map(|request| request.body.to_string().len())
        .max()
        .unwrap();
    assert!(largest < 40 << 10, "{largest}");
    assert!(
        fixture
            .artifacts
            .trajectory()
            .to_string()
            .contains("old outputs left out")
    );
}

#[tokio::test]
async fn a_trajectory_that_cannot_be_kept_costs_nothing_else() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    *fixture.artifacts.full.lock().unwrap() = true;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(
        (&output["success"], output.get("trajectory_artifact_key")),
        (&json!(true), None)
    );
    assert!(
        output["summary"]
            .as_str()
            .unwrap()
            .contains("could not be kept")
    );
}

#[tokio::test]
async fn dropping_a_run_kills_its_command() {
    let fixture = Fixture::new(vec![run("echo $$ > ../pid; exec sleep 1000")]).await;
    let context = fixture.context();
    let pid_file = context.session().unwrap().folder().join("pid");
    let session = context.session.clone();
    let mut running = Box::pin(fixture.solve_in(context, json!({})));
    let pid = loop {
        tokio::select! {
            output = &mut running => panic!("{output:?}"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        let pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
    };
    let process = std::path::PathBuf::from(format!("/proc/{pid}/cmdline"));
    assert!(std::fs::read_to_string(&process).unwrap().contains("sleep"));
    drop(running);
    // A killed process has no command line any more, before it is waited for too.
    for _ in 0..1000 {
        if std::fs::read_to_string(&process)
            .unwrap_or_default()
            .is_empty()
        {
            drop(session);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("process {pid} is still there");
}
