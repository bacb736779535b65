//! Order in which chained skills run.

use std::collections::{BTreeMap, BTreeSet};

use crate::skill::Dependencies;

/// Skills by name, with what each is chained to.
pub type Chains<'a> = BTreeMap<&'a str, &'a Dependencies>;

/// Returns the skills to run for one skill, in the order of running.
///
/// These are its `before`, the skill itself, its `requires` and its `after`, and so on for each of
/// those. Each skill comes once, after all that must run before it. Skills that are not chained
/// keep the order in which they were found. Those that do not exist, or wait for one another, are
/// left out: [`crate::scan`] reports them.
#[must_use]
pub fn plan(chains: &Chains<'_>, skill: &str) -> Vec<String> {
    let mut found: Vec<&str> = chains
        .get_key_value(skill)
        .map(|(name, _)| *name)
        .into_iter()
        .collect();
    let mut at = 0;
    while let Some(own) = found.get(at).and_then(|name| chains.get(name)) {
        for other in own.before.iter().chain(&own.requires).chain(&own.after) {
            if let Some((other, _)) = chains.get_key_value(other.as_str())
                && !found.contains(other)
            {
                found.push(other);
            }
        }
        at += 1;
    }
    let pairs: Vec<_> = pairs(chains)
        .into_iter()
        .filter(|(_, after)| found.contains(after))
        .collect();
    let mut order = Vec::new();
    let is_ready = |skill: &str, waiting: &[&str]| {
        pairs
            .iter()
            .all(|(before, after)| *after != skill || !waiting.contains(before))
    };
    while let Some(at) = found.iter().position(|skill| is_ready(skill, &found)) {
        order.push(found.remove(at).to_owned());
    }
    order
}

/// Returns pairs of skills that exist, of which the first runs before the second.
fn pairs<'a>(chains: &Chains<'a>) -> BTreeSet<(&'a str, &'a str)> {
    let mut pairs = BTreeSet::new();
    for (skill, own) in chains {
        let known = |other: &String| {
            chains
                .get_key_value(other.as_str())
                .map(|(other, _)| *other)
        };
        pairs.extend(
            own.before
                .iter()
                .filter_map(known)
                .map(|before| (before, *skill)),
        );
        pairs.extend(
            own.requires
                .iter()
                .chain(&own.after)
                .filter_map(known)
                .map(|after| (*skill, after)),
        );
    }
    pairs
}

/// Returns the skills that are on a circle, or lead into one.
#[must_use]
pub(crate) fn circles<'a>(chains: &Chains<'a>) -> BTreeSet<&'a str> {
    let pairs = pairs(chains);
    // A node without successors is not on a cycle. Such nodes are removed until none is left.
    let mut left: BTreeSet<&str> = chains.keys().copied().collect();
    loop {
        let open: BTreeSet<&str> = pairs
            .iter()
            .filter(|(_, after)| left.contains(after))
            .map(|(before, _)| *before)
            .collect();
        let before = left.len();
        left.retain(|skill| open.contains(skill));
        if left.len() == before {
            return left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(requires: &[&str], before: &[&str], after: &[&str]) -> Dependencies {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Dependencies {
            requires: own(requires),
            before: own(before),
            after: own(after),
        }
    }

    fn check(all: &[(&'static str, Dependencies)], skill: &str) -> Vec<String> {
        plan(&all.iter().map(|(name, own)| (*name, own)).collect(), skill)
    }

    #[test]
    fn required_skill_runs_after() {
        let all = [
            ("code-generation", dependencies(&["qa-review"], &[], &[])),
            ("qa-review", dependencies(&[], &[], &[])),
            ("git-workflow", dependencies(&[], &["qa-review"], &[])),
            (
                "whole",
                dependencies(&["a"], &["git-workflow", "absent"], &["b", "absent"]),
            ),
            ("a", dependencies(&[], &[], &["b"])),
            ("b", dependencies(&[], &[], &[])),
        ];
        assert_eq!(
            check(&all, "code-generation"),
            ["code-generation", "qa-review"]
        );
        assert_eq!(check(&all, "git-workflow"), ["qa-review", "git-workflow"]);
        assert_eq!(
            check(&all, "whole"),
            ["qa-review", "git-workflow", "whole", "a", "b"]
        );
        assert_eq!(check(&all, "absent"), [""; 0]);
    }

    #[test]
    fn circles_are_found_and_left_out() {
        let all = [
            ("a", dependencies(&["b"], &[], &[])),
            ("b", dependencies(&["c"], &[], &[])),
            ("c", dependencies(&[], &[], &["a"])),
            ("into", dependencies(&["a"], &[], &[])),
            ("free", dependencies(&[], &[], &[])),
            ("lost", dependencies(&["nobody"], &[], &[])),
            ("self", dependencies(&["self"], &[], &[])),
        ];
        assert_eq!(check(&all, "lost"), ["lost"]);
        assert_eq!(check(&all, "into"), ["into"]);
        let chains: Chains<'_> = all.iter().map(|(name, own)| (*name, own)).collect();
        assert_eq!(
            circles(&chains).into_iter().collect::<Vec<_>>(),
            ["a", "b", "c", "into", "self"]
        );
    }
}
