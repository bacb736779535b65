//! Counts rows of the audit.
//!
//! Ties are broken by the content of the rows, so their order makes no difference.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use helmdeck_core::{PackName, Timestamp, Version};

use super::{CommonFinding, Defaults, PackUse, RecentCall};
use crate::audit::AuditRow;

/// Limit of shown packs.
const MAX_PACKS: usize = 12;
/// Limit of shown findings.
const MAX_FINDINGS: usize = 20;
/// Limit of shown calls.
const MAX_RECENT: usize = 200;
/// Outcome of a successful call.
const OK: &str = "ok";

/// Counts so far.
#[derive(Debug, Default)]
pub(super) struct Habits {
    packs: BTreeMap<PackName, Uses>,
    findings: BTreeMap<String, Seen>,
    recent: Vec<RecentCall>,
}

#[derive(Debug, Default)]
struct Uses {
    calls: u64,
    last: Option<Timestamp>,
    /// How often each value of each input was given.
    inputs: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Seen {
    count: u64,
    /// The latest, and of two at the same time the pack and severity that sort first.
    last: (Timestamp, Reverse<PackName>, Reverse<String>),
}

impl Habits {
    pub(super) const fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// Counts a row.
    pub(super) fn add(&mut self, pack: &PackName, version: Version, at: Timestamp, row: AuditRow) {
        for finding in row.findings {
            let last = (at, Reverse(pack.clone()), Reverse(finding.severity));
            match self.findings.get_mut(&finding.code) {
                Some(seen) => {
                    seen.count += 1;
                    if last > seen.last {
                        seen.last = last;
                    }
                }
                None => {
                    self.findings.insert(finding.code, Seen { count: 1, last });
                }
            }
        }
        let text =
            |value: serde_json::Value| if let serde_json::Value::String(text) = value { Some(text) } else { None };
        let inputs: BTreeMap<String, String> =
            row.inputs.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect();
        if row.outcome == OK {
            let uses = self.packs.entry(pack.clone()).or_default();
            uses.calls += 1;
            uses.last = uses.last.max(Some(at));
            for (name, value) in &inputs {
                *uses.inputs.entry(name.clone()).or_default().entry(value.clone()).or_default() += 1;
            }
        }
        self.recent.push(RecentCall {
            pack: pack.clone(),
            version,
            outcome: row.outcome.into_owned(),
            at,
            duration_ms: row.duration_us / 1000,
            cache: row.cache.map(std::borrow::Cow::into_owned),
            inputs,
        });
        if self.recent.len() >= 8 * MAX_RECENT {
            self.keep_newest();
        }
    }

    fn keep_newest(&mut self) {
        self.recent.sort_by(|a, b| {
            let key = |call: &RecentCall| (Reverse(call.at), call.pack.clone(), call.version, call.outcome.clone());
            key(a)
                .cmp(&key(b))
                .then_with(|| (a.duration_ms, &a.cache, &a.inputs).cmp(&(b.duration_ms, &b.cache, &b.inputs)))
        });
        self.recent.truncate(MAX_RECENT);
    }

    /// Returns the summary.
    pub(super) fn finish(mut self) -> Defaults {
        self.keep_newest();
        let mut packs: Vec<PackUse> = self.packs.into_iter().map(|(pack, uses)| uses.of(pack)).collect();
        packs.sort_by_key(|of| (Reverse(of.calls), Reverse(of.last_used), of.pack.clone()));
        packs.truncate(MAX_PACKS);
        let mut findings: Vec<CommonFinding> = self.findings.into_iter().map(|(code, seen)| seen.of(code)).collect();
        findings.sort_by_key(|of| (Reverse(of.occurrence_count), of.code.clone()));
        findings.truncate(MAX_FINDINGS);
        Defaults { packs, common_findings: findings, recent: self.recent, ..Defaults::default() }
    }
}

impl Uses {
    fn of(self, pack: PackName) -> PackUse {
        let most = |values: BTreeMap<String, u64>| {
            let most = values.into_iter().max_by_key(|(value, count)| (*count, Reverse(value.clone())));
            most.map(|(value, _)| value)
        };
        PackUse {
            pack,
            calls: self.calls,
            last_used: self.last.unwrap_or_default(),
            common_inputs: self.inputs.into_iter().filter_map(|(name, values)| Some((name, most(values)?))).collect(),
        }
    }
}

impl Seen {
    fn of(self, code: String) -> CommonFinding {
        let (last_seen, Reverse(pack), Reverse(severity)) = self.last;
        CommonFinding { code, pack, severity, occurrence_count: self.count, last_seen }
    }
}
