//! Routes of the vault: credentials with their grants and uses, never a value.
//!
//! An administrator sees all of it. Other callers see the credentials that are granted to them, and
//! their own uses.

use std::collections::HashMap;

use axum::extract::{Request, State};
use axum::response::Response;
use helmdeck_core::caller::Glob;
use helmdeck_core::{Code, Identity, Permission, Timestamp};
use helmdeck_system::vault::VaultUse;
use helmdeck_vault::{About, Change, Listed, Subjects};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::{Problems, json as answer};
use super::request::{Params, PathValues, page_size};
use super::state::{MAX_REQUEST_BYTES, OperatorState};
use crate::access::{By, need, reach};
use crate::app::App;
use crate::operator::{system_error, vault_error};
use crate::problem::Problem;

/// Name of a credential in refusals.
const CREDENTIAL: &str = "a credential";
/// Limit of rows of the use log that totals are made of.
const COUNTED: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(uses))
        .routes(routes!(grant))
        .routes(routes!(revoke))
}

/// Which credentials to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct CredentialQuery {
    /// Only the one of this name
    name: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// How many uses.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct UsesQuery {
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
}

/// Callers and packs of a grant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Grant {
    subjects: Vec<String>,
    packs: Vec<String>,
}

/// Lists the credentials by name, in pages: type, hosts, grants and last use, never a value.
///
/// Administrators see all of them. Other callers see those that are granted to them, without the
/// grants of others.
#[utoipa::path(get, path = "/api/v1/credentials", tag = "credentials", operation_id = "list_credentials",
    params(CredentialQuery),
    responses(
        (status = 200, description = "The credentials", body = ref("#/components/schemas/CredentialList")),
        (status = 404, description = "There is no vault"),
        Problems,
    ))]
async fn list(
    State(state): State<OperatorState>,
    By(caller): By,
    page: Params<CredentialQuery>,
) -> Result<Response, Problem> {
    let own = reach(&caller, CREDENTIAL)?;
    let page = page.read()?;
    let limit = page_size(page.limit)?;
    let (book, system) = (state.operator.vault()?, state.operator.system()?);
    let reading = async {
        let listed = book.list().await.map_err(vault_error)?;
        let uses = system
            .vault_uses_of(None, own.map(of_caller), COUNTED)
            .await
            .map_err(system_error)?;
        Ok::<_, helmdeck_core::Error>((listed, uses))
    };
    let (mut listed, uses) = state.engine.limits.in_time(reading).await??;
    listed.retain(|entry| own.is_none_or(|own| is_granted(entry, own)));
    if let Some(name) = &page.name {
        listed.retain(|entry| entry.name == *name);
    }
    if let Some(after) = &page.after {
        listed.retain(|entry| entry.name > *after);
    }
    let more = listed.len() > limit;
    listed.truncate(limit);
    let next = listed
        .last()
        .filter(|_| more)
        .map(|entry| entry.name.clone());
    let totals = totals(&uses);
    let none = Total::default();
    let shown: Vec<Value> = listed
        .iter()
        .map(|entry| {
            let total = totals.get(entry.name.as_str()).unwrap_or(&none);
            if own.is_some() {
                for_user(entry, total)
            } else {
                for_admin(entry, total)
            }
        })
        .collect();
    answer(&json!({ "credentials": shown, "next": next }))
}

/// Lists the uses of a credential by caller, pack and day, the latest first; for other callers,
/// their own.
#[utoipa::path(get, path = "/api/v1/credentials/{name}/uses", tag = "credentials", operation_id = "credential_uses",
    params(("name" = String, Path, description = "The credential's name"), UsesQuery),
    responses((status = 200, description = "The uses", body = ref("#/components/schemas/CredentialUses")), Problems))]
async fn uses(
    State(state): State<OperatorState>,
    By(caller): By,
    path: PathValues,
    page: Params<UsesQuery>,
) -> Result<Response, Problem> {
    let own = reach(&caller, CREDENTIAL)?;
    let limit = page_size(page.read()?.limit)?;
    state.operator.vault()?;
    let reading = state.operator.system()?.vault_uses_of(
        Some(path.value("name").to_owned()),
        own.map(of_caller),
        limit,
    );
    let uses = state
        .engine
        .limits
        .in_time(reading)
        .await?
        .map_err(system_error)?;
    let uses: Vec<Value> = uses
        .iter()
        .map(|used| {
            json!({
                "tenant": used.tenant, "user": used.subject, "pack": used.pack, "day": day(used.day),
                "granted": used.granted, "refused": used.refused, "last_at": used.last_at.to_rfc3339(),
            })
        })
        .collect();
    answer(&json!({ "uses": uses }))
}

/// Grants a credential to callers and packs. Both must match before it is used.
#[utoipa::path(post, path = "/api/v1/credentials/{name}/grant", tag = "credentials", operation_id = "grant_credential",
    params(("name" = String, Path, description = "The credential's name")),
    request_body(content = ref("#/components/schemas/Grant"), content_type = "application/json", description = "Callers and packs"),
    responses((status = 200, description = "The grants now", body = ref("#/components/schemas/Grant")), Problems))]
async fn grant(
    State(state): State<OperatorState>,
    by: By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    change(state, by, path, request, true).await
}

/// Withdraws a credential from callers and packs, each written as when it was granted.
///
/// Every server on the same data folder refuses it within half a second.
#[utoipa::path(post, path = "/api/v1/credentials/{name}/revoke", tag = "credentials", operation_id = "revoke_credential",
    params(("name" = String, Path, description = "The credential's name")),
    request_body(content = ref("#/components/schemas/Grant"), content_type = "application/json", description = "Callers and packs"),
    responses((status = 200, description = "The grants now", body = ref("#/components/schemas/Grant")), Problems))]
async fn revoke(
    State(state): State<OperatorState>,
    by: By,
    path: PathValues,
    request: Request,
) -> Result<Response, Problem> {
    change(state, by, path, request, false).await
}

async fn change(
    state: OperatorState,
    By(caller): By,
    path: PathValues,
    request: Request,
    allow: bool,
) -> Result<Response, Problem> {
    need(&caller, &Permission::Admin)?;
    let grant: Grant = state
        .engine
        .limits
        .read_json(request, MAX_REQUEST_BYTES)
        .await?;
    let invalid = |message: String| Problem::new(Code::InvalidInput, message);
    let subjects: Vec<Subjects> = texts(&grant.subjects).map_err(invalid)?;
    let packs: Vec<Glob> = texts(&grant.packs).map_err(invalid)?;
    if subjects.is_empty() && packs.is_empty() {
        return Err(invalid(
            "name at least one of \"subjects\" and \"packs\"".to_owned(),
        ));
    }
    let change = if allow {
        Change {
            allow: subjects,
            allow_packs: packs,
            ..Change::default()
        }
    } else {
        Change {
            revoke: subjects,
            revoke_packs: packs,
            ..Change::default()
        }
    };
    let name = path.value("name");
    let changing = state.operator.vault()?.regrant(name, change);
    let about = state
        .engine
        .limits
        .in_time(changing)
        .await?
        .map_err(vault_error)?;
    let by = &caller.identity;
    tracing::info!(credential = name, allow, by = %format_args!("{}/{}", by.tenant(), by.user()), "the grants of a credential were changed");
    answer(&json!({ "subjects": strings(&about.subjects), "packs": strings(&about.packs) }))
}

fn texts<T: std::str::FromStr<Err = String>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse()).collect()
}

fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

fn of_caller(identity: &Identity) -> (String, String) {
    (identity.tenant().to_owned(), identity.user().to_owned())
}

fn is_granted(entry: &Listed, identity: &Identity) -> bool {
    let about = entry.about.as_ref().and_then(|about| about.as_ref().ok());
    about.is_some_and(|about| {
        about
            .subjects
            .iter()
            .any(|subjects| subjects.cover(identity))
    })
}

/// Uses of one credential.
#[derive(Default)]
struct Total {
    granted: u64,
    refused: u64,
    last: Option<(Timestamp, String)>,
}

fn totals(uses: &[VaultUse]) -> HashMap<&str, Total> {
    let mut totals: HashMap<&str, Total> = HashMap::new();
    // The latest is first.
    for used in uses {
        let total = totals.entry(&used.name).or_default();
        total.granted = total.granted.saturating_add(used.granted);
        total.refused = total.refused.saturating_add(used.refused);
        total
            .last
            .get_or_insert_with(|| (used.last_at, format!("{}/{}", used.tenant, used.subject)));
    }
    totals
}

fn for_admin(entry: &Listed, total: &Total) -> Value {
    let mut value = match &entry.about {
        Some(Ok(about)) => of_about(about),
        Some(Err(error)) => json!({ "error": error.to_string() }),
        None => json!({}),
    };
    value["key_id"] = entry.key_id.as_str().into();
    value["last_used_by"] = total.last.as_ref().map(|(_, who)| who.as_str()).into();
    with_times(value, entry, total)
}

fn for_user(entry: &Listed, total: &Total) -> Value {
    let value = match &entry.about {
        Some(Ok(about)) => json!({ "type": about.kind, "packs": strings(&about.packs) }),
        _ => json!({}),
    };
    with_times(value, entry, total)
}

fn with_times(mut value: Value, entry: &Listed, total: &Total) -> Value {
    value["name"] = entry.name.as_str().into();
    value["version"] = entry.version.into();
    value["created_at"] = entry.created_at.to_rfc3339().into();
    value["updated_at"] = entry.updated_at.to_rfc3339().into();
    value["last_used_at"] = total.last.as_ref().map(|(at, _)| at.to_rfc3339()).into();
    value["granted"] = total.granted.into();
    value["refused"] = total.refused.into();
    value
}

fn of_about(about: &About) -> Value {
    let mut value = json!({
        "type": about.kind, "hosts": strings(&about.hosts), "subjects": strings(&about.subjects),
        "packs": strings(&about.packs),
    });
    if let Some(user) = &about.user {
        value["user"] = user.as_str().into();
    }
    value
}

/// Returns a day as a date: `2026-11-22`.
fn day(days: i64) -> String {
    let text = Timestamp(days.saturating_mul(24 * 60 * 60 * 1_000_000)).to_rfc3339();
    text.split('T').next().unwrap_or_default().to_owned()
}
