//! Rotation: seals every row anew with the current key and in the newest format, while others read
//! and write.
//!
//! It keeps no state: each step is one transaction, and what is left to do is what names another
//! key. So it may be stopped or killed anywhere and begun again. It never deletes a row.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::keyring::KeyRing;
use crate::lock::Lock;
use crate::ops::{Mark, Resealed};
use crate::store::Store;

/// The lock that a rotation holds.
const LOCK: &str = "rotate";
/// How long the lock is held after a rotation was killed.
const HOLD: Duration = Duration::from_secs(5);
/// Interval between renewals of the lock.
const RENEW: Duration = Duration::from_secs(1);
/// Rows that one step looks at: a few milliseconds of writing, so that no writer waits long.
const STEP: usize = 256;
/// Most passes. After this many, another process keeps writing rows with other keys.
const PASSES: u32 = 10;
/// How often a step is tried while the store is busy.
const TRIES: u32 = 5;

/// End of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Every row that opens is sealed with the current key, which the store now proves.
    Done,
    /// The rotation was stopped; the next one continues.
    Stopped,
    /// Another process keeps writing rows with another key.
    StillWritten,
}

/// Result of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rotated {
    /// The id of the current key.
    pub key_id: String,
    /// Number of resealed rows.
    pub resealed: u64,
    /// Number of rows that no key of the ring opens; they are left unchanged.
    pub unreadable: u64,
    /// Number of rows still sealed with another key of the ring.
    pub remaining: u64,
    /// How the rotation ended.
    pub end: End,
}

/// Progress of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of resealed rows.
    pub resealed: u64,
    /// Number of rows of other keys at the start.
    pub total: u64,
}

/// Errors of a rotation.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// Another rotation runs on this store.
    #[error("another rotation runs on this store")]
    Busy,
    /// The ring has one key only, but other keys sealed rows.
    #[error("only key {given} is given, and the store has rows of {}", .others.join(", "))]
    KeysMissing {
        /// The id of the key given.
        given: String,
        /// The ids of the others.
        others: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reseals every row of the other keys with the current key.
///
/// Then it makes the store prove the current key.
///
/// `stop` ends it between two steps. `progress` is called after each step.
///
/// # Errors
/// See [`RotateError`]. Whatever was resealed so far stays so.
pub async fn rotate(
    store: &dyn Store,
    ring: &KeyRing,
    stop: &CancellationToken,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Rotated, RotateError> {
    let lock = take_lock(store).await?;
    let answer = Rotation {
        store,
        ring,
        lock: &lock,
        renewed: Instant::now(),
    }
    .run(stop, progress)
    .await;
    let released = lock.release().await;
    let rotated = answer?;
    // It expires by itself; but the caller should learn that the store fails.
    released?;
    Ok(rotated)
}

/// Takes the lock. Waits for that of a killed rotation to expire; a renewed lock is `Busy`.
async fn take_lock(store: &dyn Store) -> Result<Lock, RotateError> {
    let end = Instant::now() + HOLD + RENEW;
    loop {
        if let Some(lock) = store.try_lock(LOCK, HOLD).await? {
            return Ok(lock);
        }
        if Instant::now() >= end {
            return Err(RotateError::Busy);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

struct Rotation<'a> {
    store: &'a dyn Store,
    ring: &'a KeyRing,
    lock: &'a Lock,
    renewed: Instant,
}

impl Rotation<'_> {
    async fn run(
        mut self,
        stop: &CancellationToken,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Rotated, RotateError> {
        let others = self.others().await?;
        let total = others.iter().map(|(_, rows)| rows).sum();
        if self.ring.ids().count() == 1 {
            // Rows of this key in an older format are its own.
            let unknown = |id: &String| !id.is_empty() && !self.ring.knows(id);
            let others: Vec<String> = others
                .into_iter()
                .map(|(id, _)| id)
                .filter(unknown)
                .collect();
            if !others.is_empty() {
                return Err(RotateError::KeysMissing {
                    given: self.ring.current_id().to_owned(),
                    others,
                });
            }
        }
        let mut done = Rotated {
            key_id: self.ring.current_id().to_owned(),
            resealed: 0,
            unreadable: 0,
            remaining: total,
            end: End::StillWritten,
        };
        for _ in 0..PASSES {
            done.unreadable = 0;
            let mut after = None;
            loop {
                if stop.is_cancelled() {
                    return Ok(Rotated {
                        remaining: self.count_others().await?,
                        end: End::Stopped,
                        ..done
                    });
                }
                self.renew().await?;
                let step = self.step(after).await?;
                done.resealed += step.rows;
                done.unreadable += step.unreadable;
                progress(Progress {
                    resealed: done.resealed,
                    total,
                });
                match step.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            // What was written behind the pass by a process whose current key is another one is for
            // the next pass.
            done.remaining = self.count_others().await?.saturating_sub(done.unreadable);
            if done.remaining == 0 {
                self.store.adopt_key().await?;
                return Ok(Rotated {
                    end: End::Done,
                    ..done
                });
            }
        }
        Ok(done)
    }

    /// Returns the keys besides the current one that sealed rows, and how many.
    async fn others(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let current = self.ring.current_id();
        let all = self.store.stats().await?.rows_by_key_id;
        Ok(all
            .into_iter()
            .filter(|(id, rows)| id != current && *rows > 0)
            .collect())
    }

    async fn count_others(&self) -> Result<u64, StoreError> {
        Ok(self.others().await?.iter().map(|(_, rows)| rows).sum())
    }

    async fn step(&self, after: Option<Mark>) -> Result<Resealed, StoreError> {
        let mut tries = 1;
        loop {
            match self.store.reseal(after.clone(), STEP).await {
                Err(error) if error.is_temporary() && tries < TRIES => {
                    tracing::debug!(%error, "a step of the rotation is tried again");
                    tokio::time::sleep(tries * Duration::from_millis(100)).await;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    async fn renew(&mut self) -> Result<(), RotateError> {
        if self.renewed.elapsed() < RENEW {
            return Ok(());
        }
        if !self.lock.renew(HOLD).await? {
            return Err(RotateError::Busy);
        }
        self.renewed = Instant::now();
        Ok(())
    }
}
