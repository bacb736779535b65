//! One artifact: a line of the index.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::error::{Error, Result};
use crate::json::Members;
use crate::layout::ARTIFACTS;
use crate::time::Time;
use crate::triv::{Reference, Triv};

/// What kind of thing an artifact is: each kind has a folder.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Code that was generated.
    Code,
    /// Documentation.
    Docs,
    /// Reports and analyses, and the evidence of tests.
    Reports,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Code, Self::Docs, Self::Reports];

    /// Returns the word, which is also the name of the folder.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the kind of a word.
    ///
    /// # Errors
    /// `Usage` for any other word.
    pub fn parse(word: &str) -> Result<Self> {
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        kind.ok_or_else(|| {
            Error::usage(format!(
                "{word:?} is no kind of artifact: code, docs or reports"
            ))
        })
    }

    /// Returns the folder, below the root.
    #[must_use]
    pub fn folder(self) -> String {
        format!("{ARTIFACTS}/{}", self.as_str())
    }
}

/// Index entry of an artifact.
///
/// The same content may have several entries: one for each time it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectArtifact {
    /// Its name.
    pub triv: Triv,
    /// Its file, below the root.
    pub path: String,
    /// What kind of thing it is.
    pub kind: Kind,
    /// The name its maker gave it.
    pub name: String,
    /// Its media type, by the ending of its name.
    pub media_type: String,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// When it was stored.
    pub created_at: Time,
    /// The session it was made in.
    #[serde(default)]
    pub session: Option<String>,
    /// Who made it.
    #[serde(default)]
    pub agent: Option<String>,
    /// The issue it was made for.
    #[serde(default)]
    pub linear: Option<String>,
    /// The skill that was followed.
    #[serde(default)]
    pub skill: Option<String>,
    /// The commit that was checked out.
    #[serde(default)]
    pub commit: Option<String>,
    /// What it was made from.
    #[serde(default)]
    pub produced_from: Vec<Reference>,
    /// What it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<Reference>,
    /// Cryptographic hash of its bytes, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Whether the entry was made from the file alone: another clone stored it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rebuilt: bool,
    /// Members this program does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl ProjectArtifact {
    /// Says whether a reference names it. Of an artifact of another clone, only the content is
    /// known.
    pub(crate) fn answers_to(&self, reference: &Reference) -> bool {
        reference.matches(&self.triv) || self.rebuilt && reference.matches_content(&self.triv)
    }
}

// serde asks with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns the media type of a name by its ending; without a known one, that of text or of bytes.
#[must_use]
pub fn media_type(name: &str, bytes: &[u8]) -> &'static str {
    let ending = name
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase())
        .unwrap_or_default();
    match ending.as_str() {
        "rs" => "text/x-rust",
        "py" => "text/x-python",
        "js" | "mjs" => "text/javascript",
        "ts" => "text/x-typescript",
        "sh" => "text/x-shellscript",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "json" => "application/json",
        "jsonl" => "application/jsonl",
        "toml" => "application/toml",
        "yaml" | "yml" => "application/yaml",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "wasm" => "application/wasm",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        _ if is_text(bytes) => "text/plain",
        _ => "application/octet-stream",
    }
}

/// Says whether bytes are text.
#[must_use]
pub fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}
