//! `done`: a checkpoint, the issue closed, the session ended.

use helmdeck_core::text::count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Short, Work};
use crate::checkpoints::{Checkpoints, Create};
use crate::error::{Category, Error, Result};
use crate::git::{Git, Status};
use crate::issues::{CloseIssue, Closed};
use crate::knowledge::Learning;
use crate::sessions::{End, Finished as EndedSession, Sessions};

/// Request to finish work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Done {
    /// What was done: the description of the checkpoint, and the subject of the commit of what is
    /// not committed. Default: the title of the issue.
    pub message: Option<String>,
    /// Why it is done although a criterion is open or a feature does not work.
    pub anyway: Option<String>,
    /// What was learned.
    pub learned: Vec<Learning>,
    /// The next step.
    pub next: Option<String>,
    /// Commands that must succeed. Default: `commands` under `[verify]`.
    pub verify: Vec<String>,
    /// Whether the tag of the checkpoint is pushed.
    pub push: bool,
}

/// Work that was finished.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Finished {
    /// The subject of the commit of what was not committed; `null` if everything was.
    pub committed: Option<String>,
    /// The tag of the checkpoint; `null` without git.
    pub checkpoint: Option<String>,
    /// The issue; `null` without one.
    pub issue: Option<Closed>,
    /// The session.
    pub session: EndedSession,
    /// What should be looked at.
    pub warnings: Vec<String>,
}

impl Work<'_> {
    /// Finishes the work of the focus: commits it, makes a checkpoint, closes the issue and ends
    /// the session.
    ///
    /// What stands in the way, a failing check too, is reported before anything is done. After an
    /// interruption, the same command resumes.
    ///
    /// # Errors
    /// `Refused` (`E_CRITERIA`, `E_UNVERIFIED`) for open criteria and features that do not work,
    /// unless a reason is given; `Refused` (`E_DIRTY`) for changed files that the commit would
    /// leave; as [`Work::commit`],
    /// [`Checkpoints::create`] and [`Sessions::end`].
    pub fn done(&self, done: &Done) -> Result<Finished> {
        let project = self.project;
        project.check_not_paused()?;
        let session = Sessions::new(project).required()?;
        let focus = self.focus()?;
        let close = CloseIssue {
            anyway: done.anyway.clone(),
            ..CloseIssue::default()
        };
        let issue = match &focus.linear_issue {
            Some(key) => project.issues().closable(key, &close)?,
            None => None,
        };
        let broken = self.broken()?;
        if let Some((id, _)) = broken.first()
            && done
                .anyway
                .as_deref()
                .is_none_or(|why| why.trim().is_empty())
        {
            let all: Vec<String> = broken
                .iter()
                .map(|(id, standing)| format!("{id} ({standing})"))
                .collect();
            let message = format!("not shown to work: {}", all.join(", "));
            return Err(Error::new(Category::Refused, "E_UNVERIFIED", message)
                .hint("run its tests; or say why it is done all the same, with --anyway")
                .next(format!("helmdeck forge verify {id}")));
        }
        let mut warnings = Vec::new();
        let (mut committed, mut checkpoint) = (None, None);
        if let Some(git) = project.repository()? {
            let status = git.status()?;
            let message = done
                .message
                .clone()
                .or_else(|| issue.as_ref().map(|issue| issue.title.clone()));
            let create = Create {
                key: issue
                    .as_ref()
                    .map(|issue| issue.linear_id.clone())
                    .or_else(|| focus.linear_issue.clone()),
                message: message.or_else(|| focus.task.clone()),
                verify: done.verify.clone(),
                push: done.push,
                ..Create::default()
            };
            checkpoint = Some(
                match self.made_before(&git, &status, create.key.as_deref(), &session.id)? {
                    Some(tag) if done.verify.is_empty() => tag,
                    _ => {
                        let checkpoints = Checkpoints::new(project);
                        let wanted = self.uncommitted(&git, &status, create.message.as_deref())?;
                        let checked = checkpoints.check(&create)?;
                        if let Some(short) = wanted {
                            committed = self
                                .commit(&short)?
                                .commit
                                .message
                                .lines()
                                .next()
                                .map(str::to_owned);
                        }
                        let made = checkpoints.make(&create, checked)?;
                        warnings.extend(made.warnings);
                        made.tag
                    }
                },
            );
        }
        let closed = match &focus.linear_issue {
            Some(key) => match project.issues().done(key, &close, None) {
                Err(error) if error.category == Category::NotFound => {
                    warnings.push(format!("{key} is not an issue here: it was not closed"));
                    None
                }
                closed => Some(closed?),
            },
            None => None,
        };
        let end = End {
            learned: done.learned.clone(),
            next: done.next.clone(),
            key: None,
            leave_dirty: None,
        };
        let session = Sessions::new(project).end(&end)?;
        Ok(Finished {
            committed,
            checkpoint,
            issue: closed,
            session,
            warnings,
        })
    }

    /// Returns the commit of what is not committed. `None` if everything is.
    fn uncommitted(&self, git: &Git, status: &Status, what: Option<&str>) -> Result<Option<Short>> {
        if status.outside(git.memory()).next().is_none() {
            return Ok(None);
        }
        let (_, left) = self.files(status, &[])?;
        if let Some(first) = left.first() {
            let message = format!(
                "{} would not be committed, the first is {first}",
                count(left.len(), "changed file")
            );
            return Err(Error::new(Category::Refused, "E_DIRTY", message)
                .hint("only what is staged, or else what the focus names, would be: commit in parts, then finish")
                .next("git status"));
        }
        Ok(Some(Short {
            what: what.unwrap_or("Finish the work").to_owned(),
            ..Short::default()
        }))
    }

    /// Returns the checkpoint of the clean current commit, if an earlier call made it and was
    /// interrupted.
    ///
    /// A later commit of the memory alone, at the end of the same session, does not count.
    fn made_before(
        &self,
        git: &Git,
        status: &Status,
        key: Option<&str>,
        session: &str,
    ) -> Result<Option<String>> {
        let head = git.head()?;
        let clean = status.outside(git.memory()).next().is_none();
        let newest = Checkpoints::new(self.project)
            .newest_valid()?
            .filter(|newest| {
                let of = newest.name.rsplit_once("-v").map(|(key, _)| key);
                let is_same_code = |head| {
                    let manifest = newest.manifest.as_ref();
                    let made =
                        manifest.filter(|manifest| manifest.session.as_deref() == Some(session));
                    let tree = made.and_then(|manifest| manifest.code_tree.clone());
                    tree.is_some() && git.code_tree(head).ok() == tree
                };
                newest.can_rollback_to
                    && of == key
                    && (newest.oid() == head || head.as_ref().is_some_and(is_same_code))
            });
        Ok(newest.filter(|_| clean).map(|newest| newest.tag))
    }
}
