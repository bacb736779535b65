//! Archive of ended sessions. Each has a folder with its record, focus and progress.
//!
//! The folder is committed when the session ends.

use super::record::{ActiveSessions, Session, State};
use super::{Sessions, announce};
use crate::error::Result;
use crate::focus::Focus;
use crate::json::print;
use crate::layout::{ENDED, FOCUS, SESSION_LOCKS, session_folder};
use crate::progress::Progress;

/// Number of ended sessions whose full record is kept.
const KEPT: usize = 20;

impl Sessions<'_> {
    /// Archives the abandoned sessions. Returns their ids.
    pub(super) fn reap(&self) -> Result<Vec<String>> {
        let given_up: Vec<Session> =
            self.living()?.sessions.into_iter().filter(|session| session.state == State::Abandoned).collect();
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

    /// Copies the files of a session into its folder. It is idempotent.
    pub(super) fn archive(&self, session: &Session) -> Result<()> {
        let files = self.project.files();
        let _local = files.lock()?;
        let folder = session_folder(&session.folder())?;
        if session.primary {
            let mine = |focus: &Focus| focus.session.as_deref() == Some(&session.id);
            if let Some(focus) = files.load::<Focus>()?.filter(|loaded| mine(&loaded.value))
                && let Some(bytes) = files.read(FOCUS)?
            {
                drop(focus);
                files.write(&format!("{folder}/focus.json"), &bytes)?;
            }
            let progress = Progress::new(self.project);
            if progress.read()?.is_some_and(|log| log.session.as_deref() == Some(&session.id)) {
                progress.archive()?;
            }
        }
        let record = Session { schema_version: Some("1.0".to_owned()), holder: None, ..session.clone() };
        let bytes = print(&record).map_err(|error| crate::Error::usage(error.to_string()))?;
        files.write(&format!("{folder}/session.json"), &bytes)
    }

    /// Removes a session from the active ones.
    pub(super) fn forget(&self, id: &str) -> Result<()> {
        #[cfg(test)]
        super::crash_tests::point();
        self.project.files().edit::<ActiveSessions, ()>(None, |living| {
            living.sessions.retain(|session| session.id != id);
            Ok(())
        })?;
        self.project.files().remove(&format!("{SESSION_LOCKS}/{id}.lock"))?;
        #[cfg(test)]
        super::crash_tests::point();
        Ok(())
    }

    /// Stores the full record of an ended session.
    ///
    /// It includes the steps after the session's commit, which the archive cannot contain.
    pub(super) fn keep_over(&self, session: &Session) -> Result<()> {
        self.project.files().edit_at::<ActiveSessions, ()>(ENDED, None, |ended| {
            ended.sessions.retain(|old| old.uuid != session.uuid);
            ended.sessions.push(session.clone());
            let over = ended.sessions.len().saturating_sub(KEPT);
            ended.sessions.drain(..over);
            Ok(())
        })
    }

    /// Returns the record of an ended session, by the name of its folder.
    pub(super) fn archived(&self, folder: &str) -> Result<Option<Session>> {
        let path = format!("{}/session.json", session_folder(folder)?);
        Ok(self.project.files().load_at::<Session>(&path)?.map(|loaded| loaded.value))
    }
}
