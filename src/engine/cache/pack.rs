//! One pack's handle on the cache: made at registration, when both gates are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::context::CallSecrets;
use helmdeck_core::manifest::{CacheSpec, Scope};
use helmdeck_core::numbers::micros;
use helmdeck_core::secrets::{Secrets, credential_tag, is_credential_tag};
use helmdeck_core::{
    ArtifactRef, Call, Code, Error, Manifest, NotKept, Result, Timestamp, Upstream,
};

use super::answer::Location;
use super::backoff::BackoffKey;
use super::counters::Counters;
use super::hot::Alias;
use super::hub::Hub;
use super::key::{Digests, KeyParts, canonical_input, for_handler, hex, namespace};
use super::tags::{bounded, families};
use crate::program::{Program, ProgramVersion};
use helmdeck_artifacts::ArtifactStore;
use helmdeck_memory::Namespace;

/// Cost of a run that is assumed until one is known, at most.
const UNKNOWN_COST: Duration = Duration::from_secs(10);
/// The part of a run's cost that a read of the store may take: 5 %.
const READ_PART: u32 = 20;
/// Limit of that time.
const MAX_READ_BUDGET: Duration = Duration::from_secs(2);

/// The cache, as one registered pack sees it.
pub(crate) struct PackCache {
    pub(crate) hub: Arc<Hub>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) artifacts: Option<Arc<ArtifactStore>>,
    pub(crate) counters: Arc<Counters>,
    pub(super) secrets: Arc<dyn Secrets>,
    contract: Arc<Contract>,
    /// The program behind the pack, whose digest is part of the contract; `None` if it is no file.
    pub(crate) program: Option<Arc<Program>>,
    /// Duration of the last run, in microseconds; 0 = unknown.
    cost: AtomicU64,
    /// The service that the pack's handler asks.
    pub(crate) upstream: Upstream,
    /// Number that identifies this registration.
    stack: u64,
}

/// Location of a call's answer, and the parts of its key.
pub(crate) struct Located {
    pub(crate) location: Arc<Location>,
    pub(crate) contract: Arc<Contract>,
    /// The canonical form of the input.
    pub(crate) input: Bytes,
    secrets: Option<Arc<dyn CallSecrets>>,
}

/// Digest of what an answer depends on besides the call: schemas, handler, epoch.
pub(crate) struct Contract {
    pub(crate) bytes: [u8; 32],
    pub(crate) hex: String,
    /// The state of the program's files.
    pub(super) version: Option<Arc<ProgramVersion>>,
}

impl Contract {
    fn new(bytes: [u8; 32], version: Option<Arc<ProgramVersion>>) -> Self {
        Self {
            bytes,
            hex: hex(&bytes),
            version,
        }
    }
}

/// Returns the namespace of a call's answer and the canonical form of its input, or why the call
/// cannot be cached: a word of
/// [`CacheInfo::REASONS`](helmdeck_core::CacheInfo::REASONS).
pub(crate) fn place(spec: &CacheSpec, call: &Call) -> Result<(Namespace, Bytes), &'static str> {
    let uncached = if call.identity.is_anonymous() {
        "anonymous"
    } else {
        "no_session"
    };
    let namespace = namespace(
        &call.identity,
        spec.scope,
        call.stage.pinned_session.as_ref(),
    )
    .ok_or(uncached)?;
    Ok((
        namespace,
        Bytes::from(canonical_input(call).map_err(|_| "input")?),
    ))
}

/// Returns the tags of an answer, with their families and those of its credentials.
pub(crate) fn tags_of(
    spec: &CacheSpec,
    input: &Bytes,
    secrets: Option<&Arc<dyn CallSecrets>>,
) -> Vec<String> {
    // Of the canonical form: two spellings of one input have one entry, and so the same tags.
    let value = if spec.tags.is_empty() {
        None
    } else {
        serde_json::from_slice(&for_handler(input)).ok()
    };
    let value: serde_json::Value = value.unwrap_or_default();
    let of_spec: Vec<String> = spec
        .tags
        .iter()
        .filter_map(|tag| tag.fill(&value))
        .map(|tag| tag.text.to_lowercase())
        .collect();
    let families = families(of_spec.iter().filter(|tag| !is_credential_tag(tag)));
    let grants = secrets.map_or(&[][..], |secrets| secrets.grants());
    let of_grants = grants.iter().map(|grant| credential_tag(&grant.name));
    let of_spec = of_spec
        .into_iter()
        .filter(|tag| !is_credential_tag(tag))
        .map(bounded);
    of_spec.chain(families).chain(of_grants).collect()
}

impl PackCache {
    pub(crate) fn new(
        hub: Arc<Hub>,
        manifest: Arc<Manifest>,
        contract: [u8; 32],
        secrets: Arc<dyn Secrets>,
        artifacts: Option<Arc<ArtifactStore>>,
        program: Option<Arc<Program>>,
        upstream: Upstream,
    ) -> Self {
        static STACKS: AtomicU64 = AtomicU64::new(0);
        let counters = hub.counters.of(manifest.name.as_str());
        let stack = STACKS.fetch_add(1, Ordering::Relaxed);
        let contract = Contract::new(contract, program.as_ref().map(|program| program.at_start()));
        Self {
            hub,
            artifacts,
            counters,
            secrets,
            contract: Arc::new(contract),
            program,
            cost: AtomicU64::new(0),
            upstream,
            stack,
            manifest,
        }
    }

    /// Returns the manifest's cache section. A handle is only made when there is one.
    pub(crate) fn spec(&self) -> Result<&CacheSpec> {
        self.manifest
            .cache()
            .ok_or_else(|| Error::new(Code::Internal, "a pack without a cache section is cached"))
    }

    /// Returns whether a caller's private answer would become part of a shared one.
    ///
    /// That is so if the calling pack is of scope `shared`, and this one is not.
    pub(crate) fn would_leak(&self, call: &Call) -> bool {
        call.stage
            .called_by
            .as_ref()
            .is_some_and(|calling| calling.shared)
            && self
                .manifest
                .cache()
                .is_none_or(|spec| spec.scope != Scope::Shared)
    }

    /// Returns whether an answer of a shared scope has files: they belong to the caller that ran
    /// the pack.
    pub(crate) fn has_private_files(&self, artifacts: &[ArtifactRef]) -> bool {
        !artifacts.is_empty()
            && self
                .manifest
                .cache()
                .is_some_and(|spec| spec.scope == Scope::Shared)
    }

    /// Returns whether an answer of a shared scope was not kept because it is for the caller that
    /// ran the pack.
    pub(crate) fn is_private(&self, why: NotKept) -> bool {
        let shared = self
            .manifest
            .cache()
            .is_some_and(|spec| spec.scope == Scope::Shared);
        matches!(why, NotKept::Because("shared_artifact" | "upstream_private" | "upstream_no_store") if shared)
    }

    /// Returns the contract of a call that runs now.
    ///
    /// A program's contract is computed from its files. This may read them, on a blocking thread.
    pub(crate) async fn contract(&self) -> Arc<Contract> {
        let Some(program) = &self.program else {
            return Arc::clone(&self.contract);
        };
        let Some(now) = program.now().await else {
            return Arc::clone(&self.contract);
        };
        if self
            .contract
            .version
            .as_ref()
            .is_some_and(|start| start.is(&now))
        {
            return Arc::clone(&self.contract);
        }
        Arc::new(Contract::new(
            self.manifest.contract(&now.digest),
            Some(now),
        ))
    }

    /// Returns the contract if it cannot change during this registration.
    pub(crate) fn fixed_contract(&self) -> Option<Arc<Contract>> {
        self.program.is_none().then(|| Arc::clone(&self.contract))
    }

    /// Returns a number that changes with any grant or credential.
    pub(crate) fn grants_generation(&self) -> u64 {
        self.secrets.generation()
    }

    /// Returns the alias of a call's bytes, as they came in; `None` if they are too many for one.
    pub(crate) fn alias(&self, call: &Call, input: &[u8], secrets: u64) -> Option<Alias> {
        Alias::new(self.stack, secrets, &call.identity, input)
    }

    /// Returns where the answer to a call belongs, or why the call cannot be cached: a word of
    /// [`CacheInfo::REASONS`].
    pub(crate) fn locate(
        &self,
        call: &Call,
        contract: Arc<Contract>,
    ) -> Result<Located, &'static str> {
        let spec = self.spec().map_err(|_| "input")?;
        if self.would_leak(call) {
            return Err("shared_caller");
        }
        let (namespace, input) = place(spec, call)?;
        let secrets = call.stage.secrets.clone();
        let key = self
            .parts(spec, &contract, &input, secrets.as_ref())
            .key(&self.hub.keyring, &namespace);
        let tags = tags_of(spec, &input, secrets.as_ref()).into();
        let (pack, version) = (self.manifest.name.clone(), self.manifest.version);
        let location = Arc::new(Location {
            key,
            pack,
            version,
            namespace,
            tags,
        });
        Ok(Located {
            location,
            contract,
            input,
            secrets,
        })
    }

    /// Records the duration of a run.
    pub(crate) fn took(&self, cost: Duration) {
        self.cost.store(micros(cost).max(1), Ordering::Relaxed);
    }

    /// Returns the time budget of a read of the store: a part of what a run costs, so that a slow
    /// store does not make a dear handler run again.
    ///
    /// Before the first run that is not known, and its timeout says how dear it may be.
    pub(crate) fn read_budget(&self) -> Duration {
        let cost = match self.cost.load(Ordering::Relaxed) {
            0 => self.manifest.timeout.min(UNKNOWN_COST),
            micros => Duration::from_micros(micros),
        };
        self.hub
            .config
            .read_budget
            .max((cost / READ_PART).min(MAX_READ_BUDGET))
    }

    /// Returns the pack's upstream, asked with these credentials.
    pub(crate) fn upstream_of(&self, secrets: Option<&Arc<dyn CallSecrets>>) -> BackoffKey {
        BackoffKey::upstream(
            &self.upstream.name,
            secrets.map_or(&[], |secrets| secrets.grants()),
        )
    }

    /// Returns how long the handler is not asked for this answer.
    pub(crate) fn held_back(&self, located: &Located, now: Timestamp) -> Option<Duration> {
        if self.hub.backoffs.is_empty() {
            return None;
        }
        let keys = [
            self.upstream_of(located.secrets.as_ref()),
            BackoffKey::answer(&located.location.key),
        ];
        self.hub.backoffs.left(&keys, now)
    }

    fn parts<'a>(
        &'a self,
        spec: &CacheSpec,
        contract: &'a Contract,
        input: &'a [u8],
        secrets: Option<&'a Arc<dyn CallSecrets>>,
    ) -> KeyParts<'a> {
        KeyParts {
            pack: &self.manifest.name,
            version: self.manifest.version,
            contract: &contract.bytes,
            scope: spec.scope,
            grants: secrets.map_or(&[], |secrets| secrets.grants()),
            input,
        }
    }

    /// Returns digests of the parts of the key.
    pub(crate) fn digests(&self, located: &Located) -> Result<Digests> {
        let parts = self.parts(
            self.spec()?,
            &located.contract,
            &located.input,
            located.secrets.as_ref(),
        );
        Ok(parts.digests(&self.hub.keyring, &located.location.namespace))
    }
}
