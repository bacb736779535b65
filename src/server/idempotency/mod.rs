//! `Idempotency-Key`: a repeated write with the same key gets the first call's answer.
//!
//! A write pack runs at most once per key and caller (draft-ietf-httpapi-idempotency-key-header).
//! Answers are kept in memory for at most 24 hours. With a system database the record that a key
//! was used survives the process. With a memory key its answer survives too, sealed. Of a call
//! nothing else is written except digests.

mod kept;
mod ledger;
#[cfg(test)]
mod tests;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use helmdeck_core::error::Fault;
use helmdeck_core::{Call, Clock, Code, Error, Identity};
use helmdeck_system::Fence;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::problem::Problem;
use kept::{Digest32, KEPT_FOR, KeptAnswer, KeyEntry, KeyState, RecentKeys};
pub(crate) use ledger::Ledger;
use ledger::Taken;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Marks a response as the answer of an earlier request, if it is one.
pub(crate) fn mark<B>(response: &mut http::Response<B>, replayed: bool) {
    if replayed {
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
    }
}

/// What a request with a key asks for. The same input is another request if the operation differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The outcome.
    Call,
    /// A job.
    Job,
}

/// Reads the key of a request, `None` if it has none. Quotes around it are optional.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let text = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let visible = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    if values.next().is_some() || text.is_empty() || text.len() > 255 || !visible {
        return Err(Problem::new(
            Code::InvalidInput,
            "Idempotency-Key must be one text of 1 to 255 visible characters",
        ));
    }
    Ok(Some(text.to_owned()))
}

/// Used keys and their answers.
#[derive(Debug, Clone)]
pub(crate) struct Idempotency(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    kept: Mutex<RecentKeys>,
    ledger: Option<Ledger>,
}

/// State of a key when a call with it arrives.
pub(crate) enum Begun {
    /// The key is new: the call may run, and must report its result.
    New(Ticket),
    /// The answer of the first call.
    Repeat(KeptAnswer),
}

/// The right to run the only call of a key.
pub(crate) struct Ticket {
    id: Digest32,
    identity: Arc<Identity>,
    inner: Arc<Inner>,
    /// Proof for the system database.
    fence: Option<Fence>,
    finished: bool,
}

impl Idempotency {
    /// Makes an empty record.
    pub(crate) fn new(clock: Arc<dyn Clock>, ledger: Option<Ledger>) -> Self {
        Self(Arc::new(Inner {
            clock,
            kept: Mutex::default(),
            ledger,
        }))
    }

    /// Looks a key up, and takes it if it is new. The call must then run to its end, as its own
    /// task.
    ///
    /// A call that is `repeatable` is made again if the process that made it is gone.
    ///
    /// # Errors
    /// 409 if the first call still runs, was cut off, or its answer is no longer stored; 422 if it
    /// was another request; 503 if the system database fails: then nothing was done.
    pub(crate) async fn begin(
        &self,
        operation: Operation,
        call: &Call,
        key: &str,
        repeatable: bool,
    ) -> Result<Begun, Problem> {
        let (id, request) = (id(&call.identity, key), request(operation, call));
        let mut ticket = {
            let now = self.0.clock.monotonic();
            let mut kept = self.0.lock();
            kept.forget_ended(now);
            if let Some(slot) = kept.slots.get(&id) {
                return repeat(&slot.state, slot.request == request);
            }
            kept.make_room()?;
            kept.slots.insert(
                id,
                KeyEntry {
                    request,
                    ends: now + KEPT_FOR,
                    state: KeyState::Running,
                },
            );
            kept.order.push_back(id);
            Ticket {
                id,
                identity: Arc::clone(&call.identity),
                inner: Arc::clone(&self.0),
                fence: None,
                finished: false,
            }
        };
        let Some(ledger) = &self.0.ledger else {
            return Ok(Begun::New(ticket));
        };
        match ledger
            .begin(
                &call.identity,
                &id,
                &request,
                repeatable,
                self.0.clock.now(),
            )
            .await
        {
            Ok(Taken::New(fence)) => {
                ticket.fence = Some(fence);
                Ok(Begun::New(ticket))
            }
            Ok(Taken::Known(state, same_request)) => {
                ticket.forget();
                repeat(&state, same_request)
            }
            Err(error) => {
                ticket.forget();
                Err(error.into())
            }
        }
    }
}

fn repeat(state: &KeyState, same_request: bool) -> Result<Begun, Problem> {
    let conflict = |detail| Err(Problem::new(Code::Conflict, detail));
    match state {
        _ if !same_request => Err(Problem::http(
            StatusCode::UNPROCESSABLE_ENTITY,
            "this Idempotency-Key was used for another request; take a new key",
        )),
        KeyState::Running => {
            conflict("the first call with this Idempotency-Key has not ended; try again later")
        }
        KeyState::Lost => conflict(
            "the server that made the call with this Idempotency-Key went away in the middle, so its effect is unknown; look \
             whether it took effect, then take a new key",
        ),
        KeyState::Done(None) => {
            conflict("the call with this Idempotency-Key was made; its answer is no longer kept")
        }
        KeyState::Done(Some(answer)) => Ok(Begun::Repeat(answer.clone())),
    }
}

impl Ticket {
    /// Stores the answer. If it says that nothing was done, the key is free again instead.
    pub(crate) async fn finish(mut self, answer: &KeptAnswer) {
        let kept = !matches!(answer, Err(error) if nothing_was_done(error));
        if let (Some(ledger), Some(fence)) = (&self.inner.ledger, self.fence) {
            // Write to the database first: while the call counts as running in memory, no other
            // request reads the database.
            let (answer, now) = (kept.then_some(answer), self.inner.clock.now());
            ledger
                .finish(&self.identity, &self.id, fence, answer, now)
                .await;
        }
        self.finished = true;
        let mut memory = self.inner.lock();
        if kept {
            memory.done(&self.id, answer.clone())
        } else {
            memory.free(&self.id)
        }
    }

    /// Frees the key: the call was not made.
    fn forget(mut self) {
        self.finished = true;
        self.inner.lock().free(&self.id);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            // It is unknown what the call did, so it must not be made again under this key.
            self.inner.lock().done(
                &self.id,
                Err(Error::new(
                    Code::Internal,
                    "the call ended without an answer",
                )),
            );
        }
    }
}

/// Says whether an error comes before anything was done. A conflict or a cancel may come in the
/// middle.
fn nothing_was_done(error: &Error) -> bool {
    match error.code() {
        Code::Conflict | Code::Cancelled => false,
        Code::Overloaded | Code::SessionUnavailable => true,
        code => code.fault() == Fault::Caller,
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, RecentKeys> {
        self.kept.lock()
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idempotency")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

fn id(identity: &Identity, key: &str) -> Digest32 {
    digest(&[
        identity.tenant().as_bytes(),
        identity.user().as_bytes(),
        key.as_bytes(),
    ])
}

fn request(operation: Operation, call: &Call) -> Digest32 {
    let version = call
        .version
        .map_or(0, helmdeck_core::Version::number)
        .to_be_bytes();
    let parts = [call.pack.as_str().as_bytes(), &version, &call.input, b"job"];
    digest(if operation == Operation::Job {
        &parts
    } else {
        &parts[..3]
    })
}

/// The parts are length-prefixed, so that no two lists of them run together into one.
fn digest(parts: &[&[u8]]) -> Digest32 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
