//! Types and rules of features.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashMap;
use strum::IntoStaticStr;

use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::time::Time;

use crate::marks;

/// The member of a feature that names the tool from which it was adopted.
pub const ADOPTED_FROM: &str = "adopted_from";

/// Returns how a feature of another tool is named among those that are not wanted.
pub fn adopted_name(from: &str, name: &str) -> String {
    format!("{from}: {name}")
}

/// The features, and which of them work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeaturesFile {
    /// The version of the format: `1.0`.
    pub schema_version: String,
    /// The features, in the order in which they should be built.
    #[serde(default)]
    pub features: Vec<Feature>,
    /// The ids of features that were removed. None is given again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
    /// Features that were adopted from another tool and then removed, by that tool's name for them.
    ///
    /// They are not adopted again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_adopted: Vec<String>,
    /// When the contract was changed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amendments: Vec<Amendment>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// One feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Feature {
    /// Its id: `FORGE-001`. Never given to another feature.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
    /// Which tests show that it works, one pattern each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<Vec<String>>,
    /// The files and folders that it is about. Without them it is about the packages of its tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// When it was last seen to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Time>,
    /// What it waits for. `null` and absent both mean nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub blocked_by: Option<BlockedBy>,
    /// What kind of feature it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// How to see that it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<String>>,
    /// The artifact that shows that it works: a `triv:` reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The commit at which it was last seen to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_commit: Option<String>,
    /// The tree, without `.forge/`, in which it was last seen to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_code_tree: Option<String>,
    /// When it was found that it no longer works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regressed_at: Option<Time>,
    /// When it last failed before it worked again.
    ///
    /// A merge with a branch that knows only the failure compares this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regressed_before: Option<Time>,
    /// The reason for its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The agent that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its place among all features, if that is not the order of their ids. Those without a place
    /// come last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// When it was added. Of two with one id the older keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// What tells it from a feature of another clone with the same id; references in files have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Its earlier ids, which are those of other features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Status of a feature.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// It is not begun.
    NotImplemented,
    /// It is being worked on.
    InProgress,
    /// It does not work.
    Failing,
    /// It works, as was verified.
    Passing,
    /// It waits for something else.
    Blocked,
    /// It is left for later, and counts for nothing.
    Deferred,
}

impl Status {
    /// Returns the status as written in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What a feature waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BlockedBy {
    /// Nothing, written as `null`.
    Nothing,
    /// The id of a feature, or anything else in words.
    One(String),
    /// The ids of features.
    Many(Vec<String>),
}

/// When the contract was changed, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Amendment {
    /// When.
    pub at: Time,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The change.
    pub changes: Vec<String>,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// Distinguishes `null` from an absent member.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl BlockedBy {
    /// Returns everything it names, ids and words.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match self {
            Self::Nothing => (None, &[][..]),
            Self::One(one) => (
                Some(one.as_str()).filter(|one| !one.trim().is_empty()),
                &[][..],
            ),
            Self::Many(many) => (None, many.as_slice()),
        };
        one.into_iter().chain(many.iter().map(String::as_str))
    }

    /// Replaces names.
    pub fn rename(&mut self, to: impl Fn(&str) -> Option<String>) {
        let names = match self {
            Self::Nothing => &mut [][..],
            Self::One(one) => std::slice::from_mut(one),
            Self::Many(many) => many.as_mut_slice(),
        };
        for name in names {
            if let Some(to) = to(name) {
                *name = to;
            }
        }
    }
}

impl Feature {
    /// Makes a feature that is not begun.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            status: Status::NotImplemented,
            tests: None,
            paths: None,
            verified_at: None,
            blocked_by: None,
            category: None,
            steps: None,
            evidence: None,
            verified_commit: None,
            verified_code_tree: None,
            regressed_at: None,
            regressed_before: None,
            reason: None,
            agent: None,
            place: None,
            created_at: None,
            mark: None,
            aliases: Vec::new(),
            other: Members::default(),
        }
    }

    /// Returns what it waits for.
    pub fn blockers(&self) -> impl Iterator<Item = &str> {
        self.blocked_by.iter().flat_map(BlockedBy::all)
    }

    /// Returns its tests.
    #[must_use]
    pub fn tests(&self) -> &[String] {
        self.tests.as_deref().unwrap_or_default()
    }

    /// Sets the status. Evidence that it works is dropped if it stops passing.
    pub fn become_(&mut self, status: Status, now: Time) {
        if self.status == Status::Passing && status != Status::Passing {
            if status == Status::Failing && self.evidence.is_some() {
                self.regressed_at = Some(now);
            }
            self.evidence = None;
        }
        self.status = status;
    }
}

impl FeaturesFile {
    /// Returns a feature by its id, or by an earlier one that no feature has now.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Feature> {
        let earlier = || {
            self.features
                .iter()
                .find(|feature| feature.aliases.iter().any(|alias| alias == id))
        };
        self.features
            .iter()
            .find(|feature| feature.id == id)
            .or_else(earlier)
    }

    /// Returns the id of the feature that a reference of a file means.
    #[must_use]
    pub fn resolve(&self, reference: &str) -> String {
        let (id, mark) = marks::split(reference);
        let is_its = |feature: &&Feature| mark.is_some() && feature.mark.as_deref() == mark;
        self.features
            .iter()
            .find(is_its)
            .map_or(id, |feature| &feature.id)
            .to_owned()
    }

    /// Returns how a file refers to a feature.
    #[must_use]
    pub fn reference(&self, id: &str) -> String {
        let its = self.features.iter().find(|feature| feature.id == id);
        marks::join(id, its.and_then(|feature| feature.mark.as_deref()))
    }

    /// Returns a feature to change.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get_mut(&mut self, id: &str) -> helmdeck_forge_files::Result<&mut Feature> {
        let unknown = unknown(id);
        self.features
            .iter_mut()
            .find(|feature| feature.id == id)
            .ok_or(unknown)
    }

    /// Checks the content of the file, beyond its form.
    ///
    /// # Errors
    /// The first problem found: an invalid id, an id that is there twice or was removed, a missing
    /// name, a blocker that does not exist, a cycle of features that wait for each other.
    pub fn validate(&self) -> Result<(), String> {
        let mut at = HashMap::new();
        for (place, feature) in self.features.iter().enumerate() {
            let id = feature.id.as_str();
            if !is_id(id) {
                return Err(format!(
                    "feature {}: {id:?} is no id: write it like FORGE-001",
                    place + 1
                ));
            }
            if at.insert(id, place).is_some() {
                return Err(format!("the id {id} is there twice"));
            }
            if feature.name.trim().is_empty() {
                return Err(format!("{id} has no name"));
            }
        }
        if let Some(again) = self.retired.iter().find(|id| at.contains_key(id.as_str())) {
            return Err(format!(
                "the id {again} was removed, and must not be given again"
            ));
        }
        for feature in &self.features {
            let many = matches!(feature.blocked_by, Some(BlockedBy::Many(_)));
            for blocker in feature.blockers().filter(|blocker| many || is_id(blocker)) {
                if !at.contains_key(blocker) {
                    return Err(format!(
                        "{} waits for {blocker:?}, which is not there",
                        feature.id
                    ));
                }
            }
        }
        self.ring(&at).map_or(Ok(()), |ring| {
            Err(format!("these wait for each other: {}", ring.join(" -> ")))
        })
    }

    /// Returns features that wait for each other.
    fn ring(&self, at: &HashMap<&str, usize>) -> Option<Vec<String>> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let waits: Vec<Vec<usize>> = self
            .features
            .iter()
            .map(|feature| {
                feature
                    .blockers()
                    .filter_map(|id| at.get(id).copied())
                    .collect()
            })
            .collect();
        let mut marks = vec![Mark::New; waits.len()];
        for start in 0..waits.len() {
            if marks[start] != Mark::New {
                continue;
            }
            // A way from `start`, and how many of its last one's blockers were followed. No
            // recursion: a file may be long.
            let mut way = vec![(start, 0)];
            marks[start] = Mark::Open;
            while let Some((place, followed)) = way.last_mut() {
                let Some(&next) = waits[*place].get(*followed) else {
                    marks[*place] = Mark::Done;
                    way.pop();
                    continue;
                };
                *followed += 1;
                match marks[next] {
                    Mark::Done => {}
                    Mark::New => {
                        marks[next] = Mark::Open;
                        way.push((next, 0));
                    }
                    Mark::Open => {
                        let from = way
                            .iter()
                            .position(|(place, _)| *place == next)
                            .unwrap_or_default();
                        let ring = way[from..].iter().map(|(place, _)| *place).chain([next]);
                        return Some(ring.map(|place| self.features[place].id.clone()).collect());
                    }
                }
            }
        }
        None
    }
}

/// Says whether a text has the form of a feature's id: `^[A-Z][A-Z0-9]*-\d{3,}$`.
#[must_use]
pub fn is_id(text: &str) -> bool {
    split_id(text).is_some()
}

/// Splits an id into its prefix and its number.
pub fn split_id(text: &str) -> Option<(&str, u64)> {
    let (prefix, number) = text.split_once('-')?;
    let prefix_fits = prefix.starts_with(|c: char| c.is_ascii_uppercase())
        && prefix
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let number_fits = number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    if prefix_fits && number_fits {
        Some((prefix, number.parse().ok()?))
    } else {
        None
    }
}

/// Makes the error of a feature that is not in the file.
pub fn unknown(id: &str) -> helmdeck_forge_files::Error {
    helmdeck_forge_files::Error::not_found(format!("there is no feature {id:?}"))
        .next("helmdeck forge features list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use helmdeck_forge_files::json;

    const RFC: &str = include_str!("../fixtures/features.json");

    fn with(change: impl FnOnce(&mut FeaturesFile)) -> Result<(), String> {
        let mut file: FeaturesFile = serde_json::from_str(RFC).unwrap();
        change(&mut file);
        file.validate()
    }

    #[test]
    fn the_example_of_the_rfc_is_saved_as_it_was() {
        let file: FeaturesFile = serde_json::from_str(RFC).unwrap();
        file.validate().unwrap();
        assert_eq!(String::from_utf8(json::print(&file).unwrap()).unwrap(), RFC);
        assert_eq!(file.features[0].blocked_by, None, "absent");
        assert_eq!(
            file.features[1].blocked_by,
            Some(BlockedBy::Nothing),
            "null"
        );
        assert_eq!(file.features[1].blockers().count(), 0);
    }

    #[test]
    fn everything_optional_and_everything_unknown_is_kept() {
        let text = r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"n","status":"failing","tests":[],"verified_at":"2025-12-24T11:30:00Z","blocked_by":["B-002"],"category":"c","steps":["s"],"evidence":"triv:abc_def_ghi","verified_commit":"abc","verified_code_tree":"def","regressed_at":"2025-12-24T11:30:00Z","reason":"r","agent":"Forge","z":[1],"y":null},{"id":"B-002","name":"m","status":"deferred","blocked_by":"the weather"}],"retired":["A-009"],"amendments":[{"at":"2025-12-24T11:30:00Z","by":"Ada","reason":"r","changes":["c"],"z":1}],"z":{}}"#;
        let file: FeaturesFile = serde_json::from_str(text).unwrap();
        file.validate().unwrap();
        assert_eq!(serde_json::to_string(&file).unwrap(), text);
        for wrong in [r#""status":"done""#, r#""status":"failing","id":"A-001""#] {
            let text = text.replacen(r#""status":"failing""#, wrong, 1);
            assert!(
                serde_json::from_str::<FeaturesFile>(&text).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn ids_have_one_form() {
        for id in ["FORGE-001", "A-000", "SX9-1234567"] {
            assert!(is_id(id), "{id}");
        }
        for no in [
            "",
            "FORGE",
            "FORGE-",
            "FORGE-01",
            "forge-001",
            "9A-001",
            "A_B-001",
            "A-B-001",
            "A-00x",
            " A-001",
            "A-001 ",
        ] {
            assert!(!is_id(no), "{no}");
            assert!(
                with(|file| file.features[0].id = no.into()).is_err(),
                "{no}"
            );
        }
    }

    #[test]
    fn an_id_is_there_once_and_never_given_again() {
        assert!(with(|file| file.features[1].id = "FORGE-001".into()).is_err());
        assert!(
            with(|file| file.retired.push("FORGE-001".into()))
                .unwrap_err()
                .contains("given again")
        );
        with(|file| file.retired.push("FORGE-003".into())).unwrap();
    }

    #[test]
    fn blockers_must_be_there_and_must_not_wait_for_each_other() {
        let blocked = |first: BlockedBy, second: BlockedBy| {
            with(|file| {
                file.features[0].blocked_by = Some(first);
                file.features[1].blocked_by = Some(second);
            })
        };
        let one = |id: &str| BlockedBy::One(id.into());
        let many = |ids: &[&str]| BlockedBy::Many(ids.iter().map(|id| (*id).to_owned()).collect());
        blocked(one("waiting for the vendor"), one("FORGE-001")).unwrap();
        blocked(many(&[]), many(&["FORGE-001"])).unwrap();
        assert!(
            blocked(one("FORGE-003"), BlockedBy::Nothing)
                .unwrap_err()
                .contains("not there")
        );
        assert!(
            blocked(many(&["words"]), BlockedBy::Nothing).is_err(),
            "a list has ids alone"
        );
        let ring = blocked(one("FORGE-002"), many(&["FORGE-001"])).unwrap_err();
        assert_eq!(
            ring,
            "these wait for each other: FORGE-001 -> FORGE-002 -> FORGE-001"
        );
        assert!(
            blocked(one("FORGE-001"), BlockedBy::Nothing).is_err(),
            "for itself"
        );
    }

    #[test]
    fn a_long_chain_is_no_ring() {
        let file = |ring: bool| {
            let features = (0..20_000).map(|at| {
                let mut feature = Feature::new(format!("A-{at:05}"), "n");
                let next = if at == 19_999 { 0 } else { at + 1 };
                feature.blocked_by =
                    (ring || next > 0).then(|| BlockedBy::One(format!("A-{next:05}")));
                feature
            });
            let mut file: FeaturesFile =
                serde_json::from_str(r#"{"schema_version":"1.0"}"#).unwrap();
            file.features = features.collect();
            file
        };
        file(false).validate().unwrap();
        assert!(file(true).validate().is_err());
    }

    #[test]
    fn what_stops_working_loses_its_evidence() {
        let now = Time::parse("2025-12-24T12:00:00Z").unwrap();
        let mut feature = Feature::new("A-001", "n");
        feature.become_(Status::Failing, now);
        assert_eq!(feature.regressed_at, None, "it never worked");
        feature.status = Status::Passing;
        feature.evidence = Some("triv:abc_def_ghi".into());
        feature.become_(Status::Failing, now);
        assert_eq!(
            (feature.regressed_at, &feature.evidence),
            (Some(now), &None)
        );
    }
}
