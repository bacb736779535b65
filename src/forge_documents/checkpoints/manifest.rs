//! Manifest of a checkpoint.
//!
//! There are two copies: the message of the tag is the source of truth, and a file mirrors it. A
//! file about a commit cannot be in that commit.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use helmdeck_forge_files::json::{self, Members};
use helmdeck_forge_files::time::Time;

/// The line of a tag's message that comes before the manifest.
const MARK: &str = "Forge-Manifest:";
/// The longest message that is read, in bytes.
const LONGEST: usize = 1024 * 1024;

/// Manifest of a checkpoint. The RFC defines the members from `tag` to `can_rollback_to`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The version of this form, like `1.0`. Absent in what the RFC prints, which counts as `1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<String>,
    /// The tag: `checkpoint/<KEY>-v<N>`.
    pub tag: String,
    /// The commit, in hex: whole when written, at least seven digits when read.
    pub commit: String,
    /// When it was made.
    pub timestamp: Time,
    /// The commands that had to succeed.
    pub verified_by: Vec<String>,
    /// The features that passed, by id.
    pub features_passing: Vec<String>,
    /// The issues that this closes.
    pub linear_issues_closed: Vec<String>,
    /// Whether every check succeeded on exactly this commit.
    ///
    /// The flag alone proves nothing: see [`Manifest::proven`].
    pub can_rollback_to: bool,
    /// The tree of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The tree of the commit without `.forge/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_tree: Option<String>,
    /// The id of the patch of the commit, without `.forge/`. A rebase, an amended message and a
    /// cherry-pick keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_id: Option<String>,
    /// The id of the patch of the whole branch, since it left the default branch. A squash keeps
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_patch_id: Option<String>,
    /// The branch on which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The session in which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The commands that were run, with their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// The passes of features on exactly this code. They are evidence, as a report of a
    /// verification is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub passes: BTreeMap<String, FeaturePass>,
    /// How many features there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features_total: Option<u32>,
    /// The etag of the knowledge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knowledge_etag: Option<String>,
    /// The tag of the previous checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_checkpoint: Option<String>,
    /// The version of the program that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_version: Option<String>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// A pass of a feature's tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeaturePass {
    /// The number of tests that ran.
    pub executed: u64,
    /// The objects of the paths that the feature is about; empty if it is about the whole project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trees: BTreeMap<String, String>,
}

/// A command that was run on the commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The command.
    pub cmd: String,
    /// How it ended; `null` if it did not end by itself.
    pub exit: Option<i32>,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Manifest {
    /// Says whether the manifest proves that a rollback to it is safe.
    ///
    /// `can_rollback_to` must be set, all named checks must have succeeded, and the manifest must
    /// name the commit and code tree on which they ran. `can_rollback_to` alone, set by a person,
    /// proves nothing.
    #[must_use]
    pub fn proven(&self) -> bool {
        self.can_rollback_to
            && !self.checks.is_empty()
            && self.checks.iter().all(|check| check.exit == Some(0))
            && self.code_tree.is_some()
            && full_hex(&self.commit)
    }

    /// Says whether a commit is the one it names, which may be shortened.
    #[must_use]
    pub fn names(&self, commit: &str) -> bool {
        self.commit.len() >= 7 && commit.starts_with(&self.commit.to_ascii_lowercase())
    }

    /// Checks the manifest.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn validate(&self) -> Result<(), String> {
        if super::Name::of_tag(&self.tag).is_none() {
            return Err(format!(
                "\"tag\" is {:?}, and should be like \"checkpoint/SX9-123-v1\"",
                self.tag
            ));
        }
        let hex = self.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !hex || !(7..=64).contains(&self.commit.len()) {
            return Err(format!(
                "\"commit\" is {:?}, and should be 7 to 64 hexadecimal digits",
                self.commit
            ));
        }
        Ok(())
    }

    /// Writes the message of the tag: a text for people, then the manifest.
    ///
    /// No line of it is one that git would take for a comment or a signature, and none is empty, so
    /// it outlives every way in which git tidies messages.
    ///
    /// # Errors
    /// The error of the JSON library.
    pub fn message(&self, text: &str) -> Result<String, serde_json::Error> {
        let text: Vec<&str> = text
            .trim()
            .lines()
            .map(str::trim_end)
            .filter(|line| *line != MARK)
            .collect();
        let json = json::print(self)?;
        Ok(format!(
            "{}\n\n{MARK}\n{}",
            text.join("\n"),
            String::from_utf8_lossy(&json)
        ))
    }

    /// Reads the manifest from the message of a tag.
    ///
    /// `Ok(None)` if the message has none: then a person made the tag.
    ///
    /// # Errors
    /// What is wrong with the manifest.
    pub fn of_message(message: &str) -> Result<Option<Self>, String> {
        if message.len() > LONGEST {
            return Err(format!(
                "the message of the tag is longer than {LONGEST} bytes"
            ));
        }
        let mut at = None;
        let mut offset = 0;
        for line in message.split_inclusive('\n') {
            offset += line.len();
            if line.trim_end() == MARK {
                at = Some(offset);
            }
        }
        let Some(json) = at.and_then(|at| message.get(at..)) else {
            return Ok(None);
        };
        // A signature may follow, so only the first value counts.
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<Self>();
        let manifest = match values.next() {
            Some(Ok(manifest)) => manifest,
            Some(Err(error)) => return Err(format!("the manifest in the tag is damaged: {error}")),
            None => return Err("the manifest in the tag is missing".to_owned()),
        };
        manifest.validate()?;
        Ok(Some(manifest))
    }
}

fn full_hex(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RFC: &str = include_str!("../fixtures/checkpoint.json");

    /// A manifest with every member.
    pub(super) fn whole() -> Manifest {
        let mut manifest: Manifest = serde_json::from_str(RFC).unwrap();
        manifest.schema_version = Some("1.0".to_owned());
        manifest.commit = "1".repeat(40);
        manifest.tree = Some("2".repeat(40));
        manifest.code_tree = Some("3".repeat(40));
        manifest.checks = vec![Check {
            cmd: "cargo test".into(),
            exit: Some(0),
            ms: 12,
            other: Members::default(),
        }];
        manifest
    }

    #[test]
    fn the_example_of_the_rfc_loads_and_saves_back_unchanged() {
        let manifest: Manifest = serde_json::from_str(RFC).unwrap();
        assert_eq!(
            String::from_utf8(json::print(&manifest).unwrap()).unwrap(),
            RFC
        );
        manifest.validate().unwrap();
        assert!(manifest.names("abc1234def5678000000000000000000000000ff"));
        assert!(!manifest.names("abc1234def5679000000000000000000000000ff"));
    }

    #[test]
    fn a_rollback_needs_checks_that_all_succeeded_and_not_only_a_flag() {
        let rfc: Manifest = serde_json::from_str(RFC).unwrap();
        assert!(
            rfc.can_rollback_to && !rfc.proven(),
            "set by hand, without checks"
        );
        assert!(whole().proven());
        let spoil: [fn(&mut Manifest); 6] = [
            |manifest| manifest.can_rollback_to = false,
            |manifest| manifest.checks.clear(),
            |manifest| manifest.checks[0].exit = Some(1),
            |manifest| manifest.checks[0].exit = None,
            |manifest| manifest.code_tree = None,
            |manifest| manifest.commit = "abc1234def5678".to_owned(),
        ];
        for (at, spoil) in spoil.iter().enumerate() {
            let mut manifest = whole();
            spoil(&mut manifest);
            assert!(!manifest.proven(), "{at}");
        }
    }

    #[test]
    fn the_message_of_the_tag_holds_the_whole_manifest() {
        let manifest = whole();
        let message = manifest
            .message("Working ATLAS-NATS connection\n\nmore\n")
            .unwrap();
        assert!(
            message.starts_with("Working ATLAS-NATS connection\n\nmore\n\nForge-Manifest:\n{\n"),
            "{message}"
        );
        assert_eq!(Manifest::of_message(&message).unwrap().unwrap(), manifest);
        let signed =
            format!("{message}-----BEGIN PGP SIGNATURE-----\nabc\n-----END PGP SIGNATURE-----\n");
        assert_eq!(Manifest::of_message(&signed).unwrap().unwrap(), manifest);
        let windows = message.replace('\n', "\r\n");
        assert_eq!(Manifest::of_message(&windows).unwrap().unwrap(), manifest);
        // A text that contains the mark is not taken for the manifest.
        let sly = manifest.message("x\nForge-Manifest:\n{\"tag\":1}").unwrap();
        assert_eq!(Manifest::of_message(&sly).unwrap().unwrap(), manifest);
    }

    #[test]
    fn a_message_without_a_manifest_has_none_and_a_damaged_one_is_an_error() {
        assert_eq!(
            Manifest::of_message("Working ATLAS-NATS connection\n"),
            Ok(None)
        );
        assert_eq!(Manifest::of_message(""), Ok(None));
        let message = whole().message("x").unwrap();
        let mark = message.find(MARK).unwrap() + MARK.len() + 1;
        for cut in mark..message.trim_end().len() {
            assert!(Manifest::of_message(&message[..cut]).is_err(), "{cut}");
        }
        let other = message.replace("checkpoint/SX9-123-v1", "../SX9-123-v1");
        assert!(Manifest::of_message(&other).is_err());
    }

    #[test]
    fn members_of_later_versions_are_kept() {
        let text = RFC.replace(
            "  \"can_rollback_to\": true\n",
            "  \"can_rollback_to\": true,\n  \"later\": {\n    \"b\": 1,\n    \"a\": null\n  }\n",
        );
        let manifest: Manifest = serde_json::from_str(&text).unwrap();
        assert_eq!(
            String::from_utf8(json::print(&manifest).unwrap()).unwrap(),
            text
        );
    }
}
