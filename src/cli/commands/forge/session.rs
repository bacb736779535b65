//! `helmdeck forge session`.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use helmdeck_forge::sessions::{End, How, Log, Session, Sessions, Start};
use serde_json::json;

use super::context::{Answer, CommandContext};
use super::linear::{self, Moment};
use crate::args::forge::{EndArgs, ForgeSessionCommand, StartArgs};
use crate::exit::{Exit, Failure};
use crate::runtime::block_on;
use crate::signals::Stop;

pub(super) fn run(on: &CommandContext, command: &ForgeSessionCommand) -> Answer {
    use ForgeSessionCommand as C;
    match command {
        C::Start(arguments) => start(on, arguments),
        C::Log { text, next } => {
            let log = Log { text: text.clone(), next: next.clone() };
            let logged = on.change(|project| Sessions::new(project).log(&log))?;
            on.print(&logged, || logged.line.clone())
        }
        C::Learn(arguments) => {
            let learning = super::memory::learning(arguments)?;
            let added = on.change(|project| Sessions::new(project).learn(learning))?;
            on.show(&added)
        }
        C::End(arguments) => end(on, arguments),
        C::Run { command } => in_session(on, command),
        C::Status => {
            let project = on.look()?;
            let living = Sessions::new(&project).seen()?;
            let advice = Sessions::new(&project).advice()?;
            let data = json!({
                "sessions": living.sessions,
                "checkpoint_advised": advice,
            });
            on.print(&data, || {
                let mut lines: Vec<String> = living.sessions.iter().flat_map(session_lines).collect();
                if lines.is_empty() {
                    lines.push("no session".to_owned());
                }
                if advice.is_some() {
                    lines.push("a checkpoint is due".to_owned());
                }
                lines.join("\n")
            })
        }
    }
}

fn session_lines(session: &Session) -> Vec<String> {
    let state = serde_json::to_value(session.state).ok();
    let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or("unknown");
    let (started, seen) = (session.started_at.seconds(), session.seen_at.seconds());
    let mut lines = vec![format!("session {} of {}: {state}", session.id, session.agent)];
    lines.push(format!("  since {started}, last command at {seen}"));
    lines.extend(session.branch.iter().map(|branch| format!("  began on {branch}")));
    lines.extend(session.holder.iter().map(|holder| format!("  process {} works for it", holder.pid)));
    lines.extend(session.abandoned.iter().map(|why| format!("  abandoned: {why}")));
    lines
}

fn start(on: &CommandContext, arguments: &StartArgs) -> Answer {
    let start = Start {
        join: arguments.join,
        take_over: arguments.take_over,
        bootstrap: arguments.bootstrap,
        no_probe: arguments.no_probe,
        budget: arguments.budget,
    };
    let project = on.open()?;
    linear::at(on, &project, Moment::Start);
    let started = Sessions::new(&project).start(&start)?;
    on.print(&started, || started.prime.text.clone())?;
    CommandContext::exit(if started.paused.is_some() { Exit::Paused } else { Exit::Ok })
}

fn end(on: &CommandContext, arguments: &EndArgs) -> Answer {
    let end = End {
        learned: super::work::learned(&arguments.learned)?,
        next: arguments.next.clone(),
        leave_dirty: arguments.leave_dirty.clone(),
        key: arguments.key.clone(),
    };
    let project = on.open()?;
    linear::note_end(on, &project, &end);
    let ended = Sessions::new(&project).end(&end)?;
    linear::at(on, &project, Moment::End);
    on.print(&ended, || super::work::ended_text(&ended))
}

/// Runs a command for the session. A signal asks the command to end, and ends the session.
fn in_session(on: &CommandContext, command: &[String]) -> Answer {
    let project = on.open()?;
    let stop = Arc::new(AtomicBool::new(false));
    // With --json, stdout has exactly one object.
    let how = How { aside: on.is_json(), apart: !std::io::stdin().is_terminal() };
    let (asked, command) = (stop.clone(), command.to_vec());
    let outcome = block_on(async move {
        let mut signals = Stop::catch()?;
        let mut work = tokio::task::spawn_blocking(move || Sessions::new(&project).run(&command, &stop, how));
        let outcome = tokio::select! {
            outcome = &mut work => outcome,
            () = signals.wait() => {
                asked.store(true, Ordering::SeqCst);
                work.await
            }
        };
        outcome.map_err(Failure::internal)
    })??;
    on.print(&outcome, String::new)?;
    if outcome.stopped {
        return Err(Failure::silent(Exit::Failed).into());
    }
    // As in a shell: a command ended by a signal has exit code 128 plus its number.
    let code = outcome.exit.or(outcome.signal.map(|signal| 128 + signal)).unwrap_or(1);
    match u8::try_from(code) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::of_child(code).into()),
        Err(_) => CommandContext::exit(Exit::Failed),
    }
}
