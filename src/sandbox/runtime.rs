//! Trait of a session runtime. The only implementation is [`super::local`], for this machine.

use std::path::PathBuf;

use async_trait::async_trait;
use helmdeck_core::session::{Exec, Executed};
use helmdeck_core::{Result, Timestamp};

use super::place::Record;

/// Request for a new session.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) pack: String,
    pub(crate) expires_at: Timestamp,
    /// Memory limit of a command in it, in bytes; `None` = the operator's.
    pub(crate) memory: Option<u64>,
}

/// An existing session.
#[derive(Debug, Clone)]
pub(crate) struct DetectedRuntime {
    pub(crate) record: Record,
    pub(crate) folder: PathBuf,
    pub(crate) supplies: PathBuf,
    pub(crate) folder_inside: String,
    pub(crate) supplies_inside: String,
}

/// Why a session ended. Its name is used in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Reason {
    /// The call that made it has ended.
    CallOver,
    /// Its owner or an operator ended it.
    Asked,
    /// Its time was up.
    Expired,
    /// The process ends.
    Shutdown,
    /// The process that made it ended without ending it.
    Abandoned,
}

/// Runtime of sessions. [`crate::Sessions`] checks the access.
#[async_trait]
pub(crate) trait SessionRuntime: Send + Sync {
    /// Makes a session.
    ///
    /// # Errors
    /// `session_unavailable` if none can be made here; `resource_exhausted` beyond the caller's
    /// share, `overloaded` beyond all.
    async fn create(&self, wish: Wish) -> Result<DetectedRuntime>;

    /// Returns a session; `None` if it has ended or never existed.
    async fn get(&self, id: &str) -> Result<Option<DetectedRuntime>>;

    /// Runs a command in a session, after earlier commands of this process.
    ///
    /// # Errors
    /// As [`helmdeck_core::session::Session::exec`].
    async fn exec(&self, id: &str, command: Exec) -> Result<Executed>;

    /// Extends the life of a session to at least this time, and lets it outlive the call that made
    /// it.
    ///
    /// # Errors
    /// `session_unavailable` if it has ended.
    async fn extend(&self, id: &str, until: Timestamp) -> Result<()>;

    /// Ends a session with everything that runs in it, and removes its files. Returns whether it
    /// existed.
    ///
    /// # Errors
    /// `internal` if something of it cannot be removed.
    async fn terminate(&self, id: &str, why: Reason) -> Result<bool>;

    /// Ends a session in a background task, which [`SessionRuntime::close`] waits for.
    fn terminate_later(&self, id: &str, why: Reason);

    /// Returns all sessions, in the order in which they were made.
    ///
    /// # Errors
    /// `internal` if they cannot be read.
    async fn list(&self) -> Result<Vec<Record>>;

    /// Removes sessions that ended processes left.
    async fn sweep(&self);

    /// Runs a command in a sandbox, and describes how commands are isolated.
    ///
    /// # Errors
    /// `session_unavailable` with what is missing and what to do.
    async fn probe(&self) -> Result<String>;

    /// Ends all sessions of this process, and waits until everything of them is removed.
    async fn close(&self);
}
