//! The result of a run.

use std::fmt;
use std::io;
use std::process::ExitStatus;

use crate::capture::Captured;

/// A program that ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status of the program itself, not of the programs that it started.
    pub status: ExitStatus,
    /// The captured standard output.
    pub stdout: Captured,
    /// The captured standard error.
    pub stderr: Captured,
}

/// A run without an exit status. Its process group has been killed.
#[derive(Debug)]
pub enum Failure {
    /// The program cannot be started.
    Start(io::Error),
    /// The system cannot say how the program ended, or its output cannot be read.
    Lost(io::Error),
    /// The program printed more than this many bytes.
    TooLarge(usize),
    /// The program did not end in time. The fields are its stdout and stderr up to then.
    TimedOut(Captured, Captured),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the program cannot be started: {error}"),
            Self::Lost(error) => write!(f, "the program is lost: {error}"),
            Self::TooLarge(limit) => write!(f, "the program printed more than {limit} bytes"),
            Self::TimedOut(..) => f.write_str("the program did not end in time"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) | Self::Lost(error) => Some(error),
            Self::TooLarge(_) | Self::TimedOut(..) => None,
        }
    }
}
