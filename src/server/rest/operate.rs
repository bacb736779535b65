//! Routes for operators: settings, state of the server and its store, rotation and sweep. For
//! administrators.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Code, Permission, Timestamp};
use helmdeck_engine::store_error;
use helmdeck_memory::JanitorConfig;
use helmdeck_memory::janitor::Work;
use helmdeck_memory::rotate::{Progress, RotateError, Rotated, rotate};
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::{Problems, json as answer};
use super::state::OperatorState;
use crate::access::{By, need};
use crate::app::App;
use crate::operator::system_error;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(config))
        .routes(routes!(status))
        .routes(routes!(store))
        .routes(routes!(start_rotation))
        .routes(routes!(sweep))
        .routes(routes!(drain))
}

/// Progress of the rotation of the store in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rotation(Arc<Mutex<RotationState>>);

#[derive(Debug, Clone, Default)]
enum RotationState {
    /// None was started since the server began.
    #[default]
    Never,
    Running {
        began: Timestamp,
        progress: Option<Progress>,
    },
    Ended {
        at: Timestamp,
        result: Result<Rotated, String>,
    },
}

impl Rotation {
    /// Begins a rotation; `false` if one runs.
    fn begin(&self, now: Timestamp) -> bool {
        let mut state = self.0.lock();
        let free = !matches!(*state, RotationState::Running { .. });
        if free {
            *state = RotationState::Running {
                began: now,
                progress: None,
            };
        }
        free
    }

    fn at(&self, now: Progress) {
        if let RotationState::Running { progress, .. } = &mut *self.0.lock() {
            *progress = Some(now);
        }
    }

    fn end(&self, at: Timestamp, result: Result<Rotated, String>) {
        *self.0.lock() = RotationState::Ended { at, result };
    }

    fn shown(&self) -> Value {
        match &*self.0.lock() {
            RotationState::Never => json!({ "state": "none" }),
            RotationState::Running { began, progress } => json!({
                "state": "running", "began_at": began.to_rfc3339(),
                "resealed": progress.map_or(0, |progress| progress.resealed),
                "total": progress.map(|progress| progress.total),
            }),
            RotationState::Ended {
                at,
                result: Ok(rotated),
            } => json!({
                "state": "ended", "ended_at": at.to_rfc3339(), "end": rotated.end, "key_id": rotated.key_id,
                "resealed": rotated.resealed, "unreadable": rotated.unreadable, "remaining": rotated.remaining,
            }),
            RotationState::Ended {
                at,
                result: Err(error),
            } => {
                json!({ "state": "failed", "ended_at": at.to_rfc3339(), "error": error })
            }
        }
    }
}

/// Shows every setting with its value and origin, by name; no secret.
///
/// They are those of the start. SIGHUP changes a few, and the log says which.
#[utoipa::path(get, path = "/api/v1/config", tag = "operations", operation_id = "show_config",
    responses((status = 200, description = "The settings", body = ref("#/components/schemas/Config")), Problems))]
async fn config(State(state): State<OperatorState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let known = state
        .operator
        .settings
        .as_ref()
        .map_or(Value::Null, |settings| settings());
    let settings: Vec<Value> = known
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, setting)| json!({ "name": name, "value": setting["value"], "origin": setting["origin"] }))
        .collect();
    answer(&json!({ "settings": settings }))
}

/// Shows the state of the server: version, start, readiness, packs, jobs that wait and run, lost
/// writes.
#[utoipa::path(get, path = "/api/v1/status", tag = "operations", operation_id = "show_status",
    responses((status = 200, description = "The state", body = ref("#/components/schemas/Status")), Problems))]
async fn status(State(state): State<OperatorState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let engine = &state.engine.engine;
    let load = engine.load();
    let checks: Map<String, Value> = engine
        .ready()
        .await
        .into_iter()
        .map(|(name, result)| {
            (
                name.to_owned(),
                result.err().unwrap_or_else(|| "ok".to_owned()).into(),
            )
        })
        .collect();
    answer(&json!({
        "version": state.operator.version,
        "started_at": state.started_at.to_rfc3339(),
        "checks": checks,
        "replicas": state.replicas.count(),
        "packs": engine.pack_count(),
        "refused_manifests": engine.refused().len(),
        "memory": engine.memory().is_some(),
        "jobs": { "queued": load.jobs_queued, "running": load.jobs_running },
        "breaker_open": load.breaker_open,
        "cache_writes_dropped": load.cache_writes_dropped,
        "audit_rows_dropped": load.audit_rows_dropped,
        "unreadable_rows": load.unreadable_rows,
    }))
}

/// Shows the memory store: rows by kind and by key, sizes, and the rotation of its key.
#[utoipa::path(get, path = "/api/v1/store", tag = "operations", operation_id = "show_store",
    responses(
        (status = 200, description = "The store", body = ref("#/components/schemas/Store")),
        (status = 404, description = "Memory is off"),
        Problems,
    ))]
async fn store(State(state): State<OperatorState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let memory = state.engine.memory()?;
    let stats = state
        .engine
        .limits
        .in_time(memory.store().stats())
        .await?
        .map_err(store_error)?;
    answer(&json!({
        "driver": stats.driver,
        "rows": stats.rows,
        "expired": stats.expired,
        "bytes": stats.bytes,
        "disk_bytes": stats.disk_bytes,
        "rows_by_kind": stats.rows_by_kind,
        "rows_by_key": stats.rows_by_key_id,
        "key_id": state.operator.keyring.as_ref().map(|ring| ring.current_id()),
        "breaker_open": memory.breaker_is_open(),
        "rotation": state.rotation.shown(),
    }))
}

/// Starts sealing every row of the store with the current key, while calls go on.
///
/// `GET /api/v1/store` shows how far it is. A server that stops ends it between two steps, and the
/// next one continues.
#[utoipa::path(post, path = "/api/v1/store/rotate", tag = "operations", operation_id = "rotate_store",
    responses(
        (status = 202, description = "It has begun", body = ref("#/components/schemas/Rotation")),
        (status = 404, description = "Memory is off"),
        (status = 409, description = "A rotation runs"),
        Problems,
    ))]
async fn start_rotation(
    State(state): State<OperatorState>,
    By(caller): By,
) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let store = Arc::clone(state.engine.memory()?.store());
    let no_key = || {
        Problem::new(
            Code::NotFound,
            "this server was not given the keys of its store",
        )
    };
    let ring = Arc::clone(state.operator.keyring.as_ref().ok_or_else(no_key)?);
    if !state.rotation.begin(state.clock.now()) {
        return Err(Problem::new(
            Code::Conflict,
            "a rotation runs already; GET /api/v1/store shows how far it is",
        ));
    }
    let by = &caller.identity;
    tracing::info!(by = %format_args!("{}/{}", by.tenant(), by.user()), "a rotation of the store was started");
    let (rotation, clock, stop) = (
        state.rotation.clone(),
        Arc::clone(&state.clock),
        state.drain.clone(),
    );
    state.tasks.spawn(async move {
        let mut progress = |progress: Progress| rotation.at(progress);
        let rotated = rotate(&*store, &ring, &stop, &mut progress).await;
        let result = rotated.map_err(|error| match error {
            RotateError::Store(error) => {
                tracing::warn!(%error, "the rotation of the store failed");
                "the store failed; the log of the server says why".to_owned()
            }
            other => other.to_string(),
        });
        rotation.end(clock.now(), result);
    });
    Ok((StatusCode::ACCEPTED, answer(&state.rotation.shown())?).into_response())
}

/// Deletes what has expired, now: rows of the store, rows of the system database, artifacts in a
/// local folder.
#[utoipa::path(post, path = "/api/v1/store/sweep", tag = "operations", operation_id = "sweep",
    responses((status = 200, description = "How many rows were deleted", body = ref("#/components/schemas/Swept")), Problems))]
async fn sweep(State(state): State<OperatorState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let (engine, work) = (state.engine.engine.clone(), Work::default());
    let (operator, now) = (state.operator.clone(), state.clock.now());
    // A task of its own: what was begun is finished, and counted in the log, if the client leaves.
    let task = state.tasks.spawn(async move {
        if let Some(memory) = engine.memory() {
            work.run(&**memory.store(), JanitorConfig { interval: Duration::ZERO, ..JanitorConfig::default() }).await;
        }
        let system = match &operator.system {
            Some(system) => system.sweep(now).await.map_err(system_error)?,
            None => 0,
        };
        engine.sweep_files_once().await;
        let done = work.snapshot();
        if done.last_error.is_some() {
            let message = "the memory store could not be swept; the log of the server says why";
            return Err(helmdeck_core::Error::new(Code::Overloaded, message));
        }
        Ok(json!({ "store_rows": done.swept, "trimmed_answers": done.trimmed, "system_rows": system }))
    });
    let lost = |error| {
        helmdeck_core::Error::new(Code::Internal, "the sweep ended without an answer")
            .with_source(error)
    };
    let swept = state.engine.limits.in_time(task).await?.map_err(lost)??;
    answer(&swept)
}

/// Stops this server in good order, as SIGTERM does.
///
/// `/readyz` answers 503 at once. After `server.drain_for` it accepts no connection and ends its
/// streams; what runs has `server.drain_timeout` to finish. The process ends then.
#[utoipa::path(post, path = "/api/v1/drain", tag = "operations", operation_id = "drain",
    responses((status = 202, description = "It has begun", body = ref("#/components/schemas/Drain")), Problems))]
async fn drain(State(state): State<OperatorState>, By(caller): By) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let by = &caller.identity;
    tracing::info!(by = %format_args!("{}/{}", by.tenant(), by.user()), "the server was told to stop");
    state.draining.begin();
    let answered_for = u64::try_from(state.drain_for.as_millis()).unwrap_or(u64::MAX);
    let shown = answer(&json!({ "state": "draining", "drain_for_ms": answered_for }))?;
    Ok((StatusCode::ACCEPTED, shown).into_response())
}
