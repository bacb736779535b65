//! The trajectory: all that happened, in both formats.

use helmdeck_testkit::ChatReply;
use serde_json::{Value, json};

use super::fixture::Fixture;
use super::{fix, run, submit};

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[tokio::test]
async fn our_format_has_every_message_command_end_time_and_token() {
    let fixture = Fixture::new(vec![
        ChatReply::text("hm"),
        run("echo a; exit 3"),
        fix(),
        submit(),
    ])
    .await;
    let output = fixture
        .solve(json!({"test_command": "sh test.sh"}))
        .await
        .unwrap();
    let trajectory = fixture.artifacts.trajectory();
    assert_eq!(
        output["trajectory_artifact_key"],
        "swe.solve/run/trajectory.json"
    );
    assert_eq!(trajectory["trajectory_format"], "helmdeck-1");
    assert_eq!(
        (&trajectory["patch"], &trajectory["tests"]),
        (&output["patch"], &output["tests"])
    );
    assert_eq!(trajectory["about"]["base_commit"], output["base_commit"]);
    assert_eq!(
        (
            &trajectory["about"]["model"],
            &trajectory["about"]["max_steps"]
        ),
        (&json!("small"), &json!(30))
    );
    assert_eq!(trajectory["usage"]["completion_tokens"], 40);

    let messages = trajectory["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "tool"
        ]
    );
    assert!(
        messages
            .iter()
            .all(|message| message["at"].as_str().unwrap().ends_with('Z'))
    );
    let command = &messages[5];
    assert_eq!(
        (&command["command"], &command["exit"], &command["ended"]),
        (&json!("echo a; exit 3"), &json!(3), &json!("exited"))
    );
    assert!(
        command["seconds"].is_number() && command["content"].as_str().unwrap().contains("exit 3")
    );
    assert_eq!(
        (
            &messages[2]["usage"]["prompt_tokens"],
            &messages[2]["finish"]
        ),
        (&json!(100), &json!("stop"))
    );
}

#[tokio::test]
async fn the_other_format_is_that_of_mini_swe_agent() {
    let fixture = Fixture::new(vec![
        ChatReply::text("hm"),
        run("echo a; exit 3"),
        fix(),
        submit(),
    ])
    .await;
    let output = fixture
        .solve(json!({"trajectory_format": "mini-swe-agent-1.1"}))
        .await
        .unwrap();
    assert_eq!(
        output["trajectory_artifact_key"],
        "swe.solve/run/trajectory.traj.json"
    );
    let trajectory = fixture.artifacts.trajectory();
    assert_eq!(keys(&trajectory), ["info", "messages", "trajectory_format"]);
    assert_eq!(trajectory["trajectory_format"], "mini-swe-agent-1.1");
    let info = &trajectory["info"];
    assert_eq!(
        (&info["exit_status"], &info["submission"]),
        (&json!("Submitted"), &output["patch"])
    );
    assert_eq!(
        info["model_stats"],
        json!({"api_calls": 4, "instance_cost": 0.0})
    );
    for part in [
        "agent",
        "agent_type",
        "model",
        "model_type",
        "environment",
        "environment_type",
    ] {
        assert!(info["config"].get(part).is_some(), "{part}");
    }

    let messages = trajectory["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        // The output of the submission has no message.
        [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "exit"
        ]
    );
    assert_eq!(
        messages[3]["extra"],
        json!({"interrupt_type": "FormatError"})
    );
    let asked = &messages[4]["extra"];
    assert_eq!(
        asked["actions"],
        json!([{"command": "echo a; exit 3", "tool_call_id": "call_x"}])
    );
    assert!(asked["timestamp"].as_f64().unwrap() > 1.7e9 && asked["cost"].is_number());
    let extra = &messages[5]["extra"];
    assert_eq!(
        keys(extra),
        ["exception_info", "raw_output", "returncode", "timestamp"]
    );
    assert_eq!(
        (&extra["raw_output"], &extra["returncode"]),
        (&json!("a\n"), &json!(3))
    );
    assert_eq!(
        messages[9]["extra"],
        json!({"exit_status": "Submitted", "submission": output["patch"]})
    );
}

#[tokio::test]
async fn a_model_without_tools_has_one_message_of_rules_in_the_other_format() {
    let block = |command: &str| ChatReply::text(&format!("```bash\n{command}\n```"));
    let replies = vec![
        ChatReply::error(400, "x"),
        block("sed -i 's/helo/hello/' greet.sh"),
        block(&format!("echo {}", super::MARKER)),
    ];
    let fixture = Fixture::new(replies).await;
    fixture
        .solve(json!({"trajectory_format": "mini-swe-agent-1.1"}))
        .await
        .unwrap();
    let messages = fixture.artifacts.trajectory()["messages"]
        .as_array()
        .unwrap()
        .clone();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "user", "assistant", "exit"]
    );
    assert!(
        messages[0]["content"].as_str().unwrap().contains("```bash"),
        "the rules that it followed"
    );
}

#[tokio::test]
async fn each_ending_has_the_name_that_mini_swe_agent_gives_it() {
    let mini = |more: Value| {
        let mut input = json!({"trajectory_format": "mini-swe-agent-1.1"});
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        input
    };
    for (replies, more, status) in [
        (vec![run("true")], json!({"max_steps": 1}), "LimitsExceeded"),
        (
            vec![run("sleep 100")],
            json!({"max_seconds": 3}),
            "TimeExceeded",
        ),
        (vec![ChatReply::text("x")], json!({}), "RepeatedFormatError"),
    ] {
        let fixture = Fixture::new(replies).await;
        fixture.solve(mini(more)).await.unwrap();
        let trajectory = fixture.artifacts.trajectory();
        assert_eq!(trajectory["info"]["exit_status"], status);
        assert_eq!(
            trajectory["messages"].as_array().unwrap().last().unwrap()["content"],
            status
        );
        assert_eq!(trajectory["info"]["submission"], "");
    }
}
