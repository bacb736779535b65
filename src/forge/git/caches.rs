//! Git caches: `commits.log` and `branches.json`.
//!
//! They are written at the end of a session, never trusted, and never committed: whoever needs them
//! at another `HEAD` asks git.

use std::collections::HashSet;
use std::fmt::Write as _;

use helmdeck_core::text::collapse_whitespace;
use helmdeck_forge_documents::branches::{BranchState, Branches};
use serde::Serialize;

use super::commits::Commits;
use super::message::{is_session, keys, parse};
use super::repository::TRAILERS;
use super::{Git, Oid, Run};
use crate::error::{Error, Result};
use crate::json::{self, Members};
use crate::layout;
use crate::time::Time;
use helmdeck_git::{split, trailers};

/// Number of commits kept.
const KEPT: usize = 200;
/// Maximum number of branches measured one by one, for git versions that cannot measure all at
/// once.
const MEASURED: usize = 100;

/// A line of `commits.log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When it was committed.
    pub time: Time,
    /// The first 12 digits of the commit id.
    pub sha: String,
    /// The issue key.
    pub key: Option<String>,
    /// The session.
    pub session: Option<String>,
    /// The first 12 digits of the code tree, which excludes the memory.
    pub code_tree: String,
    /// The subject.
    pub subject: String,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, '\t');
        let mut next = || fields.next();
        let some = |text: &str| Some(text.to_owned()).filter(|text| text != "-");
        Some(Self {
            time: Time::parse(next()?).ok()?,
            sha: next()?.to_owned(),
            key: some(next()?),
            session: some(next()?),
            code_tree: next()?.to_owned(),
            subject: next()?.to_owned(),
        })
    }
}

impl Commits<'_> {
    /// Returns the last commits, newest last, at most 200.
    ///
    /// They come from the cache if it was made at this `HEAD`, else from git. Writes nothing.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; errors of [`helmdeck_git::Git::succeed`].
    pub fn recent(&self) -> Result<Vec<Line>> {
        let git = self.project.git()?;
        let Some(head) = git.head()? else {
            return Ok(Vec::new());
        };
        // On any problem with the cache, ask git instead.
        let kept = self
            .project
            .files()
            .read(layout::COMMITS)
            .ok()
            .flatten()
            .unwrap_or_default();
        let kept: Option<Vec<Line>> = String::from_utf8_lossy(&kept)
            .lines()
            .map(Line::parse)
            .collect();
        match kept.filter(|lines| lines.last().is_some_and(|line| line.sha == head.short())) {
            Some(lines) => Ok(lines),
            None => lines(git),
        }
    }

    /// Returns the branches as git has them now. Writes nothing.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; errors of [`helmdeck_git::Git::succeed`].
    pub fn branches(&self) -> Result<Branches> {
        let git = self.project.git()?;
        branches(
            git,
            self.project.config().git.base.as_deref(),
            self.project.environment().now().seconds(),
        )
    }

    /// Rebuilds both caches.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; errors of [`helmdeck_git::Git::succeed`]; errors from writing a file, for
    /// example if a subject looks like it contains a credential.
    pub fn refresh(&self) -> Result<()> {
        let files = self.project.files();
        let mut text = String::new();
        for line in lines(self.project.git()?)? {
            let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            let Line {
                time,
                sha,
                code_tree,
                subject,
                ..
            } = &line;
            let _ = writeln!(
                text,
                "{time}\t{sha}\t{}\t{}\t{code_tree}\t{subject}",
                or(&line.key),
                or(&line.session)
            );
        }
        files.write(layout::COMMITS, text.as_bytes())?;
        let branches =
            json::print(&self.branches()?).map_err(|error| Error::refused(error.to_string()))?;
        files.write(layout::BRANCHES, &branches)
    }
}

fn lines(git: &Git) -> Result<Vec<Line>> {
    let commits = git.log_with_messages("HEAD", KEPT)?;
    let oids: Vec<Oid> = commits
        .iter()
        .map(|(commit, _)| commit.oid.clone())
        .collect();
    let trees = git.code_trees(&oids)?;
    let line = |(commit, message): (super::Commit, String)| {
        let parsed = parse(&message);
        Line {
            time: commit.time.into(),
            sha: commit.oid.short().to_owned(),
            key: parsed.keys().first().map(|key| (*key).to_owned()),
            session: parsed
                .sessions()
                .first()
                .map(|session| (*session).to_owned()),
            code_tree: trees
                .get(&commit.oid)
                .map_or("-", |tree| &tree[..12])
                .to_owned(),
            subject: collapse_whitespace(&commit.subject),
        }
    };
    Ok(commits.into_iter().rev().map(line).collect())
}

fn branches(git: &Git, base: Option<&str>, now: Time) -> Result<Branches> {
    let base = git.base(base)?;
    let found = git.branches()?;
    let tips: String = found
        .iter()
        .map(|branch| format!("{}\n", branch.oid))
        .collect();
    let tips = git.objects(&tips)?;
    let merged = merged(git, base.as_ref().map(|(_, oid)| oid))?;
    let counts = counts(git, base.as_ref().map(|(_, oid)| oid), &found)?;
    let branches = found
        .into_iter()
        .zip(tips)
        .zip(counts)
        .map(|((branch, tip), counts)| BranchState {
            key: keys(&branch.name).first().map(|key| (*key).to_owned()),
            session: tip.and_then(|tip| session(&tip.bytes)),
            merged: merged.contains(&branch.name),
            name: branch.name,
            sha: branch.oid.to_string(),
            upstream: branch.upstream,
            ahead: counts.map(|(ahead, _)| ahead),
            behind: counts.map(|(_, behind)| behind),
            last_commit_at: branch.time.into(),
            worktree: branch.worktree,
            other: Members::default(),
        });
    Ok(Branches {
        generated_at: now,
        head: git.head()?.map(String::from),
        base: base.map(|(name, _)| name),
        branches: branches.collect(),
        other: Members::default(),
    })
}

/// Returns the session that a raw commit object names.
fn session(commit: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(commit);
    let (_, message) = text.split_once("\n\n")?;
    let (_, body) = split(message);
    let mut sessions = trailers(&body, TRAILERS)
        .into_iter()
        .filter(|(name, _)| name == "Forge-Session");
    sessions.find_map(|(_, value)| Some(value).filter(|value| is_session(value)))
}

fn merged(git: &Git, base: Option<&Oid>) -> Result<HashSet<String>> {
    let Some(base) = base else {
        return Ok(HashSet::new());
    };
    let merged = format!("--merged={base}");
    let output = git.succeed(
        &[
            "for-each-ref",
            "--format=%(refname)",
            &merged,
            "refs/heads/",
        ],
        &Run::default(),
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .filter_map(|line| line.strip_prefix("refs/heads/"))
        .map(ToOwned::to_owned)
        .collect())
}

/// Returns how far each branch is ahead of and behind its upstream, or else the base.
fn counts(
    git: &Git,
    base: Option<&Oid>,
    branches: &[super::Branch],
) -> Result<Vec<Option<(u64, u64)>>> {
    let base_field = base.map_or_else(String::new, |base| format!("%(ahead-behind:{base})"));
    let format = format!("--format=%(upstream:track,nobracket)%00{base_field}");
    let output = git.run(&["for-each-ref", &format, "refs/heads/"], &Run::default())?;
    if !output.ok() {
        // git before 2.41 has no `ahead-behind`.
        return branches
            .iter()
            .take(MEASURED)
            .map(|branch| measure(git, base, branch))
            .chain(branches.iter().skip(MEASURED).map(|_| Ok(None)))
            .collect();
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().zip(branches).map(|(line, branch)| {
        let (track, base) = line.split_once('\0')?;
        match &branch.upstream {
            Some(_) if track != "gone" => Some(tracked(track)),
            _ => base
                .split_once(' ')
                .and_then(|(ahead, behind)| Some((ahead.parse().ok()?, behind.parse().ok()?))),
        }
    });
    let mut counts: Vec<_> = counts.collect();
    counts.resize(branches.len(), None);
    Ok(counts)
}

/// Parses `ahead 1, behind 2`.
fn tracked(text: &str) -> (u64, u64) {
    let count = |name: &str| {
        text.split(", ")
            .find_map(|part| part.strip_prefix(name)?.trim().parse().ok())
            .unwrap_or_default()
    };
    (count("ahead"), count("behind"))
}

fn measure(git: &Git, base: Option<&Oid>, branch: &super::Branch) -> Result<Option<(u64, u64)>> {
    let upstream = match &branch.upstream {
        Some(upstream) => git.resolve(upstream)?,
        None => None,
    };
    Ok(upstream
        .as_ref()
        .or(base)
        .map(|against| git.ahead_behind(&branch.oid, against))
        .transpose()?)
}

#[cfg(test)]
mod tests;
