//! Memory operations of checkpoints and recovery.

use crate::checkpoints::Made;
use crate::error::Result;
use crate::events::{self, Subject, data};
use crate::features::{Features, FeaturesFile, Standing};
use crate::files::Document as _;
use crate::focus::Focused;
use crate::knowledge::{Failed, Knowledge, KnowledgeFile};
use crate::progress::Progress;
use crate::project::Project;
use crate::sessions::Sessions;
use helmdeck_core::text::collapse_whitespace;

/// Maximum length of a progress entry, in characters.
const ENTRY: usize = 500;

/// Returns the features with their standing; none if their file is damaged, which other checks
/// report.
pub(crate) fn features(project: &Project) -> Result<(FeaturesFile, Vec<Standing>)> {
    match project.files().reading().load::<FeaturesFile>() {
        Ok(_) => Features::new(project).judged(),
        Err(_) => Ok((FeaturesFile::skeleton(), Vec::new())),
    }
}

/// Returns the check commands of the required invariants.
pub(crate) fn invariant_checks(project: &Project) -> Result<Vec<String>> {
    let file = Knowledge::new(project).read()?;
    let hard = file
        .current_invariants()
        .filter(|invariant| invariant.is_error());
    Ok(hard
        .filter_map(|invariant| invariant.check().map(str::to_owned))
        .collect())
}

/// Returns the issue of the focus.
pub(crate) fn focused_issue(project: &Project) -> Option<String> {
    Sessions::new(project)
        .focus_now()
        .ok()?
        .show()
        .ok()
        .flatten()?
        .focus
        .linear_issue
}

/// Returns the current session.
pub(crate) fn session(project: &Project) -> Option<String> {
    Sessions::new(project)
        .current()
        .ok()
        .flatten()
        .map(|session| session.id)
}

/// Returns the files that other active sessions work on, by session.
pub(super) fn others(project: &Project) -> Vec<(String, Vec<String>)> {
    let current = session(project);
    let Ok(living) = Sessions::new(project).living() else {
        return Vec::new();
    };
    let others = living
        .sessions
        .iter()
        .filter(|session| session.state.is_alive() && Some(&session.id) != current.as_ref());
    others
        .filter_map(|session| {
            let focus = Focused::new(project);
            let focus = if session.primary {
                focus
            } else {
                focus.of(&session.folder()).ok()?
            };
            Some((session.id.clone(), focus.show().ok().flatten()?.focus.files))
        })
        .filter(|(_, files)| !files.is_empty())
        .collect()
}

/// Emits the event of a checkpoint.
pub(crate) fn tell_checkpoint(project: &Project, made: &Made) {
    progress(project, |progress| progress.checkpoint(&made.tag).map(drop));
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let passed = made
        .manifest
        .checks
        .iter()
        .filter(|check| check.exit == Some(0))
        .count();
    let payload = data::Reached {
        tag: made.tag.clone(),
        commit: made.commit.clone(),
        checks: data::Tally {
            passing: count(passed),
            total: count(made.manifest.checks.len()),
        },
        can_rollback_to: made.can_rollback_to,
    };
    events::emit(project, Subject::Checkpoint, payload);
}

/// Writes an entry into the progress of the session, cut to one line of 500 characters.
pub(super) fn note(project: &Project, text: &str) {
    let line: String = collapse_whitespace(text).chars().take(ENTRY).collect();
    progress(project, |progress| progress.log(&line).map(drop));
}

/// Writes to the progress of the session. A failure here does not undo the work.
fn progress(project: &Project, write: impl FnOnce(crate::progress::Progress<'_>) -> Result<()>) {
    let session = Sessions::new(project)
        .current()
        .ok()
        .flatten()
        .filter(|session| !session.primary);
    let progress = match session {
        Some(session) => Progress::new(project).of(&session.folder()),
        None => Ok(Progress::new(project)),
    };
    if let Err(error) = progress.and_then(write) {
        tracing::warn!(%error, "the progress lacks an entry");
    }
}

/// Adds a failed pattern to the knowledge, unless it is known.
pub(super) fn learn(project: &Project, lesson: Failed) -> Result<()> {
    project.files().edit::<KnowledgeFile, _>(None, |knowledge| {
        let failed = &mut knowledge.patterns.failed;
        if !failed
            .iter()
            .any(|known| known.context == lesson.context && known.issue == lesson.issue)
        {
            failed.push(lesson);
        }
        Ok(())
    })
}
