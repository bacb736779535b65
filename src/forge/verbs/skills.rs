//! `forge.skill`: skills of the project.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::project::Project;
use crate::skills::{Match, Query, Shown, Skill, Skills};
use crate::verb::{Access, Verb};

/// Maximum number of skills in a list.
const LISTED: usize = 200;

/// Input of `forge.skill`: a name shows a skill, the rest finds those that match, nothing lists all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UseSkill {
    /// Name of the skill to show
    #[schemars(length(min = 1, max = 64))]
    pub name: Option<String>,
    /// What is asked for: a task, a prompt, a title
    #[schemars(length(min = 1, max = 65_536))]
    pub task: Option<String>,
    /// Files of the task, relative to the root of the repository
    #[schemars(length(max = 2000), inner(length(min = 1, max = 1024)))]
    pub files: Vec<String>,
    /// Labels of its issue
    #[schemars(length(max = 100), inner(length(min = 1, max = 200)))]
    pub labels: Vec<String>,
}

/// What was asked for of the skills.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SkillAnswer {
    /// Number of skills, in a list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// The skills, in a list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<Skill>>,
    /// The skill that was named.
    #[serde(flatten)]
    pub shown: Option<Box<Shown>>,
    /// The skills that match, best first
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
}

impl Verb for UseSkill {
    const NAME: &'static str = "forge.skill";
    const ACCESS: Access = Access::Read;
    type Output = SkillAnswer;

    fn run(self, project: &Project) -> Result<SkillAnswer> {
        let skills = Skills::new(project);
        let query = Query {
            task: self.task.unwrap_or_default(),
            files: self.files,
            labels: self.labels,
        };
        let matches = query != Query::default();
        let mut answer = SkillAnswer {
            total: None,
            skills: None,
            shown: None,
            matches: None,
        };
        match self.name {
            Some(_) if matches => {
                return Err(Error::usage(
                    "give `name` to show a skill, or `task`, `files` and `labels` to match",
                ));
            }
            Some(name) => answer.shown = Some(Box::new(skills.show(&name)?)),
            None if matches => answer.matches = Some(skills.matching(&query)?),
            None => {
                let mut all = skills.list()?;
                answer.total = Some(all.len());
                all.truncate(LISTED);
                answer.skills = Some(all);
            }
        }
        Ok(answer)
    }
}
