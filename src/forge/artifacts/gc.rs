//! Garbage collection of artifacts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use schemars::JsonSchema;
use serde::Serialize;

use super::entry::{Kind, ProjectArtifact};
use super::index::Index;
use super::{Artifacts, append};
use crate::committed;
use crate::error::Result;
use crate::layout::{ARTIFACTS, CHECKPOINTS, FORGE, SHORT_TERM};
use crate::project::Project;
use crate::time::Time;
use crate::triv::{FileName, Reference};

/// How long the file of a removed artifact stays, empty.
const EMPTY_FOR: Duration = Duration::from_secs(30 * 86_400);
/// Name of the reports that checks leave.
pub(crate) const CHECK_REPORT: &str = "check.txt";

/// Options of the garbage collection of artifacts.
///
/// It removes superseded artifacts and, on request, old ones. An artifact stays if a file of the memory names it or
/// another artifact was made from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gc {
    /// Also those last stored longer ago than that. `None` = age does not matter.
    pub older: Option<Duration>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Also those that are not committed unmodified: git cannot restore them.
    pub uncommitted: bool,
    /// Whether they are removed. Otherwise this is a dry run.
    pub apply: bool,
}

/// Result of a garbage collection of artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Gone {
    /// Those that were removed, or would be.
    pub removed: Vec<Candidate>,
    /// Those that would be removed, but are kept because they are not committed.
    pub uncommitted: Vec<Candidate>,
    /// How many superseded or old artifacts are kept because something refers to them.
    pub needed: usize,
    /// How long the removed ones are together, in bytes.
    pub bytes: u64,
    /// Whether they were removed.
    pub applied: bool,
}

/// An artifact that is no longer needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Candidate {
    /// Its file, below the root.
    pub path: String,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// Why it is no longer needed: `superseded` or `old`.
    pub reason: String,
}

impl Artifacts<'_> {
    /// Finds the artifacts that are no longer needed, and removes them if `apply` is set.
    ///
    /// Their entries stay in the index.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged, `Paused`, `Locked`.
    pub fn gc(&self, gc: &Gc) -> Result<Gone> {
        self.collect(gc, |_| true)
    }

    /// Removes reports of verifications and checks that a newer one replaces and that nothing names.
    ///
    /// Uncommitted ones too: their results are in the newer report.
    ///
    /// # Errors
    /// As [`Self::gc`].
    pub(crate) fn remove_superseded_reports(&self) -> Result<Gone> {
        self.collect(&Gc { uncommitted: true, apply: true, ..Gc::default() }, |entry| self.report_of(entry).is_some())
    }

    /// Returns what a report is about, if a verification or a check made it.
    fn report_of(&self, entry: &ProjectArtifact) -> Option<String> {
        if entry.kind != Kind::Reports {
            return None;
        }
        if entry.name.starts_with("verify_") && entry.name.ends_with(".json") {
            return Some(entry.name.clone());
        }
        if entry.name != CHECK_REPORT {
            return None;
        }
        // Its first line is the command.
        let bytes = self.project.files().read(&entry.path).ok().flatten()?;
        let first = bytes.split(|byte| *byte == b'\n').next()?;
        first.starts_with(b"$ ").then(|| String::from_utf8_lossy(first).into_owned())
    }

    fn collect(&self, gc: &Gc, wanted: impl Fn(&ProjectArtifact) -> bool) -> Result<Gone> {
        let project = self.project;
        let has = committed::below(project, ARTIFACTS).unwrap_or_default();
        // Where the memory is made for merges, a file that another branch has too stays, empty.
        let own = (gc.apply && project.config().files.per_entry).then(|| committed::only_here(project, ARTIFACTS));
        let stays = |path: &str| {
            own.as_ref().is_some_and(|own| has.contains(path) && !own.iter().flatten().any(|one| one == path))
        };
        let files = project.files();
        let guard = if gc.apply {
            project.check_not_paused()?;
            Some(files.lock()?)
        } else {
            None
        };
        let (index, _) = Index::read(project)?;
        index.check_sound(project)?;
        let mut by_path: BTreeMap<&str, Vec<&ProjectArtifact>> = BTreeMap::new();
        for entry in index.entries.iter().filter(|entry| entry.removed_at.is_none()) {
            by_path.entry(&entry.path).or_default().push(entry);
        }
        let reports: BTreeMap<&str, String> = by_path
            .iter()
            .filter_map(|(path, entries)| Some((*path, entries.iter().find_map(|entry| self.report_of(entry))?)))
            .collect();
        let named = Named::in_memory(project)?;
        let now = project.environment().now();
        let mut gone = Gone { applied: gc.apply, ..Gone::default() };
        for (path, entries) in &by_path {
            let Some(newest) = entries.iter().max_by_key(|entry| entry.created_at) else { continue };
            let others = || by_path.iter().filter(|(other, _)| *other != path).flat_map(|(_, entries)| entries);
            let is_it = |reference: &Reference| entries.iter().any(|entry| reference.matches(&entry.triv));
            let age = Duration::try_from(now.0.duration_since(newest.created_at.0)).unwrap_or_default();
            // Of the reports on one feature or command, the newest counts, besides those that something names.
            let verified_again = reports.get(path).is_some_and(|report| {
                others().any(|other| {
                    reports.get(other.path.as_str()) == Some(report) && other.created_at > newest.created_at
                })
            });
            let reason = if verified_again || others().any(|other| other.supersedes.as_ref().is_some_and(is_it)) {
                "superseded"
            } else if gc.older.is_some_and(|older| age > older) {
                "old"
            } else {
                continue;
            };
            if !wanted(newest) {
                continue;
            }
            let Some(file) = files.entry(path)? else { continue };
            if gc.kind.is_some_and(|kind| kind != newest.kind) {
                continue;
            }
            if named.references.iter().any(is_it)
                || named.files.iter().any(|name| newest.triv.sch().starts_with(name.short()))
                || others().any(|other| other.produced_from.iter().any(is_it))
            {
                gone.needed += 1;
                continue;
            }
            let candidate = Candidate { path: (*path).to_owned(), bytes: file.bytes, reason: reason.to_owned() };
            if !gc.uncommitted && !has.contains(*path) {
                gone.uncommitted.push(candidate);
                continue;
            }
            gone.bytes += file.bytes;
            gone.removed.push(candidate);
            if gc.apply {
                // The line is written first: after a crash in between, the file only stays a little longer.
                for entry in entries {
                    append(project, &ProjectArtifact { removed_at: Some(now.seconds()), ..(*entry).clone() })?;
                }
                if stays(path) {
                    files.write(path, b"")?;
                } else {
                    files.remove(path)?;
                }
            }
        }
        if gc.apply {
            remove_emptied(project, &index, &has)?;
        }
        drop(guard);
        Ok(gone)
    }
}

/// Removes the files that were emptied long ago, so that hardly a branch still removes them too.
fn remove_emptied(project: &Project, index: &Index, has: &BTreeSet<String>) -> Result<()> {
    let now = project.environment().now();
    let is_old = |at: Time| Duration::try_from(now.0.duration_since(at.0)).is_ok_and(|age| age > EMPTY_FOR);
    for entry in index.entries.iter().filter(|entry| entry.removed_at.is_some_and(is_old)) {
        if has.contains(&entry.path) && project.files().entry(&entry.path)?.is_some_and(|file| file.bytes == 0) {
            project.files().remove(&entry.path)?;
        }
    }
    Ok(())
}

/// The artifacts that the memory names.
#[derive(Default)]
struct Named {
    references: Vec<Reference>,
    files: Vec<FileName>,
}

static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("triv:[0-9a-z]{3,25}_[0-9a-z]{3,13}_[0-9a-z-]{3,36}|triv_[0-9a-z]{6,25}_[a-z0-9][a-z0-9._-]*").ok()
});

impl Named {
    /// Reads every file of the memory but the artifacts and what belongs to this clone alone.
    fn in_memory(project: &Project) -> Result<Self> {
        let mut named = Self::default();
        let folders = [
            "memory/long-term",
            "memory/long-term/features",
            "memory/long-term/knowledge",
            "linear",
            "linear/history",
            "linear/issues",
        ];
        let folders = folders.map(|folder| format!("{FORGE}/{folder}"));
        for folder in folders.into_iter().chain([CHECKPOINTS.to_owned(), SHORT_TERM.to_owned()]) {
            named.add_folder(project, &folder)?;
        }
        for session in project.files().list(crate::layout::SESSIONS)? {
            named.add_folder(project, &format!("{}/{}", crate::layout::SESSIONS, session.name))?;
        }
        Ok(named)
    }

    fn add_folder(&mut self, project: &Project, folder: &str) -> Result<()> {
        if !project.files().entry(folder)?.is_some_and(|entry| entry.folder) {
            return Ok(());
        }
        for file in project.files().list(folder)?.into_iter().filter(|entry| !entry.folder) {
            let bytes = project.files().read(&format!("{folder}/{}", file.name))?.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            for name in NAMES.iter().flat_map(|names| names.find_iter(&text)) {
                self.references.extend(Reference::parse(name.as_str()).ok());
                self.files.extend(FileName::parse(name.as_str()).ok());
            }
        }
        Ok(())
    }
}
