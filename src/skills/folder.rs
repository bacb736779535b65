//! Metadata of the skills in `.forge/skills/`.
//!
//! Of a `SKILL.md` the front matter is read; of other instructions the size is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use crate::chain::{Chains, circles};
use crate::manifest::{self, INSTRUCTIONS, LARGEST, SKILL_MD, SKILL_TOML};
use crate::skill::{Dependencies, Problem, Skill, estimate, is_name};
use helmdeck_forge_files::error::{Error, Result};
use helmdeck_forge_files::layout;

/// Advised limit for the metadata of a skill, in tokens.
const METADATA: u64 = 100;
/// Size of instructions, in tokens, above which there is a warning.
const MANY: u64 = 5_000;
/// Limit for the size of instructions, in tokens.
pub const MAX_INSTRUCTIONS: u64 = 20_000;
/// Maximum number of skills of a project.
const SKILLS: usize = 10_000;

/// Returns the skills of a project by name, invalid ones too. Without a folder there is none.
///
/// # Errors
/// `Failed` if the folder cannot be read. A skill that cannot be read is an invalid skill, and
/// hides no other.
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
        let kind = entry
            .file_type()
            .map_err(|error| Error::io("looking at", &entry.path(), &error))?;
        if !name.starts_with('.') && !kind.is_file() {
            names.insert(name, kind.is_dir());
        }
        if names.len() > SKILLS {
            return Err(Error::refused(format!(
                "{} holds more than {SKILLS} skills",
                folder.display()
            )));
        }
    }
    let look = |(name, is_folder): (String, bool)| look(&folder.join(&name), &name, is_folder);
    let mut skills: Vec<Skill> = names.into_iter().map(look).collect();
    link(&mut skills);
    Ok(skills)
}

/// Reads the metadata of one skill.
fn look(folder: &Path, name: &str, is_folder: bool) -> Skill {
    let mut skill = Skill::named(name);
    if !is_folder {
        skill.error(
            "link",
            "the folder of a skill is a link; a skill lies in the repository itself",
        );
        return skill;
    }
    if !is_name(name) {
        skill.error(
            "name",
            format!("the folder {name:?} is no name of a skill: use a-z, 0-9 and single hyphens"),
        );
    }
    if let Err(problem) = manifest_of(folder, &mut skill) {
        skill.errors.push(problem);
        return skill;
    }
    let words = skill
        .triggers
        .keywords
        .iter()
        .chain(&skill.triggers.file_patterns)
        .chain(&skill.triggers.linear_labels);
    let bytes = words.map(String::len).sum::<usize>() + name.len() + skill.description.len();
    skill.tokens.metadata = estimate(bytes as u64);
    if skill.tokens.metadata > METADATA {
        let message = format!(
            "about {} tokens of metadata; aim at {METADATA}",
            skill.tokens.metadata
        );
        skill.warn("metadata_budget", message);
    }
    let tokens = skill.tokens.instructions;
    if tokens > MAX_INSTRUCTIONS {
        let message = format!(
            "about {tokens} tokens of instructions; more than {MAX_INSTRUCTIONS} are not shown"
        );
        skill.error("instructions_too_large", message);
    } else if tokens > MANY {
        let message = format!("about {tokens} tokens of instructions; aim at less than {MANY}");
        skill.warn("instructions_large", message);
    }
    skill
}

/// Reads the manifest, `SKILL.md` before `skill.toml`, and looks at the files that it names.
fn manifest_of(folder: &Path, skill: &mut Skill) -> Result<(), Problem> {
    if let Some(file) = Head::of(folder, SKILL_MD)? {
        skill.path = format!("{}/{SKILL_MD}", skill.path);
        if folder.join(SKILL_TOML).exists() {
            skill.warn(
                "two_manifests",
                format!("{SKILL_TOML} beside it is not read"),
            );
        }
        let (front, body) = manifest::front_matter(&file.bytes)?;
        manifest::read_md(front, skill);
        let is_blank = file
            .bytes
            .get(body..)
            .unwrap_or_default()
            .trim_ascii()
            .is_empty();
        return set_instructions(
            skill,
            SKILL_MD,
            if is_blank {
                0
            } else {
                file.length.saturating_sub(body as u64)
            },
        );
    }
    let Some(file) = Head::of(folder, SKILL_TOML)? else {
        return Err(Problem::new(
            "manifest",
            format!("there is no {SKILL_MD} and no {SKILL_TOML}"),
        ));
    };
    skill.path = format!("{}/{SKILL_TOML}", skill.path);
    if file.bytes.len() > LARGEST {
        return Err(Problem::new(
            "too_large",
            format!("{SKILL_TOML} is larger than {LARGEST} bytes"),
        ));
    }
    let text = String::from_utf8(file.bytes)
        .map_err(|_| Problem::new("not_text", format!("{SKILL_TOML} is no UTF-8 text")))?;
    manifest::read_toml(&text, skill);
    for (name, path) in skill.resources.clone() {
        match inside(folder, &path) {
            Ok(_) if name != INSTRUCTIONS => {}
            Ok(found) if found.is_file() => set_instructions(skill, &path, found.len())?,
            Ok(_) => skill.error("instructions", format!("{path} is no file")),
            Err(problem) if name == INSTRUCTIONS || problem.code == "outside" => {
                skill.errors.push(problem)
            }
            Err(problem) => skill.warn(&problem.code, format!("`{name}`: {}", problem.message)),
        }
    }
    Ok(())
}

fn set_instructions(skill: &mut Skill, path: &str, bytes: u64) -> Result<(), Problem> {
    skill.tokens.instructions = estimate(bytes);
    if bytes == 0 {
        return Err(Problem::new(
            "instructions",
            format!("{path} has no instructions"),
        ));
    }
    Ok(())
}

/// Beginning of a file, and its length.
struct Head {
    bytes: Vec<u8>,
    length: u64,
}

impl Head {
    /// Reads so much of a file as a manifest may have, and one byte more. Nothing if there is no
    /// such file.
    fn of(folder: &Path, name: &str) -> Result<Option<Self>, Problem> {
        let path = folder.join(name);
        let broken = |error: std::io::Error| Problem::new("manifest", format!("{name}: {error}"));
        let length = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => found.len(),
            Ok(_) => return Err(Problem::new("manifest", format!("{name} is no file"))),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(broken(error)),
        };
        let most = LARGEST as u64 + 1;
        let mut bytes = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or(0) + 1);
        File::open(&path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(broken)?;
        Ok(Some(Self { bytes, length }))
    }
}

/// Looks at a file or folder that must lie inside a skill.
fn inside(folder: &Path, path: &str) -> Result<Metadata, Problem> {
    let parts: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
    let strange =
        |part: &&str| matches!(*part, "" | "." | "..") || part.contains(['\\', '\0', ':']);
    if parts.iter().any(strange) {
        return Err(Problem::new(
            "outside",
            format!("{path:?} does not lie inside the skill"),
        ));
    }
    let mut at = folder.to_path_buf();
    let mut found = None;
    for part in parts {
        at.push(part);
        let about = fs::symlink_metadata(&at).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Problem::new("missing", format!("{path} does not exist")),
            _ => Problem::new("missing", format!("{path}: {error}")),
        })?;
        if about.is_symlink() {
            return Err(Problem::new(
                "outside",
                format!("{path:?} is a link, or below one"),
            ));
        }
        found = Some(about);
    }
    found.ok_or_else(|| Problem::new("missing", format!("{path} does not exist")))
}

/// Looks whether what each skill is chained to exists, and whether the chains have an end.
fn link(skills: &mut [Skill]) {
    let names: BTreeSet<String> = skills.iter().map(|skill| skill.name.clone()).collect();
    let chains: Chains<'_> = skills
        .iter()
        .map(|skill| (skill.name.as_str(), &skill.dependencies))
        .collect();
    let circle: BTreeSet<String> = circles(&chains).into_iter().map(str::to_owned).collect();
    for skill in skills {
        let Dependencies {
            requires,
            before,
            after,
        } = &skill.dependencies;
        for other in requires.iter().filter(|other| !names.contains(*other)) {
            skill.errors.push(Problem::new(
                "requires",
                format!("it requires {other:?}, which does not exist"),
            ));
        }
        for other in before
            .iter()
            .chain(after)
            .filter(|other| !names.contains(*other))
        {
            let message = format!(
                "it is chained to {other:?}, which does not exist; the order leaves it out"
            );
            skill.warnings.push(Problem::new("chained_absent", message));
        }
        if circle.contains(&skill.name) {
            let message =
                "the skills it is chained to come back to it, or to one another, in a circle";
            skill.errors.push(Problem::new("cycle", message));
        }
    }
}
