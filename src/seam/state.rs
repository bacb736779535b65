//! Locations of the files of a plan.
//!
//! What binds a work tree to a plan is either valid, or absent, or an error: the plan without a
//! name never replaces one that is unknown.

use std::path::{Path, PathBuf};

use crate::readers::{Kind, ProjectFolder};
use serde::Serialize;

use crate::context::Which;
use crate::error::{StateError, Warning};
use crate::plan::{Meant, Task, file};
use crate::resolved::{HARNESS, Resolved};

/// The folder of a project's state in a vault.
pub(crate) const VAULT_STATE: &str = "_harness";
/// The folder of a project's tasks in a vault.
pub(crate) const TASKS: &str = "tasks";
/// Maximum length read of a plan to see whether it has text, in bytes.
const MOST_PLAN: usize = 64 << 10;

/// Where state is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// In the project, below `.harness/`.
    Project,
    /// In the vault.
    Vault,
}

/// Locations of the files of a plan. None of them need exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanFiles {
    /// The plan.
    #[serde(serialize_with = "crate::text::lossy")]
    pub plan: PathBuf,
    /// The progress so far.
    #[serde(serialize_with = "crate::text::lossy")]
    pub progress: PathBuf,
    /// The state of the tasks.
    #[serde(serialize_with = "crate::text::lossy")]
    pub tracker: PathBuf,
    /// The name of the plan, if it has one.
    pub name: Option<String>,
    /// Where state is stored.
    pub store: Store,
    /// Warnings about memory that cannot be read: without it, state is stored in the project.
    pub warnings: Vec<Warning>,
}

impl PlanFiles {
    /// Returns the path of one file.
    #[must_use]
    pub fn path(&self, which: Which) -> &Path {
        match which {
            Which::Plan => &self.plan,
            Which::Progress => &self.progress,
            Which::Tracker => &self.tracker,
        }
    }

    pub(crate) fn of(resolved: &Resolved<'_>, plan: Option<&str>) -> Result<Self, StateError> {
        if let Some(corrupt) = &resolved.corrupt {
            return Err(corrupt.clone());
        }
        if let Err(error) = &resolved.slug {
            return Err(error.clone());
        }
        let meant = Meant::of(resolved, plan)?;
        let mut warnings = resolved.warnings.clone();
        let (paths, store) = match resolved.place() {
            Some(place) => (
                in_vault(resolved, &place, &meant, &mut warnings)?,
                Store::Vault,
            ),
            None => (in_project(resolved, &meant)?, Store::Project),
        };
        let [plan, progress, tracker] = paths;
        let name = meant.name().map(ToString::to_string);
        Ok(Self {
            plan,
            progress,
            tracker,
            name,
            store,
            warnings,
        })
    }
}

impl Resolved<'_> {
    /// Returns the folder of the project in the vault, if its state is stored there.
    pub(crate) fn place(&self) -> Option<ProjectFolder> {
        let (vault, _) = self.vault.as_ref().filter(|_| !self.local)?;
        Some(vault.project(self.name()?))
    }
}

type Paths = [PathBuf; 3];

fn flat(folder: &Path, meant: &Meant) -> Paths {
    Which::ALL.map(|which| folder.join(file(which, meant.name())))
}

fn in_project(resolved: &Resolved<'_>, meant: &Meant) -> Result<Paths, StateError> {
    if let Meant::Bound(_) = meant {
        let [plan, ..] = flat(&resolved.root.join(HARNESS), meant);
        if let Err(why) = has_text(resolved, &plan) {
            return Err(dangling(resolved, &plan, &why));
        }
    }
    Ok(flat(&resolved.shown.join(HARNESS), meant))
}

fn in_vault(
    resolved: &Resolved<'_>,
    place: &ProjectFolder,
    meant: &Meant,
    warnings: &mut Vec<Warning>,
) -> Result<Paths, StateError> {
    let folder = place.path.join(VAULT_STATE);
    let tasks = Tasks::of(resolved, place)?;
    let task = tasks.meant(meant)?;
    let paths = match &task {
        Some(task) => Which::ALL.map(|which| task.join(format!("{which}.md"))),
        None => flat(&folder, meant),
    };
    if let (Meant::Asked(name), None, false) = (meant, task, tasks.all.is_empty())
        && !is_there(resolved, &paths[0])
    {
        let (folder, plan) = (tasks.folder.display(), paths[0].display());
        let all: Vec<&Task> = tasks.all.iter().collect();
        let why = format!(
            "{folder}: no task is called {name} ({}), and there is no plan at {plan}",
            names(&all)
        );
        warnings.push(Warning::no_such_task(why));
    }
    if let Meant::Bound(name) = meant
        && let Err(why) = has_text(resolved, &paths[0])
    {
        // Before there was a vault, the plan was in the project. That is reported, and is no reason
        // to stop.
        let [old, ..] = flat(&resolved.root.join(HARNESS), meant);
        if has_text(resolved, &old).is_err() {
            return Err(dangling(resolved, &paths[0], &why));
        }
        let (old, new) = (old.display(), paths[0].display());
        // What is there, and cannot be read, must not be overwritten.
        let advice = if is_there(resolved, &paths[0]) {
            format!("that {why}: see to it first")
        } else {
            "move it".into()
        };
        warnings.push(Warning::misplaced(format!(
            "the plan {name} lies at {old}, and belongs at {new}; {advice}"
        )));
    }
    if *meant == Meant::Nothing && !is_there(resolved, &paths[0]) {
        let [old, ..] = flat(&resolved.root.join(HARNESS), meant);
        if resolved.own_harness().is_some() && is_there(resolved, &old) {
            let (old, new) = (old.display(), paths[0].display());
            warnings.push(Warning::misplaced(format!(
                "there is a plan at {old}, and none at {new}: move it there, or keep state in the project with `local` in .project-mode"
            )));
        }
    }
    Ok(paths)
}

/// The tasks of a project.
struct Tasks {
    folder: PathBuf,
    all: Vec<Task>,
}

impl Tasks {
    fn of(resolved: &Resolved<'_>, place: &ProjectFolder) -> Result<Self, StateError> {
        let folder = place.path.join(TASKS);
        let all = Task::list(resolved, &folder).map_err(|error| {
            StateError::corrupt(
                &folder,
                error.to_string(),
                "make the folder of tasks readable",
            )
        })?;
        Ok(Self { folder, all })
    }

    /// Finds the folder of the meant task, in a project with tasks.
    fn meant(&self, meant: &Meant) -> Result<Option<PathBuf>, StateError> {
        let Self { folder, all } = self;
        let name = match meant {
            Meant::Asked(name) | Meant::Bound(name) => name,
            Meant::Nothing if !all.is_empty() => {
                let all: Vec<&Task> = all.iter().collect();
                let cause = format!(
                    "the project has {} tasks, and none is named ({})",
                    all.len(),
                    names(&all)
                );
                let remedy =
                    "name one with --plan (the input `plan` of a pack), or in .harness/active-plan";
                return Err(StateError::task_name_required(folder, cause, remedy));
            }
            Meant::Nothing | Meant::AskedSingleton => return Ok(None),
        };
        let whole = all.iter().find(|task| task.folder == *name);
        let found: Vec<&Task> = whole.map_or_else(
            || all.iter().filter(|task| task.is(name)).collect(),
            |task| vec![task],
        );
        match found[..] {
            [] => Ok(None),
            [task] => Ok(Some(folder.join(&task.folder))),
            _ => {
                let cause = format!("several tasks are called {name}: {}", names(&found));
                Err(StateError::corrupt(
                    folder,
                    cause,
                    "name the task with its number",
                ))
            }
        }
    }
}

/// Returns the names of the first few tasks.
fn names(tasks: &[&Task]) -> String {
    let names: Vec<&str> = tasks
        .iter()
        .take(5)
        .map(|task| task.folder.as_str())
        .collect();
    names.join(", ")
}

fn is_there(resolved: &Resolved<'_>, path: &Path) -> bool {
    !matches!(resolved.look.about(path), Ok(None))
}

/// Returns whether a file holds any text.
fn has_text(resolved: &Resolved<'_>, path: &Path) -> Result<(), String> {
    match resolved.look.read(path, MOST_PLAN) {
        Ok(Some(contents)) if String::from_utf8_lossy(&contents.bytes).trim().is_empty() => {
            Err("is empty".to_owned())
        }
        Ok(Some(_)) => Ok(()),
        Ok(None) => match resolved.look.about(path) {
            Ok(Some(about)) if about.kind == Kind::Link => {
                Err("is a link that leads nowhere".to_owned())
            }
            _ => Err("is absent".to_owned()),
        },
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

fn dangling(resolved: &Resolved<'_>, plan: &Path, why: &str) -> StateError {
    let marker = resolved.shown_harness(crate::plan::MARKER);
    let cause = format!("the plan it names, {}, {why}", plan.display());
    StateError::corrupt(
        &marker,
        cause,
        "write that plan, name another one, or remove the marker to use PLAN.md",
    )
}
