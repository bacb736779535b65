//! Order in which chained skills run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::manifest::Dependencies;
use helmdeck_forge_files::error::{Category, Error, Result};

/// Skills by name, with what each is chained to.
pub type Chains<'a> = BTreeMap<&'a str, &'a Dependencies>;

/// Returns the skills to run for the requested ones, in the order of running.
///
/// For each skill these are its `before`, the skill itself, its `requires` and its `after`, and so on for each of
/// those. Each skill comes once, after all that must run before it. Skills that are not chained keep the order in
/// which they were found.
///
/// # Errors
/// `NotFound` if a requested or required skill does not exist, `Refused` if the order is a cycle.
pub fn plan(chains: &Chains<'_>, asked: &[&str]) -> Result<Vec<String>> {
    let mut found: Vec<&str> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut later: BTreeSet<(usize, usize)> = BTreeSet::new();
    for skill in asked {
        let (skill, _) = chains.get_key_value(skill).ok_or_else(|| Error::not_found(format!("no skill {skill:?}")))?;
        if known.insert(skill) {
            found.push(skill);
        }
    }
    let mut at = 0;
    while let Some(skill) = found.get(at).copied() {
        let Some(own) = chains.get(skill) else { break };
        if let Some(missing) = own.requires.iter().find(|other| !chains.contains_key(other.as_str())) {
            let message = format!("the skill {skill:?} requires {missing:?}, which does not exist");
            return Err(Error::not_found(message));
        }
        for other in own.before.iter().chain(&own.requires).chain(&own.after) {
            if let Some((other, _)) = chains.get_key_value(other.as_str())
                && known.insert(other)
            {
                found.push(other);
            }
        }
        at += 1;
    }
    let places: HashMap<&str, usize> = found.iter().enumerate().map(|(at, skill)| (*skill, at)).collect();
    let place = |skill: &String| places.get(skill.as_str()).copied();
    for (at, skill) in found.iter().enumerate() {
        let Some(own) = chains.get(skill) else { continue };
        later.extend(own.before.iter().filter_map(place).map(|before| (before, at)));
        later.extend(own.requires.iter().chain(&own.after).filter_map(place).map(|after| (at, after)));
    }
    let mut waits = vec![0_usize; found.len()];
    for (_, after) in &later {
        waits[*after] += 1;
    }
    let mut ready: BTreeSet<usize> = (0..found.len()).filter(|at| waits[*at] == 0).collect();
    let mut order = Vec::new();
    while let Some(at) = ready.pop_first() {
        order.push(found[at].to_owned());
        for (_, after) in later.range((at, 0)..=(at, usize::MAX)) {
            waits[*after] -= 1;
            if waits[*after] == 0 {
                ready.insert(*after);
            }
        }
    }
    if order.len() < found.len() {
        let circle: Vec<&str> = found.iter().copied().filter(|skill| !order.iter().any(|done| done == skill)).collect();
        let message = format!("these skills wait for one another: {}", circle.join(", "));
        return Err(Error::new(Category::Refused, "E_CYCLE", message)
            .hint("take one of them out of `requires`, `before` or `after`"));
    }
    Ok(order)
}

/// Returns the skills that are on a circle, or lead into one.
#[must_use]
pub fn circles<'a>(chains: &Chains<'a>) -> BTreeSet<&'a str> {
    let mut later: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (skill, own) in chains {
        let known = |other: &String| chains.get_key_value(other.as_str()).map(|(other, _)| *other);
        later.extend(own.before.iter().filter_map(known).map(|before| (before, *skill)));
        later.extend(own.requires.iter().chain(&own.after).filter_map(known).map(|after| (*skill, after)));
    }
    // A node without successors is not on a cycle. Such nodes are removed until none is left.
    let mut left: BTreeSet<&str> = chains.keys().copied().collect();
    loop {
        let open: BTreeSet<&str> =
            later.iter().filter(|(_, after)| left.contains(after)).map(|(before, _)| *before).collect();
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
        Dependencies { requires: own(requires), before: own(before), after: own(after) }
    }

    fn check(all: &[(&'static str, Dependencies)], asked: &[&str]) -> Result<Vec<String>> {
        plan(&all.iter().map(|(name, own)| (*name, own)).collect(), asked)
    }

    #[test]
    fn what_a_skill_requires_runs_after_it() {
        let all = [
            ("code-generation", dependencies(&["qa-review"], &[], &[])),
            ("qa-review", dependencies(&[], &[], &[])),
            ("git-workflow", dependencies(&[], &["qa-review"], &[])),
            ("whole", dependencies(&["a"], &["git-workflow", "absent"], &["b", "absent"])),
            ("a", dependencies(&[], &[], &["b"])),
            ("b", dependencies(&[], &[], &[])),
        ];
        assert_eq!(check(&all, &["code-generation"]).unwrap(), ["code-generation", "qa-review"]);
        assert_eq!(check(&all, &["git-workflow"]).unwrap(), ["qa-review", "git-workflow"]);
        assert_eq!(
            check(&all, &["git-workflow", "code-generation", "git-workflow"]).unwrap(),
            ["code-generation", "qa-review", "git-workflow"]
        );
        assert_eq!(check(&all, &["whole"]).unwrap(), ["qa-review", "git-workflow", "whole", "a", "b"]);
        assert_eq!(check(&all, &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_missing_or_a_circle_is_told() {
        let all = [
            ("a", dependencies(&["b"], &[], &[])),
            ("b", dependencies(&["c"], &[], &[])),
            ("c", dependencies(&[], &[], &["a"])),
            ("into", dependencies(&["a"], &[], &[])),
            ("free", dependencies(&[], &[], &[])),
            ("lost", dependencies(&["nobody"], &[], &[])),
            ("self", dependencies(&["self"], &[], &[])),
        ];
        assert_eq!(check(&all, &["x"]).unwrap_err().category, Category::NotFound);
        assert!(check(&all, &["lost"]).unwrap_err().message.contains("nobody"));
        let error = check(&all, &["free", "a"]).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), ("E_CYCLE", "these skills wait for one another: a, b, c"));
        let chains: Chains<'_> = all.iter().map(|(name, own)| (*name, own)).collect();
        assert_eq!(circles(&chains).into_iter().collect::<Vec<_>>(), ["a", "b", "c", "into", "self"]);
    }
}
