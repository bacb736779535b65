//! Rollback, step by step.
//!
//! Each step is recorded after it is done and is idempotent, so a killed rollback resumes where it was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::apply::Apply;
use super::carry::Lesson;
use super::journal::{Journal, Mode, Rollback, Step};
use super::tree::one_line;
use super::{FILE, ROLLBACKS, Recovery, memory};
use crate::checkpoints::Name;
use crate::error::{Category, Error, Result};
use crate::git::{Git, Oid, Run, State, Updated};
use crate::json::Json;
use crate::layout::HANDED_OVER;
use crate::project::Project;
use crate::sessions::Sessions;

/// Maximum number of names to try before giving up.
const TRIES: u32 = 1_000;
/// Default folder for new work trees.
pub(super) const WORKTREES: &str = ".forge/.local/worktrees";
/// Settings that keep a git checkout from running the user's hooks and programs.
pub(super) const QUIET: [&str; 6] =
    ["-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "-c", "advice.detachedHead=false"];

impl Recovery<'_> {
    /// Does the remaining steps.
    ///
    /// A lock that only other rollbacks wait for is held across all steps, because a checkout may take long.
    /// References are created only if absent, and moved only from the expected value, so they need no lock.
    pub(super) fn go_on(&self, id: &str, asked: &Apply) -> Result<Rollback> {
        let git = self.project.git()?;
        let guard = self.project.files().rollback_lock()?;
        // Another process may have done some steps while this one waited for the lock.
        let mut rollback = match self.journal()?.current {
            Some(current) if current.id == id => current,
            _ => {
                return Err(Error::new(Category::Stale, "E_MOVED", "the rollback was finished by somebody else")
                    .next("helmdeck forge recover assess"));
            }
        };
        while let Some(step) = following(rollback.step) {
            fault::before(step);
            let went = match step {
                Step::Planned => Ok(()),
                Step::Rescued => self.rescue(git, &mut rollback),
                Step::Built => self.build(git, &mut rollback),
                Step::Branched => self.branch(git, &mut rollback),
                Step::CheckedOut => self.check_out(git, &mut rollback, asked),
                Step::Learned => self.learn(git, &mut rollback),
                Step::Recorded => {
                    self.record(&rollback);
                    Ok(())
                }
            };
            went.map_err(|error| self.give_up(&rollback, error))?;
            fault::between(step);
            rollback.step = step;
            self.note(&rollback)?;
            fault::after(step);
        }
        self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            journal.finish();
            journal.attempts.green(self.project.environment().now().seconds());
            Ok(())
        })?;
        drop(guard);
        Ok(rollback)
    }

    /// Abandons a rollback that can never finish, so that another one may start.
    ///
    /// Nothing needs to be undone: only the rescue and perhaps a branch exist, and they stay. A restore that
    /// git refuses half way is not abandoned: the next run finishes it.
    fn give_up(&self, rollback: &Rollback, error: Error) -> Error {
        let begun = rollback.step >= Step::Branched && rollback.mode == Mode::Restore;
        let never = match error.code {
            "E_MOVED" | "E_INVALID" | "E_SCHEMA_NEWER" => true,
            "E_GIT" => !begun,
            _ => false,
        };
        if rollback.step >= Step::CheckedOut || !never || self.forget(error.code).is_err() {
            return error;
        }
        let left = match (&rollback.target, rollback.mode) {
            (Some(branch), Mode::Branch) => format!("the branch {branch} holds what one would go on with"),
            (Some(branch), Mode::Restore) => format!("the branch {branch} has the commit one would go on with"),
            (None, _) => "nothing was changed".to_owned(),
        };
        error
            .hint(format!("the rollback was given up: {left}, and the rescue reference stays"))
            .next("helmdeck forge recover assess")
    }

    /// Abandons an interrupted rollback. What it made stays, including the rescue.
    ///
    /// # Errors
    /// `Paused`; `NotFound` if there is none; `Locked` if it is running; errors from the files.
    pub fn give_up_rollback(&self) -> Result<Rollback> {
        self.project.check_not_paused()?;
        let guard = self.project.files().rollback_lock()?;
        let given_up = self.forget("asked")?;
        drop(guard);
        memory::note(self.project, &format!("Gave up going back to {}", given_up.checkpoint));
        memory::tell_recovery(
            self.project,
            &serde_json::json!({ "what": "given_up", "checkpoint": given_up.checkpoint, "rescue": given_up.rescue }),
        );
        Ok(given_up)
    }

    /// Moves the rollback in progress to the past ones, with the reason it was abandoned.
    fn forget(&self, why: &str) -> Result<Rollback> {
        self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            let Some(current) = &mut journal.current else {
                return Err(Error::not_found("no rollback was cut short").next("helmdeck forge recover assess"));
            };
            current.other.0.insert("given_up".to_owned(), Json::String(why.to_owned()));
            let given_up = current.clone();
            journal.finish();
            Ok(given_up)
        })
    }

    fn note(&self, rollback: &Rollback) -> Result<()> {
        self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            journal.current = Some(rollback.clone());
            Ok(())
        })
    }

    /// Saves every byte of the work tree and of the index under a reference; without it nothing else runs.
    fn rescue(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
        let (name, message) = self.free_rescue(git, rollback)?;
        rollback.rescue = Some(git.rescue(&name, &message)?.reference);
        Ok(())
    }

    /// Rescues changes since the last rescue, if any, because the next step overwrites them.
    fn rescue_again(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
        let last = rollback.later_rescues.last().or(rollback.rescue.as_ref()).ok_or_else(lost)?.clone();
        let (name, message) = self.free_rescue(git, rollback)?;
        if let Some(rescue) = git.rescue_since(&last, &name, &message)? {
            rollback.later_rescues.push(rescue.reference);
            self.note(rollback)?;
        }
        Ok(())
    }

    /// Returns a free rescue name, and the message of its commit.
    fn free_rescue(&self, git: &Git, rollback: &Rollback) -> Result<(String, String)> {
        let folder = rollback.session.clone().unwrap_or_else(|| "manual".to_owned());
        let prefix = format!("refs/forge/rescue/{folder}/");
        let taken: BTreeSet<String> = git.references(&prefix)?.into_iter().map(|(name, _)| name).collect();
        let free = (1..TRIES).find(|number| !taken.contains(&format!("{prefix}{number}")));
        let Some(number) = free else { return Err(too_many(&prefix)) };
        let message = format!(
            "Rescue before going back to {}\n\n{}\n\nForge-Rollback: {}\n",
            rollback.checkpoint,
            one_line(&rollback.why),
            rollback.id
        );
        Ok((format!("{folder}/{number}"), message))
    }

    /// Creates the branch at a commit whose parent is the checkpoint, so no branch is moved back.
    fn branch(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
        let made = made(rollback)?;
        if rollback.mode == Mode::Restore {
            return self.advance(git, rollback, &made);
        }
        let checkpoint = name(rollback)?;
        let folder = branches(git)?;
        let broken: Vec<_> = git.worktrees()?.into_iter().filter(|tree| tree.unfinished).collect();
        for number in 1..TRIES {
            let branch = format!("{folder}/{checkpoint}-{number}");
            let reference = format!("refs/heads/{branch}");
            // A rollback that was killed right here has created the branch already. If git has created half
            // a work tree, its branch is in use.
            let ours = git.reference(&reference)?.is_some_and(|there| there == made)
                && broken.iter().all(|tree| tree.branch.as_ref() != Some(&branch));
            if ours || git.update_ref(&reference, Some(&made), None, "forge: roll back")? == Updated::Done {
                rollback.target = Some(branch);
                return Ok(());
            }
        }
        Err(too_many(folder))
    }

    /// Checks out the branch: here if no file is changed or in the way, else in a new work tree.
    fn check_out(&self, git: &Git, rollback: &mut Rollback, asked: &Apply) -> Result<()> {
        let made = made(rollback)?;
        if rollback.mode == Mode::Restore {
            let paths = self.paths_of(git, rollback, &made)?;
            self.rescue_again(git, rollback)?;
            return self.restore(git, &made, paths);
        }
        let Some(mut branch) = rollback.target.clone() else { return Err(lost()) };
        if git.branch()?.as_ref() == Some(&branch) {
            return Ok(());
        }
        match git.worktrees()?.into_iter().find(|tree| tree.branch.as_ref() == Some(&branch) && !tree.gone) {
            Some(tree) if tree.unfinished => {
                // git was killed while it created the work tree. The partial one stays, and another one is created.
                self.branch(git, rollback)?;
                self.note(rollback)?;
                branch = rollback.target.clone().ok_or_else(lost)?;
            }
            Some(tree) => {
                rollback.worktree = Some(tree.path.to_string_lossy().into_owned());
                return Ok(());
            }
            None => {}
        }
        if self.may_switch(git, &made)? {
            let switch = ["switch", "--quiet", "--no-guess", "--no-overwrite-ignore", "--end-of-options", &branch];
            git.succeed(&[&QUIET[..], &switch].concat(), &slow())?;
            return Ok(());
        }
        let folder = self.free_folder(rollback, asked)?;
        let Some(text) = folder.to_str() else {
            return Err(Error::usage(format!("{} is no UTF-8", folder.display())));
        };
        let args = [&QUIET[..], &["worktree", "add", "--quiet", "--", text, &branch]].concat();
        git.succeed(&args, &slow())?;
        rollback.worktree = Some(text.to_owned());
        Ok(())
    }

    /// Says whether the branch can be switched here: no file is changed, untracked, hidden or in the way.
    fn may_switch(&self, git: &Git, made: &Oid) -> Result<bool> {
        let clean = git.status()?.is_clean() && git.operation()?.is_none();
        Ok(clean && !hidden(git)? && in_the_way(git, made)?.is_empty())
    }

    fn free_folder(&self, rollback: &Rollback, asked: &Apply) -> Result<PathBuf> {
        if let Some(folder) = &asked.worktree {
            return Ok(self.project.root().join(folder));
        }
        let checkpoint = name(rollback)?;
        let folders = (1..TRIES).map(|number| format!("{WORKTREES}/{checkpoint}-{number}"));
        for folder in folders {
            if self.project.files().entry(&folder)?.is_none() {
                self.project.files().create_folder(WORKTREES)?;
                return Ok(self.project.root().join(folder));
            }
        }
        Err(too_many(WORKTREES))
    }

    /// Records the failed pattern in this work tree. The new commit contains it already.
    fn learn(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
        if let Some(folder) = &rollback.worktree {
            // A failure here is not fatal: the next start chooses a focus.
            if let Err(error) = self.hand_over(git, folder) {
                tracing::warn!(%error, "the focus was not handed over to the new work tree");
            }
        }
        if rollback.mode == Mode::Branch && git.branch()? == rollback.target {
            return Ok(());
        }
        match memory::learn(self.project, &lesson(rollback), rollback.started_at) {
            // The write would fail every time, and the rollback is done all the same.
            Err(error)
                if matches!(error.category, Category::Secret | Category::Refused) || error.code == "E_INVALID" =>
            {
                tracing::warn!(%error, "why one went back was not learned here");
                rollback.other.0.insert("not_learned".to_owned(), Json::String(error.code.to_owned()));
                Ok(())
            }
            learned => learned,
        }
    }

    /// Hands the focus over to the new work tree, where the next session resumes it.
    fn hand_over(&self, git: &Git, folder: &str) -> Result<()> {
        let Some(focus) = Sessions::new(self.project).focus_now()?.show()?.map(|shown| shown.focus) else {
            return Ok(());
        };
        let below = self.project.root().strip_prefix(git.root()).unwrap_or_else(|_| Path::new(""));
        let there = Project::open_anyway(&Path::new(folder).join(below), self.project.environment().clone())?;
        if let Some(there) = there.filter(|_| focus.task.is_some()) {
            let focus = crate::json::print(&focus)
                .map_err(|error| Error::new(Category::Failed, "E_INVALID", format!("the focus: {error}")))?;
            there.files().write(HANDED_OVER, &focus)?;
        }
        Ok(())
    }

    fn record(&self, rollback: &Rollback) {
        memory::note(self.project, &format!("Rolled back to {}: {}", rollback.checkpoint, rollback.why));
        memory::tell_recovery(
            self.project,
            &serde_json::json!({
                "what": "rolled_back",
                "checkpoint": rollback.checkpoint,
                "row": rollback.row,
                "mode": rollback.mode,
                "branch": rollback.target,
                "rescue": rollback.rescue,
            }),
        );
    }
}

/// Returns the step after one.
fn following(step: Step) -> Option<Step> {
    let at = Step::ALL.iter().position(|other| *other == step)?;
    Step::ALL.get(at + 1).copied()
}

/// Returns the lesson of a rollback.
pub(super) fn lesson(rollback: &Rollback) -> Lesson {
    let cut = |text: String, most: usize| text.chars().take(most).collect::<String>();
    let branch = rollback.branch.as_deref().unwrap_or("a detached HEAD");
    let head: String = rollback.head.chars().take(12).collect();
    Lesson {
        context: cut(format!("What was tried on {branch} up to {head}, after {}", rollback.checkpoint), 500),
        issue: cut(rollback.why.clone(), 4_000),
        resolution: cut(
            format!(
                "Rolled back to {}; what was there is kept at {}",
                rollback.checkpoint,
                rollback.rescue.as_deref().unwrap_or("no reference")
            ),
            4_000,
        ),
    }
}

/// Returns a usable prefix for rollback branches: a branch `forge` blocks `forge/rollback/...`.
fn branches(git: &Git) -> Result<&'static str> {
    for (folder, above) in [
        (ROLLBACKS[0], &["refs/heads/forge", "refs/heads/forge/rollback"][..]),
        (ROLLBACKS[1], &["refs/heads/forge-rollback"]),
    ] {
        let mut free = true;
        for name in above {
            free &= git.reference(name)?.is_none();
        }
        if free {
            return Ok(folder);
        }
    }
    Ok(ROLLBACKS[2])
}

/// Returns the untracked paths that block a checkout of a commit.
///
/// The commit would overwrite them, or needs a folder in their place.
pub(super) fn in_the_way(git: &Git, commit: &Oid) -> Result<Vec<String>> {
    let paths = |bytes: Vec<u8>| -> Vec<Vec<u8>> {
        bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let others = git.succeed(&["ls-files", "-z", "--others", "--directory", "--", ":/"], &Run::default())?;
    let tree = git.succeed(&["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit.as_str()], &Run::default())?;
    let tree: BTreeSet<Vec<u8>> = paths(tree.stdout).into_iter().collect();
    let mut found = Vec::new();
    for other in paths(others.stdout) {
        let path = other.strip_suffix(b"/").unwrap_or(&other);
        let below = [path, b"/"].concat();
        let holds = tree.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below));
        let file_above =
            path.iter().enumerate().filter(|(_, byte)| **byte == b'/').any(|(at, _)| tree.contains(&path[..at]));
        if tree.contains(path) || holds || file_above {
            found.push(String::from_utf8_lossy(path).into_owned());
        }
    }
    Ok(found)
}

/// Says whether the index hides paths from git, or the repository has submodules.
///
/// In either case no branch is switched here.
fn hidden(git: &Git) -> Result<bool> {
    let listed = git.succeed(&["ls-files", "-v", "-z"], &Run::default())?;
    let mut tags = listed.stdout.split(|byte| *byte == 0).filter_map(<[u8]>::first);
    if tags.any(|tag| tag.is_ascii_lowercase() || *tag == b'S') {
        return Ok(true);
    }
    let staged = git.succeed(&["ls-files", "-s", "-z"], &Run::default())?;
    let module = staged.stdout.split(|byte| *byte == 0).any(|record| record.starts_with(b"160000 "));
    let changed =
        git.status()?.entries.iter().any(|entry| matches!(entry.state, State::Tracked { submodule: true, .. }));
    Ok(module || changed)
}

/// Returns the commit that the rollback made.
fn made(rollback: &Rollback) -> Result<Oid> {
    rollback.made.as_deref().and_then(Oid::parse).ok_or_else(lost)
}

/// Returns the name of the checkpoint.
fn name(rollback: &Rollback) -> Result<Name> {
    Name::asked(&rollback.checkpoint)
}

pub(super) fn slow() -> Run {
    Run::writing().timeout(std::time::Duration::from_secs(600))
}

fn lost() -> Error {
    Error::new(Category::Corrupt, "E_CORRUPT", format!("{FILE} skips a step of the rollback"))
        .next(format!("helmdeck forge repair {FILE}"))
}

fn too_many(what: &str) -> Error {
    Error::new(Category::Failed, "E_NAMES", format!("{TRIES} names below {what} are taken"))
}

/// Fault injection: where a test kills the process.
mod fault {
    #[cfg(not(test))]
    use super::Step;

    #[cfg(not(test))]
    pub(super) const fn before(_: Step) {}
    #[cfg(not(test))]
    pub(super) const fn between(_: Step) {}
    #[cfg(not(test))]
    pub(super) const fn after(_: Step) {}

    #[cfg(test)]
    pub(super) use crate::recovery::tests::fault::{after, before, between};
}
