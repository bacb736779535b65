//! State of the server. Each handler takes the part that it needs, by `FromRef`.

use std::sync::Arc;

use axum::extract::FromRef;
use helmdeck_conversation::Conversations;
use helmdeck_core::Clock;
use helmdeck_engine::Engine;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ServerConfig;
use crate::access::Access;
use crate::draining::Draining;
use crate::idempotency::{Idempotency, Ledger};
use crate::limits::Replicas;
use crate::operator::Operator;
use crate::rest::operate::Rotation;
use crate::rest::project::{ProjectSettings, ProjectState};
use crate::rest::state::{
    CallState, ConversationState, DocumentState, EngineState, EventState, OperatorState,
    RequestLimits,
};

/// State of all routes. It holds nothing of a single caller. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<AppState>);

#[derive(Debug)]
struct AppState {
    calls: CallState,
    events: EventState,
    conversations: ConversationState,
    document: DocumentState,
    project: ProjectState,
    operator: OperatorState,
    access: Option<Arc<Access>>,
    draining: Draining,
}

/// What a server may have beside its engine.
#[derive(Default)]
pub(crate) struct AppParts {
    pub(crate) ledger: Option<Ledger>,
    pub(crate) operator: Operator,
    pub(crate) project: ProjectSettings,
    /// Authentication of callers; `None` = it is off.
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) replicas: Replicas,
}

impl App {
    pub(crate) fn new(
        engine: Engine,
        conversations: Conversations,
        config: &ServerConfig,
        clock: Arc<dyn Clock>,
        parts: AppParts,
    ) -> Self {
        let AppParts {
            ledger,
            operator,
            project,
            access,
            replicas,
        } = parts;
        let limits = RequestLimits::of(config);
        let document = DocumentState {
            engine: engine.clone(),
            authenticates: access.is_some(),
        };
        let engine = EngineState { engine, limits };
        let events = EventState::new(engine.clone(), config.max_event_streams, clock.now());
        let tasks = TaskTracker::new();
        let draining = Draining::default();
        let operator = OperatorState {
            engine: engine.clone(),
            operator,
            clock: Arc::clone(&clock),
            started_at: clock.now(),
            rotation: Rotation::default(),
            tasks: tasks.clone(),
            drain: events.drain.clone(),
            draining: draining.clone(),
            drain_for: config.drain_for,
            replicas,
        };
        Self(Arc::new(AppState {
            events,
            conversations: ConversationState::new(conversations, limits),
            calls: CallState {
                engine,
                idempotency: Idempotency::new(clock, ledger),
                tasks,
            },
            document,
            project: ProjectState::new(project, limits),
            operator,
            access,
            draining,
        }))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.calls.engine.engine
    }

    /// What runs packs.
    pub(crate) fn call_state(&self) -> &CallState {
        &self.0.calls
    }

    pub(crate) fn conversations(&self) -> &Conversations {
        &self.0.conversations.conversations
    }

    /// Calls that continue when their client disconnects. A stopping server waits for them.
    pub(crate) fn calls(&self) -> &TaskTracker {
        &self.0.calls.tasks
    }

    /// Says whether the server was told to stop.
    pub(crate) fn draining(&self) -> &Draining {
        &self.0.draining
    }

    /// Cancelled when the server begins to stop: open streams of events end.
    pub(crate) fn drain(&self) -> &CancellationToken {
        &self.0.events.drain
    }
}

/// Lets handlers take parts of the state.
macro_rules! parts {
    ($($part:ty: $app:ident => $value:expr;)+) => {
        $(impl FromRef<App> for $part {
            fn from_ref($app: &App) -> Self {
                $value.clone()
            }
        })+
    };
}

parts! {
    CallState: app => app.0.calls;
    EngineState: app => app.0.calls.engine;
    Engine: app => app.engine();
    EventState: app => app.0.events;
    ConversationState: app => app.0.conversations;
    Conversations: app => app.conversations();
    DocumentState: app => app.0.document;
    ProjectState: app => app.0.project;
    OperatorState: app => app.0.operator;
    Option<Arc<Access>>: app => app.0.access;
    Draining: app => app.0.draining;
}
