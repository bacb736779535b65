//! `helmdeck forge tracker`: the sync with an issue tracker.

use std::time::Duration;

use helmdeck_forge::checkpoints::Checkpoints;
use helmdeck_forge::config::LinearMode;
use helmdeck_forge::knowledge::What;
use helmdeck_forge::sessions::{End, Sessions};
use helmdeck_forge::{Error, Project};
use helmdeck_forge_documents::tracking::{Field, Operation, OperationKind, Outbox};
use helmdeck_trackers::Tracker;
use helmdeck_trackers::sync::{
    ChangedIssue, Choice, Pull, Pulled, Push, Pushed, Status, Sync, give_up, resolve, retry, status,
};
use serde_json::json;

use super::context::{Answer, CommandContext, Stop};
use crate::args::forge::{ResolveArgs, SyncArgs, TrackerCommand};
use crate::exit::Exit;
use crate::runtime::block_on;

/// Time limit of a sync at the start or end of a session.
const SHORT: Duration = Duration::from_secs(2);
/// Maximum length of a value in a line of text, in characters.
const SHOWN: usize = 60;

pub(super) fn run(on: &CommandContext, command: &TrackerCommand) -> Answer {
    match command {
        TrackerCommand::Status => {
            let project = on.look()?;
            let (status, waiting) = (status(&project)?, Outbox::read(project.files())?.waiting);
            let data =
                json!({"mode": project.config().linear.mode, "sync": status, "waiting": waiting});
            on.print(&data, || status_text(&project, &status, &waiting))
        }
        TrackerCommand::Sync(arguments) => synchronise(on, arguments),
        TrackerCommand::Resolve(arguments) => settle(on, arguments),
    }
}

/// Pulls and pushes, or one of them. Failed changes are tried again: a person asks for it.
fn synchronise(on: &CommandContext, arguments: &SyncArgs) -> Answer {
    let dry_run = arguments.dry_run;
    let pull = Pull {
        full: arguments.full,
        dry_run,
        only: None,
    };
    if !dry_run && !arguments.pull {
        on.change(retry)?;
    }
    let (pulled, pushed) = with(on, async |sync: Sync<'_>| {
        Ok(match (arguments.pull, arguments.push) {
            (true, _) => (Some(sync.pull(&pull).await?), None),
            (_, true) => (None, Some(sync.push(&Push { dry_run }).await?)),
            _ => {
                let (pulled, pushed) = sync.sync(&pull).await?;
                (Some(pulled), Some(pushed))
            }
        })
    })?;
    on.print(&json!({"pulled": pulled, "pushed": pushed}), || {
        let texts = [
            pulled.as_ref().map(pulled_text),
            pushed.as_ref().map(pushed_text),
        ];
        texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    })?;
    let conflicts = pulled.is_some_and(|pulled| pulled.conflicts > 0);
    CommandContext::exit(match pushed {
        None if conflicts => Exit::Failed,
        None => Exit::Ok,
        Some(pushed) => exit_of(&pushed),
    })
}

fn tracker(on: &CommandContext, project: &Project) -> Result<Box<dyn Tracker>, Stop> {
    Ok(crate::trackers::open(
        project,
        on.config.as_deref(),
        &on.process,
        on.output,
    )?)
}

/// Runs a sync.
fn with<T>(
    on: &CommandContext,
    work: impl AsyncFnOnce(Sync<'_>) -> helmdeck_forge::Result<T>,
) -> Result<T, Stop> {
    let project = on.open()?;
    let tracker = tracker(on, &project)?;
    Ok(block_on(async {
        Ok(work(Sync::new(&project, &*tracker)).await)
    })??)
}

/// A moment at which `[linear] sync` may ask for a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The start of a session.
    Start,
    /// The end of a session.
    End,
}

/// Synchronises at the start or end of a session, if the settings ask for it.
///
/// It takes at most two seconds and never fails: its result is a note.
pub(super) fn at(on: &CommandContext, project: &Project, moment: Moment) {
    let settings = &project.config().linear;
    let word = if moment == Moment::Start {
        "start"
    } else {
        "end"
    };
    if settings.mode != LinearMode::Live || !settings.sync.split(',').any(|one| one.trim() == word)
    {
        return;
    }
    let tried = tracker(on, project).and_then(|tracker| {
        let sync = Sync::new(project, &*tracker);
        let done =
            block_on(async { Ok(tokio::time::timeout(SHORT, sync.sync(&Pull::default())).await) })?;
        match done {
            Ok(done) => Ok(Some(done?)),
            Err(_) => Ok(None),
        }
    });
    let note = match tried {
        Ok(Some((pulled, pushed))) => {
            let changed = pulled.added.len() + pulled.changed.len() + pulled.closed.len();
            let mut note = format!(
                "issues: {changed} taken over, {} delivered",
                pushed.delivered.len()
            );
            for (count, what) in [(pushed.waiting, "wait"), (pushed.conflicts, "in conflict")] {
                if count > 0 {
                    note.push_str(&format!(", {count} {what}"));
                }
            }
            note
        }
        Ok(None) => "issues: not synchronised within 2 s; the rest waits in the outbox".to_owned(),
        Err(Stop::Project(error)) => format!("issues: not synchronised: {}", error.message),
        Err(Stop::Cli(failure)) => format!("issues: not synchronised: {}", failure.message()),
        Err(Stop::NoMemory) => return,
    };
    on.output.note(&note);
}

/// Adds a comment about a session that ends to the issue of its focus, if the settings ask for it.
///
/// It never fails: the comment is not worth the end of the session.
pub(super) fn note_end(on: &CommandContext, project: &Project, end: &End) {
    let settings = &project.config().linear;
    if settings.mode != LinearMode::Live || !settings.notes {
        return;
    }
    let add = || -> helmdeck_forge::Result<()> {
        let shown = Sessions::new(project).focus_now()?.show()?;
        let Some(key) = shown.and_then(|shown| shown.focus.linear_issue) else {
            return Ok(());
        };
        let mut lines = vec!["A session ended.".to_owned()];
        lines.extend(end.next.iter().map(|next| format!("Next: {next}")));
        lines.extend(
            end.learned
                .iter()
                .filter_map(|learning| match &learning.what {
                    What::Successful { context, approach } => {
                        Some(format!("Learned: {context}: {approach}"))
                    }
                    _ => None,
                }),
        );
        if let Ok(Some(checkpoint)) = Checkpoints::new(project).newest_valid() {
            lines.push(format!("Last checkpoint: {}", checkpoint.name));
        }
        project.issues().comment(&key, &lines.join("\n")).map(drop)
    };
    if let Err(error) = add() {
        on.output.note(&format!(
            "no comment was added to the issue: {}",
            error.message
        ));
    }
}

fn settle(on: &CommandContext, arguments: &ResolveArgs) -> Answer {
    let known = || {
        Field::ALL
            .iter()
            .map(|field| field.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(field) = &arguments.field else {
        if !arguments.choice.theirs {
            return Err(Error::usage("say which field: --field")
                .hint(format!("the fields are {}", known()))
                .into());
        }
        let given_up = on.change(|project| give_up(project, &arguments.key))?;
        return on.print(&given_up, || {
            let lines = given_up
                .iter()
                .map(|one| format!("given up: {}", operation_text(one)));
            lines.collect::<Vec<_>>().join("\n")
        });
    };
    let field = Field::of(field).ok_or_else(|| {
        Error::usage(format!("{field:?} is no field")).hint(format!("the fields are {}", known()))
    })?;
    let choice = match (&arguments.choice.value, arguments.choice.theirs) {
        (Some(value), _) => Choice::Value(value.clone()),
        (None, true) => Choice::Theirs,
        (None, false) => Choice::Ours,
    };
    let settled = on.change(|project| resolve(project, &arguments.key, field, &choice))?;
    on.print(&settled, || {
        let next = if choice == Choice::Theirs {
            ""
        } else {
            "; `helmdeck forge tracker sync` delivers it"
        };
        format!("{} {field}: settled{next}", settled.key)
    })
}

fn exit_of(pushed: &Pushed) -> Exit {
    let fine = pushed.failed.is_empty() && pushed.conflicts == 0 && pushed.stopped.is_none();
    if fine { Exit::Ok } else { Exit::Failed }
}

fn shown(value: Option<&helmdeck_forge_documents::tracking::Value>) -> String {
    let text = value.map_or_else(
        || "nothing".to_owned(),
        |value| format!("{:?}", value.to_string()),
    );
    helmdeck_core::text::truncate(&text, SHOWN).into_owned()
}

fn status_text(project: &Project, status: &Status, waiting: &[Operation]) -> String {
    let mode = match project.config().linear.mode {
        LinearMode::Off => "off",
        LinearMode::Offline => "offline",
        LinearMode::Live => "live",
    };
    let tracker = if status.tracker.is_empty() {
        String::new()
    } else {
        format!(", {}", status.tracker)
    };
    let mut lines = vec![format!("mode: {mode}{tracker}")];
    let pulled = status
        .pulled_at
        .map_or_else(|| "never".to_owned(), |at| at.to_string());
    lines.push(format!("pulled: {pulled}"));
    if let Some(failure) = &status.failure {
        lines.push(format!(
            "failing since {}: {}",
            failure.since, failure.error
        ));
    }
    lines.push(format!(
        "issues: {} tracked, {} local",
        status.tracked,
        status.local.len()
    ));
    lines.push(format!(
        "outbox: {} waiting, {} failed",
        status.waiting,
        status.failed.len()
    ));
    lines.extend(
        waiting
            .iter()
            .map(|one| format!("  {}", operation_text(one))),
    );
    if status.damaged > 0 {
        lines.push(format!(
            "  {} cannot be read",
            helmdeck_core::text::count(status.damaged, "line")
        ));
    }
    for conflict in &status.conflicts {
        lines.push(format!(
            "conflict: {} {}: {} here, {} in the tracker, {} before",
            conflict.key,
            conflict.field,
            shown(conflict.ours.as_ref()),
            shown(conflict.theirs.as_ref()),
            shown(conflict.base.as_ref())
        ));
    }
    if let Some(conflict) = status.conflicts.first() {
        let (key, field) = (&conflict.key, conflict.field);
        lines.push(format!(
            "next: helmdeck forge tracker resolve {key} --field {field} --ours | --theirs | --value TEXT"
        ));
    }
    lines.join("\n")
}

fn change_lines(changes: &[ChangedIssue]) -> impl Iterator<Item = String> {
    changes.iter().map(|change| {
        let fields = change.fields.iter().map(|(field, values)| {
            format!(
                "{field} {} -> {}",
                shown(values.from.as_ref()),
                shown(values.to.as_ref())
            )
        });
        format!(
            "  {}: {}",
            change.key,
            fields.collect::<Vec<_>>().join(", ")
        )
    })
}

fn pulled_text(pulled: &Pulled) -> String {
    let word = if pulled.dry_run {
        "would take over"
    } else {
        "took over"
    };
    let mut lines = vec![format!(
        "{word} {} new and {} changed issues of {} read",
        pulled.added.len(),
        pulled.changed.len(),
        pulled.read
    )];
    lines.extend(pulled.added.iter().map(|key| format!("  {key}: new")));
    lines.extend(change_lines(&pulled.changed));
    lines.extend(
        pulled
            .renamed
            .iter()
            .map(|(from, to)| format!("  {from} is {to} now")),
    );
    lines.extend(
        pulled
            .closed
            .iter()
            .map(|key| format!("  {key}: done, in the history")),
    );
    lines.extend(
        pulled
            .reopened
            .iter()
            .map(|key| format!("  {key}: opened again")),
    );
    if pulled.comments > 0 {
        lines.push(format!(
            "  {}",
            helmdeck_core::text::count(pulled.comments, "comment")
        ));
    }
    if pulled.conflicts > 0 {
        lines.push(format!(
            "{} fields were changed on both sides: helmdeck forge tracker status",
            pulled.conflicts
        ));
    }
    lines.extend(
        pulled
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

fn pushed_text(pushed: &Pushed) -> String {
    let word = if pushed.dry_run {
        "would deliver"
    } else {
        "delivered"
    };
    let mut lines = vec![format!(
        "{word} {}, {} wait",
        pushed.delivered.len(),
        pushed.waiting
    )];
    for one in &pushed.delivered {
        let fields: Vec<_> = one.fields.iter().map(|field| field.name()).collect();
        lines.push(match (one.kind, &one.was) {
            (OperationKind::Create, Some(was)) => format!("  {was} is {} now", one.key),
            (OperationKind::Create, None) => format!("  {}: new", one.key),
            (OperationKind::Update, _) => format!("  {}: {}", one.key, fields.join(", ")),
            (OperationKind::Comment, _) => format!("  {}: comment", one.key),
        });
    }
    for one in &pushed.failed {
        let later = if one.retried {
            "is tried again"
        } else {
            "waits for a change"
        };
        lines.push(format!("failed: {}: {} ({later})", one.key, one.error));
    }
    if pushed.conflicts > 0 {
        lines.push(format!(
            "{} fields were changed on both sides: helmdeck forge tracker status",
            pushed.conflicts
        ));
    }
    lines.extend(pushed.stopped.iter().map(|why| format!("stopped: {why}")));
    lines.join("\n")
}

fn operation_text(operation: &Operation) -> String {
    let kind = match operation.kind {
        OperationKind::Create => "create",
        OperationKind::Update => "update",
        OperationKind::Comment => "comment",
    };
    let fields: Vec<_> = operation.patch.keys().map(|field| field.name()).collect();
    let error = operation
        .last_error
        .as_ref()
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    let tries = if operation.attempts > 0 {
        format!(", {} tries", operation.attempts)
    } else {
        String::new()
    };
    format!(
        "{kind} {} {}{tries}{error}",
        operation.issue,
        fields.join(", ")
    )
    .trim_end()
    .to_owned()
}
