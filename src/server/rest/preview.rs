//! A look at what a purge would delete.

use helmdeck_engine::{Selector, stored_tag};
use helmdeck_memory::{EntryMeta, Kind, Namespace, Page, ReadStore, Result};
use serde::Serialize;

/// Limit of entries that a look visits. The store has no counters by pack or tag.
const MAX_VISITED: usize = 50_000;
/// Entries of one page of the store.
const PAGE: usize = 1000;
/// Entries in the answer.
const SHOWN: usize = 20;

/// What a purge would delete.
#[derive(Debug, Default, Serialize)]
pub(super) struct Preview {
    rows: u64,
    bytes: u64,
    /// Whether every entry was visited; otherwise there may be more than `rows`.
    complete: bool,
    /// The first entries, without values.
    entries: Vec<EntryMeta>,
}

/// Counts the entries that a purge would delete. Deletes nothing.
pub(super) async fn look(store: &dyn ReadStore, selector: &Selector) -> Result<Preview> {
    let (prefix, tag) = match selector {
        Selector::Pack(pack) => (format!("{pack}/"), None),
        Selector::Key { key, .. } => (key.clone(), None),
        Selector::Tag(tag) | Selector::Outdated { tag, .. } => {
            (String::new(), Some(stored_tag(tag)))
        }
        Selector::All | Selector::Namespace(_) => (String::new(), None),
    };
    let fits = |entry: &EntryMeta| match selector {
        Selector::Key { key, .. } => entry.key == *key,
        _ => tag.as_ref().is_none_or(|tag| entry.tags.contains(tag)),
    };
    let (mut preview, mut visited) = (Preview::default(), 0);
    for namespace in namespaces(store, selector).await? {
        let mut after = None;
        loop {
            let page = store
                .list(
                    &namespace,
                    Kind::Cache,
                    &prefix,
                    Page { limit: PAGE, after },
                )
                .await?;
            visited += page.entries.len();
            for entry in page.entries.into_iter().filter(&fits) {
                preview.rows += 1;
                preview.bytes = preview.bytes.saturating_add(entry.cost());
                if preview.entries.len() < SHOWN {
                    preview.entries.push(entry);
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            if visited >= MAX_VISITED {
                return Ok(preview);
            }
        }
        if visited >= MAX_VISITED {
            return Ok(preview);
        }
    }
    preview.complete = true;
    Ok(preview)
}

/// Returns the namespaces that a purge reaches.
async fn namespaces(store: &dyn ReadStore, selector: &Selector) -> Result<Vec<Namespace>> {
    match selector {
        Selector::Namespace(namespace) | Selector::Key { namespace, .. } => {
            Ok(vec![namespace.clone()])
        }
        _ => {
            let held = store
                .namespaces()
                .await?
                .into_iter()
                .filter(|held| held.kind == Kind::Cache);
            Ok(held.map(|held| held.namespace).collect())
        }
    }
}
