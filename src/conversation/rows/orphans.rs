//! Queries of the sweep: orphaned rows, and the age of rows.

use helmdeck_core::Timestamp;
use helmdeck_memory::{Kind, Namespace, Order, Page};

use super::{Head, Ops, Rows, StoredState, encoding};
use crate::error::Result;

/// Distance above the newest turn that no add reaches while a row ages.
///
/// Turns above it belong to a restore.
const ABOVE: u64 = 1 << 20;
/// Maximum deletes of a batch.
const BATCH: usize = 500;

/// Orphaned rows of a conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Orphans {
    /// Sequence numbers of those that can be deleted.
    pub(crate) dead: Vec<u64>,
    /// Whether there are younger ones, perhaps of a restore in progress.
    pub(crate) young: bool,
}

impl Rows {
    /// Returns when the checkpoint was last written; `None` without a checkpoint.
    pub(crate) async fn checkpoint_at(&self, namespace: &Namespace) -> Result<Option<Timestamp>> {
        let page = Page {
            limit: 2,
            after: None,
        };
        let page = self
            .store
            .list(namespace, Kind::Conversation, encoding::STATE, page)
            .await?;
        let found = page
            .entries
            .iter()
            .find(|meta| meta.key == encoding::CHECKPOINT);
        Ok(found.map(|meta| meta.updated_at))
    }

    /// Returns whether there is any row.
    pub(crate) async fn is_any(&self, namespace: &Namespace) -> Result<bool> {
        let page = Page {
            limit: 1,
            after: None,
        };
        let page = self
            .store
            .list(namespace, Kind::Conversation, "", page)
            .await?;
        Ok(!page.entries.is_empty() || page.next.is_some())
    }

    /// Finds turns below the head's range, and turns far above it that were written before
    /// `before`.
    ///
    /// Cheap if there are none.
    pub(crate) async fn orphans(
        &self,
        namespace: &Namespace,
        head: &Head,
        before: Timestamp,
    ) -> Result<Orphans> {
        let mut orphans = Orphans::default();
        if !self.is_outside(namespace, head).await? {
            return Ok(orphans);
        }
        let mut after = None;
        loop {
            let page = Page { limit: 1000, after };
            let page = self
                .store
                .list(namespace, Kind::Conversation, encoding::TURNS, page)
                .await?;
            for meta in &page.entries {
                match encoding::seq_of(&meta.key) {
                    Some(seq) if seq < head.first => orphans.dead.push(seq),
                    Some(seq) if seq > head.seq && meta.updated_at >= before => {
                        orphans.young = true
                    }
                    Some(seq) if seq > head.seq.saturating_add(ABOVE) => orphans.dead.push(seq),
                    _ => {}
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(orphans);
            }
        }
    }

    /// Returns whether the first or last turn is outside the head's range.
    async fn is_outside(&self, namespace: &Namespace, head: &Head) -> Result<bool> {
        for order in [Order::KeyAscending, Order::KeyDescending] {
            let scan = self
                .store
                .scan(namespace, Kind::Conversation, encoding::TURNS, order, 1)
                .await?;
            let known = |seq| (head.first..=head.seq).contains(&seq);
            let seq = scan
                .entries
                .first()
                .and_then(|entry| encoding::seq_of(&entry.meta.key));
            // An unreadable row may be anything.
            if scan.unreadable > 0 || seq.is_some_and(|seq| !known(seq)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes orphans if the conversation is unchanged since `state` was read, and returns their
    /// number.
    ///
    /// A forgotten conversation that begins again uses the same sequence numbers: what was an
    /// orphan of the old one may be a turn of the new one.
    pub(crate) async fn clean(
        &self,
        namespace: &Namespace,
        state: &StoredState,
        orphans: &Orphans,
    ) -> Result<u64> {
        let mut state = state.clone();
        let mut count = 0;
        for seqs in orphans.dead.chunks(BATCH) {
            let mut ops = Ops::new(namespace.clone());
            seqs.iter().for_each(|seq| ops.delete_turn(*seq));
            if state.head_version == 0 {
                // Without a head, only old rows far above every turn are orphans.
                count += self.aside(ops).await?;
                continue;
            }
            // The head is replaced only to detect other writers.
            let Some(done) = self.replace(&state, Some(&state.head), None, ops).await? else {
                break;
            };
            state.head_version = done.head_version;
            count += done.deleted;
        }
        Ok(count)
    }

    /// Deletes a whole conversation if it is unchanged; `false` if it is not.
    pub(crate) async fn end(&self, namespace: &Namespace, state: &StoredState) -> Result<bool> {
        let mut ops = Ops::new(namespace.clone());
        ops.delete_prefix("");
        // The head is replaced only to detect other writers.
        Ok(self
            .replace(state, Some(&state.head), None, ops)
            .await?
            .is_some())
    }
}
