//! State of the engine, and the lookup of a call's pack.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use helmdeck_core::memory::NoMemory;
use helmdeck_core::secrets::Secrets;
use helmdeck_core::{Builtin, Call, Clock, Code, Error, Outcome, Result, Version};
use helmdeck_egress::Egress;
use helmdeck_events::Bus;
use helmdeck_memory::DeletePosition;
use tokio_util::sync::CancellationToken;

use super::found;
use crate::audit::Audit;
use crate::call_runner::{CallRunner, JobRunner, RunnablePack};
use crate::config::Config;
use crate::folder::Follow;
use crate::janitor::Janitor;
use crate::jobs::Jobs;
use crate::memory::MemoryControl;
use crate::metrics::Metrics;
use crate::registry::{Registered, Registry};
use crate::statistics::Statistics;
use helmdeck_artifacts::ArtifactStore;
use helmdeck_mcp_client::Servers;
use helmdeck_sandbox::Sessions;

/// State of the engine.
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
    /// Why the engine has no memory, if it has none.
    pub(crate) no_memory: NoMemory,
    pub(crate) audit: Option<Audit>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) events: Bus,
    pub(crate) builtins: Vec<Builtin>,
    pub(crate) packs_dir: Option<PathBuf>,
    pub(crate) watch: Mutex<Option<Follow>>,
    pub(crate) janitor: Janitor,
    /// MCP servers; `None` = none is configured.
    pub(crate) servers: Option<Servers>,
    /// Held during a reload, so that two reloads run one after the other.
    pub(crate) loading: Mutex<()>,
    pub(crate) stop: CancellationToken,
}

impl CallRunner for Inner {
    fn run_call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Outcome>> {
        Box::pin(async move {
            let pack = self.find(&call).await?;
            found::run(&self, &pack, call).await
        })
    }
}

impl JobRunner for Inner {
    fn revision(&self) -> u64 {
        self.registry.revision()
    }

    fn packs(self: Arc<Self>) -> Vec<RunnablePack> {
        let snapshot = self.registry.snapshot();
        let all = snapshot
            .packs
            .values()
            .flatten()
            .filter_map(|pack| pack.registered(&self).ok());
        all.map(|pack| RunnablePack {
            manifest: Arc::clone(&pack.manifest),
            contract: pack.contract,
        })
        .collect()
    }

    fn position(&self) -> Option<DeletePosition> {
        self.memory.as_ref()?.position()
    }

    fn is_behind(self: Arc<Self>, position: DeletePosition) -> BoxFuture<'static, bool> {
        Box::pin(async move {
            match &self.memory {
                Some(memory) => !memory.catch_up(&position).await,
                None => false,
            }
        })
    }
}

impl Inner {
    /// Finds the pack of a call.
    ///
    /// Looks in the registry, then among the tools of an MCP server that was not queried yet.
    pub(crate) async fn find(self: &Arc<Self>, call: &Call) -> Result<Arc<Registered>> {
        let found = match self.registry.find(call.pack.as_str(), call.version) {
            Ok(found) => found,
            Err(unknown) => {
                self.import_for(call.pack.as_str(), unknown).await?;
                self.registry.find(call.pack.as_str(), call.version)?
            }
        };
        found.callable(self)
    }

    /// Finds a pack in the registry.
    pub(crate) fn registered(
        self: &Arc<Self>,
        name: &str,
        version: Option<Version>,
    ) -> Result<Arc<Registered>> {
        self.registry.find(name, version)?.callable(self)
    }

    /// Returns the sessions.
    ///
    /// # Errors
    /// `session_unavailable` if the engine has none.
    pub(crate) fn sessions(&self) -> Result<&Sessions> {
        let none = || {
            Error::new(
                Code::SessionUnavailable,
                "this server has no session runtime",
            )
        };
        self.sessions.as_ref().ok_or_else(none)
    }

    /// Returns the store of artifacts.
    ///
    /// # Errors
    /// `not_found` if the engine has none.
    pub(crate) fn artifacts(&self) -> Result<&Arc<ArtifactStore>> {
        let none = || Error::new(Code::NotFound, "there is no such artifact");
        self.artifacts.as_ref().ok_or_else(none)
    }

    /// Returns the readiness checks of the engine, by name. It reads from the store, at most once a
    /// second.
    pub(crate) async fn ready(&self) -> Vec<(&'static str, Result<(), String>)> {
        let mut checks = vec![("packs", Ok(()))];
        if self.registry.snapshot().packs.is_empty() {
            checks[0].1 = Err("no pack is registered".to_owned());
        }
        if self.packs_dir.is_some() {
            let refused = self
                .registry
                .snapshot()
                .refused
                .iter()
                .filter(|error| !error.file.starts_with("mcp:"))
                .count();
            let state = match refused {
                0 => Ok(()),
                refused => Err(format!(
                    "refused: {refused}; the log and the list of packs say why"
                )),
            };
            checks.push(("manifests", state));
        }
        if let Some(memory) = &self.memory {
            // A failing store costs the cache, not the calls: it is reported, and does not make the
            // server unready.
            let state = match (memory.store().not_open(), memory.hub.store_trouble()) {
                (Some(error), _) => Err(format!(
                    "the store is not open yet, and is tried again: {}",
                    error.trouble()
                )),
                (None, Some(word)) if memory.hub.skips_store() => {
                    Err(format!("the store fails and is left alone: {word}"))
                }
                (None, None) if memory.hub.skips_store() => {
                    Err("the store fails and is left alone".to_owned())
                }
                (None, _) => match (memory.hub.check_store().await, memory.hub.write_trouble()) {
                    (Some(word), _) => Err(format!("the store cannot be read: {word}")),
                    (None, Some(word)) => {
                        Err(format!("nothing can be written to the store: {word}"))
                    }
                    (None, None) => Ok(()),
                },
            };
            checks.push(("store", state));
        }
        if let Some(why) = self.secrets.trouble() {
            checks.push(("vault", Err(format!("the vault cannot be read yet: {why}"))));
        }
        if let Some(files) = &self.artifacts {
            // As with the store: packs that write no files continue to run.
            checks.push(("artifacts", files.trouble().map_or(Ok(()), Err)));
        }
        checks
    }

    /// As [`Engine::shutdown`](super::Engine::shutdown).
    pub(crate) async fn shutdown(&self) -> usize {
        let mut pending = 0;
        self.jobs.shutdown().await;
        self.end_statistics().await;
        self.watch.lock().take();
        if let Some(sessions) = &self.sessions {
            sessions.close().await;
        }
        if let Some(memory) = &self.memory {
            let limit = self.config.cache.write_budget;
            let drain = async {
                memory.hub.queue.flush().await;
                if let Some(audit) = &self.audit {
                    audit.flush().await;
                }
                memory.hub.write_counters().await;
                memory.hub.flush_reads().await;
            };
            if tokio::time::timeout(limit, drain).await.is_err() {
                tracing::warn!(
                    "the store did not take everything in time; some answers or audit rows were not stored"
                );
            }
            pending = memory.hub.journal_all().await;
            if pending > 0 {
                tracing::warn!(
                    purges = pending,
                    "the store has not carried out all purges: other servers may serve what they cover until a server with \
                     this data folder starts again, or the answers expire"
                );
            }
            self.stop.cancel();
            self.janitor.stop(limit).await;
            if let Ok(Err(error)) = tokio::time::timeout(limit, memory.hub.store.close()).await {
                tracing::warn!(%error, "the store could not be closed cleanly");
            }
        }
        self.stop.cancel();
        self.janitor.stop(self.config.cache.write_budget).await;
        if let Some(servers) = &self.servers {
            servers.shutdown().await;
        }
        pending
    }
}
