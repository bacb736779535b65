//! A running program in a process group of its own, with everything it started.

use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// A program that was started as the leader of a process group. Dropping it kills the group, also if the leader has ended before.
pub(crate) struct Group {
    pub(crate) child: Child,
    /// The leader's id, which is the group's.
    id: Option<Pid>,
}

impl Group {
    /// Takes a program over that was started with `process_group(0)`.
    pub(crate) fn new(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { child, id }
    }

    /// Sends a signal to all of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // Fails only if nobody is left, which is what is wanted.
            let _ = kill_process_group(id, signal);
        }
    }

    /// Kills all of the group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the leader to end.
    ///
    /// # Errors
    /// If the system has lost it.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
