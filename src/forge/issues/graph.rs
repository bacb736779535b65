//! Which issues wait for which.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Issue, Item};
use crate::error::{Error, Result};

/// The issues, and what is done.
pub(super) struct Graph<'a> {
    issues: HashMap<&'a str, &'a Issue>,
    done: HashSet<&'a str>,
}

impl<'a> Graph<'a> {
    /// Makes one of the open issues and the keys of the history.
    pub(super) fn new(issues: &'a [Issue], done: &'a [String]) -> Self {
        let mut all = HashMap::new();
        for issue in issues {
            if !issue.is_local() {
                all.extend(issue.earlier_keys().map(|key| (key, issue)));
            }
        }
        all.extend(issues.iter().map(|issue| (issue.linear_id.as_str(), issue)));
        Self {
            issues: all,
            done: done.iter().map(String::as_str).collect(),
        }
    }

    /// Says whether an issue is done. An unknown one is not: a tracker may have it.
    pub(super) fn is_done(&self, key: &str) -> bool {
        self.issues
            .get(key)
            .map_or_else(|| self.done.contains(key), |issue| issue.is_over())
    }

    /// Returns what an issue waits for.
    pub(super) fn waits_for(&self, issue: &Issue) -> Vec<String> {
        issue
            .blocked_by
            .iter()
            .filter(|key| !self.is_done(key))
            .cloned()
            .collect()
    }

    /// Returns an issue with its standing.
    pub(super) fn item(&self, issue: &Issue, claimed: &BTreeSet<String>) -> Item {
        let over = issue.is_over();
        let claimed = claimed.contains(&issue.linear_id);
        let waits_for = if over {
            Vec::new()
        } else {
            self.waits_for(issue)
        };
        let ready =
            !over && !claimed && waits_for.is_empty() && !issue.state_is(&["blocked", "deferred"]);
        Item {
            over,
            ready,
            waits_for,
            claimed,
            issue: issue.clone(),
        }
    }
}

/// Refuses issues that wait for themselves, through others or at once.
///
/// # Errors
/// `Usage` (`E_CYCLE`) with the circle.
pub(super) fn check_no_cycle(issues: &[Issue], key: &str) -> Result<()> {
    let waits: BTreeMap<&str, &[String]> = issues
        .iter()
        .map(|issue| (issue.linear_id.as_str(), issue.blocked_by.as_slice()))
        .collect();
    // The way from the key to each issue that was reached.
    let mut from: HashMap<&str, &str> = HashMap::new();
    let mut next = vec![key];
    while let Some(at) = next.pop() {
        for blocker in waits.get(at).copied().unwrap_or_default() {
            if blocker == key {
                let mut circle = vec![key, at];
                let mut here = at;
                while let Some(before) = from.get(here) {
                    circle.push(before);
                    here = before;
                }
                if circle.last() != Some(&key) {
                    circle.push(key);
                }
                circle.reverse();
                circle.dedup();
                let message = if circle.len() < 2 {
                    format!("{key} cannot wait for itself")
                } else {
                    format!(
                        "the issues would wait for each other: {}",
                        circle.join(" waits for ")
                    )
                };
                return Err(Error::new(
                    crate::error::Category::Usage,
                    "E_CYCLE",
                    message,
                ));
            }
            if !from.contains_key(blocker.as_str()) {
                from.insert(blocker, at);
                next.push(blocker);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(key: &str, blockers: &[&str]) -> Issue {
        let blocked_by = blockers.iter().map(|key| (*key).to_owned()).collect();
        Issue {
            linear_id: key.to_owned(),
            blocked_by,
            ..Issue::default()
        }
    }

    #[test]
    fn circles_are_refused_and_named() {
        let open = [
            issue("A-1", &["A-2", "A-3"]),
            issue("A-2", &["A-3"]),
            issue("A-3", &[]),
        ];
        assert_eq!(check_no_cycle(&open, "A-1"), Ok(()));
        let own = check_no_cycle(&[issue("A-1", &["A-1"])], "A-1").unwrap_err();
        assert_eq!(
            (own.code, own.message.as_str()),
            ("E_CYCLE", "A-1 cannot wait for itself")
        );
        let far = [
            issue("A-1", &["A-2"]),
            issue("A-2", &["A-3"]),
            issue("A-3", &["A-1"]),
        ];
        let far = check_no_cycle(&far, "A-1").unwrap_err();
        assert_eq!(
            far.message,
            "the issues would wait for each other: A-1 waits for A-2 waits for A-3 waits for A-1"
        );
        // A circle of others is not this issue's.
        let others = [
            issue("A-1", &["A-2"]),
            issue("A-2", &["A-3"]),
            issue("A-3", &["A-2"]),
        ];
        assert_eq!(check_no_cycle(&others, "A-1"), Ok(()));
    }

    #[test]
    fn open_unblocked_issues_are_ready() {
        let mut over = issue("A-4", &[]);
        over.state = Some("Done".to_owned());
        let all = [
            issue("A-1", &["A-2"]),
            issue("A-2", &["A-4", "A-9"]),
            issue("A-3", &["B-7"]),
            over,
        ];
        let done = ["A-9".to_owned()];
        let graph = Graph::new(&all, &done);
        let none = BTreeSet::new();
        let ready = |at: usize, claimed: &BTreeSet<String>| graph.item(&all[at], claimed).ready;
        assert_eq!(
            [0, 1, 2, 3].map(|at| ready(at, &none)),
            [false, true, false, false]
        );
        assert!(
            !ready(1, &BTreeSet::from(["A-2".to_owned()])),
            "another session works on it"
        );
        assert_eq!(
            graph.item(&all[2], &none).waits_for,
            ["B-7"],
            "an unknown issue is not done"
        );
    }
}
