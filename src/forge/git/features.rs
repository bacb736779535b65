//! Feature changes of a commit.
//!
//! They are read from both sides of `features.json`, never from what a message claims.

use serde::Deserialize;

use super::message::Feature;

/// The compared part of `features.json`.
#[derive(Deserialize, Default)]
struct File {
    #[serde(default)]
    features: Vec<FeatureEntry>,
}

#[derive(Deserialize)]
struct FeatureEntry {
    id: String,
    #[serde(default)]
    status: String,
}

/// Returns the features with a changed status, in the order of the new file, then the removed ones.
///
/// An absent side has no features. With an unreadable side nothing is compared: features of a damaged
/// file do not count as removed.
pub(super) fn changed_features(old: Option<&[u8]>, new: Option<&[u8]>) -> Vec<Feature> {
    let read = |bytes: Option<&[u8]>| {
        let file = bytes.map_or_else(|| Ok(File::default()), serde_json::from_slice::<File>);
        file.ok().map(|file| file.features)
    };
    if old == new {
        return Vec::new();
    }
    let (Some(old), Some(new)) = (read(old), read(new)) else { return Vec::new() };
    let status =
        |all: &[FeatureEntry], id: &str| all.iter().find(|entry| entry.id == id).map(|entry| entry.status.clone());
    let changed = new.iter().filter(|entry| status(&old, &entry.id).as_ref() != Some(&entry.status));
    let gone = old.iter().filter(|entry| status(&new, &entry.id).is_none());
    changed
        .map(|entry| Feature { id: entry.id.clone(), status: entry.status.clone() })
        .chain(gone.map(|entry| Feature { id: entry.id.clone(), status: "removed".to_owned() }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let old = br#"{"features":[{"id":"A-001","status":"passing"},{"id":"A-002","status":"failing"},{"id":"A-003","status":"x"}]}"#;
        let new = br#"{"features":[{"id":"A-004","status":"blocked"},{"id":"A-002","status":"passing","name":"n"},{"id":"A-001","status":"passing"}]}"#;
        let changed: Vec<_> =
            changed_features(Some(old), Some(new)).into_iter().map(|f| format!("{}={}", f.id, f.status)).collect();
        assert_eq!(changed, ["A-004=blocked", "A-002=passing", "A-003=removed"]);
        assert_eq!(changed_features(Some(old), Some(old)), []);
        assert_eq!(changed_features(None, Some(b"{broken")), []);
        assert_eq!(changed_features(Some(old), Some(b"{broken")), [], "damage removes no feature");
        assert_eq!(changed_features(Some(b"{broken"), Some(new)), []);
        assert_eq!(changed_features(Some(old), None).len(), 3);
        assert_eq!(changed_features(None, Some(new)).len(), 3);
    }
}
