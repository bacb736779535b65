//! The engine: the API for the transports. Each method delegates to the part that does the work.

mod found;
mod importing;
mod inner;
mod load;
mod operate;
mod other_packs;
mod register;
mod scheduler;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use helmdeck_core::context::ByteStream;
use helmdeck_core::manifest::ManifestError;
use helmdeck_core::session::Session;
use helmdeck_core::{ArtifactRef, Call, Code, Error, Identity, Outcome, PackName, Result, Version};
use helmdeck_events::Bus;
use helmdeck_memory::JanitorConfig;

pub use found::Found;
pub(crate) use inner::Inner;
pub use operate::EngineLoad;

use crate::builder::Builder;
use crate::cache::explain::Explanation;
use crate::call_runner::JobRunner;
use crate::config::Config;
use crate::janitor;
use crate::jobs::{Job, JobEvent, JobId, JobPage, JobQuery, RunPlan};
use crate::layers::{credentials, validate_input};
use crate::memory::{self, MemoryControl};
use crate::registry::PackInfo;
use helmdeck_artifacts::ArtifactPage;
use helmdeck_sandbox::SessionInfo;

/// The engine: runs packs. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

helmdeck_core::redacted_debug!(Engine, this => memory = this.0.memory.is_some());

impl Engine {
    /// Returns a builder of an engine.
    #[must_use]
    pub fn builder(config: Config) -> Builder {
        Builder::new(config)
    }

    /// Finds the pack of a call.
    ///
    /// # Errors
    /// `not_found` if the pack or version does not exist; the error of an MCP server that must
    /// first list its tools.
    pub async fn find(&self, call: &Call) -> Result<Found> {
        Ok(Found::new(Arc::clone(&self.0), self.0.find(call).await?))
    }

    /// Runs a call through its pack's pipeline.
    ///
    /// Dropping the future cancels the call; a run that other callers wait for continues for them.
    ///
    /// # Errors
    /// Any [`Code`]; `not_found` if the pack or version does not exist.
    pub async fn call(&self, call: Call) -> Result<Outcome> {
        let pack = self.0.find(&call).await?;
        found::run(&self.0, &pack, call).await
    }

    /// Explains the state of the cache for a call, without running anything.
    ///
    /// # Errors
    /// As the call itself up to its credentials; `conflict` if its manifest does not open its gate,
    /// or this call is not cached.
    pub async fn explain(&self, call: Call) -> Result<Explanation> {
        let pack = self.0.registered(call.pack.as_str(), call.version)?;
        memory::explain(&pack, call).await
    }

    /// Returns what saved runs and upstream requests of a pack would have cost, in USD; `None`
    /// without a price.
    #[must_use]
    pub fn saved_usd(&self, pack: &str, runs: u64, requests: u64) -> Option<f64> {
        let registered = self.0.registered(pack, None).ok();
        let upstream = registered
            .as_ref()
            .and_then(|pack| pack.upstream.as_deref());
        self.0
            .config
            .prices
            .saved_usd(pack, upstream, runs, requests)
    }

    /// Returns every pack that can work, in its latest version, sorted by name.
    #[must_use]
    pub fn packs(&self) -> Vec<PackInfo> {
        let mut packs = self.all_packs();
        packs.retain(|pack| pack.waits_for.is_none());
        packs
    }

    /// Returns every pack in its latest version, sorted by name, also those that wait for
    /// something.
    #[must_use]
    pub fn all_packs(&self) -> Vec<PackInfo> {
        let snapshot = self.0.registry.snapshot();
        let latest = snapshot
            .packs
            .values()
            .filter_map(|versions| versions.last()?.registered(&self.0).ok());
        latest.map(|pack| pack.info(&snapshot)).collect()
    }

    /// Returns one pack, in its latest version unless one is named.
    ///
    /// # Errors
    /// `not_found`, with the nearest name.
    pub fn pack(&self, name: &str, version: Option<Version>) -> Result<PackInfo> {
        let found = self.0.registered(name, version)?;
        Ok(found.info(&self.0.registry.snapshot()))
    }

    /// Returns a number that grows with each reload of the packs.
    ///
    /// When it has changed, drop what you derived from the packs.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.registry.revision()
    }

    /// Returns the manifests that were refused, with their reasons.
    #[must_use]
    pub fn refused(&self) -> Vec<ManifestError> {
        let snapshot = self.0.registry.snapshot();
        let read_later = snapshot
            .packs
            .values()
            .flatten()
            .filter_map(|pack| pack.refusal());
        snapshot.refused.iter().chain(read_later).cloned().collect()
    }

    /// Returns the memory; `None` if gate 1 is shut.
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryControl> {
        self.0.memory.as_ref()
    }

    /// Returns the event bus.
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

    /// Returns the readiness checks of this engine, by name. It reads from the store, at most once
    /// a second.
    pub async fn ready(&self) -> Vec<(&'static str, Result<(), String>)> {
        self.0.ready().await
    }

    /// Reads the packs folder again. Bad manifests are listed as refused; all other packs are
    /// served.
    pub fn reload(&self) {
        self.0.reload();
    }

    /// Ends jobs and sessions, writes the queues, releases the store, and stops every task.
    ///
    /// Does not wait for calls in progress. Returns the number of purges that the store has not
    /// carried out: they are in the journal, if there is one, and the next process with it carries
    /// them out.
    pub async fn shutdown(&self) -> usize {
        self.0.shutdown().await
    }

    /// Starts the background sweeps. Call it once.
    ///
    /// They remove sessions that earlier processes left, expired artifacts, jobs of lost processes,
    /// and rows of the store (at once, and then `memory.interval` after each run).
    /// [`Engine::shutdown`] ends them.
    pub fn start_sweeping(&self, memory: JanitorConfig) {
        let inner = &self.0;
        if let Some(sessions) = inner.sessions.clone() {
            tokio::spawn(async move { sessions.sweep().await });
        }
        if let Some(store) = inner.artifacts.clone() {
            inner.janitor.sweep_artifacts(
                store,
                &inner.metrics,
                inner.config.artifacts.sweep_interval,
                &inner.stop,
            );
        }
        inner.jobs.end_lost_in_background();
        if let Some(control) = &inner.memory {
            let (store, clock) = (Arc::clone(control.store()), Arc::clone(&inner.clock));
            inner
                .janitor
                .sweep_rows(store, clock, &inner.metrics, memory, &inner.stop);
        }
    }

    /// Deletes expired artifacts in a local folder, for a process that is about to end.
    ///
    /// The future may be dropped halfway; the next sweep continues there. Buckets are left to
    /// servers, because this would query them at each call.
    pub async fn sweep_files_once(&self) {
        if let Some(store) = self.0.artifacts.as_ref().filter(|store| !store.is_bucket()) {
            janitor::sweep_artifacts_once(store, &self.0.metrics).await;
        }
    }

    /// Reads an artifact of this caller into memory.
    ///
    /// # Errors
    /// As [`Engine::open_artifact`].
    pub async fn artifact(&self, identity: &Identity, key: &str) -> Result<(ArtifactRef, Bytes)> {
        self.artifact_up_to(identity, key, u64::MAX).await
    }

    /// Reads an artifact of this caller of at most `max_bytes` into memory.
    ///
    /// # Errors
    /// As [`Engine::open_artifact`]; `too_large` if it is longer.
    pub async fn artifact_up_to(
        &self,
        identity: &Identity,
        key: &str,
        max_bytes: u64,
    ) -> Result<(ArtifactRef, Bytes)> {
        self.0.artifacts()?.whole(identity, key, max_bytes).await
    }

    /// Opens an artifact of this caller as a stream.
    ///
    /// Without a caller (operators only), it opens an artifact of any caller. A damaged artifact
    /// ends with an error before its last piece; one of at most 1 MiB is not opened.
    ///
    /// # Errors
    /// `not_found` if it does not exist, has expired or belongs to another caller;
    /// `artifact_failed` if it cannot be read.
    pub async fn open_artifact(
        &self,
        owner: Option<&Identity>,
        key: &str,
    ) -> Result<(ArtifactRef, ByteStream)> {
        self.0.artifacts()?.open(owner, key).await
    }

    /// Lists the artifacts of a caller, newest first.
    ///
    /// Without a caller (operators only), it lists those of all callers. `limit` is the size of a
    /// page, `after` the `next` of the previous page.
    ///
    /// # Errors
    /// `invalid_input` if `after` comes from no page; `artifact_failed` if the artifact store does
    /// not answer.
    pub async fn artifacts(
        &self,
        owner: Option<&Identity>,
        pack: Option<&PackName>,
        limit: usize,
        after: Option<&str>,
    ) -> Result<ArtifactPage> {
        match &self.0.artifacts {
            Some(files) => files.list(owner, pack, limit, after).await,
            None => Ok(ArtifactPage {
                artifacts: Vec::new(),
                next: None,
            }),
        }
    }

    /// Deletes an artifact of this caller; without a caller (operators only), of any caller.
    ///
    /// # Errors
    /// `not_found` if it does not exist or belongs to another caller; `artifact_failed` if it
    /// cannot be deleted.
    pub async fn delete_artifact(&self, owner: Option<&Identity>, key: &str) -> Result<()> {
        self.0.artifacts()?.delete(owner, key).await
    }

    /// Deletes all artifacts of a caller, and returns how many. Needs no memory key.
    ///
    /// This includes artifacts that are being written.
    ///
    /// # Errors
    /// `artifact_failed` if the artifact store does not answer. Deleted artifacts stay deleted; a
    /// retry deletes the rest.
    pub async fn forget_artifacts(&self, tenant: &str, user: &str) -> Result<u64> {
        match &self.0.artifacts {
            Some(files) => files.forget(tenant, user).await,
            None => Ok(0),
        }
    }

    /// Checks whether the artifact store can be reached. Changes nothing.
    ///
    /// # Errors
    /// `artifact_failed` if not.
    pub async fn reach_artifacts(&self) -> Result<()> {
        match &self.0.artifacts {
            Some(files) => files.reach().await,
            None => Ok(()),
        }
    }

    /// Writes a small object to the artifact store, reads it back and deletes it.
    ///
    /// # Errors
    /// `artifact_failed` with what does not work.
    pub async fn probe_artifacts(&self) -> Result<()> {
        match &self.0.artifacts {
            Some(files) => files.probe().await,
            None => Ok(()),
        }
    }

    /// Returns the sessions of a caller, oldest first, of every process on this data folder.
    ///
    /// Without a caller (operators only), it returns those of all callers.
    ///
    /// # Errors
    /// `session_unavailable` if this engine has no sessions; `internal` if they cannot be read.
    pub async fn sessions(&self, identity: Option<&Identity>) -> Result<Vec<SessionInfo>> {
        self.0.sessions()?.list(identity).await
    }

    /// Returns a session of a caller, to run commands in.
    ///
    /// # Errors
    /// `not_found` if it has ended, never was, or belongs to another caller; `session_unavailable`
    /// if this engine has none.
    pub async fn session(&self, identity: &Identity, id: &str) -> Result<Arc<dyn Session>> {
        Ok(self.0.sessions()?.of(identity, id).await?.handle())
    }

    /// Ends a session of a caller, with everything that runs in it.
    ///
    /// Without a caller (operators only), it ends a session of any caller. Commands of other
    /// processes in it end within two seconds.
    ///
    /// # Errors
    /// As [`Engine::session`]; `internal` if a part of it cannot be removed.
    pub async fn end_session(&self, identity: Option<&Identity>, id: &str) -> Result<()> {
        self.0.sessions()?.end(identity, id).await
    }

    /// Runs a command in a sandbox, and describes how commands are isolated.
    ///
    /// # Errors
    /// `session_unavailable` with what is missing and what to do.
    pub async fn probe_sessions(&self) -> Result<String> {
        self.0.sessions()?.probe().await
    }

    /// Queues a call as a job, which continues without its caller.
    ///
    /// The call's own deadline, cancel and progress are ignored; the pack's timeout counts from the
    /// start of the run. Input and credentials are checked first.
    ///
    /// # Errors
    /// `not_found`, `invalid_input`, `credential_invalid`, `forbidden` as [`Engine::call`];
    /// `unauthenticated` for an anonymous caller; `overloaded` if too many jobs wait (in total or
    /// for this caller), if the server is about to stop, or if the job cannot be written to the
    /// database: then nothing was done.
    pub async fn submit(&self, call: Call) -> Result<Job> {
        if call.identity.is_anonymous() {
            // All callers without a token have one identity: each would see and cancel the jobs of
            // the others.
            return Err(Error::new(
                Code::Unauthenticated,
                "only the owner of a job can read it; send the token that started it",
            ));
        }
        let pack = self.0.find(&call).await?;
        let mut checked = call.clone();
        validate_input::validate(&pack.validate_input, &mut checked).await?;
        if let Some(layer) = &pack.credentials {
            credentials::resolve(layer, &checked)?;
        }
        let plan = RunPlan {
            bound: checked.stage.pinned_session.is_some(),
            ..pack.plan()
        };
        self.0
            .jobs
            .submit(call, plan, Arc::clone(&self.0) as _)
            .await
    }

    /// Takes jobs of the queue that servers share, and runs the schedules of packs as jobs of
    /// `caller`.
    ///
    /// Call it once, in a server. Without a caller no schedule runs; without a shared queue or a
    /// memory key every job runs in the process that took it. [`Engine::shutdown`] ends it.
    pub fn serve_jobs(&self, caller: Option<Identity>) {
        let runner: Arc<dyn JobRunner> = Arc::clone(&self.0) as _;
        self.0.jobs.claim_in_background(Arc::downgrade(&runner));
        self.0.run_schedules_in_background(caller.map(Arc::new));
    }

    /// Takes no more jobs of the queue that servers share: the others run them. Those that run here
    /// continue.
    pub fn leave_queued_jobs(&self) {
        self.0.jobs.claim_no_more();
    }

    /// Returns a job of `owner`; without an owner (operators only), of any caller.
    ///
    /// # Errors
    /// `not_found` if it does not exist, or belongs to another caller; `overloaded` if the database
    /// is not available.
    pub async fn job(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        self.0.jobs.job(owner, id).await
    }

    /// Lists jobs, the newest first, as [`Engine::job`] would show each.
    ///
    /// # Errors
    /// `overloaded` if the database is not available.
    pub async fn jobs(&self, owner: Option<&Identity>, query: &JobQuery) -> Result<JobPage> {
        self.0.jobs.list(owner, query).await
    }

    /// Returns the result of a job: the outcome of its call, or its error.
    ///
    /// # Errors
    /// The call's own error; `cancelled`; `conflict` while it has not ended; `not_found` if the job
    /// does not exist, or if its result is not kept, with the reason.
    pub async fn job_outcome(&self, owner: Option<&Identity>, id: &JobId) -> Result<Outcome> {
        self.0.jobs.outcome(owner, id).await
    }

    /// Cancels a job, waits a moment for its end, and returns its state then.
    ///
    /// A job that has already ended does not change.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn cancel_job(&self, owner: Option<&Identity>, id: &JobId) -> Result<Job> {
        self.0.jobs.cancel(owner, id).await
    }

    /// Waits until a job has ended, for at most `limit`, and returns its state then.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn wait_for_job(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
        limit: Duration,
    ) -> Result<Job> {
        self.0.jobs.wait_for(owner, id, limit).await
    }

    /// Follows a job: its state now, then every change; the stream ends after the last one.
    ///
    /// With `after`, the number of an event, it continues after that event. For a job of this
    /// process, every report comes, unless the reader is hundreds behind. For a job of another
    /// process, the stream shows the row in the database, about twice a second.
    ///
    /// # Errors
    /// As [`Engine::job`].
    pub async fn follow_job(
        &self,
        owner: Option<&Identity>,
        id: &JobId,
        after: Option<u64>,
    ) -> Result<impl Stream<Item = JobEvent> + Send + 'static + use<>> {
        self.0.jobs.follow(owner, id, after).await
    }

    /// Starts no more jobs.
    ///
    /// Jobs that wait in this process fail, to be submitted again later; those in the queue that
    /// servers share wait on. Running jobs continue until [`Engine::shutdown`].
    pub async fn drain_jobs(&self) {
        self.0.jobs.drain().await;
    }

    /// Waits until no job runs. Call it after [`Engine::drain_jobs`].
    pub async fn jobs_ended(&self) {
        self.0.jobs.ended().await;
    }

    /// Waits for a pack that is, or needs, a tool of an MCP server that was not queried yet.
    ///
    /// The server's `start_timeout` limits the wait.
    ///
    /// # Errors
    /// Why the server does not answer. An unknown pack is no error here: [`Engine::pack`] reports
    /// it.
    pub async fn await_pack(&self, pack: &str) -> Result<()> {
        self.0.await_pack(pack).await
    }

    /// As [`Engine::await_pack`], by the name of the tool for MCP clients; at most 10 s.
    ///
    /// # Errors
    /// Why the server does not answer, also if it takes too long. An unknown tool is no error here.
    pub async fn await_tool(&self, tool: &str) -> Result<()> {
        self.0.await_tool(tool).await
    }

    /// Lists the tools of all MCP servers, and waits at most `limit` for the answers.
    ///
    /// [`Engine::refused`] and [`Engine::mcp_servers`] list the servers that do not answer.
    pub async fn import_all(&self, limit: Duration) {
        self.0.import_all(limit).await;
    }

    /// As [`Engine::import_all`], but only for servers that must be queried.
    ///
    /// These are the servers whose tools are not stored, and those that a manifest waits for.
    pub async fn import_unknown(&self, limit: Duration) {
        self.0.import_unknown(limit).await;
    }

    /// As [`Engine::import_all`], but only for servers that a manifest waits for.
    pub async fn import_awaited(&self, limit: Duration) {
        self.0.import_awaited(limit).await;
    }

    /// Returns whether a manifest of the packs folder waits for the tools of an MCP server.
    #[must_use]
    pub fn needs_import(&self) -> bool {
        !self.0.registry.snapshot().pending.is_empty()
    }

    /// Lists the tools of all MCP servers in the background, until they answer.
    ///
    /// Packs appear with each answer.
    pub fn import_in_background(&self) {
        if let Some(servers) = &self.0.servers {
            servers.ask_in_background();
        }
    }

    /// Waits for the first answers after [`Engine::import_in_background`].
    ///
    /// It waits at most `start_timeout` and 10 s for each server, and not for servers whose tools
    /// are stored. Returns whether the tools of all servers are known.
    pub async fn packs_settled(&self) -> bool {
        match &self.0.servers {
            Some(servers) => {
                servers.settled().await;
                servers.all_known()
            }
            None => true,
        }
    }
}
