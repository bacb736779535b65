//! `Idempotency-Key`: a write pack runs at most once for a key of a caller, and a repeat gets the first call's answer
//! (draft-ietf-httpapi-idempotency-key-header).
//!
//! Answers are kept in memory only, for 24 hours at most; with a system database the fact that a key was used outlives the
//! process, its answer does not. Nothing of a call but a digest is written there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::error::Fault;
use helmdeck_core::{Call, Clock, Code, Error, Identity};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// What a repeated answer has besides the first one.
pub(crate) const REPLAYED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true"));

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long a key is remembered.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// The most keys in memory; the oldest goes first.
const MAX_KEYS: usize = 10_000;
/// The most bytes of answers in memory; the oldest goes first.
const MAX_BYTES: usize = 32 << 20;

/// What a call came to: the outcome as JSON, or the error.
pub(crate) type Answer = Result<Bytes, Error>;

type Id = [u8; 32];

/// Reads the key of a request, `None` if it has none. Quotes around it are optional.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    if values.next().is_some() || text.is_empty() || text.len() > 255 || !visible {
        return Err(Problem::new(
            Code::InvalidInput,
            "Idempotency-Key must be one text of 1 to 255 visible characters",
        ));
    }
    Ok(Some(text.to_owned()))
}

/// The keys that were used, and their answers.
#[derive(Debug, Clone)]
pub(crate) struct Idempotency(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

/// What is known of a key when a call with it comes in.
pub(crate) enum Begun {
    /// Nothing: the call may run, and has to tell what it came to.
    New(Ticket),
    /// The answer of the first call.
    Repeat(Answer),
}

/// The right to run the one call of a key.
pub(crate) struct Ticket {
    id: Id,
    inner: Arc<Inner>,
    finished: bool,
}

#[derive(Default)]
struct Kept {
    slots: HashMap<Id, Slot>,
    /// In the order in which the keys came, so also in that in which they end.
    order: VecDeque<Id>,
    bytes: usize,
}

struct Slot {
    request: [u8; 32],
    ends: Duration,
    state: State,
}

enum State {
    Running,
    /// `None` if the answer had to make room.
    Done(Option<Answer>),
}

impl Idempotency {
    /// Keeps nothing yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, kept: Mutex::default() }))
    }

    /// Looks a key up and takes it if nobody has.
    ///
    /// # Errors
    /// 409 if the first call still runs or its answer is gone, 422 if it was another request.
    pub(crate) fn begin(&self, call: &Call, key: &str) -> Result<Begun, Problem> {
        let (id, request) = (id(&call.identity, key), request(call));
        let now = self.0.clock.monotonic();
        let mut kept = self.0.lock();
        kept.forget_ended(now);
        if let Some(slot) = kept.slots.get(&id) {
            return slot.repeat(&request);
        }
        kept.make_room()?;
        kept.slots.insert(id, Slot { request, ends: now + KEPT_FOR, state: State::Running });
        kept.order.push_back(id);
        drop(kept);
        Ok(Begun::New(Ticket { id, inner: Arc::clone(&self.0), finished: false }))
    }
}

impl Slot {
    fn repeat(&self, request: &[u8; 32]) -> Result<Begun, Problem> {
        if self.request != *request {
            return Err(Problem::http(
                StatusCode::UNPROCESSABLE_ENTITY,
                "this Idempotency-Key was used for another request; take a new key",
            ));
        }
        match &self.state {
            State::Running => Err(conflict("the first call with this Idempotency-Key still runs; try again later")),
            State::Done(None) => {
                Err(conflict("the call with this Idempotency-Key was made; its answer is no longer kept"))
            }
            State::Done(Some(answer)) => Ok(Begun::Repeat(answer.clone())),
        }
    }
}

fn conflict(detail: &'static str) -> Problem {
    Problem::new(Code::Conflict, detail)
}

impl Ticket {
    /// Keeps the answer, unless it says that nothing was done: then the key is free again.
    pub(crate) fn finish(mut self, answer: &Answer) {
        self.finished = true;
        match answer {
            Err(error) if nothing_was_done(error) => self.inner.lock().free(&self.id),
            answer => self.inner.lock().done(&self.id, answer.clone()),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody knows what the call did, so it must not be made again under this key.
            self.inner.lock().done(&self.id, Err(Error::new(Code::Internal, "the call ended without an answer")));
        }
    }
}

/// The caller's own errors and a full house are told before anything is done; a conflict or a cancel may come in the middle.
fn nothing_was_done(error: &Error) -> bool {
    match error.code() {
        Code::Conflict | Code::Cancelled => false,
        Code::Overloaded | Code::SessionUnavailable => true,
        code => code.fault() == Fault::Caller,
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn forget_ended(&mut self, now: Duration) {
        while let Some(id) = self.order.front().copied() {
            match self.slots.get(&id) {
                Some(slot) if slot.ends > now || matches!(slot.state, State::Running) => break,
                _ => self.free(&id),
            }
        }
    }

    fn make_room(&mut self) -> Result<(), Error> {
        if self.slots.len() < MAX_KEYS {
            return Ok(());
        }
        let done = |id: &&Id| self.slots.get(*id).is_some_and(|slot| matches!(slot.state, State::Done(_)));
        let oldest = self.order.iter().find(done).copied();
        let oldest =
            oldest.ok_or_else(|| Error::new(Code::Overloaded, "too many calls with an Idempotency-Key run"))?;
        self.free(&oldest);
        Ok(())
    }

    fn free(&mut self, id: &Id) {
        if let Some(slot) = self.slots.remove(id) {
            self.bytes -= slot.bytes();
        }
        // Mostly the first or the last one, so the search is short.
        if let Some(at) = self.order.iter().position(|other| other == id) {
            self.order.remove(at);
        }
    }

    fn done(&mut self, id: &Id, answer: Answer) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.state = State::Done(Some(answer));
        self.bytes += slot.bytes();
        for id in &self.order {
            if self.bytes <= MAX_BYTES {
                break;
            }
            if let Some(slot) = self.slots.get_mut(id)
                && matches!(slot.state, State::Done(_))
            {
                self.bytes -= slot.bytes();
                slot.state = State::Done(None);
            }
        }
    }
}

impl Slot {
    const fn bytes(&self) -> usize {
        match &self.state {
            State::Done(Some(Ok(body))) => body.len(),
            _ => 0,
        }
    }
}

fn id(identity: &Identity, key: &str) -> Id {
    digest(&[identity.tenant().as_bytes(), identity.user().as_bytes(), key.as_bytes()])
}

fn request(call: &Call) -> [u8; 32] {
    let version = call.version.map_or(0, helmdeck_core::Version::number).to_be_bytes();
    digest(&[call.pack.as_str().as_bytes(), &version, &call.input])
}

/// The parts are length-prefixed, so that no two lists of them run together into one.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idempotency").field("keys", &self.lock().slots.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
