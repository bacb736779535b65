//! Finds the project and the repository a folder belongs to, by looking at folders only: no program is run.

use std::path::{Path, PathBuf};

use super::has_forge;
use crate::error::{Error, Result};

/// The longest `.git` file, in bytes.
const MAX_LINK: u64 = 4_096;

/// Where a project lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The folder that holds `.forge/`.
    pub(crate) root: PathBuf,
    /// The folder all work trees of the repository share, if there is one.
    pub(crate) common_dir: Option<PathBuf>,
}

/// A repository around a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The root of the work tree.
    pub(crate) root: PathBuf,
    /// What belongs to this work tree alone.
    pub(crate) git_dir: PathBuf,
    /// What all work trees share.
    pub(crate) common_dir: PathBuf,
}

impl Found {
    /// Finds the nearest `.forge/` at or above a folder, not above the root of its repository.
    pub(crate) fn project(start: &Path) -> Result<Option<Self>> {
        let start = start.canonicalize().map_err(|error| Error::io("cannot open", start, &error))?;
        let repository = Repository::find(&start)?;
        for folder in start.ancestors() {
            if has_forge(folder) {
                let common_dir = repository.map(|repository| repository.common_dir);
                return Ok(Some(Self { root: folder.to_owned(), common_dir }));
            }
            if repository.as_ref().is_some_and(|repository| repository.root == folder) {
                break;
            }
        }
        Ok(None)
    }
}

impl Repository {
    /// Finds the repository a folder belongs to.
    pub(crate) fn find(start: &Path) -> Result<Option<Self>> {
        for folder in start.ancestors() {
            let link = folder.join(".git");
            let Ok(about) = link.metadata() else { continue };
            let git_dir = if about.is_dir() {
                // A folder of this name that holds no repository is none.
                if !link.join("HEAD").exists() {
                    continue;
                }
                link
            } else {
                read_path(&link, "gitdir:", folder)?
            };
            let common = git_dir.join("commondir");
            let common_dir = if common.exists() { read_path(&common, "", &git_dir)? } else { git_dir.clone() };
            return Ok(Some(Self { root: folder.to_owned(), git_dir, common_dir }));
        }
        Ok(None)
    }

    /// Says whether a folder is a repository without a work tree, or lies in one.
    pub(crate) fn is_bare(start: &Path) -> bool {
        start.ancestors().any(|folder| {
            ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists()) && folder.join("config").is_file()
        })
    }
}

/// Reads a file that holds the path of a folder.
fn read_path(file: &Path, prefix: &str, from: &Path) -> Result<PathBuf> {
    use std::io::Read as _;

    let io = |error| Error::io("cannot read", file, &error);
    let mut text = String::new();
    std::fs::File::open(file).map_err(io)?.take(MAX_LINK).read_to_string(&mut text).map_err(io)?;
    let path = text.trim_end_matches(['\n', '\r']).strip_prefix(prefix).map(str::trim_start);
    let path = path.ok_or_else(|| io(std::io::Error::other("it names no folder")))?;
    from.join(path).canonicalize().map_err(io)
}
