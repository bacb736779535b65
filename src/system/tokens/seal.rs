//! Seals of tokens, where there is a memory key: who can write the database, and has no key, makes
//! no token, changes none, and brings none back.
//!
//! Each row has a seal that binds everything that the token is. The head names the tokens that have
//! ended before they expire, and is written in the transaction that ends them. A row whose seal
//! does not open, or that the head names, is no token. A new head has another epoch, which every
//! seal binds: it does away with all tokens of before.
//!
//! A database that was put back whole, with its head, is seen by a process that knows a later head,
//! and by no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use aes_gcm::aead::Generate;
use helmdeck_core::{Timestamp, hex};
use helmdeck_memory::framing::Framed;
use helmdeck_memory::{KeyRing, Namespace, Result, StoreError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{ApiToken, ancestors_text};
use crate::driver::{Ended, NextHead, TokenRow};

/// Purpose of the key of heads.
const HEAD: &str = "helmdeck/tokens/head/v1";
/// Purpose of the key of rows.
const ROW: &str = "helmdeck/tokens/row/v1";

/// Content of a head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenHead {
    /// Random, and bound by the seal of every row.
    epoch: String,
    /// Grows with every change.
    counter: u64,
    /// The tokens that ended early, and when they would have expired; `None` = never.
    ended: BTreeMap<String, Option<i64>>,
}

impl TokenHead {
    /// Makes the head of a database without one.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub(super) fn new() -> Result<Self> {
        let epoch = hex(&<[u8; 16]>::try_generate().map_err(StoreError::unavailable)?);
        Ok(Self {
            epoch,
            ..Self::default()
        })
    }

    /// Returns whether a token, or one that it descends from, has ended. Its row may have been put
    /// back.
    pub(super) fn has_ended(&self, token: &ApiToken) -> bool {
        std::iter::once(&token.id)
            .chain(&token.ancestors)
            .any(|id| self.ended.contains_key(id))
    }

    /// Adds what has ended, and drops what has expired.
    pub(super) fn end(&mut self, ended: &[Ended], now: Timestamp) {
        self.ended.extend(
            ended
                .iter()
                .map(|(id, expires_at)| (id.clone(), *expires_at)),
        );
        self.ended
            .retain(|_, expires_at| expires_at.is_none_or(|end| end > now.micros()));
        self.counter = (self.counter + 1).max(now.micros().unsigned_abs());
    }
}

/// Makes and checks the seals of one database.
#[derive(Debug, Clone)]
pub(crate) struct TokenSeal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ring: KeyRing,
    known: Mutex<Known>,
}

/// The head that was read last.
#[derive(Debug, Default)]
struct Known {
    generation: Option<u64>,
    head: Option<Arc<TokenHead>>,
    /// The highest counter of any head.
    counter: u64,
}

/// No caller has this name.
fn namespace() -> Namespace {
    Namespace::new("helmdeck/tokens", "", None)
}

impl TokenSeal {
    pub(crate) fn new(ring: KeyRing) -> Self {
        Self(Arc::new(Inner {
            ring,
            known: Mutex::default(),
        }))
    }

    /// Opens a head; `None` if it was altered, or sealed with another key.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<TokenHead> {
        let plain = self
            .0
            .ring
            .open_blob(&namespace(), HEAD, b"", sealed)
            .ok()?;
        serde_json::from_slice(&plain).ok()
    }

    /// Seals a head: with the key of the one before it, so that servers that do not have a new key
    /// yet go on.
    pub(super) fn seal(&self, head: &TokenHead, before: Option<&[u8]>) -> Result<Vec<u8>> {
        let plain =
            serde_json::to_vec(head).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.0
            .ring
            .seal_blob_like(before, &namespace(), HEAD, b"", &plain)
    }

    /// Returns the seal of a token, with the key of the head.
    pub(super) fn seal_row(
        &self,
        head: (&TokenHead, &[u8]),
        token: &ApiToken,
        digest: &[u8],
    ) -> Result<Vec<u8>> {
        let bound = bound(head.0, token, digest);
        self.0
            .ring
            .seal_blob_like(Some(head.1), &namespace(), ROW, bound.as_slice(), b"")
    }

    /// Returns whether a row is a token that has not ended.
    pub(super) fn proves(&self, head: &TokenHead, row: &TokenRow) -> bool {
        let TokenRow {
            token,
            digest,
            seal,
            ..
        } = row;
        let Some(seal) = seal else { return false };
        let bound = bound(head, token, digest);
        !head.has_ended(token)
            && self
                .0
                .ring
                .open_blob(&namespace(), ROW, bound.as_slice(), seal)
                .is_ok()
    }

    /// Returns the head of a generation, if it is the one known.
    pub(super) fn known(&self, generation: u64) -> Option<Option<Arc<TokenHead>>> {
        let known = self.0.known.lock();
        (known.generation == Some(generation)).then(|| known.head.clone())
    }

    /// Takes note of a head that was read, and returns it; `None` if there is none, or it does not
    /// count.
    pub(super) fn learn(&self, generation: u64, sealed: Option<&[u8]>) -> Option<Arc<TokenHead>> {
        let head = sealed.and_then(|sealed| self.open(sealed));
        let mut known = self.0.known.lock();
        let counter = head.as_ref().map_or(0, |head| head.counter);
        let is_older = counter < known.counter;
        if is_older {
            tracing::error!(
                "the API tokens were put back to an earlier state: their head has counter {counter}, and had {}; none is \
                 accepted until one is revoked, or this server is started again",
                known.counter
            );
        }
        known.generation = Some(generation);
        known.head = head.filter(|_| !is_older).map(Arc::new);
        known.counter = known.counter.max(counter);
        known.head.clone()
    }

    /// Returns what makes the next head when tokens end.
    pub(super) fn next_head(&self, now: Timestamp) -> NextHead {
        let this = self.clone();
        Arc::new(move |sealed, ended| {
            let sealed = sealed?;
            let mut head = this.open(sealed)?;
            head.end(ended, now);
            // Without one the tokens have ended all the same; only their rows could be put back.
            this.seal(&head, Some(sealed))
                .inspect_err(|error| tracing::error!(%error, "the head of tokens"))
                .ok()
        })
    }
}

fn bound(head: &TokenHead, token: &ApiToken, digest: &[u8]) -> Framed {
    Framed::new("helmdeck/tokens/row")
        .text(&head.epoch)
        .text(&token.id)
        .bytes(digest)
        .text(&token.name)
        .text(&token.tenant)
        .text(&token.subject)
        .text(&token.scope)
        .number(token.created_at.micros().cast_unsigned())
        .text(
            &token
                .expires_at
                .map_or_else(String::new, |end| end.micros().to_string()),
        )
        .text(&ancestors_text(&token.ancestors))
}
