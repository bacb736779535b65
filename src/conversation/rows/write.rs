//! How rows are replaced: in one batch with the head that orders all writes.

use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::Timestamp;
use helmdeck_memory::{Delete, EntryMeta, Kind, Namespace, Op, Page, Put, Restore, StoreError, Written};

use super::{Checkpoint, Head, Once, Rows, State, form};
use crate::error::{ConversationError, Result};

/// How long a name that a caller gave to a turn is remembered.
const ONCE_FOR: Duration = Duration::from_secs(86_400);

/// What a batch did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replaced {
    /// The version of the head; 0 = it was not replaced.
    pub(crate) head_version: u64,
    /// The version of the checkpoint; 0 = it was not replaced.
    pub(crate) checkpoint_version: u64,
    /// When it was done.
    pub(crate) at: Timestamp,
    /// How many rows the deletes took.
    pub(crate) deleted: u64,
}

/// Operations on the rows of one conversation, to be done with the replacement of its head.
#[derive(Clone)]
pub(crate) struct Ops {
    namespace: Namespace,
    ops: Vec<Op>,
}

impl std::fmt::Debug for Ops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ops").field("ops", &self.ops.len()).finish_non_exhaustive()
    }
}

impl Ops {
    pub(crate) const fn new(namespace: Namespace) -> Self {
        Self { namespace, ops: Vec::new() }
    }

    /// Deletes every turn, and every name by which one was added.
    pub(crate) fn clear(&mut self) {
        for prefix in [form::TURNS, form::ONCE] {
            self.delete_prefix(prefix);
        }
    }

    /// Deletes a turn.
    pub(crate) fn delete_turn(&mut self, seq: u64) {
        self.ops.push(Op::Delete(Delete::Key {
            namespace: self.namespace.clone(),
            kind: Kind::Conversation,
            key: form::turn_key(seq),
        }));
    }

    /// Deletes every turn through `last`, and every name by which one was added; what is above stays.
    pub(crate) fn clear_through(&mut self, last: u64) {
        self.delete_prefix(form::ONCE);
        for prefix in form::prefixes_through(last) {
            self.delete_prefix(&prefix);
        }
    }

    /// Deletes every row whose key starts so.
    pub(crate) fn delete_prefix(&mut self, prefix: &str) {
        self.ops.push(Op::Delete(Delete::Prefix {
            namespace: Some(self.namespace.clone()),
            kind: Some(Kind::Conversation),
            prefix: prefix.to_owned(),
        }));
    }

    /// Writes a turn where none is.
    pub(crate) fn put_turn(&mut self, seq: u64, value: Bytes) {
        self.put(form::turn_key(seq), value, Some(0), None);
    }

    /// Remembers for a day under which name a turn was added.
    pub(crate) fn put_once(&mut self, name: &str, once: &Once) {
        self.put(form::once_key(name), once.value(), Some(0), Some(ONCE_FOR));
    }

    /// Returns how many operations there are.
    pub(crate) const fn len(&self) -> usize {
        self.ops.len()
    }

    fn put(&mut self, key: String, value: Bytes, expect_version: Option<u64>, ttl: Option<Duration>) {
        let put = Put::new(self.namespace.clone(), Kind::Conversation, key, value);
        self.ops.push(Op::Put(Put { expect_version, ttl, ..put }));
    }

    /// Replaces the row at a version; where none is, one begins at a random version.
    fn replace(&mut self, key: &str, version: u64, value: Bytes, now: Timestamp) {
        let put = Put::new(self.namespace.clone(), Kind::Conversation, key, value);
        let restore = (version == 0).then(|| Restore {
            version: (random() >> 2).max(1),
            created_at: now,
            updated_at: now,
            expires_at: None,
        });
        self.ops.push(Op::Put(Put { expect_version: Some(version), restore, ..put }));
    }
}

impl Rows {
    /// Replaces head and checkpoint (`None` = it stays), if they are still at the versions of `state`, and does `more` with
    /// it: all or nothing. `None` if somebody else was faster, or a row is there that `more` expects not to be.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn replace(
        &self,
        state: &State,
        head: Option<&Head>,
        checkpoint: Option<&Checkpoint>,
        more: Ops,
    ) -> Result<Option<Replaced>> {
        let now = self.clock.now();
        let mut ops = Ops::new(more.namespace);
        if let Some(head) = head {
            ops.replace(form::HEAD, state.head_version, form::write(head)?, now);
        }
        if let Some(checkpoint) = checkpoint {
            ops.replace(form::CHECKPOINT, state.checkpoint_version, form::write(checkpoint)?, now);
        }
        ops.ops.extend(more.ops);
        let written = match self.store().write(ops.ops).await {
            Ok(written) => written,
            Err(StoreError::VersionMismatch { .. } | StoreError::NotNewer) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut done = Replaced { at: now, ..Replaced::default() };
        for written in written {
            match written {
                Written::Put(meta) => note(&mut done, &meta),
                Written::Deleted(count) => done.deleted += count,
            }
        }
        Ok(Some(done))
    }

    /// Replaces the checkpoint if it is still at the version of `state`; returns the new version, `None` if somebody else was faster.
    ///
    /// Whoever raises the generation replaces head and checkpoint at once, so the version stands for the generation too.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn commit(
        &self,
        namespace: &Namespace,
        state: &State,
        checkpoint: &Checkpoint,
    ) -> Result<Option<u64>> {
        let nothing = Ops::new(namespace.clone());
        let done = self.replace(state, None, Some(checkpoint), nothing).await?;
        Ok(done.map(|done| done.checkpoint_version))
    }

    /// Writes rows that nobody sees yet, or deletes rows that nobody sees any more; returns how many were deleted.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn aside(&self, ops: Ops) -> Result<u64> {
        let written = self.store().write(ops.ops).await?;
        Ok(written.iter().map(|done| if let Written::Deleted(count) = done { *count } else { 0 }).sum())
    }

    /// Returns a state with which a conversation can be replaced whose head or checkpoint does not open: the versions that they are at,
    /// and a head that no turn of it could have had yet.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn wreck(&self, namespace: &Namespace) -> Result<State> {
        let kind = Kind::Conversation;
        let rows = self.store().list(namespace, kind, form::STATE, Page::default()).await?;
        let mut state = State::default();
        for meta in rows.entries {
            match meta.key.as_str() {
                form::HEAD => (state.head_version, state.touched_at) = (meta.version, Some(meta.updated_at)),
                form::CHECKPOINT => state.checkpoint_version = meta.version,
                _ => {}
            }
        }
        let newest = self.keys(namespace, form::TURNS, 0, u64::MAX).await?.pop().unwrap_or_default();
        state.head.seq = staging(newest);
        state.head.first = state.head.seq + 1;
        // Which one it had is not known.
        state.head.generation = lineage();
        state.checkpoint.generation = state.head.generation;
        Ok(state)
    }

    /// Deletes every row of a conversation, whatever is there, and says how many of them were turns.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) async fn erase(&self, namespace: &Namespace) -> Result<u64> {
        let mut ops = Ops::new(namespace.clone());
        ops.delete_prefix(form::TURNS);
        ops.delete_prefix("");
        match self.store().write(ops.ops).await?.first() {
            Some(Written::Deleted(turns)) => Ok(*turns),
            _ => Err(ConversationError::Corrupt("a delete answered with something else".to_owned())),
        }
    }
}

fn note(done: &mut Replaced, meta: &EntryMeta) {
    match meta.key.as_str() {
        form::HEAD => (done.head_version, done.at) = (meta.version, meta.updated_at),
        form::CHECKPOINT => done.checkpoint_version = meta.version,
        _ => {}
    }
}

/// Returns a sequence number far above another one, where neither an add nor another restore will come by chance.
pub(crate) fn staging(seq: u64) -> u64 {
    // Room for many restores of many turns below the largest number with 20 digits.
    seq.saturating_add(1 << 32).saturating_add(random() >> 20)
}

/// Returns the generation with which a conversation begins where none is: one of chance, so that what is on its way for a conversation that was
/// forgotten is never taken for a part of the one that was begun anew. No more than a number of JSON can hold.
pub(crate) fn lineage() -> u64 {
    (random() >> 12).max(1)
}

/// Returns chance.
pub(crate) fn random() -> u64 {
    let part = || {
        let bytes = uuid::Uuid::now_v7().into_bytes();
        u64::from(u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]))
    };
    part() << 32 | part()
}
