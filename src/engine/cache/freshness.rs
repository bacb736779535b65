//! Whether a stored answer may be served to a call (RFC 9111, RFC 5861).

use std::time::Duration;

use helmdeck_core::outcome::UsedGrant;
use helmdeck_core::random::random_u64;
use helmdeck_core::{Call, Timestamp};

use super::answer::Answer;
use super::pack::PackCache;

/// Freshness of an answer for one call (RFC 9111, RFC 5861).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// May be served.
    Fresh,
    /// Stale, but the caller allows it.
    StaleAllowed,
    /// Stale; may be served while it is revalidated.
    StaleWhileRevalidate,
    /// Stale: not served. The handler may revalidate it, or it may be served after a failure.
    Stale,
    /// Past its hard limit: never used.
    Expired,
}

/// Tolerance for clock skew: an answer made later than this from now has a wrong timestamp.
const CLOCK_LEEWAY: Duration = Duration::from_secs(10);

fn is_from_future(answer: &Answer, now: Timestamp) -> bool {
    answer.made_at > now.saturating_add(CLOCK_LEEWAY)
}

impl PackCache {
    /// Returns the freshness of an answer for this call.
    pub(crate) fn freshness(&self, answer: &Answer, call: &Call, now: Timestamp) -> Freshness {
        let (fresh_until, hard_until) = self.bounds(answer);
        if now >= hard_until || !self.may_still_use(answer, call) {
            return Freshness::Expired;
        }
        if is_from_future(answer, now) {
            return Freshness::Stale;
        }
        let too_old = call
            .max_age
            .is_some_and(|max| now.since(answer.made_at) > max);
        if now < fresh_until {
            let too_short = call
                .min_fresh
                .is_some_and(|min| fresh_until.since(now) < min);
            return if too_old || too_short {
                Freshness::Stale
            } else {
                Freshness::Fresh
            };
        }
        let past = now.since(fresh_until);
        let renewable = self
            .manifest
            .cache()
            .map_or(Duration::ZERO, |spec| spec.stale_while_revalidate);
        if too_old {
            Freshness::Stale
        } else if call.max_stale.is_some_and(|max| past <= max) {
            Freshness::StaleAllowed
        } else if past < renewable {
            Freshness::StaleWhileRevalidate
        } else {
            Freshness::Stale
        }
    }

    /// Returns in one word why an answer is not served to this call as it is.
    pub(crate) fn why_not(&self, answer: &Answer, call: &Call) -> &'static str {
        let now = self.hub.clock.now();
        if !self.may_still_use(answer, call) {
            "grant_changed"
        } else if now < self.bounds(answer).0 && !is_from_future(answer, now) {
            "too_old"
        } else {
            "expired"
        }
    }

    /// Returns whether an answer may be served to this call as it is.
    pub(crate) fn may_serve(&self, answer: &Answer, call: &Call) -> bool {
        !matches!(
            self.freshness(answer, call, self.hub.clock.now()),
            Freshness::Stale | Freshness::Expired
        )
    }

    /// Returns until when an answer is fresh, and until when it can be served stale.
    ///
    /// Today's manifest decides: a shortened ttl counts for stored answers too.
    pub(crate) fn bounds(&self, answer: &Answer) -> (Timestamp, Timestamp) {
        let Some(spec) = self.manifest.cache() else {
            return (answer.fresh_until, answer.hard_until);
        };
        let ttl = match &answer.extras().error {
            Some(error) => spec.errors.get(&error.code).copied().unwrap_or_default(),
            None => spec.ttl,
        };
        let today = answer.made_at.saturating_add(ttl);
        let stale_for = if answer.extras().error.is_some() {
            Duration::ZERO
        } else {
            spec.stale_for()
        };
        (
            answer.fresh_until.min(today),
            answer.hard_until.min(today.saturating_add(stale_for)),
        )
    }

    /// Returns whether the same credentials are still open to this caller.
    ///
    /// They are those of the packs that were called for the answer. The pack's own are part of the
    /// key.
    pub(crate) fn may_still_use(&self, answer: &Answer, call: &Call) -> bool {
        let granted = |one: &UsedGrant| {
            self.secrets
                .grant(&one.grant.name, &call.identity, &one.pack)
        };
        answer
            .extras()
            .used
            .iter()
            .all(|one| granted(one).is_ok_and(|today| today.as_ref() == Some(&one.grant)))
    }

    /// Returns how long past its freshness an answer may be served if the handler fails or is slow.
    pub(crate) fn stale_if_error(&self) -> Duration {
        self.manifest
            .cache()
            .map_or(Duration::ZERO, |spec| spec.stale_if_error)
    }

    /// Returns whether an answer is so near its end that this call renews it, while it is served.
    ///
    /// The dearer an answer, the sooner: an answer is renewed once, as a rule, before it expires
    /// for all its callers (`XFetch`: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic
    /// Cache Stampede Prevention", 2015).
    pub(crate) fn renews_early(&self, answer: &Answer, now: Timestamp) -> bool {
        self.is_near_its_end(answer, now) && {
            let random = (random_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let ahead = answer.cost().as_secs_f64() * -random.max(f64::MIN_POSITIVE).ln();
            ahead >= self.bounds(answer).0.since(now).as_secs_f64()
        }
    }

    /// Returns whether an early renewal is possible: only in the last ten times the cost of an
    /// answer.
    pub(crate) fn is_near_its_end(&self, answer: &Answer, now: Timestamp) -> bool {
        self.manifest.cache().is_some_and(|spec| spec.early)
            && answer.extras().error.is_none()
            && self.bounds(answer).0.since(now) < answer.cost().saturating_mul(10)
    }

    /// Returns whether this answer covers a failure within a window past its freshness.
    pub(crate) fn may_cover(&self, answer: &Answer, window: Duration, now: Timestamp) -> bool {
        let (fresh_until, hard_until) = self.bounds(answer);
        let ends = fresh_until.saturating_add(window).min(hard_until);
        answer.extras().error.is_none()
            && !window.is_zero()
            && now < ends
            && !is_from_future(answer, now)
    }

    /// Returns whether all artifacts of an answer still exist.
    pub(crate) async fn has_files(&self, found: &Answer) -> bool {
        match &self.artifacts {
            _ if found.extras().artifacts.is_empty() => true,
            _ if self.has_private_files(&found.extras().artifacts) => false,
            Some(store) => store.all_exist(&found.extras().artifacts).await,
            None => false,
        }
    }
}
