//! Routes of API tokens: list, create and revoke. The text of a token is in the answer to its
//! creation only.
//!
//! A token reaches itself and its descendants, a caller with a JSON Web Token those of its user,
//! administrators every one ([`TokenReach`]). Nobody can create a token with more rights than its
//! own, or one that outlives what proved its creator.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Caller, Code, Error, Identity, Permission, Permissions, Timestamp};
use helmdeck_memory::StoreError;
use helmdeck_system::tokens::{ApiToken, NewToken, TokenQuery, TokenReach};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::{Problems, json as answer, nothing};
use super::request::{Params, PathValues, page_size};
use super::state::{MAX_REQUEST_BYTES, OperatorState};
use crate::access::{By, need, need_token};
use crate::app::App;
use crate::operator::system_error;
use crate::problem::Problem;
use crate::validity::EndsCredential;

/// Name of a token in refusals.
const TOKEN: &str = "a token";
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 100;
/// The longest lifetime of a token that no administrator made, and the usual one.
const USUAL_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// The shortest lifetime.
const SHORTEST_LIFE: u64 = 60;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list, create))
        .routes(routes!(revoke))
}

/// Which tokens to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct TokensQuery {
    /// The tenant; only for an administrator
    tenant: Option<String>,
    /// The user; only for an administrator
    user: Option<String>,
    /// Only tokens that are still valid
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    live: bool,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// New token: all members may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WantedToken {
    name: String,
    tenant: Option<String>,
    user: Option<String>,
    scope: Option<String>,
    ttl_seconds: Option<u64>,
    never_expires: bool,
}

/// Lists API tokens without their texts, newest first, in pages.
///
/// A token sees itself and those that descend from it. A caller with a JSON Web Token sees those of
/// its user, and an administrator sees those of everybody. Tokens of browsers are among them: their
/// scope has the word `ui`. Ended tokens stay in the list for 90 days.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", operation_id = "list_tokens", params(TokensQuery),
    responses((status = 200, description = "The tokens", body = ref("#/components/schemas/TokenList")), Problems))]
async fn list(
    State(state): State<OperatorState>,
    By(caller): By,
    filter: Params<TokensQuery>,
) -> Result<Response, Problem> {
    let own = need_token(&caller, TOKEN)?;
    let filter = filter.read()?;
    let limit = page_size(filter.limit)?;
    let now = state.clock.now();
    let others =
        |named: &Option<String>, own: &str| named.as_deref().is_some_and(|named| named != own);
    if others(&filter.tenant, own.tenant()) || others(&filter.user, own.user()) {
        need(&caller, &Permission::Admin)?;
    }
    let mut query = TokenQuery::new(TokenReach::of(&caller), limit + 1);
    query.live_at = filter.live.then_some(now);
    query.after = filter.after.as_deref().map(cursor).transpose()?;
    (query.tenant, query.subject) = (filter.tenant, filter.user);
    let listing = state.operator.system()?.token_page(query);
    let mut tokens = state
        .engine
        .limits
        .in_time(listing)
        .await?
        .map_err(system_error)?;
    let more = tokens.len() > limit;
    tokens.truncate(limit);
    let next = tokens
        .last()
        .filter(|_| more)
        .map(|last| format!("{}.{}", last.created_at.micros(), last.id));
    let tokens: Vec<Value> = tokens.iter().map(|token| shown(token, now)).collect();
    answer(&json!({ "tokens": tokens, "next": next, "accepted": state.operator.api_tokens }))
}

/// Creates an API token and returns its text, this once.
///
/// Without `scope` it has the caller's rights; it never has more. It expires with the caller's
/// credential at the latest, and is revoked with it if that is a token. A JSON Web Token creates
/// tokens only if the server allows it. Only an administrator creates tokens for others, or some
/// that live longer than 90 days.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", operation_id = "create_token",
    request_body(content = ref("#/components/schemas/NewToken"), content_type = "application/json", description = "The token"),
    responses((status = 201, description = "The token with its text", body = ref("#/components/schemas/CreatedToken")), Problems))]
async fn create(
    State(state): State<OperatorState>,
    By(caller): By,
    request: Request,
) -> Result<Response, Problem> {
    need_token(&caller, TOKEN)?;
    need(&caller, &Permission::TokensWrite)?;
    if caller.credential.is_of_jwt() && !state.operator.tokens_by_jwt {
        let message = "a JSON Web Token makes no API tokens here; the operator allows it with auth.tokens_by_jwt = true";
        return Err(Problem::new(Code::Forbidden, message));
    }
    let wanted: WantedToken = state
        .engine
        .limits
        .read_json(request, MAX_REQUEST_BYTES)
        .await?;
    let now = state.clock.now();
    let system = state.operator.system()?;
    let latest = state
        .engine
        .limits
        .in_time(system.latest_expiry(&caller.credential))
        .await?
        .map_err(system_error)?;
    let token = checked(&caller, wanted, now, latest)?;
    let creating = system.create_token(token);
    let (made, text) =
        state
            .engine
            .limits
            .in_time(creating)
            .await?
            .map_err(|error| match error {
                StoreError::Invalid(why) => Error::new(Code::Forbidden, why),
                error => system_error(error),
            })?;
    let by = &caller.identity;
    tracing::info!(token = made.id, tenant = made.tenant, user = made.subject, by = %format_args!("{}/{}", by.tenant(), by.user()), "an API token was created");
    let mut value = shown(&made, now);
    value["token"] = text.expose().into();
    Ok((StatusCode::CREATED, answer(&value)?).into_response())
}

/// Revokes an API token and those that descend from it. Every server on the same system database
/// refuses them within a second.
///
/// A token revokes itself and its descendants, a caller with a JSON Web Token those of its user, an
/// administrator every one. For everyone else it is not found.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens", operation_id = "revoke_token",
    params(("id" = String, Path, description = "The `id` of the token: 16 hex digits")),
    responses(
        (status = 204, description = "It is revoked"),
        (status = 404, description = "Token not found"),
    ))]
async fn revoke(
    State(state): State<OperatorState>,
    By(caller): By,
    path: PathValues,
) -> Result<Response, Problem> {
    need_token(&caller, TOKEN)?;
    let (reach, id, now) = (TokenReach::of(&caller), path.value("id"), state.clock.now());
    let revoking = state.operator.system()?.revoke_token(id, &reach, now);
    if !state
        .engine
        .limits
        .in_time(revoking)
        .await?
        .map_err(system_error)?
    {
        return Err(Problem::new(
            Code::NotFound,
            "token not found: it does not exist or belongs to another caller",
        ));
    }
    let by = &caller.identity;
    tracing::info!(token = id, by = %format_args!("{}/{}", by.tenant(), by.user()), "an API token was revoked");
    let mut response = nothing();
    response.extensions_mut().insert(EndsCredential);
    Ok(response)
}

/// Checks a new token against the rights of its creator. `latest` is when it expires at the latest.
fn checked(
    caller: &Caller,
    wanted: WantedToken,
    now: Timestamp,
    latest: Option<Timestamp>,
) -> Result<NewToken, Problem> {
    let admin = caller.permissions.allow(&Permission::Admin);
    let invalid = |message: String| Problem::new(Code::InvalidInput, message);
    if caller.identity.session().is_some() {
        let message = "this token is for one session only, and the new one would reach the others";
        return Err(Problem::new(Code::Forbidden, message));
    }
    if wanted.name.len() > MAX_NAME_BYTES || wanted.name.chars().any(char::is_control) {
        return Err(invalid(format!(
            "name must be at most {MAX_NAME_BYTES} bytes without control characters"
        )));
    }
    let tenant = wanted.tenant.as_deref().unwrap_or(caller.identity.tenant());
    let user = wanted.user.as_deref().unwrap_or(caller.identity.user());
    if tenant != caller.identity.tenant() || user != caller.identity.user() {
        need(caller, &Permission::Admin)?;
    }
    let identity = Identity::new(tenant, user).map_err(invalid)?;
    let life = match (wanted.ttl_seconds, wanted.never_expires) {
        (Some(_), true) => {
            return Err(invalid(
                "give ttl_seconds or never_expires, not both".to_owned(),
            ));
        }
        (None, true) => None,
        (Some(seconds), false) if seconds < SHORTEST_LIFE => {
            return Err(invalid(format!(
                "ttl_seconds must be at least {SHORTEST_LIFE}"
            )));
        }
        (seconds, false) => Some(seconds.map_or(USUAL_LIFE, Duration::from_secs)),
    };
    if life.is_none_or(|life| life > USUAL_LIFE) {
        need(caller, &Permission::Admin)?;
    }
    let asked = life.map(|life| now.saturating_add(life));
    let expires_at = match (asked, latest) {
        (Some(asked), Some(limit)) => Some(asked.min(limit)),
        (asked, limit) => asked.or(limit),
    };
    let scope = match &wanted.scope {
        Some(scope) => permissions(scope).map_err(invalid)?,
        None => (*caller.permissions).clone(),
    };
    let missing = scope
        .iter()
        .find(|permission| !admin && !caller.permissions.allow(permission));
    if let Some(missing) = missing {
        need(caller, missing)?;
    }
    Ok(NewToken {
        name: wanted.name,
        tenant: identity.tenant().to_owned(),
        subject: identity.user().to_owned(),
        scope: scope.to_scope(),
        created_at: now,
        expires_at,
        ancestors: caller.credential.ancestors_of_child(),
    })
}

fn permissions(scope: &str) -> Result<Permissions, String> {
    let words = scope
        .split_ascii_whitespace()
        .map(str::parse::<Permission>)
        .collect::<Result<Permissions, String>>()?;
    if words.is_empty() {
        Err("scope is empty, so the token could do nothing".to_owned())
    } else {
        Ok(words)
    }
}

/// Reads the cursor of a page: creation time and id of the last token before it.
fn cursor(text: &str) -> Result<(Timestamp, String), Problem> {
    let parts = text
        .split_once('.')
        .and_then(|(at, id)| Some((Timestamp(at.parse().ok()?), id.to_owned())));
    parts.ok_or_else(|| Problem::new(Code::InvalidInput, "after is not the `next` of a page"))
}

fn shown(token: &ApiToken, now: Timestamp) -> Value {
    let state = match token.revoked_at {
        Some(_) => "revoked",
        None if token.is_live(now) => "live",
        None => "expired",
    };
    json!({
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "user": token.subject,
        "scope": token.scope,
        "state": state,
        "created_at": token.created_at.to_rfc3339(),
        "expires_at": token.expires_at.map(Timestamp::to_rfc3339),
        "revoked_at": token.revoked_at.map(Timestamp::to_rfc3339),
        "used_at": token.used_at.map(Timestamp::to_rfc3339),
        "parent": token.ancestors.last(),
    })
}
