//! Bug fixes by a run: the tests of the package fail before and pass after.
//!
//! Everything that is reported about the run is right.

use serde_json::{Value, json};

use super::mini::changes;
use super::{Fixture, TEST_COMMAND, artifact};
use crate::support::KEY;
use crate::support::model::{Reply, SUBMIT, TOKENS, bash};
use crate::vault::VAULT_KEY;

/// What the model says it did.
const SUMMARY: &str = "The bug that the tests show is mended as upstream did.";

/// Looks around, sees the tests fail, fixes the bug, sees them pass, and submits.
fn script(desk_task: &crate::support::swe::Task) -> Vec<Reply> {
    vec![
        bash("ls && git log --oneline"),
        bash(format!("{TEST_COMMAND} | tail -n 5")),
        bash(desk_task.mend()),
        bash(format!("{TEST_COMMAND} | tail -n 5")),
        bash(format!("{SUBMIT}; echo '{SUMMARY}'")),
    ]
}

#[track_caller]
fn check_output(fixture: &Fixture, output: &Value) {
    assert_eq!(output["success"], true, "{output}");
    assert!(
        output["summary"].as_str().unwrap().contains(SUMMARY),
        "{output}"
    );
    let patch = output["patch"].as_str().unwrap();
    fixture.task.assert_mended_by(patch);
    assert_eq!(changes(patch), changes(&fixture.task.gold()));
    assert_eq!(output["steps_executed"], 5, "{output}");
    assert_eq!(
        (&output["tests"]["command"], &output["tests"]["exit"]),
        (&json!(TEST_COMMAND), &json!(0)),
        "{output}"
    );
    assert!(
        output["tests"]["tail"]
            .as_str()
            .unwrap()
            .contains(" passed"),
        "{output}"
    );
    let usage = &output["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(5 * TOKENS.0), &json!(5 * TOKENS.1)),
        "{output}"
    );
    for name in ["branch", "pr_url"] {
        assert!(output[name].is_null(), "nothing is pushed: {output}");
    }
    assert_eq!(fixture.pushed(), []);
}

#[track_caller]
fn check_conversation(fixture: &Fixture) {
    let asked = fixture.model.asked();
    assert_eq!((asked.len(), fixture.model.left()), (5, 0));
    for asked in &asked {
        assert_eq!(
            asked.authorization.as_deref(),
            Some(format!("Bearer {}", super::MODEL_SECRET).as_str())
        );
        assert_eq!(asked.body["model"], "scripted");
        assert_eq!(
            asked.body["tools"][0]["function"]["name"], "bash",
            "{}",
            asked.body
        );
    }
    assert!(
        asked[1].last().contains("tests: Those of"),
        "the first command ran: {}",
        asked[1].last()
    );
    let fails = fixture.task.fails().len();
    assert!(
        asked[2].last().contains(&format!("{fails} failed")),
        "the bug is seen in the session: {}",
        asked[2].last()
    );
    assert!(
        asked[4].last().contains(" passed") && !asked[4].last().contains(" failed"),
        "{}",
        asked[4].last()
    );
}

#[test]
fn job_fixes_a_bug_of_parse() {
    let fixture = Fixture::new("parse", []);
    fixture.model.then(script(&fixture.task));
    let server = fixture.server();
    let outcome = fixture.solve(&server, json!({"test_command": TEST_COMMAND}));
    check_output(&fixture, &outcome["output"]);
    check_conversation(&fixture);

    let key = outcome["output"]["trajectory_artifact_key"]
        .as_str()
        .unwrap();
    assert!(
        outcome["artifacts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|artifact| artifact["key"] == key),
        "{outcome}"
    );
    let trajectory = artifact(&server, key).to_string();
    for told in [
        "Mend the bug",
        "ls && git log",
        "git apply - <<'END_OF_PATCH'",
        SUBMIT,
        "failed",
        " passed",
        SUMMARY,
    ] {
        let told = serde_json::to_string(told).unwrap();
        assert!(
            trajectory.contains(told.trim_matches('"')),
            "the trajectory lacks {told}: {trajectory}"
        );
    }
    // The caller that owns the notes for the next run can read them; they say how the run ended.
    let notes = fixture.home.run(KEY, &["memory", "list", "--json"]);
    assert!(
        notes.code == 0 && notes.stdout.contains("solve"),
        "{} {}",
        notes.stdout,
        notes.stderr
    );
    assert_eq!(
        fixture.sessions(),
        [] as [std::path::PathBuf; 0],
        "the session ends with the run"
    );
}

#[test]
fn shell_fixes_a_bug_of_sqlparse() {
    let fixture = Fixture::new("sqlparse", []);
    fixture.model.then(script(&fixture.task));
    let input = fixture
        .input(json!({"test_command": TEST_COMMAND}))
        .to_string();
    let mut command = fixture
        .home
        .command(KEY, &["run", "swe.solve", "--input", &input, "--json"]);
    let run = crate::vault::feed(command.env("HELMDECK_VAULT_KEY", VAULT_KEY), "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
    check_output(&fixture, &outcome["output"]);
    check_conversation(&fixture);
    assert_eq!(fixture.sessions(), [] as [std::path::PathBuf; 0]);
}
