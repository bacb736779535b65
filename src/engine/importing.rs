//! Tools of MCP servers on their way into the registry: nobody waits for a server that it does not need.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use helmdeck_core::{Code, Error, Result};

use crate::engine::Engine;
use crate::mcp::{Changed, FIRST_ANSWER, Known, McpStatus, Server, Servers};

impl Engine {
    /// Makes the registry follow what servers list.
    pub(crate) fn hear_of_tools(&self) {
        let Some(servers) = &self.0.servers else { return };
        let inner = Arc::downgrade(&self.0);
        let changed: Changed = Arc::new(move || {
            let inner = inner.upgrade();
            Box::pin(async move {
                if let Some(inner) = inner {
                    // Reading the packs folder blocks.
                    let _ = tokio::task::spawn_blocking(move || Self(inner).reload()).await;
                }
            }) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        servers.on_change(&changed);
    }

    /// Asks the server behind a pack for its tools, if it was not asked yet.
    ///
    /// # Errors
    /// `unknown` if the pack has nothing to do with such a server; else why the server does not answer.
    pub(crate) async fn import_for(&self, pack: &str, unknown: Error) -> Result<()> {
        let Some(servers) = &self.0.servers else { return Err(unknown) };
        let pending = self.0.registry.snapshot().pending.get(pack).cloned();
        let named = || Some(pack.strip_prefix("mcp.")?.split('.').next()?.to_owned());
        let server = pending.or_else(named).and_then(|name| servers.get(&name).cloned());
        let Some(server) = server else { return Err(unknown) };
        // What is remembered of it may be too old to know the tool.
        if server.known() < Known::Listed {
            return Servers::ask(&server).await;
        }
        match server.listing() {
            Some(listing) if !self.0.registry.snapshot().follows(server.name(), &listing) => {
                // It has just answered somebody else, and the registry is about to follow.
                let engine = self.clone();
                let loaded = tokio::task::spawn_blocking(move || engine.reload()).await;
                loaded.map_err(|error| Error::new(Code::Internal, "the packs could not be loaded").with_source(error))
            }
            _ => Err(unknown),
        }
    }

    /// Waits until a pack is there, if it is a tool of an MCP server that was not asked for its tools yet, or a manifest that
    /// names one. The server's `start_timeout` bounds it.
    ///
    /// # Errors
    /// Why the server does not answer. An unknown pack is no error here: [`Engine::pack`] says so.
    pub async fn await_pack(&self, pack: &str) -> Result<()> {
        if self.0.registry.find(pack, None).is_ok() {
            return Ok(());
        }
        match self.import_for(pack, Error::new(Code::NotFound, "")).await {
            Err(error) if error.code() == Code::NotFound => Ok(()),
            other => other,
        }
    }

    /// As [`Engine::await_pack`], for the name that an MCP client calls the tool by, and for 10 s at most.
    ///
    /// # Errors
    /// Why the server does not answer, also if it takes too long. An unknown tool is no error here.
    pub async fn await_tool(&self, tool: &str) -> Result<()> {
        if self.0.servers.is_none() {
            return Ok(());
        }
        let snapshot = self.0.registry.snapshot();
        let pending = snapshot.pending.keys().find(|pack| pack.without_dots() == tool).map(ToString::to_string);
        // The server's part of the name is all that counts here.
        let pack = pending.unwrap_or_else(|| tool.replace("__", "."));
        drop(snapshot);
        match tokio::time::timeout(FIRST_ANSWER, self.await_pack(&pack)).await {
            Ok(answer) => answer,
            Err(_) => {
                let limit = helmdeck_core::duration::format_duration(FIRST_ANSWER);
                let message = format!("the MCP server behind \"{pack}\" has not answered within {limit}");
                Err(Error::new(Code::Timeout, message))
            }
        }
    }

    /// Asks every MCP server for its tools, all at once, and waits for the answers at most this long. Servers that do not
    /// answer are listed by [`Engine::refused`] and [`Engine::mcp_servers`].
    pub async fn import_all(&self, limit: Duration) {
        self.import(limit, |_, _| true).await;
    }

    /// As [`Engine::import_all`], but only servers of which nothing is remembered, and those that a manifest waits for.
    pub async fn import_unknown(&self, limit: Duration) {
        self.import(limit, |server, awaited| awaited || server.known() < Known::Remembered).await;
    }

    /// As [`Engine::import_all`], but only servers that a manifest waits for.
    pub async fn import_awaited(&self, limit: Duration) {
        self.import(limit, |_, awaited| awaited).await;
    }

    async fn import(&self, limit: Duration, wanted: impl Fn(&Server, bool) -> bool) {
        let Some(servers) = &self.0.servers else { return };
        let snapshot = self.0.registry.snapshot();
        let awaited = |server: &Server| snapshot.pending.values().any(|name| name == server.name());
        let all: Vec<_> = servers.all().filter(|server| wanted(server, awaited(server))).cloned().collect();
        let asked = join_all(all.iter().map(Servers::ask));
        if tokio::time::timeout(limit, asked).await.is_err() {
            tracing::warn!("not every MCP server has answered in time");
        }
        // A server that failed has no list that could have changed, and one that lists what is remembered has not changed: the registry
        // hears of both here, since a manifest may wait for the answer.
        let pending = &self.0.registry.snapshot().pending;
        if all.iter().any(|server| server.known() < Known::Listed || pending.values().any(|name| name == server.name()))
        {
            let engine = self.clone();
            let _ = tokio::task::spawn_blocking(move || engine.reload()).await;
        }
    }

    /// Says whether a manifest of the packs folder waits for what an MCP server lists.
    #[must_use]
    pub fn needs_import(&self) -> bool {
        !self.0.registry.snapshot().pending.is_empty()
    }

    /// Asks every MCP server for its tools in the background, again and again until it answers. Packs appear as they do.
    pub fn import_in_background(&self) {
        if let Some(servers) = &self.0.servers {
            servers.ask_in_background();
        }
    }

    /// Waits until the packs of every MCP server are there or the server has failed, in the first seconds after
    /// [`Engine::import_in_background`]: each server has its `start_timeout`, 10 s at most. After that, and for servers whose
    /// tools are remembered, it does not wait. Says whether the tools of all servers are known.
    pub async fn packs_settled(&self) -> bool {
        match &self.0.servers {
            Some(servers) => {
                servers.settled().await;
                servers.all_known()
            }
            None => true,
        }
    }

    /// Says where each MCP server stands, sorted by name.
    #[must_use]
    pub fn mcp_servers(&self) -> Vec<McpStatus> {
        self.0.servers.as_ref().map(Servers::status).unwrap_or_default()
    }
}
