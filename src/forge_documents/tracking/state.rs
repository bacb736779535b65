//! State of the sync in one clone: how far it has read, what differs on both sides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use helmdeck_forge_files::files::Document;
use helmdeck_forge_files::layout::{BASES, SYNC};
use helmdeck_forge_files::time::Time;

use super::{Field, Fields, Value};

/// The version that is written.
const VERSION: &str = "1.0";

/// State of the sync in this clone: `.local/linear/sync.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SyncState {
    /// The version of the file's form.
    pub schema_version: String,
    /// The tracker and team that the rest is about: `linear SX9`.
    #[serde(default)]
    pub tracker: String,
    /// Changes up to this time were read, by the tracker's clock.
    #[serde(default)]
    pub watermark: Option<Time>,
    /// Comments changed up to this time were read, by the tracker's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comments_watermark: Option<Time>,
    /// When issues were last read.
    #[serde(default)]
    pub pulled_at: Option<Time>,
    /// Why reading fails, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Fields that were changed on both sides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Ids of the last deliveries of the webhook, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<String>,
}

/// A failure to read issues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Since when.
    pub since: Time,
    /// The last error.
    pub error: String,
}

/// A field that was changed on both sides, to different values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conflict {
    /// The key of the issue.
    pub key: String,
    /// The field.
    pub field: Field,
    /// The value before, on both sides.
    pub base: Option<Value>,
    /// The value here.
    pub ours: Option<Value>,
    /// The value in the tracker.
    pub theirs: Option<Value>,
    /// Since when.
    pub since: Time,
}

impl Document for SyncState {
    const PATH: &'static str = SYNC;

    fn skeleton() -> Self {
        Self {
            schema_version: VERSION.to_owned(),
            ..Self::default()
        }
    }
}

/// The values of an issue that both sides had last: `.local/linear/base/<id>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// The version of the file's form.
    pub schema_version: String,
    /// The id of the issue in the tracker.
    pub id: String,
    /// The key of the issue.
    pub key: String,
    /// The values.
    pub fields: Fields,
}

impl Base {
    /// Makes one.
    #[must_use]
    pub fn new(id: String, key: String, fields: Fields) -> Self {
        Self {
            schema_version: VERSION.to_owned(),
            id,
            key,
            fields,
        }
    }
}

impl Document for Base {
    const PATH: &'static str = BASES;

    fn skeleton() -> Self {
        Self::new(String::new(), String::new(), Fields::default())
    }
}

/// Returns the path of the base of an issue, by its id in the tracker.
///
/// `None` for an id that is no plain name.
#[must_use]
pub fn base_path(id: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(plain);
    fits.then(|| format!("{BASES}/{id}.json"))
}
