//! Entries whose files changed since they were learned.

use std::collections::HashMap;

use helmdeck_forge_documents::knowledge::{Kind, KnowledgeFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::git::{Change, Git, Oid};

/// Drift: entries whose files changed since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Entries whose files have changed since. They may be wrong by now: confirm or supersede them.
    pub maybe_stale: Vec<Stale>,
    /// How many entries were checked: those that name both files and a commit.
    pub looked_at: usize,
    /// Entries whose commit is not in this clone, for example a shallow one. They cannot be checked.
    pub commit_missing: Vec<String>,
}

/// An entry whose files have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stale {
    /// The entry's id.
    pub id: String,
    /// What kind of entry it is.
    pub kind: Kind,
    /// Its first text: the context, or the invariant.
    pub text: String,
    /// The commit at which it was learned or last confirmed.
    pub commit: String,
    /// The files that have changed since, with how much.
    pub changed: Vec<Change>,
}

/// Returns the entries whose files have changed since their commit. Superseded ones are left out.
pub(super) fn drift(file: &KnowledgeFile, git: &Git) -> Result<Drift> {
    let mut drift = Drift::default();
    // Many entries share a commit: git is asked once for each.
    let mut commits: HashMap<&str, Option<(Oid, Vec<Change>)>> = HashMap::new();
    let mut entries = Vec::new();
    let mut paths: HashMap<&str, Vec<&str>> = HashMap::new();
    for entry in file.entries() {
        let Some(commit) = entry.trace.commit.as_deref() else { continue };
        if entry.trace.paths.is_empty() || entry.trace.superseded_by.is_some() {
            continue;
        }
        drift.looked_at += 1;
        paths.entry(commit).or_default().extend(entry.trace.paths.iter().map(String::as_str));
        entries.push((commit, entry));
    }
    for (commit, paths) in &mut paths {
        paths.sort_unstable();
        paths.dedup();
        let paths: Vec<String> = paths.iter().map(|path| git.of_project(path)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let known = match git.resolve(&format!("{commit}^{{commit}}")) {
            Ok(Some(oid)) => {
                let changes = git.changes_of(&oid, &paths)?;
                Some((oid, changes))
            }
            _ => None,
        };
        commits.insert(commit, known);
    }
    for (commit, entry) in entries {
        let Some(Some((_, changes))) = commits.get(commit) else {
            drift.commit_missing.push(entry.id());
            continue;
        };
        let below = |path: &str, folder: &str| {
            path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let changes = changes.iter().filter_map(|change| Some((git.in_project(&change.path)?, change)));
        let changed: Vec<Change> = changes
            .filter(|(changed, _)| entry.trace.paths.iter().any(|path| below(changed, path)))
            .map(|(path, change)| Change { path: path.to_owned(), ..change.clone() })
            .collect();
        if !changed.is_empty() {
            let text = entry.texts()[0].1.to_owned();
            drift.maybe_stale.push(Stale {
                id: entry.id(),
                kind: entry.kind,
                text,
                commit: commit.to_owned(),
                changed,
            });
        }
    }
    Ok(drift)
}
