//! Deletion of memory: request and result. Keys match exactly; no prefix is ever deleted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::PackName;
use crate::error::{Code, Error, Result};

/// Part of the memory of a caller.
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
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum MemoryPart {
    /// Facts.
    Facts,
    /// Notes that packs wrote, those of its conversations too.
    Notes,
    /// Audit rows of its calls. Only an administrator removes them.
    Audit,
    /// Answers that are cached for it alone, those of its conversations too.
    Cache,
    /// Files that packs wrote for it.
    Artifacts,
    /// Its conversations: turns, summaries, and health.
    Conversations,
}

impl MemoryPart {
    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Request to delete memory of a caller.
///
/// `{key | category | pack | all: true, what?: ["facts", "notes", "audit", "cache", "artifacts",
/// "conversations"]}`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Forget {
    /// The one with exactly this key; of facts and notes.
    pub key: Option<String>,
    /// Those of exactly this category; of facts and notes.
    pub category: Option<String>,
    /// Those about calls of this pack; of the audit.
    pub pack: Option<PackName>,
    /// All of them.
    pub all: bool,
    /// The parts; facts if absent.
    pub what: Option<Vec<MemoryPart>>,
}

/// Selection of the entries to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// The one with exactly this key.
    Key(&'a str),
    /// Those of exactly this category.
    Category(&'a str),
    /// Those about calls of this pack.
    Pack(&'a PackName),
    /// All.
    All,
}

impl Forget {
    /// Returns the parts and the entries that are meant.
    ///
    /// # Errors
    /// `invalid_input` unless exactly one of `key`, `category`, `pack` and `all` is given, and goes
    /// with every part.
    pub fn selection(&self) -> Result<(BTreeSet<MemoryPart>, Selection<'_>)> {
        let refuse = |message: &'static str| Err(Error::new(Code::InvalidInput, message));
        let selection = match (&self.key, &self.category, &self.pack, self.all) {
            (Some(key), None, None, false) => Selection::Key(key),
            (None, Some(category), None, false) => Selection::Category(category),
            (None, None, Some(pack), false) => Selection::Pack(pack),
            (None, None, None, true) => Selection::All,
            _ => {
                return refuse(
                    "give exactly one of \"key\", \"category\", \"pack\", and \"all\": true",
                );
            }
        };
        let parts: BTreeSet<MemoryPart> = self.what.as_deref().map_or_else(
            || [MemoryPart::Facts].into(),
            |what| what.iter().copied().collect(),
        );
        let fits = |part: &MemoryPart| match selection {
            Selection::All => true,
            Selection::Key(_) | Selection::Category(_) => {
                matches!(part, MemoryPart::Facts | MemoryPart::Notes)
            }
            Selection::Pack(_) => *part == MemoryPart::Audit,
        };
        if parts.is_empty() {
            return refuse(
                "\"what\" is empty; name at least one of facts, notes, audit, cache, artifacts and conversations",
            );
        }
        if !parts.iter().all(fits) {
            return refuse(
                "\"key\" and \"category\" go with facts and notes, \"pack\" with audit; say so in \"what\"",
            );
        }
        Ok((parts, selection))
    }
}

/// Result of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Forgotten {
    /// Number of deleted entries for each requested part. One audit entry holds several calls.
    pub removed: BTreeMap<MemoryPart, u64>,
    /// Whether cached answers are invalid but still stored, because the store is unreachable.
    ///
    /// They are deleted as soon as it is reachable.
    pub pending: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<MemoryPart>, String)> {
        let request: Forget =
            serde_json::from_str(text).map_err(|_| Error::new(Code::Internal, "not a request"))?;
        let (parts, selection) = request.selection()?;
        Ok((parts.into_iter().collect(), format!("{selection:?}")))
    }

    #[test]
    fn a_request_says_exactly_one_thing_and_means_facts_unless_it_says_more() {
        assert_eq!(
            read(r#"{"key":"k"}"#).unwrap(),
            (vec![MemoryPart::Facts], "Key(\"k\")".to_owned())
        );
        assert_eq!(read(r#"{"all":true}"#).unwrap().0, [MemoryPart::Facts]);
        let all = r#"{"all":true,"what":["conversations","artifacts","cache","audit","notes","facts","facts"]}"#;
        let parts = [
            MemoryPart::Facts,
            MemoryPart::Notes,
            MemoryPart::Audit,
            MemoryPart::Cache,
            MemoryPart::Artifacts,
            MemoryPart::Conversations,
        ];
        assert_eq!(read(all).unwrap().0, parts);
        for part in parts {
            assert_eq!(serde_json::to_value(part).unwrap(), part.as_str());
        }
        assert_eq!(
            read(r#"{"pack":"a.b","what":["audit"]}"#).unwrap().0,
            [MemoryPart::Audit]
        );
        for vague in [
            "{}",
            r#"{"all":false}"#,
            r#"{"key":"a","all":true}"#,
            r#"{"key":"a","category":"b"}"#,
            r#"{"key":"a","what":["audit"]}"#,
            r#"{"category":"a","what":["facts","cache"]}"#,
            r#"{"key":"a","what":["artifacts"]}"#,
            r#"{"key":"a","what":["conversations"]}"#,
            r#"{"category":"a","what":["notes","conversations"]}"#,
            r#"{"pack":"a.b"}"#,
            r#"{"pack":"a.b","what":["audit","cache"]}"#,
            r#"{"all":true,"what":[]}"#,
        ] {
            assert_eq!(
                read(vague).unwrap_err().code(),
                Code::InvalidInput,
                "{vague}"
            );
        }
        for unknown in [
            r#"{"prefix":"a"}"#,
            r#"{"all":true,"what":["vault"]}"#,
            r#"{"pack":"*","what":["audit"]}"#,
        ] {
            assert_eq!(
                read(unknown).unwrap_err().code(),
                Code::Internal,
                "{unknown}"
            );
        }
    }
}
