//! Prune checkpoints that are no longer needed.
//!
//! Their commits stay reachable through other references; only a checkpoint whose commit is reachable
//! elsewhere is pruned.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::keep::{KEPT, Kept, Known, keep};
use super::list::{Checkpoint, Checkpoints};
use super::name::{Name, PREFIX};
use crate::error::Result;
use crate::git::{Git, Oid, Run};
use crate::json::Json;
use crate::layout;

/// Request to prune checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Prune {
    /// Number of checkpoints to keep for each key. Default: 3.
    pub keep: Option<usize>,
    /// Whether to only report what would be pruned. Default: no.
    pub dry_run: bool,
}

/// Result of pruning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The checkpoints that were pruned, or would be.
    pub dropped: Vec<String>,
    /// The other checkpoints, each with the reason why it stays.
    pub kept: Vec<(String, Kept)>,
    /// Whether it was only a dry run.
    pub dry_run: bool,
}

impl Checkpoints<'_> {
    /// Prunes the checkpoints that the retention rule does not keep.
    ///
    /// It keeps the newest of each key, those that an open issue names, the newest one that is safe to roll
    /// back to, and those through which alone their commit is reachable.
    ///
    /// # Errors
    /// Errors from git and the files.
    pub fn prune(&self, asked: &Prune) -> Result<Pruned> {
        self.project.check_not_paused()?;
        let git = self.project.git()?;
        let tags = git.tags(PREFIX)?;
        let checkpoints = self.list()?;
        let usable = checkpoints.iter().find(|checkpoint| checkpoint.can_rollback_to);
        let open = self.open_issues()?;
        let reached = reached(git)?;
        let known: Vec<Known> = checkpoints
            .iter()
            .filter_map(|checkpoint| {
                Some(Known {
                    name: Name::parse(&checkpoint.name)?,
                    referenced: open.iter().any(|text| mentions(text, &checkpoint.name)),
                    newest_usable: usable.is_some_and(|usable| usable.name == checkpoint.name),
                    reachable: checkpoint.oid().is_some_and(|oid| reached.contains(&oid)),
                })
            })
            .collect();
        let mut drop_these = Vec::new();
        let mut pruned = Pruned { dropped: Vec::new(), kept: Vec::new(), dry_run: asked.dry_run };
        for (name, why) in keep(&known, asked.keep.unwrap_or(KEPT)) {
            match why {
                Some(why) => pruned.kept.push((name.to_string(), why)),
                None => drop_these.push(name),
            }
        }
        // The slow steps are done. A tag is deleted only if it is unchanged since it was read; checkpoints
        // that were created meanwhile always stay.
        let guard = if asked.dry_run { None } else { Some(self.project.common_lock()?) };
        for name in drop_these {
            if !asked.dry_run {
                // Delete the tag first: a tag without a file would bring the file back.
                if let Some(tag) = git.tag(&name.tag())?.filter(|tag| tags.iter().any(|seen| seen.oid == tag.oid)) {
                    git.drop_tag(&tag, "forge: prune")?;
                }
                self.project.files().remove(&name.path())?;
            }
            pruned.dropped.push(name.to_string());
        }
        drop(guard);
        Ok(pruned)
    }

    /// Returns the texts of the open issues.
    fn open_issues(&self) -> Result<Vec<String>> {
        let files = self.project.files();
        let mut texts = Vec::new();
        for entry in files.list(layout::ISSUES)? {
            // A comment may name a checkpoint too.
            let key = entry.name.trim_end_matches(".json");
            let mut paths = vec![format!("{}/{}", layout::ISSUES, entry.name)];
            let comments = format!("{}/{key}", layout::COMMENTS);
            paths.extend(files.list(&comments)?.iter().map(|comment| format!("{comments}/{}", comment.name)));
            for path in paths {
                texts.extend(files.read(&path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        let Some(bytes) = files.read(layout::ACTIVE)? else { return Ok(texts) };
        // An unreadable issue file may name any checkpoint, so keep everything that its bytes name.
        let Ok(file) = serde_json::from_slice::<Json>(&bytes) else {
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
            return Ok(texts);
        };
        let issues = match &file {
            Json::Array(issues) => issues.as_slice(),
            Json::Object(members) => match members.0.get("issues") {
                Some(Json::Array(issues)) => issues.as_slice(),
                _ => &[],
            },
            _ => &[],
        };
        let over = |issue: &&Json| {
            let state = crate::recovery::memory::text(issue, "state").unwrap_or_default().to_lowercase();
            ["done", "completed", "cancelled", "canceled", "duplicate"].contains(&state.as_str())
        };
        let open = issues.iter().filter(|issue| !over(issue));
        texts.extend(open.filter_map(|issue| serde_json::to_string(issue).ok()));
        Ok(texts)
    }
}

/// Says whether a text names a checkpoint, and not a longer number that begins the same.
fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].bytes().next_back();
        let after = text[at + name.len()..].bytes().next();
        !after.is_some_and(|byte| byte.is_ascii_digit())
            && !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Returns the commits reachable from local and remote branches.
fn reached(git: &Git) -> Result<BTreeSet<Oid>> {
    let output = git.succeed(&["rev-list", "--branches", "--remotes"], &Run::default())?;
    Ok(output.text().lines().filter_map(Oid::parse).collect())
}

impl Checkpoint {
    /// Says whether a text names this checkpoint.
    #[must_use]
    pub fn is_named_in(&self, text: &str) -> bool {
        mentions(text, &self.name)
    }
}
