//! What every request handler needs: the engine, the settings, the answers kept for repeats. It holds no caller's state.

use std::sync::Arc;

use helmdeck_core::Clock;
use helmdeck_engine::Engine;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ServerConfig;
use crate::idempotency::{Idempotency, Ledger};
use crate::limits::{Each, InFlight};

/// The most open streams of events of one caller.
const STREAMS_PER_CALLER: usize = 16;

/// The state behind the routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) config: ServerConfig,
    pub(crate) idempotency: Idempotency,
    /// Calls that go on when their client goes away; a stopping server waits for them.
    pub(crate) calls: TaskTracker,
    /// Open streams of events.
    pub(crate) streams: InFlight,
    /// Those of each caller.
    pub(crate) streams_of: Each,
    /// Cancelled when the server is about to stop: open streams end.
    pub(crate) drain: CancellationToken,
}

impl App {
    pub(crate) fn new(engine: Engine, config: ServerConfig, clock: Arc<dyn Clock>, ledger: Option<Ledger>) -> Self {
        Self {
            streams: InFlight::new(config.max_event_streams),
            streams_of: Each::new(STREAMS_PER_CALLER),
            drain: CancellationToken::new(),
            engine,
            config,
            idempotency: Idempotency::new(clock, ledger),
            calls: TaskTracker::new(),
        }
    }
}
