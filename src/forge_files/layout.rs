//! Paths of all files and folders, from the root of the repository.

use crate::error::{Error, Result};

/// The folder of the project's memory.
pub const FORGE: &str = ".forge";
/// The settings.
pub const CONFIG: &str = ".forge/config.toml";
/// The knowledge as the RFC prints it: made from its entries.
pub const KNOWLEDGE: &str = ".forge/memory/long-term/knowledge.json";
/// The features as the RFC prints them: made from their entries.
pub const FEATURES: &str = ".forge/memory/long-term/features.json";
/// The knowledge, a file for each entry.
pub const KNOWLEDGE_ENTRIES: &str = ".forge/memory/long-term/knowledge";
/// The features, a file for each.
pub const FEATURES_ENTRIES: &str = ".forge/memory/long-term/features";
/// How the system is built.
pub const ARCHITECTURE: &str = ".forge/memory/long-term/architecture.md";
/// The folder of the current session.
pub const SHORT_TERM: &str = ".forge/memory/short-term";
/// The progress of the current session.
pub const PROGRESS: &str = ".forge/memory/short-term/progress.txt";
/// The current focus.
pub const FOCUS: &str = ".forge/memory/short-term/focus.json";
/// Notes and drafts, which are never committed.
pub const SCRATCH: &str = ".forge/memory/short-term/scratch";
/// Sessions that have ended.
pub const SESSIONS: &str = ".forge/memory/short-term/sessions";
/// The artifacts, in a folder for each kind.
pub const ARTIFACTS: &str = ".forge/memory/artifacts";
/// The index of the artifacts.
pub const ARTIFACT_INDEX: &str = ".forge/.local/artifacts.jsonl";
/// The skills.
pub const SKILLS: &str = ".forge/skills";
/// The issues that are worked on.
pub const ACTIVE: &str = ".forge/linear/active.json";
/// Issues, in a file for each: `SX9-123.json`.
///
/// Two additions on two branches are two files, so that any merge keeps both.
pub const ISSUES: &str = ".forge/linear/issues";
/// Comments on issues, in a folder for each issue and a file for each comment.
pub const COMMENTS: &str = ".forge/linear/comments";
/// Summaries of issues that are done.
pub const HISTORY: &str = ".forge/linear/history";
/// Changes that wait for the tracker.
pub const LINEAR_OUTBOX: &str = ".forge/linear/outbox.jsonl";
/// How far this clone has synchronised its issues, and what conflicts.
pub const SYNC: &str = ".forge/.local/linear/sync.json";
/// The values of each issue that both sides had last.
pub const BASES: &str = ".forge/.local/linear/base";
/// The forms of new issues.
pub const TEMPLATES: &str = ".forge/linear/templates";
/// The last commits: a cache.
pub const COMMITS: &str = ".forge/git/commits.log";
/// The branches: a cache.
pub const BRANCHES: &str = ".forge/git/branches.json";
/// The manifests of the checkpoints.
pub const CHECKPOINTS: &str = ".forge/git/checkpoints";
/// What sets up the environment.
pub const INIT: &str = ".forge/init.sh";
/// The command that runs it.
pub const INIT_COMMAND: &str = "sh .forge/init.sh";
/// What belongs to this clone alone.
pub const LOCAL: &str = ".forge/.local";
/// The lock of this work tree.
pub const LOCK: &str = ".forge/.local/lock";
/// The lock of the one rollback that may go on in this work tree.
pub const ROLLBACK_LOCK: &str = ".forge/.local/rollback.lock";
/// Every event, with its exact time.
pub const JOURNAL: &str = ".forge/.local/journal.jsonl";
/// Events that no server has yet.
pub const EVENTS_OUTBOX: &str = ".forge/.local/outbox.events.jsonl";
/// The last good bytes of each file.
pub const LAST_GOOD: &str = ".forge/.local/lastgood";
/// Damaged files, as they were found.
pub const QUARANTINE: &str = ".forge/.local/quarantine";
/// Which findings of the scanner for secrets were let through, and by whom.
pub const EXCEPTIONS: &str = ".forge/.local/exceptions.jsonl";
/// Why work is paused.
pub const PAUSED: &str = ".forge/.local/paused.json";
/// The colours of the past.
pub const HEALTH: &str = ".forge/.local/health.jsonl";
/// The sessions that live in this work tree.
pub const LIVING: &str = ".forge/.local/sessions.json";
/// Sessions that ended in this work tree, with the steps of their end.
pub const ENDED: &str = ".forge/.local/ended.json";

/// Returns the path of a session's folder, by the folder's name.
///
/// # Errors
/// `Usage` if that is no plain name: at most 64 letters, digits, `.`, `_` and `-`, the first a
/// letter or digit.
pub fn session_folder(session: &str) -> Result<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fits = session.len() <= 64
        && session
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && session.bytes().all(plain);
    if fits {
        Ok(format!("{SESSIONS}/{session}"))
    } else {
        Err(Error::usage(format!("{session:?} is no id of a session")))
    }
}
