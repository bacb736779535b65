//! Feature changes of a commit.
//!
//! They are read from both sides, never from what a message claims.

use super::message::Feature;
use crate::features::{FeaturesFile, Status};

/// Returns the features with a changed status, in their new order, then the removed ones.
///
/// An absent side has no features.
pub(super) fn changed_features(
    old: Option<&FeaturesFile>,
    new: Option<&FeaturesFile>,
) -> Vec<Feature> {
    let status = |file: Option<&FeaturesFile>, id: &str| Some(file?.get(id)?.status);
    let all =
        |file: Option<&FeaturesFile>| file.map(|file| file.features.clone()).unwrap_or_default();
    let told = |id: String, status: &str| Feature {
        id,
        status: status.to_owned(),
    };
    // A feature that was merely added has not changed.
    let changed = all(new)
        .into_iter()
        .filter(|one| status(old, &one.id).unwrap_or(Status::NotImplemented) != one.status);
    let gone = all(old)
        .into_iter()
        .filter(|one| status(new, &one.id).is_none());
    changed
        .map(|one| told(one.id, one.status.as_str()))
        .chain(gone.map(|one| told(one.id, "removed")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let file = |all: &[(&str, &str)]| {
            let one = |(id, status): &(&str, &str)| {
                format!(r#"{{"id":"{id}","name":"n","status":"{status}"}}"#)
            };
            let all = all.iter().map(one).collect::<Vec<_>>().join(",");
            serde_json::from_str::<FeaturesFile>(&format!(
                r#"{{"schema_version":"1.0","features":[{all}]}}"#
            ))
            .unwrap()
        };
        let old = file(&[
            ("A-001", "passing"),
            ("A-002", "failing"),
            ("A-003", "deferred"),
        ]);
        let new = file(&[
            ("A-004", "blocked"),
            ("A-005", "not_implemented"),
            ("A-002", "passing"),
            ("A-001", "passing"),
        ]);
        let changed: Vec<_> = changed_features(Some(&old), Some(&new))
            .into_iter()
            .map(|f| format!("{}={}", f.id, f.status))
            .collect();
        assert_eq!(changed, ["A-004=blocked", "A-002=passing", "A-003=removed"]);
        assert_eq!(changed_features(Some(&old), Some(&old)), []);
        assert_eq!(changed_features(Some(&old), None).len(), 3);
        assert_eq!(
            changed_features(None, Some(&new)).len(),
            3,
            "what was merely added is left out"
        );
    }
}
