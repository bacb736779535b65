//! What checkpoints and recovery ask of the other parts of the memory, in one place.

use super::carry;
use crate::checkpoints::Made;
use crate::error::{Category, Error, Result};
use crate::json::Json;
use crate::layout;
use crate::project::Project;
use crate::runner::Ran;
use crate::time::Time;

pub(crate) use super::carry::text;

/// Which features there are.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Those that pass, with evidence.
    pub passing: Vec<String>,
    /// Those that are put off: nobody expects them to pass.
    pub deferred: Vec<String>,
    /// How many there are.
    pub total: u32,
}

/// Reads a file as JSON; none if it is absent or damaged, which others say louder.
pub(super) fn read(project: &Project, path: &str) -> Result<Option<Json>> {
    let bytes = project.files().read(path)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Returns which features there are.
pub(crate) fn features(project: &Project) -> Result<Features> {
    let Some(file) = read(project, layout::FEATURES)? else { return Ok(Features::default()) };
    let all = carry::features(&file);
    let with = |wanted: &str, proof: bool| {
        all.iter()
            .filter(|feature| text(feature, "status") == Some(wanted))
            .filter(|feature| !proof || has(feature, "evidence"))
            .filter_map(|feature| text(feature, "id").map(str::to_owned))
            .collect()
    };
    Ok(Features {
        passing: with("passing", true),
        deferred: with("deferred", false),
        total: u32::try_from(all.len()).unwrap_or(u32::MAX),
    })
}

fn has(value: &Json, name: &str) -> bool {
    matches!(value, Json::Object(members) if !matches!(members.0.get(name), None | Some(Json::Null)))
}

/// Returns the commands of the invariants that have one.
pub(crate) fn invariant_checks(project: &Project) -> Result<Vec<String>> {
    let Some(Json::Object(members)) = read(project, layout::KNOWLEDGE)? else { return Ok(Vec::new()) };
    let Some(Json::Array(invariants)) = members.0.get("invariants") else { return Ok(Vec::new()) };
    let hard = invariants.iter().filter(|invariant| !matches!(text(invariant, "severity"), Some("warning" | "info")));
    Ok(hard.filter_map(|invariant| text(invariant, "check").map(str::to_owned)).collect())
}

/// Returns the issue of the focus.
pub(crate) fn focused_issue(project: &Project) -> Option<String> {
    let focus = read(project, layout::FOCUS).ok().flatten()?;
    text(&focus, "linear_issue").map(str::to_owned)
}

/// Returns the session that runs here.
pub(crate) fn session(_project: &Project) -> Option<String> {
    None
}

/// Returns the files on which other sessions that live work, by session.
pub(super) fn others(_project: &Project) -> Vec<(String, Vec<String>)> {
    Vec::new()
}

/// Keeps the output of a check as an artifact, and returns its reference. That it cannot be kept spoils no check.
pub(crate) fn keep_report(_project: &Project, _command: &str, _ran: &Ran) -> Option<String> {
    None
}

/// Tells of a checkpoint.
pub(crate) fn tell_checkpoint(_project: &Project, _made: &Made) {}

/// Tells of a recovery.
pub(super) fn tell_recovery(_project: &Project, _data: &serde_json::Value) {}

/// Writes an entry into the progress of the session.
pub(super) fn progress(_project: &Project, _text: &str) -> Result<()> {
    Ok(())
}

/// Adds a failed pattern to what was learned. One that is known is not added again.
pub(super) fn learn(project: &Project, lesson: &carry::Lesson, at: Time) -> Result<()> {
    let files = project.files();
    let _guard = files.lock()?;
    let Some(knowledge) = read(project, layout::KNOWLEDGE)? else { return Ok(()) };
    let learned = carry::learn(&knowledge, lesson, at);
    if learned == knowledge {
        return Ok(());
    }
    let bytes = crate::json::print(&learned)
        .map_err(|error| Error::new(Category::Failed, "E_INVALID", format!("{}: {error}", layout::KNOWLEDGE)))?;
    files.write(layout::KNOWLEDGE, &bytes)
}

/// Writes a file of the memory anew.
pub(super) fn replace(project: &Project, path: &str, bytes: &[u8]) -> Result<()> {
    if project.files().read(path)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    project.files().write(path, bytes)
}
