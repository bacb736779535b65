//! Recovery: how far things are from the last checkpoint, what to do about it, and how to go back without losing anything.

mod carry;
mod decide;
mod journal;
mod pause;
mod report;
mod unknown;

pub use decide::{Action, Case, Class, Decision, Limits, Size, UNKNOWN, decide};
pub use journal::{Acknowledged, Attempts, Journal, Mode, Rollback, Step};
pub use pause::{By, Paused, TOKEN_SECONDS, Token};
pub use report::{Measures, Reason, Report, Verify};
pub use unknown::Unknown;
