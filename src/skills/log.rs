//! Use counts: how often a skill was proposed and used.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chain::{Chains, plan};
use crate::trigger::{Match, Reason};
use helmdeck_forge_files::time::Time;

/// Maximum number of the best matches that are logged.
const MATCHES: usize = 20;
/// Maximum number of reasons that are logged for each match.
const REASONS: usize = 10;

/// One line in the journal: the skills that matched a query, or a skill that was activated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Logged {
    /// The skills that fired, best first; at most 20.
    pub matched: Vec<LoggedMatch>,
    /// The skills that were activated.
    pub activated: Vec<String>,
    /// The caller that queried or activated them.
    pub by: String,
}

/// A skill that fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedMatch {
    /// Its name.
    pub skill: String,
    /// Its points.
    pub score: u32,
    /// Where they came from; at most 10.
    pub reasons: Vec<Reason>,
}

impl Logged {
    /// Makes the line of a question.
    #[must_use]
    pub fn matched(found: &[Match], by: &str) -> Self {
        let matched = found.iter().filter(|found| found.fires).take(MATCHES).map(|found| LoggedMatch {
            skill: found.skill.clone(),
            score: found.score,
            reasons: found.reasons.iter().take(REASONS).cloned().collect(),
        });
        Self { matched: matched.collect(), activated: Vec::new(), by: by.to_owned() }
    }

    /// Makes the line of an activated skill.
    #[must_use]
    pub fn activated(skill: &str, by: &str) -> Self {
        Self { matched: Vec::new(), activated: vec![skill.to_owned()], by: by.to_owned() }
    }
}

/// How a skill has fared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stat {
    /// Its name.
    pub skill: String,
    /// How often it fired.
    pub matched: u64,
    /// How often it was activated.
    pub activated: u64,
    /// How often by whom.
    pub by: BTreeMap<String, u64>,
    /// When it last fired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_matched_at: Option<Time>,
    /// When it was last activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activated_at: Option<Time>,
}

/// Counts how skills have fared, by name. Skills that exist and never fired are counted too, with 0.
pub fn stats<'a>(
    names: impl IntoIterator<Item = &'a str>,
    lines: impl IntoIterator<Item = (Time, Logged)>,
) -> Vec<Stat> {
    let fresh = |name: &str| Stat {
        skill: name.to_owned(),
        matched: 0,
        activated: 0,
        by: BTreeMap::new(),
        last_matched_at: None,
        last_activated_at: None,
    };
    let mut all: BTreeMap<String, Stat> = names.into_iter().map(|name| (name.to_owned(), fresh(name))).collect();
    for (at, line) in lines {
        let fired: BTreeSet<String> = line.matched.into_iter().map(|found| found.skill).collect();
        for name in fired {
            let stat = all.entry(name).or_insert_with_key(|name| fresh(name));
            stat.matched += 1;
            stat.last_matched_at = stat.last_matched_at.max(Some(at));
        }
        for name in line.activated {
            let stat = all.entry(name).or_insert_with_key(|name| fresh(name));
            stat.activated += 1;
            *stat.by.entry(line.by.clone()).or_default() += 1;
            stat.last_activated_at = stat.last_activated_at.max(Some(at));
        }
    }
    all.into_values().collect()
}

/// Returns the skills that were chained to those that ran, but did not run.
///
/// The end of a session warns of them.
#[must_use]
pub fn not_run(chains: &Chains<'_>, ran: &BTreeSet<String>) -> Vec<String> {
    let asked: Vec<&str> = ran.iter().map(String::as_str).filter(|name| chains.contains_key(name)).collect();
    // A chain that cannot be planned is reported where skills are listed.
    let planned = plan(chains, &asked).unwrap_or_default();
    planned.into_iter().filter(|name| !ran.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dependencies, Kind};

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn found(skill: &str, score: u32) -> Match {
        let reason = Reason { kind: Kind::Keyword, trigger: "t".to_owned(), file: None, points: score };
        Match { skill: skill.to_owned(), score, fires: score >= 3, triggers: 1, reasons: vec![reason; 12] }
    }

    #[test]
    fn fired_and_used_are_counted_apart() {
        let lines = [
            (at(1), Logged::matched(&[found("a", 5), found("b", 3), found("c", 2)], "forge")),
            (at(3), Logged::matched(&[found("a", 5)], "forge")),
            (at(2), Logged::activated("a", "person")),
            (at(4), Logged::activated("gone", "agent")),
        ];
        let stats = stats(["a", "b", "c"], lines);
        let short: Vec<_> = stats.iter().map(|stat| (stat.skill.as_str(), stat.matched, stat.activated)).collect();
        assert_eq!(short, [("a", 2, 1), ("b", 1, 0), ("c", 0, 0), ("gone", 0, 1)]);
        assert_eq!((stats[0].last_matched_at, stats[0].last_activated_at), (Some(at(3)), Some(at(2))));
        assert_eq!(stats[0].by, BTreeMap::from([("person".to_owned(), 1)]));
    }

    #[test]
    fn a_line_is_bounded() {
        let many: Vec<Match> = (0..50).map(|n| found(&format!("s{n}"), 9)).collect();
        let line = Logged::matched(&many, "forge");
        assert_eq!((line.matched.len(), line.matched[0].reasons.len()), (20, 10));
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Logged>(&text).unwrap(), line);
    }

    #[test]
    fn a_chained_skill_that_did_not_run_is_told() {
        let review = Dependencies { requires: vec!["qa-review".to_owned()], ..Dependencies::default() };
        let none = Dependencies::default();
        let chains: Chains<'_> = [("code-generation", &review), ("qa-review", &none), ("git-workflow", &none)].into();
        let ran = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(not_run(&chains, &ran(&["code-generation", "removed"])), ["qa-review"]);
        assert_eq!(not_run(&chains, &ran(&["code-generation", "qa-review"])), [""; 0]);
        assert_eq!(not_run(&chains, &ran(&["git-workflow"])), [""; 0]);
    }
}
