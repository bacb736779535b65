//! `helmdeck forge hook`, `checkpoint` and `recover`.

use std::ffi::OsString;
use std::path::Path;

use helmdeck_forge::agents::Event;
use helmdeck_forge::checkpoints::{Checkpoints, Create, Made, State};
use helmdeck_forge::git::message::Severity;
use helmdeck_forge::git::{Commits, Hook, Origin};
use helmdeck_forge::recovery::{Ack, Applied, Apply, Assess, By, Class, Recovery};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::work::Work;
use helmdeck_forge::{Error, Project};

use super::agents;
use super::context::{Answer, CommandContext, Stop};
use crate::args::forge::{CheckpointCommand, HookCommand, HookEvent, HookKind, RecoverCommand};
use crate::exit::Exit;

/// The longest message of a commit that is read, in bytes.
const MAX_MESSAGE: u64 = 1 << 20;

/// Returns who commits, and from where.
fn origin(project: &Project) -> helmdeck_forge::Result<Origin> {
    let session = Sessions::new(project).required()?;
    Commits::new(project).origin(&session.id, &session.uuid)
}

const fn which(hook: HookKind) -> Hook {
    match hook {
        HookKind::CommitMsg => Hook::CommitMsg,
        HookKind::PrepareCommitMsg => Hook::PrepareCommitMsg,
        HookKind::PreCommit => Hook::PreCommit,
    }
}

pub(super) fn hook(on: &CommandContext, command: &HookCommand) -> Answer {
    match command {
        HookCommand::Install { hook, remove } => {
            let done = on.change(|project| match remove {
                false => Commits::new(project).install_hook(which(*hook), "helmdeck"),
                true => Commits::new(project).remove_hook(which(*hook)),
            })?;
            on.show(&done)
        }
        HookCommand::Run { event, arguments } => match event {
            HookEvent::CommitMsg => commit_msg(on, first(arguments)?),
            HookEvent::PrepareCommitMsg => {
                let source = arguments.get(1).map(|source| source.to_string_lossy());
                prepare_commit_msg(on, first(arguments)?, source.as_deref())
            }
            HookEvent::PreCommit => pre_commit(on, arguments.first()),
            HookEvent::AgentStart => agents::hook(on, Event::Start, arguments.first()),
            HookEvent::AgentCompact => agents::hook(on, Event::Compact, arguments.first()),
            HookEvent::AgentStop => agents::hook(on, Event::Stop, arguments.first()),
        },
    }
}

/// Returns the file of the message.
fn first(arguments: &[OsString]) -> Result<&Path, Error> {
    arguments
        .first()
        .map(Path::new)
        .ok_or_else(|| Error::usage("the file with the message is missing"))
}

fn commit_msg(on: &CommandContext, file: &Path) -> Answer {
    // A hook never blocks a repository without a memory.
    let Some(project) = on.find()? else {
        return on.done();
    };
    let findings = Commits::new(&project).check_message(&String::from_utf8_lossy(&message(file)?));
    on.show(&findings)?;
    let broken = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    CommandContext::exit(if broken { Exit::Failed } else { Exit::Ok })
}

fn pre_commit(on: &CommandContext, index: Option<&OsString>) -> Answer {
    let Some(project) = on.find()? else {
        return on.done();
    };
    let index = index
        .map(|index| index.to_string_lossy())
        .filter(|index| !index.is_empty());
    // The commit is made in any case; the memory then waits for the next one.
    if let Err(error) = Commits::new(&project).add_memory(index.as_deref()) {
        on.output
            .note(&format!("the memory is not in this commit: {error}"));
    }
    on.done()
}

fn prepare_commit_msg(on: &CommandContext, file: &Path, source: Option<&str>) -> Answer {
    let Some(project) = on.find()? else {
        return on.done();
    };
    let Ok(origin) = origin(&project) else {
        return on.done();
    };
    let key = Work::new(&project).key()?;
    // A message that is too long or not text stays unchanged: a partial one must not replace it.
    let Ok(text) = String::from_utf8(message(file)?) else {
        return on.done();
    };
    if text.len() as u64 > MAX_MESSAGE {
        return on.done();
    }
    if let Some(text) =
        Commits::new(&project).prepare_message(&text, source, key.as_deref(), &origin)?
    {
        std::fs::write(file, text).map_err(|error| Error::io("cannot write", file, &error))?;
    }
    on.done()
}

/// Reads a message; of one over the limit, one byte more than the limit.
fn message(file: &Path) -> helmdeck_forge::Result<Vec<u8>> {
    use std::io::Read as _;

    let io = |error| super::context::unreadable(file, &error);
    let mut text = Vec::new();
    std::fs::File::open(file)
        .map_err(io)?
        .take(MAX_MESSAGE + 1)
        .read_to_end(&mut text)
        .map_err(io)?;
    Ok(text)
}

/// Says what a checkpoint holds.
fn made_text(made: &Made) -> String {
    let mut lines = vec![format!(
        "{} at {}",
        made.tag,
        made.commit.get(..12).unwrap_or(&made.commit)
    )];
    let checks = made.manifest.checks.iter();
    lines.extend(checks.map(|check| format!("  {} ms  {}", check.ms, check.cmd.escape_debug())));
    let (passing, total) = (
        made.manifest.features_passing.len(),
        made.manifest.features_total,
    );
    lines.extend(total.map(|total| format!("  features: {passing} of {total} pass")));
    let closed = &made.manifest.linear_issues_closed;
    if !closed.is_empty() {
        lines.push(format!("  closes {}", closed.join(", ")));
    }
    if !made.can_rollback_to {
        lines.push("  it cannot be gone back to, for no check ran".to_owned());
    }
    lines.push(format!(
        "  pushed: {}",
        if made.pushed { "yes" } else { "no" }
    ));
    lines.extend(
        made.warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

pub(super) fn checkpoint(on: &CommandContext, command: &CheckpointCommand) -> Answer {
    use CheckpointCommand as C;
    match command {
        C::Create {
            key,
            message,
            verify,
            closes,
            anyway,
            push,
            remote,
        } => {
            let create = Create {
                key: key.clone(),
                message: message.clone(),
                verify: verify.clone(),
                closes: closes.clone(),
                anyway: anyway.clone(),
                push: *push,
                remote: remote.clone(),
            };
            let made = match on.change(|project| Checkpoints::new(project).create(&create)) {
                Err(Stop::Project(error)) if error.code == "E_NO_CHECKS" && on.is_interactive() => {
                    let question = format!(
                        "{}.\nWhich command does? [nothing: no checkpoint]",
                        error.message
                    );
                    let Some(command) = on.output.line(&question)? else {
                        return Err(Stop::Project(error));
                    };
                    helmdeck_forge::init::set_check(&on.open()?, &command)?;
                    on.change(|project| Checkpoints::new(project).create(&create))?
                }
                made => made?,
            };
            on.print(&made, || made_text(&made))
        }
        C::List => {
            let all = Checkpoints::new(&on.look()?).list()?;
            on.print(&all, || {
                let lines = all.iter().map(|checkpoint| {
                    let commit = checkpoint.commit.as_deref().unwrap_or("-");
                    let usable = if checkpoint.can_rollback_to {
                        "usable"
                    } else {
                        "not usable"
                    };
                    let why: String = checkpoint
                        .notes
                        .iter()
                        .map(|note| format!("; {note}"))
                        .collect();
                    let state = match checkpoint.state {
                        State::Ok => String::new(),
                        state => format!(" ({})", state.as_str()),
                    };
                    format!(
                        "{}  {}  {usable}{state}{why}",
                        checkpoint.name,
                        commit.get(..12).unwrap_or(commit)
                    )
                });
                lines.collect::<Vec<_>>().join("\n")
            })
        }
        C::Show { name } => on.show(&Checkpoints::new(&on.open()?).show(name)?),
    }
}

/// Says what a recovery did.
fn applied_text(applied: &Applied) -> String {
    let Some(rollback) = &applied.rollback else {
        return applied.next.clone();
    };
    let cut = |commit: &str| commit.get(..12).unwrap_or(commit).to_owned();
    let branch = rollback.branch.as_deref().unwrap_or("a detached HEAD");
    format!(
        "rolled back to {}: {} on {branch}\n  because: {}\n  kept: {} was {}, and is in {} with what was not committed\n{}",
        rollback.checkpoint,
        cut(&rollback.made),
        rollback.why,
        branch,
        cut(&rollback.before),
        rollback.rescue,
        applied.next
    )
}

pub(super) fn recover(on: &CommandContext, command: &RecoverCommand) -> Answer {
    match command {
        RecoverCommand::Assess { no_verify } => {
            let report = Recovery::new(&on.look()?).assess(Assess { verify: !no_verify })?;
            on.print(&report, || report.to_string())?;
            CommandContext::exit(if report.class == Class::Unknown {
                Exit::Unknown
            } else {
                Exit::Ok
            })
        }
        RecoverCommand::Apply { checkpoint, why } => {
            let apply = Apply {
                checkpoint: checkpoint.clone(),
                why: why.clone(),
            };
            let applied = Recovery::new(&on.open()?).apply(&apply)?;
            on.print(&applied, || applied_text(&applied))
        }
        RecoverCommand::Ack { reason, token } => {
            let project = on.open()?;
            let by = match token {
                Some(token) => By::Token(token.clone()),
                None if on.is_interactive() => {
                    // A pause can be ended even if it cannot be read.
                    let paused = Recovery::new(&project).paused().ok().flatten();
                    let why = paused.map_or_else(
                        || "a reason that cannot be read".to_owned(),
                        |paused| paused.reason,
                    );
                    on.ask(
                        &format!("end the pause, which began for this: {why}"),
                        "the pause goes on",
                    )?;
                    By::Terminal
                }
                None => {
                    return Err(Error::refused(
                        "a pause is ended by a person: at a terminal, or with the token they were shown",
                    )
                    .into());
                }
            };
            on.show(&Recovery::new(&project).ack(&Ack {
                reason: reason.clone(),
                by,
            })?)
        }
    }
}
