//! Process groups: their ids, and the running groups.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The id of a process group, which is the process id of its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(Pid);

impl GroupId {
    /// Returns the id of the group that a process leads.
    #[must_use]
    pub fn of_leader(id: u32) -> Option<Self> {
        i32::try_from(id).ok().and_then(Pid::from_raw).map(Self)
    }

    /// The process id of the leader.
    #[must_use]
    pub const fn leader(self) -> Pid {
        self.0
    }

    /// Sends a signal to the whole group.
    pub fn signal(self, signal: Signal) {
        // Fails only if the group is empty, which is fine.
        let _ = kill_process_group(self.0, signal);
    }

    /// Sends a signal to the leader alone.
    pub fn signal_leader(self, signal: Signal) {
        // Fails only if the leader is gone, which is fine.
        let _ = kill_process(self.0, signal);
    }

    /// Kills the whole group.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }
}

/// The running process groups.
///
/// A process that must stop kills them too, because they do not get the signals of its terminal.
#[derive(Debug, Default)]
pub struct Running(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    stopped: bool,
    all: Vec<GroupId>,
}

impl Running {
    /// Kills all running groups, and every group that is added from now on.
    pub fn stop(&self) {
        let mut groups = self.0.lock();
        groups.stopped = true;
        groups.all.iter().for_each(|group| group.kill());
    }

    /// Returns whether [`Running::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Returns whether no group is running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().all.is_empty()
    }

    /// Adds a group until the returned value is dropped, which must happen before its leader is
    /// reaped.
    pub(crate) fn add(&self, group: GroupId) -> Registered<'_> {
        let mut groups = self.0.lock();
        groups.all.push(group);
        if groups.stopped {
            group.kill();
        }
        Registered {
            running: self,
            group,
        }
    }
}

/// A group in [`Running`].
#[derive(Debug)]
pub(crate) struct Registered<'a> {
    running: &'a Running,
    group: GroupId,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.running
            .0
            .lock()
            .all
            .retain(|group| *group != self.group);
    }
}
