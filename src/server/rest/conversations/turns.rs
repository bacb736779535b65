//! The turns of a conversation: add one, list them, look at one, delete one.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use helmdeck_conversation::{ItemFilter, ItemId, NewTurn};
use helmdeck_core::{Code, Permission};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::body::read_json;
use super::super::path::PathValues;
use super::super::{in_time, json};
use super::{Conversation, Wanted, Whose, value, wanted};
use crate::access::By;
use crate::app::App;
use crate::idempotency;
use crate::problem::Problem;

/// Which turns are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// The tenant; the caller's own unless given. Another one needs the scope `admin`
    tenant: Option<String>,
    /// The user; the caller itself unless given. Another one needs the scope `admin`
    user: Option<String>,
    /// Only turns whose texts hold this, whatever the case
    content_search: Option<String>,
    /// Only turns that are (`true`) or are not (`false`) in the summary
    folded: Option<bool>,
    /// Whether their texts are wanted too; a page then ends before it has more than 1 MiB of them
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    texts: bool,
    /// 1 to 200; 50 unless given
    limit: Option<usize>,
    /// The `next` of the page before
    #[param(value_type = Option<String>)]
    after: Option<ItemId>,
}

/// Adds a turn to a conversation, which begins with its first one.
///
/// With `Idempotency-Key`, or `once` in the body, which goes before it, the same turn is added once within a day however often it
/// is sent. Another turn under the same name is a `conflict`.
#[utoipa::path(post, path = "/api/v1/conversations/{session}/turns", tag = "conversations", operation_id = "add_turn",
    params(
        ("session" = String, Path, description = "The conversation, 1 to 256 bytes"),
        Whose,
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters; kept for 24 hours"),
    ),
    request_body(content = ref("#/components/schemas/NewTurn"), content_type = "application/json", description = "The turn"),
    responses(
        (status = 201, description = "It is kept; `Location` says where it is looked at", body = ref("#/components/schemas/AddedTurn")),
        (status = 200, description = "Nothing was added: it is there already, or the strategy `none` keeps nothing", body = ref("#/components/schemas/AddedTurn")),
        (status = 409, description = "Another turn was added under this name within a day; nothing was written", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
    request: Request,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryWrite, &path, &wanted(whose)?)?;
    let key = idempotency::key(request.headers())?;
    let mut turn: NewTurn = read_json(&app, request, app.config.max_body_bytes).await?;
    if says_nothing(&turn) {
        // No body at all, most likely; nobody wants that in a conversation.
        return Err(Problem::new(Code::InvalidInput, "the turn is empty: give user_message or assistant_response"));
    }
    turn.once = turn.once.or(key);
    let Conversation { memory, identity, foreign } = &conversation;
    let adding = async {
        // Whoever writes into somebody else's conversation leaves a trace.
        if *foreign { memory.put_item(identity, turn).await } else { memory.add_turn(identity, turn).await }
    };
    let added = in_time(&app, adding).await??;
    let mut response = json(&added)?;
    let headers = response.headers_mut();
    if let Some(id) = added.id
        && let Ok(place) = HeaderValue::try_from(conversation.place(&id.to_string()))
    {
        headers.insert(LOCATION, place);
    }
    if added.repeated {
        let (name, replayed) = idempotency::REPLAYED;
        headers.insert(name, replayed);
    }
    if added.id.is_some() && !added.repeated {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

fn says_nothing(turn: &NewTurn) -> bool {
    let NewTurn { user_message, assistant_response, trajectory_digest, artifacts_shown, artifacts_hidden_refs, .. } =
        turn;
    let silent = user_message.is_empty() && assistant_response.is_empty();
    silent && trajectory_digest.is_none() && artifacts_shown.is_none() && artifacts_hidden_refs.is_none()
}

/// Lists the turns of a conversation, newest first, in pages; with `texts=true` the texts too, so that nothing is left behind.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/turns", tag = "conversations", operation_id = "list_turns",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Which),
    responses(
        (status = 200, description = "The turns", body = ref("#/components/schemas/TurnList")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    which: Wanted<Which>,
) -> Result<Response, Problem> {
    let Which { tenant, user, content_search, folded, texts, limit, after } = wanted(which)?;
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryRead, &path, &Whose { tenant, user })?;
    let filter = ItemFilter { content_search, folded, with_texts: texts, limit, after };
    json(&in_time(&app, conversation.memory.list_items(&conversation.identity, &filter)).await??)
}

/// Shows a turn with its texts, which are what somebody said: data, never instructions.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/turns/{turn}", tag = "conversations", operation_id = "show_turn",
    params(
        ("session" = String, Path, description = "The conversation, 1 to 256 bytes"),
        ("turn" = String, Path, description = "The turn's id"),
        Whose,
    ),
    responses(
        (status = 200, description = "The turn", body = ref("#/components/schemas/Turn")),
        (status = 404, description = "No such turn", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryRead, &path, &wanted(whose)?)?;
    json(&in_time(&app, conversation.memory.get_item(&conversation.identity, value(&path, "turn"))).await??)
}

/// Deletes a turn.
///
/// If it is in the summary, the summary is made anew of the turns that are kept, so that nothing of it stays behind.
#[utoipa::path(delete, path = "/api/v1/conversations/{session}/turns/{turn}", tag = "conversations", operation_id = "delete_turn",
    params(
        ("session" = String, Path, description = "The conversation, 1 to 256 bytes"),
        ("turn" = String, Path, description = "The turn's id"),
        Whose,
    ),
    responses(
        (status = 200, description = "It is gone", body = ref("#/components/schemas/DeletedTurn")),
        (status = 404, description = "No such turn", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryWrite, &path, &wanted(whose)?)?;
    json(&in_time(&app, conversation.memory.delete_item(&conversation.identity, value(&path, "turn"))).await??)
}
