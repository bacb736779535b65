//! Session folders: `short-term/sessions/<id>-<end of the UUID>/`.
//!
//! Two clones may give the same name to two sessions, and a merge keeps both folders. Older folders
//! have the name alone.

use super::record::{ActiveSessions, Session};
use super::{SessionId, Sessions};
use crate::error::Result;
use crate::layout::{ENDED, SESSIONS};

/// Number of UUID characters in a folder name. They come from its end, which is random.
const END: usize = 8;

impl Session {
    /// Returns the name of the session's folder.
    pub(crate) fn folder(&self) -> String {
        let end = self
            .uuid
            .len()
            .checked_sub(END)
            .and_then(|from| self.uuid.get(from..));
        match end.filter(|end| is_end(end) && is_id(&self.id)) {
            Some(end) => format!("{}-{end}", self.id),
            None => self.id.clone(),
        }
    }
}

/// Returns the id of the session that a folder name belongs to.
pub(crate) fn session_of(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((id, end)) if is_end(end) && is_id(id) => id,
        _ => folder,
    }
}

fn is_id(text: &str) -> bool {
    text.parse::<SessionId>().is_ok()
}

fn is_end(text: &str) -> bool {
    text.len() == END
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
}

impl Sessions<'_> {
    /// Returns the folder name of a session: from this work tree's record, or else from git.
    pub(crate) fn folder_of(&self, id: &str) -> Result<String> {
        if let Some(session) = self.living()?.get(id) {
            return Ok(session.folder());
        }
        let there = self.folders(|folder| session_of(folder) == id)?;
        let kept = self
            .ended_here(|session| session.id == id)
            .map(|session| session.folder());
        Ok(match kept {
            // Archived before folder names had the end of a UUID.
            Some(kept) if !there.contains(&kept) && there.iter().any(|folder| folder == id) => {
                id.to_owned()
            }
            Some(kept) => kept,
            None => there.into_iter().next().unwrap_or_else(|| id.to_owned()),
        })
    }

    /// Returns the names of the session folders, sorted.
    pub(super) fn folders(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let entries = self
            .project
            .files()
            .list(SESSIONS)?
            .into_iter()
            .filter(|entry| entry.folder);
        Ok(entries
            .map(|entry| entry.name)
            .filter(|name| wanted(name))
            .collect())
    }

    /// Returns the newest session that ended in this work tree. Unreadable records are ignored.
    pub(super) fn ended_here(&self, wanted: impl Fn(&Session) -> bool) -> Option<Session> {
        let kept = self
            .project
            .files()
            .reading()
            .load_at::<ActiveSessions>(ENDED)
            .ok()
            .flatten()?;
        kept.value
            .sessions
            .into_iter()
            .rev()
            .find(|session| wanted(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Document as _;

    #[test]
    fn a_folder_tells_whose_it_is() {
        for (id, uuid, folder) in [
            (
                "2025-12-24-session-001",
                "019b51a4-0000-7000-8000-0123456789ab",
                "2025-12-24-session-001-456789ab",
            ),
            (
                "2025-12-24-session-1000",
                "00000000-0000-0000-0000-000000000007",
                "2025-12-24-session-1000-00000007",
            ),
            ("2025-12-24-session-001", "", "2025-12-24-session-001"),
            (
                "2025-12-24-session-001",
                "../../etc",
                "2025-12-24-session-001",
            ),
            ("s-2", "00000000-0000-0000-0000-000000000007", "s-2"),
        ] {
            let session = Session {
                id: id.to_owned(),
                uuid: uuid.to_owned(),
                ..Session::skeleton()
            };
            assert_eq!(
                (session.folder().as_str(), session_of(folder)),
                (folder, id)
            );
        }
        assert_eq!(
            session_of("2025-12-24-unnamed-0123abcd"),
            "2025-12-24-unnamed-0123abcd"
        );
    }
}
