//! mini-swe-agent 2.4.6 beside `swe.solve`: the same commands on the same bugs give the same
//! change, and a trajectory that is exported in its format is one that its own programs read.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Fixture, artifact};
use crate::support::model::{SUBMIT, bash};
use crate::support::swe::{Programs, Task};

/// What both are asked to do.
const TASK: &str = "Mend the bug that the failing tests show";

/// Runs these commands on a task with mini-swe-agent, through its deterministic model.
///
/// Returns its trajectory.
fn mini(task: &Task, folder: &Path, commands: &[String]) -> Value {
    let step = |command: &String| {
        let extra = json!({"cost": 0.0, "actions": [{"command": command}]});
        json!({"role": "assistant", "content": "Next.", "extra": extra})
    };
    let outputs: Vec<Value> = commands.iter().map(step).collect();
    let model = json!({"model": {"model_class": "deterministic", "cost_per_call": 0.0, "outputs": outputs}});
    let (config, trajectory) = (folder.join("scripted.yaml"), folder.join("out.traj.json"));
    // JSON is YAML too.
    std::fs::write(&config, model.to_string()).unwrap();
    let mut command = Command::new(&Programs::installed().mini);
    command.args(["-c", "mini.yaml", "-c"]).arg(&config).args([
        "-m",
        "scripted",
        "-y",
        "--exit-immediately",
        "-t",
        TASK,
    ]);
    command
        .arg("-o")
        .arg(&trajectory)
        .current_dir(task.clone_into(folder))
        .stdin(Stdio::null())
        .env_clear();
    command
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", folder)
        .env("MSWEA_GLOBAL_CONFIG_DIR", folder);
    command
        .env("MSWEA_CONFIGURED", "1")
        .env("MSWEA_SILENT_STARTUP", "1")
        .env("MSWEA_COST_TRACKING", "ignore_errors");
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&std::fs::read(trajectory).unwrap()).unwrap()
}

/// Says what a patch changes: its lines without the names of blobs, whose length is a matter of
/// taste.
pub(super) fn changes(patch: &str) -> String {
    patch
        .lines()
        .filter(|line| !line.starts_with("index "))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the names of an object's members.
fn names(object: &Value) -> BTreeSet<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Returns the roles of the messages.
fn roles(trajectory: &Value) -> Vec<&str> {
    let messages = trajectory["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect()
}

/// Lets mini-swe-agent's own inspector read a trajectory; returns how many steps it shows, and the
/// commands and outputs that its tools take from it.
fn inspected(trajectory: &Value, folder: &Path) -> Value {
    let file = folder.join("exported.traj.json");
    std::fs::write(&file, trajectory.to_string()).unwrap();
    let program = "import json, sys, pathlib\n\
        from minisweagent.run.utilities.inspector import TrajectoryInspector\n\
        inspector = TrajectoryInspector([pathlib.Path(sys.argv[1])])\n\
        extras = [message.get('extra', {}) for message in inspector.messages]\n\
        print(json.dumps({'steps': inspector.n_steps,\n\
            'commands': [action['command'] for extra in extras for action in extra.get('actions', [])],\n\
            'statuses': [extra['returncode'] for extra in extras if 'returncode' in extra]}))";
    let mut command = Command::new(Programs::installed().mini.with_file_name("python"));
    command
        .args(["-c", program])
        .arg(&file)
        .stdin(Stdio::null())
        .env_clear()
        .env("HOME", folder);
    command
        .env("MSWEA_SILENT_STARTUP", "1")
        .env("MSWEA_GLOBAL_CONFIG_DIR", folder);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn same_work_on(name: &'static str) {
    let (fixture, folder) = (Fixture::new(name, []), tempfile::tempdir().unwrap());
    let commands = [
        "git log --oneline | cat; ls nothing-here".to_owned(),
        fixture.task.mend(),
    ];
    let theirs = mini(
        &fixture.task,
        folder.path(),
        &[commands.as_slice(), &[format!("{SUBMIT} && git diff")]].concat(),
    );
    assert_eq!(theirs["info"]["exit_status"], "Submitted", "{theirs}");
    let submission = theirs["info"]["submission"].as_str().unwrap();
    fixture.task.assert_mended_by(submission);

    fixture.model.then(
        commands
            .iter()
            .map(|command| bash(command.clone()))
            .chain([bash(SUBMIT)]),
    );
    let server = fixture.server();
    let outcome = fixture.solve(
        &server,
        json!({"task": TASK, "trajectory_format": "mini-swe-agent-1.1"}),
    );
    let output = &outcome["output"];
    assert_eq!(output["success"], true, "{output}");
    assert_eq!(
        changes(output["patch"].as_str().unwrap()),
        changes(submission)
    );

    let ours = artifact(&server, output["trajectory_artifact_key"].as_str().unwrap());
    assert_eq!(ours["trajectory_format"], theirs["trajectory_format"]);
    assert!(
        names(&ours).is_superset(&names(&theirs)),
        "{:?} lacks some of {:?}",
        names(&ours),
        names(&theirs)
    );
    let (info, their_info) = (&ours["info"], &theirs["info"]);
    assert!(
        names(info).is_superset(&names(their_info)),
        "{:?} lacks some of {:?}",
        names(info),
        names(their_info)
    );
    assert!(
        names(&info["model_stats"]).is_superset(&names(&their_info["model_stats"])),
        "{info}"
    );
    assert_eq!(
        info["model_stats"]["api_calls"],
        their_info["model_stats"]["api_calls"]
    );
    assert_eq!(
        (
            &info["exit_status"],
            changes(info["submission"].as_str().unwrap())
        ),
        (&json!("Submitted"), changes(submission))
    );
    // Models with tools are answered as `tool`, others as `user`.
    let ours_as_theirs: Vec<_> = roles(&ours)
        .into_iter()
        .map(|role| if role == "tool" { "user" } else { role })
        .collect();
    assert_eq!(ours_as_theirs, roles(&theirs));
    let (read, their_read) = (
        inspected(&ours, folder.path()),
        inspected(&theirs, folder.path()),
    );
    assert_eq!(
        (&read["steps"], &read["statuses"]),
        (&their_read["steps"], &their_read["statuses"])
    );
    assert_eq!(
        read["commands"].as_array().unwrap()[..2],
        their_read["commands"].as_array().unwrap()[..2]
    );
}

#[test]
fn mini_swe_agent_agrees_on_parse() {
    same_work_on("parse");
}

#[test]
fn mini_swe_agent_agrees_on_sqlparse() {
    same_work_on("sqlparse");
}
