//! Discovery: the repository around a folder, and the address of its remote, without running git.
//!
//! Only the repository's own settings are read. Included files and rewriting of addresses in the
//! user's settings are not. They rarely change the last part of an address, which callers use.

mod config;

use std::io;
use std::path::{Path, PathBuf};

pub use config::project_name;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
}

/// The read access to files that discovery needs.
pub trait Files {
    /// Returns what a path leads to; links are followed. `None` if nothing is there.
    ///
    /// # Errors
    /// Those of the system.
    fn kind(&self, path: &Path) -> io::Result<Option<Kind>>;

    /// Says whether a path belongs to another user; links are not followed.
    ///
    /// # Errors
    /// Those of the system.
    fn is_foreign(&self, path: &Path) -> io::Result<bool>;

    /// Reads a file of at most `limit` bytes. `None` if it does not exist.
    ///
    /// Bytes that are not UTF-8 are replaced by `U+FFFD`.
    ///
    /// # Errors
    /// The reason why it is not a readable file.
    fn text(&self, path: &Path, limit: usize) -> Result<Option<String>, String>;
}

/// The limit for a file that names a folder, in bytes.
const MAX_LINK: usize = 4_096;
/// The limit for the settings, in bytes.
const MAX_CONFIG: usize = 1 << 20;

/// The reason why files of another user are skipped.
pub const FOREIGN: &str =
    "it belongs to another user, and is passed over; name the folder it lies in to use it";

/// A repository that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The root of the work tree, if there is one.
    pub root: Option<PathBuf>,
    /// git's folder for all work trees.
    common: PathBuf,
}

impl Repository {
    /// Finds the repository around a folder.
    ///
    /// A repository of another user is not trusted, as in git: anybody can create a folder in
    /// `/tmp`. The folder itself is trusted if the user `named` it.
    ///
    /// # Errors
    /// The reason why the nearest repository cannot be used. It hides those above it, as in git.
    pub fn find(files: &dyn Files, start: &Path, named: bool) -> Result<Option<Self>, String> {
        let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let kind = |path: &Path| files.kind(path).map_err(|error| wrong(path, &error));
        for folder in start.ancestors() {
            let link = folder.join(".git");
            let git_dir = match kind(&link)? {
                // A folder with this name can be something else than a repository.
                Some(Kind::Folder) if kind(&link.join("HEAD"))?.is_some() => Some(link.clone()),
                // A file without a folder hides the repositories above it.
                Some(Kind::File) => match named_in(files, &link, "gitdir: ", folder) {
                    Some(git_dir) => Some(git_dir),
                    None => return Ok(None),
                },
                _ if is_bare(&kind, folder)? => None,
                _ => continue,
            };
            let all = [
                Some(folder),
                git_dir.as_ref().map(|_| &*link),
                git_dir.as_deref(),
            ];
            for path in all
                .into_iter()
                .flatten()
                .filter(|_| !(named && folder == start))
            {
                if files
                    .is_foreign(path)
                    .map_err(|error| wrong(path, &error))?
                {
                    return Err(wrong(path, &FOREIGN));
                }
            }
            let Some(git_dir) = git_dir else {
                return Ok(Some(Self {
                    root: None,
                    common: folder.to_owned(),
                }));
            };
            let common =
                named_in(files, &git_dir.join("commondir"), "", &git_dir).unwrap_or(git_dir);
            return Ok(Some(Self {
                root: Some(folder.to_owned()),
                common,
            }));
        }
        Ok(None)
    }

    /// Returns the path of its settings.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.common.join("config")
    }

    /// Returns the fetch address of `origin`; `None` if it is not UTF-8.
    ///
    /// # Errors
    /// The reason why the settings cannot be read.
    pub fn origin(&self, files: &dyn Files) -> Result<Option<String>, String> {
        let config = self.config();
        let text = files
            .text(&config, MAX_CONFIG)
            .map_err(|why| format!("{}: {why}", config.display()))?;
        let address = text.as_deref().and_then(config::origin);
        Ok(address.filter(|address| !address.contains(char::REPLACEMENT_CHARACTER)))
    }
}

fn is_bare(
    kind: &impl Fn(&Path) -> Result<Option<Kind>, String>,
    folder: &Path,
) -> Result<bool, String> {
    let is = |name: &str, is: Kind| kind(&folder.join(name)).map(|kind| kind == Some(is));
    Ok(kind(&folder.join("HEAD"))?.is_some()
        && is("objects", Kind::Folder)?
        && is("refs", Kind::Folder)?
        && is("config", Kind::File)?)
}

/// Reads a file that names a folder.
fn named_in(files: &dyn Files, file: &Path, prefix: &str, from: &Path) -> Option<PathBuf> {
    let text = files.text(file, MAX_LINK).ok()??;
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    linked(&text, prefix, from)
}

/// Returns the folder that a `.git` file or a `commondir` file names.
///
/// The prefix of a `.git` file is `gitdir: `.
#[must_use]
pub fn linked(text: &str, prefix: &str, from: &Path) -> Option<PathBuf> {
    let path = text.trim_end_matches(['\n', '\r']).strip_prefix(prefix)?;
    (!path.is_empty()).then(|| from.join(path))
}
