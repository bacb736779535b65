//! Add and change issues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::Numbers;
use super::store::{self, Source};
use super::text::{body, criterion, key, keys, labels, priority, some, title};
use super::{
    Active, AgentState, Checked, Comment, Criterion, Issue, Issues, LOCAL, MemoryTrace, OPEN,
    absent, history,
};
use crate::error::{Error, Result};
use crate::json::Members;

/// Request to add an issue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Add {
    /// What it is about, in one line.
    pub title: String,
    /// What it is about, in Markdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What kind it is: `feature`, `bug`, `task`, `chore`, or another word. Default: `task`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// 1 = urgent to 4 = low, 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Its labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The assignee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The keys of issues that must be done first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// The key of the issue it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The milestone that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milestone: Option<String>,
    /// What must hold before it is done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
    /// The features it is about, by their ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// The agent that is to work on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// How the agent is to work on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How much work it is: `small`, `medium`, `large`, or another word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complexity: Option<String>,
    /// What led to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_from: Option<String>,
    /// The artifact with the context at its creation: see
    /// [`Artifacts::snapshot`](crate::artifacts::Artifacts::snapshot).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_snapshot: Option<String>,
}

/// Request to change an issue. Absent members stay unchanged; an empty text or list removes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Edit {
    /// What it is about, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is about, in Markdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What kind it is.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its state. `Done` is refused: `issue done` closes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// 1 = urgent to 4 = low, 0 = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// All its labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// The assignee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// All keys of issues that must be done first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<Vec<String>>,
    /// The key of the issue it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The milestone that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milestone: Option<String>,
    /// All that must hold before it is done. Criteria with the same text keep their mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<Vec<String>>,
    /// All features it is about, by their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// Criteria that hold now, or do not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checked: Vec<CriterionDone>,
    /// The agent that is to work on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// How the agent is to work on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How much work it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complexity: Option<String>,
}

/// A criterion that holds, or does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CriterionDone {
    /// Its number, from 1, or its text.
    pub criterion: String,
    /// Whether it holds. Default: yes.
    #[serde(default = "yes")]
    pub done: bool,
    /// What shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

const fn yes() -> bool {
    true
}

/// A new comment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewComment {
    /// What it says, in Markdown.
    pub text: String,
    /// Its author. Default: this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// An issue that was added or changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// Version tag of the issue now.
    pub etag: String,
    /// The issue now.
    pub issue: Issue,
    /// What should be looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Issues<'_> {
    /// Adds an issue with the next local key.
    ///
    /// # Errors
    /// `Usage` for a malformed text or key, and for a circle of blockers; `NotFound` for an unknown
    /// local blocker; errors from writing.
    pub fn add(&self, add: &Add) -> Result<Changed> {
        let project = self.project;
        project.check_not_paused()?;
        let now = project.environment().now().seconds();
        let trace = MemoryTrace {
            created_from: some("created_from", add.created_from.as_deref())?,
            parent_issue: add.parent.as_deref().map(key).transpose()?,
            context_snapshot: some("context_snapshot", add.context_snapshot.as_deref())?,
            other: Members::default(),
        };
        let agent = AgentState {
            assigned_persona: some("persona", add.persona.as_deref())?,
            harness_mode: some("mode", add.mode.as_deref())?,
            estimated_complexity: some("complexity", add.complexity.as_deref())?,
            other: Members::default(),
        };
        let mut issue = Issue {
            title: title(&add.title)?,
            description: body("description", add.description.as_deref())?,
            kind: Some(some("type", add.kind.as_deref())?.unwrap_or_else(|| "task".to_owned())),
            memory_trace: (trace != MemoryTrace::default()).then_some(trace),
            agent_state: (agent != AgentState::default()).then_some(agent),
            acceptance_criteria: add
                .criteria
                .iter()
                .map(|text| criterion(text))
                .collect::<Result<_>>()?,
            state: Some(OPEN.to_owned()),
            priority: add.priority.map(priority).transpose()?,
            labels: labels(&add.labels)?,
            assignee: some("assignee", add.assignee.as_deref())?,
            milestone: some("milestone", add.milestone.as_deref())?,
            blocked_by: keys(&add.blocked_by)?,
            features: self.known_features(&add.features)?,
            created_at: Some(now),
            ..Issue::default()
        };
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
        changed(issue, warnings)
    }

    /// Changes an issue.
    ///
    /// # Errors
    /// `NotFound`; `Stale`; `Refused` for the state `Done`; as [`Self::add`].
    pub fn set(&self, key_of: &str, edit: &Edit, if_match: Option<&str>) -> Result<Changed> {
        self.project.check_not_paused()?;
        if edit
            .state
            .as_deref()
            .is_some_and(|state| state.trim().eq_ignore_ascii_case(super::DONE))
        {
            return Err(Error::refused(format!(
                "{key_of} is done when it is closed: its criteria are looked at then"
            ))
            .next(format!("helmdeck forge issue done {key_of}")));
        }
        let done = history::keys(self.project.files())?;
        let others = self.read()?;
        let features = edit
            .features
            .as_ref()
            .map(|ids| self.known_features(ids))
            .transpose()?;
        let (issue, warnings) = self.change_one(key_of, if_match, |issue| {
            apply(edit, issue)?;
            if let Some(features) = features {
                issue.features = features;
            }
            known(&others, &done, issue)
        })?;
        changed(issue, warnings)
    }

    /// Refuses features that do not exist, and returns the others in their order, each once.
    fn known_features(&self, ids: &[String]) -> Result<Vec<String>> {
        let mut all: Vec<String> = ids
            .iter()
            .map(|id| id.trim().to_owned())
            .filter(|id| !id.is_empty())
            .collect();
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

    /// Adds a comment to an issue.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for an empty text; errors from writing.
    pub fn comment(&self, key_of: &str, comment: &NewComment) -> Result<Changed> {
        let project = self.project;
        project.check_not_paused()?;
        let environment = project.environment();
        let said = body("comment", Some(&comment.text))?
            .ok_or_else(|| Error::usage("a comment says something"))?;
        let by = some("by", comment.by.as_deref())?.unwrap_or_else(|| environment.agent.clone());
        let comment = Comment {
            id: environment.uuid().to_string(),
            by: Some(by),
            at: Some(environment.now().seconds()),
            text: said,
            other: Members::default(),
        };
        let (issue, ()) = self.change_one(key_of, None, |issue| {
            issue.comments.push(comment);
            Ok(())
        })?;
        changed(issue, Vec::new())
    }

    /// Changes issues for a tracker: the outbox is not told.
    ///
    /// Issues that are missing afterwards are removed. The locks are held: `change` waits for
    /// nothing.
    ///
    /// # Errors
    /// The errors of `change`; `Usage` (`E_INVALID`, `E_CYCLE`), `Corrupt`, `Secret`, `Locked`.
    pub fn apply<T>(&self, change: impl FnOnce(&mut Active) -> Result<T>) -> Result<T> {
        self.change(Source::Tracker, |active, _| change(active))
    }
}

pub(super) fn changed(issue: Issue, warnings: Vec<String>) -> Result<Changed> {
    Ok(Changed {
        etag: store::etag(&issue)?,
        issue,
        warnings,
    })
}

fn apply(edit: &Edit, issue: &mut Issue) -> Result<()> {
    if let Some(text) = &edit.title {
        issue.title = title(text)?;
    }
    if let Some(text) = &edit.description {
        issue.description = body("description", Some(text))?;
    }
    let text = |name: &str, new: &Option<String>, old: &mut Option<String>| -> Result<()> {
        if new.is_some() {
            *old = some(name, new.as_deref())?;
        }
        Ok(())
    };
    text("type", &edit.kind, &mut issue.kind)?;
    text("state", &edit.state, &mut issue.state)?;
    text("assignee", &edit.assignee, &mut issue.assignee)?;
    text("milestone", &edit.milestone, &mut issue.milestone)?;
    if let Some(number) = edit.priority {
        issue.priority = Some(priority(number)?);
    }
    if let Some(all) = &edit.labels {
        issue.labels = labels(all)?;
    }
    if let Some(all) = &edit.blocked_by {
        issue.blocked_by = keys(all)?;
    }
    if let Some(parent) = &edit.parent {
        let parent = if parent.trim().is_empty() {
            None
        } else {
            Some(key(parent)?)
        };
        let trace = issue.memory_trace.get_or_insert_with(MemoryTrace::default);
        trace.parent_issue = parent;
        issue.memory_trace = issue
            .memory_trace
            .take()
            .filter(|trace| *trace != MemoryTrace::default());
    }
    if edit.persona.is_some() || edit.mode.is_some() || edit.complexity.is_some() {
        let agent = issue.agent_state.get_or_insert_with(AgentState::default);
        text("persona", &edit.persona, &mut agent.assigned_persona)?;
        text("mode", &edit.mode, &mut agent.harness_mode)?;
        text(
            "complexity",
            &edit.complexity,
            &mut agent.estimated_complexity,
        )?;
        issue.agent_state = issue
            .agent_state
            .take()
            .filter(|agent| *agent != AgentState::default());
    }
    if let Some(all) = &edit.criteria {
        let old = std::mem::take(&mut issue.acceptance_criteria);
        for text in all {
            let new = criterion(text)?;
            let kept = old.iter().find(|old| old.text() == new.text()).cloned();
            issue.acceptance_criteria.push(kept.unwrap_or(new));
        }
    }
    for mark in &edit.checked {
        check(issue, mark)?;
    }
    Ok(())
}

/// Marks a criterion.
fn check(issue: &mut Issue, mark: &CriterionDone) -> Result<()> {
    let wanted = mark.criterion.trim();
    let all = &issue.acceptance_criteria;
    let by_number = wanted
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_sub(1))
        .filter(|at| *at < all.len());
    let at = by_number
        .or_else(|| all.iter().position(|criterion| criterion.text() == wanted))
        .ok_or_else(|| {
            Error::not_found(format!("{} has no criterion {wanted:?}", issue.linear_id))
                .next(format!("helmdeck forge issue show {}", issue.linear_id))
        })?;
    let Some(slot) = issue.acceptance_criteria.get_mut(at) else {
        return Ok(());
    };
    let mut checked = match slot {
        Criterion::Text(text) => Checked {
            text: text.clone(),
            ..Checked::default()
        },
        Criterion::Checked(checked) => checked.clone(),
    };
    checked.done = mark.done;
    if mark.evidence.is_some() {
        checked.evidence = some("evidence", mark.evidence.as_deref())?;
    }
    *slot = Criterion::Checked(checked);
    Ok(())
}

/// Refuses unknown local keys, and returns warnings about unknown ones of a tracker.
fn known(active: &Active, done: &[String], issue: &Issue) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for key in issue
        .blocked_by
        .iter()
        .map(String::as_str)
        .chain(issue.parent())
    {
        if active.issues.iter().any(|other| other.answers_to(key))
            || done.iter().any(|done| done == key)
        {
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
