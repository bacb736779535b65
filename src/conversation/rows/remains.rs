//! What nobody asks for but the sweep: rows that are remains, and how old rows are.

use helmdeck_core::Timestamp;
use helmdeck_memory::{Kind, Namespace, Order, Page};

use super::{Head, Ops, Rows, State, form};
use crate::error::Result;

/// How far above the newest turn no add comes in the time that a row needs to be old: what is there was left by a restore.
const ABOVE: u64 = 1 << 20;
/// How many rows one batch deletes.
const BATCH: usize = 500;

/// Which rows of a conversation are remains.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// The sequence numbers of those that nobody can want any more.
    pub(crate) dead: Vec<u64>,
    /// Whether there are others that may be wanted: a restore may be under way.
    pub(crate) young: bool,
}

impl Rows {
    /// Returns when the checkpoint was last replaced, `None` if there is none.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn checkpoint_at(&self, namespace: &Namespace) -> Result<Option<Timestamp>> {
        let page = Page { limit: 2, after: None };
        let page = self.store.list(namespace, Kind::Conversation, form::STATE, page).await?;
        let found = page.entries.iter().find(|meta| meta.key == form::CHECKPOINT);
        Ok(found.map(|meta| meta.updated_at))
    }

    /// Says whether there is any row at all.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn is_any(&self, namespace: &Namespace) -> Result<bool> {
        let page = Page { limit: 1, after: None };
        let page = self.store.list(namespace, Kind::Conversation, "", page).await?;
        Ok(!page.entries.is_empty() || page.next.is_some())
    }

    /// Finds turns outside of what the head says there is: below it, and, if they were written before `before`, above it. Cheap if there
    /// is none.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn remains(&self, namespace: &Namespace, head: &Head, before: Timestamp) -> Result<Remains> {
        let mut remains = Remains::default();
        if !self.is_outside(namespace, head).await? {
            return Ok(remains);
        }
        let mut after = None;
        loop {
            let page = Page { limit: 1000, after };
            let page = self.store.list(namespace, Kind::Conversation, form::TURNS, page).await?;
            for meta in &page.entries {
                match form::seq_of(&meta.key) {
                    Some(seq) if seq < head.first => remains.dead.push(seq),
                    Some(seq) if seq > head.seq && meta.updated_at >= before => remains.young = true,
                    Some(seq) if seq > head.seq.saturating_add(ABOVE) => remains.dead.push(seq),
                    _ => {}
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(remains);
            }
        }
    }

    /// Says whether the first or the last turn is none that the head knows.
    async fn is_outside(&self, namespace: &Namespace, head: &Head) -> Result<bool> {
        for order in [Order::KeyAscending, Order::KeyDescending] {
            let scan = self.store.scan(namespace, Kind::Conversation, form::TURNS, order, 1).await?;
            let known = |seq| (head.first..=head.seq).contains(&seq);
            let seq = scan.entries.first().and_then(|entry| form::seq_of(&entry.meta.key));
            // What does not open may be anything.
            if scan.unreadable > 0 || seq.is_some_and(|seq| !known(seq)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes remains, and says how many there were.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn clean(&self, namespace: &Namespace, remains: &Remains) -> Result<u64> {
        let mut count = 0;
        for seqs in remains.dead.chunks(BATCH) {
            let mut ops = Ops::new(namespace.clone());
            seqs.iter().for_each(|seq| ops.delete_turn(*seq));
            count += self.aside(ops).await?;
        }
        Ok(count)
    }

    /// Deletes a whole conversation if it is still as it was seen; `false` if it is not.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn end(&self, namespace: &Namespace, state: &State) -> Result<bool> {
        let mut ops = Ops::new(namespace.clone());
        ops.delete_prefix("");
        // The head is replaced only to find out whether somebody else did.
        Ok(self.replace(state, Some(&state.head), None, ops).await?.is_some())
    }
}
