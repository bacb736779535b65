//! The use log, before it is written: counts by credential, caller, pack and day.

use parking_lot::Mutex;
use std::collections::HashMap;

use helmdeck_core::{Identity, PackName, Timestamp};
use helmdeck_system::vault::VaultUse;

/// Most rows that wait to be written; more go to the log of the process only.
const MOST_WAITING: usize = 65_536;
const DAY_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<HashMap<UseKey, Count>>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct UseKey {
    name: String,
    tenant: String,
    subject: String,
    pack: String,
    day: i64,
}

#[derive(Debug, Default)]
struct Count {
    granted: u64,
    refused: u64,
    last_at: Timestamp,
}

impl Uses {
    /// Counts one use, or one refusal.
    pub(crate) fn note(
        &self,
        name: &str,
        identity: &Identity,
        pack: &PackName,
        granted: bool,
        now: Timestamp,
    ) {
        let line = UseKey {
            name: name.to_owned(),
            tenant: identity.tenant().to_owned(),
            subject: identity.user().to_owned(),
            pack: pack.to_string(),
            day: now.micros().div_euclid(DAY_MICROS),
        };
        self.add(
            line,
            Count {
                granted: u64::from(granted),
                refused: u64::from(!granted),
                last_at: now,
            },
        );
    }

    /// Takes all waiting lines.
    pub(crate) fn take(&self) -> Vec<VaultUse> {
        let waiting = std::mem::take(&mut *self.0.lock());
        let uses = waiting.into_iter().map(|(line, count)| VaultUse {
            name: line.name,
            tenant: line.tenant,
            subject: line.subject,
            pack: line.pack,
            day: line.day,
            granted: count.granted,
            refused: count.refused,
            last_at: count.last_at,
        });
        uses.collect()
    }

    /// Puts back lines that could not be written.
    pub(crate) fn put_back(&self, uses: Vec<VaultUse>) {
        for entry in uses {
            let VaultUse {
                name,
                tenant,
                subject,
                pack,
                day,
                granted,
                refused,
                last_at,
            } = entry;
            self.add(
                UseKey {
                    name,
                    tenant,
                    subject,
                    pack,
                    day,
                },
                Count {
                    granted,
                    refused,
                    last_at,
                },
            );
        }
    }

    fn add(&self, line: UseKey, count: Count) {
        let mut waiting = self.0.lock();
        if waiting.len() >= MOST_WAITING && !waiting.contains_key(&line) {
            tracing::warn!(
                credential = line.name,
                pack = line.pack,
                "the use log is full; a use is not written"
            );
            return;
        }
        let known = waiting.entry(line).or_default();
        known.granted += count.granted;
        known.refused += count.refused;
        known.last_at = known.last_at.max(count.last_at);
    }
}
