//! `helmdeck forge session`.

use helmdeck_forge::sessions::{End, Log, Sessions, Start};

use super::context::{Answer, CommandContext};
use super::tracker::{self, Moment};
use crate::args::forge::{EndArgs, ForgeSessionCommand, StartArgs};
use crate::exit::Exit;

pub(super) fn run(on: &CommandContext, command: &ForgeSessionCommand) -> Answer {
    use ForgeSessionCommand as C;
    match command {
        C::Start(arguments) => start(on, arguments),
        C::Log { text, next } => {
            let log = Log {
                text: text.clone(),
                next: next.clone(),
            };
            let logged = on.change(|project| Sessions::new(project).log(&log))?;
            on.print(&logged, || logged.line.clone())
        }
        C::End(arguments) => end(on, arguments),
    }
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
    tracker::at(on, &project, Moment::Start);
    let started = Sessions::new(&project).start(&start)?;
    on.print(&started, || started.prime.text.clone())?;
    CommandContext::exit(if started.paused.is_some() {
        Exit::Paused
    } else {
        Exit::Ok
    })
}

fn end(on: &CommandContext, arguments: &EndArgs) -> Answer {
    let end = End {
        learned: super::work::learned(&arguments.learned)?,
        next: arguments.next.clone(),
        leave_dirty: arguments.leave_dirty.clone(),
        key: arguments.key.clone(),
    };
    let project = on.open()?;
    tracker::note_end(on, &project, &end);
    let ended = Sessions::new(&project).end(&end)?;
    tracker::at(on, &project, Moment::End);
    on.print(&ended, || super::work::ended_text(&ended))
}
