//! What everybody did, and what must be left of it at the end.

use std::collections::{BTreeMap, BTreeSet};

/// A field whose values are unique, so that the fate of each can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Told {
    Title,
    Text,
}

/// What was done to an issue.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    pub(super) comments: BTreeSet<String>,
    pub(super) criteria: BTreeSet<String>,
    /// For each value of a field, the values that took its place.
    replaced: BTreeMap<(Told, String), BTreeSet<String>>,
    /// Whether somebody closed it, and nobody changed its state otherwise.
    pub(super) closed: bool,
    pub(super) state_is_open_to_question: bool,
}

impl Deeds {
    /// Notes that a value took the place of another one: by an edit, or by the decision of a
    /// conflict.
    pub(super) fn replace(&mut self, told: Told, before: &str, after: &str) {
        if before != after {
            self.replaced
                .entry((told, before.to_owned()))
                .or_default()
                .insert(after.to_owned());
            self.replaced.entry((told, after.to_owned())).or_default();
        }
    }

    /// Says whether a value led to another one.
    fn leads(&self, told: Told, from: &str, to: &str) -> bool {
        let (mut left, mut seen) = (vec![from.to_owned()], BTreeSet::new());
        while let Some(value) = left.pop() {
            if value == to {
                return true;
            }
            if seen.insert(value.clone()) {
                left.extend(
                    self.replaced
                        .get(&(told, value))
                        .into_iter()
                        .flatten()
                        .cloned(),
                );
            }
        }
        false
    }

    /// Returns the acknowledged values that neither are there nor were replaced.
    pub(super) fn lost(&self, told: Told, now: &str) -> Vec<String> {
        let all = self.replaced.keys().filter(|(one, _)| *one == told);
        all.filter(|(_, value)| !self.leads(told, value, now))
            .map(|(_, value)| value.clone())
            .collect()
    }
}

/// The history of the week.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The issues, by the first word of their titles, which nobody changes.
    pub(super) issues: BTreeMap<String, Deeds>,
    pub(super) learned: BTreeSet<String>,
    pub(super) features: BTreeSet<String>,
    /// The files of the code.
    pub(super) code: BTreeSet<String>,
    /// The steps, for people.
    pub(super) steps: Vec<String>,
    /// What is wrong. The week goes on, so that a run finds all of it.
    pub(super) problems: Vec<String>,
    number: usize,
}

impl History {
    /// Returns a number that nothing else has.
    pub(super) fn next(&mut self) -> usize {
        self.number += 1;
        self.number
    }

    /// Notes a problem unless a condition holds.
    pub(super) fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            let problem = format!("step {}: {}", self.steps.len(), problem());
            self.problems.push(problem);
        }
    }

    /// Notes a problem unless two values are equal.
    pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
        &mut self,
        found: &T,
        wanted: &T,
        what: impl FnOnce() -> String,
    ) {
        self.expect(found == wanted, || {
            format!("{}:\n  found  {found:?}\n  wanted {wanted:?}", what())
        });
    }

    /// Notes a step.
    pub(super) fn step(&mut self, text: String) {
        self.steps.push(text);
    }

    /// Returns the deeds on the issue with a title.
    pub(super) fn of(&mut self, title: &str) -> &mut Deeds {
        self.issues.entry(token(title).to_owned()).or_default()
    }
}

/// Returns the part of a title that names its issue.
pub(super) fn token(title: &str) -> &str {
    title.split(' ').next().unwrap_or_default()
}
