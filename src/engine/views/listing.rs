//! Lists matching entries of a key space, newest first, page by page. Opens no entry.

use helmdeck_core::{Code, Error, Result};
use helmdeck_memory::requests::Position;
use helmdeck_memory::{Cursor, EntryMeta, Kind, Namespace, Page};

use super::EngineViews;

/// Limit of entries that one request examines. With a rare category, a page can be short.
const MAX_LOOKED_AT: usize = 20_000;
/// Limit of entries per list of the store.
const PAGE: usize = 1000;

/// Filter of entries.
#[derive(Debug, Default)]
pub(super) struct EntryFilter<'a> {
    pub(super) category: Option<&'a str>,
    pub(super) tag: Option<&'a str>,
    pub(super) prefix: &'a str,
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

impl EntryFilter<'_> {
    fn takes(&self, meta: &EntryMeta) -> bool {
        self.category
            .is_none_or(|category| meta.category == category)
            && self
                .tag
                .is_none_or(|tag| meta.tags.iter().any(|of_entry| of_entry == tag))
    }
}

/// A page of matching entries.
#[derive(Debug, Default)]
pub(super) struct ListedRow {
    /// The entries, newest first, at most as many as wanted.
    pub(super) entries: Vec<EntryMeta>,
    /// Cursor of the next page; `None` = this is the last.
    pub(super) next: Option<String>,
}

impl ListedRow {
    /// Keeps the first `count` entries; the next page begins after them.
    pub(super) fn cut(&mut self, count: usize) {
        if count < self.entries.len() {
            self.entries.truncate(count);
            self.next = self.entries.last().map(position);
        }
    }
}

/// Returns the matching entries of a key space.
pub(super) async fn find(
    views: &EngineViews,
    operation: &'static str,
    (namespace, kind): (&Namespace, Kind),
    wanted: EntryFilter<'_>,
) -> Result<ListedRow> {
    let everything = wanted.category.is_none() && wanted.tag.is_none();
    // One more than requested, to know whether there are more.
    let size = if everything {
        (wanted.limit + 1).min(PAGE)
    } else {
        PAGE
    };
    let mut found = ListedRow::default();
    let mut after = wanted.after.clone().map(Cursor);
    let mut looked_at = 0;
    loop {
        let listing =
            views
                .store()
                .list(namespace, kind, wanted.prefix, Page { limit: size, after });
        let page = listing
            .await
            .map_err(|error| views.trouble(operation, error))?;
        looked_at += page.entries.len();
        found
            .entries
            .extend(page.entries.into_iter().filter(|meta| wanted.takes(meta)));
        if found.entries.len() > wanted.limit {
            found.cut(wanted.limit);
            return Ok(found);
        }
        match page.next {
            None => return Ok(found),
            Some(next) if looked_at >= MAX_LOOKED_AT => {
                found.next = Some(next.0);
                return Ok(found);
            }
            Some(next) => after = Some(next),
        }
    }
}

fn position(meta: &EntryMeta) -> String {
    Position {
        updated_at: meta.updated_at,
        key: meta.key.clone(),
    }
    .to_cursor()
    .0
}

/// Checks a limit that a caller gave.
pub(super) fn limit(given: Option<u64>, default: usize, most: usize) -> Result<usize> {
    match given.map(usize::try_from) {
        None => Ok(default),
        Some(Ok(limit)) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Error::new(
            Code::InvalidInput,
            format!("limit must be 1 to {most}"),
        )),
    }
}
