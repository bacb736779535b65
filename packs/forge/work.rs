//! `forge.start`, `forge.verify`, `forge.commit`, `forge.done`: a day's work.

use helmdeck_forge::prime::{self, Primed};
use helmdeck_forge::sessions::{End, Sessions, Start as StartSession};
use helmdeck_forge::work::{
    Done as Finish, Finished, Short, ShortCommit, Start, Started, Verification, Verify, Work,
};
use helmdeck_forge::{Project, Result};
use serde::{Deserialize, Serialize};

use super::knowledge::Learn;
use super::place::Done;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    what: Option<String>,
    branch: Option<String>,
    #[serde(default)]
    no_branch: bool,
    #[serde(default)]
    join: bool,
    #[serde(default)]
    take_over: bool,
    #[serde(default)]
    bootstrap: bool,
    #[serde(default)]
    no_probe: bool,
    budget: Option<usize>,
}

/// What was started, with the briefing.
#[derive(Serialize)]
pub(super) struct Begun {
    #[serde(flatten)]
    started: Started,
    prime: Primed,
}

pub(super) fn start(project: &Project, input: Begin) -> Done<Begun> {
    let Begin {
        what,
        branch,
        no_branch,
        join,
        take_over,
        bootstrap,
        no_probe,
        budget,
    } = input;
    let session = StartSession {
        join,
        take_over,
        bootstrap,
        no_probe,
        budget,
    };
    let started = Work::new(project).start(&Start {
        what,
        branch,
        no_branch,
        session,
    })?;
    let prime = prime::prime(&project.within(&started.session), budget)?;
    Ok(Begun { started, prime })
}

pub(super) fn verify(project: &Project, input: Verify) -> Done<Verification> {
    Work::new(project).verify(&input)
}

pub(super) fn commit(project: &Project, input: Short) -> Done<ShortCommit> {
    Work::new(project).commit(&input)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ending {
    message: Option<String>,
    anyway: Option<String>,
    #[serde(default)]
    learned: Vec<Learn>,
    next: Option<String>,
    leave: Option<String>,
}

pub(super) fn done(project: &Project, input: Ending) -> Done<Finished> {
    let learned = input
        .learned
        .into_iter()
        .map(|learn| learn.learning(project))
        .collect::<Result<_>>()?;
    if input.leave.is_some() {
        let end = End {
            learned,
            next: input.next,
            leave_dirty: input.leave,
            key: None,
        };
        let session = Sessions::new(project).end(&end)?;
        return Ok(Finished {
            committed: None,
            checkpoint: None,
            issue: None,
            session,
            warnings: Vec::new(),
        });
    }
    let finish = Finish {
        message: input.message,
        anyway: input.anyway,
        learned,
        next: input.next,
        ..Finish::default()
    };
    Work::new(project).done(&finish)
}
