//! Collects the inputs of the health rules from files and git. Only reads.

mod issues;
mod memory;
mod repository;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use super::inputs::{File, Inputs};
use super::{Health, judge};
use crate::error::Result;
use crate::features::Evidence;
use crate::files::{Document, Files, LOST};
use crate::layout;
use crate::project::Project;
use crate::repair::{self, Extent};

/// Measures the health of the project memory. It never fails: an unreadable file becomes a reason.
#[must_use]
pub fn measure(project: &Project) -> Health {
    measure_with(project, &OnceCell::new())
}

/// As [`measure`]. The evidence is read once and shared with later calls.
pub(crate) fn measure_with(project: &Project, evidence: &OnceCell<Result<Evidence>>) -> Health {
    judge(
        inputs(project, evidence),
        &project.config().health,
        project.environment().now(),
    )
}

fn inputs(project: &Project, evidence: &OnceCell<Result<Evidence>>) -> Inputs {
    let files = project.files().reading();
    let (known, mut linear) = issues::read(project, &files);
    let (knowledge, fresh) = memory::knowledge(&files);
    // Run git while the files are read.
    let (mut long_term, short_term, features, found) = std::thread::scope(|scope| {
        let found = scope.spawn(|| repository::ask(project, known.as_ref(), fresh.is_none()));
        let features = memory::features(project, &files, evidence);
        let short_term = memory::short_term(project, &files);
        let found = found.join().unwrap_or_else(|_| {
            repository::RepositoryFacts::failed("measuring came to a sudden end")
        });
        (knowledge, short_term, features, found)
    });
    long_term.features = features.file.clone();
    long_term.last = fresh
        .or(found.committed)
        .or_else(|| memory::modified(&files, layout::KNOWLEDGE_ENTRIES));
    issues::add_commits(&mut linear, &found);
    let mut inputs = Inputs {
        long_term,
        short_term,
        features,
        git: found.git,
        linear,
    };
    share_out_damage(project, &mut inputs);
    inputs
}

/// Assigns damaged files to components, for files that the components do not read themselves.
fn share_out_damage(project: &Project, inputs: &mut Inputs) {
    const TOLD: [&str; 4] = [
        layout::KNOWLEDGE,
        layout::FEATURES,
        layout::PROGRESS,
        layout::ACTIVE,
    ];
    let of_issues = |path: &str| {
        [layout::ISSUES, layout::COMMENTS]
            .iter()
            .any(|folder| path.starts_with(folder))
    };
    let damaged = repair::damage(project, |path| !TOLD.contains(&path) && !of_issues(path))
        .unwrap_or_default();
    let unusable = repair::unusable(project).unwrap_or_default();
    for one in damaged
        .into_iter()
        .chain(unusable)
        .filter(|one| one.extent != Extent::Newer)
    {
        let component = match one.path.as_str() {
            layout::CONFIG => &mut inputs.long_term.damaged,
            path if repair::is_long_term(path) => &mut inputs.long_term.damaged,
            path if path.starts_with(layout::SKILLS) || path.starts_with(layout::TEMPLATES) => {
                &mut inputs.long_term.damaged
            }
            path if path.starts_with(layout::ARTIFACTS) => &mut inputs.features.damaged,
            layout::BRANCHES => &mut inputs.git.damaged,
            path if path.starts_with(layout::CHECKPOINTS) => &mut inputs.git.damaged,
            _ => &mut inputs.short_term.damaged,
        };
        component.push(one);
    }
}

/// Reads a document without writing anything, and returns the state of its file.
fn load<D: Document>(files: &Files) -> (File, Option<D>) {
    match files.load::<D>() {
        Ok(None) if files.is_lost(D::PATH).unwrap_or(false) => {
            (File::Damaged(format!("{}: {LOST}", D::PATH)), None)
        }
        Ok(None) => (File::Absent, None),
        Ok(Some(loaded)) if loaded.read_only => (
            File::Newer("a newer program's".to_owned()),
            Some(loaded.value),
        ),
        Ok(Some(loaded)) => (File::Valid, Some(loaded.value)),
        Err(error) if error.code == "E_SCHEMA_NEWER" => {
            (File::Newer("a newer program's".to_owned()), None)
        }
        Err(error) => (File::Damaged(error.message), None),
    }
}
