//! Lookup of the project and the repository that a folder belongs to.
//!
//! Only folders are read; no program is run.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::has_forge;
use crate::error::{Category, Error, Result};
use crate::layout::FORGE;

/// The longest `.git` file, in bytes.
const MAX_LINK: u64 = 4_096;

/// Location of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundProject {
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

impl FoundProject {
    /// Finds the nearest `.forge/` at or above a folder, up to the root of its repository.
    ///
    /// Outside of a repository, the `.forge/` of another user is refused (`E_FOREIGN`).
    pub(crate) fn project(start: &Path) -> Result<Option<Self>> {
        let start = start
            .canonicalize()
            .map_err(|error| Error::io("cannot open", start, &error))?;
        let repository = Repository::find(&start)?;
        for folder in start.ancestors() {
            if has_forge(folder) {
                if repository.is_none() {
                    check_owner(&folder.join(FORGE))?;
                }
                let common_dir = repository.map(|repository| repository.common_dir);
                return Ok(Some(Self {
                    root: folder.to_owned(),
                    common_dir,
                }));
            }
            if repository
                .as_ref()
                .is_some_and(|repository| repository.root == folder)
            {
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
                // A folder of this name without a repository in it does not count.
                if !link.join("HEAD").exists() {
                    continue;
                }
                link
            } else {
                read_path(&link, "gitdir:", folder)?
            };
            let common = git_dir.join("commondir");
            let common_dir = if common.exists() {
                read_path(&common, "", &git_dir)?
            } else {
                git_dir.clone()
            };
            return Ok(Some(Self {
                root: folder.to_owned(),
                git_dir,
                common_dir,
            }));
        }
        Ok(None)
    }

    /// Says whether a folder is a bare repository, or is inside one.
    ///
    /// A work tree may itself be inside a bare repository.
    pub(crate) fn is_bare(start: &Path) -> bool {
        let bare = |folder: &Path| {
            ["HEAD", "objects", "refs"]
                .iter()
                .all(|name| folder.join(name).exists())
                && folder.join("config").is_file()
        };
        start
            .ancestors()
            .take_while(|folder| !folder.join(".git").exists())
            .any(bare)
    }
}

/// Refuses a `.forge/` folder that belongs to another user.
///
/// Its settings name programs to run. Outside of a repository nothing else checks the owner, and
/// anyone may put a folder into `/tmp`.
///
/// # Errors
/// `Refused` (`E_FOREIGN`) if it belongs neither to the user of this process nor to root.
fn check_owner(forge: &Path) -> Result<()> {
    let about =
        std::fs::metadata(forge).map_err(|error| Error::io("cannot open", forge, &error))?;
    is_foreign(about.uid(), rustix::process::geteuid().as_raw()).map_or(Ok(()), |owner| {
        let message = format!("{} belongs to another user ({owner})", forge.display());
        Err(Error::new(Category::Refused, "E_FOREIGN", message).hint(
            "what it says to run is not run: make it your own, or work in a repository of git",
        ))
    })
}

/// Returns the owner if it is foreign to a user.
fn is_foreign(owner: u32, user: u32) -> Option<u32> {
    (owner != user && owner != 0).then_some(owner)
}

/// Reads a file that holds the path of a folder.
fn read_path(file: &Path, prefix: &str, from: &Path) -> Result<PathBuf> {
    use std::io::Read as _;

    let io = |error| Error::io("cannot read", file, &error);
    let mut text = String::new();
    std::fs::File::open(file)
        .map_err(io)?
        .take(MAX_LINK)
        .read_to_string(&mut text)
        .map_err(io)?;
    let path = text
        .trim_end_matches(['\n', '\r'])
        .strip_prefix(prefix)
        .map(str::trim_start);
    let path = path.ok_or_else(|| io(std::io::Error::other("it names no folder")))?;
    from.join(path).canonicalize().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_is_foreign_if_neither_the_user_nor_root_owns_it() {
        assert_eq!(is_foreign(1000, 1000), None);
        assert_eq!(is_foreign(0, 1000), None);
        assert_eq!(is_foreign(1001, 1000), Some(1001));
        assert_eq!(is_foreign(1001, 0), Some(1001));
    }

    #[test]
    fn a_foreign_memory_is_refused_outside_of_a_repository() {
        let folder = tempfile::tempdir().unwrap();
        let (forge, below) = (folder.path().join(FORGE), folder.path().join("below"));
        std::fs::create_dir(&forge).unwrap();
        std::fs::create_dir(&below).unwrap();
        assert!(FoundProject::project(&below).unwrap().is_some());
        // Only root can give a folder away.
        if std::os::unix::fs::chown(&forge, Some(4_711), None).is_err() {
            return;
        }
        assert_eq!(FoundProject::project(&below).unwrap_err().code, "E_FOREIGN");
        // In a repository, git itself asks whose it is.
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        std::fs::write(folder.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert!(FoundProject::project(&below).unwrap().is_some());
    }
}
