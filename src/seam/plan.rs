//! Names of plans, the files they have, and the marker that binds a work tree to one.

use std::path::Path;

use crate::readers::{Name, is_conflict};

use crate::context::Which;
use crate::error::StateError;
use crate::resolved::Resolved;
use crate::text::{Short, quoted};

/// Binds a work tree to a plan.
pub(crate) const MARKER: &str = "active-plan";
/// The longest marker, in bytes.
const MOST_MARKER: usize = 4_096;

/// Which plan is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meant {
    /// The one with a name that the caller gave.
    Asked(Name),
    /// The plan without a name, chosen by the caller.
    AskedSingleton,
    /// The one the work tree is bound to.
    Bound(Name),
    /// No plan is named.
    Nothing,
}

impl Meant {
    /// Returns its name, if it has one.
    pub(crate) fn name(&self) -> Option<&Name> {
        match self {
            Self::Asked(name) | Self::Bound(name) => Some(name),
            Self::AskedSingleton | Self::Nothing => None,
        }
    }

    /// Decides which plan is meant.
    ///
    /// The caller's choice comes before the marker, which then is not read. This does not check
    /// whether the plan of a marker exists.
    pub(crate) fn of(resolved: &Resolved<'_>, plan: Option<&str>) -> Result<Self, StateError> {
        if let Some(plan) = plan {
            return match slug(plan) {
                "" => Ok(Self::AskedSingleton),
                name => Name::parse(name).map(Self::Asked).map_err(|why| {
                    let cause = format!("unsafe plan name {}: {why}", quoted(plan));
                    StateError::unsafe_name(
                        &resolved.shown.join(crate::resolved::HARNESS),
                        cause,
                        "name a plan as foo or PLAN-foo.md",
                    )
                }),
            };
        }
        let path = resolved.shown_harness(MARKER);
        let corrupt = |cause: String| {
            Err(StateError::corrupt(
                &path,
                cause,
                "write the name of a plan into it, or remove it to use PLAN.md",
            ))
        };
        match resolved.read(MARKER, MOST_MARKER) {
            Short::Absent => Ok(Self::Nothing),
            Short::Lossy(_) => corrupt("it is no UTF-8 text".to_owned()),
            Short::Wrong(why) => corrupt(why),
            Short::Text(text) => match slug(&text) {
                "" => corrupt(format!(
                    "it is blank or names no usable plan ({})",
                    quoted(text.trim())
                )),
                name => match Name::parse(name) {
                    Ok(name) => Ok(Self::Bound(name)),
                    Err(why) => corrupt(format!(
                        "it names no safe plan ({}): {why}",
                        quoted(text.trim())
                    )),
                },
            },
        }
    }
}

/// Returns the part of a plan's name that makes it this plan; empty for the one without a name.
pub(crate) fn slug(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_suffix(".md").unwrap_or(name);
    let name = name.strip_prefix("PLAN-").unwrap_or(name);
    if name == "PLAN" { "" } else { name }
}

/// Returns the name of a file of a plan.
pub(crate) fn file(which: Which, name: Option<&Name>) -> String {
    match (which, name) {
        (Which::Plan, None) => "PLAN.md".to_owned(),
        (Which::Plan, Some(name)) => format!("PLAN-{name}.md"),
        (which, None) => format!("{which}.md"),
        (which, Some(name)) => format!("{which}-{name}.md"),
    }
}

/// Returns the plan in a file, if the file is one: `Some(None)` for the plan without a name.
///
/// Archives and copies that a sync left are no plans.
pub(crate) fn plan_in(file: &str) -> Option<Option<Name>> {
    let stem = file.strip_suffix(".md")?;
    if is_copy(stem) || stem.ends_with(".archive") || stem.contains(".archive.") {
        return None;
    }
    match stem.strip_prefix("PLAN") {
        Some("") => Some(None),
        Some(rest) => {
            let name = rest
                .strip_prefix('-')
                .filter(|name| !matches!(*name, "" | "PLAN"))?;
            Some(Some(Name::parse(name).ok()?))
        }
        None => None,
    }
}

/// Returns whether a file is a copy of a plan, left by a sync, a program or a person.
///
/// For a note, `Rule (2)` and `Copy of a rule` are valid names. A plan's name has no such part, and
/// its copy must not pass for another plan.
fn is_copy(stem: &str) -> bool {
    let lower = stem.to_lowercase();
    let numbered = lower
        .strip_suffix(')')
        .and_then(|stem| stem.rsplit_once(" ("))
        .is_some_and(|(_, number)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
    numbered
        || is_conflict(stem)
        || lower.contains("conflicted copy ")
        || lower.starts_with("copy of ")
}

/// A task: a folder `NNN-name` with the files of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) folder: Name,
}

impl Task {
    /// Lists the tasks of a project, by number.
    pub(crate) fn list(resolved: &Resolved<'_>, tasks: &Path) -> std::io::Result<Vec<Self>> {
        const MOST: usize = 100_000;
        let entries = resolved.look.list(tasks, MOST)?.unwrap_or_default();
        let folders = entries.into_iter().filter(|entry| entry.folder);
        Ok(folders
            .filter_map(|entry| Self::of(entry.name.to_str()?))
            .collect())
    }

    fn of(folder: &str) -> Option<Self> {
        let (number, short) = folder.split_once('-')?;
        let fits = number.len() >= 3
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && !short.is_empty();
        if fits {
            Name::parse(folder).ok().map(|folder| Self { folder })
        } else {
            None
        }
    }

    /// Returns whether a name means this task: its whole name, or the part behind the number.
    pub(crate) fn is(&self, name: &Name) -> bool {
        self.folder == *name
            || self
                .folder
                .as_str()
                .split_once('-')
                .is_some_and(|(_, short)| short == name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_table_of_names_holds() {
        for singleton in ["", "   ", "PLAN", "PLAN.md", "PLAN-PLAN", "PLAN-PLAN.md"] {
            assert_eq!(slug(singleton), "", "{singleton:?}");
        }
        for foo in ["foo", "PLAN-foo", "PLAN-foo.md", "  PLAN-foo.md  "] {
            assert_eq!(slug(foo), "foo", "{foo:?}");
        }
        assert_eq!(slug("my-plan"), "my-plan");
        assert_eq!(
            slug("PLAN-PLAN-foo.md.md"),
            "PLAN-foo.md",
            "one of each is dropped"
        );
        assert_eq!(slug("Foo"), "Foo", "small and large letters are kept");
    }

    #[test]
    fn the_golden_table_of_safety_holds() {
        for safe in ["foo", "foo-bar", "foo.bar", "v2"] {
            assert!(Name::parse(safe).is_ok(), "{safe}");
        }
        for bad in [".", "..", "a/b", "a\\b", "foo\0"] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn archives_and_copies_are_no_plans() {
        let name = |text: &str| Some(Name::parse(text).unwrap());
        assert_eq!(plan_in("PLAN.md"), Some(None));
        assert_eq!(plan_in("PLAN-foo.md"), Some(name("foo")));
        assert_eq!(plan_in("PLAN-archive.md"), Some(name("archive")));
        assert_eq!(plan_in("PLAN-a.archived.md"), Some(name("a.archived")));
        for other in [
            "PLAN.archive.20260101.md",
            "PLAN.archive.md",
            "PLAN-foo.archive.20260101.md",
            "PLAN-foo.archive.md",
            "PLAN-foo.sync-conflict-20260101-120000-ABCDEFG.md",
            "PLAN.sync-conflict-20260101-120000-ABCDEFG.md",
            "PLAN (conflicted copy 2026-01-01).md",
            "PLAN-foo (Alex's conflicted copy 2026-01-01).md",
            "PLAN-foo [Conflict].md",
            "PLAN-foo (conflicted copy 2026-01-01) (b).md",
            "PLAN-foo conflicted copy 2026.md",
            "Copy of PLAN.md",
            "PLAN (1).md",
            "PLAN-foo (12).md",
            "PLAN-.md",
            "PLAN-PLAN.md",
            "PLANS.md",
            "PLAN-foo.txt",
            "progress.md",
            "plan.md",
        ] {
            assert_eq!(plan_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_task_is_meant_by_its_whole_name_or_without_its_number() {
        let task = Task::of("012-fix-it").unwrap();
        for (name, is) in [
            ("012-fix-it", true),
            ("fix-it", true),
            ("it", false),
            ("012", false),
        ] {
            assert_eq!(task.is(&Name::parse(name).unwrap()), is, "{name}");
        }
        for other in ["12-fix", "012-", "abc-d", "012", "-x"] {
            assert_eq!(Task::of(other), None, "{other}");
        }
    }
}
