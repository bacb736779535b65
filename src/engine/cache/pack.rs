//! One pack's handle on the cache: made at registration, when both gates are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::call::Raw;
use helmdeck_core::context::CallSecrets;
use helmdeck_core::leaks;
use helmdeck_core::manifest::{CacheSpec, Scope};
use helmdeck_core::outcome::UsedGrant;
use helmdeck_core::secrets::{Secrets, credential_tag, is_credential_tag};
use helmdeck_core::{ArtifactRef, Call, Code, Error, Manifest, Outcome, Result, Timestamp};
use helmdeck_memory::{Kind, Lock, Namespace, Put};

use super::answer::{Answer, Location, Times};
use super::counters::Counters;
use super::hub::{Alias, Hub};
use super::key::{Digests, Parts, canonical_input, for_handler, hex, namespace};
use super::tags::{bounded, families};
use super::writer::Write;
use crate::artifacts::{ArtifactStore, earliest_end};
use crate::program::{Program, ProgramVersion};

/// The cache, as one registered pack sees it.
pub(crate) struct PackCache {
    pub(crate) hub: Arc<Hub>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) artifacts: Option<Arc<ArtifactStore>>,
    pub(crate) counters: Arc<Counters>,
    secrets: Arc<dyn Secrets>,
    contract: Arc<Contract>,
    /// The program behind the pack, whose digest is part of the contract; `None` if it is no file.
    pub(crate) program: Option<Arc<Program>>,
    /// Tells this registration from every other.
    stack: u64,
}

/// Location of a call's answer, and what its key was made of.
pub(crate) struct Located {
    pub(crate) location: Arc<Location>,
    pub(crate) contract: Arc<Contract>,
    /// The canonical form of the input.
    pub(crate) input: Bytes,
    secrets: Option<Arc<dyn CallSecrets>>,
}

/// Freshness of an answer for one call (RFC 9111, RFC 5861).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// May be served.
    Fresh,
    /// Stale, but the caller allows it.
    StaleAllowed,
    /// Stale; may be served while it is revalidated.
    StaleWhileRevalidate,
    /// Not to be served; the handler may revalidate it or fall back on it.
    Stale,
    /// Past its hard limit: not used at all.
    Expired,
}

/// Digest of what makes an answer and is no part of the call: schemas, handler, epoch.
pub(crate) struct Contract {
    pub(crate) bytes: [u8; 32],
    pub(crate) hex: String,
    /// The state of the program's files.
    version: Option<Arc<ProgramVersion>>,
}

impl Contract {
    fn new(bytes: [u8; 32], version: Option<Arc<ProgramVersion>>) -> Self {
        Self { bytes, hex: hex(&bytes), version }
    }
}

/// Tolerance for clock skew: an answer made later than this from now has a wrong timestamp.
const CLOCK_LEEWAY: Duration = Duration::from_secs(10);

fn is_from_future(answer: &Answer, now: Timestamp) -> bool {
    answer.made_at > now.saturating_add(CLOCK_LEEWAY)
}

impl PackCache {
    pub(crate) fn new(
        hub: Arc<Hub>,
        manifest: Arc<Manifest>,
        contract: [u8; 32],
        secrets: Arc<dyn Secrets>,
        artifacts: Option<Arc<ArtifactStore>>,
        program: Option<Arc<Program>>,
    ) -> Self {
        static STACKS: AtomicU64 = AtomicU64::new(0);
        let counters = hub.counters.of(manifest.name.as_str());
        let stack = STACKS.fetch_add(1, Ordering::Relaxed);
        let contract = Contract::new(contract, program.as_ref().map(|program| program.at_start()));
        Self { hub, artifacts, counters, secrets, contract: Arc::new(contract), program, stack, manifest }
    }

    /// Returns the manifest's cache section. A handle is only made when there is one.
    pub(crate) fn spec(&self) -> Result<&CacheSpec> {
        self.manifest.cache().ok_or_else(|| Error::new(Code::Internal, "a pack without a cache section is cached"))
    }

    /// Says whether an answer of one caller would become part of one that callers share: the pack that calls is of scope
    /// `shared`, this one is not.
    pub(crate) fn would_leak(&self, call: &Call) -> bool {
        call.stage.called_by.as_ref().is_some_and(|calling| calling.shared)
            && self.manifest.cache().is_none_or(|spec| spec.scope != Scope::Shared)
    }

    /// Says whether an answer is of use to one caller only although callers share answers: an artifact belongs to whoever ran
    /// the pack, and to everybody else its reference leads nowhere.
    pub(crate) fn is_of_one(&self, artifacts: &[ArtifactRef]) -> bool {
        !artifacts.is_empty() && self.manifest.cache().is_some_and(|spec| spec.scope == Scope::Shared)
    }

    /// Returns the contract of a call that runs now. That of a program is read from its files, so this may take a read of them
    /// off the runtime.
    pub(crate) async fn contract(&self) -> Arc<Contract> {
        let Some(program) = &self.program else { return Arc::clone(&self.contract) };
        let Some(now) = program.now().await else { return Arc::clone(&self.contract) };
        if self.contract.version.as_ref().is_some_and(|start| start.is(&now)) {
            return Arc::clone(&self.contract);
        }
        Arc::new(Contract::new(self.manifest.contract(&now.digest), Some(now)))
    }

    /// Returns the contract if it cannot change while this registration lives.
    pub(crate) fn fixed_contract(&self) -> Option<Arc<Contract>> {
        self.program.is_none().then(|| Arc::clone(&self.contract))
    }

    /// Returns the bytes of a call that comes in now.
    pub(crate) fn raw(&self, call: &Call) -> Raw {
        Raw { input: call.input.clone(), secrets: self.secrets.generation() }
    }

    /// Returns the alias of a call's bytes, as they came in.
    pub(crate) fn alias(&self, call: &Call, raw: Raw) -> Alias {
        Alias { stack: self.stack, secrets: raw.secrets, identity: Arc::clone(&call.identity), input: raw.input }
    }

    /// Returns where the answer to a call belongs, or why the call cannot be cached: a word of [`CacheInfo::BYPASS_REASONS`].
    pub(crate) fn locate(&self, call: &Call, contract: Arc<Contract>) -> Result<Located, &'static str> {
        let spec = self.spec().map_err(|_| "input")?;
        if self.would_leak(call) {
            return Err("shared_caller");
        }
        let uncached = if call.identity.is_anonymous() { "anonymous" } else { "no_session" };
        let namespace = namespace(&call.identity, spec.scope, call.stage.pinned_session.as_ref()).ok_or(uncached)?;
        let input = Bytes::from(canonical_input(call).map_err(|_| "input")?);
        let secrets = call.stage.secrets.clone();
        let key = self.parts(spec, &contract, &input, secrets.as_ref()).key(&self.hub.keyring, &namespace);
        // Of the canonical form: two spellings of one input have one entry, and so the same tags.
        let value = if spec.tags.is_empty() { None } else { serde_json::from_slice(&for_handler(&input)).ok() };
        let value: serde_json::Value = value.unwrap_or_default();
        let of_spec: Vec<String> =
            spec.tags.iter().filter_map(|tag| tag.fill(&value)).map(|tag| tag.text.to_lowercase()).collect();
        let families = families(of_spec.iter().filter(|tag| !is_credential_tag(tag)));
        let grants = secrets.as_ref().map_or(&[][..], |secrets| secrets.grants());
        let of_grants = grants.iter().map(|grant| credential_tag(&grant.name));
        let of_spec = of_spec.into_iter().filter(|tag| !is_credential_tag(tag)).map(bounded);
        let tags: Vec<String> = of_spec.chain(families).chain(of_grants).collect();
        let (pack, version) = (self.manifest.name.clone(), self.manifest.version);
        let location = Arc::new(Location { key, pack, version, namespace, tags: tags.into() });
        Ok(Located { location, contract, input, secrets })
    }

    fn parts<'a>(
        &'a self,
        spec: &CacheSpec,
        contract: &'a Contract,
        input: &'a [u8],
        secrets: Option<&'a Arc<dyn CallSecrets>>,
    ) -> Parts<'a> {
        Parts {
            pack: &self.manifest.name,
            version: self.manifest.version,
            contract: &contract.bytes,
            scope: spec.scope,
            grants: secrets.map_or(&[], |secrets| secrets.grants()),
            input,
        }
    }

    /// Returns digests of what the key was made of.
    pub(crate) fn digests(&self, located: &Located) -> Result<Digests> {
        let parts = self.parts(self.spec()?, &located.contract, &located.input, located.secrets.as_ref());
        Ok(parts.digests(&self.hub.keyring, &located.location.namespace))
    }

    /// Returns the freshness of an answer for this call.
    pub(crate) fn freshness(&self, answer: &Answer, call: &Call, now: Timestamp) -> Freshness {
        let (fresh_until, hard_until) = self.bounds(answer);
        if now >= hard_until || !self.may_still_use(answer, call) {
            return Freshness::Expired;
        }
        if is_from_future(answer, now) {
            return Freshness::Stale;
        }
        let too_old = call.max_age.is_some_and(|max| now.since(answer.made_at) > max);
        if now < fresh_until {
            return if too_old { Freshness::Stale } else { Freshness::Fresh };
        }
        let past = now.since(fresh_until);
        let renewable = self.manifest.cache().map_or(Duration::ZERO, |spec| spec.stale_while_revalidate);
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

    /// Returns until when an answer is fresh and until when it is of use, by the manifest of today: a shortened ttl counts.
    pub(crate) fn bounds(&self, answer: &Answer) -> (Timestamp, Timestamp) {
        let Some(spec) = self.manifest.cache() else { return (answer.fresh_until, answer.hard_until) };
        let fresh_until = answer.fresh_until.min(answer.made_at.saturating_add(spec.ttl));
        (fresh_until, answer.hard_until.min(answer.made_at.saturating_add(spec.hard_ttl())))
    }

    /// Says whether the program is still the one that the contract was made of, byte for byte and untouched since.
    pub(crate) async fn is_unchanged(&self, contract: &Contract) -> bool {
        match (&self.program, &contract.version) {
            (Some(program), Some(then)) => program.now().await.is_some_and(|now| now.is(then)),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Says whether the packs that were called for an answer could use the same credentials for this caller today. The pack's own
    /// are part of the key.
    pub(crate) fn may_still_use(&self, answer: &Answer, call: &Call) -> bool {
        let granted = |one: &UsedGrant| self.secrets.grant(&one.grant.name, &call.identity, &one.pack);
        answer.used.iter().all(|one| granted(one).is_ok_and(|today| today.as_ref() == Some(&one.grant)))
    }

    /// Says whether stale answers may cover failures.
    pub(crate) fn covers_errors(&self) -> bool {
        self.manifest.cache().is_some_and(|spec| !spec.stale_if_error.is_zero())
    }

    /// Says whether a failing handler may be covered up with this answer.
    pub(crate) fn may_cover(&self, answer: &Answer, error: &Error, now: Timestamp) -> bool {
        let window = self.manifest.cache().map_or(Duration::ZERO, |spec| spec.stale_if_error);
        // RFC 5861 section 4 names 500, 502, 503 and 504: this machine or the one behind the pack. A used-up quota counts too.
        let eligible = error.code().fault() == helmdeck_core::Fault::Host
            || matches!(error.code(), Code::HandlerFailed | Code::RateLimited);
        let ends = self.bounds(answer).0.saturating_add(window);
        eligible && !window.is_zero() && now < ends && !is_from_future(answer, now)
    }

    /// Returns the times of an answer made now. Its life never exceeds that of its artifacts.
    pub(crate) fn times(&self, now: Timestamp, artifacts: &[ArtifactRef], confirm_always: bool) -> Result<Times> {
        let spec = self.spec()?;
        let end = earliest_end(artifacts).unwrap_or(Timestamp::MAX);
        Ok(Times {
            made_at: now,
            fresh_until: if confirm_always { now } else { now.saturating_add(spec.ttl).min(end) },
            hard_until: now.saturating_add(spec.hard_ttl()).min(end),
        })
    }

    /// Says why an answer must not be stored, if so.
    pub(crate) fn refusal(&self, outcome: &Outcome) -> Option<&'static str> {
        let bytes = outcome.output.bytes();
        if self.is_of_one(&outcome.artifacts) {
            Some("shared_artifact")
        } else if outcome.remark.had_secret {
            Some("secret")
        } else if outcome.remark.no_store {
            Some("no_store")
        } else if self.manifest.cache().is_none_or(|spec| bytes.len() as u64 > spec.max_bytes) {
            Some("too_large")
        } else if leaks::has_leak(bytes) {
            Some("token_format")
        } else {
            None
        }
    }

    /// Keeps an answer: in the hot tier at once, in the store behind the response. The lock is free once it is there. Says
    /// whether it did.
    pub(crate) fn keep(&self, located: &Located, answer: &Arc<Answer>, now: Timestamp, lock: Option<Lock>) -> bool {
        let (Ok(spec), Ok(digests)) = (self.spec(), self.digests(located)) else { return false };
        let location = &answer.location;
        if !self.hub.warm(answer) {
            return false;
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
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        self.hub.write(Write { put, location: Arc::clone(location), epoch: self.hub.epoch(), lock });
        true
    }
}
