//! Wiring: builds the engine and what it needs. The only file that names every crate.

mod stores;

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use helmdeck_conversation::{ConversationError, Conversations, Strategy};
use helmdeck_core::memory::NoMemory;
use helmdeck_core::secrets::Secrets;
use helmdeck_core::{Clock, Error, SystemClock};
use helmdeck_egress::Egress;
use helmdeck_engine::{Engine, Memory, SessionPlace};
use helmdeck_events::Bus;
#[cfg(feature = "postgres")]
use helmdeck_memory::drivers::postgres::session::Connections;
use helmdeck_memory::open::Opened;
use helmdeck_memory::{KeyRing, Kind, StoreError};
use helmdeck_system::System;
use helmdeck_vault::{Vault, VaultError, Watch};

use crate::args::Global;
use crate::auth;
use crate::config::{self, FlagSetting, Layers, Settings};
use crate::conversations::{Alone, CLOSING, Opening, lacks_summarizer};
use crate::credentials::{Credentials, EnvironmentSecrets, ShutVault};
use crate::env::ProcessEnvironment;
use crate::exit::{self, Failure, Result};
use crate::gate;
use crate::logging;
use crate::output::Output;
use crate::replicas;
use crate::s3;

/// Capacity of a command's event bus.
const EVENTS: usize = 16;

/// Everything that a command needs, read once at the start.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The settings.
    pub(crate) settings: Settings,
    /// Every setting with its origin.
    pub(crate) layers: Arc<Layers>,
    /// The process environment.
    pub(crate) env: ProcessEnvironment,
    /// The configuration file of the command line.
    pub(crate) config: Option<PathBuf>,
    /// Gate 1: the keys; `None` = memory is off.
    pub(crate) ring: Option<KeyRing>,
    /// The vault's keys; `None` = there is no vault.
    pub(crate) vault_ring: Option<KeyRing>,
    /// Task that keeps the open vault up to date.
    pub(crate) watch: Mutex<Option<Watch>>,
    /// The conversation memory, available once an engine with a memory was built.
    pub(crate) conversations: Conversations,
    /// Why the store refused the key, if the command continues without it.
    pub(crate) refused_store: OnceLock<StoreError>,
    /// The system database, once somebody asked for it.
    pub(crate) system: OnceLock<System>,
    /// The connections of the store, once somebody asked for them, if the system database is in the
    /// same place.
    #[cfg(feature = "postgres")]
    pub(crate) connections: OnceLock<Connections>,
    /// The output.
    pub(crate) output: Output,
    /// Whether callers other than the user that started the program are served.
    pub(crate) serves: bool,
}

/// Whether an engine gets a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    /// No memory and no vault: no pack is called.
    Nothing,
    /// No memory, but calls have the same credentials as in `run`. Creates nothing.
    None,
    /// If gate 1 is open; a missing store is not created.
    ///
    /// An empty store in memory replaces it until the process ends.
    ReadOnly,
    /// If gate 1 is open, for a single call: it must not fail because of its memory.
    IfReachable,
    /// If gate 1 is open, for a server: a store that cannot be opened now is opened later.
    Full,
}

impl Setup {
    /// Reads configuration and key, and starts the log.
    ///
    /// # Errors
    /// A configuration failure that lists every problem.
    pub(crate) fn load(
        global: &Global,
        flags: Vec<FlagSetting>,
        env: ProcessEnvironment,
        output: Output,
        level: &str,
    ) -> Result<Self> {
        let mut setup = Self::without_keys(global, flags, env, output, level)?;
        setup.ring = gate::key_ring(&setup.env, &setup.settings.memory.key_file)?;
        setup.vault_ring = gate::vault_ring(&setup.env, setup.ring.as_ref())?;
        Ok(setup)
    }

    /// Reads the configuration only, and starts the log: for commands that work without a key, or
    /// with a lost one.
    ///
    /// # Errors
    /// As [`Setup::load`].
    pub(crate) fn without_keys(
        global: &Global,
        flags: Vec<FlagSetting>,
        env: ProcessEnvironment,
        output: Output,
        level: &str,
    ) -> Result<Self> {
        let (settings, layers) =
            config::load(global.config.as_deref(), flags, &env)?.into_parts()?;
        logging::start(
            &settings.log.level,
            settings.log.format,
            level,
            output.verbose,
            output.quiet,
        );
        Ok(Self::new(settings, layers, env, global, output))
    }

    /// Returns the wiring of a command without keys.
    pub(crate) fn new(
        settings: Settings,
        layers: Layers,
        env: ProcessEnvironment,
        global: &Global,
        output: Output,
    ) -> Self {
        Self {
            settings,
            layers: Arc::new(layers),
            env,
            config: global.config.clone(),
            ring: None,
            vault_ring: None,
            watch: Mutex::default(),
            conversations: Conversations::default(),
            refused_store: OnceLock::new(),
            #[cfg(feature = "postgres")]
            connections: OnceLock::new(),
            system: OnceLock::new(),
            output,
            serves: false,
        }
    }

    /// Builds an engine with all packs.
    ///
    /// # Errors
    /// A failure if the store cannot be opened (with gate 1 open). Packs that do not fit are
    /// refused one by one.
    pub(crate) async fn engine(&self, memory: MemoryUse, watch: bool) -> Result<Engine> {
        self.engine_over(self.settings.packs_dir.as_deref(), memory, watch)
            .await
    }

    /// Builds an engine with the built-in packs and those of a folder.
    ///
    /// # Errors
    /// As [`Setup::engine`].
    pub(crate) async fn engine_over(
        &self,
        packs: Option<&Path>,
        memory: MemoryUse,
        watch: bool,
    ) -> Result<Engine> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let settings = &self.settings;
        let egress = Egress::new(settings.egress.clone());
        let secrets = self.secrets(memory).await?;
        let mut forge = helmdeck_packs::forge::Config {
            environment: crate::project::environment(
                &self.env,
                self.config.as_deref(),
                None,
                None,
            )?,
            ..settings.forge.packs(self.serves, self.env.working_dir())
        };
        // A server decides once: agents see its packs at their start. A single call is refused when
        // it runs something.
        if watch && forge.run {
            forge.run = forge.is_trusted();
        }
        let dependencies = helmdeck_packs::Dependencies {
            egress: egress.clone(),
            clock: Arc::clone(&clock),
            #[cfg(feature = "github")]
            github: settings.github.packs(),
            repo: self.repositories(),
            llm: helmdeck_llm::Client::new(&egress, settings.llm.clone())
                .map_err(Failure::config)?,
            swe: settings.swe.clone(),
            conversations: self.conversations.clone(),
            forge,
            seam: helmdeck_packs::seam::Config { seam: self.seam() },
        };
        let mut config = settings.engine.clone();
        // What the store keeps no longer ends in its chain as expired.
        let kept = settings.memory.store().limits.retention(Kind::Audit);
        config.audit.retention = kept.map_or(config.audit.retention, |kept| {
            kept.min(config.audit.retention)
        });
        let mut builder = Engine::builder(config)
            .builtins(helmdeck_packs::all(&dependencies))
            .secrets(Arc::clone(&secrets))
            .egress(egress.clone())
            .mcp(settings.mcp_servers.clone())
            .watch(watch);
        if let Some(folder) = packs {
            builder = builder.packs_dir(folder.to_owned());
        }
        builder = s3::artifacts(settings, &self.env, builder)?;
        if let Ok(data) = settings.data_dir() {
            settings
                .engine
                .sessions
                .keeps_from(data)
                .map_err(|problem| Failure::config(format!("sessions: {problem}")))?;
            if let Ok(program) = std::env::current_exe() {
                helmdeck_process::reap_when_killed(program.clone());
                // A process that watches the packs folder is a server. After a single call,
                // sessions that its pack preserves remain.
                builder = builder.sessions(SessionPlace {
                    folder: data.join("sessions"),
                    program,
                    outlive: !watch,
                    replica: replicas::name(settings),
                });
            }
            builder = builder.jobs(self.system()?, self.ring.clone().map(Arc::new));
            // A command that only shows something creates no data folder.
            let makes = matches!(memory, MemoryUse::IfReachable | MemoryUse::Full);
            builder =
                builder.remember_mcp(data.join("mcp"), self.ring.clone().map(Arc::new), makes);
        }
        let wanted = !matches!(memory, MemoryUse::Nothing | MemoryUse::None);
        if self.ring.is_some() && !wanted {
            // Gate 1 is open all the same: packs that need it are listed.
            builder = builder.memory_unavailable("this command does not open the store");
        }
        if let (Some(ring), true) = (&self.ring, wanted) {
            let url = match memory {
                MemoryUse::ReadOnly if !self.store_exists().await? => "memory:".to_owned(),
                _ => settings.memory_url()?,
            };
            let strict = memory == MemoryUse::ReadOnly;
            let opened = match strict {
                true => self.store_at(&url, ring).await.map(|store| Opened {
                    store,
                    trouble: None,
                })?,
                false => self.store_or_later(&url, ring, memory).await?,
            };
            let store = opened.store;
            match opened.trouble {
                // A pack that needs no store runs. Others check `Setup::refused_store`.
                Some(error @ StoreError::WrongKey { .. }) if memory == MemoryUse::IfReachable => {
                    let reason: Arc<str> = error.to_string().into();
                    builder = builder.memory_unavailable(&reason);
                    self.conversations
                        .provide(move || Err(NoMemory::Unavailable(Arc::clone(&reason)).into()));
                    let _ = self.refused_store.set(error);
                }
                Some(error @ StoreError::WrongKey { .. }) => return Err(error.into()),
                trouble => {
                    if let Some(error) = trouble {
                        let hint = exit::store_hint(&error).unwrap_or_default();
                        tracing::warn!(%error, hint, "going on without memory");
                        if store.not_open().is_none() {
                            builder = builder.store_trouble("locked");
                        }
                    }
                    let system = self.system().ok();
                    builder = builder.memory(Memory {
                        store,
                        keyring: Arc::new(ring.clone()),
                        system,
                    });
                }
            }
        }
        let engine = builder.clock(Arc::clone(&clock)).build();
        if let Some(memory) = engine.memory() {
            let place = self.conversations.clone();
            memory.on_forgotten_conversations(move |caller| place.forgotten(caller));
            let (store, events) = (Arc::clone(memory.store()), engine.events().clone());
            let opening = Opening {
                config: settings.conversation.clone(),
                clock,
                egress,
                secrets,
                folds: watch,
            };
            self.conversations.provide(move || {
                opening
                    .open(Arc::clone(&store), events.clone())
                    .map_err(Error::from)
            });
        }
        Ok(engine)
    }

    /// Builds an engine for a server, with the conversation memory open.
    ///
    /// From then on, conversations that wait for a summary are summarised.
    ///
    /// # Errors
    /// As [`Setup::engine`]; a configuration failure if no summarizer is configured.
    #[cfg(feature = "serve")]
    pub(crate) async fn serving_engine(&self) -> Result<Engine> {
        let engine = self.engine(MemoryUse::Full, true).await?;
        if self.ring.is_some()
            && self.settings.conversation.strategy != Strategy::None
            && let Err(error) = self.conversations.get()
        {
            self.shut_down(&engine).await;
            return Err(Failure::config(error.message()));
        }
        Ok(engine)
    }

    /// Shuts an engine down: its background work, its queues, and the vault's use log.
    ///
    /// Returns the number of purges that are left for the next start.
    pub(crate) async fn shut_down(&self, engine: &Engine) -> usize {
        self.conversations.close(CLOSING).await;
        let pending = engine.shutdown().await;
        self.close_vault().await;
        pending
    }

    /// Opens the conversation memory without an engine, for one command.
    ///
    /// It summarises only on request. A missing store is created only if `writes` is set and the
    /// strategy keeps turns; otherwise an empty store in memory replaces it until the command ends.
    ///
    /// # Errors
    /// `Absent` if gate 1 is shut; a failure if the store cannot be opened, or a configuration
    /// failure if no summarizer is configured.
    pub(crate) async fn conversation(&self, writes: bool, folds: bool) -> Result<Alone> {
        let Some(ring) = &self.ring else {
            return Err(Failure::from(Error::from(NoMemory::Off)).with_hint(format!(
                "`helmdeck key init` makes a key file for good; or `helmdeck key generate` makes a key: put it in {} or in a \
                 file named by {}",
                gate::KEY,
                gate::KEY_FILE
            )));
        };
        let config = self.settings.conversation.clone();
        if lacks_summarizer(&config) {
            // Report this before a store is created.
            return Err(ConversationError::SummarizerRequired.into());
        }
        let makes = writes && config.strategy != Strategy::None;
        let url = if makes || self.store_exists().await? {
            self.settings.memory_url()?
        } else {
            "memory:".to_owned()
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let egress = Egress::new(self.settings.egress.clone());
        // Only summaries need a credential.
        let secrets = self
            .secrets(if folds {
                MemoryUse::Full
            } else {
                MemoryUse::Nothing
            })
            .await?;
        let opening = Opening {
            config,
            clock: Arc::clone(&clock),
            egress,
            secrets,
            folds: false,
        };
        let store = self.store_at(&url, ring).await?;
        match opening.open(Arc::clone(&store), Bus::new(EVENTS, clock)) {
            Ok(memory) => Ok(Alone { memory, store }),
            Err(error) => {
                store.close().await?;
                Err(error.into())
            }
        }
    }

    /// Returns the credentials of the environment and, if something is called, of the vault.
    ///
    /// # Errors
    /// A failure if the vault must open and does not.
    pub(crate) async fn secrets(&self, memory: MemoryUse) -> Result<Arc<dyn Secrets>> {
        let environment = EnvironmentSecrets::new(&self.settings.credentials, &self.env);
        Ok(Arc::new(Credentials::new(
            environment,
            self.vault(memory).await?,
        )))
    }

    /// Returns the settings of the project routes: the project of the `forge.*` packs.
    ///
    /// # Errors
    /// A configuration failure for a variable that is not text.
    #[cfg(feature = "serve")]
    pub(crate) fn project(&self) -> Result<helmdeck_server::ProjectSettings> {
        Ok(helmdeck_server::ProjectSettings {
            root: self
                .settings
                .forge
                .packs(self.serves, self.env.working_dir())
                .root,
            environment: crate::project::environment(
                &self.env,
                self.config.as_deref(),
                None,
                None,
            )?,
        })
    }

    /// Returns the settings of the `seam.*` packs: the project of the `forge.*` packs, and a vault.
    ///
    /// A server answers users other than the one that started it, so there only a vault named in
    /// helmdeck's settings counts. A vault from the shell's variables, or from `.claude` in the
    /// home folder, is private to that user.
    fn seam(&self) -> Option<helmdeck_seam::SeamConfig> {
        let root = self
            .settings
            .forge
            .packs(self.serves, self.env.working_dir())
            .root?;
        let mut config = crate::seam::config(&self.settings.seam, &self.env);
        config.cwd = root;
        if self.serves {
            config.vaults.retain(|given| given.by == crate::seam::SET);
            config.settings = false;
        }
        Some(config)
    }

    /// Returns the settings for repositories.
    ///
    /// Without authentication every caller is the user that runs this program, and can read that
    /// user's folders anyway.
    fn repositories(&self) -> helmdeck_packs::repo::Config {
        let settings = &self.settings;
        let open =
            !settings.auth.api_tokens && settings.auth.jwks.is_empty() && !auth::is_set(&self.env);
        let home = self
            .env
            .path("HOME")
            .map(|home| home.join(".ssh/known_hosts"));
        settings.repo.packs(
            &settings.engine.commands.path,
            open,
            home,
            self.env.program(),
        )
    }

    /// Returns how callers of the server authenticate, `None` if authentication is off.
    ///
    /// # Errors
    /// As [`Setup::authenticates`].
    #[cfg(feature = "serve")]
    pub(crate) fn auth(&self) -> Result<Option<helmdeck_server::Auth>> {
        let egress = Egress::new(self.settings.egress.clone());
        let secret = auth::client_secret(&self.env)?;
        helmdeck_server::Auth::new(
            &self.settings.auth,
            auth::shared_secret(&self.env)?,
            self.system().ok(),
            &egress,
        )
        .map(|auth| auth.map(|auth| auth.client_secret(secret)))
        .map_err(|message| Failure::config(format!("[auth]: {message}")))
    }

    /// Says whether callers of the server have to authenticate.
    ///
    /// # Errors
    /// A configuration failure that names what is wrong.
    pub(crate) fn authenticates(&self) -> Result<bool> {
        auth::client_secret(&self.env)?;
        let secret = auth::shared_secret(&self.env)?;
        let on = self
            .settings
            .auth
            .authenticates(secret.as_ref(), self.system().is_ok());
        on.map_err(|message| Failure::config(format!("[auth]: {message}")))
    }

    /// Opens the vault, for commands that call packs.
    async fn vault(&self, memory: MemoryUse) -> Result<Option<Arc<dyn Secrets>>> {
        let (Some(ring), true) = (&self.vault_ring, memory != MemoryUse::Nothing) else {
            return Ok(None);
        };
        let (system, clock) = (self.system()?, Arc::new(SystemClock::default()));
        // A server starts before its database: it reads the vault as soon as it can.
        let opened = if self.serves {
            Vault::open_when_reachable(system, ring.clone(), clock).await
        } else {
            Vault::open(system, ring.clone(), clock).await
        };
        let vault = match opened {
            Ok(vault) => vault,
            // A server must not start with a vault of another key. A single call may need no
            // credential, and a list needs none.
            Err(error)
                if memory == MemoryUse::None
                    || matches!(
                        (memory, &error),
                        (MemoryUse::IfReachable, VaultError::Store(_))
                    ) =>
            {
                tracing::warn!(%error, "going on without the vault");
                return Ok(Some(Arc::new(ShutVault(error.to_string()))));
            }
            Err(error) => return Err(error.into()),
        };
        // The use log goes into the file of the credential, so no file is created here.
        if memory != MemoryUse::ReadOnly {
            *self.watch.lock() = Some(vault.watch());
        }
        Ok(Some(Arc::new(vault)))
    }

    /// Writes the pending part of the vault's use log. Call it after the engine's shutdown.
    pub(crate) async fn close_vault(&self) {
        let watch = self.watch.lock().take();
        if let Some(watch) = watch {
            watch.stop().await;
        }
    }
}
