//! Import of the tools of MCP servers into the registry.
//!
//! No call waits for a server that it does not need.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use helmdeck_core::{Code, Error, Result};

use super::inner::Inner;
use helmdeck_mcp_client::{Changed, Discovery, FIRST_ANSWER, Server, Servers};

impl Inner {
    /// Updates the registry when the tools of a server change.
    pub(crate) fn follow_tools(self: &Arc<Self>) {
        let Some(servers) = &self.servers else { return };
        let inner = Arc::downgrade(self);
        let changed: Changed = Arc::new(move || {
            let inner = inner.upgrade();
            Box::pin(async move {
                if let Some(inner) = inner {
                    // Reading the packs folder blocks.
                    let _ = tokio::task::spawn_blocking(move || inner.reload()).await;
                }
            }) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        servers.on_change(&changed);
    }

    /// Lists the tools of the server behind a pack, if it was not queried yet.
    ///
    /// # Errors
    /// `unknown` if the pack has nothing to do with such a server; else why the server does not
    /// answer.
    pub(crate) async fn import_for(self: &Arc<Self>, pack: &str, unknown: Error) -> Result<()> {
        let Some(servers) = &self.servers else {
            return Err(unknown);
        };
        let pending = self.registry.snapshot().pending.get(pack).cloned();
        let named = || Some(pack.strip_prefix("mcp.")?.split('.').next()?.to_owned());
        let server = pending
            .or_else(named)
            .and_then(|name| servers.get(&name).cloned());
        let Some(server) = server else {
            return Err(unknown);
        };
        // The stored list may be too old to know the tool.
        if server.known() < Discovery::Listed {
            return Servers::ask(&server).await;
        }
        match server.listing() {
            Some(listing) if !self.registry.snapshot().follows(server.name(), &listing) => {
                // It has just answered another call, and the registry is about to be updated.
                let inner = Arc::clone(self);
                let loaded = tokio::task::spawn_blocking(move || inner.reload()).await;
                loaded.map_err(|error| {
                    Error::new(Code::Internal, "the packs could not be loaded").with_source(error)
                })
            }
            _ => Err(unknown),
        }
    }

    /// Waits for a pack that needs an MCP server whose tools are not known yet.
    ///
    /// It is a tool of that server, or a manifest that names one. The server's `start_timeout`
    /// limits the wait.
    ///
    /// # Errors
    /// Why the server does not answer. An unknown pack is no error here: [`crate::Engine::pack`]
    /// reports it.
    pub(crate) async fn await_pack(self: &Arc<Self>, pack: &str) -> Result<()> {
        if self.registry.find(pack, None).is_ok() {
            return Ok(());
        }
        match self.import_for(pack, Error::new(Code::NotFound, "")).await {
            Err(error) if error.code() == Code::NotFound => Ok(()),
            other => other,
        }
    }

    /// As [`crate::Engine::await_pack`], by the name of the tool for MCP clients; at most 10 s.
    ///
    /// # Errors
    /// Why the server does not answer, also if it takes too long. An unknown tool is no error here.
    pub(crate) async fn await_tool(self: &Arc<Self>, tool: &str) -> Result<()> {
        if self.servers.is_none() {
            return Ok(());
        }
        let snapshot = self.registry.snapshot();
        let pending = snapshot
            .pending
            .keys()
            .find(|pack| pack.without_dots() == tool)
            .map(ToString::to_string);
        // Only the server's part of the name counts here.
        let pack = pending.unwrap_or_else(|| tool.replace("__", "."));
        drop(snapshot);
        match tokio::time::timeout(FIRST_ANSWER, self.await_pack(&pack)).await {
            Ok(answer) => answer,
            Err(_) => {
                let limit = helmdeck_core::duration::format_duration(FIRST_ANSWER);
                let message =
                    format!("the MCP server behind \"{pack}\" has not answered within {limit}");
                Err(Error::new(Code::Timeout, message))
            }
        }
    }

    /// Lists the tools of all MCP servers at once, and waits at most this long for the answers.
    ///
    /// Servers that do not answer are listed by [`crate::Engine::refused`] and
    /// [`crate::Engine::mcp_servers`].
    pub(crate) async fn import_all(self: &Arc<Self>, limit: Duration) {
        self.import(limit, |_, _| true).await;
    }

    /// As [`crate::Engine::import_all`], but only for servers that must be queried.
    ///
    /// These are the servers of which nothing is stored, and those that a manifest waits for.
    pub(crate) async fn import_unknown(self: &Arc<Self>, limit: Duration) {
        self.import(limit, |server, awaited| {
            awaited || server.known() < Discovery::Remembered
        })
        .await;
    }

    /// As [`crate::Engine::import_all`], but only for servers that a manifest waits for.
    pub(crate) async fn import_awaited(self: &Arc<Self>, limit: Duration) {
        self.import(limit, |_, awaited| awaited).await;
    }

    async fn import(self: &Arc<Self>, limit: Duration, wanted: impl Fn(&Server, bool) -> bool) {
        let Some(servers) = &self.servers else { return };
        let snapshot = self.registry.snapshot();
        let awaited = |server: &Server| snapshot.pending.values().any(|name| name == server.name());
        let all: Vec<_> = servers
            .all()
            .filter(|server| wanted(server, awaited(server)))
            .cloned()
            .collect();
        let asked = join_all(all.iter().map(Servers::ask));
        if tokio::time::timeout(limit, asked).await.is_err() {
            tracing::warn!("not every MCP server has answered in time");
        }
        // A failed server has no list that could have changed, and a server that lists the stored
        // tools has not changed. The registry is updated for both here, since a manifest may wait
        // for the answer.
        let pending = &self.registry.snapshot().pending;
        if all.iter().any(|server| {
            server.known() < Discovery::Listed || pending.values().any(|name| name == server.name())
        }) {
            let inner = Arc::clone(self);
            let _ = tokio::task::spawn_blocking(move || inner.reload()).await;
        }
    }
}
