//! `forge.focus_show`, `forge.focus_set`: what is being done now.

use helmdeck_project::error::Error;
use helmdeck_project::focus::{Focused, Set, SetFocus, Shown};
use helmdeck_project::sessions::Session;
use helmdeck_project::{Project, Result};
use serde::Serialize;

use super::place::{Done, Nothing, touch};

/// The focus of the session in which the work is done; all members are there without one, too.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Seen {
    Focus(Box<Shown>),
    Nothing { focus: Option<()>, etag: Option<()>, read_only: bool, warnings: Vec<String> },
}

/// Returns the focus that is meant, and the session whose it is.
fn focused(project: &Project) -> Result<(Focused<'_>, Option<Session>)> {
    let session = project.sessions().current()?;
    match (&session, &project.world().session) {
        (Some(session), _) if !session.primary => Ok((project.focus().of(&session.id)?, Some(session.clone()))),
        (None, Some(named)) => Err(Error::not_found(format!("no session {named} lives in this work tree"))),
        _ => Ok((project.focus(), session)),
    }
}

pub(super) fn show(project: &Project, _: Nothing) -> Done<Seen> {
    let shown = focused(project)?.0.show()?;
    Ok(match shown {
        Some(shown) => Seen::Focus(Box::new(shown)),
        None => Seen::Nothing { focus: None, etag: None, read_only: false, warnings: Vec::new() },
    })
}

pub(super) fn set(project: &Project, input: SetFocus) -> Done<Set> {
    let (focus, session) = focused(project)?;
    let set = focus.set(&SetFocus { session: session.map(|session| session.id), ..input })?;
    touch(project);
    Ok(set)
}
