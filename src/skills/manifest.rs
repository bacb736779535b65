//! The manifest `skill.toml`: name, triggers, resources and chained skills.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml_edit::{Array, Document, DocumentMut, Item, Table, Value, value};

use crate::pattern::Pattern;

/// The largest manifest that is read, in bytes.
pub(crate) const LARGEST: usize = 64 * 1024;
/// The table for members of a `SKILL.md` that a manifest lacks.
pub(crate) const AGENT_SKILLS: &str = "agentskills";
/// The longest name of a skill, in bytes.
const NAME: usize = 64;
/// The longest description, in characters.
const DESCRIPTION: usize = 1024;
/// Maximum number of entries of a list.
const ENTRIES: usize = 256;
/// The longest entry of a list, in characters.
const ENTRY: usize = 200;

/// A manifest. An edit of the file leaves unknown members as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The name: that of the folder.
    pub name: String,
    /// What the skill does and when to use it, 1 to 1,024 characters.
    pub description: String,
    /// The version, as semver has it.
    pub version: String,
    /// When it fires.
    pub triggers: Triggers,
    /// Its resources: a path below the folder for each name. `instructions` is always there.
    pub resources: BTreeMap<String, String>,
    /// The skills that it is chained to.
    pub dependencies: Dependencies,
}

/// When a skill fires.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Triggers {
    /// Words and phrases, found as whole words in any case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Patterns of files. Without a slash they are compared with the name of the file, else with its path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_patterns: Vec<String>,
    /// Labels of an issue, in any case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub linear_labels: Vec<String>,
}

impl Triggers {
    /// Returns how many there are. The fewer, the more specific is the skill.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keywords.len() + self.file_patterns.len() + self.linear_labels.len()
    }

    /// Says whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a skill is chained to: names of skills.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Dependencies {
    /// These must exist, and run after this skill.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// These run before this skill, if they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// These run after this skill, if they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl Dependencies {
    /// Says whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requires.is_empty() && self.before.is_empty() && self.after.is_empty()
    }
}

/// Error or warning about a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// What kind of problem: `description_length`, `unknown_table`.
    pub code: String,
    /// What it is, and where.
    pub message: String,
    /// The line of the manifest, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Problem {
    /// Makes a problem without a line number.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), line: None }
    }
}

/// A manifest as it was read: whole, or as much of it as could be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// What could be read. A text that is missing is empty.
    pub manifest: Manifest,
    /// What makes the skill unusable.
    pub errors: Vec<Problem>,
    /// Harmless problems: unknown tables and keys, which are kept.
    pub warnings: Vec<Problem>,
}

/// Says whether a text is a valid name of a skill.
///
/// A name is 1 to 64 of `a-z`, `0-9` and `-`, with no `-` at either end and no two in a row.
#[must_use]
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

/// Says whether a text is a version: `1.2.3`, `1.0.0-rc.1+build`.
#[must_use]
pub(crate) fn is_version(text: &str) -> bool {
    let number = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
    };
    let parts = |text: &str, numbers: bool| {
        text.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && (!numbers || number(part) || !part.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(text, pre)| (text, Some(pre)));
    text.len() <= NAME
        && core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| parts(pre, true))
        && build.is_none_or(|build| parts(build, false))
}

/// Says whether a text is a path below a folder: relative, without `..`, `\`, NUL or a drive.
#[must_use]
pub(crate) fn is_inside(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    !path.is_empty()
        && path.len() <= 4096
        && !path.contains(['\\', '\0', ':'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Parses a manifest. All its errors are returned at once.
#[must_use]
pub fn read(text: &str) -> Read {
    let mut reader = Reader { text, read: Read::default() };
    if text.len() > LARGEST {
        reader.error("too_large", format!("skill.toml is larger than {LARGEST} bytes"), None);
        return reader.read;
    }
    match Document::parse(text) {
        Ok(document) => reader.document(document.as_table()),
        Err(error) => reader.error("not_toml", error.message().to_owned(), error.span()),
    }
    reader.read
}

struct Reader<'a> {
    text: &'a str,
    read: Read,
}

impl Reader<'_> {
    fn problem(&self, code: &str, message: String, span: Option<Range<usize>>) -> Problem {
        let line = span.map(|span| 1 + self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
        Problem { line, ..Problem::new(code, message) }
    }

    fn error(&mut self, code: &str, message: String, span: Option<Range<usize>>) {
        let problem = self.problem(code, message, span);
        self.read.errors.push(problem);
    }

    fn warn(&mut self, code: &str, message: String, span: Option<Range<usize>>) {
        let problem = self.problem(code, message, span);
        self.read.warnings.push(problem);
    }

    fn document(&mut self, root: &Table) {
        for (name, item) in root {
            match name {
                "skill" | "triggers" | "resources" | "dependencies" | AGENT_SKILLS if item.is_table_like() => {}
                "skill" | "triggers" | "resources" | "dependencies" | AGENT_SKILLS => {
                    self.error("wrong_type", format!("`{name}` is no table"), item.span());
                }
                _ => self.warn("unknown_table", format!("`{name}` is not known; it is kept as it is"), item.span()),
            }
        }
        if root.get("skill").is_none() {
            self.error("missing", "there is no table `[skill]`".to_owned(), None);
        }
        self.read.manifest.name = self.text_of(root, "skill", "name");
        self.read.manifest.description = self.text_of(root, "skill", "description");
        self.read.manifest.version = self.text_of(root, "skill", "version");
        self.read.manifest.triggers = Triggers {
            keywords: self.list_of(root, "triggers", "keywords"),
            file_patterns: self.list_of(root, "triggers", "file_patterns"),
            linear_labels: self.list_of(root, "triggers", "linear_labels"),
        };
        self.read.manifest.dependencies = Dependencies {
            requires: self.list_of(root, "dependencies", "requires"),
            before: self.list_of(root, "dependencies", "before"),
            after: self.list_of(root, "dependencies", "after"),
        };
        self.resources(root);
        self.unknown(root, "skill", &["name", "description", "version"]);
        self.unknown(root, "triggers", &["keywords", "file_patterns", "linear_labels"]);
        self.unknown(root, "dependencies", &["requires", "before", "after"]);
        self.check(root);
    }

    fn check(&mut self, root: &Table) {
        let manifest = std::mem::take(&mut self.read.manifest);
        let Manifest { name, description, version, triggers, dependencies, .. } = &manifest;
        let at = |table: &str, key: &str| root.get(table).and_then(|table| table.get(key)).and_then(Item::span);
        if !name.is_empty() && !is_name(name) {
            let rule = "1 to 64 of a-z, 0-9 and single hyphens inside";
            self.error("name", format!("{name:?} is no name of a skill: {rule}"), at("skill", "name"));
        }
        let length = description.chars().count();
        if length > DESCRIPTION {
            let message = format!("the description has {length} characters; the most is {DESCRIPTION}");
            self.error("description_length", message, at("skill", "description"));
        }
        if !version.is_empty() && !is_version(version) {
            self.error("version", format!("{version:?} is no version like 1.0.0"), at("skill", "version"));
        }
        for pattern in &triggers.file_patterns {
            if let Err(why) = Pattern::parse(pattern) {
                self.error("pattern", format!("the pattern {pattern:?}: {why}"), at("triggers", "file_patterns"));
            }
        }
        for (key, names) in
            [("requires", &dependencies.requires), ("before", &dependencies.before), ("after", &dependencies.after)]
        {
            for other in names.iter().filter(|other| !is_name(other)) {
                let message = format!("`{key}` names {other:?}, which is no name of a skill");
                self.error("dependency", message, at("dependencies", key));
            }
        }
        self.read.manifest = manifest;
    }

    fn resources(&mut self, root: &Table) {
        let Some(resources) = root.get("resources").and_then(Item::as_table_like) else {
            return self.error("missing", "`[resources]` does not say where `instructions` are".to_owned(), None);
        };
        for (name, item) in resources.iter() {
            match item.as_str() {
                Some(path) if is_inside(path) => {
                    self.read.manifest.resources.insert(name.to_owned(), path.to_owned());
                }
                Some(path) => {
                    let message = format!("`{name}` names {path:?}, which does not lie inside the skill");
                    self.error("outside", message, item.span());
                }
                None => self.error("wrong_type", format!("`resources.{name}` is no text"), item.span()),
            }
        }
        if resources.get("instructions").is_none() {
            self.error("missing", "`[resources]` does not say where `instructions` are".to_owned(), None);
        }
    }

    fn text_of(&mut self, root: &Table, table: &str, key: &str) -> String {
        let Some(table_like) = root.get(table).and_then(Item::as_table_like) else { return String::new() };
        let Some(item) = table_like.get(key) else {
            self.error("missing", format!("`{table}.{key}` is missing"), None);
            return String::new();
        };
        match item.as_str() {
            Some(text) if !text.trim().is_empty() => text.to_owned(),
            Some(_) => {
                self.error("missing", format!("`{table}.{key}` is empty"), item.span());
                String::new()
            }
            None => {
                self.error("wrong_type", format!("`{table}.{key}` is no text"), item.span());
                String::new()
            }
        }
    }

    fn list_of(&mut self, root: &Table, table: &str, key: &str) -> Vec<String> {
        let Some(item) = root.get(table).and_then(Item::as_table_like).and_then(|table| table.get(key)) else {
            return Vec::new();
        };
        let texts: Option<Vec<&str>> = item.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        let Some(texts) = texts else {
            self.error("wrong_type", format!("`{table}.{key}` is no list of texts"), item.span());
            return Vec::new();
        };
        if texts.len() > ENTRIES {
            self.error("too_many", format!("`{table}.{key}` has more than {ENTRIES} entries"), item.span());
        }
        let fits = |text: &&str| !text.trim().is_empty() && text.chars().count() <= ENTRY;
        if !texts.iter().all(fits) {
            let message = format!("an entry of `{table}.{key}` is empty or longer than {ENTRY} characters");
            self.error("entry", message, item.span());
        }
        texts.into_iter().filter(fits).take(ENTRIES).map(str::to_owned).collect()
    }

    fn unknown(&mut self, root: &Table, table: &str, known: &[&str]) {
        let Some(items) = root.get(table).and_then(Item::as_table_like) else { return };
        for (key, item) in items.iter().filter(|(key, _)| !known.contains(key)) {
            self.warn("unknown_key", format!("`{table}.{key}` is not known; it is kept as it is"), item.span());
        }
    }
}

/// Formats a new manifest, in the layout of the RFC.
#[must_use]
pub(crate) fn print(manifest: &Manifest) -> String {
    let mut document = DocumentMut::new();
    let table = |entries: Vec<(&str, Item)>| {
        let mut table = Table::new();
        for (key, item) in entries {
            table.insert(key, item);
        }
        Item::Table(table)
    };
    let lists = |lists: [(&'static str, &[String]); 3]| -> Vec<(&'static str, Item)> {
        lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(key, list)| (key, texts(list))).collect()
    };
    document.insert(
        "skill",
        table(vec![
            ("name", value(&manifest.name)),
            ("description", value(&manifest.description)),
            ("version", value(&manifest.version)),
        ]),
    );
    let Triggers { keywords, file_patterns, linear_labels } = &manifest.triggers;
    if !manifest.triggers.is_empty() {
        let all = [
            ("keywords", keywords.as_slice()),
            ("file_patterns", file_patterns.as_slice()),
            ("linear_labels", linear_labels.as_slice()),
        ];
        document.insert("triggers", table(lists(all)));
    }
    let resources = manifest.resources.iter().map(|(name, path)| (name.as_str(), value(path))).collect();
    document.insert("resources", table(resources));
    let Dependencies { requires, before, after } = &manifest.dependencies;
    if !manifest.dependencies.is_empty() {
        let all = [("requires", requires.as_slice()), ("before", before.as_slice()), ("after", after.as_slice())];
        document.insert("dependencies", table(lists(all)));
    }
    document.to_string()
}

fn texts(list: &[String]) -> Item {
    value(list.iter().map(String::as_str).collect::<Array>())
}

/// Adds keywords and patterns to the text of a manifest. Every other byte stays.
///
/// Returns `None` if all are there already.
///
/// # Errors
/// What is wrong with the text.
pub fn add_triggers(text: &str, keywords: &[String], patterns: &[String]) -> Result<Option<String>, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    let mut changed = false;
    for (key, more) in [("keywords", keywords), ("file_patterns", patterns)] {
        if more.is_empty() {
            continue;
        }
        let triggers = document.entry("triggers").or_insert_with(|| Item::Table(Table::new()));
        let triggers = triggers.as_table_like_mut().ok_or("`triggers` is no table")?;
        let list = triggers.entry(key).or_insert_with(|| value(Array::new()));
        let list = list.as_array_mut().ok_or_else(|| format!("`triggers.{key}` is no list"))?;
        for text in more {
            if !list.iter().any(|known| known.as_str().is_some_and(|known| known.eq_ignore_ascii_case(text))) {
                list.push(text);
                changed = true;
            }
        }
    }
    Ok(changed.then(|| document.to_string()))
}

#[cfg(test)]
mod tests;
