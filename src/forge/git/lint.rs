//! Checks the messages of a range of commits.

use serde::Serialize;

use super::commits::Commits;
use super::message::{Finding, Severity, lint, parse};
use super::{Git, Oid};
use crate::error::Result;

/// Maximum number of commits of a range that are checked.
const MAX_COMMITS: usize = 10_000;

/// Findings for a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Linted {
    /// The commit.
    pub oid: Oid,
    /// Its subject.
    pub subject: String,
    /// The broken rules; empty if it keeps all.
    pub findings: Vec<Finding>,
}

impl Linted {
    /// Says whether a finding is an error, not only a warning.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

impl Commits<'_> {
    /// Returns the default range: the commits that this branch has and its base does not.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; errors from git.
    pub fn own_range(&self) -> Result<String> {
        let base = self.project.git()?.base(self.project.config().git.base.as_deref())?;
        Ok(base.map_or_else(|| "HEAD".to_owned(), |(_, oid)| format!("{oid}..HEAD")))
    }

    /// Checks the commits of a range (`main..HEAD`), newest first, at most 10,000. Merges are skipped.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; `E_GIT` if the range names an unknown commit.
    pub fn lint(&self, range: &str) -> Result<Vec<Linted>> {
        let git = self.project.git()?;
        let commits: Vec<_> = git.log_with_messages(range, MAX_COMMITS)?;
        let single: Vec<_> = commits.into_iter().filter(|(commit, _)| commit.parents.len() < 2).collect();
        let oids: Vec<Oid> = single.iter().map(|(commit, _)| commit.oid.clone()).collect();
        let trees = git.code_trees(&oids)?;
        let mut all = Vec::new();
        let belongs = crate::health::belongs_to_an_issue(self.project);
        for (commit, message) in single {
            let mut findings = lint(&message);
            if belongs.as_ref().is_some_and(|belongs| !belongs(&message)) {
                findings.push(warning("orphan", "it belongs to no issue that is known here".to_owned()));
            }
            if let Some(finding) = ancestor(git, &commit.oid, &message)? {
                findings.push(finding);
            }
            findings.extend(code_tree(trees.get(&commit.oid), &message));
            all.push(Linted { oid: commit.oid, subject: commit.subject, findings });
        }
        Ok(all)
    }
}

fn warning(rule: &str, message: String) -> Finding {
    Finding { rule: rule.to_owned(), severity: Severity::Warning, line: 1, message }
}

/// Checks that the parent state is an ancestor.
///
/// A rebase moves a commit away from its parent state, so this is only a warning.
fn ancestor(git: &Git, oid: &Oid, message: &str) -> Result<Option<Finding>> {
    let parsed = parse(message);
    let Some(last) = parsed.messages.last() else { return Ok(None) };
    let Some(parent) = last.trailers.parent.as_ref().or(last.backtrace.parent.as_ref()) else { return Ok(None) };
    if parent.bytes().all(|byte| byte == b'0') {
        return Ok(None);
    }
    Ok(match git.resolve(parent)? {
        None => Some(warning("ancestor", format!("its parent {parent} is not here"))),
        Some(parent) if !git.is_ancestor(&parent, oid)? => {
            Some(warning("ancestor", format!("its parent {} is no ancestor of it", parent.short())))
        }
        Some(_) => None,
    })
}

fn code_tree(tree: Option<&String>, message: &str) -> Option<Finding> {
    let parsed = parse(message);
    // If a commit has several messages, no trailer names its resulting tree.
    let [one] = parsed.messages.as_slice() else { return None };
    let (said, tree) = (one.trailers.code_tree.as_ref()?, tree?);
    (said != tree).then(|| warning("code-tree", format!("Forge-Code-Tree is {said}, the commit holds {tree}")))
}
