//! Used keys and their answers in memory, with limits on number and size.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Code, Error};

/// How long a key is remembered.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Result of a call: the outcome as JSON, or the error.
pub(crate) type KeptAnswer = Result<Bytes, Error>;

/// A SHA-256.
pub(super) type Digest32 = [u8; 32];

/// Maximum number of keys. The oldest is dropped first.
pub(super) const MAX_KEYS: usize = 10_000;
/// Maximum size of all answers. The oldest is dropped first.
pub(super) const MAX_BYTES: usize = 32 << 20;

/// Keys in the order of their arrival, which is also the order of their expiry.
#[derive(Default)]
pub(super) struct RecentKeys {
    pub(super) slots: HashMap<Digest32, KeyEntry>,
    pub(super) order: VecDeque<Digest32>,
    pub(super) bytes: usize,
}

/// One key.
pub(super) struct KeyEntry {
    pub(super) request: Digest32,
    pub(super) ends: Duration,
    pub(super) state: KeyState,
}

/// State of a call.
#[derive(Clone)]
pub(super) enum KeyState {
    Running,
    /// Its process went away in the middle.
    Lost,
    /// `None` if the answer was dropped to make room.
    Done(Option<KeptAnswer>),
}

impl RecentKeys {
    pub(super) fn forget_ended(&mut self, now: Duration) {
        while let Some(id) = self.order.front().copied() {
            match self.slots.get(&id) {
                Some(slot) if slot.ends > now || matches!(slot.state, KeyState::Running) => break,
                _ => self.free(&id),
            }
        }
    }

    pub(super) fn make_room(&mut self) -> Result<(), Error> {
        if self.slots.len() < MAX_KEYS {
            return Ok(());
        }
        let done = |id: &&Digest32| {
            self.slots
                .get(*id)
                .is_some_and(|slot| matches!(slot.state, KeyState::Done(_)))
        };
        let oldest = self.order.iter().find(done).copied();
        let oldest = oldest.ok_or_else(|| {
            Error::new(
                Code::Overloaded,
                "too many calls with an Idempotency-Key run",
            )
        })?;
        self.free(&oldest);
        Ok(())
    }

    pub(super) fn free(&mut self, id: &Digest32) {
        if let Some(slot) = self.slots.remove(id) {
            self.bytes -= slot.bytes();
        }
        // Usually the first or the last one, so the search is short.
        if let Some(at) = self.order.iter().position(|other| other == id) {
            self.order.remove(at);
        }
    }

    pub(super) fn done(&mut self, id: &Digest32, answer: KeptAnswer) {
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        slot.state = KeyState::Done(Some(answer));
        self.bytes += slot.bytes();
        for id in &self.order {
            if self.bytes <= MAX_BYTES {
                break;
            }
            if let Some(slot) = self.slots.get_mut(id)
                && matches!(slot.state, KeyState::Done(_))
            {
                self.bytes -= slot.bytes();
                slot.state = KeyState::Done(None);
            }
        }
    }
}

impl KeyEntry {
    const fn bytes(&self) -> usize {
        match &self.state {
            KeyState::Done(Some(Ok(body))) => body.len(),
            _ => 0,
        }
    }
}
