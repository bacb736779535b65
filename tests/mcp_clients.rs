//! Other people's MCP clients in front of helmdeck.

use serde_json::json;

use crate::support::mcp::{EVERYTHING, Programs};

/// A control: what the other tests of this file ask of the clients, they do with somebody else's server.
#[test]
fn the_clients_speak_to_somebody_elses_server() {
    let programs = Programs::installed();
    let server = [programs.node_script(EVERYTHING), vec!["stdio".to_owned()]].concat();
    let plan = json!({"target": {"command": server}, "steps": [
        {"do": "tools"},
        {"do": "call", "name": "echo", "arguments": {"message": "hello"}},
        {"do": "call", "name": "trigger-long-running-operation", "arguments": {"duration": 0.1, "steps": 3}},
    ]});
    for answer in [programs.python(&plan), programs.typescript(&plan)] {
        assert_eq!(answer["protocol"], "2025-11-25");
        let tools = answer["steps"][0]["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{tools:?}");
        assert_eq!(answer["steps"][1]["result"]["content"], json!([{"type": "text", "text": "Echo: hello"}]));
        // This server does not wait for its last notification to be sent before it answers.
        assert_eq!(answer["steps"][2]["progress"][0]["progress"].as_f64(), Some(1.0), "{answer}");
    }
}
