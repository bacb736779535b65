//! Counting the tries to mend something that failed: whoever runs a check tells how it went.

use super::journal::Attempts;
use super::{FILE, Journal, Recovery};
use crate::error::Result;

impl Recovery<'_> {
    /// Notes how a try to mend something went. One that succeeded sets the count back; the same code that fails again does not count
    /// twice. Without a checkpoint there is nothing to go back to, and nothing is counted.
    ///
    /// # Errors
    /// What git and the files say.
    pub fn tried(&self, passed: bool, what: &str) -> Result<Attempts> {
        let now = self.project.world().now().seconds();
        let state = if passed { None } else { self.state()? };
        let before = self.journal()?.attempts;
        if (passed && before.failed == 0) || (!passed && state.is_none()) {
            return Ok(before);
        }
        self.project.files().edit_at::<Journal, _>(FILE, None, |journal| {
            match &state {
                Some(state) => journal.attempts.failed(state, what, now),
                None => journal.attempts.green(now),
            }
            Ok(journal.attempts.clone())
        })
    }

    /// Returns what tells this state of the code from others.
    fn state(&self) -> Result<Option<String>> {
        let git = self.project.git()?;
        let Some(commit) = self.project.checkpoints().newest_usable()?.and_then(|checkpoint| checkpoint.oid()) else {
            return Ok(None);
        };
        let changes = git.changes(&commit)?;
        Ok(Some(self.state_of(&commit, &changes)))
    }
}
