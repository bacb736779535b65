//! Tests of a cancelled run, in every phase: nothing of it goes on, and nothing is left of it.

use serde_json::{Value, json};

use super::{Fixture, ask, endless, job, processes_with, submit, wait_for};
use crate::support::model::{Reply, bash, submit as done};
use crate::support::program::Server;
use crate::vault::processes;

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for the git server's answer to the clone.
    Clone,
    /// It waits for the model.
    Model,
    /// A command of the model runs.
    Command,
    /// The tests run.
    Tests,
    /// The git server has all of the push and has not carried it out.
    Push,
    /// The git server has carried out the push and has not said so.
    Pushed,
}

/// A run that is held where it is.
pub(super) struct Held {
    pub(super) fixture: Fixture,
    pub(super) server: Server,
    /// The job.
    pub(super) id: String,
    /// The processes that the server started, except its reaper, which ends with the server.
    pub(super) below: Vec<u32>,
    /// The command that runs, in the phases that have one.
    pub(super) command: String,
}

impl Held {
    /// Starts a run and waits until it is there.
    pub(super) fn at(phase: Phase) -> Self {
        let fixture = Fixture::new("parse", []);
        let command = endless();
        let mended = [bash(fixture.task.mend()), done()];
        let input = match phase {
            Phase::Clone => {
                fixture.git.tell("stall-fetch");
                json!({})
            }
            Phase::Model => {
                fixture.model.then([Reply::Hang]);
                json!({})
            }
            Phase::Command => {
                fixture.model.then([bash(command.clone())]);
                json!({})
            }
            Phase::Tests => {
                fixture.model.then(mended);
                json!({"test_command": command, "mode": "branch"})
            }
            Phase::Push | Phase::Pushed => {
                fixture.model.then(mended);
                fixture.git.tell(if phase == Phase::Push {
                    "stall-push"
                } else {
                    "stall-pushed"
                });
                json!({"mode": "branch"})
            }
        };
        let server = fixture.server();
        let id = submit(&server, &fixture.input(input), None);
        match phase {
            Phase::Clone | Phase::Push | Phase::Pushed => fixture.git.wait_until_stalled(),
            Phase::Model => fixture.model.wait_until_hanging(),
            Phase::Command | Phase::Tests => {
                wait_for("the command to run", || {
                    !processes_with(&command).is_empty()
                });
            }
        }
        assert_eq!(job(&server, &id, None)["state"], "running");
        let below = processes(server.pid());
        let below = below.into_iter().filter(|(id, line, _)| {
            *id != server.pid() && !String::from_utf8_lossy(line).contains("__reaper")
        });
        let below = below.map(|(id, ..)| id).collect();
        Self {
            fixture,
            server,
            id,
            below,
            command,
        }
    }

    /// Waits until no process of the run is left.
    #[track_caller]
    pub(super) fn wait_until_gone(&self) {
        wait_for("the processes of the run to end", || {
            let left = self
                .below
                .iter()
                .any(|id| std::path::Path::new(&format!("/proc/{id}")).exists());
            !left && processes_with(&self.command).is_empty()
        });
    }

    /// Checks that what was pushed is nothing, or a whole change.
    #[track_caller]
    pub(super) fn assert_nothing_half_pushed(&self, phase: Phase) {
        let pushed = self.fixture.pushed();
        assert_eq!(
            pushed.len(),
            usize::from(phase == Phase::Pushed),
            "{phase:?}: {pushed:?}"
        );
        for (branch, _) in pushed {
            let bare = self.fixture.git.bare(&self.fixture.repository());
            let difference = crate::support::git::git(&bare, &["diff", &format!("main..{branch}")]);
            self.fixture.task.assert_mended_by(&(difference + "\n"));
        }
    }
}

/// Cancels a run in this phase, and looks for what is left of it.
fn cancelled_at(phase: Phase) {
    let held = Held::at(phase);
    let (code, answer) = ask(
        &held.server,
        &format!("DELETE /api/v1/jobs/{}", held.id),
        None,
        "",
    );
    assert!([200, 202].contains(&code), "{phase:?}: {code} {answer}");
    wait_for("the job to be cancelled", || {
        job(&held.server, &held.id, None)["state"] == "cancelled"
    });
    held.wait_until_gone();
    wait_for("the session to be gone", || {
        held.fixture.sessions().is_empty()
    });
    held.assert_nothing_half_pushed(phase);
    let (code, answer) = ask(
        &held.server,
        &format!("GET /api/v1/jobs/{}/result", held.id),
        None,
        "",
    );
    assert_eq!(
        (code, &answer["code"]),
        (499, &json!("cancelled")),
        "{answer}"
    );
    // Cancelling once more changes nothing, and the server goes on.
    let (code, again) = ask(
        &held.server,
        &format!("DELETE /api/v1/jobs/{}", held.id),
        None,
        "",
    );
    assert!(
        code < 300 && again["state"] == "cancelled",
        "{code} {again}"
    );
    let running: Value = ask(&held.server, "GET /api/v1/jobs?state=running", None, "").1;
    assert!(!running.to_string().contains(&held.id), "{running}");
}

#[test]
fn run_cancelled_while_cloning_leaves_nothing() {
    cancelled_at(Phase::Clone);
}

#[test]
fn run_cancelled_during_model_call_leaves_nothing() {
    cancelled_at(Phase::Model);
}

#[test]
fn run_cancelled_during_command_leaves_nothing() {
    cancelled_at(Phase::Command);
}

#[test]
fn run_cancelled_during_tests_leaves_nothing() {
    cancelled_at(Phase::Tests);
}

#[test]
fn run_cancelled_during_push_leaves_no_half_branch() {
    cancelled_at(Phase::Push);
    cancelled_at(Phase::Pushed);
}
