//! The operator's settings for git and repositories.

use std::path::{Path, PathBuf};

use helmdeck_core::caller::Glob;

/// Settings of the packs that use repositories.
#[derive(Debug, Clone)]
pub struct Config {
    /// The git program: a path, or a name in the search path; `git` by default.
    pub program: PathBuf,
    /// The search path for git and ssh; `/usr/local/bin:/usr/bin:/bin` by default.
    pub path: String,
    /// Path of this program, which ssh starts as `<program> __connect` to use the egress proxy.
    ///
    /// Without it ssh cannot be used.
    pub connect: Option<PathBuf>,
    /// The file with the keys of known hosts for ssh; `None` uses only the system's file.
    pub known_hosts: Option<PathBuf>,
    /// The repositories of this machine that may be used; none by default.
    pub paths: Paths,
    /// Hosts that a credential without its own host list may be sent to; `github.com` by default.
    pub credential_hosts: Vec<Glob>,
    /// The size limit for the clean copy of one repository, in bytes; 4 GiB by default.
    pub max_bytes: u64,
    /// The name of the committer; `helmdeck` by default.
    pub author_name: String,
    /// The email address of the committer; `helmdeck@localhost` by default.
    pub author_email: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            program: "git".into(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            connect: None,
            known_hosts: None,
            paths: Paths::Below(Vec::new()),
            credential_hosts: "github.com".parse().into_iter().collect(),
            max_bytes: 4 << 30,
            author_name: "helmdeck".to_owned(),
            author_email: "helmdeck@localhost".to_owned(),
        }
    }
}

/// The folders of this machine that may be used as repositories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paths {
    /// All that this process can read, for a caller with the same access.
    All,
    /// These and the folders below them.
    Below(Vec<PathBuf>),
}

impl Paths {
    /// Returns whether a folder, with its links resolved, may be used.
    pub(super) fn allow(&self, folder: &Path) -> bool {
        match self {
            Self::All => true,
            Self::Below(folders) => folders
                .iter()
                .filter_map(|allowed| allowed.canonicalize().ok())
                .any(|allowed| folder.starts_with(allowed)),
        }
    }
}
