//! What the operator says about git and repositories.

use std::path::{Path, PathBuf};

use helmdeck_core::caller::Glob;

/// Settings of the `repo.*` packs, and of whatever else works on repositories.
#[derive(Debug, Clone)]
pub struct Config {
    /// The git program: a path, or a name that is looked for in `path`. `git` unless said otherwise.
    pub program: PathBuf,
    /// The search path that git and ssh get; `/usr/local/bin:/usr/bin:/bin` unless said otherwise.
    pub path: String,
    /// This program, which ssh starts as `<program> __connect` to get out through the guard; without it ssh cannot be used.
    pub connect: Option<PathBuf>,
    /// The file with the keys of hosts that ssh may talk to; that of the system alone if there is none.
    pub known_hosts: Option<PathBuf>,
    /// Which repositories of this machine may be used; none unless said otherwise.
    pub paths: Paths,
    /// Hosts that a credential may be sent to which is itself bound to none; `github.com` unless said otherwise.
    pub credential_hosts: Vec<Glob>,
    /// The most bytes that the clean copy of one repository may have; 4 GiB unless said otherwise.
    pub max_bytes: u64,
    /// Who commits; `helmdeck` unless said otherwise.
    pub author_name: String,
    /// The address of who commits; `helmdeck@localhost` unless said otherwise.
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

/// Which folders of this machine may be used as repositories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paths {
    /// All that this process can read: for a caller who can read them anyway.
    All,
    /// These and what is below them.
    Below(Vec<PathBuf>),
}

impl Paths {
    /// Says whether a folder, with its links resolved, may be used.
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
