//! Identity of a clone: a random id in its git folder, and the file that holds it.
//!
//! A copy of the folder has the same id in another file, so it is another clone. A clone that is
//! moved has the same file. Linked work trees share the id of their repository.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::OFlags;
use uuid::Uuid;

use crate::layout::LOCAL;
use crate::project::{Project, Repository};

/// Name of the file with the id, in the common git folder or, without git, in `.forge/.local`.
const FILE: &str = "helmdeck-clone";
/// Length of an id, in hexadecimal digits.
const DIGITS: usize = 32;

/// A clone.
pub(super) struct Clone {
    /// The folder that is shown to people.
    folder: PathBuf,
    /// The file with the id.
    file: PathBuf,
    /// Empty if the git folder is the project's own, else what tells apart the link that leads to
    /// it.
    link: String,
}

/// Identity of a clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The id.
    pub(super) id: String,
    /// What tells apart the file that holds it from a copy.
    pub(super) mark: String,
}

impl Clone {
    /// Finds the clone of a project. Its own settings have no say in it.
    pub(super) fn of(project: &Project) -> Self {
        if let Ok(Some(repository)) = Repository::find(project.root()) {
            let mut link = if is_own(&repository) {
                String::new()
            } else {
                mark(&repository.root.join(".git"))
            };
            // A folder with a `.forge` of its own, such as an unpacked dependency, is another
            // project.
            let roots = (
                repository.root.canonicalize(),
                project.root().canonicalize(),
            );
            if let (Ok(top), Ok(root)) = roots
                && let Ok(below) = root.strip_prefix(&top)
                && !below.as_os_str().is_empty()
            {
                link = format!("{link}\0{}", below.display());
            }
            return Self {
                file: repository.common_dir.join(FILE),
                folder: repository.common_dir,
                link,
            };
        }
        let local = project.root().join(LOCAL);
        let link = match fs::canonicalize(&local) {
            Ok(real) if real != local => mark(project.root()),
            _ => String::new(),
        };
        Self {
            folder: project.root().to_owned(),
            file: local.join(FILE),
            link,
        }
    }

    /// Returns where it is.
    pub(super) fn shown(&self) -> String {
        self.folder.display().to_string()
    }

    /// Returns its identity, if it has one.
    pub(super) fn identity(&self) -> Option<Identity> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(&self.file)
            .ok()?;
        let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let mut text = String::new();
        file.take(2 * DIGITS as u64)
            .read_to_string(&mut text)
            .ok()?;
        let id = text.trim_end();
        let is_id = id.len() == DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Identity {
            id: format!("{id}{}", self.link),
            mark: mark_of(&about),
        })
    }

    /// Gives it a new identity.
    pub(super) fn identify(&self) -> std::io::Result<Identity> {
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file)?;
        file.write_all(format!("{}\n", Uuid::now_v7().simple()).as_bytes())?;
        file.sync_all()?;
        self.identity()
            .ok_or_else(|| std::io::Error::other("another process wrote it"))
    }
}

/// Says whether a git folder belongs to the folder that leads to it.
///
/// An archive may hold a `.git` that is a link or names the repository of somebody else: then its
/// files are not that clone's. A linked work tree is known to its repository.
fn is_own(repository: &Repository) -> bool {
    let link = repository.root.join(".git");
    let (Ok(git_dir), Ok(common)) = (
        repository.git_dir.canonicalize(),
        repository.common_dir.canonicalize(),
    ) else {
        return false;
    };
    if git_dir == link {
        return common == git_dir;
    }
    let back = fs::read_to_string(git_dir.join("gitdir")).unwrap_or_default();
    // It may be relative.
    let back = git_dir
        .join(back.trim_end_matches(['\n', '\r']))
        .canonicalize();
    git_dir.parent() == Some(&common.join("worktrees")) && back.is_ok_and(|back| back == link)
}

fn mark(path: &Path) -> String {
    fs::symlink_metadata(path).map_or_else(|_| "?".to_owned(), |about| mark_of(&about))
}

/// Returns what a copy does not have: the number of the file, and when it was made, where the file
/// system knows it.
fn mark_of(about: &fs::Metadata) -> String {
    let made = about
        .created()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{}:{}", about.ino(), made.map_or(0, |made| made.as_nanos()))
}
