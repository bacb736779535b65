//! Skills of a project: found by their triggers, and read only as far as needed.
//!
//! The metadata of all skills are cheap to read. The instructions of one are read when it is shown,
//! with the paths of its other files. A skill grants no permissions: whoever follows it runs its
//! scripts, with their own rights.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::LinearMode;
use crate::error::{Category, Error, Result};
use crate::layout;
use crate::project::Project;
use crate::repair::{Damaged, Extent};

pub use helmdeck_skills::{Kind, Match, Query, Reason, Skill, matches, samples};
use helmdeck_skills::{MAX_INSTRUCTIONS, body, plan, scan};

/// Maximum number of files of a skill that are listed.
const FILES: usize = 500;

/// The skills of a project.
#[derive(Debug, Clone, Copy)]
pub struct Skills<'a> {
    project: &'a Project,
}

/// A skill with its instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Its metadata.
    pub skill: Skill,
    /// The instructions.
    pub instructions: String,
    /// The skills to follow, in order; it is one of them.
    pub order: Vec<String>,
    /// Its other files, below the root of the project; at most 500.
    pub files: Vec<String>,
}

impl<'a> Skills<'a> {
    /// Returns the skills of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }

    /// Returns all skills by name, invalid ones with the reasons.
    ///
    /// Only manifests are read: no instructions, no resources.
    ///
    /// # Errors
    /// `Failed` if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Skill>> {
        scan(self.project.root())
    }

    /// Returns a skill with its instructions, and the paths of its other files.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if it is invalid or its instructions are no text; `Refused`
    /// (`E_TOO_LARGE`) if these are more than about 20,000 tokens.
    pub fn show(&self, name: &str) -> Result<Shown> {
        let all = self.list()?;
        let skill = all.iter().find(|skill| skill.name == name).ok_or_else(|| {
            Error::not_found(format!("there is no skill {name:?} in {}", layout::SKILLS))
                .next("helmdeck forge skill list")
        })?;
        let tokens = skill.tokens.instructions;
        if tokens > MAX_INSTRUCTIONS {
            let message = format!(
                "the instructions of {name:?} are about {tokens} tokens; the limit is {MAX_INSTRUCTIONS}"
            );
            let error = Error::new(Category::Refused, "E_TOO_LARGE", message);
            return Err(error.hint("move details into other files of the skill"));
        }
        if !skill.is_valid() {
            let message = format!(
                "the skill {name:?} cannot be used: {}: {}",
                skill.path,
                skill.why_invalid()
            );
            return Err(Error::new(Category::Corrupt, "E_SKILL_INVALID", message)
                .next("helmdeck forge skill list"));
        }
        let folder = format!("{}/{name}", layout::SKILLS);
        let path = skill
            .resources
            .get("instructions")
            .map(|path| format!("{folder}/{path}"))
            .unwrap_or_default();
        let bytes = self
            .project
            .files()
            .read(&path)?
            .ok_or_else(|| Error::not_found(format!("there is no {path}")))?;
        let mut instructions = String::from_utf8(bytes).map_err(|_| {
            Error::new(
                Category::Corrupt,
                "E_CORRUPT",
                format!("{path} is no UTF-8 text"),
            )
        })?;
        if path == skill.path {
            instructions = body(&instructions).to_owned();
        }
        let mut files = Vec::new();
        self.files(&folder, &mut files)?;
        files.retain(|file| *file != path && *file != skill.path);
        let order = plan(
            &all.iter()
                .map(|skill| (skill.name.as_str(), &skill.dependencies))
                .collect(),
            name,
        );
        Ok(Shown {
            skill: skill.clone(),
            instructions,
            order,
            files,
        })
    }

    /// Returns the skills that have points for a query; see [`matches()`].
    ///
    /// Invalid skills have none.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn matching(&self, query: &Query) -> Result<Vec<Match>> {
        Ok(self.matching_of(&self.list()?, query))
    }

    /// Returns which of these skills have points.
    pub(crate) fn matching_of(&self, skills: &[Skill], query: &Query) -> Vec<Match> {
        let has_tracker = self.project.config().linear.mode == LinearMode::Live;
        let usable = skills
            .iter()
            .filter(|skill| skill.is_valid() && (has_tracker || !skill.triggers.tracker));
        matches(
            usable.map(|skill| (skill.name.as_str(), &skill.triggers)),
            query,
        )
    }

    /// Returns the manifests of invalid skills, each with its problems.
    pub(crate) fn damaged(&self) -> Result<Vec<Damaged>> {
        let invalid = self.list()?.into_iter().filter(|skill| !skill.is_valid());
        let damaged = invalid.map(|skill| {
            let detail = format!("the skill cannot be used: {}", skill.why_invalid());
            Damaged {
                path: skill.path,
                extent: Extent::Whole,
                detail,
                next: None,
            }
        });
        Ok(damaged.collect())
    }

    fn files(&self, folder: &str, all: &mut Vec<String>) -> Result<()> {
        for entry in self
            .project
            .files()
            .list(folder)?
            .into_iter()
            .filter(|entry| !entry.name.starts_with('.'))
        {
            let path = format!("{folder}/{}", entry.name);
            if all.len() == FILES {
                break;
            }
            if entry.folder {
                self.files(&path, all)?;
            } else {
                all.push(path);
            }
        }
        Ok(())
    }
}
