//! Builder of an engine. A part that is not set does not exist.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

use helmdeck_core::memory::NoMemory;
use helmdeck_core::secrets::{NoSecrets, Secrets};
use helmdeck_core::{Builtin, Clock, SystemClock};
use helmdeck_egress::Egress;
use helmdeck_events::Bus;
use helmdeck_memory::{Changes, KeyRing, Store};
use helmdeck_system::System;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::cache::{self, hub};
use crate::config::Config;
use crate::engine::{Engine, Inner};
use crate::janitor::Janitor;
use crate::jobs::Jobs;
use crate::memory::MemoryControl;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::statistics::Statistics;
use crate::views::{EngineViews, Holders};
use helmdeck_artifacts::{
    ArtifactBackend, ArtifactMetrics, ArtifactStore, S3Credentials, S3Location,
};
use helmdeck_mcp_client::{McpMetrics, McpServer, Remembered, Servers, Surroundings};
use helmdeck_sandbox::{SessionPlace, Sessions};

/// Number of events kept for late subscribers.
const EVENTS: usize = 1024;

/// Open gate 1: a store and the keys that seal it.
#[derive(Clone)]
pub struct Memory {
    /// The store; sealed.
    pub store: Arc<dyn Store>,
    /// The keys; cache keys are made with them too.
    pub keyring: Arc<KeyRing>,
    /// Database of the plaintext counters; `None` = they are not kept.
    pub system: Option<System>,
}

helmdeck_core::redacted_debug!(Memory);

/// Location of artifacts.
enum ArtifactLocation {
    Folder(PathBuf),
    S3(Box<(S3Location, S3Credentials)>),
}

/// Builder of an [`Engine`].
///
/// # Examples
/// An engine with one built-in pack, without cache and memory:
///
/// ```
/// use std::sync::Arc;
///
/// use helmdeck_core::{Builtin, Call, Context, Handler, Identity, Json, Need, PackName, Reply, Result};
/// use helmdeck_engine::{Config, Engine};
///
/// struct Greet;
///
/// #[async_trait::async_trait]
/// impl Handler for Greet {
///     async fn run(&self, _: Context, _: Json) -> Result<Reply> {
///         Reply::value(&serde_json::json!({ "greeting": "Hello" }))
///     }
/// }
///
/// const MANIFEST: &str = r#"
/// name = "demo.greet"
/// version = "v1"
/// description = "Greets a person."
///
/// [handler]
/// builtin = "demo.greet"
/// "#;
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
/// let pack =
///     Builtin { file: "greet.toml", manifest: MANIFEST, schemas: "", handler: Arc::new(Greet), need: Need::Nothing };
/// let engine = Engine::builder(Config::default()).builtins(vec![pack]).build();
///
/// let call = Call::new(PackName::new("demo.greet").unwrap(), "{}", Arc::new(Identity::local()));
/// let outcome = engine.call(call).await.unwrap();
/// assert_eq!(outcome.output.as_str(), r#"{"greeting":"Hello"}"#);
/// # });
/// ```
pub struct Builder {
    config: Config,
    builtins: Vec<Builtin>,
    packs_dir: Option<PathBuf>,
    watch: bool,
    memory: Option<Memory>,
    no_memory: NoMemory,
    store_trouble: Option<&'static str>,
    changes: Option<Changes>,
    secrets: Arc<dyn Secrets>,
    artifacts: Option<ArtifactLocation>,
    sessions: Option<SessionPlace>,
    jobs: Option<(System, Option<Arc<KeyRing>>)>,
    egress: Egress,
    clock: Arc<dyn Clock>,
    mcp: Vec<McpServer>,
    remembered: Option<Remembered>,
}

helmdeck_core::redacted_debug!(Builder, this => config = this.config, builtins = this.builtins);

impl Builder {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            builtins: Vec::new(),
            packs_dir: None,
            watch: false,
            memory: None,
            no_memory: NoMemory::Off,
            store_trouble: None,
            changes: None,
            secrets: Arc::new(NoSecrets),
            artifacts: None,
            sessions: None,
            jobs: None,
            egress: Egress::new(helmdeck_egress::Config::default()),
            clock: Arc::new(SystemClock::default()),
            mcp: Vec::new(),
            remembered: None,
        }
    }

    /// Adds packs that are part of the binary.
    #[must_use]
    pub fn builtins(mut self, builtins: Vec<Builtin>) -> Self {
        self.builtins.extend(builtins);
        self
    }

    /// Adds the packs of a folder. It need not exist.
    #[must_use]
    pub fn packs_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.packs_dir = Some(folder.into());
        self
    }

    /// Picks up changes of the packs folder without a restart, also if it is created later.
    #[must_use]
    pub const fn watch(mut self, watch: bool) -> Self {
        self.watch = watch;
        self
    }

    /// Opens gate 1.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Marks the store as unavailable: gate 1 is open, but the store could not be opened.
    ///
    /// Calls that need memory fail with this reason; all others run. Has no effect with
    /// [`Builder::memory`].
    #[must_use]
    pub fn memory_unavailable(mut self, reason: &str) -> Self {
        self.no_memory = NoMemory::Unavailable(reason.into());
        self
    }

    /// Sets why the store cannot be written at the start, in one word.
    ///
    /// The word comes from [`helmdeck_memory::StoreError::trouble`]. Replies report it until a
    /// write works. Has no effect without [`Builder::memory`].
    #[must_use]
    pub const fn store_trouble(mut self, trouble: &'static str) -> Self {
        self.store_trouble = Some(trouble);
        self
    }

    /// Sets the source of invalidations by other processes, such as a message bus.
    ///
    /// Default: the store's notifications ([`helmdeck_memory::ReadStore::changes`]), else polling.
    /// Has no effect without [`Builder::memory`].
    ///
    /// Each notification drops the entries that it names from this process. When the source ends,
    /// the store is polled.
    #[must_use]
    pub fn changes(mut self, changes: Changes) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Sets the source of credentials.
    #[must_use]
    pub fn secrets(mut self, secrets: Arc<dyn Secrets>) -> Self {
        self.secrets = secrets;
        self
    }

    /// Keeps artifacts in a folder. The first artifact creates it.
    #[must_use]
    pub fn artifacts(mut self, folder: impl Into<PathBuf>) -> Self {
        self.artifacts = Some(ArtifactLocation::Folder(folder.into()));
        self
    }

    /// Keeps artifacts in a bucket instead of a folder.
    ///
    /// The first use sends the first request. Requests to the bucket go through
    /// [`Builder::egress`]; the calls of packs cannot reach it that way.
    #[must_use]
    pub fn artifacts_in(mut self, bucket: S3Location, credentials: S3Credentials) -> Self {
        self.artifacts = Some(ArtifactLocation::S3(Box::new((bucket, credentials))));
        self
    }

    /// Sets the location of sessions.
    ///
    /// Without it, packs that need a session are refused. The first session creates the folder.
    #[must_use]
    pub fn sessions(mut self, place: SessionPlace) -> Self {
        self.sessions = Some(place);
        self
    }

    /// Stores jobs, so that they outlive the process.
    ///
    /// Their results are stored too, sealed, if there is a keyring. Without this setting, jobs end
    /// with the process.
    #[must_use]
    pub fn jobs(mut self, system: System, keyring: Option<Arc<KeyRing>>) -> Self {
        self.jobs = Some((system, keyring));
        self
    }

    /// Sets the egress of `http` handlers and of MCP servers over HTTP. Default: public addresses
    /// only.
    #[must_use]
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = egress;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Adds MCP servers, whose tools become packs named `mcp.<server>.<tool>`.
    ///
    /// The tools are imported by [`Engine::import_all`], [`Engine::import_in_background`], or a
    /// call of one. No server is started before that.
    #[must_use]
    pub fn mcp(mut self, servers: Vec<McpServer>) -> Self {
        self.mcp.extend(servers);
        self
    }

    /// Stores the tools of MCP servers between starts in a folder.
    ///
    /// So their packs exist at once, and a cached answer needs no server. The lists are sealed with
    /// a keyring; without one, a list that contains something like a token is not written. `makes`
    /// says whether a missing parent folder is created.
    #[must_use]
    pub fn remember_mcp(
        mut self,
        folder: impl Into<PathBuf>,
        keyring: Option<Arc<KeyRing>>,
        makes: bool,
    ) -> Self {
        self.remembered = Some(Remembered::new(folder.into(), keyring, makes));
        self
    }

    /// Builds every pack's pipeline. Refused manifests are not fatal: [`Engine::refused`] lists
    /// them.
    ///
    /// Must be called on a tokio runtime. With gate 1 shut, no packs folder to watch and no
    /// artifacts, it starts no task.
    #[must_use]
    pub fn build(self) -> Engine {
        let metrics = Arc::new(Metrics::new());
        let events = Bus::new(EVENTS, Arc::clone(&self.clock));
        let stop = CancellationToken::new();
        let artifacts = self.artifacts.map(|files| {
            let place = files.open(&self.egress);
            let (config, clock) = (self.config.artifacts.clone(), Arc::clone(&self.clock));
            Arc::new(ArtifactStore::new(
                place,
                config,
                clock,
                metrics.register(ArtifactMetrics::register),
            ))
        });
        let (memory, audit) = match self.memory {
            Some(memory) => {
                let audit = Audit::start(
                    Arc::clone(&memory.store),
                    self.config.audit.clone(),
                    Arc::clone(&metrics),
                    &stop,
                );
                let parts = hub::HubDependencies {
                    store: memory.store,
                    keyring: memory.keyring,
                    system: memory.system,
                    clock: Arc::clone(&self.clock),
                    config: self.config.cache.clone(),
                    metrics: Arc::clone(&metrics),
                    events: events.clone(),
                    changes: self.changes,
                    trouble: self.store_trouble,
                };
                let hub = cache::start(parts, &stop);
                let views = EngineViews {
                    hub: Arc::clone(&hub),
                    audit: audit.clone(),
                    artifacts: artifacts.clone(),
                    pack: None,
                    holders: Holders::default(),
                };
                let views = Arc::new(views);
                (Some(MemoryControl::new(hub, views)), Some(audit))
            }
            None => (None, None),
        };
        let sessions = self.sessions.map(|place| {
            let (config, clock) = (self.config.sessions.clone(), Arc::clone(&self.clock));
            metrics.register(|registry| Sessions::local(place, config, clock, registry))
        });
        let servers = (!self.mcp.is_empty()).then(|| {
            let around = Surroundings {
                secrets: Arc::clone(&self.secrets),
                egress: self.egress.clone(),
                path: self.config.commands.path.clone(),
                remembered: self.remembered,
                stop: stop.child_token(),
                tasks: TaskTracker::new(),
            };
            Servers::new(self.mcp, around, &metrics.register(McpMetrics::register))
        });
        let system = self.jobs.as_ref().map(|(system, _)| system.clone());
        let statistics = Arc::new(Statistics::new(system, Arc::clone(&self.clock)));
        let jobs = Jobs::new(
            self.jobs,
            self.config.jobs.clone(),
            Arc::clone(&self.clock),
            &metrics,
            stop.child_token(),
        );
        let inner = Arc::new(Inner {
            jobs: Arc::new(jobs),
            statistics,
            registry: Registry::default(),
            config: self.config,
            clock: self.clock,
            secrets: self.secrets,
            artifacts,
            sessions,
            egress: self.egress,
            memory,
            no_memory: self.no_memory,
            audit,
            metrics,
            events,
            builtins: self.builtins,
            packs_dir: self.packs_dir,
            watch: Mutex::new(None),
            janitor: Janitor::default(),
            servers,
            loading: Mutex::new(()),
            stop,
        });
        inner.start(self.watch);
        inner.follow_tools();
        Engine(inner)
    }
}

impl ArtifactLocation {
    #[cfg(feature = "s3")]
    fn open(self, egress: &Egress) -> ArtifactBackend {
        match self {
            Self::Folder(folder) => ArtifactBackend::folder(&folder),
            Self::S3(bucket) => helmdeck_artifacts::open_s3(&bucket.0, &bucket.1, egress),
        }
    }

    #[cfg(not(feature = "s3"))]
    fn open(self, _: &Egress) -> ArtifactBackend {
        match self {
            Self::Folder(folder) => ArtifactBackend::folder(&folder),
            // This build cannot parse any address of a bucket.
            Self::S3(bucket) => ArtifactBackend::unknown(&bucket.0.shown()),
        }
    }
}
