//! Doctor: opens every row and reports which rows do not open, and why.
//!
//! It changes nothing and keeps no value.

use std::collections::BTreeMap;

use crate::entry::{Kind, Namespace};
use crate::error::Result;
use crate::store::ReadStore;

/// Limit of rows per part of the walk.
const PART: usize = 500;

/// Result of an examination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    /// Number of rows that open.
    pub read: u64,
    /// Number of rows that do not open.
    pub unreadable: u64,
    /// Number of rows that do not open, by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Number of rows that do not open, by key id; the empty id stands for rows that are not
    /// sealed.
    pub unreadable_by_key: BTreeMap<String, u64>,
    /// Some of the rows that do not open, up to the requested number.
    pub named: Vec<Unreadable>,
}

/// Row that does not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The namespace that the row claims.
    pub namespace: Namespace,
    /// The kind that the row claims.
    pub kind: Kind,
    /// The key that the row claims.
    pub key: String,
    /// Why it does not open.
    pub reason: &'static str,
}

/// Opens every row, including expired ones, and names at most `named` that do not open.
///
/// Calls `progress` with the number of rows so far.
///
/// # Errors
/// `Unavailable`, `Closed`.
pub async fn examine(
    store: &dyn ReadStore,
    named: usize,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Examined> {
    let mut found = Examined::default();
    let mut after = None;
    loop {
        let part = store.walk(after, PART).await?;
        for row in part.rows {
            let Err(reason) = row.value else {
                found.read += 1;
                continue;
            };
            found.unreadable += 1;
            *found.reasons.entry(reason).or_default() += 1;
            *found.unreadable_by_key.entry(row.key_id).or_default() += 1;
            if found.named.len() < named {
                let meta = row.meta;
                found.named.push(Unreadable {
                    namespace: meta.namespace,
                    kind: meta.kind,
                    key: meta.key,
                    reason,
                });
            }
        }
        progress(found.read + found.unreadable);
        match part.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}
