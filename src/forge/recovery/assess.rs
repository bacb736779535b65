//! Assesses the distance to the last checkpoint. Only reads, and only proposes.

use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::decide::{Size, UNKNOWN, decide};
use super::report::{Measures, Reason, Report, Verify};
use super::unknown::Unknown;
use super::{Acknowledged, FILE, Recovery, memory};
use crate::checkpoints::{Checkpoint, Checkpoints, State};
use crate::error::{Error, Result};
use crate::features::Standing;
use crate::git::{Change, Git, Oid, Run};
use crate::layout;
use crate::repair::{self, Damaged};
use crate::runner::{self, Line};
use crate::time::Time;

/// Minimum age of an index lock that counts as left behind, in seconds.
const LOCK_SECONDS: i64 = 600;
/// Maximum time that the clock may be behind the checkpoint, in seconds.
const SKEW_SECONDS: i64 = 300;
/// Number of bytes of the verify command's output that the report keeps.
const OUTPUT: usize = 4_000;
/// Maximum number of files of another session that are named.
const NAMED: usize = 5;

/// Options of an assessment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assess {
    /// Whether to run the first verify command. Default: yes. If not, it counts as passed.
    pub verify: bool,
}

impl Default for Assess {
    fn default() -> Self {
        Self { verify: true }
    }
}

impl Recovery<'_> {
    /// Measures the distance to the newest usable checkpoint, and proposes what to do.
    ///
    /// It changes nothing, but the verify command may.
    ///
    /// # Errors
    /// `NotFound` (`E_NOT_A_REPO`) without git; errors from git. An unknown state is not an error:
    /// the report names it.
    pub fn assess(&self, asked: Assess) -> Result<Report> {
        let git = self.project.git()?;
        let now = self.project.environment().now();
        let checkpoints = Checkpoints::new(self.project).list()?;
        let newest = checkpoints
            .iter()
            .find(|checkpoint| checkpoint.can_rollback_to)
            .cloned();
        let mut unknown = Vec::new();
        let usable = match newest {
            Some(mut checkpoint) => {
                crate::checkpoints::check_trees(git, &mut checkpoint)?;
                if checkpoint.can_rollback_to {
                    Some(checkpoint)
                } else {
                    unknown.push(Unknown::ManifestCorrupt {
                        checkpoint: checkpoint.tag,
                    });
                    None
                }
            }
            None => None,
        };
        of_checkpoints(git, &checkpoints, usable.as_ref(), &mut unknown)?;
        self.of_git(git, now, &mut unknown)?;
        self.of_memory(&mut unknown)?;
        if let Some(time) = usable.as_ref().and_then(|checkpoint| checkpoint.timestamp) {
            let before = time.0.as_second() - now.0.as_second();
            if before > SKEW_SECONDS {
                let checkpoint = usable
                    .as_ref()
                    .map(|checkpoint| checkpoint.tag.clone())
                    .unwrap_or_default();
                unknown.push(Unknown::ClockBefore {
                    checkpoint,
                    seconds: before.unsigned_abs(),
                });
            }
        }
        let measures = match &usable {
            Some(checkpoint) => self.measure(git, checkpoint, asked, &mut unknown)?,
            None => None,
        };
        self.conclude(git, now, usable, unknown, measures)
    }

    fn conclude(
        &self,
        git: &Git,
        at: Time,
        checkpoint: Option<Checkpoint>,
        mut unknown: Vec<Unknown>,
        measures: Option<Measures>,
    ) -> Result<Report> {
        let decision = match &measures {
            Some(measures) if unknown.is_empty() => decide(measures),
            _ => UNKNOWN,
        };
        if decision.row == 1 {
            let command = measures
                .as_ref()
                .and_then(|measures| measures.verify.command.clone())
                .unwrap_or_default();
            unknown.push(Unknown::Environment { command });
        }
        let head = git.head()?.map(|oid| oid.to_string());
        let acknowledged = match self.acknowledged()? {
            Some(answer)
                if !unknown.is_empty() && unknown.iter().all(|reason| answer.covers(reason)) =>
            {
                answer.head == head
                    || (unknown.iter().all(Unknown::outlives_a_commit) && is_later(git, &answer)?)
            }
            _ => false,
        };
        Ok(Report {
            at: at.seconds(),
            class: decision.class,
            row: decision.row,
            action: decision.action,
            unknown: unknown.into_iter().map(Reason::from).collect(),
            checkpoint: checkpoint.as_ref().map(|checkpoint| checkpoint.tag.clone()),
            checkpoint_commit: checkpoint.and_then(|checkpoint| checkpoint.commit),
            head,
            branch: git.branch()?,
            measures,
            acknowledged,
        })
    }

    fn of_git(&self, git: &Git, now: Time, unknown: &mut Vec<Unknown>) -> Result<()> {
        if let Some(operation) = git.operation()? {
            unknown.push(Unknown::Operation {
                operation: operation.name().to_owned(),
            });
        }
        if let Some(since) = git.index_locked_since()? {
            let seconds = now.0.as_second() - Time::from(since).0.as_second();
            if seconds > LOCK_SECONDS {
                unknown.push(Unknown::IndexLocked {
                    seconds: seconds.unsigned_abs(),
                });
            }
        }
        match git.status() {
            Ok(status) => {
                let paths = u32::try_from(status.unmerged().count()).unwrap_or(u32::MAX);
                if paths > 0 {
                    unknown.push(Unknown::Unmerged { paths });
                }
            }
            Err(error) => unknown.push(Unknown::IndexUnreadable {
                detail: error.message,
            }),
        }
        if git.head()?.is_some()
            && git.branch()?.is_none()
            && memory::session(self.project).is_none()
        {
            unknown.push(Unknown::Detached);
        }
        Ok(())
    }

    fn of_memory(&self, unknown: &mut Vec<Unknown>) -> Result<()> {
        unknown.extend(
            repair::damage(self.project, repair::is_long_term)?
                .into_iter()
                .map(corrupt),
        );
        Ok(())
    }

    fn measure(
        &self,
        git: &Git,
        checkpoint: &Checkpoint,
        asked: Assess,
        unknown: &mut Vec<Unknown>,
    ) -> Result<Option<Measures>> {
        let Some(commit) = checkpoint.oid() else {
            return Ok(None);
        };
        let changes = match git.changes(&commit) {
            Ok(changes) => changes,
            // Without an index nothing can be compared. The report names that reason already.
            Err(_)
                if unknown
                    .iter()
                    .any(|reason| matches!(reason, Unknown::IndexUnreadable { .. })) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let touched_protected = self.protected(git, &commit, &changes)?;
        let lines = changes
            .iter()
            .fold(0_u64, |sum, change| sum.saturating_add(change.lines()));
        let commits = git.count_work(&format!("{commit}..HEAD"))?;
        for (session, theirs) in memory::others(self.project) {
            let both: Vec<String> = changes
                .iter()
                .map(|change| &change.path)
                .filter(|path| theirs.contains(path))
                .cloned()
                .collect();
            if !both.is_empty() {
                unknown.push(Unknown::OtherSession {
                    session,
                    files: both.into_iter().take(NAMED).collect(),
                });
            }
        }
        let listed = checkpoint
            .manifest
            .as_ref()
            .map(|manifest| &manifest.features_passing[..])
            .unwrap_or_default();
        let (file, standings) = memory::features(self.project)?;
        let standing = |id: &String| {
            let at = file.features.iter().position(|feature| feature.id == *id);
            at.map(|at| standings[at])
        };
        // A feature that was removed with a reason does not fail; one that claims to be blocked
        // does.
        let stands = |id: &String| {
            file.retired.contains(id)
                || standing(id)
                    .is_some_and(|standing| standing.counts() || standing == Standing::Deferred)
        };
        let regressions: Vec<String> = listed.iter().filter(|id| !stands(id)).cloned().collect();
        // If the state is unknown already, skip the verification, which may be slow.
        let run = asked.verify && unknown.is_empty();
        let verify = if run {
            self.verify(unknown)
        } else {
            self.not_run()
        };
        let (files, limits) = (changes.len(), &self.project.config().recovery.limits);
        Ok(Some(Measures {
            files,
            lines,
            commits,
            size: Size::of(files, lines, commits, !touched_protected.is_empty(), limits),
            touched_protected,
            features_listed: listed.len(),
            regressions,
            verify,
        }))
    }

    fn not_run(&self) -> Verify {
        let command = self
            .project
            .checks()
            .and_then(|commands| commands.first().cloned());
        Verify {
            command,
            ran: false,
            passed: true,
            exit: None,
            ms: 0,
            output: String::new(),
        }
    }

    fn verify(&self, unknown: &mut Vec<Unknown>) -> Verify {
        let verify = self.not_run();
        let Some(command) = verify.command.clone() else {
            return verify;
        };
        let timeout: Duration = self.project.config().verify.timeout();
        match runner::check(self.project, Line::Project(&command, None), timeout) {
            Ok(ran) => {
                if ran.timed_out {
                    unknown.push(Unknown::VerifyTimedOut {
                        command,
                        seconds: timeout.as_secs(),
                    });
                }
                let output = ran.end(OUTPUT);
                Verify {
                    ran: true,
                    passed: ran.passed(),
                    exit: ran.exit,
                    ms: ran.ms,
                    output,
                    ..verify
                }
            }
            Err(error) => {
                unknown.push(Unknown::VerifyCannotStart {
                    command,
                    detail: error.message,
                });
                Verify {
                    passed: false,
                    ..verify
                }
            }
        }
    }

    /// Returns the protected paths that were changed, including those below `.forge/`.
    fn protected(&self, git: &Git, commit: &Oid, changes: &[Change]) -> Result<Vec<String>> {
        let globs = globs(&self.project.config().recovery.protected)?;
        // The globs are relative to the repository, except for the memory, which may be below its
        // root.
        let protected = |path: &String| {
            globs.is_match(path)
                || git
                    .in_project(path)
                    .is_some_and(|path| globs.is_match(path))
        };
        let mut touched: Vec<String> = changes
            .iter()
            .map(|change| change.path.clone())
            .filter(protected)
            .collect();
        let diff = ["diff", "--numstat", "-z", "--no-renames", "--no-ext-diff"];
        let others = ["ls-files", "-z", "--others", "--exclude-standard"];
        // One comparison of the commit with the files would be quadratic in the number of all
        // files.
        let staged = [&diff[..], &["--cached", commit.as_str()]].concat();
        for args in [&staged[..], &diff[..], &others[..]] {
            let output = git.succeed(&[args, &["--", git.memory()]].concat(), &Run::default())?;
            // The diff has two counts before the path. A list of names would include files with a
            // changed time only.
            let paths = output
                .records()
                .filter_map(|path| path.splitn(3, |byte| *byte == b'\t').last());
            let paths = paths.map(|path| String::from_utf8_lossy(path).into_owned());
            touched.extend(paths.filter(protected));
        }
        touched.sort();
        touched.dedup();
        Ok(touched)
    }

    /// Reads the last acknowledgement of this clone.
    fn acknowledged(&self) -> Result<Option<Acknowledged>> {
        Ok(self
            .project
            .files()
            .reading()
            .load_at::<Acknowledged>(FILE)?
            .map(|loaded| loaded.value))
    }
}

fn corrupt(damaged: Damaged) -> Unknown {
    Unknown::MemoryCorrupt {
        path: damaged.path,
        detail: damaged.detail,
    }
}

/// Finds problems of the checkpoints: none is usable, or a newer one is damaged or was moved.
fn of_checkpoints(
    git: &Git,
    all: &[Checkpoint],
    usable: Option<&Checkpoint>,
    unknown: &mut Vec<Unknown>,
) -> Result<()> {
    let since = usable.and_then(|usable| usable.timestamp);
    for checkpoint in all {
        // A damaged checkpoint may be newer than any other, unless its time is known.
        let newer = since.is_none_or(|since| checkpoint.timestamp.is_none_or(|time| time > since));
        let tag = || checkpoint.tag.clone();
        match checkpoint.state {
            State::ManifestCorrupt if newer => {
                unknown.push(Unknown::ManifestCorrupt { checkpoint: tag() })
            }
            State::TagMoved if newer => unknown.push(Unknown::TagMoved { checkpoint: tag() }),
            _ => {}
        }
    }
    if usable.is_some() || !unknown.is_empty() {
        return Ok(());
    }
    let Some(first) = all.first() else {
        unknown.push(Unknown::NoCheckpoint);
        return Ok(());
    };
    let proven: Vec<&Checkpoint> = all
        .iter()
        .filter(|one| {
            one.manifest
                .as_ref()
                .is_some_and(|manifest| manifest.proven())
        })
        .collect();
    let aside = proven.iter().find(|one| one.state == State::NotAncestor);
    let absent = proven.iter().find(|one| one.state == State::CommitMissing);
    // In a shallow clone HEAD has no ancestors beyond the cut.
    unknown.push(match (aside, absent) {
        (Some(aside), _) if !git.is_shallow() => Unknown::NotDescendant {
            checkpoint: aside.tag.clone(),
        },
        (Some(there), _) | (None, Some(there)) => Unknown::CheckpointsNotHere {
            checkpoint: there.tag.clone(),
            fetch: git.fetch_checkpoints()?,
        },
        (None, None) => Unknown::NoUsableCheckpoint {
            checkpoint: first.tag.clone(),
        },
    });
    Ok(())
}

/// Says whether HEAD is a later commit than the acknowledged one.
fn is_later(git: &Git, answer: &Acknowledged) -> Result<bool> {
    let (Some(then), Some(now)) = (answer.head.as_deref().and_then(Oid::parse), git.head()?) else {
        return Ok(false);
    };
    Ok(git.is_ancestor(&then, &now)?)
}

fn globs(patterns: &[String]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    let wrong = |error: globset::Error| {
        Error::usage(format!(
            "protected under [recovery] in {}: {error}",
            layout::CONFIG
        ))
    };
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(wrong)?);
    }
    set.build().map_err(wrong)
}
