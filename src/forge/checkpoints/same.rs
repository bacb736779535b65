//! Commits of this branch that are the same as a checkpoint whose own commit is not on it.

use std::collections::HashMap;

use super::manifest::Manifest;
use crate::error::Result;
use crate::git::{Git, Oid, Run};
use crate::time::Time;

/// Maximum number of commits whose code is compared.
const COMMITS: usize = 5_000;
/// Maximum number of commits whose changes are compared, which costs more.
const PATCHES: usize = 200;
/// How much the clocks of two machines may differ, in seconds.
const CLOCKS_DIFFER: i64 = 24 * 3600;

/// Finds for each manifest, by its commit, the newest commit of `HEAD` that has its code or, if
/// none has, its changes.
///
/// Of those without the code, only manifests that are newer than `usable` and than those found are
/// compared by their changes. A commit with the code is later than the manifest, but for clocks.
pub(super) fn find(
    git: &Git,
    manifests: &[&Manifest],
    usable: Option<Time>,
) -> Result<HashMap<String, Oid>> {
    let mut found = HashMap::new();
    let Some(oldest) = manifests.iter().map(|manifest| manifest.timestamp).min() else {
        return Ok(found);
    };
    let limits = [
        helmdeck_git::since(since(oldest)),
        format!("--max-count={COMMITS}"),
    ];
    let args = ["rev-list", &limits[0], &limits[1], "HEAD", "--"];
    let listed = git.succeed(&args, &Run::default())?.text();
    let commits: Vec<Oid> = listed.lines().filter_map(Oid::parse).collect();
    let trees = git.code_trees(&commits)?;
    let mut newest: HashMap<&str, &Oid> = HashMap::new();
    for commit in commits.iter().rev() {
        newest.extend(trees.get(commit).map(|tree| (tree.as_str(), commit)));
    }
    let mut usable = usable;
    for manifest in manifests {
        if let Some(commit) = manifest
            .code_tree
            .as_deref()
            .and_then(|tree| newest.get(tree))
        {
            found.insert(manifest.commit.clone(), (*commit).clone());
            usable = usable.max(Some(manifest.timestamp));
        }
    }
    let is_newer = |manifest: &Manifest| usable.is_none_or(|usable| manifest.timestamp > usable);
    let others: Vec<&Manifest> = manifests
        .iter()
        .copied()
        .filter(|manifest| !found.contains_key(&manifest.commit) && is_newer(manifest))
        .collect();
    let Some(oldest) = others.iter().map(|manifest| manifest.timestamp).min() else {
        return Ok(found);
    };
    let mut commits: HashMap<String, Oid> = HashMap::new();
    for (id, commit) in git.patch_ids(since(oldest), PATCHES)? {
        commits.entry(id).or_insert(commit);
    }
    for manifest in others {
        let ids = [&manifest.branch_patch_id, &manifest.patch_id];
        if let Some(commit) = ids.into_iter().flatten().find_map(|id| commits.get(id)) {
            found.insert(manifest.commit.clone(), commit.clone());
        }
    }
    Ok(found)
}

/// Returns the Unix second from which on commits may belong to something that was made at a time.
pub(crate) fn since(made: Time) -> i64 {
    made.0.as_second().saturating_sub(CLOCKS_DIFFER)
}
