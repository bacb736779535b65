//! What goes on behind the callers' backs: turns are folded into summaries, old turns and ended dialogues are removed.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::Namespace;

use crate::error::Result;
use crate::ground::Ground;
use crate::identity::Identity;

/// What a dialogue waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Turns are to be folded into the summary.
    Fold,
    /// There are more turns than are to be kept.
    Prune,
}

/// What goes on behind the callers' backs.
pub(crate) struct Upkeep {}

impl Upkeep {
    /// Begins; spawns no task that is not needed.
    pub(crate) fn start(ground: Arc<Ground>) -> Self {
        let _ = ground;
        Self {}
    }

    /// Says that something is due. Cheap; never waits.
    pub(crate) fn wake(&self, identity: &Identity, due: Due) {
        let _ = (identity, due);
    }

    /// Folds what is due now, and returns how many turns still wait.
    ///
    /// # Errors
    /// `Corrupt`, `Store`.
    pub(crate) async fn fold(&self, identity: &Identity, within: Duration) -> Result<u64> {
        let _ = (identity, within);
        Ok(0)
    }

    /// Drops what is queued or in flight for a dialogue.
    pub(crate) fn forgotten(&self, namespace: &Namespace) {
        let _ = namespace;
    }

    /// Ends all of it, and waits at most `within` for that.
    pub(crate) async fn close(&self, within: Duration) {
        let _ = within;
    }
}
