//! What every request handler needs: the engine, the conversations, the settings, the answers kept for repeats. It holds no caller's state.

use std::sync::Arc;

use helmdeck_conversation::Conversations;
use helmdeck_core::Clock;
use helmdeck_engine::Engine;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ServerConfig;
use crate::idempotency::{Idempotency, Ledger};
use crate::limits::{Each, InFlight};

/// The most open streams of events of one caller.
const STREAMS_PER_CALLER: usize = 16;
/// The most bodies that are larger than requests are, read at once.
const LARGE_BODIES: usize = 4;
/// The most of them of one caller.
const LARGE_BODIES_PER_CALLER: usize = 2;

/// The state behind the routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    /// Where the conversations are, if there are any.
    pub(crate) conversations: Conversations,
    pub(crate) config: ServerConfig,
    /// Whether callers have to prove who they are.
    pub(crate) authenticates: bool,
    pub(crate) idempotency: Idempotency,
    /// Calls that go on when their client goes away; a stopping server waits for them.
    pub(crate) calls: TaskTracker,
    /// Open streams of events.
    pub(crate) streams: InFlight,
    /// Those of each caller.
    pub(crate) streams_of: Each,
    /// Bodies under way that are larger than requests are.
    pub(crate) large_bodies: InFlight,
    /// Those of each caller.
    pub(crate) large_bodies_of: Each,
    /// Cancelled when the server is about to stop: open streams end.
    pub(crate) drain: CancellationToken,
}

impl App {
    pub(crate) fn new(
        engine: Engine,
        conversations: Conversations,
        config: ServerConfig,
        clock: Arc<dyn Clock>,
        ledger: Option<Ledger>,
        authenticates: bool,
    ) -> Self {
        Self {
            authenticates,
            streams: InFlight::new(config.max_event_streams),
            streams_of: Each::new(STREAMS_PER_CALLER),
            large_bodies: InFlight::new(LARGE_BODIES),
            large_bodies_of: Each::new(LARGE_BODIES_PER_CALLER),
            drain: CancellationToken::new(),
            engine,
            conversations,
            config,
            idempotency: Idempotency::new(clock, ledger),
            calls: TaskTracker::new(),
        }
    }
}
