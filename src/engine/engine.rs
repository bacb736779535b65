//! The engine: what the transports call. It finds the pack and hands the call to its pipeline; everything else is in the layers.

mod other_packs;
mod register;

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helmdeck_core::manifest::{HandlerSpec, ManifestError};
use helmdeck_core::memory::NoMemory;
use helmdeck_core::secrets::Secrets;
use helmdeck_core::{Builtin, Call, Clock, Code, Handler, Manifest, Outcome, PackName, Result, Version};
use helmdeck_egress::Egress;
use helmdeck_events::{Bus, EventKind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::artifacts::ArtifactStore;
use crate::audit::Audit;
use crate::command::CommandHandler;
use crate::config::Config;
use crate::folder::{self, Follow};
use crate::http::HttpHandler;
use crate::jobs::Jobs;
use crate::mcp::{Fitted, Servers};
use crate::memory::MemoryControl;
use crate::metrics::Metrics;
use crate::program::Program;
use crate::registry::{PackInfo, Registered, Registry, Snapshot, Source};
use crate::sessions::Sessions;

/// Runs packs. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) registry: Registry,
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) artifacts: Option<Arc<ArtifactStore>>,
    /// `None` = packs that need a session are refused.
    pub(crate) sessions: Option<Sessions>,
    pub(crate) egress: Egress,
    pub(crate) memory: Option<MemoryControl>,
    /// Why there is no memory, if there is none.
    pub(crate) no_memory: NoMemory,
    pub(crate) audit: Option<Audit>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) events: Bus,
    pub(crate) builtins: Vec<Builtin>,
    pub(crate) packs_dir: Option<PathBuf>,
    pub(crate) watch: Mutex<Option<Follow>>,
    /// The sweeps that run.
    pub(crate) janitor: Mutex<Vec<JoinHandle<()>>>,
    /// MCP servers; `None` = none is configured.
    pub(crate) servers: Option<Servers>,
    /// Held while the registry is made anew, so that of two reloads the later one sees what the earlier one saw.
    pub(crate) loading: Mutex<()>,
    pub(crate) stop: CancellationToken,
}

/// A pack that was read and not yet admitted.
struct Candidate {
    manifest: Manifest,
    handler: Arc<dyn Handler>,
    /// The digest of code outside this binary.
    digest: Vec<u8>,
    /// Its files, if it is a program.
    program: Option<Arc<Program>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("memory", &self.0.memory.is_some()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Runs a call through its pack's pipeline.
    ///
    /// Dropping the future cancels the call; a run that others wait for goes on for them.
    ///
    /// # Errors
    /// Any [`Code`]; `not_found` if there is no such pack or version.
    pub async fn call(&self, call: Call) -> Result<Outcome> {
        let registered = self.registered(&call).await?;
        self.run(registered, call).await
    }

    /// Runs a call of a pack that was found. If the tool behind it turns out to be another one than the pack was made of, the
    /// tool was not called, and the call goes to the pack as it is now, once.
    pub(crate) async fn run(&self, registered: Arc<Registered>, call: Call) -> Result<Outcome> {
        if !matches!(registered.manifest.handler, HandlerSpec::Mcp { .. }) {
            return registered.service.clone().oneshot(call).await;
        }
        Box::pin(self.run_tool(registered, call)).await
    }

    async fn run_tool(&self, registered: Arc<Registered>, call: Call) -> Result<Outcome> {
        let again = call.clone();
        match registered.service.clone().oneshot(call).await {
            Err(error) if error.code() == Code::Conflict => {
                let now = self.registered(&again).await?;
                if Arc::ptr_eq(&now, &registered) {
                    return Err(error);
                }
                now.service.clone().oneshot(again).await
            }
            answer => answer,
        }
    }

    /// Finds the pack of a call.
    pub(crate) async fn registered(&self, call: &Call) -> Result<Arc<Registered>> {
        match self.0.registry.find(call.pack.as_str(), call.version) {
            Ok(found) => Ok(found),
            // It may be a tool of a server that was not asked yet.
            Err(unknown) => {
                self.import_for(call.pack.as_str(), unknown).await?;
                self.0.registry.find(call.pack.as_str(), call.version)
            }
        }
    }

    /// Returns every pack in its latest version, sorted by name.
    #[must_use]
    pub fn packs(&self) -> Vec<PackInfo> {
        let snapshot = self.0.registry.snapshot();
        snapshot.packs.values().filter_map(|versions| Some(versions.last()?.info(&snapshot))).collect()
    }

    /// Returns one pack, in its latest version unless one is named.
    ///
    /// # Errors
    /// `not_found`, with the nearest name there is.
    pub fn pack(&self, name: &str, version: Option<Version>) -> Result<PackInfo> {
        let found = self.0.registry.find(name, version)?;
        Ok(found.info(&self.0.registry.snapshot()))
    }

    /// Returns a number that grows whenever the packs were read anew, so that what is made of them can be kept until then.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.registry.revision()
    }

    /// Returns the manifests that were refused, with their reasons.
    #[must_use]
    pub fn refused(&self) -> Vec<ManifestError> {
        self.0.registry.snapshot().refused.clone()
    }

    /// Returns what stands behind gate 1, `None` if it is shut.
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryControl> {
        self.0.memory.as_ref()
    }

    /// Returns what happened and happens.
    #[must_use]
    pub fn events(&self) -> &Bus {
        &self.0.events
    }

    /// Returns all metrics in the `OpenMetrics` text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        if let Some(memory) = &self.0.memory {
            memory.hub.drop_expired();
        }
        self.0.metrics.encode()
    }

    /// Returns named checks: whether this engine can do its work.
    #[must_use]
    pub fn ready(&self) -> Vec<(&'static str, Result<(), String>)> {
        let mut checks = vec![("packs", Ok(()))];
        if self.0.registry.snapshot().packs.is_empty() {
            checks[0].1 = Err("no pack is registered".to_owned());
        }
        if self.0.packs_dir.is_some() {
            let refused =
                self.0.registry.snapshot().refused.iter().filter(|error| !error.file.starts_with("mcp:")).count();
            let state = match refused {
                0 => Ok(()),
                refused => Err(format!("refused: {refused}; the log and the list of packs say why")),
            };
            checks.push(("manifests", state));
        }
        if let Some(memory) = &self.0.memory {
            // A failing store costs the cache, not the calls; it is told, and does not make the server unready.
            let state = match (memory.store().not_open(), memory.hub.store_trouble()) {
                (Some(error), _) => Err(format!("the store is not open yet, and is tried again: {}", error.trouble())),
                (None, Some(word)) if memory.hub.breaker_is_open() => {
                    Err(format!("the store fails and is left alone: {word}"))
                }
                (None, None) if memory.hub.breaker_is_open() => Err("the store fails and is left alone".to_owned()),
                (None, _) => Ok(()),
            };
            checks.push(("store", state));
        }
        if let Some(files) = &self.0.artifacts {
            // As with the store: packs that write no files go on.
            checks.push(("artifacts", files.trouble().map_or(Ok(()), Err)));
        }
        checks
    }

    /// Reads the packs folder anew. Packs whose manifest is bad are listed as refused; all others are served.
    pub fn reload(&self) {
        let _loading = self.0.loading.lock();
        let previous = self.0.registry.snapshot();
        let snapshot = Inner::load(&self.0, &previous);
        let keys = |snapshot: &Snapshot| -> Vec<(PackName, Version, [u8; 32])> {
            snapshot
                .packs
                .values()
                .flatten()
                .map(|p| (p.manifest.name.clone(), p.manifest.version, p.contract))
                .collect()
        };
        let (before, after) = (keys(&previous), keys(&snapshot));
        for error in &snapshot.refused {
            if !previous.refused.contains(error) {
                let kept = snapshot.is_kept(error);
                let more = if kept { "; the last good version goes on serving" } else { "" };
                tracing::warn!(file = error.file, line = error.line, kept, "manifest refused: {}{more}", error.message);
                self.0.events.publish(EventKind::PackRefused { file: error.file.clone(), reason: error.to_string() });
            }
        }
        self.0.registry.replace(snapshot);
        for (pack, version, _) in after.iter().filter(|pack| !before.contains(pack)) {
            self.0.events.publish(EventKind::PackRegistered { pack: pack.clone(), version: *version });
        }
        for (pack, version, _) in
            before.iter().filter(|(pack, version, _)| !after.iter().any(|(p, v, _)| p == pack && v == version))
        {
            self.0.events.publish(EventKind::PackRemoved { pack: pack.clone(), version: *version });
        }
    }

    /// Ends the jobs and every session, writes what is queued, gives back the store, stops every task. Calls under way are not waited for.
    pub async fn shutdown(&self) {
        self.0.jobs.shutdown().await;
        self.0.watch.lock().take();
        if let Some(sessions) = &self.0.sessions {
            sessions.close().await;
        }
        if let Some(memory) = &self.0.memory {
            let limit = self.0.config.cache.write_budget;
            let drain = async {
                memory.hub.queue.flush().await;
                if let Some(audit) = &self.0.audit {
                    audit.flush().await;
                }
                memory.hub.write_counters().await;
            };
            if tokio::time::timeout(limit, drain).await.is_err() {
                tracing::warn!("the store did not take everything in time; some answers or audit rows were not stored");
            }
            self.0.stop.cancel();
            self.stop_sweeping(limit).await;
            if let Ok(Err(error)) = tokio::time::timeout(limit, memory.hub.store.close()).await {
                tracing::warn!(%error, "the store could not be closed cleanly");
            }
        }
        self.0.stop.cancel();
        self.stop_sweeping(self.0.config.cache.write_budget).await;
        if let Some(servers) = &self.0.servers {
            servers.shutdown().await;
        }
    }
}

impl Inner {
    /// Reads all manifests and builds their pipelines; a pack whose contract is as before keeps its pipeline.
    pub(crate) fn load(this: &Arc<Self>, previous: &Snapshot) -> Snapshot {
        // Before they are imported: a list that is newer than what stands here costs one more load, an older one a pack.
        let listings = this.servers.iter().flat_map(Servers::listings).collect();
        let mut snapshot = Snapshot { listings, ..Snapshot::default() };
        for builtin in &this.builtins {
            let refuse = |file: &str| Err(format!("{file} cannot be read: built-in packs have no files"));
            let read = Manifest::parse(builtin.file, builtin.manifest, &refuse);
            let read = read.map(|manifest| Candidate {
                manifest,
                handler: Arc::clone(&builtin.handler),
                digest: Vec::new(),
                program: None,
            });
            this.admit(this, &mut snapshot, previous, read, Source::Builtin);
        }
        let mut broken = Vec::new();
        for folder::Read { file, name, manifest } in this.packs_dir.as_deref().map(folder::read).unwrap_or_default() {
            let mut server = None;
            let read = match manifest {
                Ok((manifest, folder)) => {
                    if let HandlerSpec::Mcp { server: named, .. } = &manifest.handler {
                        server = Some(named.clone());
                    }
                    match this.candidate(manifest, &folder, &mut snapshot) {
                        Some(candidate) => candidate,
                        None => continue,
                    }
                }
                Err(error) => Err(error),
            };
            let before = snapshot.refused.len();
            this.admit(this, &mut snapshot, previous, read, Source::Folder);
            if let Some(error) = snapshot.refused.get(before).cloned() {
                snapshot.note_refused(name, &error);
                // What a server lists now refuses a pack for good; what somebody is writing does not.
                if server.is_none_or(|server| previous.same_listing(&snapshot, &server)) {
                    broken.push((file, error));
                }
            }
        }
        // After all that is good, so that a pack which moved to another file is not in its own way.
        for (file, error) in broken {
            snapshot.keep(previous, &file, &error);
        }
        // Last, so that what the operator wrote wins over what a server calls its tools.
        for (name, read) in this.servers.iter().flat_map(Servers::import) {
            let read = read.map(|(manifest, handler, digest)| Candidate { manifest, handler, digest, program: None });
            let before = snapshot.refused.len();
            this.admit(this, &mut snapshot, previous, read, Source::Mcp);
            if let Some(error) = snapshot.refused.get(before).cloned() {
                snapshot.note_refused(name, &error);
            }
        }
        for versions in snapshot.packs.values_mut() {
            versions.sort_by_key(|pack| pack.manifest.version);
        }
        snapshot
    }

    /// Finds what a manifest of the packs folder runs; `None` if that is a tool of a server that was not asked yet.
    fn candidate(
        &self,
        manifest: Manifest,
        folder: &Path,
        snapshot: &mut Snapshot,
    ) -> Option<Result<Candidate, ManifestError>> {
        let HandlerSpec::Mcp { server, tool } = manifest.handler.clone() else {
            return Some(self.local(manifest, folder));
        };
        let fitted = match &self.servers {
            Some(servers) => servers.fit(manifest, &server, &tool),
            None => Fitted::none(&manifest, &server),
        };
        match fitted {
            Fitted::Ready(manifest, handler, digest) => {
                Some(Ok(Candidate { manifest: *manifest, handler, digest, program: None }))
            }
            Fitted::Refused(error) => Some(Err(error)),
            Fitted::Pending(name) => {
                snapshot.pending.insert(name, server);
                None
            }
            Fitted::Failed(name, error) => {
                snapshot.pending.insert(name, server);
                Some(Err(error))
            }
        }
    }

    fn local(&self, manifest: Manifest, folder: &Path) -> Result<Candidate, ManifestError> {
        let refuse = |message: String| ManifestError { file: manifest.file.clone(), line: None, message };
        match &manifest.handler {
            HandlerSpec::Command { argv, env } => {
                let handler =
                    CommandHandler::new(argv, env.clone(), folder, self.config.commands.clone()).map_err(refuse)?;
                let program = Arc::new(handler.program());
                let digest = program.at_start().digest.clone();
                Ok(Candidate { manifest, handler: Arc::new(handler), digest, program: Some(program) })
            }
            HandlerSpec::Http(spec) => {
                let revalidate = manifest.cache().is_some_and(|cache| cache.revalidate);
                let credentials = manifest.credentials.clone();
                let handler = HttpHandler::new((**spec).clone(), credentials, revalidate, self.egress.clone());
                Ok(Candidate { manifest, handler: Arc::new(handler), digest: Vec::new(), program: None })
            }
            HandlerSpec::Builtin(name) => {
                // A folder may put another contract (a cache, other defaults) in front of a built-in handler.
                let known = self.builtins.iter().find(|builtin| {
                    Manifest::parse(builtin.file, builtin.manifest, &|_| Err(String::new()))
                        .is_ok_and(|m| m.handler == manifest.handler)
                });
                let handler = known.map(|builtin| Arc::clone(&builtin.handler));
                let handler = handler.ok_or_else(|| refuse(format!("there is no built-in handler \"{name}\"")))?;
                Ok(Candidate { manifest, handler, digest: Vec::new(), program: None })
            }
            HandlerSpec::Mcp { server, .. } => Err(refuse(format!("there is no MCP server \"{server}\""))),
        }
    }

    fn admit(
        &self,
        this: &Arc<Self>,
        snapshot: &mut Snapshot,
        previous: &Snapshot,
        read: Result<Candidate, ManifestError>,
        source: Source,
    ) {
        let Candidate { manifest, handler, digest, program } = match read {
            Ok(read) => read,
            Err(error) => return snapshot.refused.push(error),
        };
        let there = snapshot.packs.get(&manifest.name).map(Vec::as_slice).unwrap_or_default();
        if let Some(other) = there.iter().find(|pack| pack.manifest.version == manifest.version) {
            let message = format!(
                "pack \"{}\" {} is already defined by {}; give this one another version",
                manifest.name, manifest.version, other.manifest.file
            );
            return snapshot.refused.push(ManifestError { file: manifest.file, line: None, message });
        }
        let spelled = manifest.name.without_dots();
        if let Some(other) =
            snapshot.packs.keys().find(|other| **other != manifest.name && other.without_dots() == spelled)
        {
            let message = format!(
                "pack \"{}\" and pack \"{other}\" have the same name where dots are not allowed ({spelled}); rename one",
                manifest.name
            );
            return snapshot.refused.push(ManifestError { file: manifest.file, line: None, message });
        }
        let contract = manifest.contract(&digest);
        let kept = previous.packs.get(&manifest.name).and_then(|versions| {
            let same = |pack: &&Arc<Registered>| {
                pack.contract == contract
                    && pack.manifest.version == manifest.version
                    && pack.source == source
                    && source != Source::Folder
            };
            versions.iter().find(same).cloned()
        });
        let registered =
            kept.unwrap_or_else(|| Arc::new(self.register(this, manifest, handler, contract, program, source)));
        snapshot.packs.entry(registered.manifest.name.clone()).or_default().push(registered);
    }
}
