//! What is not asked for a while: answers whose renewal failed, and upstreams that refuse every
//! request.
//!
//! Nothing is asked before the wait is over: at least as long as the upstream wants, else 1 s,
//! doubled with each failure up to 1 min. Then one call at a time probes; its success ends the
//! wait. Waits are shared through the system database, as far as it can be reached: other processes
//! read them once a second, while calls miss.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::jitter::jittered;
use helmdeck_core::secrets::Grant;
use helmdeck_core::{Clock, Code, Error, Fault, Quota, Timestamp};
use helmdeck_memory::framing::Framed;
use helmdeck_system::System;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::key::Key;

/// Wait after a failure; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Limit of the doubled wait. An upstream may ask for more.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Wait that callers are told while another call probes.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// Interval of reads from the system database, and the time budget of a read or write.
const SHARE_EVERY: Duration = Duration::from_secs(1);
/// Reason of what is not asked because the upstream is in trouble.
pub(crate) const UPSTREAM_BACKOFF: &str = "upstream_backoff";
/// Number of waits at which those that are over are dropped.
const MAX_WAITS: usize = 10_000;

/// What is not asked: an answer, or an upstream with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BackoffKey(pub(crate) u128);

impl BackoffKey {
    /// Returns the key of an answer.
    pub(crate) fn answer(key: &Key) -> Self {
        Self::from_digest(&key.0)
    }

    /// Returns the key of an upstream, asked with these credentials.
    pub(crate) fn upstream(name: &str, grants: &[Grant]) -> Self {
        let mut framed = Framed::new("helmdeck/upstream").text(name);
        for grant in grants {
            framed = framed.text(&grant.name).number(grant.version);
        }
        Self::from_digest(&Sha256::digest(framed.as_slice()).into())
    }

    fn from_digest(digest: &[u8; 32]) -> Self {
        Self(
            digest[..16]
                .iter()
                .fold(0, |key, byte| key << 8 | u128::from(*byte)),
        )
    }

    /// Returns its name in the system database.
    fn stored(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// A wait.
#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Timestamp,
    /// A clock that shows an earlier time was set back, which ends the wait.
    noted_at: Timestamp,
    /// Number of failures in a row.
    failures: u32,
    /// Whether a call asks right now.
    probed: bool,
}

impl Wait {
    /// Returns how long nothing is asked.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        let waits = now >= self.noted_at && now < self.until;
        waits
            .then(|| self.until.since(now))
            .or(self.probed.then_some(PROBE_WAIT))
    }
}

/// All waits of a process.
#[derive(Debug, Default)]
pub(crate) struct Backoffs {
    waits: Mutex<HashMap<BackoffKey, Wait>>,
    /// What is left of quotas, and when each is full again.
    quotas: Mutex<HashMap<BackoffKey, (u64, Timestamp)>>,
    /// Monotonic time of the last read of the system database.
    read_at: Mutex<Option<Duration>>,
}

/// Reason in the source of an error: the handler was not asked.
#[derive(Debug)]
pub(crate) struct HeldBack(pub(crate) &'static str);

impl HeldBack {
    /// Returns the reason of an error of a call that was held back.
    pub(crate) fn reason(error: &Error) -> Option<&'static str> {
        std::error::Error::source(error)?
            .downcast_ref::<Self>()
            .map(|held| held.0)
    }
}

impl std::fmt::Display for HeldBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for HeldBack {}

impl Backoffs {
    /// Returns whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.lock().is_empty()
    }

    /// Returns how long any of the keys is not asked.
    pub(crate) fn left(&self, keys: &[BackoffKey], now: Timestamp) -> Option<Duration> {
        left(&self.waits.lock(), keys, now)
    }

    /// Begins to ask; the wait if any of the keys is not asked now.
    pub(crate) fn ask(
        self: &Arc<Self>,
        keys: &[BackoffKey],
        now: Timestamp,
    ) -> Result<AskPermit, Duration> {
        let mut waits = self.waits.lock();
        if let Some(left) = left(&waits, keys, now) {
            return Err(left);
        }
        let mut probes = Vec::new();
        for key in keys {
            if let Some(wait) = waits.get_mut(key) {
                wait.probed = true;
                probes.push(*key);
            }
        }
        Ok(AskPermit {
            backoffs: Arc::clone(self),
            probes,
        })
    }

    /// Notes what is left of a quota.
    pub(crate) fn note_quota(&self, upstream: BackoffKey, quota: Quota, now: Timestamp) {
        self.quotas
            .lock()
            .insert(upstream, (quota.remaining, now.saturating_add(quota.reset)));
    }

    /// Returns how long an upstream is not asked because no more than `keep` requests of its quota
    /// are left.
    pub(crate) fn quota_kept(
        &self,
        upstream: BackoffKey,
        keep: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let &(remaining, reset_at) = self.quotas.lock().get(&upstream)?;
        (remaining <= keep && now < reset_at).then(|| reset_at.since(now))
    }

    /// Reads the waits of other processes, at most once a second.
    pub(crate) async fn read(&self, system: &System, clock: &dyn Clock) {
        let (now, at) = (clock.now(), clock.monotonic());
        {
            let mut read_at = self.read_at.lock();
            if read_at.is_some_and(|last| at < last + SHARE_EVERY) {
                return;
            }
            *read_at = Some(at);
        }
        let Ok(Ok(shared)) = tokio::time::timeout(SHARE_EVERY, system.backoffs(now)).await else {
            return;
        };
        let read = |(name, until): (String, _)| {
            Some((BackoffKey(u128::from_str_radix(&name, 16).ok()?), until))
        };
        let mut waits = self.waits.lock();
        // A wait that another process has ended is over here too: nothing is asked before its time
        // has passed.
        for (key, until) in shared.into_iter().filter_map(read) {
            let wait = waits.entry(key).or_insert(Wait {
                until,
                noted_at: now,
                failures: 1,
                probed: false,
            });
            wait.until = wait.until.max(until);
        }
    }
}

/// Returns how long any of the keys is not asked.
fn left(
    waits: &HashMap<BackoffKey, Wait>,
    keys: &[BackoffKey],
    now: Timestamp,
) -> Option<Duration> {
    keys.iter()
        .filter_map(|key| waits.get(key)?.left(now))
        .max()
}

/// Permit of a call to ask. Dropped without an end, it lets the next call probe.
#[derive(Debug)]
pub(crate) struct AskPermit {
    backoffs: Arc<Backoffs>,
    /// Keys that the call probes.
    probes: Vec<BackoffKey>,
}

impl AskPermit {
    /// Notes what the call came to: waits of the keys that failed, and the end of all others that
    /// it probed.
    ///
    /// `asked` is the wait that the upstream wants. Returns until when each failed key is not
    /// asked.
    pub(crate) fn ended(
        mut self,
        failed: &[BackoffKey],
        asked: Option<Duration>,
        now: Timestamp,
    ) -> Vec<(BackoffKey, Timestamp)> {
        let mut waits = self.backoffs.waits.lock();
        let probes = std::mem::take(&mut self.probes);
        for key in probes.iter().filter(|key| !failed.contains(key)) {
            waits.remove(key);
        }
        if waits.len() > MAX_WAITS {
            waits.retain(|_, wait| wait.probed || wait.until.saturating_add(LONGEST_WAIT) > now);
        }
        let note = |key: &BackoffKey| {
            let new = Wait {
                until: now,
                noted_at: now,
                failures: 0,
                probed: false,
            };
            let wait = waits.entry(*key).or_insert(new);
            let probed = probes.contains(key);
            // Calls that began before the first failure are no further ones.
            if probed || wait.failures == 0 {
                wait.failures = wait.failures.saturating_add(1);
            }
            let doubled = FIRST_WAIT
                .saturating_mul(1 << (wait.failures - 1).min(6))
                .min(LONGEST_WAIT);
            let next = asked.unwrap_or_default().max(jittered(doubled, 1.0..=1.25));
            wait.until = wait.until.max(now.saturating_add(next));
            wait.noted_at = now;
            wait.probed &= !probed;
            (*key, wait.until)
        };
        failed.iter().map(note).collect()
    }
}

impl Drop for AskPermit {
    fn drop(&mut self) {
        if self.probes.is_empty() {
            return;
        }
        let mut waits = self.backoffs.waits.lock();
        for key in &self.probes {
            if let Some(wait) = waits.get_mut(key) {
                wait.probed = false;
            }
        }
    }
}

/// Writes waits for other processes. A failure costs them a request, never a call.
pub(crate) async fn share(system: &System, waits: &[(BackoffKey, Timestamp)]) {
    for (key, until) in waits {
        let written =
            tokio::time::timeout(SHARE_EVERY, system.back_off(&key.stored(), *until)).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::debug!("a wait of an upstream was not shared with other processes");
        }
    }
}

/// Returns whether an error means trouble of the upstream or of this machine, which a stale answer
/// may cover.
///
/// RFC 5861 section 4 names 500, 502, 503 and 504: this machine or the one behind the pack. A
/// used-up quota counts too.
pub(crate) fn is_trouble(error: &Error) -> bool {
    error.code().fault() == Fault::Host
        || matches!(error.code(), Code::HandlerFailed | Code::RateLimited)
}
