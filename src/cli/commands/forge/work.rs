//! `helmdeck forge start`, `commit`, `done`, `status` and `remember`: a day in few words.

use helmdeck_core::text::count;
use helmdeck_forge::git::{Commits, NewCommit};
use helmdeck_forge::knowledge::{Learning, What};
use helmdeck_forge::sessions::{Finished as Ended, Session, Sessions, Start as StartSession};
use helmdeck_forge::work::{
    Done, Finished, Short, ShortCommit, Start, Started, Status, Work, no_key,
};
use helmdeck_forge::{Error, Project};

use super::context::{Answer, CommandContext, Stop};
use super::issue::branch_line;
use super::tracker::{self, Moment};
use crate::args::forge::{CommitArgs, DoneWorkArgs, StartWorkArgs};
use crate::exit::Exit;
use helmdeck_forge::issues::{criteria, line};

pub(super) fn start(on: &CommandContext, arguments: &StartWorkArgs) -> Answer {
    let start = Start {
        what: arguments.what.clone(),
        branch: arguments.branch.branch.clone(),
        no_branch: arguments.branch.no_branch,
        session: StartSession {
            join: arguments.join,
            take_over: arguments.take_over,
            no_probe: arguments.no_probe,
            ..StartSession::default()
        },
    };
    let mut project = on.open()?;
    if let Some(what) = arguments.what.as_deref().filter(|_| arguments.worktree) {
        let there = Work::new(&project).worktree(what, arguments.branch.branch.as_deref())?;
        project = on
            .allowed
            .iter()
            .fold(there, |project, rule| project.allowing(rule));
    }
    tracker::at(on, &project, Moment::Start);
    let started = Work::new(&project).start(&start)?;
    on.print(&started, || started_text(&started))?;
    CommandContext::exit(if started.paused.is_some() {
        Exit::Paused
    } else {
        Exit::Ok
    })
}

fn started_text(started: &Started) -> String {
    let word = if started.again { "goes on" } else { "started" };
    let mut lines = vec![format!("session {} {word}", started.session)];
    if let Some(why) = &started.paused {
        lines.push(format!("PAUSED: {why}"));
        lines.push("next: helmdeck forge recover assess".to_owned());
        return lines.join("\n");
    }
    if let Some(issue) = &started.issue {
        let new = if started.new_issue { ", new" } else { "" };
        lines.push(format!("issue {}{new}", line(issue)));
        lines.extend(criteria(issue));
    }
    if let Some(feature) = &started.feature {
        lines.push(format!("feature {} {}", feature.id, feature.name));
    }
    if started.issue.is_none() && started.feature.is_none() {
        let task = started.focus.task.as_deref().unwrap_or("nothing to do");
        lines.push(format!("focus: {task}"));
        lines.extend(
            started
                .focus
                .reason
                .iter()
                .map(|reason| format!("  {reason}")),
        );
        if started.focus.task.is_none() {
            lines.push(
                "next: helmdeck forge start \"TITLE\" begins an issue with this title".to_owned(),
            );
        }
    }
    lines.extend(started.branch.as_ref().map(branch_line));
    lines.extend(
        started
            .worktree
            .iter()
            .map(|folder| format!("work tree {}: go on there", folder.display())),
    );
    lines.extend(
        started
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

/// Commits: in the long form with `-m`, else in few words.
pub(super) fn commit(on: &CommandContext, arguments: &CommitArgs) -> Answer {
    let Some(subject) = &arguments.subject else {
        return short(on, arguments);
    };
    let project = on.open()?;
    let work = Work::new(&project);
    let key = match (&arguments.key, arguments.session_commit) {
        (Some(key), _) => Some(key.clone()),
        (None, true) => None,
        (None, false) => Some(work.key()?.ok_or_else(no_key)?),
    };
    let why = why(on, &project, arguments, key.as_deref())?;
    let new = NewCommit {
        key,
        session_commit: arguments.session_commit,
        subject: subject.clone(),
        what: if arguments.what.is_empty() {
            vec![subject.clone()]
        } else {
            arguments.what.clone()
        },
        why: why.unwrap_or_else(|| subject.clone()),
        learned: arguments.learned.clone(),
        invariants: arguments.invariant.clone(),
        paths: arguments.paths.clone(),
        closes: arguments.closes,
        parent: arguments.parent.clone(),
    };
    let made = on.change(|project| {
        let session = Sessions::new(project).required()?;
        let commits = Commits::new(project);
        commits.create(&new, &commits.origin(&session.id, &session.uuid)?)
    })?;
    on.show(&made)
}

/// Returns why a commit is made: as given, as answered at a terminal, or from the issue.
fn why(
    on: &CommandContext,
    project: &Project,
    arguments: &CommitArgs,
    key: Option<&str>,
) -> Result<Option<String>, Stop> {
    if arguments.why.is_some() {
        return Ok(arguments.why.clone());
    }
    let known = Work::new(project).why(key)?;
    let question = known
        .as_ref()
        .map_or_else(|| "Why?".to_owned(), |known| format!("Why? [{known}]"));
    Ok(on.line(&question)?.or(known))
}

fn short(on: &CommandContext, arguments: &CommitArgs) -> Answer {
    let Some((what, paths)) = arguments.paths.split_first() else {
        return Err(Error::usage(
            "a commit says what was done: helmdeck forge commit \"what was done\"",
        )
        .into());
    };
    let project = on.open()?;
    let key = match &arguments.key {
        None if !arguments.session_commit => Work::new(&project).key()?,
        key => key.clone(),
    };
    let why = why(on, &project, arguments, key.as_deref())?;
    let short = Short {
        what: what.clone(),
        more: arguments.what.clone(),
        why,
        key,
        learned: arguments.learned.clone(),
        closes: arguments.closes,
        paths: paths.to_vec(),
    };
    let made = on.change(|project| Work::new(project).commit(&short))?;
    on.print(&made, || commit_text(&made))
}

fn commit_text(made: &ShortCommit) -> String {
    let subject = made.commit.message.lines().next().unwrap_or_default();
    let mut lines = vec![
        format!("{} {subject}", made.commit.oid.short()),
        format!("  why: {}", made.why),
    ];
    if !made.paths.is_empty() {
        lines.push(format!("  files: {}", some(&made.paths)));
    }
    lines.extend(
        made.commit
            .features
            .iter()
            .map(|feature| format!("  {} {}", feature.id, feature.status)),
    );
    if !made.left.is_empty() {
        lines.push(format!("  not committed: {}", some(&made.left)));
    }
    if made.commit.changed_by_hook {
        lines.push("warning: a hook changed the commit".to_owned());
    }
    lines.join("\n")
}

/// Returns the first of some names, and how many more there are.
fn some(all: &[String]) -> String {
    const NAMED: usize = 8;
    let more = all.len().saturating_sub(NAMED);
    let named = all
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if more == 0 {
        named
    } else {
        format!("{named} and {more} more")
    }
}

pub(super) fn done(on: &CommandContext, arguments: &DoneWorkArgs) -> Answer {
    let done = Done {
        message: arguments.what.clone(),
        anyway: arguments.anyway.clone(),
        learned: learned(&arguments.learned)?,
        next: arguments.next.clone(),
        verify: arguments.verify.clone(),
        push: arguments.push,
    };
    let project = on.open()?;
    let finished = Work::new(&project).done(&done)?;
    tracker::at(on, &project, Moment::End);
    on.print(&finished, || finished_text(&finished))
}

/// Reads learnings of the form `when it applies: what works`.
pub(super) fn learned(texts: &[String]) -> helmdeck_forge::Result<Vec<Learning>> {
    let learned = texts.iter().map(|text| {
        let (context, approach) = text.split_once(": ").ok_or_else(|| {
            Error::usage(format!(
                "--learned {text:?} has no \": \" between when it applies and what works"
            ))
        })?;
        Ok(Learning::new(What::Successful {
            context: context.to_owned(),
            approach: approach.to_owned(),
        }))
    });
    learned.collect()
}

fn finished_text(finished: &Finished) -> String {
    let mut lines: Vec<String> = finished
        .committed
        .iter()
        .chain(&finished.checkpoint)
        .cloned()
        .collect();
    if let Some(closed) = &finished.issue {
        lines.push(format!("{} is closed: {}", closed.key, closed.path));
    }
    lines.push(ended_text(&finished.session));
    lines.extend(
        finished
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

/// Says how a session ended.
pub(super) fn ended_text(ended: &Ended) -> String {
    let (minutes, commits) = (ended.duration_s / 60, count(ended.commits, "commit"));
    let word = if ended.again { "ended before" } else { "ended" };
    let mut lines = vec![format!(
        "session {} {word}: {minutes} min, {commits}",
        ended.session
    )];
    if !ended.learned.is_empty() {
        lines.push(format!("learned: {}", some(&ended.learned)));
    }
    lines.extend(
        ended
            .commit
            .iter()
            .map(|commit| format!("memory committed: {}", commit.get(..12).unwrap_or(commit))),
    );
    lines.extend(ended.next.iter().map(|next| format!("next: {next}")));
    lines.extend(
        ended
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

pub(super) fn status(on: &CommandContext) -> Answer {
    let status = Work::new(&on.look()?).status()?;
    on.print(&status, || status_text(&status))
}

fn session_line(session: &Session) -> String {
    let Session {
        id,
        agent,
        started_at,
        seen_at,
        ..
    } = session;
    let left = session
        .abandoned
        .iter()
        .map(|why| format!(", abandoned: {why}"))
        .collect::<String>();
    format!(
        "session {id} of {agent}, since {}, last command at {}{left}",
        started_at.seconds(),
        seen_at.seconds()
    )
}

fn status_text(status: &Status) -> String {
    let mut lines = Vec::new();
    lines.extend(status.paused.iter().map(|why| format!("PAUSED: {why}")));
    lines.push(match &status.session {
        Some(session) => session_line(session),
        None => "no session".to_owned(),
    });
    let own = status.session.as_ref().map(|session| session.id.as_str());
    let others = status
        .sessions
        .iter()
        .filter(|session| Some(session.id.as_str()) != own);
    lines.extend(others.map(|session| format!("  besides: {}", session_line(session))));
    let active = status.session.is_some();
    if let Some(issue) = status.issue.as_ref().filter(|_| active) {
        lines.push(format!("issue {}", line(issue)));
        lines.extend(criteria(issue));
    } else {
        lines.push(match &status.focus.task {
            Some(task) if active => format!("focus: {task}"),
            Some(task) => format!("last focus: {task}"),
            None => "no focus".to_owned(),
        });
    }
    if let Some(item) = status.feature.as_ref().filter(|_| active) {
        lines.push(format!(
            "feature {} {}: {}",
            item.feature.id, item.feature.name, item.standing
        ));
    }
    if let Some(branch) = &status.branch {
        lines.push(format!("branch {branch}"));
    }
    lines.extend(status.elsewhere.iter().map(|other| {
        format!(
            "elsewhere: {} by session {} in {}",
            other.what,
            other.session,
            other.worktree.display()
        )
    }));
    if let Some(changed) = status.changed.as_ref().filter(|changed| changed.count > 0) {
        lines.push(format!(
            "{} not committed: {}",
            count(changed.count, "file"),
            some(&changed.files)
        ));
    }
    let (issues, features) = (&status.issues, &status.features);
    lines.push(format!(
        "issues: {} open, {} ready, {} done",
        issues.open, issues.ready, issues.done
    ));
    lines.push(format!("features: {features}"));
    if let Some(trouble) = &status.tracker {
        let mut parts = Vec::new();
        if trouble.outbox_failed > 0 {
            parts.push(format!(
                "{} not delivered",
                count(trouble.outbox_failed, "change")
            ));
        }
        if trouble.conflicts > 0 {
            parts.push(format!(
                "{} changed on both sides",
                count(trouble.conflicts, "field")
            ));
        }
        parts.extend(
            trouble
                .pull_failed
                .map(|since| format!("not read since {since}")),
        );
        lines.push(format!(
            "tracker: {}; see `helmdeck forge tracker status`",
            parts.join(", ")
        ));
    }
    if status.checkpoint_advised.is_some() {
        lines.push("a checkpoint is due".to_owned());
    }
    lines.push(format!("next: {}", status.next));
    lines.join("\n")
}

pub(super) fn remember(on: &CommandContext, words: &[String]) -> Answer {
    let text = words.join(" ");
    let added = on.change(|project| Work::new(project).remember(&text))?;
    on.print(&added, || format!("remembered as {}", added.id))
}
