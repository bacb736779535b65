//! Errors and warnings.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::text::one_line;

/// What kind of thing is wrong with the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StateFault {
    /// Something that binds a worker to a plan is there and cannot be trusted.
    CorruptState,
    /// A name is not one part of a path.
    UnsafeName,
    /// There are several tasks, and none was named.
    TaskNameRequired,
    /// The requested file is none of the files of a plan, or there is no folder to work in.
    Usage,
}

impl StateFault {
    /// Returns its name, for programs: `corrupt-state`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::CorruptState => "corrupt-state",
            Self::UnsafeName => "unsafe-name",
            Self::TaskNameRequired => "task-name-required",
            Self::Usage => "usage",
        }
    }

    /// Returns the exit code of a command that ends so: 4 asks to name the task, all else is 2.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::TaskNameRequired => 4,
            _ => 2,
        }
    }
}

/// The state of a plan is unknown. Another plan is never put in its place.
///
/// It is shown on one line: `<path>: <cause>; <remedy>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateError {
    /// What kind of thing is wrong.
    pub fault: StateFault,
    /// Where.
    #[serde(serialize_with = "crate::text::lossy")]
    pub path: PathBuf,
    /// What is wrong there.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

impl StateError {
    pub(crate) fn corrupt(path: &Path, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        let fault = StateFault::CorruptState;
        Self { fault, path: path.to_owned(), cause: cause.into(), remedy: remedy.into() }
    }

    pub(crate) fn unsafe_name(path: &Path, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { fault: StateFault::UnsafeName, ..Self::corrupt(path, cause, remedy) }
    }

    pub(crate) fn task_name_required(path: &Path, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { fault: StateFault::TaskNameRequired, ..Self::corrupt(path, cause, remedy) }
    }

    /// Makes the error for a working directory that no longer exists.
    pub(crate) fn nowhere() -> Self {
        let (cause, remedy) =
            ("the working folder does not exist", "go to one that does, or name one by its whole path");
        Self { fault: StateFault::Usage, ..Self::corrupt(Path::new("."), cause, remedy) }
    }

    pub(crate) fn usage(name: &str) -> Self {
        let cause = format!("{name:?} is no file of a plan");
        Self {
            fault: StateFault::Usage,
            ..Self::corrupt(Path::new("state"), cause, "ask for plan, progress or tracker")
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&format!("{}: {}; {}", self.path.display(), self.cause, self.remedy)))
    }
}

impl std::error::Error for StateError {}

/// Memory that is there and is not shown, most often since it cannot be read: the call went on without
/// it. Shown on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Which warning it is, for programs: `memory-unreadable`, `memory-hidden`, `nothing-fits`,
    /// `unknown-phase`, `cwd-below-project`, `plan-misplaced`, `no-such-task`, or the code of an error
    /// that this call goes on in spite of.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
}

impl Warning {
    pub(crate) fn unreadable(message: impl AsRef<str>) -> Self {
        Self { code: "memory-unreadable", message: one_line(message.as_ref()) }
    }

    /// What is not shown because something newer has its name.
    pub(crate) fn hidden(message: impl AsRef<str>) -> Self {
        Self { code: "memory-hidden", message: one_line(message.as_ref()) }
    }

    /// There are notes, and the budget is too small for any.
    pub(crate) fn nothing_fits(message: impl AsRef<str>) -> Self {
        Self { code: "nothing-fits", message: one_line(message.as_ref()) }
    }

    /// The folder that was named lies in a project, whose marker it does not see.
    pub(crate) fn below(message: impl AsRef<str>) -> Self {
        Self { code: "cwd-below-project", message: one_line(message.as_ref()) }
    }

    /// A phase is not written as it is called.
    pub(crate) fn unknown_phase(message: impl AsRef<str>) -> Self {
        Self { code: "unknown-phase", message: one_line(message.as_ref()) }
    }

    /// The project has tasks, and none is called as the caller says, nor is there such a plan.
    pub(crate) fn no_such_task(message: impl AsRef<str>) -> Self {
        Self { code: "no-such-task", message: one_line(message.as_ref()) }
    }

    /// A plan lies somewhere else than it should.
    pub(crate) fn misplaced(message: impl AsRef<str>) -> Self {
        Self { code: "plan-misplaced", message: one_line(message.as_ref()) }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning[{}]: {}", self.code, self.message)
    }
}
