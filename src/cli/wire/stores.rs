//! Wiring: opens the memory store and the system database where the settings say.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::SystemClock;
#[cfg(feature = "postgres")]
use helmdeck_memory::drivers::postgres::session::Connections;
use helmdeck_memory::open::{Location, Opened, open_or_later};
use helmdeck_memory::{KeyRing, Store};
use helmdeck_system::{Journal, System};

use super::{MemoryUse, Setup};
use crate::exit::{Exit, Failure, Result};

/// Interval at which a server tries again to open a store that failed to open.
const RETRY_STORE: Duration = Duration::from_secs(2);
/// Time limit for a PostgreSQL server in a single call, which then runs without its memory. A
/// longer `cache.read_budget` replaces it.
const CONNECT_OF_A_CALL: Duration = Duration::from_secs(1);

impl Setup {
    /// Opens the store, or reports why it cannot. A server keeps trying.
    pub(super) async fn store_or_later(
        &self,
        url: &str,
        ring: &KeyRing,
        memory: MemoryUse,
    ) -> helmdeck_memory::Result<Opened> {
        let mut config = self.settings.memory.store();
        config.postgres.watch_interval = self.settings.engine.cache.watch_interval;
        let retry = (memory == MemoryUse::Full).then_some(RETRY_STORE);
        if retry.is_none() {
            let limit = CONNECT_OF_A_CALL.max(self.settings.engine.cache.read_budget);
            config.postgres.connect_timeout = config.postgres.connect_timeout.min(limit);
        } else {
            self.share_connections(url, &mut config)?;
        }
        open_or_later(
            url,
            ring.clone(),
            config,
            Arc::new(SystemClock::default()),
            retry,
        )
        .await
    }

    /// Lets the store and the system database share connections, if both are in one PostgreSQL
    /// database.
    #[cfg(feature = "postgres")]
    fn share_connections(
        &self,
        url: &str,
        config: &mut helmdeck_memory::Config,
    ) -> helmdeck_memory::Result<()> {
        let urls = [
            self.settings.memory_url().ok(),
            self.settings.system_url().ok(),
        ];
        if !matches!(Location::parse(url)?, Location::Postgres(_))
            || urls.iter().any(|of| of.as_deref() != Some(url))
        {
            return Ok(());
        }
        if self.connections.get().is_none() {
            let made = Connections::new(url, config.postgres.pool_size, config)?;
            let _ = self.connections.set(made);
        }
        config.connections = self.connections.get().cloned();
        Ok(())
    }

    #[cfg(not(feature = "postgres"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "as with PostgreSQL"
    )]
    fn share_connections(
        &self,
        _: &str,
        _: &mut helmdeck_memory::Config,
    ) -> helmdeck_memory::Result<()> {
        Ok(())
    }

    pub(super) async fn store_at(
        &self,
        url: &str,
        ring: &KeyRing,
    ) -> helmdeck_memory::Result<Arc<dyn Store>> {
        let clock = Arc::new(SystemClock::default());
        helmdeck_memory::open(url, ring.clone(), self.settings.memory.store(), clock).await
    }

    /// Says whether the store exists. Changes nothing.
    ///
    /// # Errors
    /// A configuration failure if the URL is invalid; a failure if the server cannot be reached.
    pub(crate) async fn store_exists(&self) -> Result<bool> {
        Ok(helmdeck_memory::open::exists(
            &self.settings.memory_url()?,
            &self.settings.memory.store(),
        )
        .await?)
    }

    /// Opens the store with the key, `None` if gate 1 is shut or the store does not exist yet.
    ///
    /// # Errors
    /// A failure if the store was written with another key, is damaged or cannot be reached.
    pub(crate) async fn sealed_store(&self) -> Result<Option<Arc<dyn Store>>> {
        match &self.ring {
            Some(ring) if self.store_exists().await? => Ok(Some(
                self.store_at(&self.settings.memory_url()?, ring).await?,
            )),
            _ => Ok(None),
        }
    }

    /// Opens the store with the key, for commands that need both.
    ///
    /// # Errors
    /// `Absent` if gate 1 is shut or the store does not exist yet; else as [`Setup::sealed_store`].
    pub(crate) async fn opened_store(&self) -> Result<Arc<dyn Store>> {
        if self.ring.is_none() {
            return Err(Failure::new(
                Exit::Absent,
                "no memory key is set, so entries cannot be opened",
            )
            .with_hint("`helmdeck memory status` shows what is there without the key"));
        }
        let absent = || {
            Failure::new(
                Exit::Absent,
                "there is no store yet; the first write creates it",
            )
        };
        self.sealed_store().await?.ok_or_else(absent)
    }

    /// Opens the store without the key, to read plain metadata and to delete; `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// A failure if the store is damaged or cannot be reached.
    pub(crate) async fn clear_store(&self) -> Result<Option<Arc<dyn Store>>> {
        let (url, config) = (self.settings.memory_url()?, self.settings.memory.store());
        Ok(
            helmdeck_memory::open::open_clear(&url, &config, Arc::new(SystemClock::default()))
                .await?,
        )
    }

    /// Returns the location of memory, with secrets redacted.
    ///
    /// # Errors
    /// A configuration failure if the URL is invalid.
    pub(crate) fn shown_url(&self) -> Result<String> {
        let url = self.settings.memory_url()?;
        Ok(match Location::parse(&url)? {
            Location::Postgres(url) => url.shown()?,
            Location::Memory | Location::Sqlite(_) => url,
        })
    }

    /// Returns the system database, which need not exist.
    ///
    /// # Errors
    /// A configuration failure if there is no data folder, or its URL cannot be used.
    pub(crate) fn system(&self) -> Result<System> {
        if let Some(system) = self.system.get() {
            return Ok(system.clone());
        }
        let mut config = self.settings.memory.store();
        let url = self.settings.system_url()?;
        self.share_connections(&url, &mut config)?;
        let mut system = crate::system::at(&url, &config)?.with_keys(self.ring.clone());
        if let Ok(data) = self.settings.data_dir() {
            system = system.with_journal(Journal::at(
                data.join("journal.db"),
                config.busy_timeout,
                self.ring.clone(),
            ));
        }
        // One handle for all users, so that they share its connections.
        Ok(self.system.get_or_init(|| system).clone())
    }
}
