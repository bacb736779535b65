//! Decides which packs are listed: those whose needs are met.
//!
//! The decision is part of the registry's snapshot, so neither a call nor a list checks anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Check, Need, PackName};
use helmdeck_events::EventKind;

use super::inner::Inner;
use crate::entry::PackEntry;
use crate::registry::Snapshot;

/// Interval of the checks in a server.
const INTERVAL: Duration = Duration::from_secs(1);
/// What packs wait for if gate 1 is shut.
const NO_KEY: &str = "a memory key: run `helmdeck init --memory`, or set HELMDECK_MEMORY_KEY";

impl Inner {
    /// Returns the packs that wait for something. Packs of a family share their check, which runs
    /// once.
    pub(super) fn waiting(&self, snapshot: &Snapshot) -> BTreeMap<PackName, &'static str> {
        let mut done: Vec<(&Check, Option<&'static str>)> = Vec::new();
        let no_key = self.memory.is_none() && self.no_memory == NoMemory::Off;
        let mut waiting = BTreeMap::new();
        for (name, versions) in &snapshot.packs {
            let missing = match versions.last().map(|pack| &pack.need) {
                None | Some(Need::Nothing) => None,
                Some(Need::Memory) => no_key.then_some(NO_KEY),
                Some(Need::Check(check)) => {
                    match done.iter().find(|(known, _)| Arc::ptr_eq(known, check)) {
                        Some((_, found)) => *found,
                        None => {
                            let found = check();
                            done.push((check, found));
                            found
                        }
                    }
                }
            };
            waiting.extend(missing.map(|missing| (name.clone(), missing)));
        }
        waiting
    }

    /// Repeats the checks until the engine stops, if any pack has one.
    pub(super) fn watch_needs(self: &Arc<Self>) {
        if !self
            .builtins
            .iter()
            .any(|builtin| matches!(builtin.need, Need::Check(_)))
        {
            return;
        }
        let (inner, stop) = (Arc::downgrade(self), self.stop.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Some(inner) = inner.upgrade() else { return };
                // Checks look at files, which blocks.
                let _ = tokio::task::spawn_blocking(move || inner.check_needs()).await;
            }
        }));
    }

    /// Runs the checks again, and replaces the snapshot if a pack appears or disappears.
    fn check_needs(&self) {
        let _loading = self.loading.lock();
        let previous = self.registry.snapshot();
        let waiting = self.waiting(&previous);
        if waiting != previous.waiting {
            self.replace(
                &previous,
                Snapshot {
                    waiting,
                    ..(*previous).clone()
                },
            );
        }
    }

    /// Replaces the registry's snapshot, and publishes which packs appeared in the list, changed,
    /// or disappeared.
    pub(super) fn replace(&self, previous: &Snapshot, next: Snapshot) {
        let (before, after) = (listed(previous), listed(&next));
        self.registry.replace(next);
        let find = |packs: &[Arc<PackEntry>], pack: &PackEntry| -> Option<Arc<PackEntry>> {
            packs
                .iter()
                .find(|other| other.name == pack.name && other.version == pack.version)
                .cloned()
        };
        for pack in &after {
            if !find(&before, pack).is_some_and(|before| before.same_contract(pack)) {
                self.events.publish(EventKind::PackRegistered {
                    pack: pack.name.clone(),
                    version: pack.version,
                });
            }
        }
        for pack in before.iter().filter(|pack| find(&after, pack).is_none()) {
            self.events.publish(EventKind::PackRemoved {
                pack: pack.name.clone(),
                version: pack.version,
            });
        }
    }
}

/// Returns the listed packs in all versions.
fn listed(snapshot: &Snapshot) -> Vec<Arc<PackEntry>> {
    let listed = snapshot
        .packs
        .iter()
        .filter(|(name, _)| !snapshot.waiting.contains_key(*name));
    listed.flat_map(|(_, versions)| versions).cloned().collect()
}
