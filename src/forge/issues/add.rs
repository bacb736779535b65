//! `forge.issue_add`: add an issue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::Numbers;
use super::store::Source;
use super::text::{body, criterion, key, keys, labels, priority, some, title};
use super::{
    Active, AgentState, Issue, IssueChanged, Issues, LOCAL, MemoryTrace, OPEN, absent, history,
};
use crate::artifacts::Artifacts;
use crate::error::Result;
use crate::project::Project;
use crate::verb::{Access, ShellVerb, Verb};

/// Add an issue with a local key, like LOCAL-1
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct AddIssue {
    /// Title, in one line
    #[schemars(length(min = 1, max = 500))]
    pub title: String,
    /// What is known of it.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub fields: IssueFields,
    /// What led to it
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4000))]
    #[cfg_attr(feature = "cli", arg(long = "from", value_name = "TEXT"))]
    pub created_from: Option<String>,
    /// Store a snapshot of the current state, and link it
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long))]
    pub snapshot: bool,
}

/// Fields of an issue that are set when it is added, and later.
///
/// Absent ones stay as they are; an empty text or list removes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct IssueFields {
    /// Text, in Markdown
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 250_000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub description: Option<String>,
    /// Type: feature, bug, task, chore, or another word; task if a new issue names none
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[cfg_attr(feature = "cli", arg(long = "type", value_name = "TYPE"))]
    pub kind: Option<String>,
    /// 1 urgent, 2 high, 3 normal, 4 low, 0 none
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER"))]
    pub priority: Option<u8>,
    /// Labels
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(max = 128)))]
    #[cfg_attr(feature = "cli", arg(long = "label", value_name = "LABEL"))]
    pub labels: Option<Vec<String>>,
    /// Assignee
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub assignee: Option<String>,
    /// Keys of issues that must be done first
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(max = 45)))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY"))]
    pub blocked_by: Option<Vec<String>>,
    /// Key of the issue that it is part of
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY"))]
    pub parent: Option<String>,
    /// Milestone that it belongs to
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub milestone: Option<String>,
    /// What must hold before it is done; criteria with the same text keep their mark
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(max = 4000)))]
    #[cfg_attr(feature = "cli", arg(long = "criterion", value_name = "TEXT"))]
    pub criteria: Option<Vec<String>>,
    /// Features that it is about, by id
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(max = 128)))]
    #[cfg_attr(feature = "cli", arg(long = "feature", value_name = "ID"))]
    pub features: Option<Vec<String>>,
    /// Agent that is to work on it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub persona: Option<String>,
    /// How the agent is to work on it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WORD"))]
    pub mode: Option<String>,
    /// Amount of work: small, medium, large
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WORD"))]
    pub complexity: Option<String>,
}

impl IssueFields {
    /// Returns the fields of an issue.
    #[must_use]
    pub fn of(issue: &Issue) -> Self {
        let agent = issue.agent_state.clone().unwrap_or_default();
        let criteria = issue.acceptance_criteria.iter();
        Self {
            description: issue.description.clone(),
            kind: issue.kind.clone(),
            priority: issue.priority,
            labels: Some(issue.labels.clone()),
            assignee: issue.assignee.clone(),
            blocked_by: Some(issue.blocked_by.clone()),
            parent: issue.parent().map(str::to_owned),
            milestone: issue.milestone.clone(),
            criteria: Some(criteria.map(|one| one.text().to_owned()).collect()),
            features: Some(issue.features.clone()),
            persona: agent.assigned_persona,
            mode: agent.harness_mode,
            complexity: agent.estimated_complexity,
        }
    }
}

impl Verb for AddIssue {
    const NAME: &'static str = "forge.issue_add";
    const ACCESS: Access = Access::Change;
    type Output = IssueChanged;

    fn run(self, project: &Project) -> Result<IssueChanged> {
        project.issues().add(&self)
    }
}

impl ShellVerb for AddIssue {
    fn text(changed: &IssueChanged) -> String {
        changed.text()
    }
}

impl Issues<'_> {
    /// Adds an issue with the next local key.
    ///
    /// # Errors
    /// `Usage` for a malformed text or key, and for a circle of blockers; `NotFound` for an unknown
    /// local blocker; errors from writing.
    pub fn add(&self, add: &AddIssue) -> Result<IssueChanged> {
        let project = self.project;
        project.check_not_paused()?;
        let now = project.environment().now().seconds();
        let mut issue = Issue {
            title: title(&add.title)?,
            state: Some(OPEN.to_owned()),
            created_at: Some(now),
            ..Issue::default()
        };
        self.set_fields(&add.fields, &mut issue)?;
        issue.kind.get_or_insert_with(|| "task".to_owned());
        let created_from = some("created_from", add.created_from.as_deref())?;
        if created_from.is_some() || add.snapshot {
            let trace = issue.memory_trace.get_or_insert_default();
            trace.created_from = created_from;
            if add.snapshot {
                trace.context_snapshot =
                    Some(Artifacts::new(project).snapshot()?.entry.triv.to_string());
            }
        }
        let done = history::keys(project.files())?;
        let _common = project.common_lock()?;
        let mut numbers = Numbers::read(project);
        let issue = self.change(Source::Local, |active, names| {
            let warnings = known(active, &done, &issue)?;
            numbers.give(project, names, &mut issue);
            active.issues.push(issue.clone());
            Ok((issue, warnings))
        });
        let (issue, warnings) = issue?;
        numbers.write();
        IssueChanged::of(issue, warnings)
    }

    /// Sets the fields that are there.
    pub(super) fn set_fields(&self, fields: &IssueFields, issue: &mut Issue) -> Result<()> {
        if let Some(text) = &fields.description {
            issue.description = body("description", Some(text))?;
        }
        set_text("type", fields.kind.as_ref(), &mut issue.kind)?;
        set_text("assignee", fields.assignee.as_ref(), &mut issue.assignee)?;
        set_text("milestone", fields.milestone.as_ref(), &mut issue.milestone)?;
        if let Some(number) = fields.priority {
            issue.priority = Some(priority(number)?);
        }
        if let Some(all) = &fields.labels {
            issue.labels = labels(all)?;
        }
        if let Some(all) = &fields.blocked_by {
            issue.blocked_by = keys(all)?;
        }
        if let Some(ids) = &fields.features {
            issue.features = self.known_features(ids)?;
        }
        if let Some(parent) = &fields.parent {
            let parent = Some(parent.trim()).filter(|parent| !parent.is_empty());
            let trace = issue.memory_trace.get_or_insert_default();
            trace.parent_issue = parent.map(key).transpose()?;
            issue
                .memory_trace
                .take_if(|trace| *trace == MemoryTrace::default());
        }
        let agent = issue.agent_state.get_or_insert_default();
        set_text(
            "persona",
            fields.persona.as_ref(),
            &mut agent.assigned_persona,
        )?;
        set_text("mode", fields.mode.as_ref(), &mut agent.harness_mode)?;
        set_text(
            "complexity",
            fields.complexity.as_ref(),
            &mut agent.estimated_complexity,
        )?;
        issue
            .agent_state
            .take_if(|agent| *agent == AgentState::default());
        if let Some(all) = &fields.criteria {
            let old = std::mem::take(&mut issue.acceptance_criteria);
            for text in all {
                let new = criterion(text)?;
                let kept = old.iter().find(|old| old.text() == new.text()).cloned();
                issue.acceptance_criteria.push(kept.unwrap_or(new));
            }
        }
        Ok(())
    }

    /// Refuses features that do not exist, and returns the others in their order, each once.
    fn known_features(&self, ids: &[String]) -> Result<Vec<String>> {
        let ids = ids.iter().map(|id| id.trim().to_owned());
        let mut all: Vec<String> = ids.filter(|id| !id.is_empty()).collect();
        all.sort();
        all.dedup();
        if all.is_empty() {
            return Ok(all);
        }
        let file = crate::features::Features::new(self.project).read()?;
        match all.iter().find(|id| file.get(id).is_none()) {
            Some(id) => Err(crate::features::unknown(id)),
            None => Ok(all),
        }
    }
}

pub(super) fn set_text(name: &str, new: Option<&String>, old: &mut Option<String>) -> Result<()> {
    if new.is_some() {
        *old = some(name, new.map(String::as_str))?;
    }
    Ok(())
}

/// Refuses unknown local keys, and returns warnings about unknown ones of a tracker.
pub(super) fn known(active: &Active, done: &[String], issue: &Issue) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for key in issue
        .blocked_by
        .iter()
        .map(String::as_str)
        .chain(issue.parent())
    {
        let is_there = active.issues.iter().any(|other| other.answers_to(key));
        if is_there || done.iter().any(|done| done == key) {
            continue;
        }
        if key
            .strip_prefix(LOCAL)
            .is_some_and(|rest| rest.starts_with('-'))
        {
            return Err(absent(key));
        }
        warnings.push(format!("{key} is not known here: it counts as not done"));
    }
    Ok(warnings)
}
