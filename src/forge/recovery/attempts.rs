//! Counts failed attempts to fix a failing check.

use super::journal::Attempts;
use super::{FILE, Journal, Recovery};
use crate::checkpoints::Checkpoints;
use crate::error::Result;

/// The assessed code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code<'a> {
    /// Id of its state.
    pub(super) state: &'a str,
    /// Whether all of it is committed.
    pub(super) committed: bool,
}

impl Recovery<'_> {
    /// Records the result of a repair attempt.
    ///
    /// A success resets the count. A repeated failure of the same code does not count twice. Without a
    /// checkpoint to roll back to, nothing is counted.
    ///
    /// # Errors
    /// `Paused`; errors from git and the files.
    pub fn tried(&self, passed: bool, what: &str) -> Result<Attempts> {
        self.project.check_not_paused()?;
        let now = self.project.environment().now().seconds();
        if passed {
            return self.count(|attempts| attempts.green(now));
        }
        match self.state()? {
            Some((state, _)) => self.count(|attempts| attempts.failed(&state, what, now)),
            None => Ok(self.journal()?.attempts),
        }
    }

    /// Records a test result of a feature that worked at the checkpoint.
    ///
    /// A success resets the count only if no other check failed before. A failure to record it does not
    /// fail the test.
    pub(crate) fn tried_feature(&self, passed: bool, id: &str) {
        let noted = || -> Result<()> {
            if passed {
                return self.check_passed(id);
            }
            let checkpoint = Checkpoints::new(self.project).newest_usable()?.and_then(|checkpoint| checkpoint.manifest);
            if checkpoint.is_some_and(|manifest| manifest.features_passing.iter().any(|known| known == id)) {
                self.tried(false, id)?;
            }
            Ok(())
        };
        if self.project.git().is_ok() {
            spoils_nothing(id, noted());
        }
    }

    /// Records a command that failed for a new checkpoint.
    ///
    /// Code that equals the last checkpoint is not an attempt.
    pub(crate) fn tried_command(&self, command: &str) {
        let noted = || -> Result<()> {
            let now = self.project.environment().now().seconds();
            if let Some((state, true)) = self.state()? {
                self.count(|attempts| attempts.failed(&state, command, now))?;
            }
            Ok(())
        };
        spoils_nothing(command, noted());
    }

    /// Resets the count: every check of a checkpoint has succeeded.
    pub(crate) fn all_is_well(&self) {
        let now = self.project.environment().now().seconds();
        spoils_nothing("checkpoint", self.count(|attempts| attempts.green(now)).map(drop));
    }

    /// Records the result of the verify command on a code state, and returns the current count.
    ///
    /// While work is paused nothing is recorded, but the result still counts. Uncommitted code is not an
    /// attempt, so assessing while editing counts nothing.
    pub(super) fn assessed(&self, passed: bool, command: &str, code: Code<'_>, journal: &Journal) -> Attempts {
        let now = self.project.environment().now().seconds();
        let tell = |attempts: &mut Attempts| match passed {
            true => attempts.passed(command, now),
            false if code.committed => attempts.failed(code.state, command, now),
            false => attempts.noted(code.state, command, now),
        };
        let mut counted = journal.attempts.clone();
        tell(&mut counted);
        if counted != journal.attempts && self.project.check_not_paused().is_ok() {
            match self.count(tell) {
                Ok(noted) => counted = noted,
                error => spoils_nothing(command, error.map(drop)),
            }
        }
        counted
    }

    fn check_passed(&self, what: &str) -> Result<()> {
        self.project.check_not_paused()?;
        let now = self.project.environment().now().seconds();
        self.count(|attempts| attempts.passed(what, now)).map(drop)
    }

    /// Changes the count, and writes it only if it differs.
    fn count(&self, tell: impl Fn(&mut Attempts)) -> Result<Attempts> {
        let before = self.journal()?.attempts;
        let mut after = before.clone();
        tell(&mut after);
        if (after.failed, &after.failing) == (before.failed, &before.failing) {
            return Ok(before);
        }
        self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            tell(&mut journal.attempts);
            Ok(journal.attempts.clone())
        })
    }

    /// Returns an id of this code state, and whether the code differs from the checkpoint.
    fn state(&self) -> Result<Option<(String, bool)>> {
        let git = self.project.git()?;
        let Some(commit) = Checkpoints::new(self.project).newest_usable()?.and_then(|checkpoint| checkpoint.oid())
        else {
            return Ok(None);
        };
        let changes = git.changes(&commit)?;
        Ok(Some((self.state_of(&commit, &changes), !changes.is_empty())))
    }
}

fn spoils_nothing(what: &str, noted: Result<()>) {
    if let Err(error) = noted {
        tracing::warn!(what, %error, "a try to mend it was not counted");
    }
}
