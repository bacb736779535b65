//! Notes of earlier runs on a repository: one per run, of the caller, for 30 days.
//!
//! A missing or failing memory changes nothing. A note was written by a model that read untrusted
//! files, so it is data everywhere.

use std::collections::HashMap;
use std::time::Duration;

use helmdeck_core::Context;
use helmdeck_core::memory::{NewNote, Notes};
use helmdeck_core::session::Session;
use helmdeck_core::text::collapse_whitespace;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::repository::{Checkout, is_reachable};

/// Lifetime of a note.
const TTL: Duration = Duration::from_secs(30 * 86_400);

/// The category of the notes.
const CATEGORY: &str = "solve";

/// Maximum number of notes shown to a model.
const MAX_NOTES: usize = 5;

/// Maximum number of notes to read for that: some are merged.
const MAX_READ: usize = 25;

/// Maximum length of one text in a note, in bytes.
const MAX_TEXT_BYTES: usize = 1500;

/// Maximum number of files that a note names.
const MAX_FILES: usize = 20;

/// Maximum size of all notes shown to a model, in bytes.
const MAX_SHOWN_BYTES: usize = 8 << 10;

/// Timeout of the memory: a run is worth more than its notes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Note of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lesson {
    /// When it ended, RFC 3339.
    pub(super) at: String,
    /// Its task.
    pub(super) task: String,
    /// Whether it succeeded.
    pub(super) success: bool,
    /// Its ending.
    pub(super) ended: String,
    /// Its own summary.
    pub(super) summary: String,
    /// The commit that it began at.
    pub(super) base_commit: String,
    /// The branch that it pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<String>,
    /// The pull request that it opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pr_url: Option<String>,
    /// How its tests ended, and the end of their output if they failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tests: Option<String>,
    /// The files that its patch changes.
    #[serde(default)]
    pub(super) files: Vec<String>,
}

impl Lesson {
    /// Writes it for a model.
    ///
    /// `same` is how many earlier runs of the same task succeeded too; `stale` says that its commit
    /// is no longer in the repository.
    fn shown(&self, same: usize, stale: bool) -> String {
        let Self {
            at,
            task,
            success,
            ended,
            summary,
            base_commit,
            branch,
            pr_url,
            tests,
            files,
        } = self;
        let commit = &base_commit[..base_commit.floor_char_boundary(12)];
        let result = if *success {
            "succeeded"
        } else {
            "did not succeed"
        };
        let mut text = format!(
            "- {at}, at commit {commit}: {result} ({ended})\n  task: {}\n  summary: {}",
            flat(task),
            flat(summary)
        );
        if stale {
            text.push_str("\n  STALE: that commit is no longer part of the repository (rewritten or removed); check all of this anew");
        }
        if same > 0 {
            text.push_str(&format!(
                "\n  {same} earlier runs of this task succeeded too"
            ));
        }
        let files = Some(files.join(", ")).filter(|files| !files.is_empty());
        let more = [
            ("changed", &files),
            ("tests", tests),
            ("branch", branch),
            ("pull request", pr_url),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                text.push_str(&format!("\n  {name}: {}", flat(value)));
            }
        }
        text
    }
}

/// Merges successes of the same task, and returns the notes to show, newest first.
///
/// Each success has the number of those merged into it. The newest failure is among the notes: it
/// saves the next run most.
fn chosen(lessons: Vec<Lesson>) -> Vec<(Lesson, usize)> {
    let mut merged: Vec<(Lesson, usize)> = Vec::new();
    for lesson in lessons {
        let equal = |(known, _): &&mut (Lesson, usize)| {
            known.success
                && lesson.success
                && flat(&known.task).eq_ignore_ascii_case(&flat(&lesson.task))
        };
        match merged.iter_mut().find(equal) {
            Some((_, same)) => *same += 1,
            None => merged.push((lesson, 0)),
        }
    }
    let failure = merged.iter().position(|(lesson, _)| !lesson.success);
    if let Some(failure) = failure.filter(|at| *at >= MAX_NOTES) {
        merged.swap(failure, MAX_NOTES - 1);
    }
    merged.truncate(MAX_NOTES);
    merged
}

/// Returns text on one line, not long.
fn flat(text: &str) -> String {
    let line = collapse_whitespace(text);
    let end = line.floor_char_boundary(MAX_TEXT_BYTES);
    if end < line.len() {
        format!("{} ...", &line[..end])
    } else {
        line
    }
}

/// The notes of one caller on one repository.
pub(super) struct Recall {
    notes: Notes,
    prefix: String,
}

impl Recall {
    /// Opens the notes of a repository; `None` without a memory.
    ///
    /// `repository` is the same text for every spelling of its URL.
    pub(super) fn new(context: &Context, repository: &str) -> Option<Self> {
        let digest = Sha256::digest(repository.as_bytes());
        let digest = helmdeck_core::hex(&digest[..16]);
        Some(Self {
            notes: context.memory()?,
            prefix: format!("swe.solve/{digest}/"),
        })
    }

    /// Returns the notes of earlier runs, newest first.
    ///
    /// Equal successes are merged, and a failure is among the notes if there was any. Notes whose
    /// commit is no longer part of the repository are marked.
    pub(super) async fn earlier(&self, session: &dyn Session, checkout: &Checkout) -> Vec<String> {
        let merged = chosen(timeout(PATIENCE, self.read()).await.unwrap_or_default());
        let mut known: HashMap<String, bool> = HashMap::new();
        let mut shown = Vec::new();
        let mut bytes = 0;
        for (lesson, same) in merged {
            let stale = match known.get(&lesson.base_commit) {
                Some(stale) => *stale,
                None => {
                    let reachable = timeout(
                        PATIENCE,
                        is_reachable(session, checkout, &lesson.base_commit),
                    )
                    .await;
                    *known
                        .entry(lesson.base_commit.clone())
                        .or_insert(reachable == Ok(Some(false)))
                }
            };
            let text = lesson.shown(same, stale);
            bytes += text.len();
            if bytes > MAX_SHOWN_BYTES {
                break;
            }
            shown.push(text);
        }
        shown
    }

    async fn read(&self) -> Vec<Lesson> {
        let list = match self.notes.list(&self.prefix, MAX_READ, None).await {
            Ok(list) => list,
            Err(error) => {
                tracing::debug!(%error, "earlier notes cannot be listed");
                return Vec::new();
            }
        };
        let mut lessons = Vec::new();
        for about in list.notes {
            let Ok(Some(note)) = self.notes.recall(&about.key).await else {
                continue;
            };
            lessons.extend(serde_json::from_slice::<Lesson>(&note.value).ok());
        }
        lessons
    }

    /// Stores the note of this run, under a unique name or one that is overwritten.
    ///
    /// A failing memory does not fail the run.
    pub(super) async fn keep(&self, name: &str, mut lesson: Lesson) {
        for text in [&mut lesson.task, &mut lesson.summary] {
            *text = flat(text);
        }
        lesson.tests = lesson.tests.as_deref().map(flat);
        lesson.files.truncate(MAX_FILES);
        let Ok(value) = serde_json::to_vec(&lesson) else {
            return;
        };
        let note = NewNote::new(format!("{}{name}", self.prefix), value)
            .with_category(CATEGORY)
            .with_ttl(TTL);
        match timeout(PATIENCE, self.notes.store(note)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the note of this run cannot be kept"),
            Err(_) => tracing::warn!("the note of this run cannot be kept: the memory is too slow"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson() -> Lesson {
        Lesson {
            at: "2026-11-22T00:00:00Z".into(),
            task: "fix\n%f".into(),
            success: false,
            ended: "step_limit".into(),
            summary: "stopped".into(),
            base_commit: "0123456789abcdef".into(),
            branch: None,
            pr_url: None,
            tests: Some("exit 1:\nAssertionError".into()),
            files: vec!["parse.py".into()],
        }
    }

    #[test]
    fn a_lesson_is_lines_that_a_text_cannot_break() {
        let shown = lesson().shown(0, false);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "- 2026-11-22T00:00:00Z, at commit 0123456789ab: did not succeed (step_limit)",
                "  task: fix %f",
                "  summary: stopped",
                "  changed: parse.py",
                "  tests: exit 1: AssertionError",
            ]
        );
        let long = Lesson {
            summary: "ö".repeat(5000),
            ..lesson()
        };
        assert!(long.shown(0, false).len() < 2 * MAX_TEXT_BYTES);
        let stale = lesson().shown(2, true);
        assert!(
            stale.contains("STALE") && stale.contains("2 earlier runs"),
            "{stale}"
        );
    }

    #[test]
    fn equal_successes_do_not_crowd_out_a_failure() {
        let success = |task: &str| Lesson {
            success: true,
            task: task.into(),
            ..lesson()
        };
        let mut all = vec![success("fix  A"); 6];
        all.push(lesson());
        let shown = chosen(all);
        let told: Vec<_> = shown
            .iter()
            .map(|(lesson, same)| (lesson.success, *same))
            .collect();
        assert_eq!(told, [(true, 5), (false, 0)]);
        let mut all: Vec<_> = (0..9).map(|n| success(&format!("task {n}"))).collect();
        all.push(lesson());
        let shown = chosen(all);
        assert_eq!(
            (shown.len(), shown[MAX_NOTES - 1].0.success),
            (MAX_NOTES, false)
        );
        assert_eq!(shown[0].0.task, "task 0");
    }
}
