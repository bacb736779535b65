//! Progress of a session: `progress.txt`, for people and for the next session.
//!
//! Lines are only appended. The file is archived when the next session begins. Its times are wall
//! clock times; exact times are in the journal.

mod archive;

use schemars::JsonSchema;
use serde::Serialize;

pub use archive::Archived;
pub use helmdeck_forge_documents::progress as text;
pub(crate) use text::{ENDING, ISSUES, STARTED};
pub use text::{Log, ProgressEntry, opening};

use crate::error::{Error, Result};
use crate::files::{self, Unreadable};
use crate::layout::{PROGRESS, session_folder};
use crate::project::Project;

/// The progress of one session.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    project: &'a Project,
    path: String,
}

/// A session's file was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Begun {
    /// Whether it was begun before: then nothing was changed.
    pub already: bool,
    /// Where the one before was put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<Archived>,
    /// Old archives that were removed; git has them.
    pub removed: Vec<String>,
}

/// A line was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Logged {
    /// The line.
    pub line: String,
    /// The path of the file.
    pub path: String,
}

impl<'a> Progress<'a> {
    /// Returns the progress of the primary session of a project.
    #[must_use]
    pub fn new(project: &'a Project) -> Self {
        Self {
            project,
            path: PROGRESS.to_owned(),
        }
    }
}

impl Progress<'_> {
    /// Returns the progress in the folder of a session: a secondary one, or one that is over.
    ///
    /// # Errors
    /// `Usage` if the name is not valid for such a folder.
    pub fn of(self, folder: &str) -> Result<Self> {
        Ok(Self {
            path: format!("{}/progress.txt", session_folder(folder)?),
            ..self
        })
    }

    /// The path of the file, below the root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the file. `None` if it is absent.
    ///
    /// # Errors
    /// `Corrupt` if it is not text.
    pub fn read(&self) -> Result<Option<Log>> {
        let Some(bytes) = self.project.files().read(&self.path)? else {
            return Ok(None);
        };
        let text = as_text(self.project, &self.path, &bytes)?;
        Ok(Some(Log::parse(text, &self.project.environment().zone)))
    }

    /// Begins the progress file of a session. For a session that already has it, nothing happens.
    ///
    /// The progress of another session is first moved into that session's folder. The newest
    /// archives are kept (`[session] archives`, 20 unless configured otherwise), and so are all
    /// that git does not have.
    ///
    /// # Errors
    /// `Corrupt` if the file is not text, `Secret` if it contains a credential, `Paused`, `Locked`,
    /// `Usage`.
    pub fn begin(&self, session: &str) -> Result<Begun> {
        self.project.check_not_paused()?;
        session_folder(session)?;
        let files = self.project.files();
        let guard = files.lock()?;
        let old = self.read()?;
        if old.as_ref().and_then(|old| old.session.as_deref()) == Some(session) {
            return Ok(Begun {
                already: true,
                archived: None,
                removed: Vec::new(),
            });
        }
        let archived = match &old {
            Some(old) => archive::rotate(self.project, &self.path, old)?,
            None => None,
        };
        let environment = self.project.environment();
        files.write(
            &self.path,
            text::opening(environment.now(), &environment.zone, Some(session)).as_bytes(),
        )?;
        drop(guard);
        Ok(Begun {
            already: false,
            archived,
            removed: archive::prune(self.project)?,
        })
    }

    /// Adds an entry: what was done.
    ///
    /// # Errors
    /// `Usage` if the text does not fit on a line, `Secret`, `Corrupt`, `Paused`, `Locked`.
    pub fn log(&self, said: &str) -> Result<Logged> {
        self.add(|| {
            text::line(
                self.project.environment().now(),
                &self.project.environment().zone,
                said,
            )
        })
    }

    /// Adds that a checkpoint was made.
    ///
    /// # Errors
    /// As [`Self::log`].
    pub fn checkpoint(&self, said: &str) -> Result<Logged> {
        self.add(|| {
            text::checkpoint(
                self.project.environment().now(),
                &self.project.environment().zone,
                said,
            )
        })
    }

    /// Adds the next step, after a blank line. If it is the last line already, nothing is written.
    ///
    /// # Errors
    /// As [`Self::log`].
    pub fn next(&self, said: &str) -> Result<Logged> {
        let line = text::next(said)?;
        let files = self.project.files();
        files.check_secrets(&self.path, line.as_bytes())?;
        let _guard = files.lock()?;
        let bytes = files.read(&self.path)?.unwrap_or_default();
        if bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next() == Some(line.as_bytes()) {
            return Ok(Logged {
                line,
                path: self.path.clone(),
            });
        }
        if !bytes.is_empty() && !bytes.ends_with(b"\n\n") {
            self.add(|| Ok(String::new()))?;
        }
        self.add(|| Ok(line))
    }

    /// Adds a line. The line is made under the lock, so that times are in order.
    fn add(&self, line: impl FnOnce() -> Result<String>) -> Result<Logged> {
        self.project.check_not_paused()?;
        let files = self.project.files();
        let _guard = files.lock()?;
        let line = line()?;
        files.check_secrets(&self.path, line.as_bytes())?;
        match files.read(&self.path)? {
            Some(bytes) if !bytes.is_empty() => drop(as_text(self.project, &self.path, &bytes)?),
            _ => {
                let environment = self.project.environment();
                files.write(
                    &self.path,
                    text::opening(environment.now(), &environment.zone, None).as_bytes(),
                )?;
            }
        }
        files.append(&self.path, &line)?;
        Ok(Logged {
            line,
            path: self.path.clone(),
        })
    }

    /// Copies the file of a session that ends into the session's folder. Done again, it changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn archive(&self) -> Result<Option<Archived>> {
        let _guard = self.project.files().lock()?;
        match self.read()? {
            Some(log) => archive::copy(self.project, &self.path, &log),
            None => Ok(None),
        }
    }

    /// Returns the names of the folders of sessions, the oldest first.
    ///
    /// # Errors
    /// The errors of listing the folder.
    pub fn archives(&self) -> Result<Vec<String>> {
        archive::list(self.project)
    }
}

/// Returns the text of a progress file. An empty one is text, and so is one with the marks of a
/// merge.
fn as_text<'b>(project: &Project, path: &str, bytes: &'b [u8]) -> Result<&'b str> {
    if let (Ok(text), false) = (std::str::from_utf8(bytes), bytes.contains(&0)) {
        return Ok(text);
    }
    Err(match files::text(bytes) {
        Err(damage) => project
            .files()
            .unreadable(path, bytes, Unreadable::Damaged(damage)),
        Ok(_) => Error::refused(format!("{path} is no text")),
    })
}

#[cfg(test)]
mod tests;
