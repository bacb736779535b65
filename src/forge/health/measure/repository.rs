//! Health inputs from git, with as few runs of git as possible.
//!
//! The state of the work tree and the base are read at the same time; then the commits that the
//! base does not have, if there are any.

use super::issues::Known;
use crate::checkpoints::{Checkpoints, State};
use crate::error::{Error, Result};
use crate::git::{Git as Repository, Merged, Oid, Run, Status};
use crate::health::inputs::{Git, Last, Source};
use crate::layout;
use crate::project::Project;
use crate::time::Time;

/// Maximum number of commits that are checked.
const COMMITS: &str = "--max-count=20000";

/// Facts read from git.
#[derive(Debug, Default)]
pub(super) struct RepositoryFacts {
    pub(super) git: Git,
    /// The commits without an issue, as short ids, newest first.
    pub(super) orphans: Vec<String>,
    /// When the knowledge was last committed, if requested.
    pub(super) committed: Option<Last>,
}

impl RepositoryFacts {
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self {
            git: Git {
                failed: Some(why.into()),
                ..Git::default()
            },
            ..Self::default()
        }
    }
}

/// Collects the facts from git.
pub(super) fn ask(project: &Project, known: Option<&Known>, committed: bool) -> RepositoryFacts {
    if !project.config().git.enabled {
        return RepositoryFacts {
            git: Git {
                disabled: true,
                ..Git::default()
            },
            ..RepositoryFacts::default()
        };
    }
    match project.git() {
        Ok(git) => look(project, git, known, committed)
            .unwrap_or_else(|error| RepositoryFacts::failed(error.message)),
        Err(error) if error.code == "E_NOT_A_REPO" => RepositoryFacts {
            git: Git {
                absent: true,
                ..Git::default()
            },
            ..RepositoryFacts::default()
        },
        Err(error) => RepositoryFacts::failed(error.message),
    }
}

fn look(
    project: &Project,
    git: &Repository,
    known: Option<&Known>,
    committed: bool,
) -> Result<RepositoryFacts> {
    let (status, base, committed) = std::thread::scope(|scope| {
        let status = scope.spawn(|| git.status().map_err(Error::from));
        let committed = committed.then(|| scope.spawn(|| commit_time(project, git)));
        let base = git.base(project.config().git.base.as_deref());
        let ended = |_| {
            Error::new(
                crate::Category::Failed,
                "E_GIT",
                "asking git came to a sudden end",
            )
        };
        let status = status.join().map_err(ended).flatten();
        (
            status,
            base,
            committed.and_then(|time| time.join().ok()).flatten(),
        )
    });
    let (status, base) = (status?, base?);
    let mut found = RepositoryFacts {
        git: about(git, &status),
        committed,
        ..RepositoryFacts::default()
    };
    checkpoint(project, git, &mut found.git)?;
    if let (Some((_, base)), Some(head)) = (&base, &status.head) {
        compare(git, base, head, known, &mut found)?;
    }
    found.git.base = base.map(|(name, _)| name);
    Ok(found)
}

/// Returns the inputs from the status of the work tree.
fn about(git: &Repository, status: &Status) -> Git {
    let memory = status
        .unmerged()
        .filter(|path| git.is_memory(path.as_bytes()));
    Git {
        unmerged: status.unmerged().count() as u64,
        unmerged_memory: memory
            .filter_map(|path| git.in_project(path))
            .map(str::to_owned)
            .collect(),
        merge_driver_missing: git.is_merge_driver_missing().unwrap_or(false),
        uncommitted: status.outside(git.memory()).count() as u64,
        operation: git
            .operation()
            .ok()
            .flatten()
            .map(|operation| operation.name().to_owned()),
        ..Git::default()
    }
}

/// Finds the newest checkpoint to roll back to; without one, how those that are not in this clone
/// are fetched.
fn checkpoint(project: &Project, git: &Repository, found: &mut Git) -> Result<()> {
    let all = Checkpoints::new(project).list()?;
    let Some(newest) = all.iter().find(|checkpoint| checkpoint.can_rollback_to) else {
        if all
            .iter()
            .any(|checkpoint| checkpoint.state == State::CommitMissing)
        {
            found.fetch_checkpoints = Some(git.fetch_checkpoints()?);
        }
        return Ok(());
    };
    found.checkpoint = Some(newest.name.clone());
    found.checkpoint_at = newest.timestamp;
    if let Some(commit) = &newest.commit {
        // A commit that only saves a session's memory is not work.
        found.commits_since = git.count_work(&format!("{commit}..HEAD"))?;
    }
    Ok(())
}

/// Compares HEAD with the base, and checks the commits that the base does not have.
fn compare(
    git: &Repository,
    base: &Oid,
    head: &Oid,
    known: Option<&Known>,
    found: &mut RepositoryFacts,
) -> Result<()> {
    // A commit that is missing, as in a shallow clone, gives no answer.
    let Ok((ahead, behind)) = git.ahead_behind(head, base) else {
        return Ok(());
    };
    (found.git.ahead, found.git.behind) = (ahead, behind);
    if ahead > 0 && behind > 0 {
        found.git.merges_cleanly = match git.merges(head, base)? {
            Merged::Cleanly => Some(true),
            Merged::WithConflicts(_) => Some(false),
            Merged::Unknown => None,
        };
    }
    if let Some(known) = known.filter(|_| ahead > 0) {
        let range = format!("{base}..{head}");
        let args = [
            "log",
            "-z",
            "--no-merges",
            COMMITS,
            "--format=%h%n%B",
            "--end-of-options",
            &range,
            "--",
        ];
        let output = git.succeed(&[&args[..], &git.below_scope()].concat(), &Run::default())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let commits = text
            .split('\0')
            .filter_map(|commit| commit.split_once('\n'));
        found.orphans = commits
            .filter(|(_, said)| !known.has(said))
            .map(|(name, _)| name.to_owned())
            .collect();
    }
    Ok(())
}

/// Returns when the knowledge was last committed.
fn commit_time(project: &Project, git: &Repository) -> Option<Last> {
    let run = Run {
        folder: Some(project.root().to_owned()),
        ..Run::default()
    };
    let args = [
        "log",
        "-1",
        "--format=%cI",
        "--end-of-options",
        "HEAD",
        "--",
        layout::KNOWLEDGE,
        layout::KNOWLEDGE_ENTRIES,
    ];
    let output = git.run(&args, &run).ok().filter(crate::git::Output::ok)?;
    let at = Time::parse(output.text().trim()).ok()?;
    Some(Last {
        at,
        source: Source::Commit,
    })
}
