//! Routes of stored entries by namespace, and of purging cached answers.
//!
//! Callers reach their own namespaces, administrators every one. No route here returns a stored
//! value. Without a memory key, all of them answer that memory is off.

use axum::extract::{Request, State};
use axum::response::Response;
use helmdeck_core::{Caller, Code, Identity, PackName, Permission};
use helmdeck_engine::{Selector, store_error};
use helmdeck_memory::{Cursor, Kind, Namespace, Page};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::preview;
use super::reply::{Problems, json};
use super::request::{Params, page_size};
use super::state::{EngineState, MAX_REQUEST_BYTES};
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(namespaces))
        .routes(routes!(entries))
        .routes(routes!(preview_purge))
        .routes(routes!(purge))
}

/// Owner of entries. An empty subject stands for what the whole tenant shares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    tenant: String,
    subject: String,
    session: Option<String>,
}

/// Which entries to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct MemoryQuery {
    /// Only cached answers of this pack; not together with `kind` or `prefix`
    pack: Option<String>,
    /// `cache`, `note`, `fact`, `audit` or `conversation`
    kind: Option<String>,
    /// The tenant
    tenant: Option<String>,
    /// The user; empty = what the tenant shares
    subject: Option<String>,
    /// The conversation
    session: Option<String>,
    /// Only entries whose key starts with this
    prefix: Option<String>,
    /// Only entries with exactly this tag; a page may then hold fewer, even none, and still have a
    /// `next`
    tag: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// Which namespaces to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct NamespaceQuery {
    /// Only what is stored of this kind: `cache`, `note`, `fact`, `audit` or `conversation`
    kind: Option<String>,
    /// 1 to 1000; 100 by default
    #[param(value_type = Option<u32>)]
    limit: Option<usize>,
    /// The `next` of the page before
    after: Option<String>,
}

/// What to purge: exactly one of `all`, `pack`, `tag`, `namespace`, or `namespace` with `key`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Purge {
    #[serde(default)]
    all: bool,
    pack: Option<PackName>,
    tag: Option<String>,
    namespace: Option<Owner>,
    key: Option<String>,
}

/// Lists what each namespace holds of each kind, most rows first, in pages.
///
/// A page is a part of the list at its moment: rows that are written meanwhile may move a namespace
/// to another page.
#[utoipa::path(get, path = "/api/v1/memory/namespaces", tag = "memory", operation_id = "list_namespaces",
    params(NamespaceQuery),
    responses(
        (status = 200, description = "The namespaces", body = ref("#/components/schemas/NamespaceList")),
        (status = 404, description = "Memory is off"),
    ))]
async fn namespaces(
    State(state): State<EngineState>,
    By(caller): By,
    filter: Params<NamespaceQuery>,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryRead)?;
    let filter = filter.read()?;
    let (limit, kind) = (
        page_size(filter.limit)?,
        filter.kind.as_deref().map(parse_kind).transpose()?,
    );
    let wrong = |_| Problem::new(Code::InvalidInput, "after is not the `next` of a page");
    let skipped: usize = filter
        .after
        .map_or(Ok(0), |after| after.parse())
        .map_err(wrong)?;
    let store = state.memory()?.store();
    let stats = if caller.permissions.allow(&Permission::Admin) {
        state.limits.in_time(store.namespaces()).await?
    } else {
        let identity = &caller.identity;
        state
            .limits
            .in_time(store.namespaces_of(identity.tenant(), identity.user()))
            .await?
    };
    let stats = stats.map_err(store_error)?;
    let mut shown = stats
        .into_iter()
        .filter(|held| {
            may_see(&caller, &held.namespace) && kind.is_none_or(|kind| held.kind == kind)
        })
        .skip(skipped);
    let namespaces: Vec<_> = shown.by_ref().take(limit).collect();
    let next = shown
        .next()
        .map(|_| skipped.saturating_add(limit).to_string());
    json(&serde_json::json!({ "namespaces": namespaces, "next": next }))
}

/// Lists entries without their values, newest first, in pages.
///
/// They are of one namespace (the caller's own by default) and one kind (`cache` by default).
#[utoipa::path(get, path = "/api/v1/memory/entries", tag = "memory", operation_id = "list_entries",
    params(MemoryQuery),
    responses((status = 200, description = "The entries", body = ref("#/components/schemas/EntryList")), Problems))]
async fn entries(
    State(state): State<EngineState>,
    By(caller): By,
    filter: Params<MemoryQuery>,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryRead)?;
    let filter = filter.read()?;
    let limit = page_size(filter.limit)?;
    let (namespace, kind, prefix) = (
        filter.namespace(&caller.identity),
        filter.kind()?,
        filter.prefix()?,
    );
    need_own(&caller, &namespace)?;
    let page = Page {
        limit,
        after: filter.after.map(Cursor),
    };
    let listing = state
        .memory()?
        .store()
        .list(&namespace, kind, &prefix, page);
    let mut page = state.limits.in_time(listing).await?.map_err(store_error)?;
    if let Some(tag) = &filter.tag {
        page.entries.retain(|entry| entry.tags.contains(tag));
    }
    json(&serde_json::json!({ "entries": page.entries, "next": page.next }))
}

/// Counts the cached answers that a purge would delete, and shows the first of them. Deletes
/// nothing.
///
/// The request is that of the purge. `complete` is false if there are too many to count all.
#[utoipa::path(post, path = "/api/v1/memory/purge/preview", tag = "memory", operation_id = "preview_purge",
    request_body(content = ref("#/components/schemas/Purge"), content_type = "application/json", description = "What would be purged"),
    responses((status = 200, description = "What would go", body = ref("#/components/schemas/PurgePreview")), Problems))]
async fn preview_purge(
    State(state): State<EngineState>,
    By(caller): By,
    request: Request,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryRead)?;
    let selector = selected(&state, &caller, request).await?;
    let looking = preview::look(&**state.memory()?.store(), &selector);
    json(&state.limits.in_time(looking).await?.map_err(store_error)?)
}

/// Purges cached answers: of one pack, of a tag, of a namespace, one by its key, or all.
///
/// `pending` means that the store could not be reached: the answers are not served any more, and
/// are deleted when it can.
#[utoipa::path(post, path = "/api/v1/memory/purge", tag = "memory", operation_id = "purge",
    request_body(content = ref("#/components/schemas/Purge"), content_type = "application/json", description = "What to purge"),
    responses((status = 200, description = "How much was purged", body = ref("#/components/schemas/Purged"), headers(
        ("Helmdeck-Position" = String, description = "The position after this write, with a PostgreSQL store"),
    )), Problems))]
async fn purge(
    State(state): State<EngineState>,
    By(caller): By,
    request: Request,
) -> Result<Response, Problem> {
    need(&caller, &Permission::MemoryWrite)?;
    let selector = selected(&state, &caller, request).await?;
    json(&state.memory()?.purge(selector).await)
}

/// Reads what a request selects, and refuses what its caller may not reach.
async fn selected(
    state: &EngineState,
    caller: &Caller,
    request: Request,
) -> Result<Selector, Problem> {
    let purge: Purge = state.limits.read_json(request, MAX_REQUEST_BYTES).await?;
    let selector = purge.selector()?;
    match &selector {
        Selector::Namespace(namespace) | Selector::Key { namespace, .. } => {
            need_own(caller, namespace)?
        }
        _ => need(caller, &Permission::Admin)?,
    }
    Ok(selector)
}

fn parse_kind(name: &str) -> Result<Kind, Problem> {
    Kind::parse(name).ok_or_else(|| {
        let kinds = Kind::ALL.map(Kind::as_str).join(", ");
        Problem::new(Code::InvalidInput, format!("kind must be one of {kinds}"))
    })
}

/// Refuses callers that neither own a namespace nor are administrators.
pub(super) fn need_own(caller: &Caller, namespace: &Namespace) -> Result<(), Problem> {
    if may_see(caller, namespace) {
        Ok(())
    } else {
        need(caller, &Permission::Admin)
    }
}

fn may_see(caller: &Caller, namespace: &Namespace) -> bool {
    let identity = &caller.identity;
    let own = *namespace.tenant == *identity.tenant() && *namespace.subject == *identity.user();
    (own && !identity.is_anonymous()) || caller.permissions.allow(&Permission::Admin)
}

impl MemoryQuery {
    fn namespace(&self, identity: &Identity) -> Namespace {
        Namespace::new(
            self.tenant.as_deref().unwrap_or(identity.tenant()),
            self.subject.as_deref().unwrap_or(identity.user()),
            self.session.as_deref(),
        )
    }

    fn kind(&self) -> Result<Kind, Problem> {
        self.kind.as_deref().map_or(Ok(Kind::Cache), parse_kind)
    }

    /// Returns the prefix of wanted keys. Those of cached answers start with their pack and a
    /// slash.
    fn prefix(&self) -> Result<String, Problem> {
        match (&self.pack, &self.kind, &self.prefix) {
            (None, _, prefix) => Ok(prefix.clone().unwrap_or_default()),
            (Some(pack), None, None) => Ok(format!("{pack}/")),
            _ => Err(Problem::new(
                Code::InvalidInput,
                "pack cannot be combined with kind or prefix",
            )),
        }
    }
}

impl Purge {
    fn selector(self) -> Result<Selector, Problem> {
        match self {
            Self {
                all: true,
                pack: None,
                tag: None,
                namespace: None,
                key: None,
            } => Ok(Selector::All),
            Self {
                all: false,
                pack: Some(pack),
                tag: None,
                namespace: None,
                key: None,
            } => Ok(Selector::Pack(pack)),
            Self {
                all: false,
                pack: None,
                tag: Some(tag),
                namespace: None,
                key: None,
            } => Ok(Selector::Tag(tag)),
            Self {
                all: false,
                pack: None,
                tag: None,
                namespace: Some(owner),
                key,
            } => {
                let namespace =
                    Namespace::new(&owner.tenant, &owner.subject, owner.session.as_deref());
                Ok(match key {
                    Some(key) => Selector::Key { namespace, key },
                    None => Selector::Namespace(namespace),
                })
            }
            _ => Err(Problem::new(
                Code::InvalidInput,
                "give exactly one of \"all\": true, \"pack\", \"tag\", \"namespace\", or \"namespace\" with \"key\"",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Option<Selector> {
        serde_json::from_str::<Purge>(text).ok()?.selector().ok()
    }

    #[test]
    fn a_purge_names_exactly_one_thing() {
        assert!(matches!(selector(r#"{"all": true}"#), Some(Selector::All)));
        assert!(
            matches!(selector(r#"{"pack": "a.b"}"#), Some(Selector::Pack(pack)) if pack.as_str() == "a.b")
        );
        assert!(matches!(selector(r#"{"tag": "t"}"#), Some(Selector::Tag(tag)) if tag == "t"));
        let namespace = r#""namespace": {"tenant": "t", "subject": "u"}"#;
        assert!(matches!(
            selector(&format!("{{{namespace}}}")),
            Some(Selector::Namespace(_))
        ));
        assert!(matches!(
            selector(&format!("{{{namespace}, \"key\": \"k\"}}")),
            Some(Selector::Key { .. })
        ));
        for vague in [
            "{}",
            r#"{"all": false}"#,
            r#"{"all": true, "tag": "t"}"#,
            r#"{"key": "k"}"#,
            r#"{"packs": "a.b"}"#,
            r#"{"pack": "*"}"#,
        ] {
            assert!(selector(vague).is_none(), "{vague}");
        }
    }

    #[test]
    fn only_an_administrator_reaches_beyond_its_own_namespace() {
        let caller = |identity: Identity, scope: &str| {
            Caller::new(identity, helmdeck_core::Permissions::of_scope(scope))
        };
        let admin = caller(Identity::new("t", "boss").unwrap(), "admin");
        let other = caller(
            Identity::new("t", "u").unwrap(),
            "memory:read memory:write packs:run",
        );
        let own = Namespace::new("t", "u", Some("s"));
        assert!(need_own(&admin, &own).is_ok() && need_own(&other, &own).is_ok());
        // Another user, another tenant, what the tenant shares, and who only has the name of the
        // local caller.
        for (tenant, subject) in [("t", "v"), ("s", "u"), ("t", ""), ("local", "local")] {
            let foreign = Namespace::new(tenant, subject, None);
            assert!(need_own(&admin, &foreign).is_ok());
            assert_eq!(
                need_own(&other, &foreign).unwrap_err().status(),
                403,
                "{tenant} {subject}"
            );
        }
        let local = caller(Identity::local(), "memory:read");
        assert_eq!(need_own(&local, &own).unwrap_err().status(), 403);
        let nobody = caller(Identity::anonymous(), "memory:read");
        assert_eq!(
            need_own(&nobody, &Namespace::of_caller(&nobody.identity))
                .unwrap_err()
                .status(),
            401
        );
    }
}
