//! The plans of a project, to be looked over.

use std::path::{Path, PathBuf};

use crate::readers::{Look, Name};
use serde::Serialize;

use crate::context::Which;
use crate::error::{StateFault, Warning};
use crate::plan::{Meant, Task, file, plan_in};
use crate::resolved::Resolved;
use crate::state::{PlanFiles, Store, TASKS, VAULT_STATE};
use crate::text::one_line;

/// Maximum length read of a plan for its status, in bytes.
const MOST_PLAN: usize = 64 << 10;
/// The largest progress that is read for its last line, in bytes.
const MOST_PROGRESS: usize = 4 << 20;
/// The longest last line, in characters.
const LONGEST: usize = 120;
/// Maximum number of entries of one folder.
const MOST_ENTRIES: usize = 100_000;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Absolute path.
    #[serde(serialize_with = "crate::text::lossy")]
    pub path: PathBuf,
    /// Text after `Status:` in it.
    pub status: Option<String>,
    /// The last line of its progress, cut at 120 characters.
    pub last_progress: Option<String>,
    /// Whether the work tree is bound to it.
    pub active: bool,
}

/// The plans of a project: the one without a name first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plans {
    /// Where state is stored.
    pub store: Store,
    /// The plans.
    pub plans: Vec<Plan>,
    /// The plan the work tree is bound to, if the marker is sound.
    pub active: Option<String>,
    /// Warnings about what cannot be read, and about the marker.
    pub warnings: Vec<Warning>,
}

impl Plans {
    pub(crate) fn of(mut resolved: Resolved<'_>) -> Self {
        resolved.warn_of_slug();
        let mut warnings = std::mem::take(&mut resolved.warnings);
        // Who only looks the plans over need not name a task.
        let state = PlanFiles::of(&resolved, None).map(drop);
        if let Err(error) = &state {
            let told = warnings
                .iter()
                .any(|warning| warning.message == error.to_string());
            if error.fault != StateFault::TaskNameRequired && !told {
                warnings.push(Warning {
                    code: error.fault.code(),
                    message: error.to_string(),
                });
            }
        }
        let meant = state
            .and_then(|()| Meant::of(&resolved, None))
            .unwrap_or(Meant::Nothing);
        let bound = meant.name();
        let place = resolved.place();
        let store = if place.is_some() {
            Store::Vault
        } else {
            Store::Project
        };
        let mut plans = Vec::new();
        if let Some((place, (vault, _))) = place.as_ref().zip(resolved.vault.as_ref()) {
            let mut shelf = Shelf {
                look: resolved.look,
                root: vault.root(),
                warnings: &mut warnings,
            };
            plans.extend(shelf.flat(&place.path.join(VAULT_STATE), bound));
            plans.extend(shelf.tasks(&resolved, &place.path.join(TASKS), bound));
        } else if let Some(folder) = resolved.own_harness().filter(|folder| folder.is_absolute()) {
            plans.extend(
                Shelf {
                    look: resolved.look,
                    root: &folder,
                    warnings: &mut warnings,
                }
                .flat(&folder, bound),
            );
        }
        Self {
            store,
            plans,
            active: bound.map(ToString::to_string),
            warnings,
        }
    }
}

/// Folder of plans.
///
/// A file that a link leads outside of its root is not read: lines of a plan are shown.
struct Shelf<'a> {
    look: &'a dyn Look,
    root: &'a Path,
    warnings: &'a mut Vec<Warning>,
}

impl Shelf<'_> {
    fn flat(&mut self, folder: &Path, bound: Option<&Name>) -> Vec<Plan> {
        if !self.is_within(folder) {
            return Vec::new();
        }
        let entries = match self.look.list(folder, MOST_ENTRIES) {
            Ok(entries) => entries.unwrap_or_default(),
            Err(error) => {
                self.unreadable(folder, error);
                return Vec::new();
            }
        };
        let files = entries.iter().filter(|entry| !entry.folder);
        let mut names: Vec<Option<Name>> = files
            .filter_map(|entry| plan_in(entry.name.to_str()?))
            .collect();
        names.sort();
        let plan = |name: &Option<Name>| {
            let path = |which| folder.join(file(which, name.as_ref()));
            let active = bound.is_some() && name.as_ref() == bound;
            self.show(
                name.as_ref().map(Name::as_str),
                path(Which::Plan),
                &path(Which::Progress),
                active,
            )
        };
        names.iter().map(plan).collect()
    }

    fn tasks(&mut self, resolved: &Resolved<'_>, folder: &Path, bound: Option<&Name>) -> Vec<Plan> {
        if !self.is_within(folder) {
            return Vec::new();
        }
        let tasks = Task::list(resolved, folder).unwrap_or_else(|error| {
            self.unreadable(folder, error);
            Vec::new()
        });
        let plan = |task: &Task| {
            let path = |which: Which| folder.join(&task.folder).join(format!("{which}.md"));
            let active = bound.is_some_and(|name| task.is(name));
            self.show(
                Some(task.folder.as_str()),
                path(Which::Plan),
                &path(Which::Progress),
                active,
            )
        };
        tasks.iter().map(plan).collect()
    }

    fn show(&mut self, name: Option<&str>, path: PathBuf, progress: &Path, active: bool) -> Plan {
        let status = self
            .read(&path, MOST_PLAN)
            .and_then(|(text, _)| text.lines().find_map(status));
        // Of what is longer, the last line is not known.
        let progress = self
            .read(progress, MOST_PROGRESS)
            .filter(|(_, whole)| *whole);
        let last_progress = progress.and_then(|(text, _)| {
            let last = text
                .lines()
                .rev()
                .map(str::trim)
                .find(|line| !line.is_empty())?;
            Some(one_line(last).chars().take(LONGEST).collect())
        });
        Plan {
            name: name.map(str::to_owned),
            path,
            status,
            last_progress,
            active,
        }
    }

    /// Reads the start of a file, and returns whether that is all of it.
    fn read(&mut self, path: &Path, most: usize) -> Option<(String, bool)> {
        match self.look.read_within(self.root, path, most) {
            Ok(contents) => contents.map(|read| {
                (
                    String::from_utf8_lossy(&read.bytes).into_owned(),
                    read.whole,
                )
            }),
            Err(error) => {
                self.unreadable(path, error);
                None
            }
        }
    }

    fn is_within(&mut self, folder: &Path) -> bool {
        let out = self.look.leads_out(self.root, folder);
        if out {
            self.unreadable(
                folder,
                format!("a link leads out of {}", self.root.display()),
            );
        }
        !out
    }

    fn unreadable(&mut self, path: &Path, why: impl std::fmt::Display) {
        self.warnings
            .push(Warning::unreadable(format!("{}: {why}", path.display())));
    }
}

/// Returns the status a line tells: `Status: done`, `**Status:** done`, `- status: done`.
fn status(line: &str) -> Option<String> {
    let marks = ['*', '-', '>', '#', ' ', '\t', '_'];
    let line = line.trim_start_matches(marks);
    let value = line
        .strip_prefix("Status")
        .or_else(|| line.strip_prefix("status"))?;
    let value = value.trim_start_matches(['*', '_']).strip_prefix(':')?;
    let value: String = one_line(value.trim_matches(['*', '_', ' ', '\t', '\r']))
        .chars()
        .take(LONGEST)
        .collect();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_however_it_is_written() {
        for line in [
            "Status: in work",
            "**Status:** in work",
            "- **Status**: in work",
            "status: in work",
            "> Status: in work ",
        ] {
            assert_eq!(status(line).as_deref(), Some("in work"), "{line}");
        }
        for line in [
            "Statuses: x",
            "The Status: x",
            "Status:",
            "Status",
            "**Status:** ",
        ] {
            assert_eq!(status(line), None, "{line}");
        }
    }
}
