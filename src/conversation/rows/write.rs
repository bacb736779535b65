//! Atomic writes: every batch replaces the head, which orders all writers.

use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::Timestamp;
use helmdeck_memory::{
    Delete, EntryMeta, Kind, Namespace, Op, Page, Put, Restore, StoreError, Written,
};

use super::{Checkpoint, Head, Once, Rows, StoredState, encoding};
use crate::error::{ConversationError, Result};

/// Lifetime of an idempotency key.
const ONCE_FOR: Duration = Duration::from_secs(86_400);

/// Result of a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replaced {
    /// New version of the head; 0 = not replaced.
    pub(crate) head_version: u64,
    /// New version of the checkpoint; 0 = not replaced.
    pub(crate) checkpoint_version: u64,
    /// Time of the write.
    pub(crate) at: Timestamp,
    /// Number of deleted rows.
    pub(crate) deleted: u64,
}

/// Operations on one conversation, for the batch that replaces its head.
#[derive(Clone)]
pub(crate) struct Ops {
    namespace: Namespace,
    ops: Vec<Op>,
}

helmdeck_core::redacted_debug!(Ops, this => ops = this.ops.len());

impl Ops {
    pub(crate) const fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            ops: Vec::new(),
        }
    }

    /// Deletes every turn and every idempotency key.
    pub(crate) fn clear(&mut self) {
        for prefix in [encoding::TURNS, encoding::ONCE] {
            self.delete_prefix(prefix);
        }
    }

    /// Deletes a turn.
    pub(crate) fn delete_turn(&mut self, seq: u64) {
        self.ops.push(Op::Delete(Delete::Key {
            namespace: self.namespace.clone(),
            kind: Kind::Conversation,
            key: encoding::turn_key(seq),
        }));
    }

    /// Deletes every turn through `last` and every idempotency key.
    pub(crate) fn clear_through(&mut self, last: u64) {
        self.delete_prefix(encoding::ONCE);
        for prefix in encoding::prefixes_through(last) {
            self.delete_prefix(&prefix);
        }
    }

    /// Deletes every row with a key prefix.
    pub(crate) fn delete_prefix(&mut self, prefix: &str) {
        self.ops.push(Op::Delete(Delete::Prefix {
            namespace: Some(self.namespace.clone()),
            kind: Some(Kind::Conversation),
            prefix: prefix.to_owned(),
        }));
    }

    /// Writes a new turn.
    pub(crate) fn put_turn(&mut self, seq: u64, value: Bytes) {
        self.put(encoding::turn_key(seq), value, Some(0), None);
    }

    /// Stores an idempotency key for a day.
    pub(crate) fn put_once(&mut self, name: &str, once: &Once) {
        self.put(
            encoding::once_key(name),
            once.value(),
            Some(0),
            Some(ONCE_FOR),
        );
    }

    /// Returns the number of operations.
    pub(crate) const fn len(&self) -> usize {
        self.ops.len()
    }

    fn put(
        &mut self,
        key: String,
        value: Bytes,
        expect_version: Option<u64>,
        ttl: Option<Duration>,
    ) {
        let put = Put::new(self.namespace.clone(), Kind::Conversation, key, value);
        self.ops.push(Op::Put(Put {
            expect_version,
            ttl,
            ..put
        }));
    }

    /// Replaces a row at a version; a new one starts at a random version.
    fn replace(&mut self, key: &str, version: u64, value: Bytes, now: Timestamp) {
        let put = Put::new(self.namespace.clone(), Kind::Conversation, key, value);
        let restore = (version == 0).then(|| Restore {
            version: (random() >> 2).max(1),
            created_at: now,
            updated_at: now,
            expires_at: None,
        });
        self.ops.push(Op::Put(Put {
            expect_version: Some(version),
            restore,
            ..put
        }));
    }
}

impl Rows {
    /// Replaces head and checkpoint (`None` = unchanged), with `more` in the same atomic batch.
    ///
    /// They must still have the versions of `state`. Returns `None` if another writer was faster,
    /// or a row exists that `more` expects not to.
    pub(crate) async fn replace(
        &self,
        state: &StoredState,
        head: Option<&Head>,
        checkpoint: Option<&Checkpoint>,
        more: Ops,
    ) -> Result<Option<Replaced>> {
        let now = self.clock.now();
        let mut ops = Ops::new(more.namespace);
        if let Some(head) = head {
            ops.replace(
                encoding::HEAD,
                state.head_version,
                encoding::write(head)?,
                now,
            );
        }
        if let Some(checkpoint) = checkpoint {
            ops.replace(
                encoding::CHECKPOINT,
                state.checkpoint_version,
                encoding::write(checkpoint)?,
                now,
            );
        }
        ops.ops.extend(more.ops);
        let written = match self.store().write(ops.ops).await {
            Ok(written) => written,
            Err(StoreError::VersionMismatch { .. } | StoreError::NotNewer) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut done = Replaced {
            at: now,
            ..Replaced::default()
        };
        for written in written {
            match written {
                Written::Put(meta) => note(&mut done, &meta),
                Written::Deleted(count) => done.deleted += count,
            }
        }
        Ok(Some(done))
    }

    /// Replaces the checkpoint if it still has the version of `state`.
    ///
    /// Returns the new version; `None` if it hasn't. A new generation replaces head and checkpoint
    /// together, so the version identifies the generation too.
    pub(crate) async fn commit(
        &self,
        namespace: &Namespace,
        state: &StoredState,
        checkpoint: &Checkpoint,
    ) -> Result<Option<u64>> {
        let nothing = Ops::new(namespace.clone());
        let done = self.replace(state, None, Some(checkpoint), nothing).await?;
        Ok(done.map(|done| done.checkpoint_version))
    }

    /// Writes or deletes rows that are not visible; returns the number of deleted rows.
    pub(crate) async fn aside(&self, ops: Ops) -> Result<u64> {
        let written = self.store().write(ops.ops).await?;
        Ok(Written::deleted(&written))
    }

    /// Returns a state to replace an unreadable conversation with.
    ///
    /// It has the stored versions, and a head above every stored turn.
    pub(crate) async fn wreck(&self, namespace: &Namespace) -> Result<StoredState> {
        let kind = Kind::Conversation;
        let rows = self
            .store()
            .list(namespace, kind, encoding::STATE, Page::default())
            .await?;
        let mut state = StoredState::default();
        for meta in rows.entries {
            match meta.key.as_str() {
                encoding::HEAD => {
                    (state.head_version, state.touched_at) = (meta.version, Some(meta.updated_at))
                }
                encoding::CHECKPOINT => state.checkpoint_version = meta.version,
                _ => {}
            }
        }
        let newest = self
            .keys(namespace, encoding::TURNS, 0, u64::MAX)
            .await?
            .pop()
            .unwrap_or_default();
        state.head.seq = staging(newest);
        state.head.first = state.head.seq + 1;
        // The old generation is unknown.
        state.head.generation = new_generation();
        state.checkpoint.generation = state.head.generation;
        Ok(state)
    }

    /// Deletes every row of a conversation, and returns how many were turns.
    pub(crate) async fn erase(&self, namespace: &Namespace) -> Result<u64> {
        let mut ops = Ops::new(namespace.clone());
        ops.delete_prefix(encoding::TURNS);
        ops.delete_prefix("");
        match self.store().write(ops.ops).await?.first() {
            Some(Written::Deleted(turns)) => Ok(*turns),
            _ => Err(ConversationError::Corrupt(
                "a delete answered with something else".to_owned(),
            )),
        }
    }
}

fn note(done: &mut Replaced, meta: &EntryMeta) {
    match meta.key.as_str() {
        encoding::HEAD => (done.head_version, done.at) = (meta.version, meta.updated_at),
        encoding::CHECKPOINT => done.checkpoint_version = meta.version,
        _ => {}
    }
}

/// Returns a random sequence number far above another one, where no add or other restore gets to.
pub(crate) fn staging(seq: u64) -> u64 {
    // Leaves room for many restores below the largest number of 20 digits.
    seq.saturating_add(1 << 32).saturating_add(random() >> 20)
}

/// Returns a random first generation. Fits into a JSON number.
///
/// Writes for a forgotten conversation thus never match its successor.
pub(crate) fn new_generation() -> u64 {
    (random() >> 12).max(1)
}

/// Returns random bits.
fn random() -> u64 {
    let part = || {
        let bytes = uuid::Uuid::now_v7().into_bytes();
        u64::from(u32::from_be_bytes([
            bytes[12], bytes[13], bytes[14], bytes[15],
        ]))
    };
    part() << 32 | part()
}
