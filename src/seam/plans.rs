//! The plans of a project, to be looked over.

use std::path::{Path, PathBuf};

use helmdeck_project::readers::{Look, Name};
use serde::Serialize;

use crate::context::Which;
use crate::error::{StateFault, Warning};
use crate::ground::{Ground, HARNESS};
use crate::plan::{Meant, Task, file, plan_in};
use crate::state::{State, Store, TASKS, VAULT_STATE};
use crate::text::one_line;

/// How much of a plan is read for its status, in bytes.
const MOST_PLAN: usize = 64 << 10;
/// The largest progress that is read for its last line, in bytes.
const MOST_PROGRESS: usize = 4 << 20;
/// The longest last line, in characters.
const LONGEST: usize = 120;
/// The most entries of one folder.
const MOST_ENTRIES: usize = 100_000;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// What stands behind `Status:` in it.
    pub status: Option<String>,
    /// The last line of its progress, cut at 120 characters.
    pub last_progress: Option<String>,
    /// Whether the work tree is bound to it.
    pub active: bool,
}

/// The plans of a project: the one without a name first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plans {
    /// Where state is kept.
    pub store: Store,
    /// The plans.
    pub plans: Vec<Plan>,
    /// The plan the work tree is bound to, if the marker is sound.
    pub active: Option<String>,
    /// What cannot be read, and what is wrong with the marker.
    pub warnings: Vec<Warning>,
}

impl Plans {
    pub(crate) fn of(mut ground: Ground<'_>) -> Self {
        ground.warn_of_slug();
        let mut warnings = std::mem::take(&mut ground.warnings);
        // Who only looks the plans over need not name a task.
        let state = State::of(&ground, None).map(drop);
        if let Err(error) = &state
            && error.fault != StateFault::TaskNameRequired
        {
            warnings.push(Warning { code: error.fault.code(), message: error.to_string() });
        }
        let meant = state.and_then(|()| Meant::of(&ground, None)).unwrap_or(Meant::Nothing);
        let bound = meant.name();
        let place = ground.place();
        let store = if place.is_some() { Store::Vault } else { Store::Project };
        let folder = place.as_ref().map_or_else(|| ground.root.join(HARNESS), |place| place.path.join(VAULT_STATE));
        let mut plans = flat(&ground, &folder, bound, &mut warnings);
        if let Some(place) = &place {
            plans.extend(tasks(&ground, &place.path.join(TASKS), bound, &mut warnings));
        }
        Self { store, plans, active: bound.map(ToString::to_string), warnings }
    }
}

fn flat(ground: &Ground<'_>, folder: &Path, bound: Option<&Name>, warnings: &mut Vec<Warning>) -> Vec<Plan> {
    let entries = match ground.look.list(folder, MOST_ENTRIES) {
        Ok(entries) => entries.unwrap_or_default(),
        Err(error) => {
            warnings.push(Warning::unreadable(format!("{}: {error}", folder.display())));
            return Vec::new();
        }
    };
    let files = entries.iter().filter(|entry| !entry.folder);
    let mut names: Vec<Option<Name>> = files.filter_map(|entry| plan_in(entry.name.to_str()?)).collect();
    names.sort();
    let plan = |name: &Option<Name>| {
        let path = |which| folder.join(file(which, name.as_ref()));
        let active = bound.is_some() && name.as_ref() == bound;
        show(ground.look, name.as_ref().map(Name::as_str), path(Which::Plan), &path(Which::Progress), active)
    };
    names.iter().map(plan).collect()
}

fn tasks(ground: &Ground<'_>, folder: &Path, bound: Option<&Name>, warnings: &mut Vec<Warning>) -> Vec<Plan> {
    let tasks = Task::list(ground, folder).unwrap_or_else(|error| {
        warnings.push(Warning::unreadable(format!("{}: {error}", folder.display())));
        Vec::new()
    });
    let plan = |task: &Task| {
        let path = |which: Which| folder.join(&task.folder).join(format!("{which}.md"));
        let active = bound.is_some_and(|name| task.is(name));
        show(ground.look, Some(task.folder.as_str()), path(Which::Plan), &path(Which::Progress), active)
    };
    tasks.iter().map(plan).collect()
}

fn show(look: &dyn Look, name: Option<&str>, path: PathBuf, progress: &Path, active: bool) -> Plan {
    let read = |path: &Path, most| {
        let contents = look.read(path, most).ok().flatten()?;
        Some((String::from_utf8_lossy(&contents.bytes).into_owned(), contents.whole))
    };
    let status = read(&path, MOST_PLAN).and_then(|(text, _)| text.lines().find_map(status));
    // Of what is longer, the last line is not known.
    let progress = read(progress, MOST_PROGRESS).filter(|(_, whole)| *whole);
    let last_progress = progress.and_then(|(text, _)| {
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(one_line(last).chars().take(LONGEST).collect())
    });
    Plan { name: name.map(str::to_owned), path, status, last_progress, active }
}

/// Returns the status a line tells: `Status: done`, `**Status:** done`, `- status: done`.
fn status(line: &str) -> Option<String> {
    let marks = ['*', '-', '>', '#', ' ', '\t', '_'];
    let line = line.trim_start_matches(marks);
    let value = line.strip_prefix("Status").or_else(|| line.strip_prefix("status"))?;
    let value = value.trim_start_matches(['*', '_']).strip_prefix(':')?;
    let value: String = one_line(value.trim_matches(['*', '_', ' ', '\t', '\r'])).chars().take(LONGEST).collect();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_however_it_is_written() {
        for line in
            ["Status: in work", "**Status:** in work", "- **Status**: in work", "status: in work", "> Status: in work "]
        {
            assert_eq!(status(line).as_deref(), Some("in work"), "{line}");
        }
        for line in ["Statuses: x", "The Status: x", "Status:", "Status", "**Status:** "] {
            assert_eq!(status(line), None, "{line}");
        }
    }
}
