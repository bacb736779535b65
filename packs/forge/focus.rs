//! `forge.focus_show`, `forge.focus_set`: the current task.

use helmdeck_forge::Project;
use helmdeck_forge::focus::{Set, SetFocus, Shown};
use helmdeck_forge::sessions::Sessions;
use serde::Serialize;

use super::place::{Done, Nothing};

/// The focus of the work session; without one all members are present, too.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Seen {
    Focus(Box<Shown>),
    Nothing { focus: Option<()>, etag: Option<()>, read_only: bool, warnings: Vec<String> },
}

pub(super) fn show(project: &Project, _: Nothing) -> Done<Seen> {
    let shown = Sessions::new(project).focus_now()?.show()?;
    Ok(match shown {
        Some(shown) => Seen::Focus(Box::new(shown)),
        None => Seen::Nothing { focus: None, etag: None, read_only: false, warnings: Vec::new() },
    })
}

pub(super) fn set(project: &Project, input: SetFocus) -> Done<Set> {
    Sessions::new(project).set_focus(&input)
}
