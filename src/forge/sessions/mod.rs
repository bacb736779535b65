//! Work sessions: start, log, end, and recover when one did not end.
//!
//! Each step of a start and of an end is recorded when it is done, and is idempotent. After a kill
//! at any point, the same command resumes and reaches the same result.

mod active;
mod advice;
mod announce;
mod archive;
mod begin;
mod checks;
mod claims;
mod commit;
#[cfg(test)]
mod crash_tests;
mod during;
mod end;
mod folder;
mod record;
mod start;
mod wanted;

pub use active::Sessions;
pub use advice::{Advice, Since, advise};
pub use during::{Log, Logged};
pub use end::{End, Finished};
pub(crate) use folder::session_of;
pub use helmdeck_forge_documents::sessions::id::SessionId;
use helmdeck_forge_documents::sessions::select;
pub(crate) use helmdeck_forge_documents::sessions::select::issue_order;
pub use helmdeck_forge_documents::sessions::select::{
    Choice, Inputs, Named, Rule, Unfinished, select_next_task,
};
pub use record::{ActiveSessions, CompletedStep, Ending, LEASE, Session, State};
pub use start::{Probed, Start, Started};

#[cfg(test)]
mod tests;
