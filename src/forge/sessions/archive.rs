//! Archive of ended sessions: the progress in the session's folder, the record and focus in this
//! clone.
//!
//! Only progress that says something is committed: one file a session. Earlier versions kept all
//! three in the folder.

use super::record::{ActiveSessions, Session, State};
use super::{Sessions, announce, session_of};
use crate::error::Result;
use crate::focus::Focus;
use crate::layout::{ENDED, session_folder};
use crate::progress::Progress;

/// Number of ended sessions whose full record is kept.
const KEPT: usize = 20;

impl Sessions<'_> {
    /// Archives the abandoned sessions. Returns their ids.
    pub(super) fn reap(&self) -> Result<Vec<String>> {
        let given_up: Vec<Session> = self
            .living()?
            .sessions
            .into_iter()
            .filter(|session| session.state == State::Abandoned)
            .collect();
        for session in &given_up {
            // A session that was abandoned before its first file has nothing to archive.
            if session.step("progress").is_some() {
                self.archive(session)?;
                self.keep_over(session)?;
                announce::abandoned(self.project, session);
            }
            self.forget(&session.id)?;
        }
        Ok(given_up.into_iter().map(|session| session.id).collect())
    }

    /// Puts the progress of a session into its folder, and its focus into its record. It is
    /// idempotent.
    pub(super) fn archive(&self, session: &Session) -> Result<()> {
        let files = self.project.files();
        let _local = files.lock()?;
        if session.primary {
            let progress = Progress::new(self.project);
            if progress
                .read()?
                .is_some_and(|log| log.session.as_deref() == Some(&session.id))
            {
                progress.archive()?;
            }
            return Ok(());
        }
        if self
            .progress(session)?
            .read()?
            .is_none_or(|log| log.is_automatic())
        {
            return self.remove_folder(session);
        }
        // Its folder is committed, and holds the focus while the session is active.
        self.keep_over(session)?;
        files.remove(&format!(
            "{}/focus.json",
            session_folder(&session.folder())?
        ))?;
        Ok(())
    }

    /// Removes the folder of a session whose progress says nothing; the folder of the primary
    /// session holds nothing yet.
    pub(super) fn remove_folder(&self, session: &Session) -> Result<()> {
        if session.primary {
            return Ok(());
        }
        self.keep_over(session)?;
        let folder = session_folder(&session.folder())?;
        for name in ["focus.json", "progress.txt"] {
            self.project.files().remove(&format!("{folder}/{name}"))?;
        }
        // A folder that is not empty stays.
        let _ = std::fs::remove_dir(self.project.root().join(folder));
        Ok(())
    }

    /// Returns the focus that a session has in its file.
    fn focus_in_file(&self, session: &Session) -> Result<Option<Focus>> {
        let shown = self.focus(session)?.show()?.map(|shown| shown.focus);
        Ok(shown.filter(|focus| !session.primary || focus.session.as_deref() == Some(&session.id)))
    }

    /// Removes a session from the active ones.
    pub(super) fn forget(&self, id: &str) -> Result<()> {
        #[cfg(test)]
        super::crash_tests::point();
        self.project
            .files()
            .edit::<ActiveSessions, ()>(None, |living| {
                living.sessions.retain(|session| session.id != id);
                Ok(())
            })?;
        #[cfg(test)]
        super::crash_tests::point();
        Ok(())
    }

    /// Stores the full record of an ended session.
    ///
    /// It includes its focus. A focus that cannot be read is left out.
    pub(super) fn keep_over(&self, session: &Session) -> Result<()> {
        let focus = session
            .focus
            .clone()
            .or_else(|| self.focus_in_file(session).ok().flatten());
        self.project
            .files()
            .edit_at::<ActiveSessions, ()>(ENDED, None, |ended| {
                let before = ended.sessions.iter().find(|old| old.uuid == session.uuid);
                let focus = focus.or_else(|| before.and_then(|old| old.focus.clone()));
                ended.sessions.retain(|old| old.uuid != session.uuid);
                ended.sessions.push(Session {
                    focus,
                    ..session.clone()
                });
                let over = ended.sessions.len().saturating_sub(KEPT);
                ended.sessions.drain(..over);
                Ok(())
            })
    }

    /// Returns the record of an ended session, by the name of its folder.
    ///
    /// It is that of this clone, or else the file that an earlier version left in the folder.
    pub(super) fn archived(&self, folder: &str) -> Result<Option<Session>> {
        let id = session_of(folder);
        let kept = self
            .ended_here(|session| session.folder() == folder || (folder == id && session.id == id));
        if kept.is_some() {
            return Ok(kept);
        }
        let path = format!("{}/session.json", session_folder(folder)?);
        Ok(self
            .project
            .files()
            .load_at::<Session>(&path)?
            .map(|loaded| loaded.value))
    }
}
