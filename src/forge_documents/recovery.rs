//! The decision table of recovery, its inputs, its report, and the record of a pause.

pub mod decide;
pub mod paused;
pub mod report;
pub mod unknown;
