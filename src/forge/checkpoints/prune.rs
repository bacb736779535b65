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

/// What to drop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Prune {
    /// How many of each key stay. Default: 3.
    pub keep: Option<usize>,
    /// Whether it is only said what would be dropped. Default: no.
    pub dry_run: bool,
}

/// What was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The checkpoints that were dropped, or would be.
    pub dropped: Vec<String>,
    /// The others, with why they stay.
    pub kept: Vec<(String, Kept)>,
    /// Whether it was only said.
    pub dry_run: bool,
}

impl Checkpoints<'_> {
    /// Drops the checkpoints that are neither among the newest of their key, nor named by an open
    /// issue, nor the newest to which one may roll back, nor the only way to their commit.
    ///
    /// # Errors
    /// What git and the files say.
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
        // All that takes long is done. Each tag goes only if it is still the one that was looked at,
        // and the newest only ever stay.
        let guard = if asked.dry_run { None } else { Some(self.project.common_lock()?) };
        for name in drop_these {
            if !asked.dry_run {
                // The tag, then the file: a tag without a file would bring the file back.
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

    /// Returns the texts of the issues that are open.
    fn open_issues(&self) -> Result<Vec<String>> {
        let Some(bytes) = self.project.files().read(layout::ACTIVE)? else { return Ok(Vec::new()) };
        // One that cannot be read may name anything, so nothing that it holds is dropped.
        let Ok(file) = serde_json::from_slice::<Json>(&bytes) else {
            return Ok(vec![String::from_utf8_lossy(&bytes).into_owned()]);
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
        Ok(issues.iter().filter(|issue| !over(issue)).filter_map(|issue| serde_json::to_string(issue).ok()).collect())
    }
}

/// Says whether a text names a checkpoint, and not one whose number only begins so.
fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].bytes().next_back();
        let after = text[at + name.len()..].bytes().next();
        !after.is_some_and(|byte| byte.is_ascii_digit())
            && !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Returns the commits to which branches lead, and what else is not a checkpoint.
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
