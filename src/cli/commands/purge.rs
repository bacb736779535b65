//! `helmdeck memory purge` and `helmdeck cache purge`: deletes entries after a confirmation.
//!
//! It needs no key.

use helmdeck_core::text::count;
use helmdeck_engine::stored_tag;
use helmdeck_memory::{Delete, Kind, Namespace, Reach, Store};
use serde_json::json;

use crate::args::{PurgeArgs, Which};
use crate::exit::Result;
use crate::wire::Setup;

/// Deletes entries of every kind.
///
/// # Errors
/// A usage failure without a confirmation; a failure if the store cannot be reached.
pub(crate) async fn memory(setup: &Setup, arguments: &PurgeArgs) -> Result<()> {
    run(setup, arguments, None).await
}

/// Deletes cached answers.
///
/// # Errors
/// As [`memory`].
pub(crate) async fn cache(setup: &Setup, arguments: &PurgeArgs) -> Result<()> {
    run(setup, arguments, Some(Kind::Cache)).await
}

async fn run(setup: &Setup, arguments: &PurgeArgs, kind: Option<Kind>) -> Result<()> {
    let Some(store) = setup.clear_store().await? else {
        return setup.output.either(&json!({"removed": 0}), || {
            "there is no store, so there is nothing to remove".to_owned()
        });
    };
    let answer = purge(setup, &*store, arguments, kind).await;
    store.close().await?;
    let removed = answer?;
    setup.output.either(&json!({"removed": removed}), || {
        format!("removed {}", count(removed, "entry"))
    })
}

async fn purge(
    setup: &Setup,
    store: &dyn Store,
    arguments: &PurgeArgs,
    kind: Option<Kind>,
) -> Result<u64> {
    let held = held(store, &arguments.which, kind).await?;
    let what = describe(&arguments.which, kind);
    let size = held
        .as_ref()
        .map(|(_, rows)| format!(" ({})", count(*rows, "entry")))
        .unwrap_or_default();
    setup
        .output
        .confirm(&format!("remove {what}{size}"), arguments.yes)?;
    let mut removed = 0;
    for delete in deletes(
        &arguments.which,
        kind,
        held.map(|(namespaces, _)| namespaces).unwrap_or_default(),
    ) {
        removed += store.delete(delete).await?;
    }
    Ok(removed)
}

/// Returns the selected namespaces and their number of entries.
///
/// `None` if only a search could count them.
async fn held(
    store: &dyn Store,
    which: &Which,
    kind: Option<Kind>,
) -> Result<Option<(Vec<Namespace>, u64)>> {
    if which.pack.is_some() || which.tag.is_some() {
        return Ok(None);
    }
    let all = store.namespaces().await?;
    let meant: Vec<_> = all
        .into_iter()
        .filter(|held| {
            kind.map_or(which.namespace.is_none() || is_purged(held.kind), |kind| {
                held.kind == kind
            })
        })
        .filter(|held| {
            which
                .namespace
                .as_ref()
                .is_none_or(|wanted| covers(wanted, &held.namespace))
        })
        .collect();
    let rows = meant.iter().map(|held| held.rows).sum();
    let mut namespaces: Vec<Namespace> = meant.into_iter().map(|held| held.namespace).collect();
    namespaces.extend(which.namespace.clone());
    namespaces.sort();
    namespaces.dedup();
    Ok(Some((namespaces, rows)))
}

/// Says whether a namespace covers another: a caller's conversations belong to the caller.
fn covers(wanted: &Namespace, held: &Namespace) -> bool {
    wanted.tenant == held.tenant
        && wanted.subject == held.subject
        && (wanted.session.is_none() || wanted.session == held.session)
}

fn deletes(which: &Which, kind: Option<Kind>, namespaces: Vec<Namespace>) -> Vec<Delete> {
    if let Some(pack) = &which.pack {
        // Keys of cached answers begin with the pack.
        return vec![Delete::Prefix {
            namespace: None,
            kind: Some(Kind::Cache),
            prefix: format!("{pack}/"),
        }];
    }
    if let Some(tag) = &which.tag {
        return vec![Delete::Tagged {
            whose: Reach::Everybody,
            kind: Kind::Cache,
            tag: stored_tag(tag),
        }];
    }
    let prefix = |namespace, kind| Delete::Prefix {
        namespace,
        kind,
        prefix: String::new(),
    };
    if which.namespace.is_some() {
        let kinds = Kind::ALL
            .into_iter()
            .filter(|of_row| kind.map_or(is_purged(*of_row), |kind| kind == *of_row));
        let kinds: Vec<Kind> = kinds.collect();
        let all = namespaces
            .into_iter()
            .flat_map(|namespace| kinds.iter().map(move |kind| (namespace.clone(), *kind)));
        return all
            .map(|(namespace, kind)| prefix(Some(namespace), Some(kind)))
            .collect();
    }
    vec![prefix(None, kind)]
}

/// Returns whether a purge of a namespace removes rows of a kind.
///
/// The audit of a caller, and the heads that show that something was put back, go with `memory
/// forget` only.
const fn is_purged(kind: Kind) -> bool {
    !matches!(kind, Kind::Audit | Kind::Head)
}

fn describe(which: &Which, kind: Option<Kind>) -> String {
    let entries = match (kind, &which.namespace) {
        (Some(_), _) => "cached answers",
        (None, Some(_)) => "entries of every kind but the audit",
        (None, None) => "entries of every kind",
    };
    match (&which.pack, &which.tag, &which.namespace) {
        (Some(pack), ..) => format!("the cached answers of pack {pack}"),
        (_, Some(tag), _) => format!("the cached answers with tag {}", tag.to_lowercase()),
        (.., Some(namespace)) => format!(
            "all {entries} of {}",
            crate::commands::memory::name(namespace)
        ),
        _ => format!("all {entries}, of everybody"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_covers_its_conversations_and_a_conversation_only_itself() {
        let (caller, conversation) = (
            Namespace::new("t", "u", None),
            Namespace::new("t", "u", Some("s")),
        );
        assert!(
            covers(&caller, &caller)
                && covers(&caller, &conversation)
                && covers(&conversation, &conversation)
        );
        assert!(
            !covers(&conversation, &caller) && !covers(&caller, &Namespace::new("t", "v", None))
        );
    }
}
