//! Settings. Nothing here is read from the environment: the caller that starts the seam fills them
//! in.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// Default part of a budget reserved for the notes that come second, in percent.
const KEPT: u8 = 40;

/// A path that was given, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Where the setting comes from, for messages: `MEMORY_VAULT_PATH`.
    pub by: String,
    /// The path as it was given; blanks around it are dropped, and a `~` at its begin is the home
    /// folder.
    pub path: OsString,
}

/// How the words of a query are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryUse {
    /// Nothing: the argument is reserved.
    #[default]
    Reserved,
    /// Leaves out notes of the project without any of the words; those with most of them come
    /// first.
    Filter,
}

/// Settings of the seam.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeamConfig {
    /// The working directory of the process, absolute.
    ///
    /// Relative paths begin here. Empty = none; then only absolute paths are found.
    pub cwd: PathBuf,
    /// The home folder, if there is one.
    pub home: Option<PathBuf>,
    /// Candidates for the vault; the first that is not blank counts.
    ///
    /// They are `HELMDECK_MEMORY`, `MEMORY_ROOT`, `MEMORY_VAULT_PATH`, then the settings of
    /// helmdeck. One that names no folder is broken, and hides those after it: a wrong setting must
    /// show.
    pub vaults: Vec<Given>,
    /// The folder of `.agentm-config.json` (`AGENTM_INSTALL_PREFIX`); `~/.claude` if absent. It is
    /// asked when no vault is given.
    pub prefix: Option<PathBuf>,
    /// Whether that file is read. Default: yes.
    pub settings: bool,
    /// Budgets in tokens that take the place of those of the phases
    /// (`HARNESS_RECALL_BUDGET_<PHASE>`). Zero counts as none.
    pub budgets: BTreeMap<Phase, usize>,
    /// How a query is used.
    pub query: QueryUse,
    /// The part of a budget reserved for the notes that come second, in percent. Default 40.
    ///
    /// They are those of the project, or in the phase `documenter` those that are always loaded.
    /// More than 100 counts as 100.
    pub kept_percent: u8,
    /// Whether the long-term memory in `.forge/` is read too. It is by default.
    pub forge: bool,
    /// Whether a context without a folder means the project around [`Self::cwd`]: the nearest
    /// `.harness/` up to the root of the repository, else that root; outside of a repository, up to
    /// the home folder or a folder of another user, else [`Self::cwd`]. It does by default; else it
    /// means that folder itself.
    pub discover: bool,
}

impl SeamConfig {
    /// Makes the settings of a process that works in a folder: no home, no vault.
    pub fn new(cwd: impl Into<PathBuf>) -> Self {
        Self {
            cwd: cwd.into(),
            home: None,
            vaults: Vec::new(),
            prefix: None,
            settings: true,
            budgets: BTreeMap::new(),
            query: QueryUse::default(),
            kept_percent: KEPT,
            forge: true,
            discover: true,
        }
    }
}
