//! `helmdeck memory status` and `list`: shows the unencrypted columns. Creates no store.

use helmdeck_core::text::count;
use helmdeck_memory::{EntryMeta, Kind, Namespace, Page, Store};
use serde_json::{Value, json};

use crate::args::ListArgs;
use crate::exit::Result;
use crate::output::size;
use crate::table::table;
use crate::wire::Setup;
use helmdeck_core::text::columns;

/// Page size of a list.
const PAGE: usize = 500;

/// Says whether memory is on, and what the store holds.
///
/// # Errors
/// With a key: a failure if the store was written with another one. Without: only if the store
/// cannot be read.
pub(crate) async fn status(setup: &Setup) -> Result<()> {
    let shown = setup.shown_url()?;
    let store = match setup.sealed_store().await? {
        Some(store) => Some(store),
        None => setup.clear_store().await?,
    };
    let (stats, namespaces) = match &store {
        Some(store) => (Some(store.stats().await?), store.namespaces().await?),
        None => (None, Vec::new()),
    };
    if let Some(store) = &store {
        store.close().await?;
    }
    let stats_value = stats.as_ref().map(|stats| {
        json!({
            "driver": stats.driver, "rows": stats.rows, "expired": stats.expired, "bytes": stats.bytes,
            "disk_bytes": stats.disk_bytes, "rows_by_key_id": stats.rows_by_key_id, "rows_by_kind": stats.rows_by_kind,
        })
    });
    let value = json!({
        "enabled": setup.ring.is_some(),
        "key_id": setup.ring.as_ref().map(|ring| ring.current_id()),
        "previous_key_ids": setup.ring.iter().flat_map(|ring| ring.ids().skip(1)).collect::<Vec<_>>(),
        "url": shown,
        "store": stats_value,
        "namespaces": namespaces.iter().map(|held| json!({
            "namespace": name(&held.namespace), "kind": held.kind, "rows": held.rows, "bytes": held.bytes,
        })).collect::<Vec<_>>(),
    });
    setup.output.either(&value, || {
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut fact = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
        match &setup.ring {
            Some(ring) => fact("memory", format!("on, key {}", ring.current_id())),
            None => fact("memory", "off: no memory key is set".to_owned()),
        }
        fact("store", shown.clone());
        match &stats {
            None => fact("holds", "nothing; the first write creates it".to_owned()),
            Some(stats) => {
                let waiting = format!("{} ended and waiting for the sweep", stats.expired);
                fact(
                    "holds",
                    format!(
                        "{}, {}, {waiting}",
                        count(stats.rows, "entry"),
                        size(stats.bytes)
                    ),
                );
                fact("on disk", size(stats.disk_bytes));
                fact("by kind", counted(&stats.rows_by_kind));
                fact("by key", counted(&stats.rows_by_key_id));
            }
        }
        let mut text = columns(&rows);
        if !namespaces.is_empty() {
            let rows = namespaces.iter().map(|held| {
                [
                    name(&held.namespace),
                    held.kind.to_string(),
                    held.rows.to_string(),
                    size(held.bytes),
                ]
            });
            text.push('\n');
            text.push_str(&table(["NAMESPACE", "KIND", "ENTRIES", "SIZE"], rows));
        }
        text
    })
}

/// Lists entries without their values, newest first within a namespace and kind.
///
/// # Errors
/// A failure if the store cannot be read.
pub(crate) async fn list(setup: &Setup, arguments: &ListArgs) -> Result<()> {
    let entries = match setup.clear_store().await? {
        None => Vec::new(),
        Some(store) => {
            let wanted = |kind: Kind, namespace: &Namespace| {
                arguments.kind.is_none_or(|only| only == kind)
                    && arguments
                        .namespace
                        .as_ref()
                        .is_none_or(|only| only == namespace)
            };
            let found = collect(&*store, wanted, &arguments.prefix, arguments.limit).await;
            store.close().await?;
            found?
        }
    };
    print(setup, &entries)
}

/// Prints entries, a line each.
///
/// # Errors
/// A silent failure if the reader went away.
pub(crate) fn print(setup: &Setup, entries: &[EntryMeta]) -> Result<()> {
    let value = Value::Array(entries.iter().map(entry).collect());
    setup.output.either(&value, || {
        if entries.is_empty() {
            return "there are no entries; `helmdeck memory status` says what the store holds"
                .to_owned();
        }
        let rows = entries.iter().map(|meta| {
            [
                name(&meta.namespace),
                meta.kind.to_string(),
                seconds(&meta.updated_at.to_rfc3339()),
                meta.expires_at
                    .map_or_else(|| "never".to_owned(), |end| seconds(&end.to_rfc3339())),
                size(meta.size),
                if meta.tags.is_empty() {
                    "-".to_owned()
                } else {
                    meta.tags.join(",")
                },
                meta.key.clone(),
            ]
        });
        table(
            [
                "NAMESPACE",
                "KIND",
                "UPDATED",
                "ENDS",
                "SIZE",
                "TAGS",
                "KEY",
            ],
            rows,
        )
    })
}

/// Collects entries of the namespaces and kinds that are wanted, at most `limit`.
///
/// # Errors
/// A failure if the store cannot be read.
pub(crate) async fn collect(
    store: &dyn Store,
    wanted: impl Fn(Kind, &Namespace) -> bool,
    prefix: &str,
    limit: usize,
) -> Result<Vec<EntryMeta>> {
    let mut entries = Vec::new();
    for held in store
        .namespaces()
        .await?
        .into_iter()
        .filter(|held| wanted(held.kind, &held.namespace))
    {
        let mut after = None;
        while entries.len() < limit {
            let page = Page {
                limit: PAGE.min(limit - entries.len()),
                after,
            };
            let found = store.list(&held.namespace, held.kind, prefix, page).await?;
            entries.extend(found.entries);
            match found.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(entries)
}

/// Returns a namespace as people write it: `tenant/user` or `tenant/user/session`.
pub(crate) fn name(namespace: &Namespace) -> String {
    let session = namespace
        .session
        .as_deref()
        .map(|session| format!("/{session}"))
        .unwrap_or_default();
    format!("{}/{}{session}", namespace.tenant, namespace.subject)
}

fn entry(meta: &EntryMeta) -> Value {
    json!({
        "namespace": name(&meta.namespace), "kind": meta.kind, "key": meta.key, "category": meta.category,
        "tags": meta.tags, "attributes": meta.attributes, "fingerprint": meta.fingerprint, "version": meta.version,
        "created_at": meta.created_at.to_rfc3339(), "updated_at": meta.updated_at.to_rfc3339(),
        "expires_at": meta.expires_at.map(|end| end.to_rfc3339()), "size": meta.size,
    })
}

fn counted(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let word = |name: &str| {
        if name.is_empty() {
            "not sealed".to_owned()
        } else {
            name.to_owned()
        }
    };
    let parts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{} {count}", word(name)))
        .collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Cuts the fraction off an RFC 3339 time.
fn seconds(time: &str) -> String {
    time.split('.')
        .next()
        .map_or_else(|| time.to_owned(), |whole| format!("{whole}Z"))
}
