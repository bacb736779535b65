//! Reads manifests and fills the registry: built-in packs, the packs folder, tools of MCP servers.

use std::path::Path;
use std::sync::Arc;

use helmdeck_core::manifest::{HandlerSpec, ManifestError};
use helmdeck_core::{Builtin, Handler, Manifest, Need};
use helmdeck_events::EventKind;

use super::inner::Inner;
use crate::command::CommandHandler;
use crate::entry::PackEntry;
use crate::folder;
use crate::http::HttpHandler;
use crate::program::Program;
use crate::registry::{PackSource, Snapshot};
use helmdeck_mcp_client::{Fitted, Servers};

/// A pack that was read, and is not yet in the registry.
struct Candidate {
    manifest: Manifest,
    handler: Arc<dyn Handler>,
    /// The digest of code outside this binary.
    digest: Vec<u8>,
    /// Its files, if it is a program.
    program: Option<Arc<Program>>,
    /// Condition for the pack to be listed.
    need: Need,
}

impl Candidate {
    fn new(manifest: Manifest, handler: Arc<dyn Handler>, digest: Vec<u8>) -> Self {
        Self {
            manifest,
            handler,
            digest,
            program: None,
            need: Need::Nothing,
        }
    }
}

impl Inner {
    /// Fills the registry for the first time, and watches the packs folder from then on if `watch`
    /// says so.
    pub(crate) fn start(self: &Arc<Self>, watch: bool) {
        let _loading = self.loading.lock();
        // Before the folder is read, so that a change during the read causes a reload.
        if let Some(folder) = self.packs_dir.clone().filter(|_| watch) {
            let inner = Arc::downgrade(self);
            let following = folder::follow(folder, move || {
                if let Some(inner) = inner.upgrade() {
                    // Reading manifests blocks, so it needs a blocking thread.
                    tokio::task::spawn_blocking(move || inner.reload());
                }
            });
            *self.watch.lock() = Some(following);
        }
        let snapshot = self.load(&Snapshot::default());
        for error in &snapshot.refused {
            tracing::warn!(
                file = error.file,
                line = error.line,
                "manifest refused: {}",
                error.message
            );
        }
        self.registry.replace(snapshot);
        if watch {
            self.watch_needs();
        }
    }

    /// Reads the packs folder again and replaces the registry.
    pub(crate) fn reload(self: &Arc<Self>) {
        let _loading = self.loading.lock();
        let previous = self.registry.snapshot();
        let snapshot = self.load(&previous);
        for error in &snapshot.refused {
            if !previous.refused.contains(error) {
                let kept = snapshot.is_kept(error);
                let more = if kept {
                    "; the last good version goes on serving"
                } else {
                    ""
                };
                tracing::warn!(
                    file = error.file,
                    line = error.line,
                    kept,
                    "manifest refused: {}{more}",
                    error.message
                );
                self.events.publish(EventKind::PackRefused {
                    file: error.file.clone(),
                    reason: error.to_string(),
                });
            }
        }
        self.replace(&previous, snapshot);
    }

    /// Reads all manifests and builds their pipelines.
    ///
    /// A pack whose contract has not changed keeps its pipeline.
    fn load(self: &Arc<Self>, previous: &Snapshot) -> Snapshot {
        // Read the listings before the import. A list that changes after this costs one more load;
        // read after the import, it could cost a pack.
        let listings = self.servers.iter().flat_map(Servers::listings).collect();
        let mut snapshot = Snapshot {
            listings,
            ..Snapshot::default()
        };
        for builtin in &self.builtins {
            self.admit_builtin(&mut snapshot, previous, builtin);
        }
        let mut broken = Vec::new();
        for folder::Read {
            file,
            name,
            manifest,
        } in self
            .packs_dir
            .as_deref()
            .map(folder::read)
            .unwrap_or_default()
        {
            let mut server = None;
            let read = match manifest {
                Ok((manifest, folder)) => {
                    if let HandlerSpec::Mcp { server: named, .. } = &manifest.handler {
                        server = Some(named.clone());
                    }
                    match self.candidate(manifest, &folder, &mut snapshot) {
                        Some(candidate) => candidate,
                        None => continue,
                    }
                }
                Err(error) => Err(error),
            };
            let before = snapshot.refused.len();
            self.admit(&mut snapshot, previous, read, PackSource::Folder);
            if let Some(error) = snapshot.refused.get(before).cloned() {
                snapshot.note_refused(name, &error);
                // A refusal by the new list of a server is final. A file may be half written, so
                // its last good version is kept.
                if server.is_none_or(|server| previous.same_listing(&snapshot, &server)) {
                    broken.push((file, error));
                }
            }
        }
        // After all good manifests, so that a pack that moved to another file does not conflict
        // with itself.
        for (file, error) in broken {
            snapshot.keep(previous, &file, &error);
        }
        // Last, so that the operator's manifests win over the names of a server's tools.
        for (name, read) in self.servers.iter().flat_map(Servers::import) {
            let read =
                read.map(|(manifest, handler, digest)| Candidate::new(manifest, handler, digest));
            let before = snapshot.refused.len();
            self.admit(&mut snapshot, previous, read, PackSource::Mcp);
            if let Some(error) = snapshot.refused.get(before).cloned() {
                snapshot.note_refused(name, &error);
            }
        }
        for versions in snapshot.packs.values_mut() {
            versions.sort_by_key(|pack| pack.version);
        }
        snapshot.waiting = self.waiting(&snapshot);
        snapshot
    }

    /// Finds the handler of a manifest in the packs folder.
    ///
    /// Returns `None` if it is a tool of an MCP server that was not queried yet.
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
                Some(Ok(Candidate::new(*manifest, handler, digest)))
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
        let refuse = |message: String| ManifestError {
            file: manifest.file.clone(),
            line: None,
            message,
        };
        match &manifest.handler {
            HandlerSpec::Command { argv, env } => {
                let handler =
                    CommandHandler::new(argv, env.clone(), folder, self.config.commands.clone())
                        .map_err(refuse)?;
                let program = Arc::new(handler.program());
                let digest = program.at_start().digest.clone();
                Ok(Candidate {
                    program: Some(program),
                    ..Candidate::new(manifest, Arc::new(handler), digest)
                })
            }
            HandlerSpec::Http(spec) => {
                let revalidate = manifest.cache().is_some_and(|cache| cache.revalidate);
                let credentials = manifest.credentials.clone();
                let handler = HttpHandler::new(
                    (**spec).clone(),
                    credentials,
                    revalidate,
                    self.egress.clone(),
                );
                Ok(Candidate::new(manifest, Arc::new(handler), Vec::new()))
            }
            HandlerSpec::Builtin(name) => {
                // A manifest of the folder may give a built-in handler another contract (a cache,
                // other defaults).
                let known = self.builtins.iter().find(|builtin| {
                    Manifest::parse_builtin(builtin.file, builtin.manifest, builtin.schemas)
                        .is_ok_and(|m| m.handler == manifest.handler)
                });
                let known = known
                    .ok_or_else(|| refuse(format!("there is no built-in handler \"{name}\"")))?;
                let candidate = Candidate::new(manifest, Arc::clone(&known.handler), Vec::new());
                Ok(Candidate {
                    need: known.need.clone(),
                    ..candidate
                })
            }
            HandlerSpec::Mcp { server, .. } => {
                Err(refuse(format!("there is no MCP server \"{server}\"")))
            }
        }
    }

    /// Adds a built-in pack, which is read when it is first needed.
    fn admit_builtin(
        self: &Arc<Self>,
        snapshot: &mut Snapshot,
        previous: &Snapshot,
        builtin: &Builtin,
    ) {
        let Some(unread) = PackEntry::unread(builtin) else {
            let read = Manifest::parse_builtin(builtin.file, builtin.manifest, builtin.schemas)
                .map(|manifest| Candidate {
                    need: builtin.need.clone(),
                    ..Candidate::new(manifest, Arc::clone(&builtin.handler), Vec::new())
                });
            return self.admit(snapshot, previous, read, PackSource::Builtin);
        };
        if let Some(message) = snapshot.conflict(&unread.name, unread.version) {
            return snapshot.refused.push(ManifestError {
                file: builtin.file.to_owned(),
                line: None,
                message,
            });
        }
        let before = previous
            .packs
            .get(&unread.name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let same = |pack: &&Arc<PackEntry>| {
            pack.source == PackSource::Builtin && pack.version == unread.version
        };
        let kept = before.iter().find(same).cloned();
        snapshot.add(kept.unwrap_or_else(|| Arc::new(unread)));
    }

    fn admit(
        self: &Arc<Self>,
        snapshot: &mut Snapshot,
        previous: &Snapshot,
        read: Result<Candidate, ManifestError>,
        source: PackSource,
    ) {
        let Candidate {
            manifest,
            handler,
            digest,
            program,
            need,
        } = match read {
            Ok(read) => read,
            Err(error) => return snapshot.refused.push(error),
        };
        if let Some(message) = snapshot.conflict(&manifest.name, manifest.version) {
            return snapshot.refused.push(ManifestError {
                file: manifest.file,
                line: None,
                message,
            });
        }
        let contract = manifest.contract(&digest);
        let kept = previous.packs.get(&manifest.name).and_then(|versions| {
            let same = |pack: &&Arc<PackEntry>| {
                pack.known().is_some_and(|known| known.contract == contract)
                    && pack.version == manifest.version
                    && pack.source == source
                    && source != PackSource::Folder
            };
            versions.iter().find(same).cloned()
        });
        let new = || {
            let registered = self.register(manifest, handler, contract, program, source);
            Arc::new(PackEntry::read(registered, need))
        };
        let pack = kept.unwrap_or_else(new);
        snapshot.add(pack);
    }
}
