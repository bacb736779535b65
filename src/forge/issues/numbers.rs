//! Numbers of local issues, `LOCAL-1`, and the block in which a clone counts.
//!
//! The clone in which the project began counts from 1. Each other clone counts in a block of its own, so that two
//! people who work offline do not give one key to two issues, or one id to two features.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::LOCAL;
use crate::layout;
use crate::project::Project;
use crate::shared;

/// Name of the file, below the folder shared by all work trees.
const FILE: &str = "forge/issue-numbers.json";
/// Size of the block of a clone.
pub(crate) const BLOCK: u64 = 1_000;
/// Number of blocks. The first is that of the clone in which the project began.
const BLOCKS: u64 = 9_999;

/// The numbers of this clone.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Numbers {
    /// The number before the first one of this clone.
    base: u64,
    /// The highest number that was given.
    highest: u64,
    #[serde(skip)]
    path: Option<PathBuf>,
    /// Whether they were just made.
    #[serde(skip)]
    is_new: bool,
}

impl Numbers {
    /// Reads the numbers. To assign one, hold the common lock until they are written.
    pub(super) fn read(project: &Project) -> Self {
        let path = match project.git() {
            Ok(git) => git.common_dir().join(FILE),
            Err(_) => project.root().join(layout::LOCAL).join("issue-numbers.json"),
        };
        let read: Option<Self> = shared::read(&path).and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let numbers = read.unwrap_or_else(|| {
            let base = if is_first(project) { 0 } else { block(project) * BLOCK };
            Self { base, highest: base, path: None, is_new: true }
        });
        Self { path: Some(path), ..numbers }
    }

    /// Returns the next key that none of these have.
    pub(super) fn next_key<'a>(&mut self, used: impl Iterator<Item = &'a str>) -> String {
        let mine = self.base..self.base.saturating_add(BLOCK);
        let used = used.filter_map(number).filter(|number| self.base == 0 || mine.contains(number));
        // The first clone counts below the blocks of the others as long as it can.
        let used = used.filter(|number| self.base != 0 || *number < BLOCK || self.highest >= BLOCK);
        self.highest = used.chain([self.highest]).max().unwrap_or(self.base).saturating_add(1);
        format!("{LOCAL}-{}", self.highest)
    }

    /// Writes the numbers, durably and atomically.
    pub(super) fn write(&self) {
        let Some(path) = &self.path else { return };
        let write = || shared::write(path, &serde_json::to_vec(self)?);
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "the highest number of an issue is not kept");
        }
    }
}

/// Returns the number before the first one of this clone.
///
/// Features and checkpoints count from it too. The common lock is held.
pub(crate) fn base(project: &Project) -> u64 {
    let numbers = Numbers::read(project);
    if numbers.is_new {
        numbers.write();
    }
    numbers.base
}

/// Records that the project begins in this clone: its local keys count from 1.
///
/// # Errors
/// `Locked`.
pub(crate) fn begin(project: &Project) -> crate::error::Result<()> {
    let _common = project.common_lock()?;
    let numbers = Numbers::read(project);
    if numbers.highest == numbers.base {
        Numbers { base: 0, highest: 0, ..numbers }.write();
    }
    Ok(())
}

/// Says whether the project began in this clone: then its memory is not committed, or has no remote.
fn is_first(project: &Project) -> bool {
    project.git().map_or(true, |git| git.remotes().is_ok_and(|remotes| remotes.is_empty()))
}

/// Returns the block of this clone, from 1: one of which no issue is known here.
fn block(project: &Project) -> u64 {
    let active = super::store::read(project.files()).map(|active| active.issues).unwrap_or_default();
    let done = super::history::keys(project.files()).unwrap_or_default();
    let keys = active.iter().map(|issue| issue.linear_id.as_str()).chain(done.iter().map(String::as_str));
    let used: BTreeSet<u64> = keys.filter_map(number).map(|number| number / BLOCK).collect();
    let random = project.environment().uuid().as_u128();
    // The low bits of an id of version 7 are random.
    let first = u64::try_from(random & 0xffff_ffff).unwrap_or_default();
    let mut blocks = (0..BLOCKS).map(|next| 1 + first.wrapping_add(next) % BLOCKS);
    blocks.find(|block| !used.contains(block)).unwrap_or(1)
}

fn number(key: &str) -> Option<u64> {
    key.strip_prefix(LOCAL)?.strip_prefix('-')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once() {
        let mut first = Numbers::default();
        assert_eq!(first.next_key(["LOCAL-2", "SX9-7", "LOCAL-412001"].into_iter()), "LOCAL-3");
        assert_eq!(first.next_key(std::iter::empty()), "LOCAL-4", "one that was removed is not given again");
        let mut other = Numbers { base: 412_000, highest: 412_000, ..Numbers::default() };
        assert_eq!(other.next_key(["LOCAL-2", "LOCAL-9000001"].into_iter()), "LOCAL-412001");
        assert_eq!(other.next_key(["LOCAL-412007"].into_iter()), "LOCAL-412008");
    }
}
