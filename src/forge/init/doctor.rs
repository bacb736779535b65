//! `forge doctor`: finds missing, unknown or damaged files, and with `--fix` creates missing ones.

use std::os::unix::fs::PermissionsExt as _;

use serde::Serialize;

use super::tree;
use crate::config::Config;
use crate::error::Result;
use crate::events::Events;
use crate::features::FeaturesFile;
use crate::files::{Document as _, EntryFile};
use crate::health::Code;
use crate::init;
use crate::knowledge::LearningEntry;
use crate::layout::{CONFIG, FEATURES_ENTRIES, INIT, KNOWLEDGE_ENTRIES, LOCAL};
use crate::local;
use crate::project::Project;
use crate::repair::{self, Extent};

/// A problem of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// Not found.
    Missing,
    /// It does not exist yet, which is fine: it belongs to one clone, or git keeps no empty
    /// folders.
    ///
    /// It is created when it is needed.
    NotYet,
    /// Its purpose is unknown.
    Unexpected,
    /// It is not executable, or anyone may write to it.
    WrongMode,
    /// It is damaged.
    Damaged,
    /// A newer program wrote it.
    SchemaNewer,
    /// An unknown setting.
    UnknownSetting,
    /// A setting with an invalid value.
    WrongSetting,
    /// Git tracks a file that belongs to one clone only.
    LocalTracked,
    /// The merge driver is not set up in this clone. The memory is fine without it; merges may not
    /// be.
    MergeDriverMissing,
}

/// A finding of the doctor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The path, below the root.
    pub path: String,
    /// The problem.
    pub problem: Problem,
    /// Details.
    pub detail: String,
    /// Whether it was fixed.
    pub fixed: bool,
    /// A command that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Diagnosis {
    fn new(path: impl Into<String>, problem: Problem, detail: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem,
            detail: detail.into(),
            fixed: false,
            next: None,
        }
    }

    fn next(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }
}

/// Result of `forge doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doctor {
    /// Whether no problem is left. A file that is not created yet is not a problem.
    pub healthy: bool,
    /// The findings, in the order of their paths.
    pub found: Vec<Diagnosis>,
}

/// Checks every folder and document. With `fix` it creates missing ones, and nothing else.
///
/// # Errors
/// `Failed` if something cannot be read or created; with `fix` also `Locked`.
pub fn doctor(project: &Project, fix: bool) -> Result<Doctor> {
    let mut found = Vec::new();
    find_missing(project, &mut found)?;
    find_unexpected(project, &mut found)?;
    find_wrong_modes(project, &mut found);
    find_damaged(project, &mut found)?;
    if let Some(path) = local::tracked(project)? {
        let detail =
            format!("git tracks it, and {LOCAL} belongs to one clone alone: it is somebody else's");
        let tracked = Diagnosis::new(path, Problem::LocalTracked, detail);
        found.push(tracked.next(format!("git rm --cached -r {LOCAL}")));
    }
    if let Ok(git) = project.git()
        && git.is_merge_driver_missing()?
    {
        let detail = "it names the merge driver forge-json, which each clone sets up for itself";
        let missing = Diagnosis::new(".forge/.gitattributes", Problem::MergeDriverMissing, detail);
        found.push(missing.next(Code::MergeDriverMissing.next()));
    }
    if fix {
        project.check_not_paused()?;
    }
    if fix
        && found
            .iter()
            .any(|diagnosis| matches!(diagnosis.problem, Problem::Missing | Problem::NotYet))
    {
        let created = init::create_missing(project)?;
        for diagnosis in &mut found {
            diagnosis.fixed = created.contains(&diagnosis.path);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let well = |diagnosis: &Diagnosis| {
        diagnosis.fixed
            || matches!(
                diagnosis.problem,
                Problem::NotYet | Problem::MergeDriverMissing
            )
    };
    let healthy = found.iter().all(well);
    if let Some(local) = found
        .iter()
        .position(|diagnosis| diagnosis.path == LOCAL && !diagnosis.fixed)
    {
        // An unused clone lacks all of these files: report it once.
        found[local].detail =
            "nobody has worked in this clone yet; what belongs to one clone is created then".into();
        found[local].next = Some("helmdeck forge session start".into());
        found.retain(|diagnosis| diagnosis.problem != Problem::NotYet || diagnosis.path == LOCAL);
    }
    Ok(Doctor { healthy, found })
}

fn find_missing(project: &Project, found: &mut Vec<Diagnosis>) -> Result<()> {
    let folders = tree::folders().into_iter().map(|path| (path, true));
    let files = tree::files(project.environment(), project.config().git.enabled)
        .into_iter()
        .map(|seed| (seed.path, false));
    for (path, folder) in folders.chain(files) {
        // What is lost is reported with what is damaged.
        let folder_of = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_lost = project.files().is_lost(&path)? || project.files().is_lost(folder_of)?;
        if project.files().entry(&path)?.is_none() && !is_lost {
            // Git keeps no empty folders, and ignores some files: a clone without them is fine.
            let (problem, detail) = match (folder, tree::is_local(&path) || path == LOCAL) {
                (true, _) => (Problem::NotYet, "the folder is created when it is needed"),
                (false, true) => (
                    Problem::NotYet,
                    "it belongs to one clone, and this one has none yet",
                ),
                (false, false) => (Problem::Missing, "the file is part of every project"),
            };
            found.push(Diagnosis::new(path, problem, detail).next("helmdeck forge doctor --fix"));
        }
    }
    Ok(())
}

fn find_unexpected(project: &Project, found: &mut Vec<Diagnosis>) -> Result<()> {
    for folder in tree::KNOWN {
        for entry in project.files().list(folder)? {
            let path = format!("{folder}/{}", entry.name);
            if !tree::is_expected(&path) {
                let detail = "nobody knows what it is for; it is left as it is";
                found.push(Diagnosis::new(path, Problem::Unexpected, detail));
            }
        }
    }
    for folder in [KNOWLEDGE_ENTRIES, FEATURES_ENTRIES] {
        for entry in project
            .files()
            .list(folder)?
            .into_iter()
            .filter(|entry| !entry.name.starts_with('.'))
        {
            let path = format!("{folder}/{}", entry.name);
            let bytes = project
                .files()
                .reading()
                .read(&path)
                .ok()
                .flatten()
                .unwrap_or_default();
            let is_one = EntryFile::is_one(&entry.name) && !entry.folder;
            let file = EntryFile {
                path: path.clone(),
                bytes,
                modified: entry.modified,
            };
            let detail = match is_one && (folder == KNOWLEDGE_ENTRIES || !file.is_markdown()) {
                true if !file.is_markdown() => continue,
                true => match LearningEntry::from_markdown(&file) {
                    Ok(_) if project.files().refuse_secrets(&path, &file.bytes).is_ok() => continue,
                    Ok(_) => "it holds what looks like a secret, and is not taken over".to_owned(),
                    Err(why) => format!("nothing can be learned from it: {why}"),
                },
                false => "it is no entry; it is left as it is".to_owned(),
            };
            found.push(Diagnosis::new(path, Problem::Unexpected, detail));
        }
    }
    Ok(())
}

fn find_wrong_modes(project: &Project, found: &mut Vec<Diagnosis>) {
    let paths = tree::files(project.environment(), true)
        .into_iter()
        .map(|seed| seed.path);
    for path in paths {
        let Ok(about) = project.root().join(&path).symlink_metadata() else {
            continue;
        };
        let mode = about.permissions().mode() & 0o777;
        let detail = if path == INIT && mode & 0o100 == 0 {
            format!("its mode is {mode:03o}, and it is to be run: 755")
        } else if about.is_file() && mode & 0o002 != 0 {
            format!("its mode is {mode:03o}: everybody may write it")
        } else {
            continue;
        };
        found.push(Diagnosis::new(path, Problem::WrongMode, detail));
    }
}

fn find_damaged(project: &Project, found: &mut Vec<Diagnosis>) -> Result<()> {
    for one in repair::all_damage(project)? {
        let problem = if one.extent == Extent::Newer {
            Problem::SchemaNewer
        } else {
            Problem::Damaged
        };
        found.push(Diagnosis {
            next: one.next,
            ..Diagnosis::new(one.path, problem, one.detail)
        });
    }
    // Two branches may leave features that do not fit together, though each file is good.
    if let Ok(Some(loaded)) = project.files().reading().load::<FeaturesFile>()
        && let Err(detail) = loaded.value.check()
    {
        found.push(Diagnosis::new(FEATURES_ENTRIES, Problem::Damaged, detail));
    }
    // An unreadable settings file was reported already.
    let Ok(settings) = project.files().reading().read(CONFIG) else {
        return Ok(());
    };
    let settings = settings.unwrap_or_default();
    let unknown = Config::unknown(&String::from_utf8_lossy(&settings)).into_iter();
    let unknown = unknown.map(|name| (Problem::UnknownSetting, format!("{name} has no effect")));
    let wrong = Events::new(project).wrong_settings();
    let wrong = wrong.map(|detail| (Problem::WrongSetting, format!("[events]: {detail}")));
    found.extend(
        unknown
            .chain(wrong)
            .map(|(problem, detail)| Diagnosis::new(CONFIG, problem, detail)),
    );
    Ok(())
}
