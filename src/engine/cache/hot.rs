//! Hot tier: answers in memory by their keys, and the exact bytes of calls that lead to the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use helmdeck_core::{Identity, Timestamp};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Lifecycle, Options, OptionsBuilder, Weighter};

use super::answer::{Answer, Location, block};
use super::key::Key;

/// Length limit of an input that is stored as an alias, in bytes.
const MAX_ALIAS_BYTES: usize = 16 << 10;
/// Overhead of the map per answer or alias. Measured: see the tests of `hub`.
const SLOT_BYTES: usize = 112;
/// Memory of a shard, at least, unless the whole map has less. A larger answer is not kept in
/// memory.
const SHARD_BYTES: u64 = 8 << 20;
/// Number of shards, at most: a power of two, as every number of shards.
const MAX_SHARDS: u64 = 16;

/// Exact bytes of a call, as one registered pack sees them: registration, grants, caller, input.
///
/// They are compared in full, so two calls can never be confused.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Alias(Box<[u8]>);

impl Alias {
    /// Makes an alias; `None` if the input is too long for one.
    ///
    /// `stack` differs between registrations, so a replaced pack never answers with its
    /// predecessor's entries; `secrets` changes with any grant or credential.
    pub(crate) fn new(stack: u64, secrets: u64, identity: &Identity, input: &[u8]) -> Option<Self> {
        if input.len() > MAX_ALIAS_BYTES {
            return None;
        }
        let (tenant, user, session) = (
            identity.tenant(),
            identity.user(),
            identity.session().unwrap_or_default(),
        );
        let mut bytes =
            Vec::with_capacity(19 + tenant.len() + user.len() + session.len() + input.len());
        bytes.extend_from_slice(&stack.to_ne_bytes());
        bytes.extend_from_slice(&secrets.to_ne_bytes());
        for part in [tenant, user, session] {
            bytes.extend_from_slice(part.as_bytes());
            // No part of an identity has a control character.
            bytes.push(0);
        }
        bytes.extend_from_slice(input);
        Some(Self(bytes.into_boxed_slice()))
    }
}

/// Memory that entries take.
#[derive(Clone)]
struct Weights;

impl Weighter<Key, Arc<Answer>> for Weights {
    fn weight(&self, _: &Key, answer: &Arc<Answer>) -> u64 {
        (answer.weight() + SLOT_BYTES) as u64
    }
}

impl Weighter<Alias, Key> for Weights {
    fn weight(&self, alias: &Alias, _: &Key) -> u64 {
        (block(alias.0.len()) + SLOT_BYTES) as u64
    }
}

/// Invalidates answers that leave the tier: a purge searches only the tier, and a caller may still
/// hold them.
#[derive(Clone)]
struct Leaving;

impl Lifecycle<Key, Arc<Answer>> for Leaving {
    /// Dropped after the lock of the shard.
    type RequestState = Vec<Arc<Answer>>;

    fn on_evict(&self, left: &mut Vec<Arc<Answer>>, _: Key, answer: Arc<Answer>) {
        answer.invalidate();
        left.push(answer);
    }
}

/// Answers in memory.
pub(crate) struct HotTier {
    /// Number that grows with every purge, before the purge searches the hot tier.
    epoch: AtomicU64,
    /// The answers of the tier. An answer that leaves it is invalidated.
    answers: Cache<Key, Arc<Answer>, Weights, RandomState, Leaving>,
    /// The keys that aliases lead to, whether an answer is there or not.
    ///
    /// The bytes come from callers, so the hash has a random key.
    aliases: Cache<Alias, Key, Weights, RandomState>,
}

impl HotTier {
    /// Makes a hot tier that takes up to `bytes` of memory, a tenth of them for aliases.
    pub(super) fn new(bytes: u64) -> Self {
        let for_aliases = bytes / 10;
        Self {
            epoch: AtomicU64::new(0),
            answers: Cache::with_options(
                options(bytes - for_aliases),
                Weights,
                RandomState::new(),
                Leaving,
            ),
            aliases: Cache::with_options(
                options(for_aliases),
                Weights,
                RandomState::new(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// Returns a valid answer of the hot tier.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Answer>> {
        let answer = self
            .answers
            .get(key)
            .filter(|answer| !answer.is_invalid())?;
        answer.note_read();
        Some(answer)
    }

    /// Puts a valid answer into the hot tier, and returns whether it was valid.
    ///
    /// It replaces its predecessor. One that is larger than a shard of the tier is not kept, and
    /// invalid from here on.
    pub(crate) fn warm(&self, answer: &Arc<Answer>) -> bool {
        if answer.is_invalid() {
            return false;
        }
        // An answer must not replace itself: that would evict and invalidate it.
        if self
            .answers
            .peek(&answer.location.key)
            .is_none_or(|there| !Arc::ptr_eq(&there, answer))
        {
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
    /// It is removed again if anything was purged since `epoch`. It goes in first and is checked
    /// then: a purge at the same moment either finds it in the tier or is seen by the check.
    pub(crate) fn warm_unless_purged(&self, answer: &Arc<Answer>, epoch: u64) {
        self.warm(answer);
        if self.epoch() != epoch {
            answer.invalidate();
            self.answers
                .remove_if(&answer.location.key, |there| Arc::ptr_eq(there, answer));
        }
    }

    /// Returns the answer to a call of exactly these bytes.
    pub(crate) fn recall(&self, alias: &Alias) -> Option<Arc<Answer>> {
        self.get(&self.aliases.get(alias)?)
    }

    /// Visits the answers that were read since the last time.
    pub(super) fn take_read(&self, mut visit: impl FnMut(&Location)) {
        for (_, answer) in self.answers.iter() {
            if answer.take_read() {
                visit(&answer.location);
            }
        }
    }

    /// Stores the bytes of a call as an alias of its key.
    pub(crate) fn remember(&self, alias: Alias, key: Key) {
        self.aliases.insert(alias, key);
    }

    /// Begins the next epoch and returns it.
    pub(super) fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Invalidates the answers whose location is covered.
    pub(super) fn invalidate(&self, covers: impl Fn(&Location) -> bool) {
        self.drop_where(|answer| covers(&answer.location));
    }

    /// Drops expired answers, so that plaintext does not outlive its entry.
    pub(super) fn drop_expired(&self, now: Timestamp) {
        self.drop_where(|answer| now >= answer.hard_until);
    }

    fn drop_where(&self, goes: impl Fn(&Answer) -> bool) {
        self.answers.retain(|_, answer| {
            let stays = !goes(answer);
            if !stays {
                answer.invalidate();
            }
            stays
        });
    }

    /// Returns the memory that the tier takes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.answers.weight() + self.aliases.weight()
    }

    /// Returns the number of answers, and that of aliases.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.answers.len(), self.aliases.len())
    }
}

/// Returns the options of a map that takes up to `bytes`.
fn options(bytes: u64) -> Options {
    // The map rounds other numbers up, which would make the shards smaller.
    let shards = 1_usize << (bytes / SHARD_BYTES).clamp(1, MAX_SHARDS).ilog2();
    let mut options = OptionsBuilder::new();
    options
        .shards(shards)
        .weight_capacity(bytes)
        .estimated_items_capacity(usize::try_from(bytes >> 10).unwrap_or(usize::MAX));
    options
        .build()
        .unwrap_or_else(|error| unreachable!("all options are set: {error}"))
}
