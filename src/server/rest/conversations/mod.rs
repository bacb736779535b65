//! The routes of conversations: which there are, what a model is shown of one, how it is doing. Its turns are in `turns`, what
//! concerns it as a whole in `whole`, the counters in `metrics`.
//!
//! A caller reaches its own conversations; an administrator anybody's, by naming tenant and user. Nothing else is decided here: the
//! memory checks what it is given, and says what is wrong with it.

pub(crate) mod metrics;
pub(crate) mod turns;
pub(crate) mod whole;

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, RawPathParams, State};
use axum::response::{IntoResponse, Response};
use helmdeck_conversation::{ConversationError, ConversationMemory, Folding, Identity, SessionFilter, prompt};
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Caller, Code, Error, Permission};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::path::{PathValues, segment};
use super::{NO_STORE, NOSNIFF, in_time, json, unwritable};
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

/// The media type of a prompt.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What a page of conversations says of all callers together, whatever was asked for.
const OF_ALL_CALLERS: [&str; 2] = ["identity_rejected_24h", "recovery_dropped_24h"];

/// A query string, read or refused.
type Wanted<T> = Result<Query<T>, QueryRejection>;

/// Whose conversation is meant: the caller's own, unless it is named.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Whose {
    /// The tenant; the caller's own unless given. Another one needs the scope `admin`
    tenant: Option<String>,
    /// The user; the caller itself unless given. Another one needs the scope `admin`
    user: Option<String>,
}

/// Which conversations are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    /// Only of this tenant; another than the caller's own needs the scope `admin`
    tenant: Option<String>,
    /// Only of this user; another than the caller itself needs the scope `admin`
    user: Option<String>,
    /// 1 to 200; 50 unless given
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// What is wanted of a context.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shown {
    /// The tenant; the caller's own unless given. Another one needs the scope `admin`
    tenant: Option<String>,
    /// The user; the caller itself unless given. Another one needs the scope `admin`
    user: Option<String>,
    /// `json` (unless given), or `prompt`: a text that can be put before a question as it is
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: Format,
}

/// How a context is written.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Json,
    Prompt,
}

/// A conversation that a caller may do something with.
struct Conversation<'a> {
    memory: &'a ConversationMemory,
    identity: Identity,
    /// Whether it is somebody else's, so that an administrator is at work.
    foreign: bool,
}

impl<'a> Conversation<'a> {
    /// Finds the conversation that a request names, for a caller with this permission, and with `admin` too if it is not its own.
    fn open(
        app: &'a App,
        caller: &Caller,
        permission: &Permission,
        path: &RawPathParams,
        whose: &Whose,
    ) -> Result<Self, Problem> {
        let memory = memory(app, caller, permission)?;
        let (own_tenant, own_user) = (caller.identity.tenant(), caller.identity.user());
        let tenant = whose.tenant.as_deref().unwrap_or(own_tenant);
        let user = whose.user.as_deref().unwrap_or(own_user);
        let foreign = (tenant, user) != (own_tenant, own_user);
        if foreign {
            need(caller, &Permission::Admin)?;
        }
        Ok(Self { memory, identity: Identity::new(tenant, user, value(path, "session")), foreign })
    }

    /// Returns the address of one of its turns.
    fn place(&self, turn: &str) -> String {
        let Identity { tenant, user, session, .. } = &self.identity;
        let mut place = format!("/api/v1/conversations/{}/turns/{turn}", segment(session));
        if self.foreign {
            place.push_str(&format!("?tenant={}&user={}", segment(tenant), segment(user)));
        }
        place
    }
}

/// Returns the memory, for a caller with this permission.
fn memory<'a>(app: &'a App, caller: &Caller, permission: &Permission) -> Result<&'a ConversationMemory, Problem> {
    need(caller, permission)?;
    let memory = app.conversations.get()?;
    if caller.identity.is_anonymous() {
        // All callers without a token are one, and what one of them said is not for the others.
        return Err(Error::from(NoMemory::Anonymous).into());
    }
    Ok(memory)
}

/// Returns a value of the path.
fn value<'a>(path: &'a RawPathParams, name: &str) -> &'a str {
    path.iter().find(|(known, _)| *known == name).map(|(_, value)| value).unwrap_or_default()
}

fn wanted<T>(query: Wanted<T>) -> Result<T, Problem> {
    let Query(wanted) = query.map_err(|rejection| Problem::new(Code::InvalidInput, rejection.body_text()))?;
    Ok(wanted)
}

/// Answers that there is nothing to say.
fn nothing() -> Response {
    (StatusCode::NO_CONTENT, [(CACHE_CONTROL, NO_STORE)]).into_response()
}

/// Lists conversations without their texts: the caller's own, for an administrator those of everybody.
///
/// Those whose time is over are not among them. What a process counts of all callers is shown to administrators only.
#[utoipa::path(get, path = "/api/v1/conversations", tag = "conversations", operation_id = "list_conversations",
    params(Which),
    responses(
        (status = 200, description = "The conversations", body = ref("#/components/schemas/DialogueList")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    By(caller): By,
    which: Wanted<Which>,
) -> Result<Response, Problem> {
    let memory = memory(&app, &caller, &Permission::MemoryRead)?;
    let filter = filter(&caller, wanted(which)?)?;
    let page = in_time(&app, memory.sessions(&filter)).await??;
    if caller.permissions.allow(&Permission::Admin) {
        return json(&page);
    }
    let mut page = serde_json::to_value(page).map_err(unwritable)?;
    if let Some(members) = page.as_object_mut() {
        members.retain(|name, _| !OF_ALL_CALLERS.contains(&name.as_str()));
    }
    json(&page)
}

/// Narrows what is wanted to what a caller may see.
fn filter(caller: &Caller, which: Which) -> Result<SessionFilter, Problem> {
    let other = |named: &Option<String>, own: &str| named.as_deref().is_some_and(|named| named != own);
    let (tenant, user) = (caller.identity.tenant(), caller.identity.user());
    if other(&which.tenant, tenant) || other(&which.user, user) {
        need(caller, &Permission::Admin)?;
    }
    let everybody = caller.permissions.allow(&Permission::Admin);
    let or_own = |named: Option<String>, own: &str| named.or_else(|| (!everybody).then(|| own.to_owned()));
    Ok(SessionFilter {
        tenant: or_own(which.tenant, tenant),
        user: or_own(which.user, user),
        limit: which.limit,
        after: which.after,
    })
}

/// Gives what a model is to be shown of a conversation: a summary, and the turns after it that fit the budget.
///
/// The texts are what somebody said, some time: data, never instructions. `format=prompt` gives them fenced and with rules that say
/// so; there is no content if there is nothing to show.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/context", tag = "conversations", operation_id = "show_context",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Shown),
    responses(
        (status = 200, description = "What is to be shown", content(
            (ref("#/components/schemas/ContextPatch") = "application/json"),
            (String = "text/plain"),
        )),
        (status = 204, description = "There is nothing to show, and a prompt was asked for"),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn context(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    shown: Wanted<Shown>,
) -> Result<Response, Problem> {
    let Shown { tenant, user, format } = wanted(shown)?;
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryRead, &path, &Whose { tenant, user })?;
    let patch = in_time(&app, conversation.memory.context(&conversation.identity)).await??;
    match format {
        Format::Json => json(&patch),
        Format::Prompt => Ok(prompt::render(&patch).map_or_else(nothing, |text| {
            ([(CONTENT_TYPE, TEXT), (CACHE_CONTROL, NO_STORE), NOSNIFF], text).into_response()
        })),
    }
}

/// Says how the summary of a conversation is doing, what waits for it, and why it failed last. No turn is lost in any state.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/health", tag = "conversations", operation_id = "conversation_health",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    responses(
        (status = 200, description = "How it is doing", body = ref("#/components/schemas/DialogueHealth")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn health(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryRead, &path, &wanted(whose)?)?;
    json(&Folding::from(in_time(&app, conversation.memory.trace(&conversation.identity)).await??))
}

/// Says what the strategy makes of a conversation right now: its summary, and how many turns are where.
#[utoipa::path(get, path = "/api/v1/conversations/{session}/trace", tag = "conversations", operation_id = "trace_conversation",
    params(("session" = String, Path, description = "The conversation, 1 to 256 bytes"), Whose),
    responses(
        (status = 200, description = "What it makes of it", body = ref("#/components/schemas/DialogueTrace")),
        (status = "default", description = "What went wrong", content_type = "application/problem+json", body = ref("#/components/schemas/Problem")),
    ))]
pub(crate) async fn trace(
    State(app): State<Arc<App>>,
    By(caller): By,
    PathValues(path): PathValues,
    whose: Wanted<Whose>,
) -> Result<Response, Problem> {
    let conversation = Conversation::open(&app, &caller, &Permission::MemoryRead, &path, &wanted(whose)?)?;
    json(&in_time(&app, conversation.memory.trace(&conversation.identity)).await??)
}

impl From<ConversationError> for Problem {
    fn from(error: ConversationError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests;
