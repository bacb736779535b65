//! Command line of `helmdeck job`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::duration::parse_duration;
use helmdeck_engine::{JobId, JobState};

/// `helmdeck job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List the jobs of all owners, newest first
    List(JobListArgs),
    /// Show a job
    Show {
        /// Job id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
    },
    /// Wait until a job has ended and show it; exit 1 unless it succeeded
    Wait {
        /// Job id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
        /// Stop waiting after this time
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
    },
    /// Print the result of a job's call, as `helmdeck run` would
    Result {
        /// Job id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
    },
    /// Cancel a job on any server; no effect if it has ended
    Cancel {
        /// Job id
        #[arg(value_parser = JobId::parse)]
        id: JobId,
    },
}

/// `helmdeck job list`.
#[derive(Debug, Args)]
pub(crate) struct JobListArgs {
    /// Only jobs in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<StateArg>,
    /// Maximum number of jobs, up to 500
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
    /// Only jobs older than this one
    #[arg(long, value_name = "ID", value_parser = JobId::parse)]
    pub(crate) after: Option<JobId>,
}

/// State of a job, as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateArg {
    /// Waiting to run
    Queued,
    /// Running
    Running,
    /// The call succeeded
    Succeeded,
    /// The call failed, or its server stopped
    Failed,
    /// Cancelled
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
