//! A real, small language model, which cannot program: whatever it says, the run ends within its limits and is honest about it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{Desk, artifact};

/// An endpoint: that of `swe/small_model.sh`, or the one that `HELMDECK_TEST_LLM_URL` names.
struct SmallModel {
    url: String,
    process: Option<Child>,
}

impl SmallModel {
    #[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
    fn start() -> Self {
        if let Ok(url) = std::env::var("HELMDECK_TEST_LLM_URL") {
            return Self { url, process: None };
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/swe/small_model.sh");
        let mut process = Command::new(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("ready ").unwrap_or_else(|| panic!("the model did not start: {line:?}"));
        Self { url: url.to_owned(), process: Some(process) }
    }
}

impl Drop for SmallModel {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn swe_with_a_real_small_model() {
    let (model, desk) = (SmallModel::start(), Desk::new("parse", []));
    let server = desk.server_with(&[("HELMDECK_LLM__ENDPOINT", &model.url), ("HELMDECK_LLM__MODEL", "small")]);
    let limits =
        json!({"max_steps": 2, "max_seconds": 100, "command_seconds": 20, "test_command": super::TEST_COMMAND});
    let outcome = desk.solve(&server, limits);
    let output = &outcome["output"];
    let steps = output["steps_executed"].as_u64().unwrap();
    assert!(steps <= 2, "{output}");
    // True only if it is true.
    if output["success"] == true {
        desk.task.assert_mended_by(output["patch"].as_str().unwrap());
    } else {
        assert!(!output["summary"].as_str().unwrap().is_empty(), "{output}");
    }
    // On a busy machine its first thought may take all of the time.
    let answered = output["usage"]["completion_tokens"].as_u64().unwrap() > 0;
    assert!(answered || output["ended"] == "time_limit", "the model did answer: {output}");
    let trajectory = artifact(&server, output["trajectory_artifact_key"].as_str().unwrap());
    assert!(trajectory.to_string().contains("Mend the bug"), "{trajectory}");
    assert_eq!(desk.sessions(), [] as [std::path::PathBuf; 0]);
    assert_eq!(desk.model.asked().len(), 0);
    println!("{output:#}");
}
