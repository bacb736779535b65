//! Route of past calls: a caller's own from its audit; for administrators also the newest of all.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::{Caller, Code, PackName, Permission, Timestamp};
use helmdeck_engine::{CallFilter, CallPage, CallRecord, PastCall};
use helmdeck_memory::Namespace;
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::memory::need_own;
use super::reply::{Problems, json};
use super::request::{Params, page_size};
use super::state::EngineState;
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list))
}

/// Which calls to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// Only calls of this pack
    #[param(value_type = Option<String>)]
    pack: Option<PackName>,
    /// `ok`, an error code, or `failed` for every error
    outcome: Option<String>,
    /// Only calls that ended at this time or later
    #[param(value_type = Option<String>)]
    since: Option<Since>,
    /// The tenant; the caller's own by default
    tenant: Option<String>,
    /// The user; the caller itself by default, for an administrator everybody
    user: Option<String>,
    /// The `next` of the page before
    cursor: Option<String>,
    /// Maximum number of calls; 100 by default, never more than 1000
    limit: Option<usize>,
}

/// Time of a query.
#[derive(Debug, Clone, Copy)]
struct Since(Timestamp);

impl<'de> Deserialize<'de> for Since {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        helmdeck_core::clock::rfc3339::deserialize(deserializer).map(Self)
    }
}

/// Whose calls a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of one caller, from its stored audit.
    One(Namespace),
    /// Those of every caller, or of a tenant: the newest of this process.
    All(Option<String>),
}

impl Whose {
    /// Returns whose calls are meant. Only administrators can ask about others.
    ///
    /// # Errors
    /// `forbidden`.
    pub(super) fn of(
        caller: &Caller,
        tenant: Option<&str>,
        user: Option<&str>,
    ) -> Result<Self, Problem> {
        if user.is_none() && caller.permissions.allow(&Permission::Admin) {
            return Ok(Self::All(tenant.map(str::to_owned)));
        }
        let identity = &caller.identity;
        let asked = Namespace::new(
            tenant.unwrap_or(identity.tenant()),
            user.unwrap_or(identity.user()),
            None,
        );
        need_own(caller, &asked)?;
        Ok(Self::One(asked))
    }

    /// Returns whether something of this tenant and user is meant.
    pub(super) fn has(&self, tenant: Option<&str>, user: Option<&str>) -> bool {
        match self {
            Self::One(one) => (tenant, user) == (Some(&*one.tenant), Some(&*one.subject)),
            Self::All(wanted) => wanted.is_none() || wanted.as_deref() == tenant,
        }
    }

    /// Returns whether a call is meant.
    pub(super) fn has_call(&self, call: &CallRecord) -> bool {
        self.has(Some(call.identity.tenant()), Some(call.identity.user()))
    }
}

/// Lists past calls, newest first: who called which pack, the outcome, the cache status, the
/// duration.
///
/// A caller sees its own calls, as long as the audit is kept; an administrator also those of
/// another caller (`user`). Without `user` an administrator sees its own calls and the newest of
/// everybody: up to 2,000 since the start of this process. Packs with `no_audit` are not in it.
#[utoipa::path(get, path = "/api/v1/audit", tag = "memory", operation_id = "list_calls",
    params(AuditQuery),
    responses((status = 200, description = "The calls", body = ref("#/components/schemas/CallList")), Problems))]
async fn list(
    State(state): State<EngineState>,
    By(caller): By,
    asked: Params<AuditQuery>,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryRead)?;
    let asked = asked.read()?;
    let filter = CallFilter {
        pack: asked.pack,
        outcome: asked.outcome,
        since: asked.since.map(|Since(at)| at),
        before: asked.cursor.as_deref().map(position).transpose()?,
        limit: page_size(asked.limit)?,
    };
    let memory = state.memory()?;
    let whose = Whose::of(&caller, asked.tenant.as_deref(), asked.user.as_deref())?;
    let page = match &whose {
        Whose::One(one) => state.limits.in_time(memory.calls(one, filter)).await??,
        Whose::All(tenant) => {
            let own = Namespace::of_caller(&caller.identity);
            let is_own = |call: &CallRecord| {
                (call.identity.tenant(), call.identity.user()) == (&*own.tenant, &*own.subject)
            };
            let mut page = CallPage::default();
            if tenant
                .as_deref()
                .is_none_or(|tenant| *tenant == *own.tenant)
            {
                page = state
                    .limits
                    .in_time(memory.calls(&own, filter.clone()))
                    .await??;
            }
            // A search that goes on later shows what is older then.
            let end = page.next.filter(|_| page.truncated);
            let is_here = |call: &CallRecord| end.is_none_or(|(end, _)| call.at > end);
            let others = memory.recent_calls().after(0, usize::MAX, |call| {
                whose.has_call(call) && !is_own(call) && is_here(call)
            });
            let (own_more, unreadable) = (page.next.is_some(), page.unreadable);
            let calls = page
                .calls
                .into_iter()
                .chain(others.entries.into_iter().map(PastCall::from))
                .collect();
            let mut merged = filter.page(calls);
            merged.truncated = merged.next.is_none() && end.is_some();
            if merged.truncated {
                merged.next = end;
            } else if merged.next.is_none() && own_more {
                merged.next = after_last(&filter, &merged);
            }
            CallPage {
                unreadable,
                ..merged
            }
        }
    };
    let next = page
        .next
        .map(|(at, skip)| format!("{}.{skip}", at.micros()));
    json(&serde_json::json!({
        "calls": page.calls, "next": next, "truncated": page.truncated, "unreadable": page.unreadable,
    }))
}

/// Returns the position after the last call of a page that is full of own calls and has more of
/// them.
fn after_last(filter: &CallFilter, page: &CallPage) -> Option<(Timestamp, u32)> {
    let last = page.calls.last()?.at;
    let same = page
        .calls
        .iter()
        .rev()
        .take_while(|call| call.at == last)
        .count();
    let skipped = filter
        .before
        .filter(|(at, _)| *at == last)
        .map_or(0, |(_, skip)| skip);
    Some((
        last,
        skipped.saturating_add(u32::try_from(same).unwrap_or(u32::MAX)),
    ))
}

fn position(cursor: &str) -> Result<(Timestamp, u32), Problem> {
    let parsed = cursor
        .split_once('.')
        .and_then(|(at, skip)| Some((Timestamp(at.parse().ok()?), skip.parse().ok()?)));
    parsed.ok_or_else(|| Problem::new(Code::InvalidInput, "cursor is not the \"next\" of a page"))
}
