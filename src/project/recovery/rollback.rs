//! Going back, step by step. Each step is noted after it was done and does no harm if it is done again, so a rollback that was killed
//! anywhere is taken up where it was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::apply::Apply;
use super::carry::Lesson;
use super::journal::{Journal, Mode, Rollback, Step};
use super::tree::one_line;
use super::{FILE, Recovery, memory};
use crate::checkpoints::Name;
use crate::error::{Category, Error, Result};
use crate::git::{Git, Oid, Run, State, Updated};
use crate::json::Json;
use crate::layout;

/// How many names that are taken are tried before it is given up.
const TRIES: u32 = 1_000;
/// Where new work trees go.
const WORKTREES: &str = ".forge/.local/worktrees";
/// Settings under which git checks out without running anything of the user's.
pub(super) const QUIET: [&str; 6] =
    ["-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "-c", "advice.detachedHead=false"];

impl Recovery<'_> {
    /// Does the steps that are left. The lock of the repository is held from one step to the next, so two never do it at once.
    pub(super) fn go_on(&self, mut rollback: Rollback, asked: &Apply) -> Result<Rollback> {
        let git = self.project.git()?;
        let guard = self.project.common_lock()?;
        // Somebody else may have done some of them while this one waited for the lock.
        match self.journal()?.current {
            Some(current) if current.id == rollback.id => rollback = current,
            _ => {
                return Err(Error::new(Category::Stale, "E_MOVED", "the rollback was finished by somebody else")
                    .next("helmdeck forge recover assess"));
            }
        }
        // What was changed since it was cut short is in no rescue yet, and a restore writes over it.
        if rollback.step >= Step::Rescued && rollback.step < Step::CheckedOut && rollback.mode == Mode::Restore {
            let first = rollback.rescue.clone();
            self.rescue(git, &mut rollback)?;
            rollback.rescue = first;
        }
        let mut guard = Some(guard);
        while let Some(step) = following(rollback.step) {
            fault::before(step);
            let went = match step {
                Step::Planned => Ok(()),
                Step::Rescued => self.rescue(git, &mut rollback),
                Step::Built => self.build(git, &mut rollback),
                Step::Branched => self.branch(git, &mut rollback),
                Step::CheckedOut => self.check_out(git, &mut rollback, asked),
                Step::Learned => self.learn(git, &rollback),
                Step::Recorded => {
                    // Others are told without the lock: that may take a while.
                    drop(guard.take());
                    self.record(&rollback);
                    guard = Some(self.project.common_lock()?);
                    if self.journal()?.current.is_none_or(|current| current.id != rollback.id) {
                        return Ok(rollback);
                    }
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
            journal.attempts.green(self.project.world().now().seconds());
            Ok(())
        })?;
        drop(guard);
        Ok(rollback)
    }

    /// Forgets a rollback that can never go on, so that another one may begin. As long as no branch has moved there is nothing to take
    /// back: what was made is the rescue, which stays.
    fn give_up(&self, rollback: &Rollback, error: Error) -> Error {
        let never = matches!(error.code, "E_MOVED" | "E_GIT" | "E_INVALID");
        if rollback.step >= Step::Branched || !never {
            return error;
        }
        let noted = self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            if let Some(current) = &mut journal.current {
                current.other.0.insert("given_up".to_owned(), Json::String(error.code.to_owned()));
            }
            journal.finish();
            Ok(())
        });
        match noted {
            Ok(()) => error
                .hint("the rollback was given up: nothing was changed, and the rescue reference stays")
                .next("helmdeck forge recover assess"),
            Err(_) => error,
        }
    }

    fn note(&self, rollback: &Rollback) -> Result<()> {
        self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            journal.current = Some(rollback.clone());
            Ok(())
        })
    }

    /// Puts every byte of the work tree and of the index under a reference. If that cannot be done, nothing else is.
    fn rescue(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
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
        rollback.rescue = Some(git.rescue(&format!("{folder}/{number}"), &message)?.reference);
        Ok(())
    }

    /// Makes the branch. It begins at a commit whose parent is the checkpoint, so no branch is moved back.
    fn branch(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
        let made = made(rollback)?;
        if rollback.mode == Mode::Restore {
            return self.advance(git, rollback, &made);
        }
        let checkpoint = name(rollback)?;
        for number in 1..TRIES {
            let branch = format!("forge/rollback/{checkpoint}-{number}");
            let reference = format!("refs/heads/{branch}");
            // A rollback that was killed right here has made the branch already.
            let ours = git.reference(&reference)?.is_some_and(|there| there == made);
            if ours || git.update_ref(&reference, Some(&made), None, "forge: roll back")? == Updated::Done {
                rollback.target = Some(branch);
                return Ok(());
            }
        }
        Err(too_many("forge/rollback/"))
    }

    /// Shows the branch: here if nothing here is changed or in the way, else in a new work tree.
    fn check_out(&self, git: &Git, rollback: &mut Rollback, asked: &Apply) -> Result<()> {
        let made = made(rollback)?;
        if rollback.mode == Mode::Restore {
            return self.restore(git, &made);
        }
        let Some(branch) = rollback.target.clone() else { return Err(lost()) };
        if git.branch()?.as_ref() == Some(&branch) {
            return Ok(());
        }
        let full = git.worktrees()?.into_iter().find(|tree| tree.branch.as_ref() == Some(&branch) && !tree.gone);
        if let Some(tree) = full {
            rollback.worktree = Some(tree.path.to_string_lossy().into_owned());
            return Ok(());
        }
        if self.may_switch(git, &made)? {
            let args = [&QUIET[..], &["switch", "--quiet", "--no-guess", "--end-of-options", &branch]].concat();
            return git.succeed(&args, &slow()).map(drop);
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

    /// Says whether the branch can be shown here: nothing is changed, untracked, hidden from git or in the way.
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

    /// Makes the failed pattern known here too. The commit that was made knows it already.
    fn learn(&self, git: &Git, rollback: &Rollback) -> Result<()> {
        if rollback.mode == Mode::Branch && git.branch()? == rollback.target {
            return Ok(());
        }
        memory::learn(self.project, &lesson(rollback), rollback.started_at)
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

/// Returns what is to be learned from having to go back.
pub(super) fn lesson(rollback: &Rollback) -> Lesson {
    let cut = |text: String, most: usize| text.chars().take(most).collect::<String>();
    let branch = rollback.branch.as_deref().unwrap_or("a detached HEAD");
    let head = &rollback.head[..rollback.head.len().min(12)];
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

/// Returns the paths that git does not track and that a commit would write over, or that stand where it needs a folder.
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

/// Says whether git was told not to look at some path, or the repository holds others: then nothing here is switched.
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

/// Returns the commit that was made.
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

/// Says whether a path lies in the memory.
pub(super) fn is_memory(path: &[u8]) -> bool {
    let text = String::from_utf8_lossy(path);
    Path::new(text.as_ref()).starts_with(layout::FORGE)
}

/// Where a test kills the process.
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
