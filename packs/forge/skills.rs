//! `forge.skill`: skills of the project.

use helmdeck_forge::Project;
use helmdeck_forge::error::Error;
use helmdeck_forge::skills::{Match, Query, Shown, Skill, Skills};
use serde::{Deserialize, Serialize};

use super::place::Done;

/// Maximum number of skills in a list.
const LISTED: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    name: Option<String>,
    #[serde(default)]
    task: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    labels: Vec<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Answer {
    List { total: usize, skills: Vec<Skill> },
    Shown(Box<Shown>),
    Matches { matches: Vec<Match> },
}

pub(super) fn skill(project: &Project, input: Asked) -> Done<Answer> {
    let skills = Skills::new(project);
    let query = Query {
        task: input.task,
        files: input.files,
        labels: input.labels,
    };
    let matches = query != Query::default();
    match input.name {
        Some(_) if matches => Err(Error::usage(
            "give `name` to show a skill, or `task`, `files` and `labels` to match",
        )),
        Some(name) => Ok(Answer::Shown(Box::new(skills.show(&name)?))),
        None if matches => Ok(Answer::Matches {
            matches: skills.matching(&query)?,
        }),
        None => {
            let mut skills = skills.list()?;
            let total = skills.len();
            skills.truncate(LISTED);
            Ok(Answer::List { total, skills })
        }
    }
}
