//! What earlier runs on a repository left for later ones: a note each, of the caller, for 30 days.
//!
//! A memory that is not there or fails changes nothing: the task is the task. What a note says was written by a model that
//! read a stranger's files, so it is data wherever it goes.

use std::time::Duration;

use helmdeck_core::Context;
use helmdeck_core::memory::{NewNote, Notes};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

/// How long a note lives.
const TTL: Duration = Duration::from_secs(30 * 86_400);

/// The category of the notes.
const CATEGORY: &str = "solve";

/// The most notes that are recalled.
const MAX_NOTES: usize = 5;

/// The most of one text in a note, in bytes.
const MAX_TEXT_BYTES: usize = 1500;

/// The most files that a note names.
const MAX_FILES: usize = 20;

/// The most of all notes that a model is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 8 << 10;

/// How long the memory may take: a run is worth more than its notes.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one run leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lesson {
    /// When it ended, RFC 3339.
    pub(super) at: String,
    /// Its task.
    pub(super) task: String,
    /// Whether it succeeded.
    pub(super) success: bool,
    /// How it ended.
    pub(super) ended: String,
    /// What it says about itself.
    pub(super) summary: String,
    /// The commit that it began at.
    pub(super) base_commit: String,
    /// The branch that it pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<String>,
    /// The pull request that it opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pr_url: Option<String>,
    /// How its tests ended, and the end of what they printed if they failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tests: Option<String>,
    /// The files that its patch changes.
    #[serde(default)]
    pub(super) files: Vec<String>,
}

impl Lesson {
    /// Writes it for a model.
    fn shown(&self) -> String {
        let Self { at, task, success, ended, summary, base_commit, branch, pr_url, tests, files } = self;
        let commit = &base_commit[..base_commit.floor_char_boundary(12)];
        let result = if *success { "succeeded" } else { "did not succeed" };
        let mut text = format!(
            "- {at}, at commit {commit}: {result} ({ended})\n  task: {}\n  summary: {}",
            flat(task),
            flat(summary)
        );
        let files = Some(files.join(", ")).filter(|files| !files.is_empty());
        let more = [("changed", &files), ("tests", tests), ("branch", branch), ("pull request", pr_url)];
        for (name, value) in more {
            if let Some(value) = value {
                text.push_str(&format!("\n  {name}: {}", flat(value)));
            }
        }
        text
    }
}

/// Returns text on one line, not long.
fn flat(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.floor_char_boundary(MAX_TEXT_BYTES);
    if end < line.len() { format!("{} ...", &line[..end]) } else { line }
}

/// The notes of one caller on one repository.
pub(super) struct Recall {
    notes: Notes,
    prefix: String,
}

impl Recall {
    /// Finds the notes; `None` without a memory. `repository` is the same text for every spelling of its URL.
    pub(super) fn new(context: &Context, repository: &str) -> Option<Self> {
        let digest = Sha256::digest(repository.as_bytes());
        let digest: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self { notes: context.memory()?, prefix: format!("swe.solve/{digest}/") })
    }

    /// Returns what earlier runs left, newest first.
    pub(super) async fn earlier(&self) -> Vec<String> {
        timeout(PATIENCE, self.read()).await.unwrap_or_default()
    }

    async fn read(&self) -> Vec<String> {
        let list = match self.notes.list(&self.prefix, MAX_NOTES, None).await {
            Ok(list) => list,
            Err(error) => {
                tracing::debug!(%error, "earlier notes cannot be listed");
                return Vec::new();
            }
        };
        let mut shown = Vec::new();
        let mut bytes = 0;
        for about in list.notes {
            let Ok(Some(note)) = self.notes.recall(&about.key).await else { continue };
            let Ok(lesson) = serde_json::from_slice::<Lesson>(&note.value) else { continue };
            let text = lesson.shown();
            bytes += text.len();
            if bytes > MAX_SHOWN_BYTES {
                break;
            }
            shown.push(text);
        }
        shown
    }

    /// Keeps what this run leaves, under a name of its own or one that is written over. A memory that fails is no failure of the run.
    pub(super) async fn keep(&self, name: &str, mut lesson: Lesson) {
        for text in [&mut lesson.task, &mut lesson.summary] {
            *text = flat(text);
        }
        lesson.tests = lesson.tests.as_deref().map(flat);
        lesson.files.truncate(MAX_FILES);
        let Ok(value) = serde_json::to_vec(&lesson) else { return };
        let note = NewNote::new(format!("{}{name}", self.prefix), value).with_category(CATEGORY).with_ttl(TTL);
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
        let shown = lesson().shown();
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
        let long = Lesson { summary: "ö".repeat(5000), ..lesson() };
        assert!(long.shown().len() < 2 * MAX_TEXT_BYTES);
    }
}
