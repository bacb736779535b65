//! The features after a rollback: they return to their status at the checkpoint.

use crate::features::{Feature, FeaturesFile, Status};
use crate::time::Time;

/// Returns the features as they were at the checkpoint.
///
/// A feature that changed since carries the time of the loss. A later feature keeps its definition,
/// because ids are never reused, and counts as not implemented.
pub(super) fn reset(now: &FeaturesFile, mut then: FeaturesFile, at: Time) -> FeaturesFile {
    for feature in &mut then.features {
        let was = now
            .get(&feature.id)
            .map_or(feature.status, |was| was.status);
        if was != feature.status && [was, feature.status].contains(&Status::Passing) {
            feature.regressed_at = Some(at);
        }
    }
    let later: Vec<Feature> = now
        .features
        .iter()
        .filter(|later| then.get(&later.id).is_none())
        .cloned()
        .collect();
    then.features
        .extend(later.into_iter().map(|later| not_implemented(later, at)));
    // No id is given again, and no change of the contract is forgotten.
    add_missing(&mut then.retired, &now.retired);
    add_missing(&mut then.not_adopted, &now.not_adopted);
    add_missing(&mut then.amendments, &now.amendments);
    // A feature that was removed since the checkpoint exists again.
    let features = &then.features;
    then.retired
        .retain(|id| !features.iter().any(|feature| feature.id == *id));
    then
}

fn not_implemented(feature: Feature, at: Time) -> Feature {
    if !matches!(
        feature.status,
        Status::Passing | Status::Failing | Status::InProgress
    ) {
        return feature;
    }
    Feature {
        regressed_at: if feature.status == Status::Passing {
            Some(at)
        } else {
            feature.regressed_at
        },
        status: Status::NotImplemented,
        verified_at: None,
        verified_commit: None,
        verified_code_tree: None,
        evidence: None,
        ..feature
    }
}

fn add_missing<T: PartialEq + Clone>(known: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !known.contains(other) {
            known.push(other.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> FeaturesFile {
        serde_json::from_str(text).unwrap()
    }

    fn at() -> Time {
        Time::parse("2025-12-24T12:00:00Z").unwrap()
    }

    #[test]
    fn features_go_back_to_the_checkpoint_and_say_when_they_were_lost() {
        let then = json(
            r#"{"schema_version":"1.0","features":[
                {"id":"A-001","name":"a","status":"passing","verified_at":"2025-12-24T10:00:00Z","evidence":"e"},
                {"id":"A-002","name":"b","status":"not_implemented"},
                {"id":"A-003","name":"c","status":"passing"},
                {"id":"A-004","name":"d","status":"failing"}]}"#,
        );
        let now = json(
            r#"{"schema_version":"1.0","features":[
                {"id":"A-005","name":"new","status":"passing","evidence":"x","verified_at":"2025-12-24T11:00:00Z"},
                {"id":"A-001","name":"a","status":"failing"},
                {"id":"A-002","name":"b","status":"passing","evidence":"y"},
                {"id":"A-003","name":"c","status":"passing"},
                {"id":"A-004","name":"d","status":"in_progress"},
                {"id":"A-006","name":"later","status":"deferred","reason":"no"}]}"#,
        );
        let expected = json(
            r#"{"schema_version":"1.0","features":[
                {"id":"A-001","name":"a","status":"passing","verified_at":"2025-12-24T10:00:00Z","evidence":"e","regressed_at":"2025-12-24T12:00:00Z"},
                {"id":"A-002","name":"b","status":"not_implemented","regressed_at":"2025-12-24T12:00:00Z"},
                {"id":"A-003","name":"c","status":"passing"},
                {"id":"A-004","name":"d","status":"failing"},
                {"id":"A-005","name":"new","status":"not_implemented","regressed_at":"2025-12-24T12:00:00Z"},
                {"id":"A-006","name":"later","status":"deferred","reason":"no"}]}"#,
        );
        assert_eq!(reset(&now, then, at()), expected);
    }

    #[test]
    fn what_was_removed_and_amended_since_is_not_forgotten() {
        let then = json(
            r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"a","status":"failing"}],"retired":["A-007"],"amendments":[{"at":"2025-12-24T10:00:00Z","by":"a","reason":"old","changes":[]}]}"#,
        );
        let now = json(
            r#"{"schema_version":"1.0","features":[],"retired":["A-007","A-001","A-009"],"amendments":[{"at":"2025-12-24T10:00:00Z","by":"a","reason":"old","changes":[]},{"at":"2025-12-24T11:00:00Z","by":"a","reason":"new","changes":[]}]}"#,
        );
        let expected = json(
            r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"a","status":"failing"}],"retired":["A-007","A-009"],"amendments":[{"at":"2025-12-24T10:00:00Z","by":"a","reason":"old","changes":[]},{"at":"2025-12-24T11:00:00Z","by":"a","reason":"new","changes":[]}]}"#,
        );
        assert_eq!(reset(&now, then, at()), expected);
    }
}
