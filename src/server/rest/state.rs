//! Parts of the server's state, for handlers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use bytes::Bytes;
use helmdeck_conversation::Conversations;
use helmdeck_core::json::read_strict;
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Clock, Code, Error, Json, Timestamp};
use helmdeck_engine::{Engine, MemoryControl};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ServerConfig;
use crate::body;
use crate::draining::Draining;
use crate::idempotency::Idempotency;
use crate::limits::{Each, InFlight, Replicas};
use crate::operator::Operator;
use crate::problem::Problem;
use crate::rest::operate::Rotation;

/// Limit of a request body that only selects entries.
pub(crate) const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Limit of open event streams of one caller.
const STREAMS_PER_CALLER: usize = 16;
/// Limit of bodies over the usual size that are read at once.
const LARGE_BODIES: usize = 4;
/// Limit of such bodies of one caller.
const LARGE_BODIES_PER_CALLER: usize = 2;

/// Limits of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    pub(crate) deadline: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) max_body_bytes: u64,
}

impl RequestLimits {
    pub(crate) const fn of(config: &ServerConfig) -> Self {
        Self {
            deadline: config.request_deadline,
            body_timeout: config.body_timeout,
            max_body_bytes: config.max_body_bytes,
        }
    }

    /// Waits for the store or the disk, at most until the deadline of a request.
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Problem> {
        let late = |_| {
            Problem::new(
                Code::Timeout,
                "the request took longer than the server allows",
            )
        };
        tokio::time::timeout(self.deadline, answer)
            .await
            .map_err(late)
    }

    /// Reads a JSON object of at most `max_bytes`, as strictly as the input of a pack.
    ///
    /// No duplicate key, nothing after the end, bounded depth. An empty body stands for `{}`. The
    /// error never repeats what was sent.
    pub(crate) async fn read_json<T: DeserializeOwned>(
        &self,
        request: Request,
        max_bytes: u64,
    ) -> Result<T, Problem> {
        let (parts, body) = request.into_parts();
        let limit = self.max_body_bytes.min(max_bytes);
        let mut bytes = body::read(
            &parts.headers,
            body,
            limit,
            self.body_timeout,
            parts.extensions.get(),
        )
        .await?;
        if bytes.trim_ascii().is_empty() {
            bytes = Bytes::from_static(b"{}");
        }
        let malformed = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            let message =
                format!("the request is not acceptable JSON (line {line}, column {column})");
            Error::new(Code::InvalidInput, message).with_source(error)
        };
        // serde would also read an array of all fields in order as an object.
        if !read_strict(&bytes).map_err(malformed)?.is_object() {
            return Err(Problem::new(
                Code::InvalidInput,
                "the request must be a JSON object",
            ));
        }
        Ok(Json::from_trusted(bytes).read()?)
    }
}

/// Engine, with the limits of one request.
#[derive(Debug, Clone)]
pub(crate) struct EngineState {
    pub(crate) engine: Engine,
    pub(crate) limits: RequestLimits,
}

impl EngineState {
    /// Returns the memory, or the error of a server without a memory key.
    pub(crate) fn memory(&self) -> Result<&MemoryControl, Problem> {
        self.engine
            .memory()
            .ok_or_else(|| Error::from(NoMemory::Off).into())
    }
}

/// State for running a pack: the engine, idempotency keys, and tasks that outlive their request.
#[derive(Debug, Clone)]
pub(crate) struct CallState {
    pub(crate) engine: EngineState,
    pub(crate) idempotency: Idempotency,
    /// Calls that continue when their client disconnects.
    pub(crate) tasks: TaskTracker,
}

/// State for streams of job events.
#[derive(Debug, Clone)]
pub(crate) struct EventState {
    pub(crate) engine: EngineState,
    /// Open streams of all callers.
    pub(crate) streams: InFlight,
    /// Open streams of each caller.
    pub(crate) streams_of: Arc<Each>,
    /// Cancelled to end all open streams.
    pub(crate) drain: CancellationToken,
    /// Number that differs from that of an earlier process.
    pub(crate) process: u64,
}

impl EventState {
    pub(crate) fn new(engine: EngineState, max_streams: usize, started: Timestamp) -> Self {
        Self {
            engine,
            process: started.micros().unsigned_abs(),
            streams: InFlight::new(max_streams),
            streams_of: Arc::new(Each::new(STREAMS_PER_CALLER)),
            drain: CancellationToken::new(),
        }
    }
}

/// State for the routes of conversations.
#[derive(Debug, Clone)]
pub(crate) struct ConversationState {
    pub(crate) conversations: Conversations,
    pub(crate) limits: RequestLimits,
    /// Bodies of all callers that are larger than usual.
    pub(crate) large_bodies: InFlight,
    /// Bodies of each caller that are larger than usual.
    pub(crate) large_bodies_of: Arc<Each>,
}

impl ConversationState {
    pub(crate) fn new(conversations: Conversations, limits: RequestLimits) -> Self {
        Self {
            conversations,
            limits,
            large_bodies: InFlight::new(LARGE_BODIES),
            large_bodies_of: Arc::new(Each::new(LARGE_BODIES_PER_CALLER)),
        }
    }
}

/// State for the routes of operators.
#[derive(Clone)]
pub(crate) struct OperatorState {
    pub(crate) engine: EngineState,
    pub(crate) operator: Operator,
    pub(crate) clock: Arc<dyn Clock>,
    /// When the server was assembled.
    pub(crate) started_at: Timestamp,
    pub(crate) rotation: Rotation,
    /// Work that continues when its client disconnects.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the server begins to stop: a rotation ends between two steps.
    pub(crate) drain: CancellationToken,
    pub(crate) draining: Draining,
    /// Time between the beginning of a drain and the end of the listener.
    pub(crate) drain_for: Duration,
    pub(crate) replicas: Replicas,
}

helmdeck_core::redacted_debug!(OperatorState, this => operator = this.operator);

/// State for the `OpenAPI` document and the docs page.
#[derive(Debug, Clone)]
pub(crate) struct DocumentState {
    pub(crate) engine: Engine,
    /// Whether callers must authenticate.
    pub(crate) authenticates: bool,
}
