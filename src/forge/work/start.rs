//! `start`: the session, the focus and the branch.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Work;
use crate::environment::AGENT;
use crate::error::{Category, Error, Result};
use crate::features::{Edit, Feature, Features, Status, is_id};
use crate::focus::{Focus, SetFocus};
use crate::issues::{AddIssue, BranchState, Issue, IssueFields, Start as StartIssue, is_key};
use crate::sessions::{Sessions, Start as StartSession};

/// Request to start work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// The issue, the feature, or the title of a new issue. Default: what the session chooses.
    pub what: Option<String>,
    /// The branch. Default: that of the issue, or else `feature/<KEY>-<title>`.
    pub branch: Option<String>,
    /// Whether to stay on the current branch.
    pub no_branch: bool,
    /// How the session starts.
    pub session: StartSession,
}

/// Work was started.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Started {
    /// The session.
    pub session: String,
    /// Whether the session was active already.
    pub again: bool,
    /// The focus; without a task if there is nothing to do.
    pub focus: Focus,
    /// The issue.
    pub issue: Option<Issue>,
    /// Whether the issue was made for this.
    pub new_issue: bool,
    /// The feature.
    pub feature: Option<Feature>,
    /// The branch.
    pub branch: Option<BranchState>,
    /// The root of the project in this work tree, if that is not the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<PathBuf>,
    /// Why work is paused. Then nothing was started.
    pub paused: Option<String>,
    /// What should be looked at.
    pub warnings: Vec<String>,
}

/// What to work on.
pub(super) enum Target {
    /// An issue, and the feature it is about.
    Issue(String, Option<String>, bool),
    /// A feature, without an issue.
    Feature(String),
    /// What the session chooses.
    Any,
}

impl Work<'_> {
    /// Starts work: a session, the focus on an issue or a feature, and its branch.
    ///
    /// A feature gets an issue if it has none, so that its commits have a key. In an active session
    /// the focus moves.
    ///
    /// # Errors
    /// `NotFound` for an unknown issue or feature; as [`Sessions::start`] and `Issues::start`.
    pub fn start(&self, start: &Start) -> Result<Started> {
        let project = self.project;
        if project.check_not_paused().is_err() {
            // This ends a pause whose reason is gone, and reports any other.
            Sessions::new(project).start(&start.session)?;
        }
        let wish = StartIssue {
            branch: start.branch.clone(),
            no_branch: start.no_branch,
        };
        // A wrong name starts no session.
        let target = self.target(start.what.as_deref())?;
        let mut switched = None;
        if let Target::Issue(key, ..) = &target {
            // The session belongs to the branch it begins on.
            switched = project.issues().switch(key, &wish)?;
        }
        let before = self.focus().unwrap_or_default().linear_issue;
        let began = Sessions::new(project).start(&start.session)?;
        let mut started = Started {
            session: began.session.id.clone(),
            again: began.again,
            focus: Focus::default(),
            issue: None,
            new_issue: matches!(target, Target::Issue(_, _, true)),
            feature: None,
            branch: switched,
            worktree: None,
            paused: began.paused,
            warnings: began.warnings,
        };
        if started.paused.is_some() {
            return Ok(started);
        }
        let git = project.repository()?;
        let is_linked = git.is_some_and(|git| git.git_dir() != git.common_dir());
        started.worktree = is_linked.then(|| project.root().to_owned());
        let inside = project.within(&began.session.id);
        Work::new(&inside).begin(target, &wish, &mut started)?;
        let environment = project.environment();
        let is_nameless = environment.session.is_none() && environment.agent == AGENT;
        if let Some(key) = before.filter(|key| {
            started.again && is_nameless && started.focus.linear_issue.as_ref() != Some(key)
        }) {
            started.warnings.push(format!(
                "{key} was the focus of {}; if somebody else works on it, give each of you a name (--agent or HELMDECK_FORGE_AGENT) and \
                 begin beside it (--join)",
                started.session
            ));
        }
        Ok(started)
    }

    fn begin(&self, target: Target, wish: &StartIssue, started: &mut Started) -> Result<()> {
        let project = self.project;
        let (key, feature) = match target {
            Target::Issue(key, feature, _) => (Some(key), feature),
            Target::Feature(id) => (None, Some(id)),
            Target::Any => {
                let focus = self.focus()?;
                match (focus.linear_issue, focus.feature_id) {
                    (None, Some(id)) if !self.without_issues() => {
                        let (key, new) = self.issue_of(&id)?;
                        started.new_issue = new;
                        (Some(key), Some(id))
                    }
                    chosen => chosen,
                }
            }
        };
        let mut feature = feature;
        if let Some(key) = &key {
            let issue = project.issues().start(key, wish)?;
            feature = feature.or_else(|| self.first_broken(&issue.issue.features));
            started.warnings.extend(issue.warnings);
            // The first answer says what happened; the second finds it done.
            started.branch = started.branch.take().or(issue.branch);
            started.issue = Some(issue.issue);
            Sessions::new(project).follow_branch(&started.session)?;
        }
        if let Some(id) = &feature {
            let file = Features::new(project).read()?;
            let found = file
                .get(id)
                .ok_or_else(|| crate::features::unknown(id))?
                .clone();
            let task = started.issue.is_none().then(|| found.name.clone());
            let set = SetFocus {
                task,
                feature_id: Some(id.clone()),
                ..SetFocus::default()
            };
            Sessions::new(project).set_focus(&set)?;
            let begin = matches!(found.status, Status::NotImplemented | Status::Failing);
            started.feature = Some(if begin {
                let edit = Edit {
                    status: Some(Status::InProgress),
                    ..Edit::default()
                };
                Features::new(project).set(id, &edit, None)?.feature
            } else {
                found
            });
        }
        started.focus = self.focus()?;
        Ok(())
    }

    /// Finds what a word names.
    pub(super) fn target(&self, what: Option<&str>) -> Result<Target> {
        let Some(what) = what.map(str::trim).filter(|what| !what.is_empty()) else {
            return Ok(Target::Any);
        };
        if is_key(what) && self.project.issues().show(what).is_ok() {
            return Ok(Target::Issue(what.to_owned(), None, false));
        }
        let file = Features::new(self.project).read()?;
        if file.get(what).is_some() {
            if self.without_issues() {
                return Ok(Target::Feature(what.to_owned()));
            }
            let (key, new) = self.issue_of(what)?;
            return Ok(Target::Issue(key, Some(what.to_owned()), new));
        }
        if what.contains(char::is_whitespace) {
            let added = self.project.issues().add(&AddIssue {
                title: what.to_owned(),
                ..AddIssue::default()
            })?;
            return Ok(Target::Issue(added.issue.linear_id, None, true));
        }
        crate::issues::check_key(what)
            .ok()
            .filter(|()| !is_id(what))
            .map_or_else(
                || {
                    let message = format!("{what} is neither an open issue nor a feature");
                    Err(Error::new(Category::NotFound, "E_NOT_FOUND", message)
                        .hint("a new issue has a title of several words")
                        .next("helmdeck forge ready"))
                },
                |()| self.project.issues().show(what).map(|_| Target::Any),
            )
    }

    /// Returns the open issue of a feature, and whether it was made now.
    fn issue_of(&self, id: &str) -> Result<(String, bool)> {
        let issues = self.project.issues();
        let there = issues
            .read()?
            .issues
            .into_iter()
            .find(|issue| issue.features.iter().any(|other| other == id));
        if let Some(issue) = there {
            return Ok((issue.linear_id, false));
        }
        let file = Features::new(self.project).read()?;
        let feature = file.get(id).ok_or_else(|| crate::features::unknown(id))?;
        let add = AddIssue {
            title: feature.name.clone(),
            fields: IssueFields {
                kind: Some("feature".to_owned()),
                features: Some(vec![id.to_owned()]),
                ..IssueFields::default()
            },
            created_from: Some(format!("feature {id}")),
            ..AddIssue::default()
        };
        Ok((issues.add(&add)?.issue.linear_id, true))
    }

    /// Returns the first of some features that does not work, or else the first.
    fn first_broken(&self, ids: &[String]) -> Option<String> {
        let file = Features::new(self.project).read().ok()?;
        let open = ids.iter().find(|id| {
            file.get(id)
                .is_some_and(|feature| feature.status != Status::Passing)
        });
        open.or_else(|| ids.iter().find(|id| file.get(id).is_some()))
            .cloned()
    }
}
