//! A conversation as a whole: take it out, put it in, empty it, summarise it, forget it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use helmdeck_conversation::{ConversationError, Folding, Snapshot};
use helmdeck_core::{Code, Permission};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::super::body::{self, MAX_REQUEST_BYTES, read_json};
use super::super::path::PathValues;
use super::super::{JSON, NO_STORE, in_time, json};
use super::{Conversation, Wanted, Whose, nothing, wanted};
use crate::access::By;
use crate::app::App;
use crate::problem::Problem;

/// The strategy that a snapshot was made under.
const STRATEGY: HeaderName = HeaderName::from_static("helmdeck-strategy");

/// The most time that an answer takes after what it tells of has ended.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// The body of a request that says all in its path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Exports a conversation: its summary and every turn that is not in it.
///
/// The same bytes restore it, here or elsewhere.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/snapshot", tag = "conversations", operation_id = "snapshot_conversation",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    responses(
        (status = 200, description = "The snapshot", body = ref("#/components/schemas/Snapshot"), headers(
            ("Helmdeck-Strategy" = String, description = "The strategy that it was made under, and is restored under"),
        )),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn snapshot(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryRead, &path, &wanted(whose)?)?;
    let taking = async {
        let kept = conversation.memory.trace(&conversation.identity).await?.kept_bytes;
        // A large one is in memory several times until it is written; few of these are made at once, as with restoring.
        let _permit = (kept > app.config.max_body_bytes).then(|| app.large_bodies.enter()).transpose()?;
        Ok::<_, Problem>(conversation.memory.snapshot(&conversation.identity).await?)
    };
    let snapshot = in_time(&app, taking).await??;
    let mut response = if snapshot.bytes.is_empty() {
        json(&snapshot)?
    } else {
        // As they are: written anew they could differ, and would be held twice.
        ([(CONTENT_TYPE, JSON), (CACHE_CONTROL, NO_STORE)], snapshot.bytes).into_response()
    };
    if let Some(strategy) = snapshot.strategy {
        response.headers_mut().insert(STRATEGY, HeaderValue::from_static(strategy.as_str()));
    }
    Ok(response)
}

/// Puts a snapshot in the place of what a conversation holds: all of it or, if something is wrong with it, nothing.
///
/// The body is what a snapshot gave, byte for byte; members that this version does not know are kept. It may be as large as the turns
/// of a conversation may be together.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/restore", tag = "conversations", operation_id = "restore_conversation",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    request_body(content = ref("#/components/schemas/Snapshot"), content_type = "application/json", description = "The snapshot"),
    responses(
        (status = 204, description = "It is restored"),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn restore(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
    request: Request,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryWrite, &path, &wanted(whose)?)?;
    let (parts, body) = request.into_parts();
    let (ordinary, config) = (app.config.max_body_bytes, conversation.memory.config());
    let (limit, _permit) = match declared(&parts.headers) {
        Some(length) if length <= ordinary => (ordinary, None),
        // All turns of a conversation, and what else there is of it. Few of these are read at once: together they take memory.
        _ => {
            let share = app.large_bodies_of.enter(&caller.identity.without_session())?;
            (config.max_bytes.saturating_add(ordinary), Some((share, app.large_bodies.enter()?)))
        }
    };
    let slot = parts.extensions.get();
    let bytes = body::read(&parts.headers, body, limit, app.config.body_timeout, slot).await?;
    if bytes.is_empty() {
        // To the memory that is a snapshot of nothing; here it is more likely one that got lost.
        return Err(Problem::new(
            Code::InvalidInput,
            "there is no snapshot in the body; to empty the conversation, flush it",
        ));
    }
    // What the bytes say of themselves is checked by the memory.
    let snapshot = Snapshot { strategy: Some(config.strategy), bytes };
    in_time(&app, conversation.memory.restore(&conversation.identity, &snapshot)).await??;
    Ok(nothing())
}

fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Empties a conversation: every turn and the summary go, and it is healthy again.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/flush", tag = "conversations", operation_id = "flush_conversation",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    responses(
        (status = 204, description = "It is empty"),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn flush(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
    request: Request,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryWrite, &path, &wanted(whose)?)?;
    let Nothing {} = read_json(&app, request, MAX_REQUEST_BYTES).await?;
    in_time(&app, conversation.memory.flush(&conversation.identity)).await??;
    Ok(nothing())
}

/// Summarises now what waits for it, for at most as long as a request may take, and says how many turns still wait, as the health
/// does.
///
/// A summarizer that fails is no error: the health tells.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/fold", tag = "conversations", operation_id = "fold_conversation",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    responses(
        (status = 200, description = "What still waits", body = ref("#/components/schemas/DialogueHealth")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn fold(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
    request: Request,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryWrite, &path, &wanted(whose)?)?;
    let Nothing {} = read_json(&app, request, MAX_REQUEST_BYTES).await?;
    let deadline = app.config.request_deadline;
    let within = deadline.saturating_sub(TO_ANSWER.min(deadline / 10));
    let folding = async {
        let backlog_turns = conversation.memory.summarise(&conversation.identity, within).await?;
        let trace = conversation.memory.trace(&conversation.identity).await?;
        Ok::<_, ConversationError>(Folding { backlog_turns, ..trace.into() })
    };
    json(&in_time(&app, folding).await??)
}

/// Removes a conversation with everything about it, also one that does not open, and says how many turns went.
#[utoipa::path(delete, path = "/api/v1/conversations/{session}", tag = "conversations", operation_id = "forget_conversation",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    responses(
        (status = 200, description = "It is gone, or never was", body = ref("#/components/schemas/ForgottenDialogue")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryWrite, &path, &wanted(whose)?)?;
    let turns = in_time(&app, conversation.memory.forget(&conversation.identity)).await??;
    json(&serde_json::json!({ "removed_turns": turns }))
}
