//! What operators see and change of an engine: its load, and its MCP servers.

use helmdeck_core::{Code, Error, Result};
use helmdeck_mcp_client::{McpStatus, Servers};

use super::Engine;
use crate::memory::MemoryControl;

/// How busy an engine is, and what it lost since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLoad {
    /// Jobs of this process that wait.
    pub jobs_queued: usize,
    /// Jobs of this process that run.
    pub jobs_running: usize,
    /// Whether the store fails and is not used.
    pub breaker_open: bool,
    /// Answers that were not stored, because the queue was full or the store failed.
    pub cache_writes_dropped: u64,
    /// Audit rows that were lost.
    pub audit_rows_dropped: u64,
    /// Stored rows that did not open.
    pub unreadable_rows: u64,
}

impl Engine {
    /// Returns the number of packs that can work. Unlike [`Engine::packs`] it reads no manifest.
    #[must_use]
    pub fn pack_count(&self) -> usize {
        let snapshot = self.0.registry.snapshot();
        snapshot
            .packs
            .keys()
            .filter(|name| !snapshot.waiting.contains_key(*name))
            .count()
    }

    /// Restarts an MCP server: opens a new connection, even if a wait after a failure is not over.
    ///
    /// Calls in progress finish on the old connection.
    ///
    /// # Errors
    /// `not_found` if none has this name; why it does not start.
    pub async fn restart_mcp_server(&self, name: &str) -> Result<()> {
        let server = self
            .0
            .servers
            .as_ref()
            .and_then(|servers| servers.get(name));
        let missing = || {
            Error::new(
                Code::NotFound,
                format!("there is no MCP server \"{}\"", name.escape_debug()),
            )
        };
        server.ok_or_else(missing)?.restart().await
    }

    /// Returns how busy the engine is, and what it lost.
    #[must_use]
    pub fn load(&self) -> EngineLoad {
        let (jobs_queued, jobs_running) = self.0.jobs.load();
        let totals = &self.0.metrics.totals;
        EngineLoad {
            jobs_queued,
            jobs_running,
            breaker_open: self
                .0
                .memory
                .as_ref()
                .is_some_and(MemoryControl::breaker_is_open),
            cache_writes_dropped: totals.writes_dropped.get(),
            audit_rows_dropped: totals.audit_dropped.get(),
            unreadable_rows: totals.unreadable.get(),
        }
    }

    /// Returns the state of each MCP server, sorted by name.
    #[must_use]
    pub fn mcp_servers(&self) -> Vec<McpStatus> {
        self.0
            .servers
            .as_ref()
            .map(Servers::status)
            .unwrap_or_default()
    }
}
