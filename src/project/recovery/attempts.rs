//! Counting the tries to mend something that failed: whoever runs a check tells how it went.

use super::journal::Attempts;
use super::{FILE, Journal, Recovery};
use crate::error::Result;

impl Recovery<'_> {
    /// Notes how a try to mend something went. One that succeeded sets the count back; the same code that fails again does not count
    /// twice. Without a checkpoint there is nothing to go back to, and nothing is counted.
    ///
    /// # Errors
    /// `Paused`; what git and the files say.
    pub fn tried(&self, passed: bool, what: &str) -> Result<Attempts> {
        self.project.check_not_paused()?;
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

    /// Notes how the tests of one feature went, if it worked at the checkpoint. Success sets the count back only if it was this feature
    /// that failed before: the others may fail still. That it cannot be noted spoils no test.
    pub(crate) fn tried_feature(&self, passed: bool, id: &str) {
        let noted = || -> Result<()> {
            let before = self.journal()?.attempts;
            if passed && before.what.as_deref() != Some(id) {
                return Ok(());
            }
            let checkpoint = self.project.checkpoints().newest_usable()?.and_then(|checkpoint| checkpoint.manifest);
            if checkpoint.is_some_and(|manifest| manifest.features_passing.iter().any(|known| known == id)) {
                self.tried(passed, id)?;
            }
            Ok(())
        };
        if self.project.git().is_ok()
            && let Err(error) = noted()
        {
            tracing::warn!(feature = id, %error, "a try to mend it was not counted");
        }
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
