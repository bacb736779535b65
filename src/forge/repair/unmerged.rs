//! Files with a git conflict.
//!
//! The index of git has the versions of both sides, which are merged entry by entry, like in the
//! merge driver. While git has a conflict, no version with only one side is offered.

use super::form::{Form, check};
use super::{Candidate, Source, diff, of_tag};
use crate::error::Result;
use crate::git::Stages;
use crate::layout::{FEATURES, KNOWLEDGE};
use crate::merge::merge;
use crate::project::Project;

/// Returns the versions of a file that git could not merge; `None` if it has no conflict.
pub(super) fn unmerged(project: &Project, path: &str) -> Result<Option<Stages>> {
    match project.git() {
        Ok(git) => git.stages(path),
        Err(_) => Ok(None),
    }
}

/// Returns the possible replacements of a file with a conflict.
pub(super) fn united(
    project: &Project,
    path: &str,
    form: Form,
    bytes: &[u8],
    stages: &Stages,
) -> Vec<Candidate> {
    let mut all = Vec::new();
    let mut offer = |source, detail: String, new: Vec<u8>, conflicts| {
        if check(form, &new).is_ok() {
            let diff = diff::lines(bytes, &new);
            all.push(Candidate {
                source,
                detail,
                diff,
                conflicts,
                bytes: new,
            });
        }
    };
    if let Some((tag, new)) = of_tag(project, path) {
        offer(
            Source::Tag,
            format!("as the tag {tag} has it"),
            new,
            Vec::new(),
        );
    }
    match form {
        Form::Document(_)
            if ![FEATURES, KNOWLEDGE].contains(&path)
                && !stages.ours.is_empty()
                && !stages.theirs.is_empty() =>
        {
            let merged = merge(path, &stages.base, &stages.ours, &stages.theirs);
            let detail = if merged.conflicts.is_empty() {
                "what both sides of the merge hold".to_owned()
            } else {
                format!(
                    "what both sides hold; ours where {}",
                    merged.conflicts.join("; ")
                )
            };
            offer(Source::Merge, detail, merged.bytes, merged.conflicts);
        }
        Form::Lines => {
            offer(
                Source::Merge,
                "the lines of both sides".to_owned(),
                lines(&stages.ours, &stages.theirs),
                Vec::new(),
            );
        }
        _ => {}
    }
    all
}

/// Returns our lines, followed by those that only the other side has.
fn lines(ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    let split = |bytes: &'_ [u8]| -> Vec<Vec<u8>> {
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let mut all = split(ours);
    let known: std::collections::HashSet<Vec<u8>> = all.iter().cloned().collect();
    all.extend(
        split(theirs)
            .into_iter()
            .filter(|line| !known.contains(line)),
    );
    all.into_iter()
        .flat_map(|line| [line, vec![b'\n']].concat())
        .collect()
}
