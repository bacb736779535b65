//! Every type of document of `.forge/`, in one list.

use schemars::Schema;

use crate::files::{Document as _, Kind};

/// Every type of document.
///
/// A type that is in this list has a public schema, and `init` can create it and `repair` can
/// repair it.
pub const KINDS: &[Kind] = &[
    Kind::of::<crate::knowledge::KnowledgeFile>("knowledge"),
    Kind::of::<crate::features::FeaturesFile>("features"),
    Kind::of::<crate::knowledge::LearningEntry>("learning"),
    Kind::of::<crate::features::FeatureEntry>("feature"),
    Kind::of::<crate::checkpoints::Manifest>("checkpoint"),
    Kind::of::<crate::recovery::Acknowledged>("recovery"),
    Kind::of::<crate::recovery::Paused>("paused"),
    Kind::of::<crate::focus::Focus>("focus"),
    Kind::of::<crate::issues::Active>("active"),
    Kind::of::<crate::issues::Issue>("issue"),
    Kind::of::<crate::issues::Comment>("comment"),
    Kind::of::<crate::sessions::Session>("session"),
    Kind::of::<crate::sessions::ActiveSessions>("sessions"),
    Kind::of::<helmdeck_forge_documents::branches::Branches>("branches"),
];

/// Returns the JSON Schema (draft 2020-12) of every document, by its name.
#[must_use]
pub fn schemas() -> Vec<(&'static str, Schema)> {
    KINDS
        .iter()
        .map(|kind| (kind.name, kind.schema()))
        .collect()
}

/// Returns the type of the document at a path, if it is one.
#[must_use]
pub fn kind_of(path: &str) -> Option<&'static Kind> {
    let below = |folder: &str| {
        path.strip_prefix(folder)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|name| name.ends_with(".json"))
    };
    KINDS.iter().find(|kind| kind.path == path).or_else(|| {
        // A session's own copy has the type of the file of the same name.
        let name = path.rsplit('/').next().unwrap_or(path);
        let session = path.starts_with(crate::layout::SESSIONS);
        KINDS.iter().find(|kind| {
            below(kind.path) || (session && kind.path.rsplit('/').next() == Some(name))
        })
    })
}

/// Returns the default content of the document at a path. That of an issue or a comment has its
/// name.
#[must_use]
pub(crate) fn skeleton_at(kind: &Kind, path: &str) -> Vec<u8> {
    let name = path
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_suffix(".json"))
        .unwrap_or_default()
        .to_owned();
    let made = match kind.name {
        "issue" => {
            let key = helmdeck_forge_documents::marks::split(&name).0.to_owned();
            crate::issues::Issue {
                title: key.clone(),
                linear_id: key,
                ..Default::default()
            }
            .print()
        }
        "comment" => crate::json::print(&crate::issues::Comment {
            id: name,
            ..Default::default()
        }),
        _ => return kind.skeleton(),
    };
    made.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_a_schema_that_its_first_file_meets() {
        for kind in KINDS {
            let schema = kind.schema().to_value();
            assert_eq!(
                schema["$schema"], "https://json-schema.org/draft/2020-12/schema",
                "{}",
                kind.name
            );
            let validator = jsonschema::validator_for(&schema).unwrap();
            assert!(
                !validator.is_valid(&serde_json::json!([1])),
                "{}",
                kind.name
            );
            // A type with many files in a folder has no initial file.
            if !kind.path.ends_with(".json") {
                continue;
            }
            assert_eq!(kind_of(kind.path).map(|found| found.name), Some(kind.name));
            let skeleton = kind.skeleton();
            let shown = String::from_utf8_lossy(&skeleton);
            kind.check(&skeleton).unwrap();
            assert!(
                validator.is_valid(&serde_json::from_slice(&skeleton).unwrap()),
                "{}: {shown}",
                kind.name
            );
            assert_eq!(
                crate::json::print(
                    &serde_json::from_slice::<crate::json::Json>(&skeleton).unwrap()
                )
                .unwrap(),
                skeleton
            );
        }
        let names: std::collections::BTreeSet<_> =
            schemas().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), KINDS.len());
        let copy = ".forge/memory/short-term/sessions/2025-12-24-session-001/focus.json";
        assert_eq!(kind_of(copy).map(|kind| kind.name), Some("focus"));
        assert!(kind_of("package.json").is_none());
    }
}
