//! Metadata of the skills in `.forge/skills/`.
//!
//! Instructions are not opened; the metadata of their files is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::num::NonZero;
use std::path::Path;
use std::thread::{self, available_parallelism};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chain::{Chains, circles};
use crate::manifest::{self, Dependencies, LARGEST, Problem, Triggers};
use helmdeck_forge_files::error::{Error, Result};
use helmdeck_forge_files::layout;

/// Advised limit for the metadata of a skill, in tokens.
const METADATA: u64 = 100;
/// Size of instructions, in tokens, above which there is a warning.
pub(crate) const MANY: u64 = 5_000;
/// Limit for the size of instructions, in tokens.
pub const TOO_MANY: u64 = 20_000;
/// Maximum number of skills of a project.
const SKILLS: usize = 10_000;
/// Maximum number of threads that read skills.
const THREADS: usize = 4;
/// Number of skills per thread.
const WORTH: usize = 200;

/// Metadata of a skill, known without reading its instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// The name: that of the folder.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The version.
    pub version: String,
    /// When it fires.
    pub triggers: Triggers,
    /// Its resources: a path below its folder for each name.
    pub resources: BTreeMap<String, String>,
    /// The skills that it is chained to.
    #[serde(default, skip_serializing_if = "Dependencies::is_empty")]
    pub dependencies: Dependencies,
    /// How much there is to read.
    pub tokens: Tokens,
    /// Whether it can be used.
    pub valid: bool,
    /// Why it cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Problem>,
    /// Harmless problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Problem>,
}

/// How much there is to read. These are estimates: a token for every four bytes, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Name, description and triggers.
    pub metadata: u64,
    /// The instructions.
    pub instructions: u64,
}

/// Estimates the tokens of a text from its size in bytes.
#[must_use]
pub const fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Returns the skills of a project by name, invalid ones too. Without a folder there is none.
///
/// # Errors
/// `Failed` if the folder cannot be read. A skill that cannot be read is an invalid skill, and hides no other.
pub fn scan(root: &Path) -> Result<Vec<Skill>> {
    let folder = root.join(layout::SKILLS);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("reading the folder", &folder, &error)),
    };
    let mut names = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("reading the folder", &folder, &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(|error| Error::io("looking at", &entry.path(), &error))?;
        if !name.starts_with('.') && !kind.is_file() {
            names.insert(name, kind.is_dir());
        }
        if names.len() > SKILLS {
            return Err(Error::refused(format!("{} holds more than {SKILLS} skills", folder.display())));
        }
    }
    let mut skills = look_at_all(&folder, &names.into_iter().collect::<Vec<_>>());
    link(&mut skills);
    Ok(skills)
}

/// Looks at skills, each a name and whether it is a folder; at many with several threads.
fn look_at_all(folder: &Path, names: &[(String, bool)]) -> Vec<Skill> {
    let some = |names: &[(String, bool)]| -> Vec<Skill> {
        names.iter().map(|(name, is_folder)| look(&folder.join(name), name.clone(), *is_folder)).collect()
    };
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS).min(names.len() / WORTH + 1);
    if threads == 1 {
        return some(names);
    }
    let (own, rest) = names.split_at(names.len() / threads);
    thread::scope(|scope| {
        let others: Vec<_> = rest
            .chunks(rest.len().div_ceil(threads - 1))
            .map(|names| (names, scope.spawn(move || some(names))))
            .collect();
        let mut all = some(own);
        for (names, other) in others {
            all.extend(other.join().unwrap_or_else(|_| some(names)));
        }
        all
    })
}

/// Reads the metadata of one skill.
fn look(folder: &Path, name: String, is_folder: bool) -> Skill {
    let mut skill = Skill {
        name,
        description: String::new(),
        version: String::new(),
        triggers: Triggers::default(),
        resources: BTreeMap::new(),
        dependencies: Dependencies::default(),
        tokens: Tokens::default(),
        valid: false,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    if !is_folder {
        skill
            .errors
            .push(Problem::new("link", "the folder of a skill is a link; a skill lies in the repository itself"));
        return skill;
    }
    if !manifest::is_name(&skill.name) {
        let message = format!("the folder {:?} is no name of a skill: use a-z, 0-9 and single hyphens", skill.name);
        skill.errors.push(Problem::new("name", message));
    }
    let text = match text_of(&folder.join("skill.toml")) {
        Ok(text) => text,
        Err(problem) => {
            skill.errors.push(problem);
            return skill;
        }
    };
    let read = manifest::read(&text);
    skill.errors.extend(read.errors);
    skill.warnings = read.warnings;
    let own = read.manifest;
    if !own.name.is_empty() && own.name != skill.name {
        let message = format!("it calls itself {:?}, but its folder is {:?}", own.name, skill.name);
        skill.errors.push(Problem::new("name", message));
    }
    let words = own.triggers.keywords.iter().chain(&own.triggers.file_patterns).chain(&own.triggers.linear_labels);
    let bytes = words.map(String::len).sum::<usize>() + skill.name.len() + own.description.len();
    skill.tokens.metadata = estimate(bytes as u64);
    if skill.tokens.metadata > METADATA {
        let message = format!("about {} tokens of metadata; aim at {METADATA}", skill.tokens.metadata);
        skill.warnings.push(Problem::new("metadata_budget", message));
    }
    for (what, path) in &own.resources {
        if what == "instructions" {
            match instructions(folder, path) {
                Ok(tokens) => skill.tokens.instructions = tokens,
                Err(problem) => skill.errors.push(problem),
            }
        } else if let Err(problem) = inside(folder, path) {
            skill.warnings.push(Problem { message: format!("`{what}`: {}", problem.message), ..problem });
        }
    }
    let tokens = skill.tokens.instructions;
    if tokens > TOO_MANY {
        let message = format!("about {tokens} tokens of instructions; more than {TOO_MANY} are not shown");
        skill.errors.push(Problem::new("instructions_too_large", message));
    } else if tokens > MANY {
        let message = format!("about {tokens} tokens of instructions; aim at less than {MANY}");
        skill.warnings.push(Problem::new("instructions_large", message));
    }
    skill.description = own.description;
    skill.version = own.version;
    skill.triggers = own.triggers;
    skill.resources = own.resources;
    skill.dependencies = own.dependencies;
    skill.valid = skill.errors.is_empty();
    skill
}

/// Looks whether what each skill is chained to exists, and whether the chains have an end.
fn link(skills: &mut [Skill]) {
    let names: BTreeSet<String> = skills.iter().map(|skill| skill.name.clone()).collect();
    let chains: Chains<'_> = skills.iter().map(|skill| (skill.name.as_str(), &skill.dependencies)).collect();
    let circle: BTreeSet<String> = circles(&chains).into_iter().map(str::to_owned).collect();
    for skill in skills {
        let Dependencies { requires, before, after } = &skill.dependencies;
        for other in requires.iter().filter(|other| !names.contains(*other)) {
            skill.errors.push(Problem::new("requires", format!("it requires {other:?}, which does not exist")));
        }
        for other in before.iter().chain(after).filter(|other| !names.contains(*other)) {
            let message = format!("it is chained to {other:?}, which does not exist; the plan leaves it out");
            skill.warnings.push(Problem::new("chained_absent", message));
        }
        if circle.contains(&skill.name) {
            let message = "the skills it is chained to come back to it, or to one another, in a circle";
            skill.errors.push(Problem::new("cycle", message));
        }
        skill.valid = skill.errors.is_empty();
    }
}

fn text_of(path: &Path) -> Result<String, Problem> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let length = match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => found.len().min(LARGEST as u64),
        Ok(_) => return Err(Problem::new("manifest", format!("{name} is no file"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Problem::new("manifest", format!("there is no {name}")));
        }
        Err(error) => return Err(Problem::new("manifest", format!("{name}: {error}"))),
    };
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1);
    File::open(path)
        .and_then(|file| file.take(LARGEST as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| Problem::new("manifest", format!("{name}: {error}")))?;
    String::from_utf8(bytes).map_err(|_| Problem::new("manifest", format!("{name} is no UTF-8 text")))
}

/// Returns the number of tokens of the instructions, estimated from their length.
fn instructions(folder: &Path, path: &str) -> Result<u64, Problem> {
    let found = inside(folder, path)?;
    if !found.is_file() {
        return Err(Problem::new("instructions", format!("{path} is no file")));
    }
    if found.len() == 0 {
        return Err(Problem::new("instructions", format!("{path} is empty")));
    }
    Ok(estimate(found.len()))
}

/// Looks at a file or folder that must lie inside a skill.
pub fn inside(folder: &Path, path: &str) -> Result<fs::Metadata, Problem> {
    if !manifest::is_inside(path) {
        return Err(Problem::new("outside", format!("{path:?} does not lie inside the skill")));
    }
    let gone = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Problem::new("missing", format!("{path} does not exist")),
        _ => Problem::new("missing", format!("{path}: {error}")),
    };
    if let Some(found) = plain(folder, path) {
        return Ok(found);
    }
    let real = folder.join(path).canonicalize().map_err(gone)?;
    if !real.starts_with(folder.canonicalize().map_err(gone)?) {
        return Err(Problem::new("outside", format!("{path:?} leads out of the skill")));
    }
    real.metadata().map_err(gone)
}

/// Returns the metadata of a file or folder, if no link below the folder is on the way to it.
///
/// Then it is inside the folder, wherever that is.
fn plain(folder: &Path, path: &str) -> Option<fs::Metadata> {
    let (mut at, mut found) = (folder.to_path_buf(), None);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at.push(part);
        found = Some(fs::symlink_metadata(&at).ok().filter(|found| !found.is_symlink())?);
    }
    found
}
