//! Rollback by a new commit on the same branch.
//!
//! Tracked files return to their state at the checkpoint. The earlier state is rescued, and an untracked
//! file is never overwritten.

use super::rollback::{QUIET, in_the_way, slow};
use super::{Recovery, Rollback, memory};
use crate::error::{Category, Error, Result};
use crate::git::{Git, Oid, Run, Updated};
use crate::layout;

/// Paths that a restore writes, each terminated by NUL.
pub(super) struct Paths {
    code: Vec<u8>,
    /// Paths of the memory, which are restored in the index only.
    memories: Vec<u8>,
}

fn moved() -> Error {
    Error::new(Category::Stale, "E_MOVED", "HEAD moved while the rollback was under way")
        .hint("the rescue reference holds what was there; nothing was lost")
}

impl Recovery<'_> {
    /// Refuses if an untracked file is in the place of a checkpoint's file.
    pub(super) fn check_in_the_way(&self, git: &Git, commit: &Oid) -> Result<()> {
        let found: Vec<String> =
            in_the_way(git, commit)?.into_iter().filter(|path| !git.is_memory(path.as_bytes())).collect();
        if found.is_empty() {
            return Ok(());
        }
        let some = found.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("{} paths that are not tracked are in the way: {some}", found.len());
        Err(Error::new(Category::Refused, "E_IN_THE_WAY", message)
            .hint("move them elsewhere, or go back on a branch instead, which touches nothing here")
            .next("helmdeck forge recover apply --mode branch"))
    }

    /// Moves the branch forward to the new commit.
    pub(super) fn advance(&self, git: &Git, rollback: &mut Rollback, made: &Oid) -> Result<()> {
        rollback.target = rollback.branch.clone();
        let reference = rollback.branch.as_ref().map_or_else(|| "HEAD".to_owned(), |name| format!("refs/heads/{name}"));
        let head = git.head()?;
        if head.as_ref() == Some(made) {
            return Ok(());
        }
        let expected = Oid::parse(&rollback.head);
        if git.branch()? == rollback.branch
            && git.update_ref(&reference, Some(made), expected.as_ref(), "forge: restore")? == Updated::Done
        {
            return Ok(());
        }
        Err(moved())
    }

    /// Returns the paths to restore. Fails if HEAD or the branch moved since, so nothing is overwritten.
    pub(super) fn paths_of(&self, git: &Git, rollback: &Rollback, made: &Oid) -> Result<Paths> {
        if git.head()?.as_ref() != Some(made) || git.branch()? != rollback.branch {
            return Err(moved());
        }
        self.check_in_the_way(git, made)?;
        let (mut code, mut memories) = (Vec::new(), Vec::new());
        for place in [&[][..], &["--cached"][..]] {
            let fixed = ["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty"];
            let args = [&fixed[..], place, &[made.as_str(), "--"]].concat();
            let output = git.succeed(&args, &Run::default())?;
            for path in output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
                let list = if git.is_memory(path) { &mut memories } else { &mut code };
                list.extend_from_slice(&[path, b"\0"].concat());
            }
        }
        Ok(Paths { code, memories })
    }

    /// Restores the tracked files to the commit. All overwritten bytes must have been rescued before.
    pub(super) fn restore(&self, git: &Git, made: &Oid, paths: Paths) -> Result<()> {
        let Paths { code, memories } = paths;
        let source = format!("--source={made}");
        let from_stdin = ["--pathspec-from-file=-", "--pathspec-file-nul"];
        for (paths, places) in [(code, &["--staged", "--worktree"][..]), (memories, &["--staged"][..])] {
            if paths.is_empty() {
                continue;
            }
            let args =
                [&QUIET[..], &["--literal-pathspecs", "restore", "--quiet", &source], places, &from_stdin[..]].concat();
            git.succeed(&args, &slow().stdin(paths))?;
        }
        // The memory is always written under its lock, and atomically.
        if let Some(bytes) = git.file_at(made, &git.in_memory(layout::FEATURES))? {
            memory::replace_features(self.project, &bytes)?;
        }
        Ok(())
    }
}
