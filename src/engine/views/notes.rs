//! Notes: entries of kind `note` in the namespace of the owner, or of its conversation.

use std::collections::BTreeMap;

use helmdeck_core::memory::{NewNote, Note, NoteContext, NoteList, Owner};
use helmdeck_core::{Code, Error, Result, memory::About};
use helmdeck_memory::{Cursor, Delete, Kind, Namespace, Op, Page, Put, StoreError};

use super::listing::{self, EntryFilter};
use super::secrets::{Scanned, note_allowed, scan};
use super::{EngineViews, about, cleaned};

/// Name of notes without a category, in a context.
const UNCATEGORIZED: &str = "uncategorized";
/// Limit of notes per category in a context.
const MAX_OF_CATEGORY: usize = 50;
/// Limit of notes that a context examines.
const MAX_LOOKED_AT: usize = 20_000;
/// Limit of a page.
const MAX_PAGE: usize = 1000;
/// Operation name in the metrics of store failures.
const NOTE: &str = "note";

fn namespace(owner: &Owner) -> Namespace {
    let identity = &owner.identity;
    Namespace::new(
        identity.tenant(),
        identity.user(),
        identity.session().filter(|_| owner.in_session),
    )
}

pub(super) async fn store(views: &EngineViews, owner: &Owner, note: NewNote) -> Result<About> {
    let names: Vec<&str> = [note.key.as_str(), &note.category]
        .into_iter()
        .chain(note.tags.iter().map(String::as_str))
        .collect();
    let value = cleaned(owner, &names, note.value.clone())?;
    let scanned = Scanned {
        kind: NOTE,
        names: &names,
        value: &value,
        allowed: note.allow_secret,
    };
    let allowed = scan(views, scanned).await?;
    let mut put = Put::new(namespace(owner), Kind::Note, note.key, value);
    (put.category, put.tags, put.ttl) = (note.category, note.tags, note.ttl);
    put.attributes = views.attributes(owner);
    let stored = views
        .store()
        .put(put)
        .await
        .map(about)
        .map_err(|error| views.trouble(NOTE, error))?;
    if let Some(rule) = allowed {
        note_allowed(views, owner, NOTE, rule);
    }
    Ok(stored)
}

pub(super) async fn recall(views: &EngineViews, owner: &Owner, key: &str) -> Result<Option<Note>> {
    match views.store().get(&namespace(owner), Kind::Note, key).await {
        Ok(entry) => Ok(entry.map(|entry| Note {
            about: about(entry.meta),
            value: entry.value,
        })),
        Err(StoreError::Unreadable { reason }) => {
            views.hub.metrics.totals.unreadable.inc();
            tracing::warn!(reason, "a note does not open; it counts as absent");
            Ok(None)
        }
        Err(error) => Err(views.trouble(NOTE, error)),
    }
}

pub(super) async fn list(
    views: &EngineViews,
    owner: &Owner,
    prefix: &str,
    limit: usize,
    after: Option<String>,
) -> Result<NoteList> {
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Error::new(
            Code::InvalidInput,
            format!("limit must be 1 to {MAX_PAGE}"),
        ));
    }
    let wanted = EntryFilter {
        prefix,
        limit,
        after,
        ..EntryFilter::default()
    };
    let found = listing::find(views, NOTE, (&namespace(owner), Kind::Note), wanted).await?;
    Ok(NoteList {
        notes: found.entries.into_iter().map(about).collect(),
        next: found.next,
    })
}

pub(super) async fn delete(views: &EngineViews, owner: &Owner, key: &str) -> Result<bool> {
    let delete = Delete::Key {
        namespace: namespace(owner),
        kind: Kind::Note,
        key: key.to_owned(),
    };
    Ok(views.delete(NOTE, vec![Op::Delete(delete)]).await? > 0)
}

/// Returns what notes an owner has: their metadata, per category.
///
/// Only notes are read, so facts, audit rows and cached answers cannot crowd them out. Each
/// category has its own share, so a busy one cannot crowd out the others.
pub(super) async fn context(views: &EngineViews, owner: &Owner) -> Result<NoteContext> {
    let namespace = namespace(owner);
    let mut categories: BTreeMap<String, Vec<About>> = BTreeMap::new();
    let (mut after, mut looked_at): (Option<Cursor>, usize) = (None, 0);
    loop {
        let listing = views.store().list(
            &namespace,
            Kind::Note,
            "",
            Page {
                limit: MAX_PAGE,
                after,
            },
        );
        let page = listing.await.map_err(|error| views.trouble(NOTE, error))?;
        looked_at += page.entries.len();
        for meta in page.entries {
            let name = if meta.category.is_empty() {
                UNCATEGORIZED
            } else {
                &meta.category
            };
            let category = categories.entry(name.to_owned()).or_default();
            if category.len() < MAX_OF_CATEGORY {
                category.push(about(meta));
            }
        }
        match page.next {
            None => {
                return Ok(NoteContext {
                    categories,
                    truncated: false,
                });
            }
            Some(_) if looked_at >= MAX_LOOKED_AT => {
                return Ok(NoteContext {
                    categories,
                    truncated: true,
                });
            }
            Some(next) => after = Some(next),
        }
    }
}
