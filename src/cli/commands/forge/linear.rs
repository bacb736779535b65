//! `helmdeck forge linear`: the sync with an issue tracker.

use std::time::Duration;

use helmdeck_forge::checkpoints::Checkpoints;
use helmdeck_forge::config::LinearMode;
use helmdeck_forge::issues::NewComment;
use helmdeck_forge::knowledge::What;
use helmdeck_forge::sessions::{End, Sessions};
use helmdeck_forge::{Error, Project};
use helmdeck_forge_documents::tracking::{Field, Operation, OperationKind, Outbox};
use helmdeck_trackers::Tracker;
use helmdeck_trackers::mapping::{MappedName, Mapping, MappingTable};
use helmdeck_trackers::sync::{
    ChangedIssue, Choice, Pull, Pulled, Push, Pushed, Status, Sync, discard, resolve, retry, status,
};
use serde_json::json;

use super::context::{Answer, CommandContext, Stop};
use crate::args::forge::{LinearCommand, ResolveArgs};
use crate::exit::Exit;
use crate::output::columns;
use crate::runtime::block_on;

/// Time limit of a sync at the start or end of a session.
const SHORT: Duration = Duration::from_secs(2);
/// Maximum length of a value in a line of text, in characters.
const SHOWN: usize = 60;

pub(super) fn run(on: &CommandContext, command: &LinearCommand) -> Answer {
    use LinearCommand as C;
    match command {
        C::Status => {
            let project = on.look()?;
            let status = status(&project)?;
            on.print(&json!({"mode": project.config().linear.mode, "sync": status}), || status_text(&project, &status))
        }
        C::Pull { full, dry_run } => {
            let pull = Pull { full: *full, dry_run: *dry_run, only: None };
            let pulled = with(on, async |sync: Sync<'_>| sync.pull(&pull).await)?;
            on.print(&pulled, || pulled_text(&pulled))?;
            CommandContext::exit(if pulled.conflicts == 0 { Exit::Ok } else { Exit::Failed })
        }
        C::Push { dry_run } => {
            let pushed = with(on, async |sync: Sync<'_>| sync.push(&Push { dry_run: *dry_run }).await)?;
            on.print(&pushed, || pushed_text(&pushed))?;
            CommandContext::exit(exit_of(&pushed))
        }
        C::Sync { dry_run } => {
            let (pulled, pushed) = with(on, async |sync: Sync<'_>| sync.sync(*dry_run).await)?;
            on.print(&json!({"pulled": pulled, "pushed": pushed}), || {
                format!("{}\n{}", pulled_text(&pulled), pushed_text(&pushed))
            })?;
            CommandContext::exit(exit_of(&pushed))
        }
        C::Resolve(arguments) => settle(on, arguments),
        C::Outbox => {
            let outbox = Outbox::read(on.look()?.files())?;
            on.print(&json!({"waiting": outbox.waiting, "damaged": outbox.damaged.len()}), || outbox_text(&outbox))
        }
        C::Retry { id } => {
            let retried = on.change(|project| retry(project, id.as_deref()))?;
            on.print(&json!({"retried": retried}), || format!("{retried} changes are tried again at the next push"))
        }
        C::Drop { id, why } => {
            if why.trim().is_empty() {
                return Err(Error::usage("say why: --why TEXT").into());
            }
            let dropped = on.change(|project| discard(project, id, why))?;
            on.print(&dropped, || format!("dropped: {}", operation_text(&dropped)))
        }
        C::Map => {
            let project = on.look()?;
            let tracker = tracker(on, &project)?;
            let directory = block_on(async { Ok(tracker.identify().await) })?.map_err(Error::from)?;
            let table = Mapping::new(&project.config().linear, &directory, tracker.fields()).table();
            on.print(&table, || map_text(&table))
        }
    }
}

fn tracker(on: &CommandContext, project: &Project) -> Result<Box<dyn Tracker>, Stop> {
    Ok(crate::trackers::open(project, on.config.as_deref(), &on.process, on.output)?)
}

/// Runs a sync.
fn with<T>(on: &CommandContext, work: impl AsyncFnOnce(Sync<'_>) -> helmdeck_forge::Result<T>) -> Result<T, Stop> {
    let project = on.open()?;
    let tracker = tracker(on, &project)?;
    Ok(block_on(async { Ok(work(Sync::new(&project, &*tracker)).await) })??)
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
    let word = if moment == Moment::Start { "start" } else { "end" };
    if settings.mode != LinearMode::Live || !settings.sync.split(',').any(|one| one.trim() == word) {
        return;
    }
    let tried = tracker(on, project).and_then(|tracker| {
        let sync = Sync::new(project, &*tracker);
        let done = block_on(async { Ok(tokio::time::timeout(SHORT, sync.sync(false)).await) })?;
        match done {
            Ok(done) => Ok(Some(done?)),
            Err(_) => Ok(None),
        }
    });
    let note = match tried {
        Ok(Some((pulled, pushed))) => {
            let changed = pulled.added.len() + pulled.changed.len() + pulled.closed.len();
            let mut note = format!("issues: {changed} taken over, {} delivered", pushed.delivered.len());
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
        let Some(key) = shown.and_then(|shown| shown.focus.linear_issue) else { return Ok(()) };
        let mut lines = vec!["A session ended.".to_owned()];
        lines.extend(end.next.iter().map(|next| format!("Next: {next}")));
        lines.extend(end.learned.iter().filter_map(|learning| match &learning.what {
            What::Successful { context, approach } => Some(format!("Learned: {context}: {approach}")),
            _ => None,
        }));
        if let Ok(Some(checkpoint)) = Checkpoints::new(project).newest_valid() {
            lines.push(format!("Last checkpoint: {}", checkpoint.name));
        }
        let comment = NewComment { text: lines.join("\n"), by: None };
        project.issues().comment(&key, &comment).map(drop)
    };
    if let Err(error) = add() {
        on.output.note(&format!("no comment was added to the issue: {}", error.message));
    }
}

fn settle(on: &CommandContext, arguments: &ResolveArgs) -> Answer {
    let field = Field::of(&arguments.field).ok_or_else(|| {
        let known: Vec<_> = Field::ALL.iter().map(|field| field.name()).collect();
        Error::usage(format!("{:?} is no field", arguments.field)).hint(format!("the fields are {}", known.join(", ")))
    })?;
    let choice = match (&arguments.choice.value, arguments.choice.theirs) {
        (Some(value), _) => Choice::Value(value.clone()),
        (None, true) => Choice::Theirs,
        (None, false) => Choice::Ours,
    };
    let settled = on.change(|project| resolve(project, &arguments.key, field, &choice))?;
    on.print(&settled, || {
        let next = if choice == Choice::Theirs { "" } else { "; `helmdeck forge tracker push` delivers it" };
        format!("{} {field}: settled{next}", settled.key)
    })
}

fn exit_of(pushed: &Pushed) -> Exit {
    let fine = pushed.failed.is_empty() && pushed.conflicts == 0 && pushed.stopped.is_none();
    if fine { Exit::Ok } else { Exit::Failed }
}

fn shown(value: Option<&helmdeck_forge_documents::tracking::Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), |value| format!("{:?}", value.to_string()));
    helmdeck_core::text::truncate(&text, SHOWN).into_owned()
}

fn status_text(project: &Project, status: &Status) -> String {
    let mode = match project.config().linear.mode {
        LinearMode::Off => "off",
        LinearMode::Offline => "offline",
        LinearMode::Live => "live",
    };
    let tracker = if status.tracker.is_empty() { String::new() } else { format!(", {}", status.tracker) };
    let mut lines = vec![format!("mode: {mode}{tracker}")];
    let pulled = status.pulled_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
    lines.push(format!("pulled: {pulled}"));
    if let Some(failure) = &status.failure {
        lines.push(format!("failing since {}: {}", failure.since, failure.error));
    }
    lines.push(format!("issues: {} tracked, {} local", status.tracked, status.local.len()));
    lines.push(format!("outbox: {} waiting, {} failed", status.waiting, status.failed.len()));
    lines.extend(status.failed.iter().map(|one| format!("  {}", operation_text(one))));
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
        let fields = change
            .fields
            .iter()
            .map(|(field, values)| format!("{field} {} -> {}", shown(values.from.as_ref()), shown(values.to.as_ref())));
        format!("  {}: {}", change.key, fields.collect::<Vec<_>>().join(", "))
    })
}

fn pulled_text(pulled: &Pulled) -> String {
    let word = if pulled.dry_run { "would take over" } else { "took over" };
    let mut lines = vec![format!(
        "{word} {} new and {} changed issues of {} read",
        pulled.added.len(),
        pulled.changed.len(),
        pulled.read
    )];
    lines.extend(pulled.added.iter().map(|key| format!("  {key}: new")));
    lines.extend(change_lines(&pulled.changed));
    lines.extend(pulled.renamed.iter().map(|(from, to)| format!("  {from} is {to} now")));
    lines.extend(pulled.closed.iter().map(|key| format!("  {key}: done, in the history")));
    lines.extend(pulled.reopened.iter().map(|key| format!("  {key}: opened again")));
    if pulled.comments > 0 {
        lines.push(format!("  {}", helmdeck_core::text::count(pulled.comments, "comment")));
    }
    if pulled.conflicts > 0 {
        lines.push(format!("{} fields were changed on both sides: helmdeck forge tracker status", pulled.conflicts));
    }
    lines.extend(pulled.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

fn pushed_text(pushed: &Pushed) -> String {
    let word = if pushed.dry_run { "would deliver" } else { "delivered" };
    let mut lines = vec![format!("{word} {}, {} wait", pushed.delivered.len(), pushed.waiting)];
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
        let later = if one.retried { "is tried again" } else { "waits for a change" };
        lines.push(format!("failed: {}: {} ({later})", one.key, one.error));
    }
    if pushed.conflicts > 0 {
        lines.push(format!("{} fields were changed on both sides: helmdeck forge tracker status", pushed.conflicts));
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
    let error = operation.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let tries = if operation.attempts > 0 { format!(", {} tries", operation.attempts) } else { String::new() };
    format!("{} {kind} {} {}{tries}{error}", operation.op_id, operation.issue, fields.join(", ")).trim_end().to_owned()
}

fn outbox_text(outbox: &Outbox) -> String {
    if outbox.waiting.is_empty() && outbox.damaged.is_empty() {
        return "nothing waits".to_owned();
    }
    let mut lines: Vec<String> = outbox.waiting.iter().map(operation_text).collect();
    if !outbox.damaged.is_empty() {
        lines.push(format!("{} lines cannot be read", outbox.damaged.len()));
    }
    lines.join("\n")
}

fn map_text(table: &MappingTable) -> String {
    let row = |name: &MappedName| {
        let theirs = match (&name.theirs, &name.problem) {
            (Some(theirs), _) => theirs.clone(),
            (None, problem) => format!("? {}", problem.as_deref().unwrap_or_default()),
        };
        vec![format!("  {}", name.ours), theirs]
    };
    let mut text = format!("team {}\n", table.team);
    for (heading, names) in [
        ("states", &table.states),
        ("other states of the team, shown as", &table.other_states),
        ("types", &table.types),
        ("people", &table.users),
    ] {
        if !names.is_empty() {
            text.push_str(&format!("{heading}\n{}", columns(&names.iter().map(row).collect::<Vec<_>>())));
        }
    }
    text
}
