//! Contract of a feature since its checkpoint.
//!
//! Name, steps and tests must not be weakened silently.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Feature, FeaturesFile};

/// Difference between a feature and its contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The feature.
    pub id: String,
    /// What differs.
    pub change: Change,
    /// The value in the contract.
    pub before: String,
    /// The value now; empty if it is gone.
    pub after: String,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The feature is gone.
    Removed,
    /// Tests are gone from its list.
    TestsShrunk,
    /// It has another name.
    Renamed,
    /// Its steps changed.
    StepsChanged,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, before, after) = (&self.id, &self.before, &self.after);
        match self.change {
            Change::Removed => write!(f, "{id} was removed: {before}"),
            Change::TestsShrunk => write!(f, "{id} lost the tests {before}"),
            Change::Renamed => write!(f, "{id} was called {before:?}, and is {after:?}"),
            Change::StepsChanged => write!(f, "the steps of {id} were {before}, and are {after}"),
        }
    }
}

/// Returns how features differ from their contract. More tests and more features are no difference.
pub fn differences(agreed: &FeaturesFile, now: &FeaturesFile) -> Vec<Difference> {
    let mut all = Vec::new();
    for before in &agreed.features {
        let mut add = |change: Change, was: String, is: String| {
            all.push(Difference {
                id: before.id.clone(),
                change,
                before: was,
                after: is,
            });
        };
        let Some(after) = now.get(&before.id) else {
            add(Change::Removed, before.name.clone(), String::new());
            continue;
        };
        let lost: Vec<&str> = before
            .tests()
            .iter()
            .filter(|test| !after.tests().contains(test))
            .map(String::as_str)
            .collect();
        if !lost.is_empty() {
            add(
                Change::TestsShrunk,
                lost.join(", "),
                after.tests().join(", "),
            );
        }
        if before.name != after.name {
            add(Change::Renamed, before.name.clone(), after.name.clone());
        }
        let steps = |feature: &Feature| feature.steps.clone().unwrap_or_default();
        if !steps(before).is_empty() && steps(before) != steps(after) {
            add(
                Change::StepsChanged,
                steps(before).join("; "),
                steps(after).join("; "),
            );
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FeaturesFile {
        let mut file: FeaturesFile =
            serde_json::from_str(include_str!("../fixtures/features.json")).unwrap();
        file.features[0].steps = Some(vec!["open it".into(), "see it".into()]);
        file
    }

    fn changes(change: impl FnOnce(&mut FeaturesFile)) -> Vec<Change> {
        let mut now = file();
        change(&mut now);
        differences(&file(), &now)
            .into_iter()
            .map(|difference| difference.change)
            .collect()
    }

    #[test]
    fn what_weakens_the_contract_is_a_difference() {
        assert_eq!(changes(|_| {}), []);
        assert_eq!(
            changes(|file| drop(file.features.remove(0))),
            [Change::Removed]
        );
        assert_eq!(
            changes(|file| file.features[0].tests = None),
            [Change::TestsShrunk]
        );
        assert_eq!(
            changes(|file| file.features[0].tests = Some(vec!["x".into()])),
            [Change::TestsShrunk]
        );
        assert_eq!(
            changes(|file| file.features[1].name.push('!')),
            [Change::Renamed]
        );
        assert_eq!(
            changes(|file| drop(file.features[0].steps.take())),
            [Change::StepsChanged]
        );
    }

    #[test]
    fn what_strengthens_it_is_none() {
        let none = changes(|file| {
            file.features[0].tests.as_mut().unwrap().push("more".into());
            file.features[1].tests = Some(vec!["first".into()]);
            file.features[1].steps = Some(vec!["first".into()]);
            file.features.insert(0, Feature::new("FORGE-003", "n"));
            file.features[1].status = super::super::file::Status::Failing;
        });
        assert_eq!(none, []);
    }
}
