//! Health inputs from the files of the memory.

use std::cell::OnceCell;

use serde::Deserialize;

use super::load;
use crate::error::Result;
use crate::events::Events;
use crate::features::{Evidence, FeaturesFile, Standing, judge_by, judge_by_evidence};
use crate::files::Files;
use crate::health::inputs::{Features, File, Last, LongTerm, ShortTerm, Source};
use crate::knowledge::KnowledgeFile;
use crate::layout;
use crate::progress::Log;
use crate::project::Project;
use crate::recovery::Paused;
use crate::sessions::{ActiveSessions, State};
use crate::subjects::Subject;
use crate::time::Time;

/// Reads the knowledge, and when something was last learned or confirmed, if it says so.
pub(super) fn knowledge(files: &Files) -> (LongTerm, Option<Last>) {
    let (found, file) = load::<KnowledgeFile>(files);
    let fresh = file.and_then(|file| file.fresh_at()).map(|at| Last {
        at,
        source: Source::HealthSample,
    });
    (
        LongTerm {
            knowledge: found,
            ..LongTerm::default()
        },
        fresh,
    )
}

/// Returns the modification time of a file.
pub(super) fn modified(files: &Files, path: &str) -> Option<Last> {
    let at = files.entry(path).ok()??.modified;
    Some(Last {
        at,
        source: Source::Mtime,
    })
}

/// Returns the inputs from the features.
///
/// A pass counts if it has evidence, even if that is of older code; how many are is known with git.
pub(super) fn features(
    project: &Project,
    files: &Files,
    evidence: &OnceCell<Result<Evidence>>,
) -> Features {
    let (found, file) = load::<FeaturesFile>(files);
    let Some(file) = file else {
        return Features {
            file: found,
            ..Features::default()
        };
    };
    let evidence = evidence.get_or_init(|| Evidence::read(project));
    let evidence = evidence.as_ref().ok();
    let judged = evidence
        .filter(|_| project.git().is_ok())
        .and_then(|known| judge_by(project, known, &file.features).ok());
    let is_of_code = judged.is_some();
    let standings = judged.unwrap_or_else(|| judge_by_evidence(evidence, &file.features));
    let counts = FeaturesFile::counts(&standings);
    let those = |wanted: Standing| {
        let all = file.features.iter().zip(&standings);
        all.filter(move |(_, standing)| **standing == wanted)
            .map(|(feature, _)| feature)
    };
    Features {
        file: found,
        passing: counts.passing as u64,
        total: counts.counted as u64,
        regressed_since: those(Standing::Regressed)
            .filter_map(|feature| feature.regressed_at)
            .min(),
        regressed: those(Standing::Regressed)
            .map(|feature| feature.id.clone())
            .collect(),
        unverified: counts.unverified as u64,
        unverified_ids: those(Standing::UnverifiedPass)
            .map(|feature| feature.id.clone())
            .collect(),
        stale: is_of_code.then_some(counts.stale as u64),
        damaged: Vec::new(),
    }
}

/// Returns the inputs from `progress.txt`, the journal and the sessions.
pub(super) fn short_term(project: &Project, files: &Files) -> ShortTerm {
    let mut given = ShortTerm {
        events: Events::new(project).wrong_settings(),
        ..ShortTerm::default()
    };
    let mut noted = None;
    match files.read(layout::PROGRESS) {
        Ok(None) => {
            given.progress = File::Absent;
            given.not_begun = matches!(files.entry(layout::JOURNAL), Ok(None));
        }
        Err(error) => given.progress = File::Damaged(error.message),
        Ok(Some(bytes)) => match std::str::from_utf8(&bytes) {
            Ok(text) if !text.contains('\0') => {
                let log = Log::parse(text, &project.environment().zone);
                given.malformed_lines = log.malformed_lines as u64;
                noted = log.last_at().map(|at| Last {
                    at,
                    source: Source::HealthSample,
                });
            }
            _ => given.progress = File::Damaged(format!("{} is no UTF-8 text", layout::PROGRESS)),
        },
    }
    given.paused = match files.load::<Paused>() {
        Ok(paused) => paused.map(|paused| (paused.value.reason, Some(paused.value.since))),
        Err(error) => Some((error.message, None)),
    };
    given.last = journal(files)
        .or(noted)
        .or_else(|| modified(files, layout::PROGRESS));
    // A damaged list of sessions is reported by the session commands.
    let living = files
        .load::<ActiveSessions>()
        .ok()
        .flatten()
        .map(|loaded| loaded.value.sessions)
        .unwrap_or_default();
    let now = project.environment().now();
    for session in &living {
        let given_up = session.state.is_alive() && session.given_up(now).is_some();
        if given_up || session.state == State::Abandoned {
            given
                .abandoned
                .get_or_insert_with(|| (session.id.clone(), session.seen_at));
        } else if session.state.is_alive() {
            given.active = true;
        }
    }
    given
}

/// Returns the time of the last journal event that shows work. Health events do not count.
fn journal(files: &Files) -> Option<Last> {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "type")]
        kind: String,
        ts: Time,
    }

    let bytes = files.read(layout::JOURNAL).ok()??;
    let health = Subject::Health.redux();
    let events = bytes
        .rsplit(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Event>(line).ok());
    let last = events.into_iter().find(|event| event.kind != health)?;
    Some(Last {
        at: last.ts,
        source: Source::Journal,
    })
}
