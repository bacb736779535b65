//! Builds the pipeline of one pack, and applies the two gates.

use std::sync::Arc;

use helmdeck_core::manifest::Scope;
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Handler, Manifest, Upstream};

use super::inner::Inner;
use super::other_packs::OtherPacks;
use crate::cache::pack::PackCache;
use crate::call_runner::CallRunner;
use crate::handler::{HandlerService, Runner};
use crate::layers::artifacts::{ArtifactsLayer, RunArtifacts};
use crate::layers::credentials::CredentialsLayer;
use crate::layers::observe::{ObserveLayer, Observer};
use crate::layers::session::{Asks, SessionLayer};
use crate::layers::validate_input::ValidateInputLayer;
use crate::layers::validate_output::ValidateOutputLayer;
use crate::pipeline::{self, Gates, PipelineLayers};
use crate::program::Program;
use crate::registry::{PackSource, Registered};

impl Inner {
    /// Builds the pipeline of one pack, and applies the two gates.
    ///
    /// Gate 1: the store exists or not. Gate 2: the manifest asks for the cache or not.
    pub(crate) fn register(
        self: &Arc<Self>,
        manifest: Manifest,
        handler: Arc<dyn Handler>,
        contract: [u8; 32],
        program: Option<Arc<Program>>,
        source: PackSource,
    ) -> Registered {
        let manifest = Arc::new(manifest);
        let hub = self.memory.as_ref().map(|memory| Arc::clone(&memory.hub));
        let invalidates = manifest
            .memory
            .as_ref()
            .is_some_and(|memory| !memory.invalidates.is_empty());
        // What a program or built-in pack asks is not known: its waits are its own.
        let upstream = handler.upstream();
        let name = upstream.as_ref().map(|upstream| upstream.name.clone());
        let cache = hub
            .as_ref()
            .filter(|_| manifest.cache().is_some())
            .map(|hub| {
                let (secrets, artifacts) = (Arc::clone(&self.secrets), self.artifacts.clone());
                let own = || Upstream {
                    name: format!("pack \"{}\"", manifest.name),
                    keep_quota: 0,
                };
                let upstream = upstream.unwrap_or_else(own);
                let (hub, manifest) = (Arc::clone(hub), Arc::clone(&manifest));
                Arc::new(PackCache::new(
                    hub, manifest, contract, secrets, artifacts, program, upstream,
                ))
            });
        let validate_input = ValidateInputLayer::new(Arc::clone(&manifest), hub.is_some());
        let gates = match (&cache, hub) {
            (Some(cache), _) => Gates::Cached(Arc::clone(cache)),
            (None, Some(hub)) if invalidates => Gates::Invalidating(hub),
            _ => Gates::Shut,
        };
        // A run with a shared answer must not know anything about the caller that happened to be
        // first.
        let memory = match &self.memory {
            None => Err(self.no_memory.clone()),
            Some(_)
                if manifest
                    .cache()
                    .is_some_and(|cache| cache.scope == Scope::Shared) =>
            {
                Err(NoMemory::Shared)
            }
            Some(memory) => {
                Ok(Arc::new(memory.views.of_pack(&manifest.name, manifest.version)) as _)
            }
        };
        let credentials = (!manifest.credentials.is_empty()).then(|| CredentialsLayer {
            manifest: Arc::clone(&manifest),
            secrets: Arc::clone(&self.secrets),
        });
        let as_runner: Arc<dyn CallRunner> = Arc::clone(self) as _;
        let parts = PipelineLayers {
            observe: ObserveLayer(Arc::new(Observer {
                metrics: self.metrics.pack(&manifest.name, manifest.version),
                audit: self.audit.clone().filter(|_| !manifest.no_audit),
                clock: Arc::clone(&self.clock),
            })),
            validate_input: validate_input.clone(),
            credentials: credentials.clone(),
            session: manifest.session.clone().map(|spec| {
                let (manifest, sessions) = (Arc::clone(&manifest), self.sessions.clone());
                SessionLayer(Arc::new(Asks {
                    manifest,
                    spec,
                    sessions,
                    clock: Arc::clone(&self.clock),
                }))
            }),
            artifacts: ArtifactsLayer(Arc::new(RunArtifacts {
                manifest: Arc::clone(&manifest),
                store: self.artifacts.clone(),
                clock: Arc::clone(&self.clock),
            })),
            validate_output: ValidateOutputLayer(Arc::clone(&manifest)),
            handler: HandlerService(Arc::new(Runner {
                manifest: Arc::clone(&manifest),
                handler,
                packs: Arc::new(OtherPacks::new(
                    Arc::downgrade(&as_runner),
                    self.memory.is_some(),
                )),
                memory,
                clock: Arc::clone(&self.clock),
            })),
        };
        Registered {
            service: pipeline::build(parts, gates),
            manifest,
            source,
            contract,
            cache,
            validate_input,
            credentials,
            upstream: name,
        }
    }
}
