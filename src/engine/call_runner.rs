//! Interface for the parts of the engine that start calls.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use helmdeck_core::{Call, Outcome, Result};

/// Runs calls through their pack's pipeline.
///
/// The engine implements this for jobs, and for packs that call packs.
pub(crate) trait CallRunner: Send + Sync {
    fn run_call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Outcome>>;
}
