//! Errors and warnings.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::text::one_line;

/// Kind of a fault in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum StateFault {
    /// Something that binds a worker to a plan exists and cannot be trusted.
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
    pub fn code(self) -> &'static str {
        self.into()
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
    /// Kind of the fault.
    pub fault: StateFault,
    /// Where.
    #[serde(serialize_with = "crate::text::lossy")]
    pub path: PathBuf,
    /// The cause.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

impl StateError {
    pub(crate) fn corrupt(
        path: &Path,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let fault = StateFault::CorruptState;
        Self {
            fault,
            path: path.to_owned(),
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn unsafe_name(
        path: &Path,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            fault: StateFault::UnsafeName,
            ..Self::corrupt(path, cause, remedy)
        }
    }

    pub(crate) fn task_name_required(
        path: &Path,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            fault: StateFault::TaskNameRequired,
            ..Self::corrupt(path, cause, remedy)
        }
    }

    /// Makes the error for a working directory that no longer exists.
    pub(crate) fn nowhere() -> Self {
        let (cause, remedy) = (
            "the working folder does not exist",
            "go to one that does, or name one by its whole path",
        );
        Self {
            fault: StateFault::Usage,
            ..Self::corrupt(Path::new("."), cause, remedy)
        }
    }

    pub(crate) fn usage(name: &str) -> Self {
        let cause = format!("{name:?} is no file of a plan");
        Self {
            fault: StateFault::Usage,
            ..Self::corrupt(
                Path::new("state"),
                cause,
                "ask for plan, progress or tracker",
            )
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&format!(
            "{}: {}; {}",
            self.path.display(),
            self.cause,
            self.remedy
        )))
    }
}

impl std::error::Error for StateError {}

/// Warning about memory that exists and is not shown, most often because it cannot be read.
///
/// The call went on without it. Shown on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Which warning it is, for programs: `memory-unreadable`, `memory-hidden`, `nothing-fits`,
    /// `unknown-phase`, `cwd-below-project`, `plan-misplaced`, `no-such-task`, or the code of an
    /// error that this call goes on in spite of.
    pub code: &'static str,
    /// The problem, and its place.
    pub message: String,
}

/// Declares a constructor for each code.
macro_rules! warnings {
    ($($(#[$doc:meta])* $name:ident => $code:literal),* $(,)?) => {
        impl Warning {
            $($(#[$doc])*
            pub(crate) fn $name(message: impl AsRef<str>) -> Self {
                Self { code: $code, message: one_line(message.as_ref()) }
            })*
        }
    };
}

warnings! {
    /// Warns that something exists and cannot be read.
    unreadable => "memory-unreadable",
    /// Warns that something is hidden by a newer one of the same name.
    hidden => "memory-hidden",
    /// Warns that there are notes, and the budget is too small for any.
    nothing_fits => "nothing-fits",
    /// Warns that the named folder is in a project, whose marker it does not see.
    below => "cwd-below-project",
    /// Warns of an unknown spelling of a phase.
    unknown_phase => "unknown-phase",
    /// Warns that no task or plan of the project has the given name.
    no_such_task => "no-such-task",
    /// Warns of a plan in the wrong place.
    misplaced => "plan-misplaced",
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning[{}]: {}", self.code, self.message)
    }
}
