//! Interface for the parts of the engine that start calls.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use helmdeck_core::{Call, Manifest, Outcome, Result};
use helmdeck_memory::DeletePosition;

/// Runs calls through their pack's pipeline.
///
/// The engine implements this for jobs, and for packs that call packs.
pub(crate) trait CallRunner: Send + Sync {
    fn run_call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Outcome>>;
}

/// A pack that jobs can run.
pub(crate) struct RunnablePack {
    /// Its manifest.
    pub(crate) manifest: Arc<Manifest>,
    /// Digest of what a run depends on besides its input.
    pub(crate) contract: [u8; 32],
}

/// Runs the calls of jobs, and knows which there can be.
pub(crate) trait JobRunner: CallRunner {
    /// Returns a number that grows when the packs change.
    fn revision(&self) -> u64;

    /// Returns every version of every pack.
    fn packs(self: Arc<Self>) -> Vec<RunnablePack>;

    /// Returns the position after the deletes of this process; `None` without one.
    fn position(&self) -> Option<DeletePosition>;

    /// Applies the deletes by other processes up to a position. Returns whether some are missing.
    fn is_behind(self: Arc<Self>, position: DeletePosition) -> BoxFuture<'static, bool>;
}
