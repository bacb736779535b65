//! A conversation as a whole: its goal, export, restore, empty, summarise, delete.

use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use helmdeck_conversation::{ConversationError, Snapshot, SummaryStatus};
use helmdeck_core::Code;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Conversation, ConversationInfo, Owner};
use crate::app::App;
use crate::body;
use crate::headers::{JSON, NO_STORE};
use crate::problem::Problem;
use crate::rest::reply::{Problems, json, nothing};
use crate::rest::state::MAX_REQUEST_BYTES;

/// Strategy of a snapshot.
const STRATEGY: HeaderName = HeaderName::from_static("helmdeck-strategy");

/// Time reserved to answer after summarising.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// Body of a request to pin a goal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewGoal {
    goal: Option<String>,
}

/// Body of a request without members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(snapshot))
        .routes(routes!(restore))
        .routes(routes!(goal))
        .routes(routes!(pin))
        .routes(routes!(unpin))
        .routes(routes!(flush))
        .routes(routes!(fold))
        .routes(routes!(forget))
}

/// Exports a conversation: its summary and every turn that is not in it.
///
/// The same bytes restore it, here or elsewhere.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/snapshot", tag = "conversations", operation_id = "snapshot_conversation",
    params(ConversationInfo, Owner),
    responses(
        (status = 200, description = "The snapshot", body = ref("#/components/schemas/Snapshot"), headers(
            ("Helmdeck-Strategy" = String, description = "The strategy that it was made under, and must be restored under"),
        )),
        Problems,
    ))]
async fn snapshot(conversation: Conversation) -> Result<Response, Problem> {
    let Conversation {
        memory,
        identity,
        state,
        ..
    } = &conversation;
    let taking = async {
        let kept = memory.trace(identity).await?.kept_bytes;
        // A large snapshot is in memory several times until it is sent, so only a few are made at
        // once.
        let _permit = (kept > state.limits.max_body_bytes)
            .then(|| state.large_bodies.enter())
            .transpose()?;
        Ok::<_, Problem>(memory.snapshot(identity).await?)
    };
    let snapshot = conversation.in_time(taking).await?;
    let mut response = if snapshot.bytes.is_empty() {
        json(&snapshot)?
    } else {
        // The stored bytes: encoded again they could differ, and would be in memory twice.
        (
            [(CONTENT_TYPE, JSON), (CACHE_CONTROL, NO_STORE)],
            snapshot.bytes,
        )
            .into_response()
    };
    if let Some(strategy) = snapshot.strategy {
        response
            .headers_mut()
            .insert(STRATEGY, HeaderValue::from_static(strategy.as_str()));
    }
    Ok(response)
}

/// Replaces a conversation by a snapshot: completely, or not at all if something is wrong with the
/// snapshot.
///
/// The body is a snapshot, byte for byte; members that this version does not know are kept. It may
/// be as large as all turns of a conversation together.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/restore", tag = "conversations", operation_id = "restore_conversation",
    params(ConversationInfo, Owner),
    request_body(content = ref("#/components/schemas/Snapshot"), content_type = "application/json", description = "The snapshot"),
    responses((status = 204, description = "It is restored"), Problems))]
async fn restore(conversation: Conversation, request: Request) -> Result<Response, Problem> {
    let Conversation {
        memory,
        identity,
        state,
        caller,
        ..
    } = &conversation;
    let (parts, body) = request.into_parts();
    let (usual, config) = (state.limits.max_body_bytes, memory.config());
    let (limit, _permit) = match declared(&parts.headers) {
        Some(length) if length <= usual => (usual, None),
        // All turns of a conversation, and what else belongs to it. Only a few are read at once:
        // together they take memory.
        _ => {
            let share = state
                .large_bodies_of
                .enter(&caller.identity.without_session())?;
            (
                config.max_bytes.saturating_add(usual),
                Some((share, state.large_bodies.enter()?)),
            )
        }
    };
    let bytes = body::read(
        &parts.headers,
        body,
        limit,
        state.limits.body_timeout,
        parts.extensions.get(),
    )
    .await?;
    if bytes.is_empty() {
        // The memory would take an empty body as an empty snapshot. Most likely the snapshot was
        // lost.
        return Err(Problem::new(
            Code::InvalidInput,
            "there is no snapshot in the body; to empty the conversation, flush it",
        ));
    }
    // The memory checks the content of the bytes.
    let snapshot = Snapshot {
        strategy: Some(config.strategy),
        bytes,
    };
    conversation
        .in_time(memory.restore(identity, &snapshot))
        .await?;
    Ok(nothing())
}

fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Shows the goal of a conversation: the pinned one, or else what the user asked for first.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/goal", tag = "conversations", operation_id = "show_goal",
    params(ConversationInfo, Owner),
    responses((status = 200, description = "The goal", body = ref("#/components/schemas/Goal")), Problems))]
async fn goal(conversation: Conversation) -> Result<Response, Problem> {
    json(
        &conversation
            .in_time(conversation.memory.goal(&conversation.identity))
            .await?,
    )
}

/// Pins the goal of a conversation, which every context shows.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/goal", tag = "conversations", operation_id = "pin_goal",
    params(ConversationInfo, Owner),
    request_body(content = ref("#/components/schemas/NewGoal"), content_type = "application/json", description = "The goal"),
    responses((status = 200, description = "The goal", body = ref("#/components/schemas/Goal")), Problems))]
async fn pin(conversation: Conversation, request: Request) -> Result<Response, Problem> {
    let NewGoal { goal } = conversation
        .state
        .limits
        .read_json(request, MAX_REQUEST_BYTES)
        .await?;
    let goal =
        goal.ok_or_else(|| Problem::new(Code::InvalidInput, "there is no goal in the body"))?;
    json(
        &conversation
            .in_time(conversation.memory.pin(&conversation.identity, Some(&goal)))
            .await?,
    )
}

/// Clears the pinned goal of a conversation: the goal is again what the user asked for first.
#[utoipa::path(delete, path = "/api/v1/conversations/{session}/goal", tag = "conversations", operation_id = "unpin_goal",
    params(ConversationInfo, Owner),
    responses((status = 200, description = "The goal", body = ref("#/components/schemas/Goal")), Problems))]
async fn unpin(conversation: Conversation) -> Result<Response, Problem> {
    json(
        &conversation
            .in_time(conversation.memory.pin(&conversation.identity, None))
            .await?,
    )
}

/// Empties a conversation: deletes every turn and the summary, and resets its health.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/flush", tag = "conversations", operation_id = "flush_conversation",
    params(ConversationInfo, Owner),
    responses((status = 204, description = "It is empty"), Problems))]
async fn flush(conversation: Conversation, request: Request) -> Result<Response, Problem> {
    let Nothing {} = conversation
        .state
        .limits
        .read_json(request, MAX_REQUEST_BYTES)
        .await?;
    conversation
        .in_time(conversation.memory.flush(&conversation.identity))
        .await?;
    Ok(nothing())
}

/// Summarises the turns that are waiting, for at most as long as a request may take, and returns
/// the health with the number of turns that still wait.
///
/// A summarizer that fails is no error: the health shows it.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/fold", tag = "conversations", operation_id = "fold_conversation",
    params(ConversationInfo, Owner),
    responses((status = 200, description = "The health", body = ref("#/components/schemas/DialogueHealth")), Problems))]
async fn fold(conversation: Conversation, request: Request) -> Result<Response, Problem> {
    let Conversation {
        memory,
        identity,
        state,
        ..
    } = &conversation;
    let Nothing {} = state.limits.read_json(request, MAX_REQUEST_BYTES).await?;
    let deadline = state.limits.deadline;
    let within = deadline.saturating_sub(TO_ANSWER.min(deadline / 10));
    let folding = async {
        let backlog_turns = memory.summarise(identity, within).await?;
        let trace = memory.trace(identity).await?;
        Ok::<_, ConversationError>(SummaryStatus {
            backlog_turns,
            ..trace.into()
        })
    };
    json(&conversation.in_time(folding).await?)
}

/// Deletes a conversation with everything about it, even if it cannot be decrypted, and returns the
/// number of deleted turns.
#[utoipa::path(delete, path = "/api/v1/conversations/{session}", tag = "conversations", operation_id = "forget_conversation",
    params(ConversationInfo, Owner),
    responses((status = 200, description = "It is deleted, or never existed", body = ref("#/components/schemas/ForgottenDialogue")), Problems))]
async fn forget(conversation: Conversation) -> Result<Response, Problem> {
    let turns = conversation
        .in_time(conversation.memory.forget(&conversation.identity))
        .await?;
    json(&serde_json::json!({ "removed_turns": turns }))
}
