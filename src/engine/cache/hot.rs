//! Hot tier: answers in memory, and the exact bytes of calls that lead to them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ahash::RandomState;
use bytes::Bytes;
use helmdeck_core::{Identity, Timestamp};
use moka::notification::RemovalCause;
use moka::sync::Cache;

use super::answer::{Answer, Location, SLOT_BYTES, block};
use super::key::Key;

/// Length limit of an input that is stored as an alias, in bytes.
const MAX_ALIAS_BYTES: usize = 16 << 10;

/// Exact bytes of a call, as one registered pack sees them.
///
/// They are compared in full, so two calls can never be confused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Alias {
    /// Differs between registrations, so a replaced pack never answers with its predecessor's entries.
    pub(crate) stack: u64,
    /// Changes with any grant or credential.
    pub(crate) secrets: u64,
    pub(crate) identity: Arc<Identity>,
    pub(crate) input: Bytes,
}

impl Alias {
    /// Returns the memory that the alias takes, in bytes.
    ///
    /// It counts the alias, its bytes, the caller (each call brings its own), and the shell of an answer, which stays
    /// as long as anything points to it.
    fn weight(&self) -> usize {
        let session = self.identity.session().map_or(0, |session| block(session.len()));
        let names = block(self.identity.tenant().len()) + block(self.identity.user().len()) + session;
        let identity = block(size_of::<Identity>()) + names;
        block(size_of::<Self>()) + block(self.input.len()) + identity + block(size_of::<Answer>()) + SLOT_BYTES
    }
}

/// Answers in memory.
pub(crate) struct HotTier {
    /// Number that grows with every purge, before the purge searches the hot tier.
    epoch: AtomicU64,
    /// The answers of the tier. An answer that is evicted is invalidated.
    pub(super) answers: Cache<Key, Arc<Answer>>,
    /// Aliases: weak references to the answers of the tier.
    ///
    /// The bytes come from callers, so the hash has a random key. `SipHash`, the default, took a fifth of the
    /// instructions of a hit.
    pub(super) aliases: Cache<Alias, Weak<Answer>, RandomState>,
}

impl HotTier {
    /// Makes a hot tier that takes up to `bytes` of memory, a tenth of them for aliases.
    pub(super) fn new(bytes: u64) -> Self {
        let weigh = |_: &Key, answer: &Arc<Answer>| u32::try_from(answer.weight()).unwrap_or(u32::MAX);
        let weigh_alias = |alias: &Alias, _: &Weak<Answer>| u32::try_from(alias.weight()).unwrap_or(u32::MAX);
        // A purge searches only the hot tier: an evicted answer is not recalled, although a caller may still hold it.
        let leave = |_: Arc<Key>, answer: Arc<Answer>, _: RemovalCause| answer.invalidate();
        let for_aliases = bytes / 10;
        Self {
            epoch: AtomicU64::new(0),
            answers: Cache::builder().max_capacity(bytes - for_aliases).weigher(weigh).eviction_listener(leave).build(),
            aliases: Cache::builder()
                .max_capacity(for_aliases)
                .weigher(weigh_alias)
                .build_with_hasher(RandomState::new()),
        }
    }

    /// Returns a valid answer of the hot tier.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Answer>> {
        let answer = self.answers.get(key).filter(|answer| !answer.is_invalid())?;
        answer.note_read();
        Some(answer)
    }

    /// Puts a valid answer into the hot tier, and returns whether it is in the tier now.
    ///
    /// It replaces its predecessor.
    pub(crate) fn warm(&self, answer: &Arc<Answer>) -> bool {
        if answer.is_invalid() {
            return false;
        }
        // An answer must not replace itself: that would evict and invalidate it.
        if self.answers.get(&answer.location.key).is_none_or(|there| !Arc::ptr_eq(&there, answer)) {
            self.answers.insert(answer.location.key, Arc::clone(answer));
        }
        true
    }

    /// Returns the current epoch. A later, different epoch means that something was purged.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Puts an answer that was read from the store into the hot tier.
    ///
    /// It is removed again if anything was purged since `epoch`. It goes in first and is checked then: a purge at the
    /// same moment either finds it in the tier or is seen by the check.
    pub(crate) fn warm_unless_purged(&self, answer: &Arc<Answer>, epoch: u64) {
        self.warm(answer);
        if self.epoch() != epoch {
            answer.invalidate();
            self.answers.invalidate(&answer.location.key);
        }
    }

    /// Returns the answer to a call of exactly these bytes.
    pub(crate) fn recall(&self, alias: &Alias) -> Option<Arc<Answer>> {
        let answer = self.aliases.get(alias)?.upgrade().filter(|answer| !answer.is_invalid())?;
        answer.note_read();
        Some(answer)
    }

    /// Visits the answers that were read since the last time.
    pub(super) fn take_read(&self, mut visit: impl FnMut(&Location)) {
        for (_, answer) in &self.answers {
            if answer.take_read() {
                visit(&answer.location);
            }
        }
    }

    /// Stores the bytes of a call as an alias of its answer.
    pub(crate) fn remember(&self, alias: Alias, answer: &Arc<Answer>) {
        if alias.input.len() <= MAX_ALIAS_BYTES && !answer.is_invalid() {
            // Copied, because the bytes are a slice of the connection's buffer, which would be kept alive with them.
            let alias = Alias { input: Bytes::copy_from_slice(&alias.input), ..alias };
            self.aliases.insert(alias, Arc::downgrade(answer));
        }
    }

    /// Begins the next epoch and returns it.
    pub(super) fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Invalidates the answers whose location is covered.
    pub(super) fn invalidate(&self, covers: impl Fn(&Location) -> bool) {
        for (key, answer) in &self.answers {
            if covers(&answer.location) {
                answer.invalidate();
                self.answers.invalidate(key.as_ref());
            }
        }
    }

    /// Drops expired answers, so that plaintext does not outlive its entry.
    ///
    /// Returns the bytes that the tier takes afterwards.
    pub(super) fn drop_expired(&self, now: Timestamp) -> u64 {
        for (key, answer) in &self.answers {
            if now >= answer.hard_until {
                answer.invalidate();
                self.answers.invalidate(key.as_ref());
            }
        }
        self.answers.run_pending_tasks();
        self.aliases.run_pending_tasks();
        self.answers.weighted_size() + self.aliases.weighted_size()
    }
}
