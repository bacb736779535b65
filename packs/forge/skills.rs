//! `forge.skill_*`: skills of the project.

use helmdeck_forge::Project;
use helmdeck_forge::error::{Category, Error};
use helmdeck_forge::skills::{Activated, Match, Query, Shown, Skill};
use serde::{Deserialize, Serialize};

use super::artifacts::Content;
use super::place::Done;

/// Default number of skills in a list.
const LISTED: usize = 100;
/// The largest resource that is returned, in bytes.
const RESOURCE: usize = 256 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Skills {
    total: usize,
    skills: Vec<Skill>,
}

pub(super) fn list(project: &Project, input: List) -> Done<Skills> {
    let mut skills = helmdeck_forge::skills::Skills::new(project).list()?;
    let total = skills.len();
    skills.truncate(input.limit.unwrap_or(LISTED));
    Ok(Skills { total, skills })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Show {
    name: String,
    resource: Option<String>,
}

/// A skill with its instructions, or one of its files.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Part {
    Skill(Box<Shown>),
    Resource { resource: Resource },
}

#[derive(Serialize)]
pub(super) struct Resource {
    path: String,
    bytes: usize,
    #[serde(flatten)]
    content: Content,
}

pub(super) fn show(project: &Project, input: Show) -> Done<Part> {
    let Some(path) = input.resource else {
        return Ok(Part::Skill(Box::new(helmdeck_forge::skills::Skills::new(project).show(&input.name)?)));
    };
    let content = helmdeck_forge::skills::Skills::new(project).resource(&input.name, &path)?;
    let bytes = content.len();
    if bytes > RESOURCE {
        let message =
            format!("{path} of the skill {:?} has {bytes} bytes, and at most {RESOURCE} are returned", input.name);
        return Err(Error::new(Category::Refused, "E_TOO_LARGE", message));
    }
    Ok(Part::Resource { resource: Resource { path, bytes, content: Content::of(content) } })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Activate {
    name: String,
}

pub(super) fn activate(project: &Project, input: Activate) -> Done<Activated> {
    helmdeck_forge::skills::Skills::new(project).activate(&input.name, &project.environment().agent)
}

#[derive(Serialize)]
pub(super) struct Matches {
    matches: Vec<Match>,
}

pub(super) fn matching(project: &Project, input: Query) -> Done<Matches> {
    Ok(Matches { matches: helmdeck_forge::skills::Skills::new(project).ask(&input, &project.environment().agent)? })
}
