//! Health inputs from the issue mirror, and commits without an issue.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::load;
use super::repository::RepositoryFacts;
use crate::config::LinearMode;
use crate::files::Files;
use crate::git::closing::Closing;
use crate::git::message;
use crate::health::inputs::{File, Linear};
use crate::issues::Active;
use crate::layout;
use crate::project::Project;
use crate::time::Time;
use helmdeck_forge_documents::tracking::{Outbox, SyncState};

/// Maximum number of orphan commits that are named.
const NAMED: usize = 5;

/// Known issues: active and completed ones.
#[derive(Debug)]
pub(super) struct Known {
    keys: HashSet<String>,
    active: File,
    files: Option<Files>,
    /// Earlier keys of completed issues. They are read only if a commit has a key that is not known.
    aliases: OnceLock<HashSet<String>>,
    closing: Closing,
    sync: SyncFacts,
}

/// What the sync of this clone could not do.
#[derive(Debug, Default)]
struct SyncFacts {
    outbox_failed: u64,
    conflicts: u64,
    pull_failed: Option<Time>,
}

impl SyncFacts {
    /// Reads the files of the sync. What cannot be read counts as nothing: `doctor` and `repair` report it.
    fn read(files: &Files) -> Self {
        let outbox = Outbox::read(files).unwrap_or_default();
        let state = load::<SyncState>(files).1;
        let keys = |state: &SyncState| state.conflicts.iter().map(|one| one.key.clone()).collect::<HashSet<_>>().len();
        Self {
            outbox_failed: outbox.failed().count() as u64,
            conflicts: state.as_ref().map_or(0, |state| keys(state) as u64),
            pull_failed: state.and_then(|state| state.failure).map(|failure| failure.since),
        }
    }
}

impl Known {
    /// Says whether a commit has a known issue, or needs none because a session made it at its end.
    pub(super) fn has(&self, message: &str) -> bool {
        // Parsing a whole message is slower than searching for a word.
        let of_session = || {
            let messages = message::parse(message).messages;
            !messages.is_empty() && messages.iter().all(|message| message.scope == message::Scope::Session)
        };
        message.starts_with("[session]")
            || message::keys(message).iter().any(|key| self.keys.contains(*key))
            || message::keys(message).iter().any(|key| key.starts_with("LOCAL-") && self.is_alias(key))
            || self.closing.keys(message).iter().any(|key| self.keys.contains(key))
            || message.contains("(session)") && of_session()
    }

    fn is_alias(&self, key: &str) -> bool {
        let read = || self.files.as_ref().map(crate::issues::closed_aliases).unwrap_or_default();
        self.aliases.get_or_init(read).contains(key)
    }
}

/// Returns the known issues; `None` if issues are switched off.
pub(super) fn known(project: &Project, files: &Files) -> Option<Known> {
    if project.config().linear.mode == LinearMode::Off {
        return None;
    }
    let (mut active, mut file) = load::<Active>(files);
    // The issues with a file of their own.
    match crate::issues::read(files) {
        Ok(all) => file = Some(all),
        Err(error) if matches!(active, File::Valid | File::Absent) => active = File::Damaged(error.message),
        Err(_) => {}
    }
    let known = file.into_iter().flat_map(|file| file.issues);
    let mut keys: HashSet<String> =
        known.flat_map(|issue| issue.aliases.into_iter().chain([issue.linear_id])).collect();
    let done = files.list(layout::HISTORY).unwrap_or_default();
    keys.extend(done.iter().filter_map(|entry| message::keys(&entry.name).first().map(|key| (*key).to_owned())));
    let sync = SyncFacts::read(files);
    Some(Known {
        keys,
        active,
        files: Some(files.clone()),
        aliases: OnceLock::new(),
        closing: Closing::of(project.config()),
        sync,
    })
}

/// Returns the inputs from the issue mirror and the commits.
pub(super) fn linear(known: Option<Known>, found: &RepositoryFacts) -> Linear {
    let Some(known) = known else { return Linear { off: true, ..Linear::default() } };
    Linear {
        no_git: found.git.disabled || found.git.absent,
        active: known.active,
        outbox_failed: known.sync.outbox_failed,
        conflicts: known.sync.conflicts,
        pull_failed: known.sync.pull_failed,
        orphans: found.orphans.len() as u64,
        orphan_commits: found.orphans.iter().take(NAMED).cloned().collect(),
        ..Linear::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_keeps_needs_no_issue_in_either_style() {
        let keys = HashSet::from(["SX9-1".to_owned()]);
        let sync = SyncFacts::default();
        let known = Known {
            keys,
            active: File::default(),
            files: None,
            aliases: OnceLock::new(),
            closing: Closing::default(),
            sync,
        };
        for has in ["[session] Session checkpoint\n", "chore(session): Session checkpoint\n", "feat: SX9-1 a thing\n"] {
            assert!(known.has(has), "{has}");
        }
        for lacks in ["chore: Something\n\nof the (session)\n", "feat(SX9-2): a thing\n", ""] {
            assert!(!known.has(lacks), "{lacks}");
        }
    }
}
