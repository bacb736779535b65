//! Routes of conversations: list them, show the context, the health and the trace of one.
//!
//! Turns are in `turns`, a conversation as a whole in `whole`, counters in `metrics`. Callers reach
//! their own conversations, administrators every one by tenant and user. The conversation memory
//! checks everything else.

mod extract;
pub(crate) mod metrics;
mod turns;
mod whole;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use helmdeck_conversation::{ConversationError, ConversationFilter, Format, SummaryStatus, render};
use helmdeck_core::{Caller, Error, Permission};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::extract::{Conversation, ConversationInfo, NamesOwner, Owner, memory};
use super::reply::{Problems, json, nothing, unwritable};
use super::request::Params;
use super::state::ConversationState;
use crate::access::{By, need};
use crate::app::App;
use crate::headers::{NO_STORE, NOSNIFF};
use crate::problem::Problem;

/// The media type of a prompt.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Members of a list of conversations that count all callers, whatever the filter says.
const OF_ALL_CALLERS: [&str; 2] = ["identity_rejected_24h", "recovery_dropped_24h"];

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(context))
        .routes(routes!(health))
        .routes(routes!(trace))
        .merge(turns::routes())
        .merge(whole::routes())
}

/// Which conversations to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ConversationQuery {
    /// Only of this tenant; another than the caller's own needs the scope `admin`
    tenant: Option<String>,
    /// Only of this user; another than the caller itself needs the scope `admin`
    user: Option<String>,
    /// 1 to 200; 50 by default
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

impl ConversationQuery {
    /// Narrows a filter to what the caller may see.
    fn narrowed(self, caller: &Caller) -> Result<ConversationFilter, Problem> {
        let other =
            |named: &Option<String>, own: &str| named.as_deref().is_some_and(|named| named != own);
        let (tenant, user) = (caller.identity.tenant(), caller.identity.user());
        if other(&self.tenant, tenant) || other(&self.user, user) {
            need(caller, &Permission::Admin)?;
        }
        let everybody = caller.permissions.allow(&Permission::Admin);
        let or_own = |named: Option<String>, own: &str| {
            named.or_else(|| (!everybody).then(|| own.to_owned()))
        };
        Ok(ConversationFilter {
            tenant: or_own(self.tenant, tenant),
            user: or_own(self.user, user),
            limit: self.limit,
            after: self.after,
        })
    }
}

/// How to show a context.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Shown {
    /// The tenant; the caller's own by default. Another one needs the scope `admin`
    tenant: Option<String>,
    /// The user; the caller itself by default. Another one needs the scope `admin`
    user: Option<String>,
    /// `json` (the default); `messages`: a list of `{role, content}`; or `prompt`: text to put
    /// before the next question
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: Format,
}

impl NamesOwner for Shown {
    fn owner(&self) -> (Option<&str>, Option<&str>) {
        (self.tenant.as_deref(), self.user.as_deref())
    }
}

/// Lists conversations without their texts: the caller's own; for an administrator those of
/// everybody.
///
/// Expired conversations are left out. Counters over all callers are shown to administrators only.
#[utoipa::path(get, path = "/api/v1/conversations", tag = "conversations", operation_id = "list_conversations",
    params(ConversationQuery),
    responses((status = 200, description = "The conversations", body = ref("#/components/schemas/DialogueList")), Problems))]
async fn list(
    State(state): State<ConversationState>,
    By(caller): By,
    filter: Params<ConversationQuery>,
) -> Result<Response, Problem> {
    let memory = memory(&state, &caller, &Permission::MemoryRead)?;
    let filter = filter.read()?.narrowed(&caller)?;
    let page = state
        .limits
        .in_time(memory.list_conversations(&filter))
        .await??;
    if caller.permissions.allow(&Permission::Admin) {
        return json(&page);
    }
    let mut page = serde_json::to_value(page).map_err(unwritable)?;
    if let Some(members) = page.as_object_mut() {
        members.retain(|name, _| !OF_ALL_CALLERS.contains(&name.as_str()));
    }
    json(&page)
}

/// Returns the context to prepend to the next model call: goal, summary and recent turns, within a
/// token budget.
///
/// What tools and models wrote is fenced as untrusted data. `format=messages` has the user's own
/// words as messages of the user. `format=prompt` fences every turn; without anything to show, the
/// answer is 204.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/context", tag = "conversations", operation_id = "show_context",
    params(ConversationInfo, Shown),
    responses(
        (status = 200, description = "The context", content(
            (ref("#/components/schemas/ContextPatch") = "application/json"),
            (String = "text/plain"),
        )),
        (status = 204, description = "A prompt was asked for, and there is nothing to show"),
        Problems,
    ))]
async fn context(conversation: Conversation<Shown>) -> Result<Response, Problem> {
    let format = conversation.query.format;
    let context = conversation
        .in_time(conversation.memory.render(&conversation.identity, format))
        .await?;
    match format {
        Format::Json | Format::Messages => json(&context),
        Format::Prompt => Ok(render::prompt(&context.patch).map_or_else(nothing, |text| {
            (
                [(CONTENT_TYPE, TEXT), (CACHE_CONTROL, NO_STORE), NOSNIFF],
                text,
            )
                .into_response()
        })),
    }
}

/// Shows how summarising a conversation is doing: what waits, and why it failed last. No turn is
/// lost in any state.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/health", tag = "conversations", operation_id = "conversation_health",
    params(ConversationInfo, Owner),
    responses((status = 200, description = "The health", body = ref("#/components/schemas/DialogueHealth")), Problems))]
async fn health(conversation: Conversation) -> Result<Response, Problem> {
    json(&SummaryStatus::from(
        conversation
            .in_time(conversation.memory.trace(&conversation.identity))
            .await?,
    ))
}

/// Shows what the strategy makes of a conversation right now: its summary, and how many turns are
/// where.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/trace", tag = "conversations", operation_id = "trace_conversation",
    params(ConversationInfo, Owner),
    responses((status = 200, description = "The trace", body = ref("#/components/schemas/DialogueTrace")), Problems))]
async fn trace(conversation: Conversation) -> Result<Response, Problem> {
    json(
        &conversation
            .in_time(conversation.memory.trace(&conversation.identity))
            .await?,
    )
}

impl From<ConversationError> for Problem {
    fn from(error: ConversationError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests;
