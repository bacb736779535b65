#![doc = include_str!("README.md")]

#[cfg(feature = "tokio")]
mod asynchronous;
pub mod blocking;
mod capture;
mod descriptors;
mod environment;
mod failure;
mod group;
#[cfg(feature = "tokio")]
mod reaper;

#[cfg(feature = "tokio")]
pub use asynchronous::{Group, Pipes, Spawner, feed, run};
pub use capture::{Capture, Captured};
pub use descriptors::close_descriptors_on_exec;
pub use environment::{command, find};
pub use failure::{Failure, Finished};
pub use group::{GroupId, Running};
#[cfg(feature = "tokio")]
pub use reaper::{REAPER, reap, reap_when_killed};
pub use rustix::process::Signal;
