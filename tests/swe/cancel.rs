//! A run that is cancelled, whatever it is doing then: nothing of it goes on, and nothing is left of it.

use serde_json::{Value, json};

use super::{Desk, ask, endless, job, processes_with, submit, wait_for};
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
    pub(super) desk: Desk,
    pub(super) server: Server,
    /// The job.
    pub(super) id: String,
    /// The processes that the server started.
    pub(super) below: Vec<u32>,
    /// The command that runs, in the phases that have one.
    pub(super) command: String,
}

impl Held {
    /// Starts a run and waits until it is there.
    pub(super) fn at(phase: Phase) -> Self {
        let desk = Desk::new("parse", []);
        let command = endless();
        let mended = [bash(desk.task.mend()), done()];
        let input = match phase {
            Phase::Clone => {
                desk.git.tell("stall-fetch");
                json!({})
            }
            Phase::Model => {
                desk.model.then([Reply::Hang]);
                json!({})
            }
            Phase::Command => {
                desk.model.then([bash(command.clone())]);
                json!({})
            }
            Phase::Tests => {
                desk.model.then(mended);
                json!({"test_command": command, "mode": "branch"})
            }
            Phase::Push | Phase::Pushed => {
                desk.model.then(mended);
                desk.git.tell(if phase == Phase::Push { "stall-push" } else { "stall-pushed" });
                json!({"mode": "branch"})
            }
        };
        let server = desk.server();
        let id = submit(&server, &desk.input(input), None);
        match phase {
            Phase::Clone | Phase::Push | Phase::Pushed => desk.git.wait_until_stalled(),
            Phase::Model => desk.model.wait_until_hanging(),
            Phase::Command | Phase::Tests => {
                wait_for("the command to run", || !processes_with(&command).is_empty());
            }
        }
        assert_eq!(job(&server, &id, None)["state"], "running");
        let below = processes(server.pid()).into_iter().map(|(id, ..)| id).filter(|id| *id != server.pid()).collect();
        Self { desk, server, id, below, command }
    }

    /// Waits until no process of the run is left.
    #[track_caller]
    pub(super) fn wait_until_gone(&self) {
        wait_for("the processes of the run to end", || {
            let left = self.below.iter().any(|id| std::path::Path::new(&format!("/proc/{id}")).exists());
            !left && processes_with(&self.command).is_empty()
        });
    }

    /// Checks that what was pushed is nothing, or a whole change.
    #[track_caller]
    pub(super) fn assert_nothing_half_pushed(&self, phase: Phase) {
        let pushed = self.desk.pushed();
        assert_eq!(pushed.len(), usize::from(phase == Phase::Pushed), "{phase:?}: {pushed:?}");
        for (branch, _) in pushed {
            let bare = self.desk.git.bare(&self.desk.repository());
            let difference = crate::support::git::git(&bare, &["diff", &format!("main..{branch}")]);
            self.desk.task.assert_mended_by(&(difference + "\n"));
        }
    }
}

/// Cancels a run in this phase, and looks for what is left of it.
fn cancelled_at(phase: Phase) {
    let held = Held::at(phase);
    let (code, answer) = ask(&held.server, &format!("DELETE /api/v1/jobs/{}", held.id), None, "");
    assert!([200, 202].contains(&code), "{phase:?}: {code} {answer}");
    wait_for("the job to be cancelled", || job(&held.server, &held.id, None)["state"] == "cancelled");
    held.wait_until_gone();
    wait_for("the session to be gone", || held.desk.sessions().is_empty());
    held.assert_nothing_half_pushed(phase);
    let (code, answer) = ask(&held.server, &format!("GET /api/v1/jobs/{}/result", held.id), None, "");
    assert_eq!((code, &answer["code"]), (499, &json!("cancelled")), "{answer}");
    // Cancelling once more changes nothing, and the server goes on.
    let (code, again) = ask(&held.server, &format!("DELETE /api/v1/jobs/{}", held.id), None, "");
    assert!(code < 300 && again["state"] == "cancelled", "{code} {again}");
    let running: Value = ask(&held.server, "GET /api/v1/jobs?state=running", None, "").1;
    assert!(!running.to_string().contains(&held.id), "{running}");
}

#[test]
fn a_run_that_is_cancelled_while_it_clones_leaves_nothing() {
    cancelled_at(Phase::Clone);
}

#[test]
fn a_run_that_is_cancelled_while_the_model_thinks_leaves_nothing() {
    cancelled_at(Phase::Model);
}

#[test]
fn a_run_that_is_cancelled_while_a_command_runs_leaves_nothing() {
    cancelled_at(Phase::Command);
}

#[test]
fn a_run_that_is_cancelled_while_the_tests_run_leaves_nothing() {
    cancelled_at(Phase::Tests);
}

#[test]
fn a_run_that_is_cancelled_while_it_pushes_leaves_nothing_or_a_whole_branch() {
    cancelled_at(Phase::Push);
    cancelled_at(Phase::Pushed);
}
