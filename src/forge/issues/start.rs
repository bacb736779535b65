//! Start work on an issue: its focus, its state and its branch.

use helmdeck_core::text::count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GitRefs, IN_PROGRESS, Issue, Issues, absent, check_key, history};
use crate::error::{Category, Error, Result};
use crate::focus::{Set, SetFocus};
use crate::git::{Git, Run};
use crate::project::Project;
use crate::sessions::Sessions;

/// Maximum length of the slug of a branch, in characters.
const SLUG: usize = 40;

/// Request to start work on an issue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// The branch. Default: that of the issue, or else `feature/<KEY>-<title>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether to stay on the current branch.
    pub no_branch: bool,
}

/// Work on an issue was started.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Started {
    /// The issue now.
    pub issue: Issue,
    /// The focus now.
    pub focus: Set,
    /// The branch; `null` without git.
    pub branch: Option<BranchState>,
    /// What should be looked at.
    pub warnings: Vec<String>,
}

/// What happened to the branch of an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchState {
    /// The branch of the issue.
    pub name: String,
    /// What happened: `created`, `switched`, `already_there` or `not_switched`.
    pub outcome: BranchOutcome,
    /// The branch before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Why the branch was not switched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What happened to a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchOutcome {
    /// It was created and checked out.
    Created,
    /// It was there and is checked out now.
    Switched,
    /// It was checked out already.
    AlreadyThere,
    /// Another branch is checked out, for a reason.
    NotSwitched,
}

impl Issues<'_> {
    /// Starts work on an issue: checks out its branch if the work tree allows it, sets the focus,
    /// and marks the issue as in progress.
    ///
    /// # Errors
    /// `NotFound`; `Refused` for an issue that is done; `Locked` (`E_CLAIMED`) if another session
    /// works on it; errors from git and from writing.
    pub fn start(&self, key: &str, start: &Start) -> Result<Started> {
        let project = self.project;
        project.check_not_paused()?;
        let shown = self.startable(key)?;
        let mut warnings = Vec::new();
        if !shown.waits_for.is_empty() {
            warnings.push(format!("{key} waits for {}", shown.waits_for.join(", ")));
        }
        let issue = shown.issue;
        let branch = self.switch(key, start)?;
        let key = issue.linear_id.clone();
        let change = SetFocus {
            task: Some(issue.title),
            linear_issue: Some(key.clone()),
            reason: Some(format!("{key} was started")),
            ..SetFocus::default()
        };
        let focus = Sessions::new(project).set_focus(&change)?;
        let me = project.config().linear.me.clone();
        let (issue, ()) = self.change_one(&key, None, |issue| {
            if issue.state.is_none()
                || issue.state_is(&["open", "backlog", "todo", "unstarted", "triage", "blocked"])
            {
                issue.state = Some(IN_PROGRESS.to_owned());
            }
            if issue.owner().is_none() {
                issue.assignee = me;
            }
            // A branch that was not checked out may not exist.
            if let Some(branch) = branch
                .as_ref()
                .filter(|branch| branch.outcome != BranchOutcome::NotSwitched)
            {
                issue.git_refs.get_or_insert_with(GitRefs::default).branch =
                    Some(branch.name.clone());
            }
            Ok(())
        })?;
        Ok(Started {
            issue,
            focus,
            branch,
            warnings,
        })
    }

    /// Checks out the branch of an issue, if the work tree allows it, and changes nothing else.
    /// `None` without git.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn switch(&self, key: &str, start: &Start) -> Result<Option<BranchState>> {
        let issue = self.startable(key)?.issue;
        let Some(git) = self.project.repository()? else {
            return Ok(None);
        };
        let state = check_out(&git, &issue, start, self.beside()?)?;
        // A branch from before the issue does not have it.
        if !self
            .read()?
            .issues
            .iter()
            .any(|other| other.linear_id == issue.linear_id)
        {
            self.apply(|active| {
                active.issues.push(issue);
                Ok(())
            })?;
        }
        Ok(Some(state))
    }

    /// Returns who else works in this work tree.
    fn beside(&self) -> Result<Option<String>> {
        let sessions = Sessions::new(self.project);
        let own = sessions.current()?.map(|session| session.id);
        let others = sessions.seen()?.sessions;
        let other = others
            .into_iter()
            .find(|session| session.state.is_alive() && Some(&session.id) != own.as_ref());
        Ok(other.map(|session| format!("{} ({})", session.agent, session.id)))
    }

    /// Returns an issue that work can be started on.
    fn startable(&self, key: &str) -> Result<super::Item> {
        check_key(key).map_err(Error::usage)?;
        let shown = match self.show(key) {
            Err(error) if error.category == Category::NotFound => return Err(absent(key)),
            shown => shown?.item,
        };
        if shown.over {
            return Err(Error::refused(format!("{key} is done"))
                .next(format!("helmdeck forge issue reopen {key}")));
        }
        if shown.claimed {
            return Err(Error::new(
                Category::Locked,
                "E_CLAIMED",
                format!("another session works on {key}"),
            )
            .hint("take another one, or end that session")
            .next("helmdeck forge issue list ready"));
        }
        Ok(shown)
    }
}

/// Returns the name of an issue's branch.
pub(crate) fn branch_name(issue: &Issue, start: &Start) -> String {
    let given = start
        .branch
        .clone()
        .or_else(|| issue.git_refs.as_ref().and_then(|refs| refs.branch.clone()));
    given.unwrap_or_else(|| {
        let slug = slug(&issue.title);
        if slug.is_empty() {
            format!("feature/{}", issue.linear_id)
        } else {
            format!("feature/{}-{slug}", issue.linear_id)
        }
    })
}

/// Returns a title as words of a branch name.
pub(crate) fn slug(title: &str) -> String {
    let mut slug = String::new();
    for word in title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        if !slug.is_empty() && slug.len() + 1 + word.len() > SLUG {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.extend(word.chars().take(SLUG).map(|c| c.to_ascii_lowercase()));
    }
    slug
}

/// Checks out the branch of an issue, if the work tree allows it, and nobody else works in it.
fn check_out(
    git: &Git,
    issue: &Issue,
    start: &Start,
    beside: Option<String>,
) -> Result<BranchState> {
    let name = branch_name(issue, start);
    if !git.is_reference_name(&format!("refs/heads/{name}"))? {
        return Err(Error::usage(format!("{name:?} is no name of a branch")));
    }
    let from = git.branch()?;
    let state = |outcome, why| BranchState {
        name: name.clone(),
        outcome,
        from: from.clone(),
        why,
    };
    let stay = |why: String| Ok(state(BranchOutcome::NotSwitched, Some(why)));
    if from.as_deref() == Some(name.as_str()) {
        return Ok(state(BranchOutcome::AlreadyThere, None));
    }
    if start.no_branch {
        return stay("it was asked to stay on this branch".to_owned());
    }
    if let Some(other) = beside {
        return stay(format!(
            "{other} works in this work tree: both of you are on this branch"
        ));
    }
    if let Some(operation) = git.operation()? {
        return stay(format!(
            "git is in the middle of a {}: finish it first",
            operation.name()
        ));
    }
    if git.head()?.is_none() {
        return stay("there is no commit yet to begin a branch at".to_owned());
    }
    let status = git.status()?;
    let dirty: Vec<&str> = status.outside(git.memory()).collect();
    if !dirty.is_empty() {
        let some = dirty.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        return stay(format!(
            "{} not committed ({some}): commit or stash first",
            count(dirty.len(), "file")
        ));
    }
    let exists = git.reference(&format!("refs/heads/{name}"))?.is_some();
    let args: &[&str] = if exists {
        &["switch", "--quiet", "--no-guess", &name]
    } else {
        &["switch", "--quiet", "--no-track", "--create", &name]
    };
    let output = git.run(args, &Run::writing().with_hooks())?;
    if !output.ok() {
        let why = output
            .stderr
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("git refused it");
        return stay(format!(
            "git did not switch: {}",
            why.trim().trim_start_matches("error: ")
        ));
    }
    Ok(state(
        if exists {
            BranchOutcome::Switched
        } else {
            BranchOutcome::Created
        },
        None,
    ))
}

/// Takes an issue that a new work tree does not have there: it was not committed.
///
/// # Errors
/// Errors from writing.
pub(crate) fn hand_over(from: &Project, to: &Project, issue: &Issue) -> Result<()> {
    let key = &issue.linear_id;
    if to.issues().show(key).is_ok() {
        return Ok(());
    }
    let moved = Issue {
        git_refs: None,
        ..issue.clone()
    };
    to.issues().apply(|active| {
        active.issues.push(moved);
        Ok(())
    })?;
    // The branch of the work has it from now on: git would not merge over a file that it does not
    // know.
    from.issues().apply(|active| {
        active.issues.retain(|other| other.linear_id != *key);
        Ok(())
    })
}

/// Adds the commits of an issue to its references, from git.
pub(super) fn fill_refs(project: &Project, issue: &mut Issue) {
    let work = history::work(project, issue);
    if work.commits.is_empty() {
        return;
    }
    let refs = issue.git_refs.get_or_insert_with(GitRefs::default);
    history::add(
        &mut refs.commits,
        work.commits.into_iter().map(|(oid, _)| oid),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_named_after_the_issue() {
        let issue = |title: &str| Issue {
            linear_id: "SX9-1".to_owned(),
            title: title.to_owned(),
            ..Issue::default()
        };
        let name = |title: &str| branch_name(&issue(title), &Start::default());
        assert_eq!(
            name("Wire ATLAS daemon to NATS"),
            "feature/SX9-1-wire-atlas-daemon-to-nats"
        );
        assert_eq!(name("…"), "feature/SX9-1");
        assert_eq!(
            name(&"long ".repeat(20)),
            format!("feature/SX9-1-{}", ["long"; 8].join("-"))
        );
        assert_eq!(
            name(&"x".repeat(99)),
            format!("feature/SX9-1-{}", "x".repeat(40))
        );
        let own = Issue {
            git_refs: Some(GitRefs {
                branch: Some("b".into()),
                ..GitRefs::default()
            }),
            ..issue("t")
        };
        assert_eq!(branch_name(&own, &Start::default()), "b");
    }
}
