//! mini-swe-agent beside `swe.solve`, on the same bugs.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::model::SUBMIT;
use crate::support::swe::{Programs, Task};

/// Lets mini-swe-agent run these commands on a task, as its deterministic model says them. Returns its trajectory.
fn mini(task: &Task, folder: &Path, commands: &[String]) -> Value {
    let step = |command: &String| json!({"role": "assistant", "content": "Next.", "extra": {"cost": 0.0, "actions": [{"command": command}]}});
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
        "Mend it",
    ]);
    command.arg("-o").arg(&trajectory).current_dir(task.clone_into(folder)).stdin(Stdio::null()).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", folder).env("MSWEA_GLOBAL_CONFIG_DIR", folder);
    command.env("MSWEA_CONFIGURED", "1").env("MSWEA_SILENT_STARTUP", "1").env("MSWEA_COST_TRACKING", "ignore_errors");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(trajectory).unwrap()).unwrap()
}

#[test]
fn mini_swe_agent_mends_the_same_bugs_with_the_same_commands() {
    for name in ["parse", "sqlparse"] {
        let (task, folder) = (Programs::installed().task(name), tempfile::tempdir().unwrap());
        let trajectory = mini(&task, folder.path(), &[task.mend(), format!("{SUBMIT} && git diff")]);
        assert_eq!(trajectory["info"]["exit_status"], "Submitted", "{trajectory}");
        task.assert_mended_by(trajectory["info"]["submission"].as_str().unwrap());
    }
}
