//! Jobs: calls that continue without their caller.
//!
//! They wait in a bounded, fair queue, report progress, can be cancelled, and are never lost: jobs
//! of a process that has ended become failed, with that reason.
//!
//! If replicas share a queue and the call can be sealed, a job waits there and any replica runs it
//! (`claims`). Otherwise it waits and runs in the process that took it (`queue`).
//!
//! A job's call runs like any other ([`Engine::call`](crate::Engine::call)): with its pipeline, its
//! limits and its audit row.

mod api;
mod book;
mod claims;
mod config;
mod document;
mod error;
mod follow;
mod id;
mod job;
mod keeper;
mod live;
mod metrics;
mod queue;
mod run;
mod schedules;
mod sealed_call;
mod table;

pub use book::JobBook;
pub use config::JobConfig;
pub use error::JobError;
pub use id::JobId;
pub use job::{Job, JobEvent, JobPage, JobProgress, JobQuery, JobSchedule, JobState};
pub(crate) use run::RunPlan;
pub(crate) use table::Jobs;
