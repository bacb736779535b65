//! Offers: what a caller might save, with the place it would be saved in. Nothing is saved here.

use std::path::Path;

use crate::readers::{Kind, LongTerm, Look, Name, ProjectFolder, Vault};
use helmdeck_core::text::visible;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::config::SeamConfig;
use crate::context::Context;
use crate::error::Warning;
use crate::fingerprint::fingerprint;
use crate::phase::Read;
use crate::resolved::Resolved;

/// Members from a caller, in the order in which they are shown.
const FIRST: [&str; 5] = ["kind", "slug", "body", "confidence", "confidence_reason"];
/// Added members, in order.
const ADDED: [&str; 6] = [
    "project",
    "phase",
    "target",
    "target_key",
    "fingerprint",
    "duplicate_of",
];
/// The long-term memory of a project without a vault, from its root.
const LONG_TERM: &str = ".forge/memory/long-term";
/// Maximum number of notes compared with a candidate.
const MOST_COMPARED: usize = 2_000;
/// The largest note that is compared, in bytes.
const COMPARED: u64 = 64 << 10;
/// Path of the learned knowledge in a project without a vault, from its root.
const KNOWLEDGE: &str = ".forge/memory/long-term/knowledge";

/// A note that could be saved: the caller's members, and its target.
///
/// Added are `project`, `phase` (if there is one), `target`, `target_key`, `fingerprint` and
/// `duplicate_of`. The members have an order: `kind`, `slug`, `body`, `confidence`,
/// `confidence_reason`, the caller's others, what was added.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate(Vec<(String, Value)>);

impl Candidate {
    /// Returns a member.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// Returns the members in their order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A candidate that could be saved, and warnings.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Offer {
    /// One candidate, or none.
    pub candidates: Vec<Candidate>,
    /// Warnings about what could not be read.
    pub warnings: Vec<Warning>,
}

impl Offer {
    pub(crate) fn of(
        mut resolved: Resolved<'_>,
        config: &SeamConfig,
        context: &Context,
        candidate: &Value,
    ) -> Self {
        resolved.warn_of_slug();
        let mut members = match candidate {
            empty if is_empty(empty) => {
                return Self {
                    candidates: Vec::new(),
                    warnings: resolved.warnings,
                };
            }
            Value::Object(members) => members.clone(),
            other => Map::from_iter([("body".to_owned(), other.clone())]),
        };
        let Some(name) = resolved.name().cloned() else {
            return Self {
                candidates: Vec::new(),
                warnings: resolved.warnings,
            };
        };
        let place = resolved
            .vault
            .as_ref()
            .map(|(vault, _)| (vault, vault.project(&name)));
        let forge = resolved.forge(config).unwrap_or_else(|warning| {
            resolved.warnings.push(warning);
            None
        });
        let (target, key) = match (&place, &forge) {
            (Some((_, place)), _) => (place.path.clone(), place.key.clone()),
            (None, Some(forge)) => (forge.root().join(LONG_TERM), LONG_TERM.to_owned()),
            (None, None) => {
                return Self {
                    candidates: Vec::new(),
                    warnings: resolved.warnings,
                };
            }
        };
        let body = members.get("body").and_then(Value::as_str);
        let mark = body.map(fingerprint);
        let kind = members
            .get("kind")
            .and_then(Value::as_str)
            .and_then(|kind| Name::parse(kind).ok());
        // What is read is shown so, too.
        let shown = body.map(|body| fingerprint(&visible(body)));
        let of_vault = place.as_ref().zip(shown.as_ref());
        let mut duplicate = of_vault.and_then(|((vault, place), mark)| {
            same_note(resolved.look, vault, place, kind.as_ref(), mark)
        });
        if let (None, Some(forge), Some(mark)) = (&duplicate, &forge, &shown) {
            match same_entry(forge, mark) {
                Ok(found) => duplicate = found,
                Err(why) => resolved.warnings.push(Warning::unreadable(why)),
            }
        }
        members
            .entry("project")
            .or_insert_with(|| name.as_str().into());
        if let Some(phase) = context.phase.as_deref().filter(|phase| !phase.is_empty()) {
            members.entry("phase").or_insert_with(|| phase.into());
        }
        members.insert("target".to_owned(), target.to_string_lossy().into());
        members.insert("target_key".to_owned(), key.into());
        members.entry("fingerprint").or_insert_with(|| mark.into());
        members.insert("duplicate_of".to_owned(), duplicate.into());
        Self {
            candidates: vec![in_order(members)],
            warnings: resolved.warnings,
        }
    }
}

/// Returns whether there is nothing to save.
fn is_empty(candidate: &Value) -> bool {
    match candidate {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn in_order(mut members: Map<String, Value>) -> Candidate {
    let mut take = |names: &[&str]| -> Vec<(String, Value)> {
        names
            .iter()
            .filter_map(|name| members.remove_entry(*name))
            .collect()
    };
    let (mut all, added) = (take(&FIRST), take(&ADDED));
    all.extend(members);
    all.extend(added);
    Candidate(all)
}

/// Finds a valid note with the same text.
///
/// It looks in the project, among those of this kind, or among those that are always loaded. It
/// compares the text, not the fingerprint once written into the note.
fn same_note(
    look: &dyn Look,
    vault: &Vault<'_>,
    place: &ProjectFolder,
    kind: Option<&Name>,
    mark: &str,
) -> Option<String> {
    let of_project = Read::ALL.iter().map(|read| place.path.join(read.path()));
    let folders = of_project.chain(kind.into_iter().flat_map(|kind| vault.folders_of(kind)));
    // What cannot be read is the same as nothing.
    let notes = folders.flat_map(|folder| vault.notes(&folder).unwrap_or_default());
    let always = std::iter::once_with(|| vault.always_load().notes).flatten();
    let is_same = |path: &Path| {
        let about = look.behind(path).ok().flatten()?;
        // To read a large one to its end would take long.
        let size = Some(about)
            .filter(|about| about.kind == Kind::File && about.size <= COMPARED)?
            .size;
        let note = vault.note(path, usize::try_from(size).ok()?).ok()??;
        Some(note.whole && note.holds() && fingerprint(note.text()) == mark)
    };
    let mut notes = notes.chain(always).take(MOST_COMPARED);
    let found = notes.find(|file| is_same(&file.path).unwrap_or_default())?;
    Some(found.path.to_string_lossy().into_owned())
}

/// Finds learned knowledge with the same text. Returns the file, `#` and its id.
fn same_entry(forge: &LongTerm<'_>, mark: &str) -> Result<Option<String>, String> {
    let same = |text: String| fingerprint(&visible(&text)) == mark;
    let found = forge
        .learned()?
        .into_iter()
        .find(|entry| entry.sayings().any(same));
    Ok(found.map(|entry| format!("{}#{}", forge.root().join(KNOWLEDGE).display(), entry.id)))
}
