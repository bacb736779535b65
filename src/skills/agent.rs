//! Import and export of `SKILL.md` (Agent Skills): front matter, then the instructions.
//!
//! The instructions are the same bytes on both sides. Members of a `SKILL.md` that a manifest lacks (licence,
//! compatibility, allowed tools, metadata) are kept in a table `[agentskills]`. Members of a manifest that a
//! `SKILL.md` lacks are kept in its metadata, as JSON.

use indexmap::IndexMap;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::front::{self, Front, Value};
use crate::manifest::{self, AGENT_SKILLS, Dependencies, Manifest, Problem, Triggers};

/// The metadata that holds the triggers.
pub(crate) const TRIGGERS: &str = "helmdeck-triggers";
/// The metadata that holds what the skill is chained to.
const DEPENDENCIES: &str = "helmdeck-dependencies";
/// The metadata key of the version, as other tools write it too.
const VERSION: &str = "version";
/// The members of a `SKILL.md` that are kept as they are.
const KEPT: [&str; 3] = ["license", "compatibility", "allowed-tools"];
/// Where the instructions of an imported skill are.
pub const INSTRUCTIONS: &str = "instructions.md";
/// Where the front matter of an imported skill is, to the byte. An export uses it while the manifest is unchanged.
pub const FRONT_MATTER: &str = "front-matter.yaml";

/// A skill made of a `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported<'a> {
    /// Its manifest.
    pub manifest: Manifest,
    /// The text of `skill.toml`.
    pub text: String,
    /// The text of `instructions.md`: the body, to the byte.
    pub instructions: &'a str,
    /// What could not be imported.
    pub warnings: Vec<Problem>,
}

/// Makes a skill of a `SKILL.md`.
///
/// # Errors
/// What is wrong with it, with the line if it is the front matter.
pub fn import(text: &str) -> Result<Imported<'_>, String> {
    let (mut front, instructions) = front::parse(text)?;
    let mut warnings = Vec::new();
    let mut manifest = Manifest {
        name: take(&mut front, "name")?.ok_or("it has no `name`")?,
        description: take(&mut front, "description")?.ok_or("it has no `description`")?.trim().to_owned(),
        version: String::new(),
        resources: std::collections::BTreeMap::from([("instructions".to_owned(), INSTRUCTIONS.to_owned())]),
        ..Manifest::default()
    };
    let mut table = Table::new();
    for key in KEPT {
        match front.shift_remove(key) {
            None => {}
            Some(Value::Text(text)) => drop(table.insert(key, value(text))),
            Some(Value::List(items)) => drop(table.insert(key, value(items.into_iter().collect::<toml_edit::Array>()))),
            Some(Value::Map(_)) => return Err(format!("`{key}` is a map")),
        }
    }
    let mut metadata = match front.shift_remove("metadata") {
        None => IndexMap::new(),
        Some(Value::Map(map)) => map,
        Some(Value::Text(text)) if text.is_empty() => IndexMap::new(),
        Some(_) => return Err("`metadata` is no map".to_owned()),
    };
    let version = metadata.get(VERSION).filter(|version| manifest::is_version(version)).cloned();
    if version.is_some() {
        metadata.shift_remove(VERSION);
    }
    manifest.version = version.unwrap_or_else(|| "1.0.0".to_owned());
    if let Some(triggers) = metadata.shift_remove(TRIGGERS) {
        manifest.triggers = serde_json::from_str(&triggers).map_err(|error| format!("`{TRIGGERS}`: {error}"))?;
    }
    if let Some(chained) = metadata.shift_remove(DEPENDENCIES) {
        manifest.dependencies = serde_json::from_str(&chained).map_err(|error| format!("`{DEPENDENCIES}`: {error}"))?;
    }
    let (keywords, patterns) = other_triggers(&mut front)?;
    merge(&mut manifest.triggers.keywords, keywords);
    merge(&mut manifest.triggers.file_patterns, patterns);
    if !metadata.is_empty() {
        let mut own = Table::new();
        for (key, text) in metadata {
            own.insert(&key, value(text));
        }
        table.insert("metadata", Item::Table(own));
    }
    for key in front.keys() {
        warnings.push(Problem::new("not_taken", format!("`{key}` is not known here, and is not taken over")));
    }
    let mut text = manifest::print(&manifest);
    if !table.is_empty() {
        let mut document = DocumentMut::new();
        document.insert(AGENT_SKILLS, Item::Table(table));
        text = format!("{text}\n{document}");
    }
    let mut read = manifest::read(&text);
    if let Some(error) = read.errors.first() {
        return Err(error.message.clone());
    }
    warnings.append(&mut read.warnings);
    Ok(Imported { manifest, text, instructions, warnings })
}

/// Returns the keywords and file patterns that a `SKILL.md` has for other clients.
///
/// They are its members `triggers` and `paths`.
///
/// # Errors
/// What is wrong with it.
pub fn triggers(text: &str) -> Result<(Vec<String>, Vec<String>), String> {
    other_triggers(&mut front::parse(text)?.0)
}

fn other_triggers(front: &mut Front) -> Result<(Vec<String>, Vec<String>), String> {
    let mut list = |key: &str| match front.shift_remove(key) {
        None => Ok(Vec::new()),
        Some(Value::List(items)) => Ok(items),
        Some(Value::Text(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Value::Text(text)) => Ok(vec![text]),
        Some(Value::Map(_)) => Err(format!("`{key}` is no list")),
    };
    Ok((list("triggers")?, list("paths")?))
}

fn merge(known: &mut Vec<String>, more: Vec<String>) {
    for text in more {
        if !known.iter().any(|known| known.eq_ignore_ascii_case(&text)) {
            known.push(text);
        }
    }
}

fn take(front: &mut Front, key: &str) -> Result<Option<String>, String> {
    match front.shift_remove(key) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Some(_) => Err(format!("`{key}` is no text")),
    }
}

/// Makes a `SKILL.md` of the text of a manifest and of the instructions.
///
/// # Errors
/// What is wrong with the manifest.
pub fn export(text: &str, instructions: &str) -> Result<String, String> {
    let read = manifest::read(text);
    if let Some(error) = read.errors.first() {
        return Err(error.message.clone());
    }
    let Manifest { name, description, version, triggers, dependencies, .. } = read.manifest;
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    let own = document.get(AGENT_SKILLS).and_then(Item::as_table_like);
    let mut front =
        Front::from([("name".to_owned(), Value::Text(name)), ("description".to_owned(), Value::Text(description))]);
    for key in KEPT {
        let Some(item) = own.and_then(|own| own.get(key)) else { continue };
        let list = || item.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>();
        let value = item.as_str().map(|text| Value::Text(text.to_owned())).or_else(|| list().map(Value::List));
        front.insert(key.to_owned(), value.ok_or_else(|| format!("`{AGENT_SKILLS}.{key}` is no text"))?);
    }
    let mut metadata = IndexMap::new();
    for (key, item) in
        own.and_then(|own| own.get("metadata")?.as_table_like()).into_iter().flat_map(|table| table.iter())
    {
        let text = item.as_str().ok_or_else(|| format!("`{AGENT_SKILLS}.metadata.{key}` is no text"))?;
        metadata.insert(key.to_owned(), text.to_owned());
    }
    metadata.insert(VERSION.to_owned(), version);
    let json = |error: serde_json::Error| error.to_string();
    if triggers != Triggers::default() {
        metadata.insert(TRIGGERS.to_owned(), serde_json::to_string(&triggers).map_err(json)?);
    }
    if dependencies != Dependencies::default() {
        metadata.insert(DEPENDENCIES.to_owned(), serde_json::to_string(&dependencies).map_err(json)?);
    }
    front.insert("metadata".to_owned(), Value::Map(metadata));
    Ok(front::print(&front) + instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RFC: &str = include_str!("fixtures/skill.toml");

    #[test]
    fn a_skill_goes_out_and_comes_back() {
        for body in ["", "# Do\n\n1. one\r\n---\n\u{feff}é", "no line feed at the end"] {
            let file = export(RFC, body).unwrap();
            let back = import(&file).unwrap();
            assert_eq!(back.instructions, body);
            let mut expected = manifest::read(RFC).manifest;
            expected.resources.remove("templates");
            assert_eq!(back.manifest, expected, "all but the files beside it");
            assert_eq!(manifest::read(&back.text).manifest, expected);
            assert_eq!(export(&back.text, back.instructions).unwrap(), file);
        }
    }

    #[test]
    fn what_a_manifest_has_no_word_for_is_kept() {
        let file = "---\nname: pdf-work\ndescription: >-\n  Fill in forms,\n  and read them.\nlicense: MIT\n\
                    allowed-tools: Bash(git:*) Read\ncompatibility: Needs git\nmetadata:\n  author: somebody\n  version: \"2.1\"\n\
                    triggers:\n  - pdf\n  - form\npaths: \"*.pdf\"\nodd: 1\n---\n\nBody\n";
        let one = import(file).unwrap();
        assert_eq!(one.manifest.description, "Fill in forms, and read them.");
        assert_eq!(one.manifest.triggers.keywords, ["pdf", "form"]);
        assert_eq!(one.manifest.triggers.file_patterns, ["*.pdf"]);
        assert_eq!(one.warnings.iter().map(|w| w.code.as_str()).collect::<Vec<_>>(), ["not_taken"], "`odd`");
        assert_eq!(one.manifest.version, "1.0.0", "2.1 is no semver, and stays where it was");
        let out = export(&one.text, one.instructions).unwrap();
        for line in [
            "license: MIT\n",
            "allowed-tools: \"Bash(git:*) Read\"\n",
            "compatibility: Needs git\n",
            "  author: somebody\n",
        ] {
            assert!(out.contains(line), "{line}{out}");
        }
        assert!(out.ends_with("\n---\n\nBody\n"));
        assert_eq!(import(&out).unwrap().manifest, one.manifest);
    }

    #[test]
    fn a_file_that_makes_no_skill_is_refused() {
        for (front, why) in [
            ("description: d", "name"),
            ("name: a", "description"),
            ("name: A b\ndescription: d", "no name of a skill"),
            ("name: [a]\ndescription: d", "no text"),
            ("name: a\ndescription: d\nmetadata: [x]", "no map"),
            ("name: a\ndescription: d\nmetadata:\n  helmdeck-triggers: x", "helmdeck-triggers"),
            ("name: a\ndescription: &d", "line 3"),
        ] {
            let error = import(&format!("---\n{front}\n---\nbody")).unwrap_err();
            assert!(error.contains(why), "{front}: {error}");
        }
    }
}
