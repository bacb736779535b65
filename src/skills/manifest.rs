//! The two forms of a manifest, read into one [`Skill`]: the front matter of `SKILL.md`, and
//! `skill.toml`.
//!
//! All problems are found at once. Nothing here converts one form into the other.

use std::collections::BTreeMap;

use helmdeck_forge_files::yaml::{self, Yaml};
use serde_json::Value;

use crate::pattern::glob;
use crate::skill::{Dependencies, Problem, Skill, Triggers, is_name};

/// The manifest in the form of Agent Skills; the instructions follow in the same file.
pub(crate) const SKILL_MD: &str = "SKILL.md";
/// The manifest in the form of the RFC.
pub(crate) const SKILL_TOML: &str = "skill.toml";
/// The resource that holds the instructions.
pub(crate) const INSTRUCTIONS: &str = "instructions";
/// The largest manifest that is read, in bytes.
pub(crate) const LARGEST: usize = 64 * 1024;
/// The longest description, in characters.
const DESCRIPTION: usize = 1024;
/// Maximum number of entries of a list.
const ENTRIES: usize = 256;
/// The longest entry of a list, in characters.
const ENTRY: usize = 200;
/// The line that begins and ends front matter.
const FENCE: &[u8] = b"---";
/// What the names of our members in `metadata` begin with, so that they are nobody else's.
const OWN: &str = "helmdeck-";

/// Returns the front matter of a `SKILL.md`, and the byte at which its body begins.
///
/// The bytes may end anywhere after the front matter.
///
/// # Errors
/// Why the file is no `SKILL.md`.
pub(crate) fn front_matter(bytes: &[u8]) -> Result<(&str, usize), Problem> {
    let mut begin = if bytes.starts_with("\u{feff}".as_bytes()) {
        3
    } else {
        0
    };
    let mut lines = bytes[begin..].split_inclusive(|byte| *byte == b'\n');
    match lines.next().filter(|line| line.trim_ascii_end() == FENCE) {
        Some(line) => begin += line.len(),
        None => {
            let message = format!("{SKILL_MD} begins with a line `---`");
            return Err(Problem {
                line: Some(1),
                ..Problem::new("no_front_matter", message)
            });
        }
    }
    let mut end = begin;
    for line in lines {
        if line.trim_ascii_end() == FENCE {
            let front = std::str::from_utf8(&bytes[begin..end])
                .map_err(|_| Problem::new("not_text", "the front matter is no UTF-8 text"))?;
            return Ok((front, end + line.len()));
        }
        end += line.len();
    }
    let message = format!("no second line `---` ends the front matter within {LARGEST} bytes");
    Err(Problem::new("no_front_matter", message))
}

/// Returns the instructions of a `SKILL.md`: the text after its front matter and empty lines.
#[must_use]
pub fn body(text: &str) -> &str {
    let body = front_matter(text.as_bytes())
        .ok()
        .and_then(|(_, begin)| text.get(begin..));
    body.unwrap_or(text).trim_start_matches(['\r', '\n'])
}

/// Reads the front matter of a `SKILL.md`.
pub(crate) fn read_md(front: &str, skill: &mut Skill) {
    let tree = match yaml::parse(front) {
        Ok(tree) => value(tree),
        // The first line of the file is the fence.
        Err(damage) => {
            let problem = Problem::new("not_yaml", damage.what);
            return skill.errors.push(Problem {
                line: Some(damage.line + 1),
                ..problem
            });
        }
    };
    skill.resources = BTreeMap::from([(INSTRUCTIONS.to_owned(), SKILL_MD.to_owned())]);
    let mut reader = Reader { tree: &tree, skill };
    reader.identity("/name", "/description", "/metadata/version");
    let triggers = Triggers {
        // Other clients write `triggers` and `paths` beside the name.
        keywords: reader.lists(["/metadata/helmdeck-triggers", "/triggers"]),
        file_patterns: reader.lists(["/metadata/helmdeck-paths", "/paths"]),
        linear_labels: reader.lists(["/metadata/helmdeck-labels"]),
        tracker: reader.flag("/metadata/helmdeck-tracker"),
    };
    let dependencies = Dependencies {
        requires: reader.lists(["/metadata/helmdeck-requires"]),
        before: reader.lists(["/metadata/helmdeck-before"]),
        after: reader.lists(["/metadata/helmdeck-after"]),
    };
    reader.unknown(
        "",
        &[
            "name",
            "description",
            "license",
            "compatibility",
            "allowed-tools",
            "metadata",
            "triggers",
            "paths",
        ],
    );
    reader.unknown_own(&[
        "triggers", "paths", "labels", "tracker", "requires", "before", "after",
    ]);
    check(skill, triggers, dependencies);
}

/// Reads a `skill.toml`.
pub(crate) fn read_toml(text: &str, skill: &mut Skill) {
    let tree = match toml::from_str::<Value>(text) {
        Ok(tree) => tree,
        Err(error) => {
            let line = error.span().map(|span| {
                1 + text
                    .bytes()
                    .take(span.start)
                    .filter(|byte| *byte == b'\n')
                    .count()
            });
            return skill.errors.push(Problem {
                line,
                ..Problem::new("not_toml", error.message())
            });
        }
    };
    let mut reader = Reader { tree: &tree, skill };
    reader.identity("/skill/name", "/skill/description", "/skill/version");
    let triggers = Triggers {
        keywords: reader.lists(["/triggers/keywords"]),
        file_patterns: reader.lists(["/triggers/file_patterns"]),
        linear_labels: reader.lists(["/triggers/linear_labels"]),
        tracker: reader.flag("/triggers/tracker"),
    };
    let dependencies = Dependencies {
        requires: reader.lists(["/dependencies/requires"]),
        before: reader.lists(["/dependencies/before"]),
        after: reader.lists(["/dependencies/after"]),
    };
    reader.resources();
    reader.unknown("", &["skill", "triggers", "resources", "dependencies"]);
    reader.unknown("/skill", &["name", "description", "version"]);
    reader.unknown(
        "/triggers",
        &["keywords", "file_patterns", "linear_labels", "tracker"],
    );
    reader.unknown("/dependencies", &["requires", "before", "after"]);
    check(skill, triggers, dependencies);
}

/// Checks what both forms say, and keeps it.
fn check(skill: &mut Skill, triggers: Triggers, dependencies: Dependencies) {
    let length = skill.description.chars().count();
    if length > DESCRIPTION {
        let message =
            format!("the description has {length} characters; the limit is {DESCRIPTION}");
        skill.error("description_length", message);
    }
    for pattern in &triggers.file_patterns {
        if let Err(why) = glob(pattern) {
            skill.error("pattern", format!("the pattern {pattern:?}: {why}"));
        }
    }
    let Dependencies {
        requires,
        before,
        after,
    } = &dependencies;
    for other in requires
        .iter()
        .chain(before)
        .chain(after)
        .filter(|other| !is_name(other))
    {
        skill.error(
            "dependency",
            format!("it is chained to {other:?}, which is no name of a skill"),
        );
    }
    skill.triggers = triggers;
    skill.dependencies = dependencies;
}

/// Returns a value of YAML as one of JSON. Texts stay texts: `1.0` is no number, `yes` no boolean.
fn value(yaml: Yaml) -> Value {
    match yaml {
        Yaml::Text { text, plain: true } if text.is_empty() => Value::Null,
        Yaml::Text { text, .. } => Value::String(text),
        Yaml::List(items) => items.into_iter().map(value).collect(),
        Yaml::Map(members) => members
            .into_iter()
            .map(|(name, member)| (name, value(member)))
            .collect(),
    }
}

/// Reads the members of a manifest, each by its place: `/skill/name`.
struct Reader<'a> {
    tree: &'a Value,
    skill: &'a mut Skill,
}

impl Reader<'_> {
    fn identity(&mut self, name: &str, description: &str, version: &str) {
        let own = self.required(name);
        if !own.is_empty() && own != self.skill.name {
            let message = format!(
                "it calls itself {own:?}, but its folder is {:?}",
                self.skill.name
            );
            self.skill.error("name", message);
        }
        self.skill.description = self.required(description);
        self.skill.version = self.text(version).filter(|text| !text.is_empty());
    }

    fn required(&mut self, at: &str) -> String {
        let text = self.text(at);
        if text.as_deref() == Some("") {
            self.skill
                .error("missing", format!("`{}` is missing or empty", dotted(at)));
        }
        text.unwrap_or_default()
    }

    /// Returns a text, empty if there is none; nothing for what is no text.
    fn text(&mut self, at: &str) -> Option<String> {
        match self.tree.pointer(at) {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(text)) => Some(text.trim().to_owned()),
            Some(_) => {
                self.skill
                    .error("wrong_type", format!("`{}` is no text", dotted(at)));
                None
            }
        }
    }

    fn flag(&mut self, at: &str) -> bool {
        match self.tree.pointer(at) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) if matches!(text.as_str(), "true" | "false") => {
                text == "true"
            }
            Some(_) => {
                self.skill.error(
                    "wrong_type",
                    format!("`{}` is neither true nor false", dotted(at)),
                );
                false
            }
        }
    }

    /// Returns the entries of lists. A list is one of texts, or one text with commas.
    fn lists<const N: usize>(&mut self, places: [&str; N]) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for at in places {
            for text in self.list(at) {
                if !all.iter().any(|known| known.eq_ignore_ascii_case(&text)) {
                    all.push(text);
                }
            }
        }
        all
    }

    fn list(&mut self, at: &str) -> Vec<String> {
        let texts: Option<Vec<&str>> = match self.tree.pointer(at) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::String(text)) => Some(split(text)),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| Some(item.as_str()?.trim()))
                .collect(),
            Some(_) => None,
        };
        let Some(texts) = texts else {
            self.skill.error(
                "wrong_type",
                format!("`{}` is no list of texts", dotted(at)),
            );
            return Vec::new();
        };
        if texts.len() > ENTRIES {
            self.skill.error(
                "entries",
                format!("`{}` has more than {ENTRIES} entries", dotted(at)),
            );
        }
        let fits = |text: &&str| !text.is_empty() && text.chars().count() <= ENTRY;
        if !texts.iter().all(fits) {
            let message = format!(
                "an entry of `{}` is empty or longer than {ENTRY} characters",
                dotted(at)
            );
            self.skill.error("entry", message);
        }
        texts
            .into_iter()
            .filter(fits)
            .take(ENTRIES)
            .map(str::to_owned)
            .collect()
    }

    fn resources(&mut self) {
        let resources = self.tree.get("resources").and_then(Value::as_object);
        for (name, path) in resources.into_iter().flatten() {
            match path.as_str() {
                Some(path) => drop(self.skill.resources.insert(name.clone(), path.to_owned())),
                None => self
                    .skill
                    .error("wrong_type", format!("`resources.{name}` is no text")),
            }
        }
        self.skill
            .resources
            .entry(INSTRUCTIONS.to_owned())
            .or_insert_with(|| "instructions.md".to_owned());
    }

    /// Warns of the members of an object that are not known.
    fn unknown(&mut self, at: &str, known: &[&str]) {
        match self.tree.pointer(at) {
            Some(Value::Object(members)) => {
                for name in members
                    .keys()
                    .filter(|name| !known.contains(&name.as_str()))
                {
                    let place = dotted(&format!("{at}/{name}"));
                    self.skill
                        .warn("unknown_key", format!("`{place}` has no effect here"));
                }
            }
            None => {}
            Some(_) if at.is_empty() => self.skill.error("wrong_type", "there is no `name: value`"),
            Some(_) => self
                .skill
                .error("wrong_type", format!("`{}` is no table", dotted(at))),
        }
    }

    /// As [`Self::unknown`], of our members in `metadata`. Those of others are theirs.
    fn unknown_own(&mut self, known: &[&str]) {
        let metadata = self.tree.get("metadata").and_then(Value::as_object);
        for name in metadata.into_iter().flatten().map(|(name, _)| name) {
            if name
                .strip_prefix(OWN)
                .is_some_and(|name| !known.contains(&name))
            {
                self.skill.warn(
                    "unknown_key",
                    format!("`metadata.{name}` has no effect here"),
                );
            }
        }
    }
}

/// Returns a place as a manifest would have it: `skill.name` of `/skill/name`.
fn dotted(at: &str) -> String {
    at.trim_start_matches('/').replace('/', ".")
}

/// Splits a text at its commas, but for those of a pattern such as `*.{c,h}`.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = text.split(|char| {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RFC: &str = include_str!("fixtures/skill.toml");

    fn md(file: &str) -> Skill {
        let mut skill = Skill::named("one");
        match front_matter(file.as_bytes()) {
            Ok((front, _)) => read_md(front, &mut skill),
            Err(problem) => skill.errors.push(problem),
        }
        skill
    }

    fn toml(name: &str, text: &str) -> Skill {
        let mut skill = Skill::named(name);
        read_toml(text, &mut skill);
        skill
    }

    fn codes(problems: &[Problem]) -> Vec<&str> {
        problems
            .iter()
            .map(|problem| problem.code.as_str())
            .collect()
    }

    #[test]
    fn manifest_of_the_rfc_is_read() {
        let skill = toml("code-generation", RFC);
        assert_eq!((&skill.errors, &skill.warnings), (&vec![], &vec![]));
        assert_eq!(
            skill.description,
            "Generate Rust code following sx9 patterns"
        );
        assert_eq!(skill.version.as_deref(), Some("1.0.0"));
        assert_eq!(
            skill.triggers.keywords,
            ["generate", "create", "implement", "add function"]
        );
        assert_eq!(skill.triggers.file_patterns, ["*.rs", "Cargo.toml"]);
        assert_eq!(skill.triggers.linear_labels, ["feature", "enhancement"]);
        assert_eq!(skill.resources["instructions"], "instructions.md");
        assert_eq!(skill.resources["templates"], "templates/");
        assert_eq!(skill.dependencies.requires, ["qa-review"]);
    }

    #[test]
    fn both_forms_make_the_same_skill() {
        let of_md = md(concat!(
            "---\nname: one\ndescription: Fill in forms\nlicense: MIT\nallowed-tools: Bash(git:*) Read\n",
            "compatibility: Needs git\nmetadata:\n  author: somebody\n  version: 1.0.0\n",
            "  helmdeck-triggers: pdf, fill in\n  helmdeck-paths: \"*.{pdf,fdf}, forms/**\"\n",
            "  helmdeck-labels: form\n  helmdeck-tracker: true\n  helmdeck-requires: qa-review\n",
            "  helmdeck-before: a, b\n---\nBody\n"
        ));
        let of_toml = toml(
            "one",
            concat!(
                "[skill]\nname = \"one\"\ndescription = \"Fill in forms\"\nversion = \"1.0.0\"\n",
                "[triggers]\nkeywords = [\"pdf\", \"fill in\"]\nfile_patterns = [\"*.{pdf,fdf}\", \"forms/**\"]\n",
                "linear_labels = [\"form\"]\ntracker = true\n[resources]\ninstructions = \"SKILL.md\"\n",
                "[dependencies]\nrequires = [\"qa-review\"]\nbefore = [\"a\", \"b\"]\n"
            ),
        );
        assert_eq!(of_md, of_toml);
        assert!(of_md.is_valid() && of_md.warnings.is_empty(), "{of_md:?}");
    }

    #[test]
    fn triggers_of_other_clients_count() {
        let skill = md(
            "---\nname: one\ndescription: >-\n  Fill in forms,\n  and read them.\ntriggers:\n- pdf\n- \"b, c\"\n\
             paths: \"*.pdf\"\nmetadata:\n  helmdeck-triggers: PDF\nmodel: x\nhooks:\n  stop:\n  - a: b\n---\n",
        );
        assert_eq!(skill.description, "Fill in forms, and read them.");
        assert_eq!(skill.triggers.keywords, ["PDF", "b, c"]);
        assert_eq!(skill.triggers.file_patterns, ["*.pdf"]);
        assert!(skill.is_valid());
        let unknown: Vec<_> = skill
            .warnings
            .iter()
            .map(|warning| warning.message.as_str())
            .collect();
        assert_eq!(
            unknown,
            ["`hooks` has no effect here", "`model` has no effect here"]
        );
    }

    #[test]
    fn every_problem_of_a_manifest_is_found() {
        let text = "[skill]\nname = \"two\"\ndescription = \"\"\nversion = 1\nauthor = \"x\"\n[triggers]\n\
                    keywords = 1\nfile_patterns = [\"{a\"]\nlinear_labels = [\"\"]\ntracker = 1\n\
                    [resources]\nmore = 1\n[dependencies]\nrequires = [\"No\"]\n[odd]\n";
        let skill = toml("one", text);
        let expected = [
            "name",
            "missing",
            "wrong_type",
            "wrong_type",
            "entry",
            "wrong_type",
            "wrong_type",
            "pattern",
            "dependency",
        ];
        assert_eq!(codes(&skill.errors), expected, "{:#?}", skill.errors);
        assert_eq!(codes(&skill.warnings), ["unknown_key", "unknown_key"]);
        let skill = toml("one", "[skill]\nname = \"one\"\nname = \"two\"\n");
        assert_eq!(
            (codes(&skill.errors), skill.errors[0].line),
            (vec!["not_toml"], Some(3))
        );
        assert_eq!(codes(&toml("one", "").errors), ["missing", "missing"]);
        assert_eq!(
            codes(&toml("one", "skill = 1").errors),
            ["missing", "missing", "wrong_type"]
        );
        let long = format!("---\nname: one\ndescription: {}\n---\n", "é".repeat(1025));
        assert_eq!(codes(&md(&long).errors), ["description_length"]);
        assert!(md(&long.replacen('é', "", 1)).is_valid());
    }

    #[test]
    fn refused_skill_md_says_what_and_where() {
        for (file, line, why) in [
            ("", Some(1), "begins with"),
            ("# no front matter", Some(1), "begins with"),
            ("---\na: b\n", None, "no second line"),
            (
                "---\nname: one\ndescription: &x d\n---\n",
                Some(3),
                "anchor",
            ),
            ("---\nname: one\nname: one\n---\n", Some(3), "twice"),
            ("---\nmetadata:\n\ta: b\n---\n", Some(3), "tabs"),
            ("---\ndescription: d\n---\n", None, "`name` is missing"),
            (
                "---\nname: [one]\ndescription: d\n---\n",
                None,
                "`name` is no text",
            ),
            (
                "---\nname: two\ndescription: d\n---\n",
                None,
                "calls itself \"two\"",
            ),
            ("---\n- a\n---\n", None, "`name` is missing"),
            (
                "---\nname: one\ndescription: d\npaths: {a: b}\n---\n",
                None,
                "no list of texts",
            ),
        ] {
            let skill = md(file);
            let first = skill
                .errors
                .first()
                .unwrap_or_else(|| panic!("{file:?} is read"));
            assert!(
                first.line == line && first.message.contains(why),
                "{file:?}: {first:?}"
            );
        }
        let skill = md("---\nname: one\ndescription: d\nmetadata:\n  helmdeck-path: x\n---\n");
        assert_eq!(
            skill.warnings[0].message,
            "`metadata.helmdeck-path` has no effect here"
        );
    }

    #[test]
    fn body_follows_front_matter() {
        for body in [
            "",
            "# Do\n\n1. one\r\n---\n\u{feff}é",
            "no line feed at the end",
        ] {
            assert_eq!(
                super::body(&format!("---\nname: a\n---\n\r\n\n{body}")),
                body
            );
            assert_eq!(
                super::body(&format!("\u{feff}---\r\nname: a\r\n--- \r\n{body}")),
                body
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(---\n)?[a-c:\\-\\[\\]|>\"'# \n\t{},&]{0,60}\n---\n.{0,9}") {
            let _ = md(&text);
        }
    }
}
