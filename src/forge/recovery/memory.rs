//! Memory operations of checkpoints and recovery.

use super::carry::{self, Lesson};
use crate::artifacts::{Artifacts, CHECK_REPORT, Kind, Put};
use crate::checkpoints::Made;
use crate::error::{Error, Result};
use crate::events::{self, Subject, data};
use crate::features::{FeaturesFile, Standing};
use crate::focus::Focused;
use crate::json::Json;
use crate::knowledge::{Knowledge, KnowledgeFile};
use crate::progress::Progress;
use crate::project::Project;
use crate::runner::Ran;
use crate::sessions::Sessions;
use crate::time::Time;
use helmdeck_core::text::collapse_whitespace;

pub(crate) use super::carry::text;

/// Maximum length of a progress entry, in characters.
const ENTRY: usize = 500;

/// Features by status.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Features that pass, with evidence.
    pub passing: Vec<String>,
    /// Deferred features: they are not expected to pass.
    pub deferred: Vec<String>,
    /// Features that claim to pass without evidence.
    pub unverified: Vec<String>,
    /// Features that were removed for good, and are not expected to pass.
    pub retired: Vec<String>,
    /// Number of features.
    pub total: u32,
}

/// Reads a file as JSON; `None` if it is absent or damaged, which other checks report.
pub(super) fn read(project: &Project, path: &str) -> Result<Option<Json>> {
    let bytes = project.files().read(path)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Returns the features by status; none if their file is damaged, which other checks report.
pub(crate) fn features(project: &Project) -> Result<Features> {
    let Ok(file) = project.files().reading().load::<FeaturesFile>() else {
        return Ok(Features::default());
    };
    let listed = crate::features::Features::new(project).list(false)?;
    let those = |wanted: &dyn Fn(Standing) -> bool| {
        let fit = listed.features.iter().filter(|item| wanted(item.standing));
        fit.map(|item| item.feature.id.clone()).collect()
    };
    Ok(Features {
        passing: those(&Standing::counts),
        deferred: those(&|standing| standing == Standing::Deferred),
        unverified: those(&|standing| standing == Standing::UnverifiedPass),
        retired: file.map(|file| file.value.retired).unwrap_or_default(),
        total: u32::try_from(listed.features.len()).unwrap_or(u32::MAX),
    })
}

/// Returns the check commands of the required invariants.
pub(crate) fn invariant_checks(project: &Project) -> Result<Vec<String>> {
    let file = Knowledge::new(project).read()?;
    let hard = file.current_invariants().filter(|invariant| invariant.is_error());
    Ok(hard.filter_map(|invariant| invariant.check().map(str::to_owned)).collect())
}

/// Returns the issue of the focus.
pub(crate) fn focused_issue(project: &Project) -> Option<String> {
    Sessions::new(project).focus_now().ok()?.show().ok().flatten()?.focus.linear_issue
}

/// Returns the current session.
pub(crate) fn session(project: &Project) -> Option<String> {
    Sessions::new(project).current().ok().flatten().map(|session| session.id)
}

/// Returns the files that other active sessions work on, by session.
pub(super) fn others(project: &Project) -> Vec<(String, Vec<String>)> {
    let current = session(project);
    let Ok(living) = Sessions::new(project).living() else { return Vec::new() };
    let others =
        living.sessions.iter().filter(|session| session.state.is_alive() && Some(&session.id) != current.as_ref());
    others
        .filter_map(|session| {
            let focus = Focused::new(project);
            let focus = if session.primary { focus } else { focus.of(&session.folder()).ok()? };
            Some((session.id.clone(), focus.show().ok().flatten()?.focus.files))
        })
        .filter(|(_, files)| !files.is_empty())
        .collect()
}

/// Stores the output of a check as an artifact, and returns its reference.
///
/// A failure to store it does not fail the check.
pub(crate) fn keep_report(project: &Project, command: &str, ran: &Ran) -> Option<String> {
    let exit = ran.exit.map_or_else(|| "none".to_owned(), |code| code.to_string());
    let text = format!("$ {command}\n{}\nexit: {exit}, {} ms\n", ran.output.trim_end(), ran.ms);
    match Artifacts::new(project).put(text.as_bytes(), &Put::new(Kind::Reports, CHECK_REPORT)) {
        Ok(stored) => Some(stored.entry.triv.to_string()),
        Err(error) => {
            tracing::warn!(command, %error, "the output of a check was not kept");
            None
        }
    }
}

/// Emits the event of a checkpoint.
pub(crate) fn tell_checkpoint(project: &Project, made: &Made) {
    progress(project, |progress| progress.checkpoint(&made.tag).map(drop));
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let passed = made.manifest.checks.iter().filter(|check| check.exit == Some(0)).count();
    let payload = data::Reached {
        tag: made.tag.clone(),
        commit: made.commit.clone(),
        checks: data::Tally { passing: count(passed), total: count(made.manifest.checks.len()) },
        can_rollback_to: made.can_rollback_to,
    };
    events::emit(project, Subject::Checkpoint, payload);
}

/// Emits the event of a recovery.
pub(super) fn tell_recovery(project: &Project, data: &serde_json::Value) {
    events::emit(project, Subject::Recovery, data);
}

/// Writes an entry into the progress of the session, cut to one line of 500 characters.
pub(super) fn note(project: &Project, text: &str) {
    let line: String = collapse_whitespace(text).chars().take(ENTRY).collect();
    progress(project, |progress| progress.log(&line).map(drop));
}

/// Writes to the progress of the session. A failure here does not undo the work.
fn progress(project: &Project, write: impl FnOnce(crate::progress::Progress<'_>) -> Result<()>) {
    let session = Sessions::new(project).current().ok().flatten().filter(|session| !session.primary);
    let progress = match session {
        Some(session) => Progress::new(project).of(&session.folder()),
        None => Ok(Progress::new(project)),
    };
    if let Err(error) = progress.and_then(write) {
        tracing::warn!(%error, "the progress lacks an entry");
    }
}

/// Adds a failed pattern to the knowledge, unless it is known.
pub(super) fn learn(project: &Project, lesson: &Lesson, at: Time) -> Result<()> {
    project.files().edit::<KnowledgeFile, _>(None, |knowledge| {
        carry::learn(knowledge, lesson, at);
        Ok(())
    })
}

/// Replaces the features file.
pub(super) fn replace_features(project: &Project, bytes: &[u8]) -> Result<()> {
    let features: FeaturesFile = serde_json::from_slice(bytes)
        .map_err(|error| Error::usage(format!("the features of the checkpoint: {error}")))?;
    project.files().edit::<FeaturesFile, _>(None, |file| {
        *file = features;
        Ok(())
    })
}
