//! A real, small language model, which cannot program: whatever it says, the run ends within its
//! limits and is honest about it.

use serde_json::json;

use super::{Fixture, artifact};
use crate::support::small_model::SmallModel;

#[test]
fn swe_with_a_real_small_model() {
    let (model, fixture) = (SmallModel::start(), Fixture::new("parse", []));
    let server = fixture.server_with(&[
        ("HELMDECK_LLM__ENDPOINT", &model.url),
        ("HELMDECK_LLM__MODEL", "small"),
    ]);
    let limits = json!({"max_steps": 1, "max_seconds": 30, "command_seconds": 5, "test_command": super::TEST_COMMAND});
    let outcome = fixture.solve(&server, limits);
    let output = &outcome["output"];
    let steps = output["steps_executed"].as_u64().unwrap();
    assert!(steps <= 1, "{output}");
    // True only if it is true.
    if output["success"] == true {
        fixture
            .task
            .assert_mended_by(output["patch"].as_str().unwrap());
    } else {
        assert!(!output["summary"].as_str().unwrap().is_empty(), "{output}");
    }
    // On a busy machine its first thought may take all of the time.
    let answered = output["usage"]["completion_tokens"].as_u64().unwrap() > 0;
    assert!(
        answered || output["ended"] == "time_limit",
        "the model did answer: {output}"
    );
    let trajectory = artifact(&server, output["trajectory_artifact_key"].as_str().unwrap());
    assert!(
        trajectory.to_string().contains("Mend the bug"),
        "{trajectory}"
    );
    assert_eq!(fixture.sessions(), [] as [std::path::PathBuf; 0]);
    assert_eq!(fixture.model.asked().len(), 0);
    println!("{output:#}");
}
