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
use helmdeck_forge_documents::tracking::{Outbox, SyncState};

/// Maximum number of orphan commits that are named.
const NAMED: usize = 5;

/// Known issues: active and completed ones.
#[derive(Debug)]
pub(super) struct Known {
    keys: HashSet<String>,
    files: Option<Files>,
    /// Earlier keys of completed issues. They are read only if a commit has a key that is not
    /// known.
    aliases: OnceLock<HashSet<String>>,
    closing: Closing,
}

impl Known {
    /// Says whether a commit has a known issue, or needs none because a session made it at its end.
    pub(super) fn has(&self, message: &str) -> bool {
        message.starts_with("[session]")
            || message::keys(message)
                .iter()
                .any(|key| self.keys.contains(*key))
            || message::keys(message)
                .iter()
                .any(|key| key.starts_with("LOCAL-") && self.is_alias(key))
            || self
                .closing
                .keys(message)
                .iter()
                .any(|key| self.keys.contains(key))
    }

    fn is_alias(&self, key: &str) -> bool {
        let read = || {
            self.files
                .as_ref()
                .map(crate::issues::closed_aliases)
                .unwrap_or_default()
        };
        self.aliases.get_or_init(read).contains(key)
    }
}

/// Returns the known issues, and the inputs without what commits tell. `None` if issues are
/// switched off.
pub(super) fn read(project: &Project, files: &Files) -> (Option<Known>, Linear) {
    if project.config().linear.mode == LinearMode::Off {
        return (
            None,
            Linear {
                off: true,
                ..Linear::default()
            },
        );
    }
    let (mut active, mut file) = load::<Active>(files);
    // The issues with a file of their own.
    match crate::issues::read(files) {
        Ok(all) => file = Some(all),
        Err(error) if matches!(active, File::Valid | File::Absent) => {
            active = File::Damaged(error.message)
        }
        Err(_) => {}
    }
    let known = file.into_iter().flat_map(|file| file.issues);
    let mut keys: HashSet<String> = known
        .flat_map(|issue| {
            issue
                .earlier_keys()
                .map(str::to_owned)
                .chain([issue.linear_id.clone()])
                .collect::<Vec<_>>()
        })
        .collect();
    let done = files.list(layout::HISTORY).unwrap_or_default();
    keys.extend(done.iter().filter_map(|entry| {
        message::keys(&entry.name)
            .first()
            .map(|key| (*key).to_owned())
    }));
    // What cannot be read of the sync counts as nothing: `doctor` and `repair` report it.
    let state = load::<SyncState>(files).1.unwrap_or_default();
    let conflicts: HashSet<&String> = state.conflicts.iter().map(|one| &one.key).collect();
    let linear = Linear {
        active,
        outbox_failed: Outbox::read(files).unwrap_or_default().failed().count() as u64,
        conflicts: conflicts.len() as u64,
        pull_failed: state.failure.as_ref().map(|failure| failure.since),
        ..Linear::default()
    };
    let (files, closing) = (Some(files.clone()), Closing::of(project.config()));
    (
        Some(Known {
            keys,
            files,
            aliases: OnceLock::new(),
            closing,
        }),
        linear,
    )
}

/// Adds what the commits tell to the inputs.
pub(super) fn add_commits(linear: &mut Linear, found: &RepositoryFacts) {
    if !linear.off {
        linear.no_git = found.git.disabled || found.git.absent;
        linear.orphans = found.orphans.len() as u64;
        linear.orphan_commits = found.orphans.iter().take(NAMED).cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_keeps_needs_no_issue() {
        let keys = HashSet::from(["SX9-1".to_owned()]);
        let known = Known {
            keys,
            files: None,
            aliases: OnceLock::new(),
            closing: Closing::default(),
        };
        for has in ["[session] Session checkpoint\n", "feat: SX9-1 a thing\n"] {
            assert!(known.has(has), "{has}");
        }
        for lacks in [
            "chore: Something\n\nof the (session)\n",
            "feat(SX9-2): a thing\n",
            "",
        ] {
            assert!(!known.has(lacks), "{lacks}");
        }
    }
}
