//! A server that is killed, whatever a run is doing then: nothing of it goes on, and the next start
//! cleans up and says what happened.

use super::cancel::{Held, Phase};
use super::{ask, job, wait_for};
use crate::support::model::submit as done;

/// Kills the server in this phase, starts it again, and looks for what is left of the run.
fn killed_at(phase: Phase) {
    let mut held = Held::at(phase);
    held.server.signal("-KILL");
    held.server.ended();
    held.wait_until_gone();

    let server = held.fixture.server();
    wait_for("the session to be swept", || {
        held.fixture.sessions().is_empty()
    });
    let found = job(&server, &held.id, None);
    assert_eq!(found["state"], "failed", "{phase:?}: {found}");
    let error = &found["error"];
    assert!(
        error["message"]
            .as_str()
            .or(error["detail"].as_str())
            .unwrap()
            .contains("stopped"),
        "{found}"
    );
    assert!(
        error.to_string().contains("later"),
        "it says that it can be run again: {found}"
    );
    let running = ask(&server, "GET /api/v1/jobs?state=running", None, "").1;
    assert!(!running.to_string().contains(&held.id), "{running}");
    held.assert_nothing_half_pushed(phase);

    // The next run is not in the way of what the last one left.
    for word in ["stall-fetch", "stall-push", "stall-pushed"] {
        held.fixture.git.try_stop(word);
    }
    held.fixture.model.forget();
    held.fixture.model.then([done()]);
    let outcome = held.fixture.solve(&server, serde_json::json!({}));
    assert_eq!(
        outcome["output"]["success"], false,
        "nothing was changed: {outcome}"
    );
}

#[test]
fn server_killed_while_cloning_leaves_nothing() {
    killed_at(Phase::Clone);
}

#[test]
fn server_killed_during_model_call_leaves_nothing() {
    killed_at(Phase::Model);
}

#[test]
fn server_killed_during_command_leaves_nothing() {
    killed_at(Phase::Command);
}

#[test]
fn server_killed_during_tests_leaves_nothing() {
    killed_at(Phase::Tests);
}

#[test]
fn server_killed_during_push_leaves_no_half_branch() {
    killed_at(Phase::Push);
    killed_at(Phase::Pushed);
}
