//! The command line of `helmdeck job`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::duration::parse_duration;
use helmdeck_engine::{JobId, JobState};

/// `helmdeck job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List the jobs of everybody, the newest first
    List(JobListArgs),
    /// Show a job
    Show {
        /// Its id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
    },
    /// Wait until a job has ended, and show it; exit 1 unless it succeeded
    Wait {
        /// Its id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
        /// Give up after this long
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
    },
    /// Print what the job's call answered, as `helmdeck run` would have
    Result {
        /// Its id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
    },
    /// Cancel a job, whichever server runs it; one that has ended stays as it is
    Cancel {
        /// Its id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
    },
}

/// `helmdeck job list`.
#[derive(Debug, Args)]
pub(crate) struct JobListArgs {
    /// Only those in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<StateArg>,
    /// At most so many, up to 500
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
    /// Only those older than this one
    #[arg(long, value_name = "ID", value_parser = JobId::parse)]
    pub(crate) after: Option<JobId>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateArg {
    /// It waits for its turn
    Queued,
    /// Its call runs
    Running,
    /// Its call has answered
    Succeeded,
    /// Its call failed, or its server ended
    Failed,
    /// Somebody cancelled it
    Cancelled,
}

impl From<StateArg> for JobState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Queued => Self::Queued,
            StateArg::Running => Self::Running,
            StateArg::Succeeded => Self::Succeeded,
            StateArg::Failed => Self::Failed,
            StateArg::Cancelled => Self::Cancelled,
        }
    }
}
