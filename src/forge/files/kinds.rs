//! Every type of document, in one list.

use schemars::Schema;

use super::document::Kind;

/// Every type of document. Each stands here once: this makes its schema public, and lets `init` create it and `repair` mend it.
pub const KINDS: &[Kind] = &[
    Kind::of::<crate::knowledge::KnowledgeFile>("knowledge"),
    Kind::of::<crate::features::FeaturesFile>("features"),
    Kind::of::<crate::checkpoints::Manifest>("checkpoint"),
    Kind::of::<crate::recovery::Journal>("recovery"),
    Kind::of::<crate::recovery::Paused>("paused"),
    Kind::of::<crate::focus::Focus>("focus"),
    Kind::of::<crate::issues::Active>("active"),
    Kind::of::<crate::sessions::Session>("session"),
    Kind::of::<crate::sessions::ActiveSessions>("sessions"),
    Kind::of::<crate::git::Branches>("branches"),
];

/// Returns the JSON Schema (draft 2020-12) of every document, by its name.
#[must_use]
pub fn schemas() -> Vec<(&'static str, Schema)> {
    KINDS.iter().map(|kind| (kind.name, kind.schema())).collect()
}

/// Returns the type of the document at a path, if it is one.
#[must_use]
pub fn kind_of(path: &str) -> Option<&'static Kind> {
    let below = |folder: &str| {
        path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| name.ends_with(".json"))
    };
    KINDS.iter().find(|kind| kind.path == path).or_else(|| {
        // A session's own copy has the type of the file of the same name.
        let name = path.rsplit('/').next().unwrap_or(path);
        let session = path.starts_with(crate::layout::SESSIONS);
        KINDS.iter().find(|kind| below(kind.path) || (session && kind.path.rsplit('/').next() == Some(name)))
    })
}
