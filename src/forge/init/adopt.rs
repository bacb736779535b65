//! `forge init --adopt`: imports what other tools left in the repository. Their files are only
//! read.
//!
//! A feature that another tool calls done is failing here until it is verified. Notes become
//! proposals: they are learned only when a person accepts them.

use helmdeck_core::text;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::features::{
    ADOPTED_FROM, BlockedBy, Feature, Features, FeaturesFile, Numbers, Status, adopted_name,
    new_feature,
};
use crate::json::Json;
use crate::knowledge;
use crate::layout::{SCRATCH, SESSIONS};
use crate::progress;
use crate::project::Project;

/// Maximum length of a feature name, in characters; the description keeps the full text.
const MAX_NAME: usize = 200;
/// Minimum and maximum length of a proposed note, in characters.
const NOTE: std::ops::RangeInclusive<usize> = 10..=500;
/// Maximum number of proposed notes of one file.
const MAX_NOTES: usize = 200;
/// Prefix of the ids of adopted features.
const PREFIX: &str = "ADOPTED";
/// The features of the pattern for long-running agents.
const LIST: &str = "feature_list.json";
/// The issues of beads.
const BEADS: &str = ".beads/issues.jsonl";

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Adopted {
    /// The ids of new features.
    pub features: Vec<String>,
    /// The keys of new issues.
    pub issues: Vec<String>,
    /// The files with the progress of former sessions.
    pub progress: Vec<String>,
    /// Notes that may be worth learning.
    pub proposals: Vec<Proposal>,
    /// What was skipped, and why.
    pub skipped: Vec<String>,
}

/// A note that may be worth learning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// The file that contains it.
    pub from: String,
    /// The line, from 1.
    pub line: usize,
    /// The note.
    pub text: String,
}

/// An entry of `feature_list.json`.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    category: Option<String>,
    description: String,
    #[serde(default)]
    steps: Vec<String>,
    #[serde(default)]
    passes: bool,
}

pub(super) fn adopt(project: &Project) -> Result<Adopted> {
    let mut adopted = Adopted {
        skipped: knowledge::adopt::take_over(project)?,
        ..Adopted::default()
    };
    if let Some(text) = read(project, LIST, &mut adopted.skipped) {
        match serde_json::from_str(&text) {
            Ok(listed) => add(project, listed, &mut adopted)?,
            Err(error) => adopted.skipped.push(format!("{LIST}: {error}")),
        }
    }
    if let Some(text) = read(project, BEADS, &mut adopted.skipped) {
        let taken = project.issues().adopt(BEADS, &text)?;
        adopted.issues = taken.keys;
        adopted.skipped.extend(taken.skipped);
        for (line, text) in taken.memories {
            if is_secret(project, BEADS, &text) {
                adopted
                    .skipped
                    .push(format!("{BEADS}:{line}: it looks like a secret"));
            } else {
                adopted.proposals.push(Proposal {
                    from: BEADS.to_owned(),
                    line,
                    text,
                });
            }
        }
    }
    take_progress(project, &mut adopted)?;
    for from in ["MEMORY.md", "CLAUDE.md"] {
        if let Some(text) = read(project, from, &mut adopted.skipped) {
            adopted
                .proposals
                .extend(notes(project, from, &text, &mut adopted.skipped));
        }
    }
    if !adopted.proposals.is_empty() {
        let mut text = String::from(
            "# Proposals\n\nNotes of other tools. None is learned unless somebody adds it: helmdeck forge knowledge add\n",
        );
        for proposal in &adopted.proposals {
            text.push_str(&format!(
                "\n- {}:{}: {}",
                proposal.from, proposal.line, proposal.text
            ));
        }
        text.push('\n');
        project
            .files()
            .create(&format!("{SCRATCH}/proposals.md"), text.as_bytes())?;
    }
    Ok(adopted)
}

/// Reads a file of another tool, if it exists. An unreadable file is skipped and reported.
fn read(project: &Project, path: &str, skipped: &mut Vec<String>) -> Option<String> {
    let text = match project.files().read(path) {
        Ok(bytes) => String::from_utf8(bytes?).map_err(|_| format!("{path}: it is no UTF-8")),
        Err(error) => Err(error.message),
    };
    let text = text.map_err(|why| skipped.push(why)).ok()?;
    Some(text.trim_start_matches('\u{feff}').to_owned())
}

/// Says whether a feature exists, or was removed as unwanted.
fn is_known(file: &FeaturesFile, name: &str) -> bool {
    let here = |feature: &Feature| {
        feature.name == name
            && matches!(feature.other.0.get(ADOPTED_FROM), Some(Json::String(from)) if from == LIST)
    };
    file.features.iter().any(here) || file.not_adopted.contains(&adopted_name(LIST, name))
}

fn add(project: &Project, mut new: Vec<Listed>, adopted: &mut Adopted) -> Result<()> {
    let file = Features::new(project).read()?;
    new.retain(|new| !is_known(&file, &one_line(&new.description)));
    if new.is_empty() {
        return Ok(());
    }
    let git = project.repository()?;
    let guard = project.common_lock()?;
    let mut numbers = Numbers::read(git.as_ref());
    project.files().edit(None, |file: &mut FeaturesFile| {
        for new in new {
            let name = one_line(&new.description);
            if name.is_empty() || is_known(file, &name) {
                continue;
            }
            let texts = || {
                new.steps
                    .iter()
                    .chain(&new.category)
                    .chain([&new.description])
            };
            if texts().any(|text| is_secret(project, LIST, text)) {
                adopted
                    .skipped
                    .push(format!("{LIST}: a feature holds what looks like a secret"));
                continue;
            }
            let mut feature = new_feature(project, numbers.next_id(file, PREFIX), name);
            numbers.note(&feature.id);
            adopted.features.push(feature.id.clone());
            // Another tool may claim that it works; here it must be verified.
            feature.status = if new.passes {
                Status::Failing
            } else {
                Status::NotImplemented
            };
            feature.tests = Some(Vec::new());
            feature.blocked_by = Some(BlockedBy::Nothing);
            feature.category = new.category;
            feature.steps = Some(new.steps).filter(|steps| !steps.is_empty());
            let other = &mut feature.other.0;
            if new.description != feature.name {
                other.insert("description".to_owned(), Json::String(new.description));
            }
            other.insert(ADOPTED_FROM.to_owned(), Json::String(LIST.to_owned()));
            file.features.push(feature);
        }
        Ok(())
    })?;
    if !adopted.features.is_empty() {
        numbers.write();
    }
    drop(guard);
    Ok(())
}

/// Imports the progress of former sessions into the archive of ended sessions.
fn take_progress(project: &Project, adopted: &mut Adopted) -> Result<()> {
    const FROM: &str = "claude-progress.txt";
    let text = read(project, FROM, &mut adopted.skipped).filter(|text| !text.trim().is_empty());
    let Some(text) = text else { return Ok(()) };
    let Some(about) = project.files().entry(FROM)? else {
        return Ok(());
    };
    let zone = &project.environment().zone;
    let opening = progress::text::opening(about.modified, zone, None);
    // No real session has this number.
    let path = format!(
        "{SESSIONS}/{}-session-000/progress.txt",
        zone.to_datetime(about.modified.0).date()
    );
    let body = format!("# adopted from {FROM}\n{}\n", text.trim_end());
    for folder in project.files().list(SESSIONS)? {
        let other = format!("{SESSIONS}/{}/progress.txt", folder.name);
        if project
            .files()
            .read(&other)?
            .is_some_and(|bytes| bytes.ends_with(body.as_bytes()))
        {
            return Ok(());
        }
    }
    match project
        .files()
        .create(&path, format!("{opening}{body}").as_bytes())
    {
        Ok(true) => adopted.progress.push(path),
        Ok(false) => adopted
            .skipped
            .push(format!("{FROM}: {path} is there already")),
        Err(Error {
            code: "E_SECRET",
            message,
            ..
        }) => adopted.skipped.push(message),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Finds the list items of a Markdown text, except those in code blocks.
fn notes(project: &Project, from: &str, text: &str, skipped: &mut Vec<String>) -> Vec<Proposal> {
    let mut found = Vec::new();
    let mut code = false;
    let mut secret = 0;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            code = !code;
        }
        let Some(note) = line
            .strip_prefix("- ")
            .or_else(|| line.strip_prefix("* "))
            .filter(|_| !code)
        else {
            continue;
        };
        let note = note.trim();
        if !NOTE.contains(&note.chars().count()) || note.chars().any(char::is_control) {
            continue;
        }
        if is_secret(project, from, note) {
            secret += 1;
        } else if found.len() < MAX_NOTES {
            found.push(Proposal {
                from: from.to_owned(),
                line: at + 1,
                text: note.to_owned(),
            });
        }
    }
    if secret > 0 {
        skipped.push(format!("{from}: {secret} notes look like a secret"));
    }
    found
}

/// Says whether a text looks like it contains a credential that is not marked as harmless.
fn is_secret(project: &Project, from: &str, text: &str) -> bool {
    project
        .files()
        .refuse_secrets(from, text.as_bytes())
        .is_err()
}

fn one_line(text: &str) -> String {
    text::collapse_whitespace(text)
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_NAME)
        .collect()
}
