//! Turns a handler's outcome into an answer, and keeps it if it may be stored.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::jitter::jittered;
use helmdeck_core::outcome::Remark;
use helmdeck_core::{ArtifactRef, Caching, Error, Json, NotKept, Outcome, Result, Timestamp};
use helmdeck_memory::leaks::first_leak;
use helmdeck_memory::sieve::COST;
use helmdeck_memory::{Kind, Lock, Namespace, Put};

use super::answer::{Answer, Times};
use super::pack::{Contract, Located, PackCache};
use super::queue::Write;
use helmdeck_artifacts::earliest_end;

impl PackCache {
    /// Returns the answer of an outcome, and whether it may be stored.
    pub(crate) async fn new_answer(
        &self,
        located: &Located,
        mut outcome: Outcome,
        now: Timestamp,
        cost: Duration,
    ) -> Result<(Arc<Answer>, Option<NotKept>)> {
        let refusal = match self.refusal(&outcome)? {
            None => match first_leak(outcome.output.bytes()).await {
                Some(rule) => Some(NotKept::Secret(rule)),
                None if !self.is_unchanged(&located.contract).await => {
                    Some(NotKept::Because("program_changed"))
                }
                None => None,
            },
            Some(word) => Some(NotKept::Because(word)),
        };
        let times = self.times(
            now,
            &outcome.artifacts,
            outcome.remark.confirm_always,
            &outcome.remark.caching,
        )?;
        let upstream_calls = outcome.remark.upstream_calls;
        // Copied, because a handler's buffer may be much larger than its output, which the hot tier
        // counts.
        if refusal.is_none() {
            outcome.output = Json::from_trusted(Bytes::copy_from_slice(outcome.output.bytes()));
        }
        let answer = Answer::new(
            Arc::clone(&located.location),
            &outcome,
            times,
            cost,
            upstream_calls,
        );
        match refusal {
            Some(NotKept::Because(word)) => self.hub.metrics.refused(word),
            Some(NotKept::Secret(_)) => self.hub.metrics.refused("token_format"),
            None => {}
        }
        Ok((Arc::new(answer), refusal))
    }

    /// Returns the answer of an error, if the manifest lets errors of this kind be stored.
    pub(crate) async fn error_answer(
        &self,
        located: &Located,
        error: &Error,
        now: Timestamp,
        cost: Duration,
    ) -> Option<Arc<Answer>> {
        let ttl = *self.spec().ok()?.errors.get(&error.code())?;
        // A secret of the call was redacted, or one of somebody else is in it.
        if helmdeck_redact::is_redacted(error.message())
            || first_leak(&Bytes::copy_from_slice(error.message().as_bytes()))
                .await
                .is_some()
        {
            self.hub.metrics.refused("secret");
            return None;
        }
        let fresh_until = now.saturating_add(ttl);
        let times = Times {
            made_at: now,
            fresh_until,
            hard_until: fresh_until,
        };
        let unchanged = self.is_unchanged(&located.contract).await;
        unchanged.then(|| {
            Arc::new(Answer::of_error(
                Arc::clone(&located.location),
                error,
                times,
                cost,
            ))
        })
    }

    /// Returns the new answer of one that the handler confirmed, and whether it may be stored.
    pub(crate) fn renewed_answer(
        &self,
        known: &Answer,
        remark: Remark,
        now: Timestamp,
    ) -> Result<(Arc<Answer>, Option<NotKept>)> {
        let confirm_always = remark.confirm_always || known.confirm_always;
        // What a confirmation does not say stays as it was (RFC 9111 section 4.3.4).
        let spec = self.spec()?;
        let before = Some(
            known
                .hard_until
                .since(known.made_at)
                .saturating_sub(spec.stale_for()),
        );
        let Caching {
            fresh_for,
            fresh_for_all,
            ..
        } = remark.caching;
        let caching = Caching {
            fresh_for: fresh_for.or(before),
            fresh_for_all: fresh_for_all.or(before),
            ..remark.caching
        };
        let times = self.times(now, &known.extras().artifacts, confirm_always, &caching)?;
        let refusal = spec.refused_by_upstream(&caching).map(NotKept::Because);
        Ok((
            Arc::new(known.renewed(remark.validator, times, &remark.used)),
            refusal,
        ))
    }

    /// Keeps an answer: in the hot tier at once, in the store after the response.
    ///
    /// The lock is released once the row is stored.
    ///
    /// # Errors
    /// Why the answer was not kept.
    pub(crate) fn keep(
        &self,
        located: &Located,
        answer: &Arc<Answer>,
        now: Timestamp,
        lock: Option<Lock>,
    ) -> Result<(), NotKept> {
        let purged = NotKept::Because("purged");
        let (Ok(spec), Ok(digests)) = (self.spec(), self.digests(located)) else {
            return Err(purged);
        };
        let location = &answer.location;
        if !self.hub.hot.warm(answer) {
            return Err(purged);
        }
        let namespace: Namespace = location.namespace.clone();
        let mut put = Put::new(
            namespace,
            Kind::Cache,
            location.key.stored(&location.pack, location.version),
            answer.encode(&located.contract.hex),
        );
        put.category.clone_from(&spec.category);
        put.tags = location.tags.to_vec();
        put.ttl = Some(answer.hard_until.since(now));
        put.attributes = [
            ("pack", location.pack.to_string()),
            ("version", location.version.to_string()),
            ("scope", spec.scope.as_str().to_owned()),
            ("contract", digests.contract),
            ("credentials", digests.credentials),
            ("input", digests.input),
            ("fresh_until", answer.fresh_until.micros().to_string()),
            (COST, answer.cost().as_micros().to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        let epoch = self.hub.hot.epoch();
        let write = Write {
            put,
            location: Arc::clone(location),
            cost: answer.cost(),
            epoch,
            lock,
        };
        self.hub
            .write(write)
            .then_some(())
            .ok_or(NotKept::Because("writes_behind"))
    }

    /// Returns the times of an answer made now. It expires no later than its artifacts.
    fn times(
        &self,
        now: Timestamp,
        artifacts: &[ArtifactRef],
        confirm_always: bool,
        caching: &Caching,
    ) -> Result<Times> {
        let spec = self.spec()?;
        let end = earliest_end(artifacts).unwrap_or(Timestamp::MAX);
        let ttl = spec.ttl_of(caching);
        let fresh_for = jittered(ttl, 1.0 - spec.ttl_jitter..=1.0);
        Ok(Times {
            made_at: now,
            fresh_until: if confirm_always {
                now
            } else {
                now.saturating_add(fresh_for).min(end)
            },
            hard_until: now
                .saturating_add(ttl)
                .saturating_add(spec.stale_for())
                .min(end),
        })
    }

    /// Returns why an answer must not be stored, if so, before the leak scan.
    fn refusal(&self, outcome: &Outcome) -> Result<Option<&'static str>> {
        let spec = self.spec()?;
        Ok(if self.has_private_files(&outcome.artifacts) {
            Some("shared_artifact")
        } else if outcome.remark.had_secret {
            Some("secret")
        } else if outcome.remark.no_store {
            Some("no_store")
        } else if outcome.output.bytes().len() as u64 > spec.max_bytes {
            Some("too_large")
        } else {
            spec.refused_by_upstream(&outcome.remark.caching)
        })
    }

    /// Returns whether the program's files are still those of the contract.
    ///
    /// They are compared byte for byte, and must not have been changed since.
    async fn is_unchanged(&self, contract: &Contract) -> bool {
        match (&self.program, &contract.version) {
            (Some(program), Some(then)) => program.now().await.is_some_and(|now| now.is(then)),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }
}
