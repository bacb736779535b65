//! The difference between a checkpoint and the work tree, as text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoints::Checkpoints;
use crate::error::{Error, Result};
use crate::git::{Change, Run};
use crate::project::Project;

/// Maximum length of the text, in bytes.
const LONGEST: usize = 512 << 10;
/// Maximum number of files whose difference is in the text.
const MOST: usize = 300;

/// Difference between a checkpoint and the work tree, without `.forge/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// The tag of the checkpoint.
    pub checkpoint: String,
    /// Its commit.
    pub commit: String,
    /// The paths that differ, untracked ones too.
    pub files: Vec<Change>,
    /// The difference as a unified diff. Untracked and binary files have no text, and lines with a
    /// credential are left out.
    pub text: String,
    /// Whether the text is only the beginning.
    pub truncated: bool,
}

/// Compares a checkpoint with the work tree; `path` limits it to a file or folder.
///
/// No program of the settings runs: neither a driver for differences nor a text conversion.
///
/// # Errors
/// `NotFound` for an unknown checkpoint, or one whose commit is not in this clone; errors from git.
pub fn diff(project: &Project, name: &str, path: Option<&str>) -> Result<Diff> {
    let checkpoint = Checkpoints::new(project).show(name)?;
    let git = project.git()?;
    let named = checkpoint
        .oid()
        .map(|oid| git.resolve(oid.as_str()))
        .transpose()?
        .flatten();
    let commit = named.ok_or_else(|| {
        Error::not_found(format!(
            "the commit of {} is not in this clone",
            checkpoint.tag
        ))
        .hint("fetch the checkpoints of the remote")
    })?;
    let mut files = git.changes(&commit)?;
    if let Some(path) = path {
        let below = |changed: &str| {
            changed
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.ends_with('/'))
        };
        files.retain(|change| below(&change.path));
    }
    let tracked: Vec<&str> = files
        .iter()
        .filter(|change| !change.untracked)
        .map(|change| change.path.as_str())
        .collect();
    let mut truncated = tracked.len() > MOST;
    let mut text = String::new();
    if !tracked.is_empty() {
        let mut args = vec![
            "--literal-pathspecs",
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--unified=3",
            commit.as_str(),
            "--",
        ];
        args.extend(tracked.iter().take(MOST));
        // The paths are those of the repository, also in a project below its root.
        let run = Run {
            folder: Some(git.root().to_owned()),
            ..Run::default()
        };
        let output = git.succeed(&args, &run)?;
        text = crate::redact::redact(&String::from_utf8_lossy(&output.stdout));
    }
    if text.len() > LONGEST {
        truncated = true;
        let end = text
            .char_indices()
            .map(|(at, _)| at)
            .take_while(|at| *at <= LONGEST)
            .last()
            .unwrap_or(0);
        let end = text
            .get(..end)
            .and_then(|text| text.rfind('\n'))
            .map_or(end, |at| at + 1);
        text.truncate(end);
    }
    Ok(Diff {
        checkpoint: checkpoint.tag,
        commit: commit.to_string(),
        files,
        text,
        truncated,
    })
}
