//! Used keys in the system database, so that they survive a restart and other processes see them.
//!
//! It stores digests and sealed bytes only.

use helmdeck_core::hex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Code, Error, Identity, Timestamp};
use helmdeck_memory::{KeyRing, Namespace, StoreError};
use helmdeck_system::{Begun, Fence, KeptEnd, KeyEnd, KeyRequest, Replica, System};
use tokio::sync::OnceCell;

use super::kept::{Digest32, KEPT_FOR, KeptAnswer, KeyState};

const OPERATION: &str = "rest";
const PURPOSE: &str = "idempotency";
/// Maximum size of a stored answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How often expired keys are deleted.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// The system database, and the keyring that seals answers. Without a keyring, answers are not
/// stored.
#[derive(Debug)]
pub(crate) struct Ledger {
    system: System,
    replica: OnceCell<Arc<Replica>>,
    keyring: Option<Arc<KeyRing>>,
    swept_at: AtomicI64,
}

/// A key, after a call asked for it.
pub(super) enum Taken {
    /// It belongs to this call.
    New(Fence),
    /// The state of its call, and whether that was the same request.
    Known(KeyState, bool),
}

impl Ledger {
    pub(crate) fn new(system: System, keyring: Option<Arc<KeyRing>>) -> Self {
        Self {
            system,
            replica: OnceCell::new(),
            keyring,
            swept_at: AtomicI64::new(i64::MIN),
        }
    }

    /// Takes a key, or returns the state of its call and whether it was the same request.
    ///
    /// With `repeatable`, the key of a call whose process is gone is taken over. Else it is unknown
    /// what that call did, and it is not made again.
    ///
    /// # Errors
    /// `overloaded` if the database fails: a call that must not be made twice is not made then.
    pub(super) async fn begin(
        &self,
        identity: &Identity,
        id: &Digest32,
        request: &Digest32,
        repeatable: bool,
        now: Timestamp,
    ) -> Result<Taken, Error> {
        self.sweep(now).await;
        let (scope, key) = (scope(identity), hex(id));
        let asked = KeyRequest {
            scope: &scope,
            key: &key,
            digest: request,
            keep: KEPT_FOR,
            repeatable,
        };
        let replica = self
            .replica
            .get_or_try_init(|| self.system.replica())
            .await
            .map_err(unavailable)?;
        Ok(
            match self
                .system
                .begin(asked, replica, now)
                .await
                .map_err(unavailable)?
            {
                Begun::New(fence) => Taken::New(fence),
                Begun::InFlight { digest } => Taken::Known(KeyState::Running, digest == request),
                Begun::Lost { digest } => Taken::Known(KeyState::Lost, digest == request),
                Begun::Done { digest, answer } => {
                    let answer = answer.and_then(|sealed| self.unseal(identity, id, &sealed));
                    Taken::Known(KeyState::Done(answer), digest == request)
                }
            },
        )
    }

    /// Stores the result of the call, or frees its key if there is none.
    pub(super) async fn finish(
        &self,
        identity: &Identity,
        id: &Digest32,
        fence: Fence,
        answer: Option<&KeptAnswer>,
        now: Timestamp,
    ) {
        let kept = |answer| KeptEnd {
            answer: self.seal(identity, id, answer),
            expires_at: now.saturating_add(KEPT_FOR),
        };
        let end = KeyEnd {
            scope: scope(identity),
            key: hex(id),
            fence,
            ended: answer.map(kept),
        };
        self.system.end_key(end).await;
    }

    async fn sweep(&self, now: Timestamp) {
        let before = self.swept_at.load(Ordering::Relaxed);
        let due = Timestamp(before).saturating_add(SWEEP_EVERY) <= now;
        // Only the request that swaps the time sweeps.
        if due
            && self
                .swept_at
                .compare_exchange(before, now.micros(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            && let Err(error) = self.system.sweep(now).await
        {
            tracing::debug!(%error, "idempotency keys that have ended could not be swept");
        }
    }

    fn seal(&self, identity: &Identity, id: &Digest32, answer: &KeptAnswer) -> Option<Vec<u8>> {
        let plain = encode(answer);
        if plain.len() > MAX_ANSWER_BYTES {
            return None;
        }
        self.keyring
            .as_ref()?
            .seal_blob(&Namespace::of_caller(identity), PURPOSE, id, &plain)
            .ok()
    }

    /// An answer that cannot be decrypted counts as no longer stored.
    fn unseal(&self, identity: &Identity, id: &Digest32, sealed: &[u8]) -> Option<KeptAnswer> {
        let plain = self
            .keyring
            .as_ref()?
            .open_blob(&Namespace::of_caller(identity), PURPOSE, id, sealed)
            .ok()?;
        decode(plain)
    }
}

/// Returns the caller's own scope, so that forgetting a caller finds it.
fn scope(identity: &Identity) -> String {
    System::scope(identity.tenant(), identity.user(), OPERATION)
}

fn unavailable(error: StoreError) -> Error {
    Error::new(
        Code::Overloaded,
        "the record of idempotency keys is not available; nothing was done",
    )
    .with_source(error)
}

/// Encodes an outcome as `+` and its JSON, an error as `-`, its code, a line feed and its message.
fn encode(answer: &KeptAnswer) -> Vec<u8> {
    match answer {
        Ok(body) => [b"+", &body[..]].concat(),
        Err(error) => format!("-{}\n{}", error.code(), error.message()).into_bytes(),
    }
}

fn decode(plain: Vec<u8>) -> Option<KeptAnswer> {
    match plain.first()? {
        b'+' => Some(Ok(Bytes::from(plain).slice(1..))),
        _ => {
            let text = String::from_utf8(plain).ok()?;
            let (code, message) = text.strip_prefix('-')?.split_once('\n')?;
            let code = Code::ALL.iter().find(|known| known.as_str() == code)?;
            Some(Err(Error::new(*code, message.to_owned())))
        }
    }
}
