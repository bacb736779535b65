//! State of an attempt to summarise, and of a conversation between two attempts.

use helmdeck_memory::Namespace;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::Backlog;
use super::moves::Move;
use crate::error::Result;
use crate::identity::Identity;
use crate::rows::{Checkpoint, StoredState};
use crate::shared::Shared;

/// State of a conversation between two attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// Number of times to halve the size of a request.
    pub(super) shrink: u32,
    /// Number of times to halve a turn that is alone in its request.
    pub(super) clip: u32,
    /// Checkpoint version of our last failure. Another version means that another process failed.
    pub(super) tried: u64,
    /// Failures of a turn that is alone in its request.
    pub(super) alone: u32,
    /// Consecutive failures of the store.
    pub(super) store_failures: u32,
    /// Whether the long backlog was reported.
    pub(super) warned: bool,
    /// A commit with unknown result, whose events are not published yet.
    pub(super) maybe: Option<UnknownCommit>,
    /// When the endpoint accepts the next request.
    pub(super) not_before: Option<Instant>,
    /// Time of the last requested attempt.
    pub(super) forced_at: Option<Instant>,
}

/// A write with an unknown result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownCommit {
    pub(super) checkpoint: Checkpoint,
    /// Its version if it succeeded; 0 = unknown.
    pub(super) version: u64,
    pub(super) moves: Vec<Move>,
}

impl UnknownCommit {
    pub(super) fn is_stored(&self, state: &StoredState) -> bool {
        (self.version == 0 || state.checkpoint_version == self.version)
            && state.checkpoint == self.checkpoint
    }
}

/// An attempt to summarise one conversation.
pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) namespace: &'a Namespace,
    pub(super) identity: Identity,
    /// Cancelled when the memory is closed.
    pub(super) stop: &'a CancellationToken,
    /// Cancelled when the conversation is replaced.
    pub(super) gone: &'a CancellationToken,
    pub(super) notes: Notes,
}

impl Attempt<'_> {
    pub(super) async fn backlog(&self) -> Result<Backlog> {
        self.shared
            .ask(self.namespace, |cached| {
                Some(Backlog::of(self.shared, cached))
            })
            .await
    }

    /// Reads the backlog from the rows if the cached copy is outdated.
    pub(super) async fn look_anew(&self) -> Result<Backlog> {
        let held = self.backlog().await?;
        let state = self.shared.rows.state(self.namespace).await?;
        if state.checkpoint_version == held.state.checkpoint_version {
            return Ok(held);
        }
        self.shared.hot.forget(self.namespace);
        self.backlog().await
    }
}
